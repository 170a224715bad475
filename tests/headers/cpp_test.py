"""tutti.hpp: owners for all that is released, which compile without a warning and release once."""
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ['TUTTI_SOURCE_DIR']
LIBRARY = os.path.join(os.environ['TUTTI_BINARY_DIR'], 'lib')
HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(SOURCE, 'include')
FLAGS = ['-Wall', '-Wextra', '-pedantic', '-Wshadow', '-Werror', '-I', INCLUDE]


def compile_all(*args, compiler='g++', standard='c++17'):
    done = subprocess.run([compiler, '-std=' + standard, *FLAGS, *args], text=True,
                          capture_output=True, timeout=100)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


def build(source, program, *flags, **how):
    compile_all(source, *flags, '-o', program, '-L' + LIBRARY, '-ltutti', '-Wl,-rpath,' + LIBRARY,
                **how)


def read(name):
    with open(os.path.join(INCLUDE, 'tutti', name), encoding='utf-8') as file:
        return file.read()


class Owners(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_all_that_is_released_has_an_owner(self):
        declared = set()
        for name in os.listdir(os.path.join(INCLUDE, 'tutti')):
            if name.endswith('.h'):
                declared |= {(kind, call) for call, kind in re.findall(
                    r'TUTTI_API (?:void|tutti_status_t) (tutti_\w+_(?:release|close))'
                    r'\((tutti_\w+_t) \*\w+\);', read(name))}
        owned = set(re.findall(r'release_of<(tutti_\w+)>\s*=\s*&(tutti_\w+)', read('tutti.hpp')))
        self.assertGreater(len(owned), 30)
        self.assertEqual(owned, declared)

    def test_all_that_is_retained_can_be(self):
        declared = set()
        for name in os.listdir(os.path.join(INCLUDE, 'tutti')):
            if name.endswith('.h'):
                declared |= set(re.findall(r'TUTTI_API (tutti_\w+_t) \*tutti_\w+_retain\(',
                                           read(name)))
        self.assertIn('tutti_group_t', declared)
        self.assertEqual(set(re.findall(r'> retain\((tutti_\w+_t) \*x\)', read('tutti.hpp'))),
                         declared)

    def test_objects_are_released_once(self):
        program = os.path.join(self.folder, 'owners')
        for flags in ((), ('-fno-exceptions',)):
            build(os.path.join(HERE, 'cpp_owners.cpp'), program, *flags)
            done = subprocess.run([program], text=True, capture_output=True, timeout=60)
            self.assertEqual([done.returncode, done.stdout], [0, 'all is so\n'], done.stderr)


if __name__ == '__main__':
    unittest.main(verbosity=2)
