"""What `bench/run sharded` does: memory and steps of sharded training beside DDP, PyTorch and what
is possible. A row for each goal.

Memory is what devices have handed out (bench/sharded_memory.c), against the formula of
docs/guide/sharded.md; it is the same in each round but for how far buckets overlap. Of steps two
programs take turns, and the median of the pairs' ratios stands with the interval that holds it in
95 of 100 cases (compute_measures.py). The slow wire is that of ddp_measures.py, for root only.
"""
import json
import os
import re
import subprocess
import tempfile

import ddp_measures
import offload_measures
from compute_measures import (BENCH, BIN, MODELS, ONE_THREAD, PEERS, PYTHON, VOCAB, NotYet, Report,
                              flags_of, has_torch, last_json, over_side_by_side, pairs,
                              ranks_of_gpt, real_time)

ROUNDS = 20
SHARED = '6x384'
BUCKET_KIB = 1024  # a bucket is then the largest parameter
UNITS_AT_ONCE = 2  # one, and one more that is gathered ahead
STATE = 2          # AdamW's bytes for each byte of parameters
STAGE = {stage: ['--stage', str(stage), *(['--unit', 'block'] if stage == 3 else [])]
         for stage in range(4)}


# ---------------------------------------------------------------- memory

def memory(model, stage, ranks, **environment):
    layers, width, heads, _, _ = MODELS[model]
    command = [os.path.join(BIN, 'tutti'), 'run', '-n', str(ranks),
               os.path.join(BENCH, 'sharded_memory'),
               *map(str, (stage, layers, width, heads, BUCKET_KIB))]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, env={**os.environ, **environment}, check=False)
    return last_json(done.stdout, command)


def formula(stage, ranks, found):
    """Of docs/guide/sharded.md: bytes that a rank takes at most, with one shard."""
    whole, buckets = found['parameter_bytes'], 3 * found['bucket_bytes']
    made = found['largest_bytes']
    units = found['root_bytes'] + UNITS_AT_ONCE * found['unit_bytes']
    return made + {0: whole + whole + STATE * whole,
                   1: whole + whole + STATE * whole / ranks,
                   2: whole + whole / ranks + buckets + STATE * whole / ranks,
                   3: whole / ranks + whole / ranks + buckets + units + STATE * whole / ranks
                   }[stage]


def over_formula(model, stage):
    """Of 1, 2 and 4 ranks the one that is furthest above."""
    def worst():
        found = [memory(model, stage, ranks, TUTTI_SHARED_PARAMETERS='0') for ranks in (1, 2, 4)]
        return max(one['peak_bytes'] / formula(stage, one['ranks'], one) for one in found)
    return lambda rounds: [worst() for _ in range(min(rounds, 3))]


def on_one_host(rounds):
    """Stage 3 on 4 ranks, all of them, over parameters, gradients and moments once and the units
    that each may have."""
    ratios = []
    for _ in range(min(rounds, 3)):
        found = memory(SHARED, 3, 4)
        once = (2 + STATE) * found['parameter_bytes']
        ratios.append(found['all_peaks_bytes'] /
                      (once + 4 * UNITS_AT_ONCE * found['unit_bytes']))
    return ratios


# ---------------------------------------------------------------- steps

def over_ddp(stage):
    return lambda rounds: pairs(lambda: ranks_of_gpt(SHARED),
                                lambda: ranks_of_gpt(SHARED, *STAGE[stage]), rounds)


def cnn_over_side_by_side(rounds):
    ranks = [[os.path.join(BIN, 'tutti'), 'run', '-n', '2']]
    return pairs(lambda: ddp_measures.fashion_steps(ranks, *STAGE[1]),
                 ddp_measures.cores_of_fashion(0, 1), rounds)


def torch_ranks():
    has_torch()
    return ddp_measures.run([*real_time(), PYTHON, os.path.join(PEERS, 'torch_gpt.py'), '--ranks',
                             '2', '--shard', *flags_of(SHARED, 8)], ONE_THREAD)['step_ms']


def over_torch(rounds):
    return pairs(lambda: ranks_of_gpt(SHARED, *STAGE[3]), torch_ranks, rounds)


# ---------------------------------------------------------------- a slow wire

WIRE = ['--bucket-mb', '4']
WIRE_BYTES_PER_MS = 1e9 / 8 * 1448 / 1514 / 1e3  # what tcp carries of 1 Gbit/s


def unit_bytes(model):
    """Of a block, and of all that is in none."""
    _, width, _, context, _ = MODELS[model]
    return (4 * (12 * width ** 2 + 13 * width),
            4 * (2 * VOCAB * width + context * width + 2 * width))


def simulated_ms(layers, block, root, compute_ms):
    """A step at stage 3 on two ranks as `tutti explain sharded` plans and simulates it: units of
    these bytes, buckets as in the run, computing dealt out by bytes."""
    command = [os.path.join(BIN, 'tutti'), 'explain', 'sharded', '--ranks', '2', '--json',
               '--units', ','.join(map(str, [root] + layers * [block])),
               '--bucket-bytes', str(int(WIRE[1]) << 20), '--compute', str(compute_ms / 1e3),
               '--bandwidth', str(WIRE_BYTES_PER_MS * 1e3)]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True, timeout=60)
    return json.loads(done.stdout)['time'] * 1e3


