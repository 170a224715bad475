"""What `bench/run comm` does: Tutti, Open MPI, MPICH and Gloo side by side, a row for each goal.

Programs take turns (a b a b …) for several rounds; each size's time is the median over the rounds,
and ratios are of medians. Nothing here is an absolute time: both sides of a ratio ran within the
same minute, on the same cores. What a row needs and is not there prints as "not yet".
"""
import json
import math
import os
import shutil
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, 'build')
TUTTI = os.path.join(BUILD, 'bin', 'tutti')
PEERS = os.path.join(ROOT, 'bench', 'peers')
MADE = os.path.join(BUILD, 'bench', 'peers')
DEADLINE = 150
ROOT_MAY = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
SIZES = [4 << 2 * i for i in range(13)]
PARTED = ['reduce_scatter', 'all_gather', 'broadcast', 'all_to_all']


class NotYet(Exception):
    """What a row measures is not there."""


def text_of(command, **environment):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, **ROOT_MAY, **environment}, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotYet(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotYet(said[0] if said else 'exit code %d' % done.returncode)
    return done.stdout


def times_of(command, **environment):
    """{bytes: time_us} of the JSON lines that a command prints."""
    lines = text_of(command, **environment).splitlines()
    rows = [json.loads(line[line.index('{'):]) for line in lines if '{' in line]
    return {row['bytes']: row['time_us'] for row in rows}


def last_row(command):
    lines = [line for line in text_of(command).splitlines() if '{' in line]
    if not lines:
        raise NotYet('%s printed no JSON line' % command[-1])
    return json.loads(lines[-1][lines[-1].index('{'):])


# ---------------------------------------------------------------- programs

def tutti(op, *flags, ranks=2, first=4, last=64 << 20):
    return lambda: times_of([TUTTI, 'bench', op, '-n', str(ranks), '--json', '--bytes',
                             '%d:%d' % (first, last), *flags], TUTTI_TUNE='off')


def launcher(flavour, ranks):
    if flavour == 'mpich':
        return ['mpirun.mpich', '-bind-to', 'core' if ranks <= 2 else 'none', '-np', str(ranks)]
    how = ['--bind-to', 'core'] if ranks <= 2 else ['--oversubscribe', '--bind-to', 'none']
    return ['mpirun.openmpi', *how, '-np', str(ranks)]


def compiled(flavour):
    program = os.path.join(MADE, 'mpi_collectives_' + flavour)
    source = os.path.join(PEERS, 'mpi_collectives.c')
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        os.makedirs(MADE, exist_ok=True)
        text_of(['mpicc.' + flavour, '-O2', source, '-o', program])
    return program


def mpi(op, *flags, flavour='openmpi', ranks=2, first=4, last=64 << 20):
    return lambda: times_of([*launcher(flavour, ranks), compiled(flavour), op, '--min', str(first),
                             '--max', str(last), *flags])


def plug_in(flavour):
    """tutti bench as a program of the MPI, through the mpi engine."""
    return lambda: times_of([*launcher(flavour, 2), TUTTI, 'bench', 'all_reduce', '--json',
                             '--backend', 'mpi', '--bytes', '4:64M'])


def gloo():
    return times_of(['/usr/bin/python3', os.path.join(PEERS, 'gloo_all_reduce.py')])


def copy_bandwidth():
    return {0: last_row([os.path.join(BUILD, 'bench', 'copy_bandwidth')])['copy_GBps']}


# ---------------------------------------------------------------- taking turns

class Results:
    """Medians over the rounds, by program."""

    def __init__(self):
        self.samples, self.failures = {}, {}

    def take_turns(self, programs, rounds):
        for _ in range(rounds):
            for name, program in programs.items():
                if name in self.failures:
                    continue
                try:
                    for size, time_us in program().items():
                        self.samples.setdefault(name, {}).setdefault(size, []).append(time_us)
                except NotYet as error:
                    self.failures[name] = str(error)

    def times(self, name):
        if name in self.failures or name not in self.samples:
            raise NotYet('%s: %s' % (name, self.failures.get(name, 'not measured')))
        return {size: statistics.median(values) for size, values in self.samples[name].items()}

    def speedups(self, ours, theirs, sizes=None):
        """How many times faster we are, by size."""
        mine, other = self.times(ours), self.times(theirs)
        common = [size for size in mine if size in other and (sizes is None or size in sizes)]
        if not common:
            raise NotYet('no common sizes of %s and %s' % (ours, theirs))
        return {size: other[size] / mine[size] for size in common}


def geometric(speedups):
    return math.exp(sum(math.log(value) for value in speedups.values()) / len(speedups))


def readable(size):
    for unit, name in [(1 << 20, 'MiB'), (1 << 10, 'KiB')]:
        if size >= unit:
            return '%d %s' % (size // unit, name)
    return '%d B' % size


class Report:
    """Rows: what, figure, goal, ok or short."""

    def __init__(self):
        self.rows = []
        print('%-66s %9s %9s' % ('measure', 'figure', 'goal'))

    def row(self, what, figure, goal, more_is_better=True):
        """figure() gives a number and a note, or raises NotYet."""
        sign = '>=' if more_is_better else '<='
        try:
            value, note = figure()
        except NotYet as error:
            print('%-66s %9s %2s %6g  not yet: %s' % (what, '-', sign, goal, error), flush=True)
            self.rows.append({'what': what, 'goal': goal, 'not_yet': str(error)})
            return
        is_met = value >= goal if more_is_better else value <= goal
        print('%-66s %9.2f %2s %6g  %s%s' % (what, value, sign, goal, 'ok' if is_met else 'short',
                                             '  (%s)' % note if note else ''), flush=True)
        self.rows.append({'what': what, 'value': value, 'goal': goal, 'met': is_met})

    def tell(self, what, figure):
        try:
            print('%-66s %9.2f' % (what, figure()), flush=True)
        except NotYet as error:
            print('%-66s %9s  not yet: %s' % (what, '-', error), flush=True)


def mean_of(results, ours, theirs, sizes=None):
    def figure():
        return geometric(results.speedups(ours, theirs, sizes)), ''
    return figure


def worst_of(results, ours, theirs, sizes=None):
    def figure():
        speedups = results.speedups(ours, theirs, sizes)
        size = min(speedups, key=speedups.get)
        return speedups[size], 'at %s: %.2f over %.2f us' % (
            readable(size), results.times(theirs)[size], results.times(ours)[size])
    return figure


# ---------------------------------------------------------------- the measures

def measure_all_reduce(results, report, rounds):
    results.take_turns({'shm': tutti('all_reduce'), 'openmpi': mpi('all_reduce'),
                        'foreign': tutti('all_reduce', '--foreign'), 'gloo': gloo,
                        'mpich': mpi('all_reduce', flavour='mpich'),
                        'tcp': tutti('all_reduce', '--wire', 'tcp', first=65536)}, rounds)
    what = 'all_reduce f32, 2 ranks, shm, 4 B to 64 MiB, over Open MPI: '
    report.row(what + 'mean', mean_of(results, 'shm', 'openmpi'), 4.5)
    report.row(what + 'worst', worst_of(results, 'shm', 'openmpi'), 1.5)
    report.row('  the same with --foreign buffers: mean', mean_of(results, 'foreign', 'openmpi'),
               1.5)
    report.row('  the same over Gloo: mean', mean_of(results, 'shm', 'gloo'), 100)
    report.tell('  the same over MPICH: mean', lambda: mean_of(results, 'shm', 'mpich')()[0])


def measure_others(results, report, rounds):
    for op in PARTED:
        results.take_turns({op: tutti(op), op + ' openmpi': mpi(op)}, rounds)
        report.row(op + ' over Open MPI: mean', mean_of(results, op, op + ' openmpi'), 2)


def measure_rotating(results, report, rounds):
    size = 64 << 20
    results.take_turns({'copy': copy_bandwidth,
                        'rotating': tutti('all_reduce', '--rotate', first=size, last=size)}, rounds)

    def figure():
        copy, time_us = results.times('copy')[0], results.times('rotating')[size]
        algbw = size / time_us * 1e-3
        return 100 * algbw / (copy / 4), '%.2f GB/s, B = %.1f GB/s' % (algbw, copy)
    report.row('all_reduce, rotating buffers, 64 MiB: % of B/4', figure, 80)


def measure_many_ranks(results, report, rounds):
    calls = ['--calls', '200']
    for ranks in (4, 8):
        ours, theirs = '%d ranks' % ranks, '%d ranks openmpi' % ranks
        results.take_turns({ours: tutti('all_reduce', *calls, ranks=ranks, last=1 << 20),
                            theirs: mpi('all_reduce', *calls, ranks=ranks, last=1 << 20)}, rounds)
        report.row('%d ranks on %d cores, 4 B to 1 MiB, over Open MPI: worst' % (
            ranks, len(os.sched_getaffinity(0))), worst_of(results, ours, theirs), 1)


def measure_tcp(results, report):
    def over_gloo(sizes):
        def figure():
            return geometric(results.speedups('tcp', 'gloo', sizes)), ''
        return figure

    def has_tcp():
        wires = json.loads(text_of([TUTTI, 'info', '--json']))['families']['wires']
        if 'tcp' not in wires:
            raise NotYet('this build has no tcp wire')
    for what, sizes, goal in [('64 KiB', [1 << 16], 4), ('1 MiB', [1 << 20], 4),
                              ('mean of 4, 16, 64 MiB', [4 << 20, 16 << 20, 64 << 20], 1.8)]:
        def figure(sizes=sizes):
            has_tcp()
            return over_gloo(sizes)()
        report.row('all_reduce over TCP loopback, over Gloo: ' + what, figure, goal)


def measure_plug_in(results, report, rounds):
    for flavour in ('openmpi', 'mpich'):
        ours, theirs = 'engine ' + flavour, 'bare ' + flavour
        results.take_turns({ours: plug_in(flavour), theirs: mpi('all_reduce', flavour=flavour)},
                           rounds)

        def figure(ours=ours, theirs=theirs):
            mine, bare = results.times(ours), results.times(theirs)
            size = max(bare, key=lambda size: (mine[size] - 1) / bare[size])
            return (mine[size] - 1) / bare[size], 'at %s: %.2f, bare %.2f us' % (
                readable(size), mine[size], bare[size])
        report.row('mpi engine, less 1 us, over bare %s: worst' % flavour, figure, 1.15, False)


def measure_memory(report):
    def figure():
        row = last_row([TUTTI, 'run', '-n', '256', os.path.join(BUILD, 'bench', 'group_memory')])
        return row['bytes_per_rank'] / (1 << 20), ''
    report.row('memory of a group of 256 ranks, per rank, idle, MiB', figure, 1, False)


def measure_steady_state(report):
    def figure():
        row = last_row([TUTTI, 'run', '-n', '2', os.path.join(BUILD, 'bench', 'steady_state')])
        return row['system_calls'] + row['allocations'], '%(system_calls)d system calls, ' \
            '%(allocations)d allocations in %(calls)d calls' % row
    report.row('allocations and system calls of a shm all_reduce, steady', figure, 0, False)


def main(rounds):
    missing = [name for name in ('mpirun.openmpi', 'mpirun.mpich') if shutil.which(name) is None]
    if missing:
        print('# without %s: the rows that need it are left out (tools/packages bench)' % missing)
    results, report = Results(), Report()
    measure_all_reduce(results, report, rounds)
    measure_tcp(results, report)
    measure_others(results, report, max(1, rounds - 1))
    measure_rotating(results, report, rounds)
    measure_many_ranks(results, report, rounds)
    measure_plug_in(results, report, max(1, rounds - 1))
    measure_memory(report)
    measure_steady_state(report)
    by_size = {}
    for name in results.samples:
        by_size[name] = results.times(name)
    with open(os.path.join(BUILD, 'bench', 'comm.json'), 'w') as file:
        json.dump({'rows': report.rows, 'time_us': by_size}, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
