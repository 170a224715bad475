"""What `bench/run looking` does: what a profile and metrics cost a step of a GPT on one thread.
Steps with and without a profile take turns in one process; of metrics, 100 numbers a step, the
time that they cost, that of the thread that writes them too, is set over the step's. Both in the
time on a processor, so that other programs take but caches from them. Statistics as of
compute_measures.py.
"""
import json
import os
import tempfile

from compute_measures import BENCH, MODELS, Report, Turns

ROUNDS = 20
TURN_MS = 600


class Looking(Turns):
    """Milliseconds of a step."""

    def __init__(self, folder, model):
        super().__init__([os.path.join(BENCH, 'looking_speed'), folder,
                          *map(str, MODELS[model])])

    def __call__(self, kind, steps):
        return float(self.ask('%s %d' % (kind, steps)))


def with_program(model, figures):
    """figures(looking, steps of a turn, rounds)"""
    def measured(rounds):
        with tempfile.TemporaryDirectory(dir=BENCH) as folder:
            looking = Looking(folder, model)
            try:
                steps = max(1, int(TURN_MS / looking('plain', 3)))
                return figures(looking, steps, rounds)
            finally:
                looking.close()
    return measured


def profiled(looking, steps, rounds):
    ratios = []
    for i in range(rounds):
        kinds = ('plain', 'profile') if i % 2 == 0 else ('profile', 'plain')
        took = {kind: looking(kind, steps) for kind in kinds}
        ratios.append(took['profile'] / took['plain'])
    return ratios


def told(looking, steps, rounds):
    return [1 + looking('metrics', 50) / looking('plain', steps) for _ in range(rounds)]


NAMES = ['profile', 'metrics']


def main(rounds, names):
    report = Report(rounds)
    for model in ('4x128', '6x384'):
        for name, what, figures, goal in (
                ('profile', 'a step of %s with a profile', profiled, 1.02),
                ('metrics', 'a step of %s with 100 numbers told', told, 1.002)):
            if not names or name in names:
                report.row(name, what % model, with_program(model, figures), goal, False)
    with open(os.path.join(BENCH, 'looking.json'), 'w', encoding='utf-8') as file:
        json.dump(report.rows, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
