"""mutants: the changes that tools/mutate makes to a file: one operator, constant or statement each.

Only what stands inside functions is changed; never comments, literals, directives, sizes of arrays,
nor what is inside assertions and texts of failures, where a change could be seen by nobody.
"""
import collections
import hashlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
import sys


def load_tidy():
    """tools/tidy, which knows comments, literals and functions."""
    sys.dont_write_bytecode = True
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tidy')
    loader = importlib.machinery.SourceFileLoader('tidy', path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('tidy', loader))
    loader.exec_module(module)
    return module


tidy = load_tidy()

SWAPS = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==', '+': '-', '-': '+',
         '*': '+', '/': '*', '%': '/', '&&': '||', '||': '&&', '&': '|', '|': '&', '^': '|',
         '<<': '>>', '>>': '<<', '+=': '-=', '-=': '+=', '*=': '/=', '/=': '*=', '|=': '&=',
         '&=': '|='}
WORDS = {'true': 'false', 'false': 'true', '++': '--', '--': '++', '!': ''}
SWAP = re.compile(r'(?<= )(%s)(?=\s)' % '|'.join(map(re.escape, sorted(SWAPS, key=len)[::-1])))
WORD = re.compile(r'\b(?:true|false)\b|\+\+|--|!(?=[\w(*])')
NUMBER = re.compile(r'(?<![\w.])(?:0|[1-9]\d*)(?=[uUlL]*\b)(?!\.)')
# A call, an assignment that declares nothing, or a jump.
STATEMENT = re.compile(r'^ +((?:[a-z_][\w.>-]*\([^;{}]*\)'
                       r'|[*(]*[a-z_][\w.>\[\]+*()-]* [-+*/|&^]?= [^;{}]*'
                       r'|[a-z_][\w.>\[\]-]*(?:\+\+|--)|continue|break);)', re.M)
COMPARISON = re.compile(r' [!=]= ')
CONDITION = re.compile(r'(?<![\w#])(?:if|while) \(')
TRIED = re.compile(r'(?<![\w])TT_TRY\(')
# What is inside these can be changed without anybody noticing: texts, and what never happens.
CLOSED = re.compile(r'\b(?:TT_ASSERT|_Static_assert|TT_FAIL|TT_FAIL_ERRNO|tt_log|tt_fail_again)\(')
ARRAY = re.compile(r'^ +(?!return\b)(?:const |static |struct |unsigned )*\w+ \**\w+'
                   r'((?:\[[^\]\n]*\])+)(?=[;,]| = )', re.M)
# The smaller or the larger of two: which of them where they are equal is the same.
EXTREME = re.compile(r'(?<![\w.>-])([^\s=?;{}][^=?;{}]*) ([<>]=?) ([^=?;{}]+) \? '
                     r'(?:\1 : \3|\3 : \1)(?=[;,)])')
DIRECTIVE = re.compile(r'^ *#(?:.*\\\n)*.*', re.M)


class Mutant:
    """Characters [start, end) of a file replaced by `new`; the number counts those of a line."""

    def __init__(self, source, start, end, new):
        self.path, self.start, self.end, self.new = source.path, start, end, new
        self.line, self.number = source.text.count('\n', 0, start) + 1, 0
        first, last = source.text.rfind('\n', 0, start) + 1, source.text.find('\n', end)
        self.before = ' '.join(source.text[first:last].split())
        self.after = ' '.join((source.text[first:start] + new + source.text[end:last]).split())
        self.key = ' | '.join((self.path, self.before, self.after))

    @property
    def name(self):
        return '%s:%d:%d' % (self.path, self.line, self.number)

    def __str__(self):
        return '%s  %s  =>  %s' % (self.name, self.before, self.after)


def closing(code, at):
    """Where the parenthesis closes that opens at code[at]."""
    depth = 0
    for index in range(at, len(code)):
        depth += {'(': 1, ')': -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code)


def closed_spans(code):
    spans = [match.span() for match in DIRECTIVE.finditer(code)]
    spans += [match.span(1) for match in ARRAY.finditer(code)]
    spans += [match.span(2) for match in EXTREME.finditer(code)]
    return spans + [(m.end(), closing(code, m.end() - 1)) for m in CLOSED.finditer(code)]


