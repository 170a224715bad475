"""What `bench/run ops` does: operations forward and backward on one thread beside the newest
PyTorch (tools/peers). A row for each operation: the geometric mean over twenty shapes
(op_shapes.py) of PyTorch's time over ours.

Both sides run on one core, in turns of about 6 ms, whose turn comes first changing from pair to
pair, as in compute_measures.py; each gives the median of its steps, in the processor's time, so
that other programs on the core take but caches from them. What both compute is compared
once: weighted sums of results and gradients agree to 0.3 %. Named operations have a line for
each shape, too.
"""
import contextlib
import json
import math
import os
import statistics

import op_shapes
from compute_measures import (BENCH, ONE_THREAD, PEERS, PYTHON, NotYet, Report, Turns, has_torch,
                              pairs)

ROUNDS = 5
GOAL, GOAL_OF_ALL = 1.0, 1.3
TURN_MS = 6
STEPS_MAX = 200
RANDOM = ('multinomial',)  # draws are others than PyTorch's
NAMES = list(op_shapes.SHAPES)


def geometric_mean(values):
    return math.exp(statistics.mean(math.log(value) for value in values))


class Side(Turns):
    def case(self, words):
        return json.loads(self.ask('case ' + words))


class Sides:
    def __init__(self):
        has_torch()
        self.ours = Side([os.path.join(BENCH, 'op_speed')])
        self.theirs = Side([PYTHON, os.path.join(PEERS, 'torch_ops.py')], ONE_THREAD)

    def close(self):
        for side in (self.ours, self.theirs):
            with contextlib.suppress(BrokenPipeError):
                side.close()

    def ratios(self, name, numbers, rounds):
        words = ' '.join(map(str, (name, *numbers)))
        compare(words, self.ours.case(words), self.theirs.case(words))
        steps = [max(3, min(STEPS_MAX, int(TURN_MS / side(3))))
                 for side in (self.ours, self.theirs)]
        return pairs(lambda: self.ours(steps[0]), lambda: self.theirs(steps[1]), rounds)


def compare(words, ours, theirs):
    """That both have done the same."""
    if ours['count'] != theirs['count']:
        raise NotYet('%s: %d elements, not %d' % (words, ours['count'], theirs['count']))
    for what in ('result', 'gradients', 'second'):
        (mine, size), (other, _) = ours[what], theirs[what]
        if words.split()[0] not in RANDOM and abs(mine - other) > 3e-3 * size + 1e-9:
            raise NotYet('%s: %s %g, not %g' % (words, what, mine, other))


def operation(sides, name, details):
    """The mean over all shapes in each round."""
    def figures(rounds):
        table = {}
        for numbers in op_shapes.SHAPES[name]:
            table[numbers] = sides.ratios(name, numbers, rounds)
        details[name] = {' '.join(map(str, numbers)): statistics.median(values)
                         for numbers, values in table.items()}
        return [geometric_mean(row) for row in zip(*table.values())]
    return figures


def print_shapes(shapes):
    for words, ratio in sorted(shapes.items(), key=lambda item: item[1]):
        print('#   %-40s %8.3f' % (words, ratio), flush=True)


def main(rounds, names):
    report, details = Report(rounds), {}
    try:
        sides = Sides()
    except NotYet as why:
        print('not yet: %s' % why)
        return 1
    for name in names or NAMES:
        report.row(name, name + ', 20 shapes, over torch', operation(sides, name, details), GOAL)
        if names and name in details:
            print_shapes(details[name])
        if 'not_yet' in report.rows[-1]:  # one of them may have ended
            sides.close()
            sides = Sides()
    sides.close()
    medians = [row['median'] for row in report.rows if 'median' in row]
    if medians and not names:
        report.row('all', '%d operations, geometric mean' % len(medians),
                   lambda _: [geometric_mean(medians)], GOAL_OF_ALL)
    os.makedirs(BENCH, exist_ok=True)
    with open(os.path.join(BENCH, 'ops.json'), 'w', encoding='utf-8') as file:
        json.dump({'rows': report.rows, 'shapes': details}, file, indent=1)
    return 0 if all(row.get('met') for row in report.rows) else 1