def on_wire(hosts, key, stage):
    return ddp_measures.gpt_over_wire(hosts, key, *WIRE, *STAGE[stage], batch=4)


def wire_over_ddp(rounds):
    with ddp_measures.slow_wire() as (hosts, key):
        return pairs(lambda: on_wire(hosts, key, 0), lambda: on_wire(hosts, key, 3), rounds)


def wire_over_plan(rounds):
    """The same step's plan (tutti_sharded_plan()), simulated with what computing takes in this run:
    a step where nothing is gathered, at the same priority; and the wire's rate."""
    layers = MODELS[SHARED][0]

    def plan():
        return simulated_ms(layers, *unit_bytes(SHARED), ddp_measures.gpt(*STAGE[3]))
    with ddp_measures.slow_wire() as (hosts, key):
        return pairs(plan, lambda: on_wire(hosts, key, 3), rounds)


# ---------------------------------------------------------------- disks

def offloaded_step(rounds):
    return [row['ours_s'] / row['limit_s'] for row in offload_measures.rows(rounds)]


DEEP = {'layers': 72, 'width': 256, 'heads': 4, 'context': 32, 'batch': 1, 'steps': 3}


def digest_of(folder, *options, **environment):
    text = os.path.join(folder, 'text')
    if not os.path.exists(text):
        with open(text, 'wb') as file:
            file.write(bytes(i * i % 251 for i in range(1 << 16)))
    flags = [word for name, value in DEEP.items() for word in ('--' + name, str(value))]
    done = subprocess.run([os.path.join(BIN, 'tutti'), 'run', '-n', '4', os.path.join(BIN, 'gpt'),
                           '--data', text, '--threads', '1', '--recompute', '--digest', *flags,
                           *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, env={**os.environ, **environment}, check=False)
    found = re.search(r'^(?:\[rank 0\] )?digest (\S+)', done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        told = [line for line in done.stdout.splitlines() if 'gpt: ' in line]
        is_unknown = told and '--offload-parameters' in told[0]
        raise NotYet(('not built: ' if is_unknown else '') + (told or ['no digest'])[0])
    return found.group(1)


def within_budget(_rounds):
    """A model of 4 times what each of 4 ranks may have, parameters and state on a disk: 1 where it
    ends with the bits of a run without a budget."""
    width, vocab = DEEP['width'], VOCAB
    size = 4 * (DEEP['layers'] * (12 * width ** 2 + 13 * width) + 2 * vocab * width +
                DEEP['context'] * width + 2 * width)
    with tempfile.TemporaryDirectory(prefix='budget-', dir=BENCH) as folder:
        free = digest_of(folder)
        held = digest_of(folder, *STAGE[3], '--offload', folder, '--offload-parameters', folder,
                         TUTTI_MEMORY_LIMIT=str(size // 4))
    return [1.0 if held == free else 0.0]


# ---------------------------------------------------------------- rows

def rows():
    """name, what, figures, goal, whether more is better."""
    for model in ('6x384', '4x768'):
        for stage in range(4):
            yield ('memory', 'peak over formula, %s, stage %d, of 1, 2, 4 ranks' % (model, stage),
                   over_formula(model, stage), 1.03, False)
    yield ('host', 'stage 3, 4 ranks of a host together, over all once', on_one_host, 1.05, False)
    yield 'step3', 'step of stage 3 over DDP, 2 ranks, 6x384', over_ddp(3), 1.02, False
    for stage in (1, 2):
        yield ('step%d' % stage, 'step of stage %d over DDP, 2 ranks, 6x384' % stage,
               over_ddp(stage), 0.985, False)
    yield ('alone', '6x384, stage 1, two ranks over two trainings side by side',
           over_side_by_side(SHARED, *STAGE[1]), 1.0, True)
    yield ('alone_cnn', 'fashion cnn, stage 1, two ranks over two trainings',
           cnn_over_side_by_side, 0.99, True)
    yield 'torch', 'tokens/s, stage 3, over fully_shard, 2 ranks, 6x384', over_torch, 3, True
    yield 'wire', 'step at 1 Gbit/s, stage 3 over DDP, B 4', wire_over_ddp, 1.5, False
    yield 'plan', '  the same over its simulated plan', wire_over_plan, 1.1, False
    yield ('offload', 'step with %d MiB of state on a disk, over the limit' % offload_measures.MIB,
           offloaded_step, offload_measures.GOAL, False)
    yield ('budget', 'a model of 4 times the budget has its digest', within_budget, 1, True)


NAMES = list(dict.fromkeys(row[0] for row in rows()))


def main(rounds, names):
    report = Report(rounds)
    for name, what, figures, goal, more_is_better in rows():
        if not names or name in names:
            report.row(name, what, figures, goal, more_is_better)
    with open(os.path.join(BENCH, 'sharded.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
