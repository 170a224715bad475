"""Shows for every rule of tools/tidy that it can fail: a small clean tree, and one change each."""
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest
import unittest.mock

SOURCE = os.environ.get('TUTTI_SOURCE_DIR',
                        os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def load_tidy():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader('tidy', os.path.join(SOURCE, 'tools/tidy'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('tidy', loader))
    loader.exec_module(module)
    return module


tidy = load_tidy()

HEADER = '''/**
 * @file apple.h
 * Apples.
 *
 * Example:
 *
 *     int n = tutti_apple_count("red");
 */
#ifndef TUTTI_APPLE_H
#define TUTTI_APPLE_H

/**
 * How many there are.
 *
 * @param colour  borrowed
 * @thread  any
 * @errors  none
 */
TUTTI_API int tutti_apple_count(const char *colour);

#endif
'''
SOURCE_FILE = '''/* Apples, counted. */
#include "core/base/basket.h"

int tutti_apple_count(const char *colour)
{
    return colour[0]; /* malloc( and printf( may be named in a comment */
}
'''
BASKET = '/* Baskets. */\n#ifndef TT_BASKET_H\n#define TT_BASKET_H\n#endif\n'
CLEAN = {
    'tools/layers.txt': 'core/base :\ncore/kernel : core/base\ncore/device : core/kernel\ncli :\n',
    'tools/tidy_allow.txt': '# nothing\n',
    'include/tutti/apple.h': HEADER,
    'src/core/base/basket.h': BASKET,
    'src/core/kernel/apple.c': SOURCE_FILE,
    'src/core/device/tree.c': '/* Trees. */\n#include "core/base/basket.h"\n',
    'README.md': 'see `core/base/basket.h`, `src/core/`, `apple.c`, not `foo_test.c`\n',
    'examples/01_apple.c': '/* An apple. */\n#include <tutti/apple.h>\n',
}
LONG_FUNCTION = '/* Long. */\nint f(void)\n{\n' + '    f();\n' * 70 + '}\n'
HOME = '/' + 'home/somebody/tutti'

# (rule, file, its text, a part of what is said)
BREAKS = [
    ('layers', 'src/core/base/up.c', '/* Up. */\n#include "core/kernel/apple.h"\n',
     'core/base may not include from core/kernel'),
    ('layers', 'src/cli/main.c', '/* Main. */\n#include "core/base/basket.h"\n',
     'cli may not include from core/base'),
    ('layers', 'src/other/pear.c', '/* Pear. */\n', 'lies in no layer'),
    ('layers', 'src/core/base/near.c', '/* Near. */\n#include "basket.h"\n', 'is no path'),
    ('public-includes', 'examples/02_core.c', '/* Two. */\n#include "core/base/basket.h"\n',
     'not public'),
    ('public-includes', 'include/tutti/apple.h', HEADER.replace('/**\n * How', '#include "a.h"\n'
                                                                '\n/**\n * How'), 'not public'),
    ('guard', 'src/core/base/basket.h', BASKET.replace('BASKET_H', 'BASKET'), 'TT_BASKET_H'),
    ('guard', 'src/core/base/basket.h', '/* Baskets. */\n', 'TT_BASKET_H'),
    ('unique-names', 'src/core/device/apple.c', '/* Apples again. */\n', 'has the name of'),
    ('columns', 'tools/layers.txt', CLEAN['tools/layers.txt'] + '#' * 101 + '\n', '101 columns'),
    ('whitespace', 'src/core/device/tree.c', '/* Trees. */ \n', 'blanks at the end'),
    ('whitespace', 'src/core/device/tree.c', '/* Trees. */\n\tint x;\n', 'a tab'),
    ('whitespace', 'src/core/device/tree.c', '/* Trees. */\n\n', 'one newline'),
    ('whitespace', 'src/core/device/tree.c', '/* Trees. */', 'one newline'),
    ('private-paths', 'README.md', 'see ' + HOME + '\n', 'names a path'),
    ('private-paths', 'README.md', 'see ../' + 'shared/x\n', 'names a path'),
    ('named-files', 'README.md', 'see `core/base/boat.h`\n', 'core/base/boat.h, which does not'),
    ('named-files', 'README.md', 'see `src/core/bass/`\n', 'src/core/bass/, which does not'),
    ('named-files', 'README.md', 'see `boat.h`\n', 'names boat.h'),
    ('comment-tables', 'src/core/device/tree.c', '/* Trees.\n *\n *     oak   hard\n * and old\n'
     ' *\n */\n', 'right below a row'),
    ('comment-tables', 'src/core/device/tree.c', '/* Trees.\n *\n * oak   hard\n */\n', 'a gap'),
    ('comment-tables', 'src/core/device/tree.c', '/* Trees, of     which oak is hard. */\n',
     'a gap'),
    ('comment-tables', 'src/core/device/tree.c', '/* Trees. */\n\n/* ---- oaks -----\n */\n',
     'a ruler'),
    ('opening', 'src/core/device/tree.c', 'int x;\n', 'opening comment'),
    ('size', 'src/core/device/tree.c', LONG_FUNCTION, 'a function of 73 lines'),
    ('size', 'src/core/device/tree.c', '/* Trees. */\n' * 601, '601 lines'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { strcpy(a, b); }\n', 'strcpy()'),
    ('calls', 'tests/unit/x.c', '/* T. */\nint f(void) { return atoi(a); }\n', 'atoi()'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { x = malloc(9); }\n', 'tt_alloc'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { return !getenv("A"); }\n',
     'config.def'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { printf("x"); }\n', 'printf()'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { exit(1); }\n', 'exit()'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { sleep(1); }\n', 'sleep()'),
    ('calls', 'src/parallel/ddp/tree.c', '/* T. */\nint f(void) { return tutti_tensor_wrap(a); }\n',
     'a tensor of its own'),
    ('calls', 'src/core/device/tree.c', '/* T. */\nint f(void) { x = strtod(a, 0); }\n',
     'tt_parse_real'),
    ('reals', 'src/core/device/tree.c',
     '/* T. */\nint f(void) { snprintf(a, b, "%d; "\n"%-8.*g", 1, 2, 0.5);\n}\n', 'a comma'),
    ('reals', 'src/core/device/tree.c', '/* T. */\nint f(void) { sscanf(a, "%lf", &b);\n}\n',
     'a comma'),
    ('platform', 'src/core/device/tree.c', '/* T. */\n#ifdef __linux__\n#endif\n', 'platform'),
    ('leak-check', 'src/core/device/tree_test.c', '/* T. */\n', 'tt_alloc_stats'),
    ('docs', 'include/tutti/apple.h', HEADER.replace(' * @thread  any\n', ''), 'no @thread'),
    ('docs', 'include/tutti/apple.h', HEADER.replace(' * @errors  none\n', ''), 'no @errors'),
    ('docs', 'include/tutti/apple.h', HEADER.replace('colour  b', 'color  b'),
     'has no parameter color'),
    ('docs', 'include/tutti/apple.h', HEADER.replace(' * How many there are.\n *\n', ''),
     'does not begin with a sentence'),
    ('docs', 'include/tutti/apple.h', HEADER.replace('/**\n * How', '/*\n * How'), 'no /**'),
    ('docs', 'include/tutti/apple.h', HEADER.replace('Example:', 'So:'), 'Example:'),
    ('docs', 'include/tutti/apple.h', HEADER.replace(' * How', ' * @file apple.h\n * How'),
     'in the opening comment alone'),
    ('symbols', 'include/tutti/apple.h', HEADER.replace(' tutti_apple_', ' apple_'),
     'wants the prefix tutti_'),
]

# What `nm -g -P` says of an archive in which apple needs pear, pear tree, and tree apple;
# leaf is only used, rose only uses.
CYCLE = '''x.a[apple.c.o]:
tutti_apple_count T 0 8
tt_pear U
tt_leaf U
memcpy U
x.a[pear.c.o]:
tt_pear T 0 8
tt_tree U
x.a[tree.c.o]:
tt_tree D 0 8
tutti_apple_count U
x.a[leaf.c.o]:
tt_leaf T 0 8
x.a[rose.c.o]:
tt_rose T 0 8
tt_tree U
'''


class Tidy(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def findings(self, changed=None, names=None):
        for path, text in {**CLEAN, **(changed or {})}.items():
            full = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, 'w', encoding='utf-8') as file:
                file.write(text)
        return tidy.check(tidy.Tree(self.folder.name), names)

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(self.findings(), [])

    def test_every_rule_is_shown_to_fail(self):
        shown = {name for name, *_ in BREAKS} | {'format', 'globals', 'cycles', 'unused',
                                                 'owners'}  # below
        self.assertEqual(shown, set(tidy.RULES))

    def test_a_field_that_three_files_change_is_named(self):
        folder = 'src/parallel/ddp/'
        tree = {folder + 'ddp_impl.h': '/* D. */\nstruct tutti_ddp {\n    part_t part;\n'
                                       '    int *count, other;\n};\n',
                folder + 'a.c': 'x = ddp->part.list[i - 1].size == 1;\n++ddp->count;\n',
                folder + 'b.c': 'const part_t *p = &ddp->part;\nddp->count[0]--;\n',
                folder + 'c.c': 'part_t *p = &ddp->part;\nddp->count = y;\n'}
        found = self.findings(tree, ['owners'])
        self.assertEqual(len(found), 1)
        self.assertIn('count is changed by a.c, b.c, c.c', str(found[0]))
        tree[folder + 'a.c'] += 'ddp->part.list[i - 1].size += 1;\n'
        tree[folder + 'b.c'] += 'ddp->part.work->x = NULL;\n'
        self.assertIn('part is changed by a.c, b.c, c.c', str(self.findings(tree, ['owners'])))

    def test_a_layer_may_use_what_its_lower_layers_use(self):
        self.assertEqual(self.findings(names=['layers']), [])
        self.assertIn('core/base', tidy.read_layers(self.folder.name)['core/device'])

    def test_a_circle_of_layers_is_named(self):
        with self.assertRaisesRegex(ValueError, 'a circle through'):
            self.findings({'tools/layers.txt': 'a : b\nb : a\n'}, ['layers'])

    def test_an_exemption_holds_and_must_be_needed(self):
        changed = {'src/core/device/tree.c': LONG_FUNCTION,
                   'tools/tidy_allow.txt': 'size src/core/device/tree.c:f a picture in code\n'}
        self.assertEqual(self.findings(changed), [])
        changed['src/core/device/tree.c'] = '/* Short. */\n'
        self.assertIn('needs no exemption', '\n'.join(self.findings(changed)))

    def test_exported_symbols_are_those_declared(self):
        texts = [text for *_, text in tidy.compare_symbols({'tutti_a', 'tt_b'}, {'tutti_a', 'c'})]
        self.assertEqual(len(texts), 2)
        self.assertIn('tt_b is exported', texts[0])
        self.assertIn('c is declared', texts[1])

    def test_mutable_globals_are_found_and_constants_are_not(self):
        listing = '\n'.join((
            'apple.c.o:     file format elf64-x86-64',
            '0000000000000000 l    d  .bss\t0000000000000000 .bss',
            '0000000000000000 l     O .bss\t0000000000000008 count',
            '0000000000000000 l       .tbss\t0000000000000400 last',
            '0000000000000000 g     O .data\t0000000000000004 .hidden state',
            '0000000000000000 l     O .data.rel.ro.local\t0000000000000028 names',
            '0000000000000000 l     O .rodata\t0000000000000028 table',
            '0000000000000000 g     F .text\t0000000000000028 run'))
        names = [name for _, name in tidy.mutable_symbols(listing)]
        self.assertEqual(names, ['count', 'last', 'state'])
        self.findings()
        found = list(tidy.mutable_globals(listing, tidy.Tree(self.folder.name)))
        self.assertEqual(found[0][0], 'src/core/kernel/apple.c')

    def cycle_findings(self, listing, text):
        self.findings({'tools/cycles.txt': text})
        tree = tidy.Tree(self.folder.name)
        uses = tidy.file_uses(listing, tree)
        return [text for *_, text in tidy.compare_cycles(uses, tidy.read_cycles(tree.root))]

    def test_a_cycle_is_found_by_its_symbols_and_explained(self):
        found = self.cycle_findings(CYCLE, '# nothing\n')
        self.assertEqual(len(found), 1)
        self.assertIn('apple.c pear.c tree.c', found[0])
        self.assertIn('apple.c uses tt_pear of pear.c, which uses tt_tree of tree.c, which uses '
                      'tutti_apple_count of apple.c', found[0])

    def test_a_cycle_that_is_listed_with_a_reason_passes(self):
        self.assertEqual(self.cycle_findings(CYCLE, 'tree.c apple.c\n  pear.c: grafting\n'), [])
        self.assertIn('wants a reason', self.cycle_findings(CYCLE, 'tree.c apple.c pear.c:\n')[0])

    def test_a_listed_cycle_that_is_gone_or_smaller_is_stale(self):
        listing = CYCLE.replace('tt_pear U', 'memcpy U')
        found = self.cycle_findings(listing, 'tree.c apple.c pear.c: grafting\n')
        self.assertEqual(len(found), 1)
        self.assertIn('not a cycle any more', found[0])
        found = self.cycle_findings(CYCLE, 'tree.c apple.c pear.c rose.c: grafting\n')
        self.assertEqual(len(found), 2)

    def test_variants_of_one_source_are_one_file(self):
        listing = CYCLE.replace('apple.c', 'apple_simd.c').replace('pear.c', 'apple_simd.c')
        self.assertEqual(self.cycle_findings(listing.replace('tt_tree U', 'memcpy U'), ''), [])
        self.assertIn('apple_simd.c tree.c', self.cycle_findings(listing, '')[0])

    def test_cycles_are_found_in_an_archive(self):
        self.findings({'a.c': 'void g(void); void f(void); void f(void) { g(); }\n',
                       'b.c': 'void g(void); void f(void); void g(void) { f(); }\n'})
        names, folder = ('a.c', 'b.c'), self.folder.name
        for name in names:
            tidy.subprocess.run([os.environ.get('CC', 'cc'), '-c', name, '-o', name + '.o'],
                                cwd=folder, check=True)
        tidy.subprocess.run(['ar', 'rc', 'x.a'] + [name + '.o' for name in names], cwd=folder,
                            check=True)
        tree = tidy.Tree(folder, archive=os.path.join(folder, 'x.a'))
        self.assertIn('a.c uses g of b.c', '\n'.join(tidy.check(tree, ['cycles'])))

    def unused(self, changed=None):
        self.findings(changed)
        return [text for *_, text in tidy.unused_functions(CYCLE, tidy.Tree(self.folder.name))]

    def test_functions_that_no_other_file_uses_are_found(self):
        found = self.unused({'src/core/device/rose.h': 'void tt_rose(void);\n'})
        self.assertEqual(len(found), 1)
        self.assertIn('tt_rose is used by no other file', found[0])

    def test_functions_that_a_test_calls_are_used(self):
        test = '/* Roses. */\n#include "core/base/testing.h"\nvoid f(void) { tt_rose(); }\n'
        self.assertEqual(self.unused({'src/core/device/rose_test.c': test}), [])
        self.assertEqual(self.unused({'src/core/device/rose_team.h': test}), [])

    def test_tables_that_stand_apart_and_documented_parameters_pass(self):
        text = ('/* Trees.\n *\n *     oak   hard\n *           and old\n *     fir   soft\n *\n'
                ' * So much.\n *\n * @param x    one\n *             goes on\n * @param yy   two\n'
                ' */\n#define X            \\\n    *a   = 1;   \\\n\n/*     a   b */\nint x;\n')
        self.assertEqual(self.findings({'src/core/device/tree.c': text}, ['comment-tables']), [])

    @unittest.skipUnless(tidy.shutil.which('clang-format'), 'clang-format is not installed')
    def test_the_formatter_leaves_tables_alone(self):
        with open(os.path.join(SOURCE, '.clang-format'), encoding='utf-8') as file:
            style = file.read()
        table = ' *     oak   ' + 'hard ' * 20 + 'wood\n *     fir   soft\n'
        for text in ('/* Trees.\n *\n' + table + ' */\nint x;\n',
                     'struct s {\n    /* Trees.\n     *\n    '
                     + table.replace('\n *', '\n     *') + '     */\n    int x;\n};\n'):
            changed = {'.clang-format': style, 'src/core/device/tree.c': text}
            self.assertEqual(self.findings(changed, ['format']), [])

    @unittest.skipUnless(tidy.shutil.which('clang-format'), 'clang-format is not installed')
    def test_format_is_checked(self):
        changed = {'.clang-format': 'BasedOnStyle: LLVM\n',
                   'src/core/device/tree.c': '/* Trees. */\nint   x;\n'}
        self.assertIn('clang-format would change', '\n'.join(self.findings(changed, ['format'])))

    @unittest.skipUnless(tidy.shutil.which('clang-format'), 'clang-format is not installed')
    def test_what_was_formatted_is_looked_at_when_it_or_the_style_changes(self):
        right, wrong = '/* Trees. */\nint x;\n', '/* Trees. */\nint   x;\n'
        wide = '/* Trees. */\nint f(int x) {\n  while (x)\n    x--;\n  return x;\n}\n'
        formatted = os.path.join(self.folder.name, 'formatted')
        looks = []

        def look(text, style='BasedOnStyle: LLVM\n'):
            self.findings({'.clang-format': style, 'src/core/device/tree.c': text}, ['guard'])
            found = tidy.check(tidy.Tree(self.folder.name, formatted=formatted), ['format'])
            return '\n'.join(found)

        def watch(command, **options):
            looks.append([name for name in command if name.endswith('.c')])
            return run(command, **options)

        run = tidy.subprocess.run
        with unittest.mock.patch.object(tidy.subprocess, 'run', watch):
            look(right)
            self.assertTrue(any('src/core/device/tree.c' in names for names in looks))
            looks.clear()
            self.assertNotIn('tree.c', look(right))
            self.assertFalse(any('src/core/device/tree.c' in names for names in looks))
            for _ in range(2):  # what is wrong stays wrong
                self.assertIn('tree.c:2: [format]', look(wrong))
            self.assertNotIn('tree.c', look(wide))
            self.assertIn('tree.c', look(wide, 'BasedOnStyle: LLVM\nIndentWidth: 4\n'))


def add_break(number, name, path, text, part):
    def test(self):
        found = '\n'.join(self.findings({path: text}, [name]))
        self.assertIn('[%s]' % name, found)
        self.assertIn(part, found)
    setattr(Tidy, 'test_break_%02d_%s' % (number, name.replace('-', '_')), test)


for index, case in enumerate(BREAKS):
    add_break(index, *case)

if __name__ == '__main__':
    unittest.main(verbosity=2)
