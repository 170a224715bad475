"""tutti.hpp and its example with two compilers and three standards; the lessons in C++ print what
those in C do."""
import os
import shutil
import subprocess
import unittest

import cpp_test
import headers_test

BIN = os.path.join(os.environ['TUTTI_BINARY_DIR'], 'bin')
LESSONS = os.path.join(cpp_test.SOURCE, 'examples', 'cpp')
DATA = '/usr/share/datasets/fashion-mnist'
COMPILERS = [name for name in ('g++', 'clang++') if shutil.which(name)]


class Header(unittest.TestCase):
    def setUp(self):
        self.folder = cpp_test.tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, 'program.cpp')

    def write(self, text):
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write(text)

    def test_it_compiles_alone(self):
        self.write('#include <tutti/tutti.hpp>\n#include <tutti/tutti.hpp>\n')
        for compiler in COMPILERS:
            for standard in ('c++17', 'c++20', 'c++2b'):
                for flags in ((), ('-fno-exceptions',)):
                    cpp_test.compile_all('-fsyntax-only', *flags, self.path, compiler=compiler,
                                         standard=standard)

    def test_its_example_compiles(self):
        example = headers_test.examples_of(cpp_test.read('tutti.hpp'))[0]
        self.write('#include <cstdio>\n#include <tutti/tutti.hpp>\nint main() {\n' + example +
                   '\n}\n')
        for compiler in COMPILERS:
            cpp_test.compile_all('-fsyntax-only', self.path, compiler=compiler)

    def test_what_nobody_looks_at_is_warned_of_without_exceptions(self):
        for line in ('tutti::check(TUTTI_OK);', 'tutti::make(tutti_context_create, nullptr);'):
            self.write('#include <tutti/tutti.hpp>\nint main() { ' + line + ' }\n')
            with self.assertRaisesRegex(AssertionError, 'nodiscard|ignoring return'):
                cpp_test.compile_all('-fsyntax-only', '-fno-exceptions', self.path)


class Lessons(unittest.TestCase):
    def test_they_print_what_those_in_c_do(self):
        names = sorted(name[:-4] for name in os.listdir(LESSONS) if name.endswith('.cpp'))
        self.assertEqual([name[:2] for name in names], ['01', '02', '03', '04', '05'])
        for compiler in COMPILERS:
            for name in names:
                self.compare(compiler, name)

    def compare(self, compiler, name):
        with cpp_test.tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, name)
            cpp_test.build(os.path.join(LESSONS, name + '.cpp'), program, compiler=compiler)
            for launcher, args in self.ways(name):
                ends = [subprocess.run([*launcher, path, *args], text=True, capture_output=True,
                                       timeout=100) for path in (os.path.join(BIN, name), program)]
                self.assertEqual(*[end.returncode for end in ends], ends[1].stderr)
                if args == ['--mismatch']:  # which ends ranks before they have printed all
                    for end in ends:
                        self.assertIn('rank 2 passed f32[8], rank 0 passed f32[4]', end.stderr)
                else:
                    outs = [sorted(end.stdout.splitlines()) for end in ends]
                    self.assertEqual(*outs, ends[1].stderr)

    def ways(self, name):
        tutti = [os.path.join(BIN, 'tutti'), 'run', '-n', '3']
        if name.startswith('03'):
            return [([], ['--steps', '20'])] if os.path.isdir(DATA) else [([], ['--help'])]
        return {'04': [(tutti, []), (tutti, ['--mismatch'])], '05': [([], []), (tutti, [])]}.get(
            name[:2], [([], [])])


if __name__ == '__main__':
    unittest.main(verbosity=2)
