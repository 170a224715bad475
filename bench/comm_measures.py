"""What `bench/run comm` does: Tutti, five MPIs, Gloo and limit programs side by side, a row a goal.

Programs (comm_programs.py) take turns (a b c a b c …) for several rounds; each size's time is the
median over the rounds, and ratios are of medians. Nothing here is an absolute time: both sides of a
ratio ran within the same minutes, on the same cores. What a row needs and is not there prints as
"not yet", with the reason.
"""
import functools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from comm_programs import (BENCH, BUILD, LAST, MPIS, ROOT, TUTTI, NotYet, copy_bandwidth, gloo,
                           last_row, limit, plug_in, rows_of, text_of, tutti)

sys.path.insert(0, os.path.join(ROOT, 'tests', 'multi'))
import netns  # noqa: E402

SIZES = [4 << 2 * i for i in range(13)]
OPS = ['all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'all_to_all']
WIRE = 10e9 / 8  # bytes a second of the two hosts' link, each way


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

    def best_of(self, names):
        """The least time of those that ran, by size, and which of them it was."""
        there = [name for name in names if name in self.samples and name not in self.failures]
        if not there:
            raise NotYet('none of %s' % ', '.join(names))
        best = {}
        for name in there:
            for size, time_us in self.times(name).items():
                best[size] = min((time_us, name), best.get(size, (math.inf, '')))
        return best

    def speedups(self, ours, theirs, sizes=None):
        """How many times faster we are, by size; theirs: a name, or a list of which the best."""
        mine = self.times(ours)
        if isinstance(theirs, str):
            other = self.times(theirs)
        else:
            other = {size: time_us for size, (time_us, _) in self.best_of(theirs).items()}
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
        mine = results.times(ours)[size]
        who = '' if isinstance(theirs, str) else ' of ' + results.best_of(theirs)[size][1]
        return speedups[size], 'at %s: %.2f%s over %.2f us' % (
            readable(size), mine * speedups[size], who, mine)
    return figure


def write_key(folder):
    path = os.path.join(folder, 'key')
    with open(path, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(os.urandom(32).hex() + '\n')
    return path


# ---------------------------------------------------------------- the measures

def measure_limit(results, report, rounds):
    results.take_turns({'shm': tutti('all_reduce'), 'limit': limit}, max(5, rounds))

    def figure():
        ratios = {size: 1 / value for size, value in results.speedups('shm', 'limit').items()}
        size = max(ratios, key=ratios.get)
        return ratios[size], 'at %s; mean %.2f; by size %s' % (
            readable(size), geometric(ratios), ' '.join('%.2f' % ratios[size] for size in ratios))
    report.row('all_reduce f32, 2 ranks, time over the limit: worst of 4 B to 64 MiB', figure, 1.3,
               False)


def measure_all_reduce(results, report, rounds):
    results.take_turns({'all_reduce': tutti('all_reduce'),
                        'foreign': tutti('all_reduce', '--foreign'), 'limit': limit,
                        **{'all_reduce ' + name: mpi.program('all_reduce')
                           for name, mpi in MPIS.items()}}, rounds)
    goals = {'openmpi4': 4.5, 'openmpi5': 4.5, 'mpich4': 5, 'mpich5': 5, 'intel': 4}
    for name, goal in goals.items():
        what = 'all_reduce f32, 2 ranks, 4 B to 64 MiB, over %s: ' % name
        report.row(what + 'mean', mean_of(results, 'all_reduce', 'all_reduce ' + name), goal)
        report.row(what + 'worst', worst_of(results, 'all_reduce', 'all_reduce ' + name), 1.3)
        report.tell('  the limit program over %s: mean' % name,
                    lambda name=name: mean_of(results, 'limit', 'all_reduce ' + name)()[0])
    report.row('  the same with --foreign buffers, over openmpi4: mean',
               mean_of(results, 'foreign', 'all_reduce openmpi4'), 1.5)


def measure_others(results, report, rounds):
    """A broadcast's root need not wait for anybody: with a barrier each, all sides wait."""
    for op in OPS[1:]:
        flags = ['--barrier'] if op == 'broadcast' else []
        peers = {'%s %s' % (op, name): mpi.program(op, *flags) for name, mpi in MPIS.items()}
        results.take_turns({op: tutti(op, *flags), **peers}, rounds)
        what = op + ', 2 ranks, over the best MPI at each size: '
        report.row(what + 'mean', mean_of(results, op, list(peers)), 1.5)
        report.row(what + 'worst', worst_of(results, op, list(peers)), 0.95)


def measure_many_ranks(results, report, rounds):
    for ranks in (4, 8):
        for op in OPS:
            flags = ['--calls', '16', *(['--barrier'] if op == 'broadcast' else [])]
            ours = '%s %d ranks' % (op, ranks)
            peers = {'%s %s' % (ours, name): mpi.program(op, *flags, ranks=ranks, last=1 << 20)
                     for name, mpi in MPIS.items()}
            results.take_turns({ours: tutti(op, *flags, ranks=ranks, last=1 << 20), **peers},
                               rounds)
            what = '%s, %d ranks on %d cores, over the best MPI: ' % (
                op, ranks, len(os.sched_getaffinity(0)))
            report.row(what + 'mean', mean_of(results, ours, list(peers)), 1)
            report.row(what + 'worst', worst_of(results, ours, list(peers)), 0.95)


@functools.lru_cache
def wire_speeds():
    """The wire's speed over that of plain sockets, by size: what the kernel allows."""
    with tempfile.TemporaryDirectory() as folder:
        text = text_of([os.path.join(BENCH, 'wire_speed')], {'TUTTI_KEY_FILE': write_key(folder)})
    return {int(line.split()[0]): float(line.split()[-1])
            for line in text.splitlines() if 'both ways' in line}


def measure_tcp(results, report, rounds):
    results.take_turns({'tcp': tutti('all_reduce', '--wire', 'tcp', first=65536), 'gloo': gloo},
                       rounds)
    for what, sizes, goal in [('64 KiB', [1 << 16], 10), ('1 MiB', [1 << 20], 6),
                              ('mean of 4, 16, 64 MiB', [4 << 20, 16 << 20, 64 << 20], 3)]:
        report.row('all_reduce over TCP loopback, over Gloo: ' + what,
                   mean_of(results, 'tcp', 'gloo', sizes), goal)
    for size in (64 << 10, 1 << 20, 16 << 20):
        report.tell('  the wire over plain sockets, both ways, %s' % readable(size),
                    lambda size=size: wire_speeds()[size])


def measure_rotating(results, report, rounds):
    results.take_turns({'copy': copy_bandwidth,
                        'rotating': tutti('all_reduce', '--rotate', first=LAST, last=LAST)}, rounds)

    def figure():
        copy, time_us = results.times('copy')[0], results.times('rotating')[LAST]
        algbw = LAST / time_us * 1e-3
        return 100 * algbw / (copy / 4), '%.2f GB/s, B = %.1f GB/s' % (algbw, copy)
    report.row('all_reduce, rotating buffers, 64 MiB: % of B/4', figure, 80)


def measure_hosts(report):
    """Two namespaces on a bridge, 10 Gbit/s each way; a rank on each, on a core of its own."""
    def figure():
        why_not = netns.why_not()
        if why_not:
            raise NotYet(why_not)
        with netns.Hosts(2, rate='10gbit', burst='16mb') as hosts, \
                tempfile.TemporaryDirectory() as folder:
            key = write_key(folder)
            ranks = [hosts.popen(node, [
                'taskset', '-c', str(node), 'env', 'TUTTI_PROTECT=auth', TUTTI, 'run', '--nnodes',
                '2', '--node-rank', str(node), '-n', '1', '--rdzv-endpoint',
                hosts.address(0) + ':29500', '--key-file', key, TUTTI, 'bench', 'all_reduce',
                '--bytes', '64M', '--json'], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT) for node in range(2)]
            text = ''.join(rank.communicate(timeout=120)[0] for rank in ranks)
        rows = rows_of(text)
        if not rows:
            raise NotYet(text.strip().splitlines()[-1] if text.strip() else 'no output')
        rate = rows[-1]['busbw_GBps'] * 1e9
        return 100 * rate / WIRE, '%.2f GB/s each way' % (rate * 1e-9)
    report.row('all_reduce 64 MiB, two hosts of 10 Gbit/s: % of the wire', figure, 90)


def measure_plug_in(results, report, rounds):
    for name in ('openmpi4', 'mpich4'):
        ours, theirs = 'engine ' + name, 'bare ' + name
        results.take_turns({ours: plug_in(name), theirs: MPIS[name].program('all_reduce')}, rounds)

        def figure(ours=ours, theirs=theirs):
            mine, bare = results.times(ours), results.times(theirs)
            size = max(bare, key=lambda size: (mine[size] - 1) / bare[size])
            return (mine[size] - 1) / bare[size], 'at %s: %.2f, bare %.2f us' % (
                readable(size), mine[size], bare[size])
        report.row('mpi engine, less 1 us, over bare %s: worst' % name, figure, 1.15, False)


def measure_memory(report):
    def figure():
        row = last_row([TUTTI, 'run', '-n', '256', os.path.join(BENCH, 'group_memory')])
        return row['bytes_per_rank'] / (1 << 20), ''
    report.row('memory of a group of 256 ranks, per rank, idle, MiB', figure, 1, False)


def measure_steady_state(report):
    def figure():
        row = last_row([TUTTI, 'run', '-n', '2', os.path.join(BENCH, 'steady_state')])
        return row['system_calls'] + row['allocations'], '%(system_calls)d system calls, ' \
            '%(allocations)d allocations in %(calls)d calls' % row
    report.row('allocations and system calls of a shm all_reduce, steady', figure, 0, False)


def measure_instructions(report):
    """A small call whose peers are there already, by callgrind."""
    calls = 2000

    def count(kind):
        done = subprocess.run(
            ['valgrind', '--tool=callgrind', '--toggle-collect=measured',
             '--callgrind-out-file=/dev/null', os.path.join(BENCH, 'call_instructions'), kind,
             str(calls)], text=True, capture_output=True, check=True)
        return int(re.search(r'Collected : (\d+)', done.stderr).group(1)) / calls

    def figure():
        if shutil.which('valgrind') is None:
            raise NotYet('valgrind is not installed')
        others = {kind: count(kind) for kind in ('start', 'tag', 'prepared', 'prepared_start')}
        return count('call'), 'started and waited for %(start)d, with another tag each time ' \
            '%(tag)d; prepared %(prepared)d, started %(prepared_start)d' % others
    report.row('instructions of an all_reduce of 8 bytes', figure, 626, False)


def measure_lines(report):
    def figure():
        files = text_of(['git', '-C', ROOT, 'ls-files', 'src/comm']).split()
        lines, count = 0, 0
        for name in files:
            if name.endswith(('.c', '.h', '.def')) and '_test.' not in name:
                with open(os.path.join(ROOT, name), encoding='utf-8') as file:
                    text = file.read()
                if 'core/base/testing.h' not in text:  # what tests share is a test, too
                    lines += text.count('\n')
                    count += 1
        return lines / 1000, '%d files' % count
    report.row('lines of src/comm without tests, thousands', figure, 27.5, False)


PARTS = {
    'limit': measure_limit, 'all_reduce': measure_all_reduce, 'others': measure_others,
    'many': measure_many_ranks, 'tcp': measure_tcp, 'rotating': measure_rotating,
    'hosts': lambda _results, report, _rounds: measure_hosts(report), 'engine': measure_plug_in,
    'memory': lambda _results, report, _rounds: measure_memory(report),
    'steady': lambda _results, report, _rounds: measure_steady_state(report),
    'instructions': lambda _results, report, _rounds: measure_instructions(report),
    'lines': lambda _results, report, _rounds: measure_lines(report)}


def main(rounds, names):
    results, report = Results(), Report()
    for name in names or PARTS:
        PARTS[name](results, report, rounds)
    for name, why in results.failures.items():
        print('# left out: %s: %s' % (name, why))
    by_size = {name: results.times(name) for name in results.samples
               if name not in results.failures}
    with open(os.path.join(BUILD, 'bench', 'comm.json'), 'w', encoding='utf-8') as file:
        json.dump({'rows': report.rows, 'time_us': by_size}, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
