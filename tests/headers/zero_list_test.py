"""Every double whose comment in a public header says `0:` and a default is listed in
docs/guide/defaults.md and tried with TUTTI_ZERO by tests/conform/zero_test.c: by a row there, or by
the table of an optimizer, whose numbers are those of the header."""
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


def defaults_of_optimizers():
    """{struct.field: number} as comments of optim.h say."""
    found = {}
    for body, struct in re.findall(r'typedef struct \w+ \{(.*?)\n\} (\w+_options_t);',
                                   read('include', 'tutti', 'optim.h'), re.DOTALL):
        for names, comment in re.findall(r'\n    double ([\w, ]+);\s*/\*\*< 0: (.*?)\*/', body,
                                         re.DOTALL):
            numbers = re.findall(r'-?\d[\d.]*(?:e-?\d+)?', comment)
            found.update({f'{struct}.{field.strip()}': float(number)
                          for field, number in zip(names.split(','), numbers)})
    return found


def declared():
    folder = os.path.join(SOURCE, 'include', 'tutti')
    return {option for name in os.listdir(folder)
            for option in options_of(read('include', 'tutti', name))}


def optimizer_tables():
    """{struct.field: its default} in the tables of src/compute/optim that have one."""
    found = {}
    folder = os.path.join(SOURCE, 'src', 'compute', 'optim')
    for name in sorted(os.listdir(folder)):
        text = read('src', 'compute', 'optim', name) if name.endswith('.c') else ''
        text = text.replace('\\\n', ' ')
        structs = re.findall(r'define OPTION\(name, \.\.\.\) TT_OPTIM_OPTION\((\w+)', text)
        structs = ([(struct, '') for struct in structs] or
                   re.findall(r'= TABLE\((\w+), (.+)\);', text))
        for struct, decay in structs:
            for field, value in re.findall(r'OPTION\((?:type, )?(\w+),\s*([^,]+),', text):
                value = float(value.replace('decay', decay)) if field != 'name' else 0
                found.update({f'{struct}.{field}': value} if value else {})
    return found


def tried():
    text = read('tests', 'conform', 'zero_test.c')
    rows = text[text.index('static const row_t rows'):]
    found = set(optimizer_tables())
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

    def test_tables_of_optimizers_have_the_numbers_of_the_headers(self):
        self.assertGreater(len(optimizer_tables()), 20)
        self.assertEqual(optimizer_tables(), defaults_of_optimizers())

    def test_each_is_tried(self):
        self.assertEqual(declared() ^ tried(), set())

    def test_each_is_listed(self):
        self.assertEqual(declared() ^ listed(), set())


if __name__ == '__main__':
    unittest.main()
