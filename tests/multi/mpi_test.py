"""The mpi engine under real MPIs: two ranks, faults, settings, and no plug-in. More ranks and MPI's
own collectives: mpi_full_test.py. TUTTI_TEST_SHARE=2 draws half of the tests, and for each
of them one MPI (draws.py)."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import draws
from draws import load_tests  # noqa: F401

BUILD = os.environ['TUTTI_BINARY_DIR']
CONFORM = os.path.join(BUILD, 'tests', 'mpi_conform')
TUTTI = os.path.join(BUILD, 'bin', 'tutti')
EXAMPLE = os.path.join(BUILD, 'bin', '04_all_reduce')
DEADLINE = 200
# MPI libraries leak by themselves; our own counter is checked by the programs.
ENVIRONMENT = {**os.environ, 'TUTTI_BACKEND': 'mpi', 'OMPI_ALLOW_RUN_AS_ROOT': '1',
               'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
               # Ranks of one host; the tcp transport takes its own locks in two orders (TSan).
               'OMPI_MCA_btl': 'self,vader',
               'ASAN_OPTIONS': 'detect_leaks=0:' + os.environ.get('ASAN_OPTIONS', '').replace(
                   'detect_leaks=1', '')}
LAUNCHERS = {'openmpi': ['mpirun.openmpi', '--oversubscribe'], 'mpich': ['mpirun.mpich']}


def has_plugin(flavour):
    return os.path.exists(os.path.join(BUILD, 'lib', f'libtutti_mpi_{flavour}.so'))


def available():
    return [name for name, command in LAUNCHERS.items()
            if has_plugin(name) and shutil.which(command[0])]


def run(command, **environment):
    return subprocess.run(command, text=True, capture_output=True, timeout=DEADLINE,
                          env={**ENVIRONMENT, **environment})


def mpirun(flavour, ranks, *command, **environment):
    return run([*LAUNCHERS[flavour], '-np', str(ranks), *command], **environment)


class MpiTest(unittest.TestCase):
    def drawn(self):
        return draws.part(available(), self.id())

    def check(self, done, ranks):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in range(ranks):
            self.assertIn(f'rank {rank} of {ranks}: ', done.stdout, done.stderr)


class Conformance(MpiTest):
    def test_calls_by_messages(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'canonical', 'short'), 2)

    def test_calls_by_mpis_own_collectives(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'short', TUTTI_MPI_EXCHANGE='1'), 2)

    def test_faults_end_with_a_text(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'faults'), 2)

    def test_memory_that_mpi_is_not_done_with_is_nobody_elses(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'held'), 2)

    def test_calls_that_differ_are_named_when_they_are_checked(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'mismatches', TUTTI_MPI_CHECK='1'), 2)

    def test_a_failure_may_end_the_job(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                done = mpirun(flavour, 2, CONFORM, 'faults', TUTTI_MPI_ABORT='1')
                self.assertNotEqual(done.returncode, 0)
                self.assertNotIn('nothing left', done.stdout)

    def test_a_program_may_start_and_end_mpi_itself(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                self.check(mpirun(flavour, 2, CONFORM, 'theirs', 'ends'), 2)
                done = mpirun(flavour, 2, CONFORM, 'theirs', 'single')
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mpi_is_not_ended_for_a_program_that_has_started_it(self):
        """Open MPI's launcher tells that a rank has ended without MPI_Finalize."""
        if 'openmpi' in available():
            done = mpirun('openmpi', 2, CONFORM, 'theirs', 'leaves')
            self.assertIn('rank 0 of 2: MPI is its own', done.stdout)
            self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_program_needs_no_store(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour):
                done = mpirun(flavour, 2, EXAMPLE)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Dumps(MpiTest):
    """Two ranks that wait for each other: what mpi_conform_dump.c has them do."""

    def verdict(self, folder, name):
        paths = [os.path.join(folder, f'{name}-rank{rank}.json') for rank in range(2)]
        done = run([TUTTI, 'verdict', *paths])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        dumps = []
        for path in paths:
            with open(path, encoding='utf-8') as file:
                dumps.append(json.load(file))
        return done.stdout, dumps

    def check_waiting(self, said, dumps):
        sum_of = r'all_reduce #2 f32\[1000\] \(mpi_conform_dump\.c:\d+\)'
        recv = r'recv of u8\[1\] with rank 1 of group world \(mpi_conform_dump\.c:\d+\)'
        self.assertRegex(said, f'group world: rank 0 never entered {sum_of}; it is in {recv}')
        groups = [dump['groups'][0] for dump in dumps]
        self.assertEqual([group['awaited'] for group in groups], [[], [0]])
        last = [group['calls'][-1] for group in groups]
        self.assertEqual([call['state'] for call in last], ['running', 'running'])
        self.assertEqual([call['tag'] for call in last], [7, 77])
        self.assertEqual(last[0]['peer'], 1)
        self.assertGreaterEqual(last[0]['waited_ms'], 250)
        self.assertGreaterEqual(last[1]['waited_ms'], 500)
        self.assertEqual([call['waited_ms'] for call in groups[0]['calls'][:-1]], [0])
        self.assertEqual(groups[0]['calls'][0]['state'], 'done')

    def check_failure(self, said, dumps):
        call = r'barrier #1 of group world/late\[0,1\] \(mpi_conform_dump\.c:\d+\)'
        self.assertRegex(said, r'group world/late\[0,1\]: rank 0 never entered barrier #1')
        self.assertRegex(said, f'rank 1 says: {call}: gave up after 300 ms; '
                               'nothing came from rank 0')
        self.assertRegex(said, 'rank 0 says: group .*: rank 1 gave it up after a failure')
        self.assertEqual([group['ranks'] for dump in dumps for group in dump['groups']],
                         [[0, 1]] * 4)

    def test_ranks_that_wait_are_told_from_their_files(self):
        for flavour in self.drawn():
            with self.subTest(flavour=flavour), tempfile.TemporaryDirectory() as folder:
                done = mpirun(flavour, 2, CONFORM, 'dump', folder, TUTTI_DUMP=folder,
                              TUTTI_REPORT_MS='100')
                self.check(done, 2)
                self.check_waiting(*self.verdict(folder, 'waiting'))
                self.check_failure(*self.verdict(folder, 'world'))
                self.assertRegex(done.stderr, r'rank 1 has been waiting for 0\.\d s in '
                                 r'all_reduce #2 f32\[1000\] of group world '
                                 r'\(mpi_conform_dump\.c:\d+\); nothing came from rank 0')


