"""Manual pages and completions (tools/manual, tools/completions): each verb and each header has its
page, which troff takes without a word, and shells complete what `tutti` has."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ['TUTTI_SOURCE_DIR']
PROGRAM = os.path.join(os.environ['TUTTI_BINARY_DIR'], 'bin', 'tutti')
INCLUDE = os.path.join(SOURCE, 'include', 'tutti')
COMPLETE = '''. %s
t() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=(); _tutti tutti "${@: -1}" "${@: -2:1}"
      echo "${COMPREPLY[@]}"; }
'''


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as file:
        return file.read()


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        for tool in ('manual', 'completions'):
            subprocess.run([os.path.join(SOURCE, 'tools', tool), PROGRAM, cls.folder], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_every_exported_function_is_in_its_headers_page(self):
        count = 0
        for header in os.listdir(INCLUDE):
            if not header.endswith('.h'):
                continue
            page = read(self.folder, 'man3', 'tutti_%s.3' % header[:-2])
            source = read(INCLUDE, header)
            for name in re.findall(r'^TUTTI_API [^;(=]*?\b(tutti_\w+)\(', source, re.M):
                self.assertIn('\n.SS %s\n' % name, page)
                count += 1
        self.assertGreater(count, 500)

    def test_every_type_is_in_its_headers_page_with_its_fields(self):
        count = 0
        for header in os.listdir(INCLUDE):
            if not header.endswith('.h'):
                continue
            page = read(self.folder, 'man3', 'tutti_%s.3' % header[:-2])
            source = read(INCLUDE, header)
            for name in re.findall(r'^} (tutti_\w+_t);', source, re.M):
                self.assertIn('\n.SS %s\n' % name, page)
                self.assertIn('\n} %s;\n.fi\n' % name, page)
                count += 1
        self.assertGreater(count, 100)
        page = read(self.folder, 'man3', 'tutti_data_files.3')
        field = page[page.index('.SS tutti_csv_field_t'):page.index('.SS tutti_csv_options_t')]
        self.assertIn('.SS tutti_csv_field_t\nColumns that are one field: ', field)
        self.assertIn('\n    bool is_text;               /**< u8 [TUTTI_ANY] instead', field)
        self.assertIn('.SS tutti_optim_t\nAn optimizer with its parameters',
                      read(self.folder, 'man3', 'tutti_optim.3'))
        self.assertIn('\n#define TUTTI_ANY (\\-1)\n', read(self.folder, 'man3', 'tutti_data.3'))

    def test_examples_keep_their_blanks(self):
        page = read(self.folder, 'man3', 'tutti_data_files.3')
        self.assertIn('fields[] = {\n    {.columns = sizes,', page)

    def test_the_page_of_cpp_is_called_as_its_header(self):
        page = read(self.folder, 'man3', 'tutti.hpp.3')
        self.assertIn('.SH NAME\ntutti.hpp \\- Owners for C++17\n', page)
        self.assertIn('\n#include <tutti/tutti.hpp>\n', page)
        self.assertIn('.SS make\nCalls a function whose last parameter is what it makes', page)
        self.assertFalse(os.path.exists(os.path.join(self.folder, 'man3', 'tutti_tutti.hpp.3')))

    def test_errors_of_a_function_are_told(self):
        page = read(self.folder, 'man3', 'tutti_sharded.3')
        summon = page[page.index('.SS tutti_ddp_summon'):page.index('.SS tutti_ddp_dismiss')]
        self.assertIn('.TP\n\\fIwrites\\fR\nevery rank writes', summon)
        self.assertIn('.TP\n\\fBErrors\\fR\nNOT_FOUND; STATE', summon)
        self.assertIn('.TP\n\\fBSource\\fR\ntorch', summon)

    def test_every_form_of_a_verb_is_in_its_synopsis(self):
        page = read(self.folder, 'man1', 'tutti-profile.1')
        forms = page[page.index('.SH SYNOPSIS\n'):page.index('.SH OPTIONS')]
        self.assertEqual(forms, '.SH SYNOPSIS\n'
                                'tutti profile [OPTION …] \\-\\- COMMAND [ARGUMENT …]\n'
                                '.br\ntutti profile [OPTION …] FILE …\n')

    def test_the_first_page_says_where_the_guide_is(self):
        self.assertIn('.IR /usr/share/doc/tutti .', read(self.folder, 'man1', 'tutti.1'))

    def test_verbs_of_verbs_have_pages_with_their_options(self):
        page = read(self.folder, 'man1', 'tutti-checkpoint-prune.1')
        self.assertIn('\\fB\\-\\-keep\\fR \\fIK\\fR', page)
        self.assertIn('.BR tutti\\-checkpoint (1)', page)
        self.assertIn('.BR tutti\\-checkpoint\\-prune (1)', read(self.folder, 'man1',
                                                               'tutti-checkpoint.1'))

    @unittest.skipIf(shutil.which('groff') is None, 'no groff here')
    def test_troff_takes_them(self):
        pages = [os.path.join(path, name) for path, _, names in os.walk(self.folder)
                 for name in names if os.path.basename(path).startswith('man')]
        done = subprocess.run(['groff', '-man', '-wall', '-Tutf8', '-z', '-k', *pages],
                              capture_output=True, text=True, check=True)
        told = [line for line in done.stderr.splitlines() if 'adjust line' not in line]
        self.assertEqual(told, [])

    def complete(self, *words):
        script = COMPLETE % os.path.join(self.folder, 'tutti.bash')
        done = subprocess.run(['bash', '-c', script + 't "$@"', 'bash', 'tutti', *words],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def test_bash_completes_verbs_options_and_words(self):
        self.assertEqual(self.complete('ver'), ['verdict'])
        self.assertEqual(self.complete('checkpoint', 'pr'), ['prune'])
        self.assertIn('--keep', self.complete('checkpoint', 'prune', '--'))
        self.assertEqual(self.complete('bench', 'all_reduce', '--wire', ''), ['shm', 'tcp'])
        self.assertEqual(self.complete('bench', 'all_r'), ['all_reduce'])
        self.assertEqual(self.complete('bench', '--dtype', ''), [])
        self.assertEqual(self.complete('run', '--rdzv-id', '--'), [])
        self.assertEqual(self.complete('run', 'ls', '--n'), ['--nproc-per-node', '--nnodes',
                                                            '--node-rank', '--no-python'])

    def test_other_shells_read_theirs(self):
        for shell, name in (('zsh', '_tutti'), ('fish', 'tutti.fish')):
            if shutil.which(shell) is None:
                print('no %s here: its completion is not read' % shell)
                continue
            done = subprocess.run([shell, '-n', os.path.join(self.folder, name)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ''))


if __name__ == '__main__':
    unittest.main()