def body_spans(source):
    """Offsets of the functions' bodies, from brace to brace."""
    starts = [0]
    for line in source.code:
        starts.append(starts[-1] + len(line) + 1)
    for _, first, last in tidy.functions_of(source):
        brace = next(n for n in range(first, last + 1) if source.code[n - 1].startswith('{'))
        yield starts[brace - 1], starts[last - 1]


def changes_of(code, first, last):
    """(start, end, new) of each change between two offsets."""
    for match in SWAP.finditer(code, first, last):
        yield (*match.span(), SWAPS[match[0]])
    for match in WORD.finditer(code, first, last):
        yield (*match.span(), WORDS[match[0]])
    for match in NUMBER.finditer(code, first, last):
        yield (*match.span(), {'0': '1', '1': '0'}.get(match[0]) or str(int(match[0]) + 1))
    for match in STATEMENT.finditer(code, first, last):
        if code[:match.start()].rstrip()[-1] in ';{}:':
            yield (*match.span(1), ';')
    for match in CONDITION.finditer(code, first, last):
        end = closing(code, match.end() - 1)
        condition = code[match.end():end]
        # "!(a == b)" is what "a != b" is, which is a change of its own
        if not COMPARISON.search(condition) or '&&' in condition or '||' in condition:
            yield match.end(), end, '!(' + condition + ')'
    for match in TRIED.finditer(code, first, last):
        yield match.start(), match.end(), '(void)('


def mutants_of(source):
    """Every mutant of a file, in the order of its text."""
    code = '\n'.join(source.code)
    closed, found = closed_spans(code), []
    for first, last in body_spans(source):
        found += [Mutant(source, start, end, restore(source, code, start, end, new))
                  for start, end, new in changes_of(code, first, last)
                  if not any(low <= start < high for low, high in closed)]
    found.sort(key=lambda mutant: (mutant.start, mutant.end))
    lines, keys = collections.Counter(), collections.Counter()
    for mutant in found:
        lines[mutant.line] += 1
        mutant.number = lines[mutant.line]
        keys[mutant.key] += 1
        mutant.key += ' | %d' % keys[mutant.key]
    return found


def restore(source, code, start, end, new):
    """Blanked literals inside a replacement are those of the text again."""
    return new.replace(code[start:end], source.text[start:end]) if end - start > 2 else new


def all_mutants(root, folder):
    """Every mutant of what belongs to the library below a folder."""
    return [mutant for source in sources_below(root, folder) for mutant in mutants_of(source)]


def lists_of(root, folders):
    """The mutants of each FOLDER of FOLDER,FOLDER,...; + joins folders, and files, to one."""
    return [[mutant for part in folder.split('+') for mutant in all_mutants(root, part)]
            for folder in folders.split(',')]


def sources_below(root, folder):
    """What belongs to the library below a folder; headers if one of its files includes them."""
    library = {source.path: source for source in (
        tidy.Source(root, path) for path in tidy.list_files(root)
        if path.endswith(('.c', '.h')) and path.startswith('src/')) if not source.is_test}
    included = {name for path, source in library.items() if path.endswith('.c')
                for name in re.findall(r'#include "([^"]+)"', source.text)}
    return [source for path, source in library.items()
            if (path + '/').startswith(folder.rstrip('/') + '/')
            and (path.endswith('.c') or path[len('src/'):] in included)]


def draw(mutants, seed):
    """All mutants in an order that is a function of the seed and of each one's own text."""
    def rank(mutant):
        return hashlib.sha256(('%s %s' % (seed, mutant.key)).encode()).digest()
    return sorted(mutants, key=rank)


def draw_in_turn(lists, seed):
    """The draws of several lists, one from each in its turn."""
    rows = itertools.zip_longest(*(draw(mutants, seed) for mutants in lists))
    return [mutant for row in rows for mutant in row if mutant is not None]


# ---------------------------------------------------------------- all of a file's in one build

