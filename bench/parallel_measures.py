"""What `bench/run parallel` does: pipelines beside their plans, tensor parallelism beside data
parallelism and over a slow wire, and both beside PyTorch. A row for each goal.

Both sides of a ratio take turns, so many pairs as --rounds says; the median is printed, with the
interval that holds the true one in 95 of 100 cases, and a goal is met if the interval touches it.
Every rank has one thread, on a core of its own. A pipeline's plan is simulated from costs that its
ranks measure at the same time, in the same job (bench/pipeline). The slow wire is one of 1 Gbit/s
between two network namespaces, which only root can make.
"""
import functools
import json
import os
import subprocess
import tempfile

from compute_measures import (BENCH, BIN, MODELS, ONE_THREAD, PEERS, PYTHON, NotYet, Report,
                              has_torch, last_json, pairs, real_time, torch_gpt)
from ddp_measures import RATE, netns

ROUNDS = 20
TUTTI, GPT = os.path.join(BIN, 'tutti'), os.path.join(BIN, 'gpt')
SYNCHRONOUS = ['gpipe', '1f1b', 'interleaved', 'looped-bfs', 'zb-h1', 'zb-h2', 'zb-v',
               'interleaved-zb', 'dualpipe-v', 'flush']
GBIT = 125e6  # bytes a second


# ---------------------------------------------------------------- sides

def pipeline(*words, ranks=2):
    """Rows of bench/pipeline, by schedule."""
    command = [TUTTI, 'run', '-n', str(ranks), os.path.join(BENCH, 'pipeline'), *map(str, words)]
    done = subprocess.run([*real_time(), *command], text=True,
                          capture_output=True, timeout=600, check=False)
    if done.returncode != 0:
        raise NotYet((done.stderr.strip().splitlines() or ['no result'])[-1])
    rows = [json.loads(line[line.index('{"'):]) for line in done.stdout.splitlines()
            if '{"' in line]
    return {row.get('schedule', 'all'): row for row in rows}


def flags_of(model, batch, steps):
    layers, width, heads, context, _ = MODELS[model]
    return [word for name, value in (('layers', layers), ('width', width), ('heads', heads),
                                     ('context', context), ('batch', batch), ('steps', steps))
            for word in ('--' + name, str(value))]


