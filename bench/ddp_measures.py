"""What `bench/run ddp` does: a training step under DDP beside the same step without communication,
in other ways of averaging, over a slow wire, and in PyTorch. A row for each goal.

In a round both sides of a ratio take turns (a b a b a b), every rank with one thread on a core of
its own, and the best of each counts: a machine that others use only ever makes a run slower. The
median of the rounds' ratios is printed. The slow wire is one of 1 Gbit/s between two network
namespaces (tc tbf), which only root can make.
"""
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'multi'))
import netns  # noqa: E402
from compute_measures import NotYet  # noqa: E402

BIN = os.path.join(ROOT, 'build', 'bin')
TUTTI, GPT = os.path.join(BIN, 'tutti'), os.path.join(BIN, 'gpt')
FASHION = os.path.join(BIN, 'fashion')
PEERS = os.path.join(ROOT, 'bench', 'peers')
PYTHON = os.path.join(os.environ.get('PEERS_FOLDER', os.path.join(ROOT, 'build', 'peers')), 'torch',
                      'bin', 'python')  # of tools/peers
TORCH = [PYTHON, os.path.join(PEERS, 'torch_gpt.py')]
ONE_THREAD = {'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}
MODEL = ['--layers', '6', '--width', '384', '--heads', '6', '--context', '256']
RATE = '1gbit'


def last_json(output):
    lines = [line[line.index('{"'):] for line in output.splitlines() if '{"' in line]
    if not lines:
        raise NotYet(output.strip().splitlines()[-1] if output.strip() else 'no output')
    return json.loads(lines[-1])


def run(command, environment=None):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, env={**os.environ, **(environment or {})}, check=False)
    return last_json(done.stdout)


def in_turns(first, second, best, turns=3):
    """The ratio of the best of each."""
    pairs = [(first(), second()) for _ in range(turns)]
    return best(pair[0] for pair in pairs) / best(pair[1] for pair in pairs)


def over_time(first, second, turns=3):
    return in_turns(first, second, min, turns)


def over_rate(first, second):
    return in_turns(first, second, max)


def gpt(*options, ranks=2, batch=4, steps=8, environment=None):
    launcher = [TUTTI, 'run', '-n', str(ranks)] if ranks > 1 else ['taskset', '-c', '0']
    return run([*launcher, GPT, '--bench', '--threads', '1', '--steps', str(steps), *MODEL,
                '--batch', str(batch), *options], environment)['step_ms']


def fashion(*options, ranks=1, steps=120):
    """Pictures a second, each rank with one thread and 64 of them a step."""
    launcher = [TUTTI, 'run', '-n', str(ranks)] if ranks > 1 else ['taskset', '-c', '0']
    return run([*launcher, FASHION, '--threads', '1', '--steps', str(steps),
                *options])['samples_per_second']


def fashion_steps(commands, *options, warm=20, steps=200):
    """Milliseconds of a step that nobody disturbed, the first decile; of trainings that began
    together the mean. A step of two ranks is slow as soon as a neighbour slows down one core: where
    each core is slowed down in a third of the steps, so is the middle one of the job's steps."""
    quick = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [os.path.join(folder, str(i)) for i in range(len(commands))]
        ranks = [subprocess.Popen([*command, FASHION, '--threads', '1', '--steps', str(steps),
                                   '--log', log, *options], stdout=subprocess.DEVNULL)
                 for command, log in zip(commands, logs)]
        try:
            if any(rank.wait(timeout=100) != 0 for rank in ranks):
                raise NotYet('fashion failed')
        finally:
            for rank in ranks:
                rank.terminate()  # those that ended do not hear it
                rank.wait()
        for log in logs:
            with open(log, encoding='utf-8') as file:
                ends = [row['seconds'] for row in map(json.loads, file) if 'loss' in row]
            took = [b - a for a, b in zip(ends[warm:], ends[warm + 1:])]
            quick.append(statistics.quantiles(took, n=10)[0])
    return 1e3 * statistics.mean(quick)


def cores_of_fashion(*cores):
    """Trainings of one rank each, a core for each."""
    return lambda: fashion_steps([['taskset', '-c', str(core)] for core in cores])


def ranks_of_fashion():
    return fashion_steps([[TUTTI, 'run', '-n', '2']])


@functools.cache
def training():
    """All of it, on two ranks: what a user waits for and gets."""
    return run([TUTTI, 'run', '-n', '2', FASHION, '--threads', '1', '--epochs', '8'])


def torch_fashion(*options, steps=120):
    return run(['taskset', '-c', '0', PYTHON, os.path.join(PEERS, 'torch_fashion.py'), '--steps',
                str(steps), *options], ONE_THREAD)['samples_per_second']


def over_wire(hosts, commands):
    """A rank on each host, on a core of its own; rank 0 prints."""
    ranks = [hosts.popen(node, ['taskset', '-c', str(node), *command], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         env={**os.environ, **ONE_THREAD})
             for node, command in enumerate(commands)]
    outputs = []
    for rank in reversed(ranks):  # one that fails says so last, and the others would wait for it
        outputs.append(rank.communicate(timeout=100)[0])
        if rank.returncode != 0:
            for other in ranks:
                other.kill()
            raise NotYet(outputs[-1].strip().splitlines()[-1])
    return last_json(''.join(outputs))['step_ms']


