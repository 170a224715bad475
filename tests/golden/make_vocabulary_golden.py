#!/usr/bin/env python3
"""More golden values from PyTorch, as make_golden.py's: operations of op_vocabulary.h and
op_fractional.h.

    ops_vocabulary     golden_op_test.c
"""
import itertools

import torch
import torch.nn.functional as F

from make_golden import Cases, distinct, grid, normal, positive


def loss_of(x, table, bias, target, **args):
    """Classes last, as they are here: table [d..., V, in]."""
    flat = table.reshape(-1, table.shape[-1])
    logits = F.linear(x, flat, None if bias is None else bias.reshape(-1))
    logits = logits.reshape(-1, table.shape[-2])
    has_classes = not target.is_floating_point()
    target_rows = target.reshape(-1) if has_classes else target.reshape(logits.shape)
    loss = F.cross_entropy(logits, target_rows, **args)
    return loss.reshape(target.shape if has_classes else target.shape[:-1]) \
        if args['reduction'] == 'none' else loss


def vocabulary_cases(c):
    for reduction, smoothing, sizes in itertools.product(('mean', 'sum', 'none'), (0.0, 0.25),
                                                         ((), (2,))):
        more = {'reduction': reduction, 'label_smoothing': smoothing}
        x, weight = normal(2, 3, 4), normal(*sizes, 7, 4)
        bias = normal(*sizes, 7) if smoothing > 0 or sizes else None
        classes = torch.randint(0, 7, (2, 3, *sizes))
        for ignore, target, each in ((None, classes, None), (3, classes, None),
                                     (3, classes, positive(7)),
                                     (None, positive(2, 3, *sizes, 7), None),
                                     (None, positive(2, 3, *sizes, 7), positive(7))):
            args = dict(more) if ignore is None else {**more, 'ignore_index': ignore}
            c.add('linear_cross_entropy', [x, weight, bias, target, each],
                  lambda x, w, b, t, e: loss_of(x, w, b, t, weight=e, **args),
                  wanted=[i for i, v in enumerate((x, weight, bias, target))
                          if v is not None and v.is_floating_point()], **args)


def fractional_cases(c):
    for dims, line, kernel, how in ((2, (9, 7), (2, 3), {'output_size': (4, 3)}),
                                    (2, (8, 10), (3, 3), {'output_ratio': (0.5, 0.7)}),
                                    (2, (5, 5), (2, 2), {'output_size': (1, 4)}),
                                    (3, (5, 6, 7), (2, 1, 3), {'output_size': (3, 4, 2)}),
                                    (3, (6, 5, 5), (2, 2, 2), {'output_ratio': (0.7, 0.5, 0.6)})):
        f = getattr(F, 'fractional_max_pool%dd' % dims)
        for batch in ((2, 3), (3,)):
            samples = grid((1, 3, dims) if len(batch) == 1 else (*batch, dims), 0, 63 / 64)
            c.add('fractional_max_pool%dd' % dims, [distinct(*batch, *line), samples],
                  lambda x, u: f(x, kernel, return_indices=True, _random_samples=u, **how),
                  wanted=[0], kernel=kernel, **how)


if __name__ == '__main__':
    torch.manual_seed(13)
    cases = Cases('ops_vocabulary')
    vocabulary_cases(cases)
    fractional_cases(cases)
    cases.save()
