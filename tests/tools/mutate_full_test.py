"""tools/mutate on a project of one file: what it changes, what it leaves alone, what it says."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get('TUTTI_SOURCE_DIR',
                        os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, 'tools'))
import mutants  # noqa: E402

APPLE = '''/* Apples: 1 + 1. */
#include <stdio.h>

#define TWO(x) ((x) + 1)

int apple_sum(const int *weights, int count)
{
    int sum = 0, i = 0;
    while (i < count) { /* not 1 + 1 */
        sum += weights[i];
        i++;
    }
    return sum;
}

int apple_slack(int count)
{
    const char *text = "1 + 1";
    return text[0] == '1' ? count / 1 : -1;
}
'''
# Sums are tested, slack is not.
APPLE_TEST = '''/* Tests sums. */
int apple_sum(const int *weights, int count);

int main(void)
{
    const int weights[] = {1, 2, 4};
    return apple_sum(weights, 3) == 7 && apple_sum(weights, 2) == 3 ? 0 : 1;
}
'''
SLOW_TEST = '''/* Reaches nothing. */
#include <signal.h>
#include <unistd.h>

int main(void)
{
    return usleep(300000) != 0 || signal(SIGINT, SIG_DFL) != SIG_DFL;
}
'''
PROJECT = '''cmake_minimum_required(VERSION 3.23)
project(fruit C)
enable_testing()
add_library(fruit STATIC src/fruit/apple.c)
set_source_files_properties(src/fruit/apple.c PROPERTIES COMPILE_OPTIONS -Werror=div-by-zero)
foreach(name apple_test slow_test)
  add_executable(${name} src/fruit/${name}.c)
  target_link_libraries(${name} fruit)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS quick TIMEOUT 2)
endforeach()
'''
FILES = {'src/fruit/apple.c': APPLE, 'src/fruit/apple_test.c': APPLE_TEST,
         'src/fruit/slow_test.c': SLOW_TEST, 'CMakeLists.txt': PROJECT}


class Changes(unittest.TestCase):
    """What is changed, and what is not."""

    def changes(self, body, head=''):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, 'a.c'), 'w', encoding='utf-8') as file:
                file.write('/* A. */\n%sint f(int a)\n{\n%s}\n' % (head, body))
            source = mutants.tidy.Source(root, 'a.c')
            return [(m.before, m.after) for m in mutants.mutants_of(source)]

    def test_operators_constants_and_statements_are_changed(self):
        found = [after for _, after in self.changes('    if (a < 7 && !g(a)) {\n        h(a);\n'
                                                    '        a = b;\n    }\n    TT_TRY(k());\n')]
        self.assertEqual(found, [
            'if (!(a < 7 && !g(a))) {', 'if (a <= 7 && !g(a)) {', 'if (a < 8 && !g(a)) {',
            'if (a < 7 || !g(a)) {', 'if (a < 7 && g(a)) {', ';', ';', '(void)(k());'])

    def test_what_nobody_could_see_is_left_alone(self):
        for body in ('    /* 1 + 1 */\n', '    return "1 + 1";\n', '#define X(a) (a + 1)\n',
                     '    TT_ASSERT(a < 7);\n', '    return TT_FAIL(TUTTI_ERR_ARG, "x", a + 1);\n',
                     '    char text[64];\n', '    return a < b ? a : b;\n',
                     '    return k(a, h(b) <= c[d] ? c[d] : h(b));\n', '    float x = 1.5f;\n'):
            self.assertEqual(self.changes(body), [], body)
        self.assertEqual(len(self.changes('    return a < b ? a : c;\n')), 1)
        self.assertEqual(self.changes('    return a;\n', 'enum { A = 1 + 1 };\n'), [])

    def test_statements_of_several_lines_go_as_a_whole(self):
        self.assertIn(('h(a, b);', ';'), self.changes('    h(a,\n      b);\n'))
        self.assertEqual(self.changes('    return g(a) &&\n           h(a);\n'),
                         [('return g(a) &&', 'return g(a) ||')])

    def test_literals_inside_a_negated_condition_stay(self):
        self.assertIn(('if (g("1 + 1")) {', 'if (!(g("1 + 1"))) {'),
                      self.changes('    if (g("1 + 1")) {\n    }\n'))

    def test_two_alike_are_told_apart_and_a_draw_does_not_depend_on_the_rest(self):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, 'a.c')

            def order(text, seed):
                with open(path, 'w', encoding='utf-8') as file:
                    file.write('/* A. */\n' + text)
                found = mutants.mutants_of(mutants.tidy.Source(root, 'a.c'))
                self.assertEqual(len({m.key for m in found}), len(found))
                return [m.key for m in mutants.draw(found, seed)]
            body = 'int f(int a)\n{\n    a = a + 3;\n    a = a + 3;\n    return a * 4;\n}\n'
            first = order(body, 1)
            with_more = order('int g(int b)\n{\n    return b - 5;\n}\n\n' + body, 1)
            self.assertEqual([key for key in with_more if key in first], first)
            self.assertNotEqual(order(body, 2), first)

    def test_folders_give_one_each_in_their_turn(self):
        class Fruit:
            def __init__(self, key):
                self.key = key
        apples, pears = ([Fruit('%s %d' % (name, i)) for i in range(count)]
                         for name, count in (('apple', 5), ('pear', 2)))
        order = [m.key for m in mutants.draw_in_turn([apples, pears], 3)]
        self.assertEqual([key.split()[0] for key in order],
                         ['apple', 'pear', 'apple', 'pear', 'apple', 'apple', 'apple'])
        self.assertEqual([key for key in order if key.startswith('apple')],
                         [m.key for m in mutants.draw(apples, 3)])

    def test_a_plus_makes_one_of_folders_and_files(self):
        with tempfile.TemporaryDirectory() as root:
            for path in 'src/a/a.c', 'src/b/b.c', 'src/c.c', 'src/d.c':
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, 'w', encoding='utf-8') as file:
                    file.write('/* A. */\nint f(int a)\n{\n    return a * 4;\n}\n')
            found = [{m.path for m in mutants_of_one} for mutants_of_one in
                     mutants.lists_of(root, 'src/a+src/c.c,src/b')]
        self.assertEqual(found, [{'src/a/a.c', 'src/c.c'}, {'src/b/b.c'}])


class Embedded(unittest.TestCase):
    """A file that holds all of its mutants."""

    def embedded(self, body):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, 'a.c'), 'w', encoding='utf-8') as file:
                file.write('/* A. */\nint f(int a)\n{\n%s}\n' % body)
            source = mutants.tidy.Source(root, 'a.c')
            slots = dict(enumerate(mutants.mutants_of(source)))
            return mutants.embed(source, slots, '/flags').split('#line 1 "a.c"\n')[1]

    def test_each_mutant_has_a_copy_of_the_body(self):
        self.assertEqual(self.embedded('    g(a);\n    return a;\n'), '''/* A. */
int f(int a)
{
    if (TT_CHOSEN(0)) {
#line 4 "a.c@0"
    ;
    return a;
    } else
    {
#line 4 "a.c"
TT_REACHED(0);     g(a);
    return a;
    }
#line 6 "a.c"
}
''')

    def test_a_statement_is_reached_and_not_its_function_alone(self):
        for body, line in (
                ('    if (a) {\n        return g(a) +\n               1;\n    }\n',
                 '        return g(a) +'),
                ('    switch (a) {\n    case 7:\n        return a + 1;\n    }\n',
                 '    switch (a) {'),
                ('    h();\n    struct s x = {\n        .a = a + 1,\n    };\n',
                 '    struct s x = {'),
                ('    if (a) {\n    } else if (a < 1) {\n    }\n', '    if (a) {')):
            marked = [text for text in self.embedded(body).split('\n') if 'TT_REACHED' in text
                      and text.endswith(line)]
            self.assertTrue(marked, self.embedded(body))

    def test_directives_keep_their_line(self):
        embedded = self.embedded('#if defined(X)\n    return a;\n#else\n    return 1;\n#endif\n')
        marked = embedded[embedded.index('} else\n    {\n'):].split('\n')
        self.assertTrue(marked[3].startswith('TT_REACHED(0);'), embedded)
        self.assertEqual(marked[4:7], ['#if defined(X)', '    return a;', '#else'])

    def test_labels_are_those_of_the_copy(self):
        body = '    if (a) {\n        goto end;\n    }\nend:\n    return 1;\n'
        self.assertIn('__label__ end;\n', self.embedded(body))


class Runs(unittest.TestCase):
    """The whole tool, on the project above."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = cls.folder.name
        for path, text in FILES.items():
            full = os.path.join(cls.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, 'w', encoding='utf-8') as file:
                file.write(text)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def mutate(self, *arguments):
        result = subprocess.run([sys.executable, os.path.join(SOURCE, 'tools/mutate'), '--root',
                                 self.root, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False, timeout=100)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def forget(self):
        known = os.path.join(self.root, 'build/mutate/tests.json')
        if os.path.exists(known):
            os.unlink(known)

    def test_tests_are_interrupted_although_the_tool_runs_behind_a_shell(self):
        self.forget()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            output = self.mutate('src/fruit', '1', '7')
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertRegex(output, r'slow_test +\d+\.\d s  reaches 0\n')

    def line_of(self, output, change):
        return next(line for line in output.splitlines() if change in line)

    def test_killed_hanging_refused_and_surviving_mutants_are_told_apart(self):
        kept = os.path.join(self.root, 'kept.json')
        output = self.mutate('src/fruit', '100', '7', '--json', kept)
        self.assertIn('killed by apple_test', self.line_of(output, '=>  sum -= weights[i];'))
        self.assertIn('SURVIVED', self.line_of(output, "=>  return text[1] == '1'"))
        self.assertIn('compiler', self.line_of(output, "? count / 0 : -1;"))
        self.assertIn('killed by apple_test hangs', self.line_of(output, 'i++;  =>  ;'))
        self.assertRegex(output, r'\| \*\*all\*\* \| \d+ \| \d+ \(\d+ %\) \| [1-9]\d* \|')
        for path, text in FILES.items():
            with open(os.path.join(self.root, path), encoding='utf-8') as file:
                self.assertEqual(file.read(), text)
        self.goes_on_and_replays(output, kept)

    def goes_on_and_replays(self, output, kept):
        with open(kept, encoding='utf-8') as file:
            results = json.load(file)['results']
        again = self.mutate('src/fruit', '100', '7', '--json', kept)
        self.assertNotIn('=>', again)
        self.assertEqual(again.split('\n\n')[-1], output.split('\n\n')[-1])
        survivors = [r for r in results.values() if r['outcome'] == 'survived']
        again = self.mutate('src/fruit', '100', '7', '--json', kept, '--again')
        self.assertEqual(again.count('=>'), len(survivors))
        killed = next(r for r in results.values() if r['after'] == 'sum -= weights[i];')
        replayed = self.mutate('--replay', killed['name'])
        self.assertRegex(replayed, r'apple_test +fails')
        self.assertIn('killed apple_test', replayed)

    def test_only_tests_that_reach_a_mutant_are_asked(self):
        kept = os.path.join(self.root, 'asked.json')
        output = self.mutate('src/fruit', '100', '7', '--json', kept)
        self.assertRegex(output, r'slow_test +\d+\.\d s  reaches 0\n')
        self.assertRegex(output, r'apple_test +\d+\.\d s  reaches [1-9]')
        with open(kept, encoding='utf-8') as file:
            results = json.load(file)['results'].values()
        self.assertIn('apple_test', {result['detail'] for result in results})
        self.assertFalse([r for r in results if 'slow_test' in (r['detail'], *r['passed'])])
        unreached = [r['detail'] for r in results if r['after'].startswith("return text[1] == ")]
        self.assertEqual(unreached, ['0 tests of 0 that reach it'])

    def test_only_wanted_tests_are_asked(self):
        self.forget()
        output = self.mutate('src/fruit', '100', '7', '--tests', '^apple')
        self.assertRegex(output, r'apple_test +\d+\.\d s  reaches [1-9]')
        self.assertNotIn('slow_test', output)

    def test_what_takes_much_longer_than_each_is_left_out_and_asked_when_there_is_more_time(self):
        self.forget()
        output = self.mutate('src/fruit', '100', '7', '--each', '0.05')
        self.assertRegex(output, r'slow_test .*, hangs: left out')
        output = self.mutate('src/fruit', '100', '7')
        self.assertRegex(output, r'slow_test +\d+\.\d s  reaches 0\n')

    def test_lines_that_a_commit_has_are_left_alone(self):
        path = os.path.join(self.root, 'src/fruit/apple.c')
        identity = ['-c', 'user.name=Fruit', '-c', 'user.email=fruit@example.org']
        for command in (['init', '-q'], ['add', 'src'], [*identity, 'commit', '-qm', 'fruit']):
            subprocess.run(['git', '-C', self.root, *command], check=True)
        try:
            with open(path, 'a', encoding='utf-8') as file:
                file.write('\nint apple_peel(int a)\n{\n    return a * 3;\n}\n')
            output = self.mutate('src/fruit', '100', '7', '--since', 'HEAD')
        finally:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(APPLE)
        self.assertEqual({line.split('  =>')[0].split('  ')[-1] for line in output.splitlines()
                          if '=>' in line}, {'return a * 3;'})
        self.assertIn(', 2 of 100 mutants in src/fruit (2 drawn from)', output)


if __name__ == '__main__':
    unittest.main(verbosity=2)