def gpt_over_wire(hosts, key, *options, batch, steps=6):
    program = [GPT, '--bench', '--threads', '1', '--steps', str(steps), *MODEL, '--batch',
               str(batch), *options]
    return over_wire(hosts, [
        ['env', 'TUTTI_PROTECT=auth', TUTTI, 'run', '--nnodes', '2', '--node-rank', str(node), '-n',
         '1', '--rdzv-endpoint', hosts.address(0) + ':29500', '--key-file', key, *program]
        for node in range(2)])


def torch_over_wire(hosts, batch, steps=6):
    return over_wire(hosts, [
        ['env', 'GLOO_SOCKET_IFNAME=eth0', *TORCH, '--ranks', '2', '--rank', str(node), '--address',
         hosts.address(0), '--port', '29600', *MODEL, '--batch', str(batch), '--steps', str(steps)]
        for node in range(2)])


class Report:
    def __init__(self, rounds):
        self.rounds, self.rows = rounds, []
        print('%-66s %9s %9s' % ('measure', 'figure', 'goal'), flush=True)

    def tell(self, what, figure):
        """A figure that has no goal."""
        try:
            values = [figure() for _ in range(self.rounds)]
        except (NotYet, OSError, subprocess.SubprocessError, RuntimeError) as error:
            print('%-66s %9s  not yet: %s' % (what, '-', error), flush=True)
            return
        print('%-66s %9.3f  (%s)' % (what, statistics.median(values),
                                     ' '.join('%.3f' % value for value in values)), flush=True)

    def row(self, what, figure, goal, more_is_better=True):
        sign = '>=' if more_is_better else '<='
        try:
            values = [figure() for _ in range(self.rounds)]
        except (NotYet, OSError, subprocess.SubprocessError, RuntimeError) as error:
            print('%-66s %9s %2s %6g  not yet: %s' % (what, '-', sign, goal, error), flush=True)
            self.rows.append({'what': what, 'goal': goal, 'not_yet': str(error)})
            return
        value = statistics.median(values)
        is_met = value >= goal if more_is_better else value <= goal
        print('%-66s %9.3f %2s %6g  %s  (%s)' % (
            what, value, sign, goal, 'ok' if is_met else 'short',
            ' '.join('%.3f' % value for value in values)), flush=True)
        self.rows.append({'what': what, 'values': values, 'goal': goal, 'met': is_met})


@contextlib.contextmanager
def slow_wire():
    """Two hosts of RATE between them, and the file of a key for their jobs."""
    why_not = netns.why_not()
    if why_not:
        raise NotYet('no slow wire: ' + why_not)
    with netns.Hosts(2, rate=RATE) as hosts, tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, 'key')
        with open(key, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(os.urandom(32).hex() + '\n')
        yield hosts, key


def measure_wire(report):
    try:
        with slow_wire() as (hosts, key):
            measure_on_wire(report, hosts, key)
    except NotYet as why:
        print('# %s' % why)


def measure_on_wire(report, hosts, key):
    report.row('step at 1 Gbit/s, buckets of 4 MiB, over one bucket at the end, B 2',
               lambda: over_time(
                   lambda: gpt_over_wire(hosts, key, '--bucket-mb', '4', batch=2),
                   lambda: gpt_over_wire(hosts, key, '--bucket-mb', '1000', '--no-overlap',
                                         batch=2)),
               0.75, False)
    report.row('tokens/s at 1 Gbit/s over torch DDP with Gloo, B 4',
               lambda: over_time(
                   lambda: torch_over_wire(hosts, 4),
                   lambda: gpt_over_wire(hosts, key, '--bucket-mb', '4', batch=4)), 1.2)


def main(rounds):
    report = Report(rounds)
    report.row('fashion cnn, images/s, one thread, over torch',
               lambda: over_rate(fashion, torch_fashion), 1.2)
    report.row('fashion resnet, images/s, one thread, over torch',
               lambda: over_rate(lambda: fashion('--model', 'resnet', steps=30),
                                 lambda: torch_fashion('--model', 'resnet', steps=30)), 1)
    report.row('fashion cnn, 8 epochs on 2 ranks, test accuracy',
               lambda: training()['test_accuracy'], 0.91)
    report.row('fashion cnn, 8 epochs on 2 ranks, seconds', lambda: training()['seconds'], 240,
               False)
    report.row('two ranks over one, fashion cnn',
               lambda: 2 * over_time(cores_of_fashion(0), ranks_of_fashion, 7), 1.9)
    report.tell('  two trainings that know nothing of each other, over one',
                lambda: 2 * over_time(cores_of_fashion(0), cores_of_fashion(0, 1), 7))
    report.row('two ranks over one, gpt 6 x 384',
               lambda: 2 * over_time(lambda: gpt(ranks=1), gpt), 1.9)
    report.row('DDP step over the same without communication, 2 ranks, shm',
               lambda: over_time(gpt, lambda: gpt('--hook', 'noop')), 1.02, False)
    for ranks in (2, 4):
        report.row('exact over non-exact, %d ranks' % ranks,
                   lambda ranks=ranks: over_time(
                       lambda: gpt(ranks=ranks, batch=2),
                       lambda: gpt(ranks=ranks, batch=2, environment={'TUTTI_EXACT': '0'})),
                   1.03, False)
    report.row('bf16 over f32, gpt 6 x 384, one rank',
               lambda: over_time(lambda: gpt(ranks=1),
                                 lambda: gpt('--dtype', 'bf16', ranks=1)), 1.7)
    measure_wire(report)
    os.makedirs(os.path.join(ROOT, 'build', 'bench'), exist_ok=True)
    with open(os.path.join(ROOT, 'build', 'bench', 'ddp.json'), 'w') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
