"""The conformance suite as a job of three processes: over shared memory, over tcp, and by each MPI
there is, by messages and by MPI's own collectives, whose sums of floats are left out. All of them
say that nothing is wrong, and see the same bits. TUTTI_TEST_SHARE=3 draws a third of what is
compared with shared memory (draws.py)."""
import os
import re
import shutil
import subprocess
import unittest

import draws

BUILD = os.environ['TUTTI_BINARY_DIR']
TUTTI = os.path.join(BUILD, 'bin', 'tutti')
CONFORM = [os.path.join(BUILD, 'tests', 'backend_conform_test'), '--world']
RANKS = '3'
DEADLINE = 100
MPI = {'TUTTI_BACKEND': 'mpi', 'OMPI_ALLOW_RUN_AS_ROOT': '1',
       'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_btl': 'self,vader',
       # MPI libraries leak by themselves; our own counter is checked by the programs.
       'ASAN_OPTIONS': 'detect_leaks=0'}
LAUNCHERS = {'openmpi': ['mpirun.openmpi', '--oversubscribe'], 'mpich': ['mpirun.mpich']}


def has_mpi(flavour):
    return (shutil.which(LAUNCHERS[flavour][0]) is not None and
            os.path.exists(os.path.join(BUILD, 'lib', f'libtutti_mpi_{flavour}.so')))


class Conformance(unittest.TestCase):
    def run_job(self, command, *options, **environment):
        done = subprocess.run([*command, *CONFORM, *options], text=True, capture_output=True,
                              timeout=DEADLINE, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = re.search(r'conform: 3 ranks, (\d+) checks, 0 wrong, digest (\w+)', done.stdout)
        self.assertIsNotNone(said, done.stdout + done.stderr)
        self.assertGreater(int(said[1]), 10000)
        return said[2]

    def test_shared_memory_tcp_and_mpi_see_the_same_bits(self):
        launch = [TUTTI, 'run', '-n', RANKS, '--']
        others = {'tcp': (launch, {'TUTTI_WIRES': 'tcp'})}
        for flavour in filter(has_mpi, LAUNCHERS):
            others[flavour] = ([*LAUNCHERS[flavour], '-np', RANKS], MPI)
        shm = self.run_job(launch)
        for name in draws.part(others, self.id()):
            with self.subTest(name):
                command, environment = others[name]
                self.assertEqual(self.run_job(command, **environment), shm)

    def test_mpis_own_collectives_see_the_same_integers(self):
        others = [(flavour, largest) for flavour in filter(has_mpi, LAUNCHERS) for largest in '01']
        shm = self.run_job([TUTTI, 'run', '-n', RANKS, '--'], '--integers')
        for flavour, largest in draws.part(others, self.id()):
            with self.subTest(flavour, exchange=largest):
                mpirun = [*LAUNCHERS[flavour], '-np', RANKS]
                self.assertEqual(self.run_job(mpirun, '--integers', **MPI,
                                              TUTTI_MPI_EXCHANGE=largest), shm)


if __name__ == '__main__':
    draws.announce()
    unittest.main(verbosity=2)
