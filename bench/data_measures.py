"""What `bench/run data` does: a loader of pictures beside torchvision's. 10,000 JPEG files of 256 x
256, made by bench/data_speed, are read, cut to 224 x 224 at random, flipped and normalised by two
workers; DATA_PICTURES changes how many. Statistics as of compute_measures.py.
"""
import json
import os
import subprocess

from compute_measures import BENCH, PEERS, PYTHON, Report, has_torch, pairs, run

ROUNDS = 5
PICTURES = int(os.environ.get('DATA_PICTURES', 10000))
WORKERS = '2'


def folder():
    path = os.path.join(BENCH, 'pictures-%d' % PICTURES)
    if not os.path.exists(path + '.made'):
        subprocess.run([os.path.join(BENCH, 'data_speed'), 'make', path, str(PICTURES)], check=True)
        with open(path + '.made', 'w', encoding='utf-8'):
            pass
    return path


def ours():
    """Seconds of a picture."""
    command = [os.path.join(BENCH, 'data_speed'), 'load', folder(), WORKERS]
    return 1 / run(command)['pictures_per_second']


def theirs():
    has_torch()
    command = [PYTHON, os.path.join(PEERS, 'torch_data.py'), folder(), WORKERS]
    return 1 / run(command)['pictures_per_second']


def over_torchvision(rounds):
    print('# %d pictures, ours alone: %.0f a second' % (PICTURES, 1 / ours()), flush=True)
    return pairs(ours, theirs, rounds)


NAMES = ['pictures']


def main(rounds, _names):
    report = Report(rounds)
    report.row('pictures', '%d JPEGs, crop and flip, 2 workers, over torchvision' % PICTURES,
               over_torchvision, 1.5)
    with open(os.path.join(BENCH, 'data.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
