"""Every double whose comment in a public header says `0:` and a default is listed in
docs/guide/defaults.md and tried with TUTTI_ZERO by tests/conform/zero_test.c."""
import os
import re
import unittest

SOURCE = os.environ.get('TUTTI_SOURCE_DIR',
                        os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding='utf-8') as file:
        return file.read()


def options_of(text):
    """struct_t.field of each such field, and function(argument) of each such argument."""
    for body, struct in re.findall(r'typedef struct \w* ?\{(.*?)\n\} (\w+);', text, re.DOTALL):
        for names, comment in re.findall(r'\n    double ([\w, ]+);\s*/\*\*<(.*?)\*/', body,
                                         re.DOTALL):
            if re.search(r'\b0: ', comment):
                yield from (f'{struct}.{name.strip()}' for name in names.split(','))
    for comment, call, arguments in re.findall(
            r'/\*\*((?:(?!\*/).)*)\*/\nTUTTI_API [^;(]*?(\w+)\(([^;]*)\);', text, re.DOTALL):
        for name in re.findall(r'@param (\w+)\s+0: ', comment):
            if re.search(rf'\bdouble\s+{name}\b', arguments):
                yield f'{call}({name})'


def declared():
    folder = os.path.join(SOURCE, 'include', 'tutti')
    return {option for name in os.listdir(folder)
            for option in options_of(read('include', 'tutti', name))}


def tried():
    text = read('tests', 'conform', 'zero_test.c')
    rows = text[text.index('static const row_t rows'):]
    found = {f'tutti_{kind}_options_t.{field}'
             for kind, field in re.findall(r'OPTIMIZER\((\w+), (\w+)\)', rows)}
    found |= {f'{struct}.{field}' for struct, field in re.findall(r'LAYER\((\w+), (\w+),', rows)}
    return found | set(re.findall(r'"(tutti_\w+(?:\.\w+|\(\w+\)))"', rows))


def listed():
    found = set()
    for owner, fields in re.findall(r'^\| `(tutti_\w+)` \|([^|]*)\|[^|]*\|$',
                                    read('docs', 'guide', 'defaults.md'), re.MULTILINE):
        form = '{}.{}' if owner.endswith('_t') else '{}({})'
        found |= {form.format(owner, field) for field in re.findall(r'`(\w+)`', fields)}
    return found


class Zeros(unittest.TestCase):
    def test_there_are_some(self):
        self.assertGreater(len(declared()), 50)

    def test_each_is_tried(self):
        self.assertEqual(declared() ^ tried(), set())

    def test_each_is_listed(self):
        self.assertEqual(declared() ^ listed(), set())


if __name__ == '__main__':
    unittest.main()