def run_ranks(command, ranks):
    launcher = [TUTTI, 'run', '-n', str(ranks)] if ranks > 1 else ['taskset', '-c', '0']
    done = subprocess.run([*real_time(), *launcher, *command], text=True, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise NotYet((done.stdout.strip().splitlines() or ['no output'])[-1])
    return done.stdout


def gpt(*options, model='6x384', batch=4, ranks=1, steps=5):
    """Milliseconds of a step on random tokens."""
    command = [GPT, '--bench', '--threads', '1', *flags_of(model, batch, steps), *options]
    return last_json(run_ranks(command, ranks), command)['step_ms']


def torch_parallel(kind, *options, batch=8, steps=6):
    has_torch()
    command = [PYTHON, os.path.join(PEERS, 'torch_parallel.py'), kind,
               *flags_of('6x384', batch, steps), *options]
    done = subprocess.run([*real_time(), *command], text=True, capture_output=True, timeout=600,
                          env={**os.environ, **ONE_THREAD}, check=False)
    if done.returncode != 0:
        raise NotYet((done.stderr.strip().splitlines() or ['no result'])[-1])
    return last_json(done.stdout, command)['step_ms']


# ---------------------------------------------------------------- pipelines

MICRO_BATCHES = 8


@functools.cache
def steps_of(number, schedules, ranks=2):
    """The number tells rounds apart."""
    return pipeline('step', schedules, 6, 384, MICRO_BATCHES, MICRO_BATCHES, 4, ranks=ranks)


def over_plan(schedule):
    def figures(rounds):
        rows = [steps_of(i, '1f1b,zb-h1')[schedule] for i in range(rounds)]
        return [row['step_ms'] / row['planned_ms'] for row in rows]
    return figures


def over_simulation(schedule):
    def figures(rounds):
        rows = [steps_of(i, ','.join(SYNCHRONOUS))[schedule] for i in range(rounds)]
        return [row['step_ms'] / row['simulated_ms'] for row in rows]
    return figures


SLEEP_MS = 8


@functools.cache
def sleepers(number):
    return pipeline('sleep', 'all', SLEEP_MS, MICRO_BATCHES, 2, ranks=4)


def sleeping(schedule):
    def figures(rounds):
        rows = [sleepers(i)[schedule] for i in range(rounds)]
        return [row['step_ms'] / row['simulated_ms'] for row in rows]
    return figures


def simulated_zb_v(_rounds):
    done = subprocess.run([TUTTI, 'explain', 'pipeline', '--schedule', 'zb-v', '--ranks', '4',
                           '--micro-batches', '12', '--json'], text=True, capture_output=True,
                          check=True)
    plan = json.loads(done.stdout)
    if any(load['idle'] for load in plan['loads']):
        raise NotYet('ranks wait between their first and last action')
    return [plan['time'] / plan['work']]


def held(schedule):
    """Micro-batches that ranks really held at once over the paper's, the worst rank."""
    ranks = 4
    papers = {'gpipe': lambda i: MICRO_BATCHES, '1f1b': lambda i: ranks - i + 1,
              'zb-h1': lambda i: ranks - i + 1 + i - 1}[schedule]  # those that wait for W, too

    def figures(rounds):
        found = sleepers(0)[schedule]['live_max']
        return [max(count / papers(i + 1) for i, count in enumerate(found))]
    return figures


def cuts(rounds):
    """The automatic cut's step over the best step of all cuts."""
    rows = [pipeline('cuts', MICRO_BATCHES, 6)['all'] for _ in range(rounds)]
    return [row['step_ms'] / row['best_ms'] for row in rows]


def planning(rounds):
    """Milliseconds, of the slowest schedule."""
    return [max(row['ms'] for row in pipeline('rows', 1024, 4096, ranks=1).values())
            for _ in range(rounds)]


# ---------------------------------------------------------------- tensor parallelism

TP = ['--mesh', 'tp=2']
STYLES = {'tp': [], 'tp_seq': ['--sequence-parallel']}


def over_ddp(model, *options):
    """Two ranks of DDP over two of tensor parallelism, the same sequences a step: one rank's step
    is in both speed-ups, and falls out."""
    batch = MODELS[model][4]
    return lambda rounds: pairs(
        lambda: gpt(*TP, *options, model=model, batch=batch, ranks=2),
        lambda: gpt(model=model, batch=batch // 2, ranks=2), rounds)


def speed_up(model, *options):
    batch = MODELS[model][4]
    return lambda rounds: pairs(
        lambda: gpt(*TP, *options, model=model, batch=batch, ranks=2),
        lambda: gpt(model=model, batch=batch), rounds)


def gpt_over_wire(hosts, key, *options, steps):
    """Milliseconds of a step, and the bytes that host 0 sent, launch and all."""
    before = hosts.sent_bytes(0)
    program = [GPT, '--bench', '--threads', '1', *flags_of('6x384', 4, steps), *options]
    ranks = [hosts.popen(node, [*real_time(), 'taskset', '-c', str(node), 'env',
                                'TUTTI_PROTECT=auth', TUTTI, 'run', '--nnodes', '2', '--node-rank',
                                str(node), '-n', '1', '--rdzv-endpoint',
                                hosts.address(0) + ':29500', '--key-file', key, *program],
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for node in range(2)]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise NotYet(outputs[-1].strip().splitlines()[-1])
    return last_json(''.join(outputs), program)['step_ms'], hosts.sent_bytes(0) - before


def exposed(*options):
    """What a step is longer by over the wire than through memory, over the time that its bytes
    take on the wire."""
    def figures(rounds):
        why_not = netns.why_not()
        if why_not:
            raise NotYet(why_not)
        found = []
        with netns.Hosts(2, rate=RATE) as hosts, tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, 'key')
            with open(key, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(os.urandom(32).hex() + '\n')
            for _ in range(rounds):
                here = gpt(*TP, *options, ranks=2)
                slow, few = gpt_over_wire(hosts, key, *TP, *options, steps=4)
                _, many = gpt_over_wire(hosts, key, *TP, *options, steps=8)
                wire_ms = 1e3 * (many - few) / 4 / GBIT
                found.append((slow - here) / wire_ms)
        return found
    return figures


# ---------------------------------------------------------------- PyTorch

@functools.cache
def one_process(number):
    """PyTorch's step over ours, one process and one core each."""
    ours = gpt(batch=8)
    return torch_gpt('6x384', '--batch', '8') / ours


def over_torch(kind, ours, *theirs):
    """How much faster we are on two ranks over how much faster on one."""
    def figures(rounds):
        two = pairs(ours, lambda: torch_parallel(kind, *theirs), rounds)
        return [ratio / one_process(i) for i, ratio in enumerate(two)]
    return figures


def torch_pp():
    return over_torch('pp', lambda: gpt(
        '--mesh', 'pp=2', '--micro-batches', str(MICRO_BATCHES), '--pipeline', '1f1b', batch=8,
        ranks=2, steps=6), '--micro-batches', str(MICRO_BATCHES))


def torch_tp():
    return over_torch('tp', lambda: gpt(*TP, batch=8, ranks=2))


# ---------------------------------------------------------------- rows

def rows():
    """name, what, figures, goal, whether more is better."""
    for schedule in ('1f1b', 'zb-h1'):
        yield ('plan', 'pipeline of 2 ranks, 6x384, 8 micro-batches, %s, over plan' % schedule,
               over_plan(schedule), 1.05, False)
    yield ('zb_v', 'zb-v, 4 ranks, 12 micro-batches, no rank waits: time over work',
           simulated_zb_v, 75 / 72, False)
    for schedule in SYNCHRONOUS:
        yield ('sleep', 'sleeping actions, 4 ranks, %s, over simulation' % schedule,
               sleeping(schedule), 1.05, False)
    for schedule in SYNCHRONOUS:
        yield ('simulation', 'pipeline of 2 ranks, 6x384, %s, over simulation' % schedule,
               over_simulation(schedule), 1.07, False)
    for schedule in ('gpipe', '1f1b', 'zb-h1'):
        yield ('activations', 'micro-batches held, 4 ranks, %s, over the papers\'' % schedule,
               held(schedule), 1, False)
    for model in ('6x384', '4x768'):
        for name, options in STYLES.items():
            yield (name, '%s, %s, over DDP' % (' '.join(['tp 2', *options]), model),
                   over_ddp(model, *options), 0.97, True)
            yield (name, '  the same over one rank', speed_up(model, *options), None, True)
    for name, options in STYLES.items():
        yield ('wire', '%s, 1 Gbit/s: exposed over wire time' % ' '.join(['tp 2', *options]),
               exposed(*options), 0.7, False)
    yield 'torch_pp', 'pp 2 over torch, over the same of one process', torch_pp(), 1, True
    yield 'torch_tp', 'tp 2 over torch, over the same of one process', torch_tp(), 1.05, True
    yield 'cut', 'automatic cut over the best of all, 2 ranks', cuts, 1.03, False
    yield ('rows', 'planning a row, 1,024 stages, 4,096 micro-batches, ms', planning, 100, False)


NAMES = list(dict.fromkeys(row[0] for row in rows()))


def main(rounds, names):
    report = Report(rounds)
    for name, what, figures, goal, more_is_better in rows():
        if not names or name in names:
            report.row(name, what, figures, goal, more_is_better)
    os.makedirs(BENCH, exist_ok=True)
    with open(os.path.join(BENCH, 'parallel.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
