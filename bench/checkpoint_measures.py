"""What `bench/run checkpoint` does: saving and loading 1 GiB on two ranks beside a program that
does the same system calls and nothing else (bench/checkpoint), and beside PyTorch; what it reads,
and the memory that it takes. A row for each goal.

Ours and the limit program take turns in one process, with the state in the same memory, and the
disk's queue empty (sync) before each turn. The figure is the median of the rounds' ratios, with the
interval that holds the true median in 95 of 100 cases; a goal is met if the interval touches it.
As root, programs run in a session of the highest priority (nice -20), not under SCHED_FIFO, which
would hold back the kernel's own threads, who write to the disk. CHECKPOINT_MIB is another size of
the state.
"""
import functools
import json
import os
import shutil
import statistics
import subprocess
import tempfile

from compute_measures import BENCH, BIN, ONE_THREAD, PEERS, PYTHON, NotYet, has_torch, interval

ROUNDS = 9
MIB = int(os.environ.get('CHECKPOINT_MIB', '1024'))


@functools.cache
def urgent():
    """What puts us before other programs, if it is allowed: nice counts among the processes of a
    session, and a session's own nice among sessions (sched(7), autogroups)."""
    command = ['setsid', '-w', 'sh', '-c',
               'echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 "$@"', 'sh']
    done = subprocess.run([*command, 'true'], capture_output=True, text=True, check=False)
    return command if done.returncode == 0 and not done.stderr else []


def rows_of(command, environment=None):
    done = subprocess.run([*urgent(), *command], text=True, capture_output=True, timeout=900,
                          env={**os.environ, **(environment or {})}, check=False)
    rows = [json.loads(line[line.index('{"'):])
            for line in done.stdout.splitlines() if '{"' in line]
    if done.returncode != 0 or not rows:
        raise NotYet((done.stderr.strip().splitlines() or ['no result'])[-1])
    return rows