# A file of FLAGS_BYTES holds a byte for each mutant: bit 0 says that it was reached, bit 1 that it
# runs. Every process maps that file, so what a process has reached is kept if it is killed.
FLAGS_BYTES = 65536
HEAD = '''#include <sys/syscall.h>
#pragma GCC diagnostic ignored "-Wpedantic"
%(pragmas)s#ifndef TT_MUTANTS
#define TT_MUTANTS
extern long syscall(long number, ...);
__attribute__((weak, visibility("hidden"))) unsigned char tt_mutants_unmapped[%(bytes)d];
__attribute__((weak, visibility("hidden"))) unsigned char *tt_mutants = tt_mutants_unmapped;
__attribute__((constructor)) static void tt_map_mutants(void)
{
    if (tt_mutants == tt_mutants_unmapped) {
        const long file = syscall(SYS_openat, -100L, "%(flags)s", 02L);
        const long at = syscall(SYS_mmap, 0L, %(bytes)dL, 3L, 1L, file, 0L);
        tt_mutants = at == -1 ? tt_mutants : (unsigned char *)at;
        syscall(SYS_close, file);
    }
}
#define TT_REACHED(n) ((void)(tt_mutants[n] & 1 ? 0 : (tt_mutants[n] |= 1)))
#define TT_CHOSEN(n) (tt_mutants[n] & 2)
#endif
#line 1 "%(path)s"
'''
# What a compiler may say of a function with its copies, though of none of them alone.
PRAGMAS = ''.join('#pragma GCC diagnostic ignored "-W%s"\n' % name
                  for name in ('return-type', 'maybe-uninitialized'))
LABEL = re.compile(r'^ *([a-z_]\w*):(?!:)', re.M)
NO_STATEMENT = re.compile(r' *(?:[}#]|else\b|case\b|default\b|\n)')
BLOCK = re.compile(r'(?:\)|\belse|\bdo) \{$')


def embed(source, slots, flags, pragmas=''):
    """A file's text, each function with a copy of its body for each of its {slot: mutant}."""
    code, pieces, at = '\n'.join(source.code), [], 0
    for first, last in body_spans(source):
        inside = {slot: m for slot, m in slots.items() if first <= m.start < last}
        if inside:
            first = source.text.index('\n', first) + 1
            pieces += [source.text[at:first], copies_of(source, code, first, last, inside)]
            at = last
    values = {'path': source.path, 'flags': flags, 'bytes': FLAGS_BYTES, 'pragmas': pragmas}
    return HEAD % values + ''.join(pieces) + source.text[at:]


def copies_of(source, code, first, last, slots):
    """if (chosen) { a mutant's body } else if ... else { the body }; errors name path@slot."""
    body, marks, text = source.text[first:last], {}, ''
    line = source.text.count('\n', 0, first) + 1
    labels = ', '.join(sorted(set(LABEL.findall(code, first, last)) - {'default'}))
    labels = '__label__ %s;\n' % labels if labels else ''
    for slot, mutant in slots.items():
        marks.setdefault(statement_before(code, first, mutant.start), []).append(slot)
        changed = source.text[first:mutant.start] + mutant.new + source.text[mutant.end:last]
        text += '    if (TT_CHOSEN(%d)) {\n%s#line %d "%s@%d"\n%s    } else\n' % (
            slot, labels, line, source.path, slot, changed)
    for at in sorted(marks, reverse=True):
        said = ''.join('TT_REACHED(%d); ' % slot for slot in marks[at])
        said += '\n' if DIRECTIVE.match(body, at - first) else ''
        body = body[:at - first] + said + body[at - first:]
    return '%s    {\n#line %d "%s"\n%s    }\n#line %d "%s"\n' % (
        text, line, source.path, body, source.text.count('\n', 0, last) + 1, source.path)


def statement_before(code, first, at):
    """Where the line of the statement begins that holds an offset; or the body, if in doubt."""
    line = code.rfind('\n', 0, at) + 1
    while line > first:
        before = code[first:line].rstrip()
        ends = before.endswith((';', '}')) or BLOCK.search(before)
        if ends and before.count('(') == before.count(')'):
            return first if NO_STATEMENT.match(code, line) else line
        if before.endswith(':'):
            return first
        line = code.rfind('\n', 0, line - 1) + 1
    return first
