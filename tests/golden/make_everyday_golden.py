#!/usr/bin/env python3
"""More golden values from PyTorch, as make_golden.py's: operations of op_index.h, op_pad.h,
op_activation.h, op_margin_loss.h and op_likelihood.h.

    ops_index, ops_pad, ops_activation, ops_losses     golden_op_test.c
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


def activation_cases():
    c = Cases('ops_activation')
    wide = torch.tensor([-30., -10., -5., -2.5, -1., -0.25, 0., 0.25, 1., 2.5, 5., 10., 30.])
    functions = {
        'leaky_relu': [(F.leaky_relu, {'negative_slope': 0.125})],
        'elu': [(F.elu, {'alpha': 1.5})], 'celu': [(F.celu, {'alpha': 0.5})],
        'selu': [(F.selu, {})], 'softplus': [(F.softplus, {'beta': 1, 'threshold': 20}),
                                             (F.softplus, {'beta': 2, 'threshold': 4})],
        'logsigmoid': [(F.logsigmoid, {})], 'mish': [(F.mish, {})],
        'hardswish': [(F.hardswish, {})], 'hardsigmoid': [(F.hardsigmoid, {})],
        'hardtanh': [(F.hardtanh, {'min_val': -1, 'max_val': 2.5})], 'relu6': [(F.relu6, {})],
        'softsign': [(F.softsign, {})], 'tanhshrink': [(F.tanhshrink, {})],
        'threshold': [(F.threshold, {'threshold': 0.25, 'value': -7})],
        'hardshrink': [(F.hardshrink, {'lambd': 0.25})],
        'softshrink': [(F.softshrink, {'lambd': 0.5})]}
    for op, calls in functions.items():
        for f, args in calls:
            for x in (normal(3, 5), wide):
                c.add(op, [x], lambda x: f(x, **args), **args)
    for shape, count in (((2, 3, 4), 3), ((2, 3), 1), ((4,), 1)):
        c.add('prelu', [normal(*shape), positive(count)], F.prelu)
    for dim in (1, -1, 0):
        c.add('glu', [normal(2, 4, 6)], lambda x: F.glu(x, dim), dim=dim)
        c.add('softmin', [normal(2, 3, 4)], lambda x: F.softmin(x, dim), dim=dim)
    for lower, upper in ((0.125, 0.375), (-0.5, 0.25)):
        c.add('rrelu', [wide], lambda x: F.rrelu(x, lower, upper), lower=lower, upper=upper)
    c.save()


def signs(*shape):
    """1 and -1 in turn: targets."""
    return (torch.arange(torch.Size(shape).numel()) % 2 * 2 - 1).float().reshape(shape)


def margin_cases(c, reduction):
    r = {'reduction': reduction}
    vectors = [normal(4, 3) for _ in range(3)]
    for args in ({}, {'margin': 0.5, 'p': 1.0}, {'margin': 2.0, 'swap': True}, {'p': 3.0}):
        c.add('triplet_margin_loss', vectors, lambda a, p, n: F.triplet_margin_loss(
            a, p, n, **args, **r), **args, **r)
    for margin in (1 / 128, 0.5 + 1 / 128):  # no difference of inputs is at the edge
        c.add('cosine_embedding_loss', [normal(4, 3), normal(4, 3), signs(4)],
              lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin, **r), wanted=[0, 1],
              margin=margin, **r)
        c.add('hinge_embedding_loss', [normal(3, 4), signs(3, 4)],
              lambda x, t: F.hinge_embedding_loss(x, t, margin, **r), wanted=[0], margin=margin,
              **r)
        c.add('margin_ranking_loss', [normal(3, 4), normal(3, 4), signs(3, 4)],
              lambda x, y, t: F.margin_ranking_loss(x, y, t, margin, **r), wanted=[0, 1],
              margin=margin, **r)
    c.add('soft_margin_loss', [normal(3, 4) * 4, signs(3, 4)],
          lambda x, t: F.soft_margin_loss(x, t, **r), wanted=[0], **r)
    for p, weight in ((1, None), (2, positive(5))):
        c.add('multi_margin_loss', [normal(4, 5), torch.tensor([1, 0, 4, 4]), weight],
              lambda x, t, w: F.multi_margin_loss(x, t, p=p, margin=0.75, weight=w, **r),
              wanted=[0], p=p, margin=0.75, **r)
        c.add('multilabel_soft_margin_loss', [normal(4, 5), (normal(4, 5) > 0).float(), weight],
              lambda x, y, w: F.multilabel_soft_margin_loss(x, y, w, **r), wanted=[0], **r)


def focal(x, y, alpha, gamma):
    """As torchvision.ops.sigmoid_focal_loss."""
    p = x.sigmoid()
    p_t = p * y + (1 - p) * (1 - y)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction='none') * (1 - p_t) ** gamma
    return loss if alpha < 0 else (alpha * y + (1 - alpha) * (1 - y)) * loss


def reduced(loss, reduction):
    return {'mean': torch.mean, 'sum': torch.sum, 'none': lambda x: x}[reduction](loss)


def likelihood_cases(c, reduction):
    r = {'reduction': reduction}
    counts = torch.tensor([[0., 1., 2., 5.], [3., 0., 1., 7.]])
    for full in (False, True):
        for rate in (False, True):
            c.add('poisson_nll_loss', [positive(2, 4) if rate else normal(2, 4), counts],
                  lambda x, y: F.poisson_nll_loss(x, y, log_input=not rate, full=full, **r),
                  wanted=[0], full=full, rate=rate, **r)
        for var in (positive(3, 4), positive(3, 1), positive(3)):
            c.add('gaussian_nll_loss', [normal(3, 4), normal(3, 4), var],
                  lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=full, eps=0.5, **r), full=full,
                  eps=0.5, **r)
    for weight, more in ((positive(3), None), (None, positive(3)), (positive(2, 1), positive(3))):
        c.add('bce_with_logits_with', [normal(2, 3) * 4, (normal(2, 3) > 0).float(), weight, more],
              lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p, **r),
              wanted=[0], **r)
    for alpha, gamma in ((0.25, 2.0), (-1.0, 1.0), (0.5, 0.0)):
        c.add('focal_loss', [normal(2, 5), (normal(2, 5) > 0).float()],
              lambda x, y: reduced(focal(x, y, alpha, gamma), reduction), wanted=[0], alpha=alpha,
              gamma=gamma, **r)
    c.add('bce_loss', [positive(2, 5) / 2 - 0.0625, positive(2, 5) / 2],
          lambda x, y: F.binary_cross_entropy(x, y, **r), wanted=[0], **r)
    c.add('l1_loss', [normal(2, 5), normal(2, 5)], lambda x, y: F.l1_loss(x, y, **r), **r)


def class_cases(c, reduction):
    r = {'reduction': reduction}
    targets, weight = torch.tensor([[3, 0, 6], [5, -100, 2]]), positive(7)
    for smoothing in (0.0, 0.25):
        c.add('weighted_cross_entropy', [normal(2, 3, 7), targets, weight],
              lambda x, t, w: F.cross_entropy(x.transpose(1, 2), t, w, label_smoothing=smoothing,
                                              **r), wanted=[0], label_smoothing=smoothing, **r)
        for w in (weight, None):
            c.add('weighted_cross_entropy', [normal(4, 7), positive(4, 7) / 8, w],
                  lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=smoothing, **r),
                  wanted=[0, 1], label_smoothing=smoothing, **r)
    c.add('weighted_nll_loss', [normal(2, 3, 7), targets, weight],
          lambda x, t, w: F.nll_loss(x.transpose(1, 2), t, w, **r), wanted=[0], **r)


def ctc_cases(c, reduction):
    r = {'reduction': reduction}
    logs = normal(6, 3, 5).double().log_softmax(-1).float()
    padded, one = torch.tensor([[1, 2, 2], [3, 0, 0], [4, 1, 3]]), torch.tensor([1, 3, 3])
    inputs, lengths = torch.tensor([6, 4, 5]), torch.tensor([3, 0, 2])
    c.add('ctc_loss', [logs, padded, inputs, lengths],
          lambda x, t, i, o: F.ctc_loss(x, t, i, o, **r), wanted=[0], blank=0, **r)
    c.add('ctc_loss', [logs, torch.tensor([1, 2, 2, 4, 1]), inputs, lengths],
          lambda x, t, i, o: F.ctc_loss(x, t, i, o, blank=3, **r), wanted=[0], blank=3, **r)
    c.add('ctc_loss', [logs[:3], padded, torch.tensor([3, 2, 3]), torch.tensor([3, 1, 3])],
          lambda x, t, i, o: F.ctc_loss(x, t, i, o, zero_infinity=True, **r), wanted=[0], blank=0,
          zero_infinity=True, **r)
    c.add('ctc_loss', [logs[:, 0], one, torch.tensor(6), torch.tensor(3)],
          lambda x, t, i, o: F.ctc_loss(x, t, i, o, **r), wanted=[0], blank=0, **r)


def city(x, y):
    return 0.5 * (x - y).abs().sum(-1)


def distance_cases(c):
    """Rows 1 and 2 are the same: there distances have no slope."""
    rows, others = normal(5, 3), normal(2, 4, 3)
    rows[2] = rows[1]
    others[1, 3] = rows[1]
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float('inf')):
        c.add('pdist', [rows], lambda x: F.pdist(x, p), p=min(p, 1e9))
        c.add('cdist', [rows, others], lambda x, y: torch.cdist(
            x, y, p, compute_mode='donot_use_mm_for_euclid_dist'), p=min(p, 1e9))
    targets = torch.tensor([[3, 0, -1, 1, 2], [2, 2, 0, -1, -1], [-1, 4, 3, 2, 1], [0, 1, 2, 3, 4]])
    for reduction in ('mean', 'sum', 'none'):
        r = {'reduction': reduction}
        c.add('multilabel_margin_loss', [normal(4, 5), targets],
              lambda x, t: F.multilabel_margin_loss(x, t, **r), wanted=[0], **r)
        for args in ({}, {'margin': 0.5, 'swap': True}):
            vectors = [normal(4, 3) for _ in range(3)]
            c.add('triplet_margin_with_distance_loss', vectors,
                  lambda a, p, n: F.triplet_margin_with_distance_loss(a, p, n, **args, **r),
                  **args, **r)
            c.add('triplet_margin_with_distance_loss', vectors,
                  lambda a, p, n: F.triplet_margin_with_distance_loss(
                      a, p, n, distance_function=city, **args, **r), city=0.5, **args, **r)


def loss_cases():
    c = Cases('ops_losses')
    for reduction in ('mean', 'none'):
        for make in (margin_cases, likelihood_cases, class_cases, ctc_cases):
            make(c, reduction)
    for p in (2.0, 1.0, 3.0, float('inf')):
        c.add('pairwise_distance', [normal(3, 4), normal(3, 4)],
              lambda x, y: F.pairwise_distance(x, y, p), p=min(p, 1e9))
    for dim in (1, 0):
        c.add('cosine_similarity', [normal(3, 4), normal(3, 4)],
              lambda x, y: F.cosine_similarity(x, y, dim), dim=dim)
    distance_cases(c)
    c.save()


if __name__ == '__main__':
    for make in (index_cases, pad_cases, activation_cases, loss_cases):
        torch.manual_seed(7)
        make()