class Folder:
    """On the disk on which build/ is; empty, and gone afterwards."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix='checkpoint-', dir=BENCH)
        return os.path.join(self.path, 'c')

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def ours(part, *numbers, ranks=2):
    with Folder() as folder:
        return rows_of([os.path.join(BIN, 'tutti'), 'run', '-n', str(ranks),
                        os.path.join(BENCH, 'checkpoint'), folder, part, *map(str, numbers)])


def torch_rows(rounds):
    has_torch()
    with Folder() as folder:
        return rows_of([PYTHON, os.path.join(PEERS, 'torch_checkpoint.py'), '--folder', folder,
                        '--mib', str(MIB), '--rounds', str(rounds)], ONE_THREAD)


@functools.cache
def turns(part, rounds):
    return ours(part, MIB, rounds)


def over_limit(part, rounds, clock='s'):
    return [row['ours_' + clock] / row['limit_' + clock] for row in turns(part, rounds)]


def seconds_of(rows, what):
    return statistics.median(row['ours_s'] for row in rows if row['what'] == what)


@functools.cache
def pairs_with_torch(rounds):
    """Each program saves and loads three times; a pair for every two rounds."""
    return [(torch_rows(3), ours('ours', MIB, 3)) for _ in range(max(1, rounds // 2))]


def over_torch(what, rounds):
    return [seconds_of(theirs, what) / seconds_of(mine, what)
            for theirs, mine in pairs_with_torch(rounds)]


@functools.cache
def costs(part, ranks, rounds):
    return ours(part, 256, rounds, ranks=ranks)


def cost(part, name, ranks=2, rounds=1):
    return [row[name] for row in costs(part, ranks, rounds)]


@functools.cache
def steps(ranks, rounds):
    return ours('steps', MIB, rounds, ranks=ranks)


def over_steps_without(ranks, rounds):
    return [row['with_s'] / row['without_s'] for row in steps(ranks, rounds)]


def of_steps(name, ranks, rounds):
    return [row[name] for row in steps(ranks, rounds)]


def save_and_load(rounds):
    return [row['save_s'] + row['load_s'] for row in costs('many', 2, rounds)]


# name, what, figures, goal; of PyTorch more is better
ROWS = [
    ('save', 'save, 2 ranks, over the limit program', lambda n: over_limit('save', n), 1.10),
    ('save', '  the same, time of processors', lambda n: over_limit('save', n, 'cpu_s'), None),
    ('load', 'load, 2 ranks, from the page cache, over the limit',
     lambda n: over_limit('load', n), 1.15),
    ('load', '  the same, time of processors', lambda n: over_limit('load', n, 'cpu_s'), None),
    ('cold', 'load, 2 ranks, from the disk, over the limit', lambda n: over_limit('cold', n), 1.15),
    ('torch', "PyTorch's dcp.save over ours", lambda n: over_torch('save', n), 1.5),
    ('torch', "PyTorch's dcp.load over ours, from the disk", lambda n: over_torch('cold', n), 1.5),
    ('torch', "PyTorch's dcp.load over ours, from the page cache",
     lambda n: over_torch('load', n), 1.5),
    ('steps', 'a step while a save is written, 2 ranks, over one without',
     lambda n: over_steps_without(2, n), 1.05),
    ('steps', '  until it is written, s', lambda n: of_steps('written_s', 2, n), None),
    ('steps', '  time of processors beside the steps, rank 0, s',
     lambda n: of_steps('cpu_s', 2, n), None),
    ('steps', '  the copy before it, s', lambda n: of_steps('held_s', 2, n), None),
    ('steps', '  a step over one without, 1 rank', lambda n: over_steps_without(1, n), 1.05),
    ('bytes', 'bytes read over bytes needed, rows, worst rank of 4',
     lambda _: cost('bytes', 'rows', 4), 1.05),
    ('bytes', '  the same, columns of what lies by rows',
     lambda _: cost('bytes', 'columns', 4), None),
    ('memory', 'memory beside the state while saving, MiB',
     lambda _: cost('memory', 'save_mib'), 64),
    ('memory', 'memory beside the state while loading, MiB',
     lambda _: cost('memory', 'load_mib'), 64),
    ('many', '10,000 tensors of 1 KiB, save and load, s', save_and_load, 1),
]
NAMES = list(dict.fromkeys(row[0] for row in ROWS))


class Report:
    def __init__(self, rounds):
        self.rounds, self.rows = rounds, []
        print('# %d MiB, %d rounds%s; load %.1f' % (
            MIB, rounds, '' if urgent() else ', without nice -20', os.getloadavg()[0]))
        print('%-58s %8s %17s %9s' % ('measure', 'median', '95 %', 'goal'), flush=True)

    def row(self, name, what, figures, goal):
        more_is_better = name == 'torch'
        wanted = '' if goal is None else '%s %g' % ('>=' if more_is_better else '<=', goal)
        try:
            values = figures(self.rounds)
        except (NotYet, OSError, subprocess.SubprocessError) as error:
            print('%-58s %8s %17s %9s  not yet: %s' % (what, '-', '', wanted, error), flush=True)
            self.rows.append({'name': name, 'what': what, 'goal': goal, 'not_yet': str(error)})
            return
        low, high = interval(values)
        is_met = goal is None or (high >= goal if more_is_better else low <= goal)
        print('%-58s %8.3f %8.3f-%8.3f %9s  %s' % (
            what, statistics.median(values), low, high, wanted,
            '' if goal is None else 'ok' if is_met else 'short'), flush=True)
        self.rows.append({'name': name, 'what': what, 'goal': goal, 'met': is_met,
                          'median': statistics.median(values), 'interval': [low, high],
                          'values': values, 'load': os.getloadavg()[0]})


def main(rounds, names):
    report = Report(rounds)
    for row in ROWS:
        if not names or row[0] in names:
            report.row(*row)
    with open(os.path.join(BENCH, 'checkpoint.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
