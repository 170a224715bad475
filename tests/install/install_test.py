"""Installs into a folder (and once more below DESTDIR, moved afterwards), then builds an outside
program as users do: with pkg-config and with find_package, and runs it."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ['TUTTI_SOURCE_DIR']
BINARY = os.environ['TUTTI_BINARY_DIR']
HERE = os.path.join(SOURCE, 'tests/install')
CC = os.environ.get('CC', 'cc')


def run(*command, **environment):
    result = subprocess.run(command, capture_output=True, text=True, check=False,
                            env={**os.environ, **environment})
    if result.returncode != 0:
        raise AssertionError('%s: %d\n%s%s' % (' '.join(command), result.returncode,
                                               result.stdout, result.stderr))
    return result.stdout


def find(folder, name):
    return next(os.path.join(path, name) for path, _, names in os.walk(folder) if name in names)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.prefix = os.path.join(cls.folder, 'prefix')
        run('cmake', '--install', BINARY, '--prefix', cls.prefix, DESTDIR='')
        cls.libraries = os.path.dirname(find(cls.prefix, 'libtutti.so'))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def pkg_config(self, *flags, prefix=None):
        path = os.path.dirname(find(prefix or self.prefix, 'tutti.pc'))
        return run('pkg-config', *flags, 'tutti', PKG_CONFIG_PATH=path).split()

    def check_outside(self, program):
        said = run(program, LD_LIBRARY_PATH=self.libraries)
        self.assertEqual(said, 'outside: bf16\n')

    def test_pkg_config_builds_an_outside_program(self):
        program = os.path.join(self.folder, 'by_pkg_config')
        run(CC, os.path.join(HERE, 'outside.c'), *self.pkg_config('--cflags', '--libs'),
            '-o', program)
        self.check_outside(program)

    def test_pkg_config_links_the_static_library(self):
        program = os.path.join(self.folder, 'static')
        private = self.pkg_config('--static', '--libs')
        libraries = [os.path.join(self.libraries, 'libtutti.a') if flag == '-ltutti' else flag
                     for flag in private]
        run(CC, os.path.join(HERE, 'outside.c'), *self.pkg_config('--cflags'), *libraries,
            '-o', program)
        self.assertEqual(run(program), 'outside: bf16\n')

    def test_find_package_builds_an_outside_program(self):
        build = os.path.join(self.folder, 'by_cmake')
        run('cmake', '-S', HERE, '-B', build, '-DCMAKE_PREFIX_PATH=' + self.prefix,
            '-DCMAKE_C_COMPILER=' + CC)
        run('cmake', '--build', build)
        self.check_outside(os.path.join(build, 'outside'))

    def test_a_moved_tree_is_found_where_it_lies(self):
        staged = os.path.join(self.folder, 'staged')
        run('cmake', '--install', BINARY, '--prefix', '/usr/local', DESTDIR=staged)
        flags = self.pkg_config('--cflags', prefix=os.path.join(staged, 'usr/local'))
        folder = next(flag[2:] for flag in flags if flag.startswith('-I'))
        self.assertTrue(os.path.exists(os.path.join(folder, 'tutti/status.h')), folder)

    def test_only_public_headers_are_installed(self):
        installed = os.listdir(os.path.join(self.prefix, 'include/tutti'))
        self.assertEqual(sorted(installed), sorted(os.listdir(SOURCE + '/include/tutti')))

    def test_the_version_is_that_of_the_project(self):
        with open(SOURCE + '/CMakeLists.txt', encoding='utf-8') as file:
            version = re.search(r'VERSION (\d+\.\d+\.\d+)', file.read()).group(1)
        self.assertEqual(self.pkg_config('--modversion'), [version])

    @unittest.skipUnless(os.path.exists(BINARY + '/bin/tutti'), 'no command line yet')
    def test_the_installed_command_line_runs(self):
        self.assertIn('tutti', run(self.prefix + '/bin/tutti', 'info'))


if __name__ == '__main__':
    unittest.main(verbosity=2)
