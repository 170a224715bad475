"""The programs that `bench/run comm` lets take turns: Tutti, five MPIs, Gloo, the limit programs.

Each program is a function that returns {bytes: time_us}. A program that cannot run raises NotYet
with the reason. PyPI's releases of the peers are installed by tools/peers into build/peers.
"""
import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, 'build')
BENCH = os.path.join(BUILD, 'bench')
TUTTI = os.path.join(BUILD, 'bin', 'tutti')
SOURCES = os.path.join(ROOT, 'bench', 'peers')
INSTALLED = os.environ.get('PEERS_FOLDER', os.path.join(BUILD, 'peers'))
MADE = os.path.join(BENCH, 'peers')
DEADLINE = 300
ROOT_MAY = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
LAST = 64 << 20


class NotYet(Exception):
    """What a row measures is not there."""


def text_of(command, environment=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, **ROOT_MAY, **(environment or {})}, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotYet(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotYet(said[0] if said else 'exit code %d' % done.returncode)
    return done.stdout


def rows_of(text):
    return [json.loads(line[line.index('{'):]) for line in text.splitlines() if '{' in line]


def times_of(command, environment=None):
    return {row['bytes']: row['time_us'] for row in rows_of(text_of(command, environment))}


def last_row(command):
    rows = rows_of(text_of(command))
    if not rows:
        raise NotYet('%s printed no JSON line' % command[-1])
    return rows[-1]


def tutti(op, *flags, ranks=2, first=4, last=LAST):
    return lambda: times_of([TUTTI, 'bench', op, '-n', str(ranks), '--json', '--bytes',
                             '%d:%d' % (first, last), *flags], {'TUTTI_TUNE': 'off'})


# ---------------------------------------------------------------- MPI

class Mpi:
    """One installed MPI: how to compile for it and how to launch it."""

    def __init__(self, name, about, compiler, launcher, is_open_mpi, library_path=None):
        self.name, self.about = name, about
        self.compiler, self.launcher = compiler, launcher
        self.is_open_mpi, self.library_path = is_open_mpi, library_path

    def launch(self, ranks):
        is_crowded = ranks > len(os.sched_getaffinity(0))
        if self.is_open_mpi:
            how = ['--oversubscribe', '--bind-to', 'none'] if is_crowded else ['--bind-to', 'core']
        elif self.library_path:
            how = []  # Intel's launcher binds as it sees fit: I_MPI_PIN
        else:
            how = ['-bind-to', 'none' if is_crowded else 'core']
        return [self.launcher, *how, '-np', str(ranks)]

    def environment(self, ranks):
        if self.library_path is None:
            return {}
        is_crowded = ranks > len(os.sched_getaffinity(0))
        return {'LD_LIBRARY_PATH': self.library_path, 'FI_PROVIDER_PATH': self.library_path,
                'I_MPI_PIN': '0' if is_crowded else '1', 'I_MPI_FABRICS': 'shm',
                'I_MPI_WAIT_MODE': '1' if is_crowded else '0'}

    def compiled(self):
        program = os.path.join(MADE, 'mpi_collectives_' + self.name)
        source = os.path.join(SOURCES, 'mpi_collectives.c')
        if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
            os.makedirs(MADE, exist_ok=True)
            text_of([self.compiler, '-O2', source, '-o', program])
        return program

    def program(self, op, *flags, ranks=2, first=4, last=LAST):
        def run():
            text = text_of([*self.launch(ranks), self.compiled(), op, '--min', str(first),
                            '--max', str(last), *flags], self.environment(ranks))
            rows = rows_of(text)
            if not rows or not re.match(self.about, rows[0]['library']):
                raise NotYet('ran %s instead of %s' % (
                    rows[0]['library'] if rows else 'nothing', self.about))
            return {row['bytes']: row['time_us'] for row in rows}
        return run


def installed(peer, *path):
    return os.path.join(INSTALLED, peer, *path)


MPIS = {mpi.name: mpi for mpi in (
    Mpi('openmpi4', r'Open MPI v4', 'mpicc.openmpi', 'mpirun.openmpi', True),
    Mpi('openmpi5', r'Open MPI v5', installed('openmpi', 'bin', 'mpicc'),
        installed('openmpi', 'bin', 'mpirun'), True),
    Mpi('mpich4', r'MPICH Version: +4', 'mpicc.mpich', 'mpirun.mpich', False),
    Mpi('mpich5', r'MPICH Version: +5', installed('mpich', 'bin', 'mpicc'),
        installed('mpich', 'bin', 'mpiexec'), False),
    # They share an ABI: the program is compiled for MPICH and finds Intel's library.
    Mpi('intel', r'Intel\(R\) MPI', installed('mpich', 'bin', 'mpicc'),
        installed('impi', 'bin', 'mpiexec.hydra'), False, installed('impi', 'lib')))}


def plug_in(name):
    """tutti bench as a program of the MPI, through the mpi engine."""
    mpi = MPIS[name]
    return lambda: times_of([*mpi.launch(2), TUTTI, 'bench', 'all_reduce', '--json',
                             '--backend', 'mpi', '--bytes', '4:64M'], mpi.environment(2))


# ---------------------------------------------------------------- others

def gloo():
    return times_of([installed('torch', 'bin', 'python'),
                     os.path.join(SOURCES, 'gloo_all_reduce.py')])


def limit():
    return times_of([os.path.join(BENCH, 'shm_limit')])


def copy_bandwidth():
    return {0: last_row([os.path.join(BENCH, 'copy_bandwidth')])['copy_GBps']}