class Settings(unittest.TestCase):
    def expect(self, text, **environment):
        done = run([CONFORM], **environment)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)

    def test_unknown_backends_and_devices_are_named(self):
        self.expect('no backend "gloo"; there are native, mpi', TUTTI_BACKEND='gloo')
        self.expect('no backend "nccl"', TUTTI_BACKEND='cpu:nccl')
        self.expect('no device "tpu"; there are cpu, cuda', TUTTI_BACKEND='cpu:native,tpu:x')
        self.expect('no cuda tensors', TUTTI_BACKEND='cpu:native,cuda:nccl')
        self.expect('no backend ""', TUTTI_BACKEND='native,')

    def test_a_backend_by_device(self):
        done = run([TUTTI, 'run', '-n', '2', EXAMPLE], TUTTI_BACKEND='cpu:native')
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_unknown_mpi(self):
        self.expect('TUTTI_MPI=lam: want openmpi or mpich', TUTTI_MPI='lam')

    def test_a_missing_plugin_says_where_to_put_it(self):
        # A folder of its own, so that nothing is found around the program.
        lone = os.path.join(BUILD, 'lone', 'mpi_conform')
        os.makedirs(os.path.dirname(lone), exist_ok=True)
        shutil.copy(CONFORM, lone)
        os.makedirs(os.path.join(BUILD, 'lone', 'deep'), exist_ok=True)
        lone_deep = shutil.move(lone, os.path.join(BUILD, 'lone', 'deep', 'mpi_conform'))
        try:
            done = run([lone_deep])
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn('TUTTI_PLUGINS', done.stderr)
            if available():
                done = run([lone_deep, 'canonical', 'short'],
                           TUTTI_PLUGINS=os.path.join(BUILD, 'lib'))
                self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            shutil.rmtree(os.path.join(BUILD, 'lone'))

    def test_a_plugin_is_found_beside_the_library(self):
        """Though the program, which is Python, has none around it."""
        library = os.path.join(BUILD, 'lib', 'libtutti.so')
        with open(library, 'rb') as file:
            if re.search(b'__[at]san_init', file.read()):
                self.skipTest('Python cannot load a library with a sanitizer')
        if available():
            done = run([sys.executable, '-c', 'import ctypes, sys; world = ctypes.c_void_p(); '
                        'sys.exit(ctypes.CDLL(sys.argv[1]).tutti_init(None, ctypes.byref(world)))',
                        library])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_launcher_that_is_not_mpis_is_refused(self):
        if available():
            done = run([TUTTI, 'run', '-n', '2', CONFORM])
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('mpirun', done.stdout + done.stderr)

    def test_info_lists_the_plugins(self):
        families = json.loads(run([TUTTI, 'info', '--json']).stdout)['families']
        backends = json.dumps(families)
        for flavour, words in ('openmpi', 'Open MPI'), ('mpich', 'MPICH Version'):
            self.assertIn(f'mpi {flavour}', backends)
            if has_plugin(flavour):
                self.assertIn(words, backends)


if __name__ == '__main__':
    unittest.main(verbosity=2)
