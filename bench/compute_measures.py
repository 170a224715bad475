"""What `bench/run compute` does: training steps and layers on one thread beside the newest PyTorch
(tools/peers), and beside what the core can do at all. A row for each goal.

Both sides of a pair run on one core, one right after the other; whose turn comes first changes
from pair to pair. The figure is the median of the pairs' ratios, with the interval that holds the
true median in 95 of 100 cases (order statistics, so it wants no distribution). A goal is met if the
interval touches it. Programs run under SCHED_FIFO where that is allowed: what else the machine does
then takes no time from them, but still cache and memory.

The share of the peak counts multiplications that are executed: of attention the causal half, seven
products of it (two forward, five backward), no lookups in embedding tables.
"""
import functools
import json
import math
import os
import re
import shutil
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, 'build', 'bin')
BENCH = os.path.join(ROOT, 'build', 'bench')
PEERS = os.path.join(ROOT, 'bench', 'peers')
INSTALLED = os.environ.get('PEERS_FOLDER', os.path.join(ROOT, 'build', 'peers'))
PYTHON = os.path.join(INSTALLED, 'torch', 'bin', 'python')
ROUNDS = 20
CORE = sorted(os.sched_getaffinity(0))[-1]
ONE_THREAD = {'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}
VOCAB = 256
MODELS = {'6x384': (6, 384, 6, 256, 4), '4x128': (4, 128, 4, 256, 8), '4x768': (4, 768, 12, 256, 4)}


class NotYet(Exception):
    """What a row measures is not there."""


@functools.cache
def real_time():
    """What keeps other programs off the core, if it is allowed; BENCH_FIFO=0: nothing does."""
    fifo = ['chrt', '-f', '20']
    if os.environ.get('BENCH_FIFO') == '0':
        return []
    try:
        subprocess.run([*fifo, 'true'], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return fifo


def on_core(command, core=CORE):
    return [*real_time(), 'taskset', '-c', str(core), *command]


def has_torch():
    if not os.path.exists(os.path.join(INSTALLED, 'torch', 'installed')):
        raise NotYet('no PyTorch in %s: run tools/peers torch' % INSTALLED)


def last_json(output, command):
    lines = [line[line.index('{"'):] for line in output.splitlines() if '{"' in line]
    if not lines:
        raise NotYet('%s printed no result: %s' % (command[-1], output.strip()[-200:]))
    return json.loads(lines[-1])


def run(command, environment=None):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, env={**os.environ, **(environment or {})}, check=False)
    return last_json(done.stdout, command)


# ---------------------------------------------------------------- sides of a pair

def flags_of(model, steps):
    names = ('layers', 'width', 'heads', 'context', 'batch')
    flags = [word for name, value in zip(names, MODELS[model])
             for word in ('--' + name, str(value))]
    return [*flags, '--steps', str(steps)]


def gpt(model, *options, steps=4):
    """Milliseconds of a step."""
    return run(on_core([os.path.join(BIN, 'gpt'), '--bench', '--threads', '1',
                        *flags_of(model, steps), *options]))['step_ms']


def torch_gpt(model, *options, steps=4):
    has_torch()
    return run(on_core([PYTHON, os.path.join(PEERS, 'torch_gpt.py'), *flags_of(model, steps),
                        *options]), ONE_THREAD)['step_ms']


def fashion(*options, steps=20):
    """Milliseconds of a picture."""
    return 1e3 / run(on_core([os.path.join(BIN, 'fashion'), '--threads', '1', '--model', 'resnet',
                              '--steps', str(steps), *options]))['samples_per_second']


def torch_fashion(*options, steps=20):
    has_torch()
    return 1e3 / run(on_core([PYTHON, os.path.join(PEERS, 'torch_fashion.py'), '--model', 'resnet',
                              '--steps', str(steps), *options]),
                     ONE_THREAD)['samples_per_second']


def ranks_of_gpt(model, *options, steps=8):
    """A step of a job of two ranks, each with a core and a batch of its own."""
    return run([*real_time(), os.path.join(BIN, 'tutti'), 'run', '-n', '2',
                os.path.join(BIN, 'gpt'), '--bench', '--threads', '1', *flags_of(model, steps),
                *options])['step_ms']


def alone_side_by_side(model, steps=8):
    """The mean step of two trainings that know nothing of each other."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise NotYet('one core only')
    command = [os.path.join(BIN, 'gpt'), '--bench', '--threads', '1', *flags_of(model, steps)]
    both = [subprocess.Popen(on_core(command, core), text=True, stdout=subprocess.PIPE)
            for core in cores]
    steps_ms = [last_json(one.communicate(timeout=600)[0], command)['step_ms'] for one in both]
    return statistics.mean(steps_ms)


class Turns:
    """A program that runs when it is asked: some steps a line; it says how long one took."""

    def __init__(self, command, environment=None):
        self.name = os.path.basename(command[-1])
        self.program = subprocess.Popen(
            on_core(command), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})})

    def ask(self, line):
        """What it answers, a line too."""
        try:
            self.program.stdin.write('%s\n' % line)
            self.program.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.program.stdout.readline()
        if not answer:
            raise NotYet('%s ended' % ' '.join(self.program.args[-8:]))
        return answer

    def __call__(self, steps):
        return float(self.ask(steps))

    def close(self):
        self.program.stdin.close()
        self.program.stdout.close()
        self.program.wait()


# ---------------------------------------------------------------- statistics

def interval(values):
    """Places of the sorted values between which the median lies in 95 of 100 cases."""
    n, ordered = len(values), sorted(values)
    below, chance = 0, 0.0
    while below < n // 2:
        chance += math.comb(n, below) / 2 ** n
        if 2 * chance > 0.05:
            break
        below += 1
    first = max(below - 1, 0)
    return ordered[first], ordered[n - 1 - first]


class Report:
    def __init__(self, rounds):
        self.rounds, self.rows = rounds, []
        print('# %d pairs each%s; load %.1f' % (
            rounds, '' if real_time() else ', without SCHED_FIFO', os.getloadavg()[0]))
        print('%-58s %8s %17s %9s' % ('measure', 'median', '95 %', 'goal'), flush=True)

    def row(self, name, what, figures, goal=None, more_is_better=True):
        """figures(rounds) gives the ratio of each pair, or raises NotYet."""
        wanted = '' if goal is None else '%s %g' % ('>=' if more_is_better else '<=', goal)
        try:
            values = figures(self.rounds)
        except (NotYet, OSError, subprocess.SubprocessError, RuntimeError) as error:
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


def pairs(ours, theirs, rounds):
    """Theirs over ours, in turns."""
    ratios = []
    for i in range(rounds):
        if i % 2 == 0:
            mine, other = ours(), theirs()
        else:
            other, mine = theirs(), ours()
        ratios.append(other / mine)
    return ratios


# ---------------------------------------------------------------- rows

def flops_of(model):
    """Operations of the products of a step."""
    layers, width, _, context, batch = MODELS[model]
    linear = 3 * (layers * 12 * width ** 2 + VOCAB * width)
    attention = 7 * layers * width * (context + 1) / 2
    return 2 * batch * context * (linear + attention)


def share_of_peak(dtype):
    def share(rounds):
        shares = []
        for _ in range(rounds):
            peak = run(on_core([os.path.join(BENCH, 'fma_peak')]))[dtype + '_gflops']
            if peak == 0:
                raise NotYet('this CPU has no vdpbf16ps')
            step_ms = gpt('6x384', '--dtype', dtype, steps=4)
            shares.append(flops_of('6x384') / step_ms * 1e-6 / peak)
        return shares
    return share


def over_torch(model, dtype='f32'):
    theirs = ['--bf16'] if dtype == 'bf16' else []
    return lambda rounds: pairs(lambda: gpt(model, '--dtype', dtype),
                                lambda: torch_gpt(model, *theirs), rounds)


def fashion_over_torch(dtype='f32'):
    theirs = ['--bf16'] if dtype == 'bf16' else []
    return lambda rounds: pairs(lambda: fashion('--dtype', dtype),
                                lambda: torch_fashion(*theirs), rounds)


def over_side_by_side(model, *options):
    """Two ranks over one, over what two trainings reach that know nothing of each other."""
    return lambda rounds: pairs(lambda: ranks_of_gpt(model, *options),
                                lambda: alone_side_by_side(model), rounds)


def layer(*arguments):
    """Turns of about 0.1 s."""
    words = [str(word) for word in arguments]

    def figures(rounds):
        has_torch()
        ours = Turns([os.path.join(BENCH, 'layer_speed'), *words])
        theirs = Turns([PYTHON, os.path.join(PEERS, 'torch_layer.py'), *words], ONE_THREAD)
        try:
            theirs(3)
            steps = max(3, int(100 / ours(3)))
            return pairs(lambda: ours(steps), lambda: theirs(steps), rounds)
        finally:
            ours.close()
            theirs.close()
    return figures


@functools.cache
def best_split():
    """Of the batch of lesson 17: the one whose step is the shortest."""
    rows = device_timeline()
    return min(rows[1:], key=lambda row: row['step_ms'])['split']


def device_timeline(*splits):
    """A row for the whole batch, and one for each split."""
    program = os.path.join(BENCH, 'device_timeline')
    done = subprocess.run([*real_time(), program, '--json', *map(str, splits)], text=True,
                          capture_output=True, timeout=600, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@functools.cache
def lesson_round(_number):
    """The whole batch and its best split, in turns: both rows look at the same rounds."""
    return device_timeline(best_split())


def two_devices(rounds):
    """The whole batch over its best split."""
    if len(os.sched_getaffinity(0)) < 2:
        raise NotYet('one core only')
    print('# best split: %d' % best_split(), flush=True)
    return [lesson_round(number)[1]['gain'] for number in range(rounds)]


def timeline_share(rounds):
    """How near the timeline comes to the step, for the batch and its best split: the worse one."""
    return [min(min(row['explained'], 1 / row['explained'])
                for row in lesson_round(number)) for number in range(rounds)]


def instructions(goal):
    """The goal over what a step takes: of runs with some steps more, less those with fewer."""
    def count(steps):
        command = ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null',
                   os.path.join(BIN, 'gpt'), '--bench', '--threads', '1', '--layers', '4',
                   '--width', '32', '--heads', '4', '--context', '32', '--batch', '1', '--steps',
                   str(steps)]
        done = subprocess.run(command, text=True, capture_output=True, timeout=600, check=True)
        return int(re.search(r'Collected : (\d+)', done.stderr).group(1))

    def figures(_rounds):
        if shutil.which('valgrind') is None:
            raise NotYet('valgrind is not installed')
        step = (count(12) - count(4)) / 8
        print('# instructions of a step: %.0f' % step, flush=True)
        return [goal / step]
    return figures


CONVOLUTIONS = {
    's2': [('3x3 s2', 64, 128, 56, 3, 2), ('3x3 s2', 128, 256, 28, 3, 2),
           ('3x3 s2', 256, 512, 14, 3, 2)],
    '1x1': [('1x1', 64, 256, 56, 1, 1), ('1x1', 256, 64, 56, 1, 1), ('1x1', 128, 512, 28, 1, 1),
            ('1x1', 512, 128, 28, 1, 1), ('1x1', 256, 512, 14, 1, 1), ('1x1', 512, 512, 7, 1, 1)],
    '1x1_s2': [('1x1 s2', 64, 128, 56, 1, 2), ('1x1 s2', 128, 256, 28, 1, 2),
               ('1x1 s2', 256, 512, 14, 1, 2)],
}
POOLS = [(64, 56), (256, 14), (512, 7)]


def rows():
    """name, what, figures, goal."""
    yield 'peak', 'share of the FMA peak, gpt 6x384, f32', share_of_peak('f32'), 0.80
    yield 'peak_bf16', 'share of the vdpbf16ps peak, gpt 6x384, bf16', share_of_peak('bf16'), 0.71
    for name, model, goal in (('gpt', '6x384', 2.1), ('small', '4x128', 2.0),
                              ('wide', '4x768', 2.1)):
        yield name, 'gpt %s, f32, over torch' % model, over_torch(model), goal
    yield 'bf16', 'gpt 6x384, bf16, over torch', over_torch('6x384', 'bf16'), 1.4
    for name, model in (('ranks', '6x384'), ('ranks_small', '4x128')):
        yield (name, 'gpt %s, two ranks over two trainings side by side' % model,
               over_side_by_side(model), 0.98)
    yield ('lstm', 'LSTM 256 to 512, 2 layers, B 32, T 64, over torch',
           layer('lstm', 256, 512, 2, 32, 64), 1.25)
    yield 'resnet', 'resnet of fashion, f32, over torch', fashion_over_torch(), 1.5
    yield 'resnet_bf16', 'resnet of fashion, bf16, over torch', fashion_over_torch('bf16'), 1.5
    for name, shapes in CONVOLUTIONS.items():
        for kind, inputs, outputs, size, kernel, stride in shapes:
            yield (name, 'conv %s, %d to %d, %d x %d, B 16, over torch' % (
                kind, inputs, outputs, size, size),
                   layer('conv', 16, inputs, outputs, size, kernel, stride), 1.1)
    for channels, size in POOLS:
        yield ('pool', 'global average pooling, %d of %d x %d, B 16, over torch' % (
            channels, size, size), layer('pool', 16, channels, size), 1.1)
    yield ('devices', 'lesson 17 on two devices, batch over its best split', two_devices, 1.45)
    yield ('timeline', 'its timeline of launches and copies and its step, less over more',
           timeline_share, 0.95)
    yield ('instructions', '7.75 M instructions over those of a 4x32 step of batch 1',
           instructions(7.75e6), 1.0)


NAMES = list(dict.fromkeys(row[0] for row in rows()))


def main(rounds, names):
    report = Report(rounds)
    for name, what, figures, goal in rows():
        if not names or name in names:
            report.row(name, what, figures, goal)
    os.makedirs(BENCH, exist_ok=True)
    with open(os.path.join(BENCH, 'compute.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
