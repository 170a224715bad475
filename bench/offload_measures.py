"""What `bench/run offload` does: steps of AdamW with its state on a disk beside a program that
reads and writes the same bytes and computes nothing (bench/offload_speed.c), in turns, on the disk
on which build/ is. OFFLOAD_MIB is another size of the state, OFFLOAD_FOLDER another disk.
"""
import json
import os
import statistics
import subprocess
import tempfile

from checkpoint_measures import urgent
from compute_measures import BENCH, NotYet, interval

ROUNDS = 9
GOAL = 1.2
MIB = int(os.environ.get('OFFLOAD_MIB', '256'))
NAMES = ['step']


def rows(rounds):
    with tempfile.TemporaryDirectory(prefix='offload-',
                                     dir=os.environ.get('OFFLOAD_FOLDER', BENCH)) as folder:
        done = subprocess.run([*urgent(), os.path.join(BENCH, 'offload_speed'), folder, str(MIB),
                               str(rounds)], text=True, capture_output=True, timeout=1800,
                              check=False)
    if done.returncode != 0:
        raise NotYet((done.stderr.strip().splitlines() or ['no result'])[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(rounds, _):
    found = rows(rounds)
    ratios = [row['ours_s'] / row['limit_s'] for row in found]
    low, high = interval(ratios)
    median = statistics.median(ratios)
    rate = statistics.median(2 * row['bytes'] / row['limit_s'] for row in found) / 2**20
    print('a step with %d MiB of state on a disk, over the limit program: '
          '%.3f (%.3f-%.3f), goal %.1f: %s' % (MIB, median, low, high, GOAL,
                                               'met' if low <= GOAL else 'MISSED'))
    print('the limit program moves %.0f MiB/s, %s the page cache'
          % (rate, 'past' if found[-1]['direct'] else 'through'))
    with open(os.path.join(BENCH, 'offload.json'), 'w') as file:
        json.dump(found, file, indent=1)
    return 0 if low <= GOAL else 1
