#!/usr/bin/env python3
"""More golden values from PyTorch, as make_golden.py's: operations of op_index.h and op_pad.h.

    ops_index.safetensors, ops_pad.safetensors     golden_op_test.c
"""
import torch
import torch.nn.functional as F

from make_golden import Cases, distinct, normal, positive


def index_cases():
    c = Cases('ops_index')
    for dim, descending in ((1, False), (0, True), (-1, True)):
        c.add('sort', [distinct(3, 5)], lambda x: tuple(x.sort(dim=dim, descending=descending,
                                                           stable=True)),
              dim=dim, descending=descending)
    ties = torch.tensor([[1., 2., 1., 2., 0.], [3., 3., 3., 1., 1.]])
    for descending in (False, True):
        c.add('argsort', [ties], lambda x: x.sort(dim=-1, descending=descending,
                                                stable=True)[1], wanted=[],
              dim=-1, descending=descending)
    for k, dim, largest in ((2, -1, True), (3, 0, False), (5, 1, True)):
        c.add('topk', [distinct(3, 5)], lambda x: tuple(x.topk(k, dim, largest)), k=k, dim=dim,
              largest=largest)
    for dim in (0, 1, -1):
        c.add('cumsum', [normal(2, 3, 4)], lambda x: x.cumsum(dim), dim=dim)
        c.add('cumprod', [positive(2, 3, 4)], lambda x: x.cumprod(dim), dim=dim)
    zeros = torch.tensor([[2., 0., 3., 0.5], [0., 0., 1., 2.], [1., 2., 3., 0.]])
    c.add('cumprod', [zeros], lambda x: x.cumprod(1), dim=1)
    c.add('one_hot', [torch.tensor([[0, 4], [2, 2]])], lambda x: F.one_hot(x, 5), wanted=[],
          classes=5)
    index = torch.tensor([2, 0, 2])
    c.add('index_add', [normal(3, 4), index, normal(3, 4)], lambda x, i, y: x.index_add(0, i, y),
          dim=0)
    c.add('index_add', [normal(2, 3, 2), index, normal(2, 3, 2)],
          lambda x, i, y: x.index_add(1, i, y), dim=1)
    places = torch.tensor([[0, 2, 3], [1, 0, 3]])
    c.add('scatter_along', [normal(2, 4), places, normal(2, 3)],
          lambda x, i, y: x.scatter(1, i, y), dim=1)
    c.add('scatter_along', [normal(4, 3), torch.tensor([[0, 2, 3], [1, 0, 1]]), normal(2, 3)],
          lambda x, i, y: x.scatter(0, i, y), dim=0)
    again = torch.tensor([[0, 2, 2], [0, 0, 3]])
    c.add('scatter_along_add', [normal(2, 4), again, normal(2, 3)],
          lambda x, i, y: x.scatter_add(1, i, y), dim=1)
    c.add('scatter_along_add', [normal(4, 3), again, normal(2, 3)],
          lambda x, i, y: x.scatter_add(0, i, y), dim=0)
    c.save()


def pad_cases():
    c = Cases('ops_pad')
    for mode, sizes in (('constant', (1, 2)), ('constant', (1, -1, 2, 0)), ('reflect', (2, 1)),
                        ('reflect', (1, 2, 2, 1)), ('replicate', (2, 3)),
                        ('replicate', (1, 2, 3, 1)), ('circular', (3, 2)),
                        ('circular', (1, 2, 3, 1))):
        value = {'value': 0.5} if mode == 'constant' else {}
        shape = (2, 3, 4) if len(sizes) == 2 else (2, 2, 3, 4)
        c.add('pad', [normal(*shape)], lambda x: F.pad(x, sizes, mode, **value), mode=mode,
              sizes=sizes, **value)
    for shifts, dims in (((1,), (0,)), ((-1, 2), (0, -1)), ((5,), (1,)), ((4,), ())):
        c.add('roll', [normal(2, 3, 4)], lambda x: x.roll(shifts, dims), shifts=shifts, dims=dims)
    for dims in ((0,), (1, -1), (0, 1, 2)):
        c.add('flip', [normal(2, 3, 4)], lambda x: x.flip(dims), dims=dims)
    for diagonal in (0, 1, -2):
        c.add('tril', [normal(2, 3, 4)], lambda x: x.tril(diagonal), diagonal=diagonal)
        c.add('triu', [normal(2, 4, 3)], lambda x: x.triu(diagonal), diagonal=diagonal)
    for move in ({'kernel_size': (2, 3)},
                 {'kernel_size': (2, 2), 'stride': (2, 1), 'padding': (1, 0)},
                 {'kernel_size': (2, 2), 'dilation': (2, 3), 'padding': (0, 2)}):
        args = {'kernel': move['kernel_size'], 'stride': move.get('stride', (1, 1)),
                'padding': move.get('padding', (0, 0)), 'dilation': move.get('dilation', (1, 1))}
        x = normal(2, 2, 4, 5)
        c.add('unfold', [x], lambda x: F.unfold(x, **move), **args)
        c.add('fold', [F.unfold(x, **move)], lambda x: F.fold(x, (4, 5), **move), size=(4, 5),
              **args)
    einsums = (('ij,jk', (2, 3), (3, 4)), ('bij,bjk->bik', (2, 2, 3), (2, 3, 2)),
               ('i,j->ji', (2,), (3,)), ('ii->i', (3, 3)), ('iji->j', (2, 3, 2)),
               ('ij->', (2, 3)), ('ba', (2, 3)), ('...i,...i->...', (2, 3, 4), (3, 4)),
               ('bi,ij,bj->b', (2, 3), (3, 4), (2, 4)), ('i...j,kj', (2, 1, 2, 3), (2, 3)),
               ('bhqd,bhkd->bhqk', (2, 2, 2, 3), (2, 2, 3, 3)), ('ab,ab->ab', (2, 3), (1, 3)),
               ('abc,cd->bd', (2, 3, 1), (4, 2)), ('ij,kl->ik', (2, 3), (2, 2)))
    for equation, *shapes in einsums:
        c.add('einsum', [normal(*shape) for shape in shapes],
              lambda *x: torch.einsum(equation, *x), equation=equation)
    c.save()


if __name__ == '__main__':
    for make in (index_cases, pad_cases):
        torch.manual_seed(7)
        make()
