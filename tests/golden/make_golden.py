#!/usr/bin/env python3
"""Golden values from PyTorch: `make golden` writes the safetensors files beside this script.

    ops_*.safetensors   every operation: inputs, outputs, gradients     golden_op_test.c
    optim.safetensors   optimizers over ten steps, gradients clipped
    sched.safetensors   learning-rate schedules
    rnn.safetensors     recurrent layers and cells             golden_rnn_test.c
    gpt.safetensors     a two-layer GPT: weights, tokens, ten losses    golden_gpt_test.c

A case of ops_* is an entry of the metadata, `name: {"op": …, "args": {…}, "inputs": n,
"outputs": m}`, and the tensors name/inI, name/outI, name/seedI (what comes into backward) and
name/gradI. Everything is computed in f64 from inputs that f32 holds exactly (most of them bf16
too), and stored as f32.
"""
import json
import math
import os
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {torch.float32: 'F32', torch.float64: 'F64', torch.int64: 'I64', torch.int32: 'I32',
         torch.uint8: 'U8', torch.bool: 'BOOL'}


def save(name, tensors, metadata):
    """Write a safetensors file: u64 length of the header, the header in JSON, the data."""
    header, data = {'__metadata__': metadata}, []
    offset = 0
    for key, x in tensors.items():
        raw = x.detach().contiguous().numpy().tobytes()
        header[key] = {'dtype': NAMES[x.dtype], 'shape': list(x.shape),
                       'data_offsets': [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(os.path.join(HERE, name + '.safetensors'), 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(data))


# ---- operations ---------------------------------------------------------------------------------

class Cases:
    """The cases of one file."""

    def __init__(self, name):
        self.name, self.tensors, self.metadata = name, {}, {}

    def add(self, op, inputs, function, wanted=None, **args):
        """function(*inputs) is op(inputs, args); gradients of `wanted` (default: all floats)."""
        index = sum(json.loads(case)['op'] == op for case in self.metadata.values())
        name = '%s_%d' % (op, index)
        xs = [None if x is None else x.double() if x.is_floating_point() else x for x in inputs]
        if wanted is None:
            wanted = [i for i, x in enumerate(xs) if x is not None and x.is_floating_point()]
        for i in wanted:
            xs[i] = xs[i].clone().requires_grad_(True)
        ys = function(*xs)
        ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
        self.metadata[name] = json.dumps(
            {'op': op, 'args': args, 'inputs': len(xs), 'outputs': len(ys)}, separators=(',', ':'))
        for i, x in enumerate(xs):
            if x is not None:
                self.put(name, 'in', i, x)
        for i, y in enumerate(ys):
            self.put(name, 'out', i, y)
        self.differentiate(name, [xs[i] for i in wanted], wanted, ys)

    def differentiate(self, name, leaves, wanted, ys):
        roots = [(i, y) for i, y in enumerate(ys) if y.requires_grad]
        if not roots:
            return
        seeds = [grid(y.shape) for _, y in roots]
        grads = torch.autograd.grad([y for _, y in roots], leaves, [s.double() for s in seeds],
                                    allow_unused=True)
        for (i, _), seed in zip(roots, seeds):
            self.put(name, 'seed', i, seed)
        for i, leaf, grad in zip(wanted, leaves, grads):
            self.put(name, 'grad', i, torch.zeros_like(leaf) if grad is None else grad)

    def put(self, name, kind, index, x):
        x = x.detach()
        self.tensors['%s/%s%d' % (name, kind, index)] = x.float() if x.is_floating_point() else x

    def save(self):
        save(self.name, self.tensors, self.metadata)


def grid(shape, low=-2.0, high=2.0, step=1 / 64):
    """Random multiples of `step`, which bf16 holds exactly up to 4 with 1/64."""
    n = int(round((high - low) / step))
    return (torch.randint(0, n + 1, tuple(shape)).double() * step + low).float()


def positive(*shape):
    return grid(shape, 0.25, 2.0)


def normal(*shape):
    return grid(shape)


def distinct(*shape):
    """No two equal, so that extremes are unique."""
    n = math.prod(shape)
    return ((torch.randperm(n).double() - n // 2) / 16 + 1 / 32).float().reshape(shape)


def math_cases():
    c = Cases('ops_math')
    shapes = [((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((4,), (2, 1))]
    for op, f in {'add': torch.add, 'sub': torch.sub, 'mul': torch.mul}.items():
        for a, b in shapes:
            c.add(op, [normal(*a), normal(*b)], f)
    for a, b in shapes:
        c.add('div', [normal(*a), positive(*b)], torch.div)
        c.add('pow', [positive(*a), normal(*b)], torch.pow)
    for op, f in {'maximum': torch.maximum, 'minimum': torch.minimum}.items():
        c.add(op, [normal(3, 4), normal(4)], f)
        ties = torch.tensor([1., 2., 3.])
        c.add(op, [ties, torch.tensor([1., 3., 2.])], f)
    scalars = {'add_scalar': lambda x, v: x + v, 'sub_scalar': lambda x, v: x - v,
               'scalar_sub': lambda x, v: v - x, 'mul_scalar': lambda x, v: x * v,
               'div_scalar': lambda x, v: x / v, 'scalar_div': lambda x, v: v / x,
               'pow_scalar': lambda x, v: x ** v}
    for op, f in scalars.items():
        for value in (1.5, -0.75):
            c.add(op, [positive(2, 3)], lambda x, f=f, v=value: f(x, v), value=value)
    c.add('pow_scalar', [normal(2, 3)], lambda x: x ** 3, value=3)
    c.add('pow_scalar', [normal(2, 3)], lambda x: x ** 0, value=0)
    c.add('clamp', [normal(3, 5)], lambda x: x.clamp(-0.5, 1), low=-0.5, high=1)
    signed = {'neg': torch.neg, 'abs': torch.abs, 'square': torch.square, 'exp': torch.exp,
              'sin': torch.sin, 'cos': torch.cos, 'erf': torch.erf, 'tanh': torch.tanh,
              'sigmoid': torch.sigmoid, 'relu': F.relu, 'silu': F.silu}
    for op, f in signed.items():
        c.add(op, [normal(3, 5)], f)
    for op, f in {'sqrt': torch.sqrt, 'rsqrt': torch.rsqrt, 'log': torch.log}.items():
        c.add(op, [positive(3, 5)], f)
    wide = torch.tensor([-30., -10., -5., -1., 0., 1., 5., 10., 30.])
    for op in ('sigmoid', 'tanh', 'silu', 'relu'):
        c.add(op, [wide], signed[op])
    for formula in ('none', 'tanh'):
        op = 'gelu' if formula == 'none' else 'gelu_tanh'
        c.add(op, [normal(3, 5)], lambda x: F.gelu(x, approximate=formula))
        c.add(op, [wide], lambda x: F.gelu(x, approximate=formula))
    few = torch.tensor([[0., 1., 2.], [2., 1., 0.]])
    for op in ('eq', 'ne', 'lt', 'le', 'gt', 'ge'):
        c.add(op, [few, torch.tensor([1., 1., 0.])], getattr(torch, op), wanted=[])
        c.add(op + '_scalar', [few], lambda x, f=getattr(torch, op): f(x, 1), wanted=[], value=1)
    bits = torch.tensor([[True, False], [True, True]])
    c.add('logical_not', [bits], torch.logical_not)
    c.add('logical_and', [bits, torch.tensor([True, False])], torch.logical_and)
    c.add('logical_or', [bits, torch.tensor([True, False])], torch.logical_or)
    mask = torch.tensor([[True], [False], [True]])
    c.add('where', [mask, normal(3, 4), normal(4)], torch.where)
    c.add('masked_fill', [normal(3, 4), mask], lambda x, m: x.masked_fill(m, -7.0), value=-7)
    odd = torch.tensor([float('nan'), float('inf'), -float('inf'), -0., .5, 1.5, 2.5, -.5, -1.5,
                        8388609., -3e38])
    for op in ('sign', 'floor', 'ceil', 'round', 'trunc', 'log1p', 'expm1'):
        c.add(op, [odd], getattr(torch, op))
    for op in ('isnan', 'isinf', 'isfinite'):
        c.add(op, [odd], getattr(torch, op), wanted=[])
    tiny = torch.tensor([1e-30, -1e-20, 1e-8, -3e-8, 1e-4, -1e-3, .3, -.7, -.999999, 80., -80.])
    for op in ('log1p', 'expm1'):
        c.add(op, [tiny.clamp(-.999999)] if op == 'log1p' else [tiny], getattr(torch, op))
    c.save()


def shape_cases():
    c = Cases('ops_shape')
    x = normal(2, 3, 4)
    c.add('view', [x], lambda x: x.view(4, 6), shape=[4, 6])
    c.add('view', [x], lambda x: x.view(2, -1), shape=[2, -1])
    c.add('reshape', [x], lambda x: x.reshape(3, 8), shape=[3, 8])
    c.add('flatten', [x], lambda x: x.flatten(1, 2), first=1, last=2)
    c.add('squeeze', [normal(2, 1, 3)], lambda x: x.squeeze(1), dim=1)
    c.add('unsqueeze', [normal(2, 3)], lambda x: x.unsqueeze(-1), dim=-1)
    c.add('transpose', [x], lambda x: x.transpose(0, -1), a=0, b=-1)
    c.add('permute', [x], lambda x: x.permute(2, 0, 1), dims=[2, 0, 1])
    c.add('slice', [normal(3, 7)], lambda x: x[:, 1:6:2], dim=1, start=1, stop=6, step=2)
    c.add('slice', [normal(5, 2)], lambda x: x[-3:], dim=0, start=-3, stop=2**31, step=1)
    c.add('narrow', [normal(3, 7)], lambda x: x.narrow(1, 2, 3), dim=1, start=2, length=3)
    c.add('select', [x], lambda x: x.select(1, -1), dim=1, index=-1)
    c.add('split', [normal(2, 6)], lambda x: x.chunk(3, 1), dim=1, count=3)
    c.add('split', [normal(10, 1)], lambda x: x.chunk(5, 0), dim=0, count=5)
    c.add('split_sizes', [normal(2, 6)], lambda x: x.split([1, 3, 2], 1), dim=1, sizes=[1, 3, 2])
    c.add('expand', [normal(3, 1)], lambda x: x.expand(2, 3, 4), shape=[2, 3, 4])
    c.add('cat', [normal(2, 1), normal(2, 3), normal(2, 2)], lambda *x: torch.cat(x, 1), dim=1)
    c.add('stack', [normal(2, 3), normal(2, 3)], lambda *x: torch.stack(x, 1), dim=1)
    index = torch.tensor([[0, 2, 2], [1, 0, 3]])
    c.add('gather', [normal(2, 4), index], lambda x, i: x.gather(1, i), dim=1)
    c.add('gather', [normal(4, 3), index], lambda x, i: x.gather(0, i), dim=0)
    c.add('index_select', [normal(3, 4), torch.tensor([2, 0, 2])],
          lambda x, i: x.index_select(0, i), dim=0)
    c.add('index_select', [normal(3, 4), torch.tensor([3, 3])],
          lambda x, i: x.index_select(1, i), dim=1)
    c.add('cast', [normal(3, 4) * 2], lambda x: x.long(), wanted=[], dtype='i64')
    c.add('cast', [normal(3, 4)], lambda x: x.double(), dtype='f64')
    c.add('clone', [normal(3, 4)], torch.clone)
    c.add('contiguous', [normal(3, 4)], torch.clone)
    c.save()


def reduce_cases():
    c = Cases('ops_reduce')
    functions = {'sum': torch.sum, 'mean': torch.mean, 'max': torch.amax, 'min': torch.amin}
    for op, f in functions.items():
        c.add(op, [distinct(2, 3, 4)], lambda x, f=f: f(x) if f in (torch.sum, torch.mean)
              else f(x, (0, 1, 2)), dims=[], keepdim=False, all=True)
        for dims, keepdim in (([1], False), ([0, -1], True), ([-1], False)):
            c.add(op, [distinct(2, 3, 4)], lambda x, f=f: f(x, dims, keepdim), dims=dims,
                  keepdim=keepdim, all=False)
    ties = torch.tensor([[1., 3., 3.], [2., 2., 2.]])
    for op in ('max', 'min'):
        c.add(op, [ties], lambda x, f=functions[op]: f(x, [1]), dims=[1], keepdim=False, all=False)
    for correction in (1, 0):
        c.add('var', [normal(2, 3, 4)], lambda x: x.var((0, 2), unbiased=correction == 1),
              dims=[0, 2], keepdim=False, correction=correction, all=False)
    c.add('var', [normal(3, 4)], torch.var, dims=[], keepdim=False, correction=1, all=True)
    c.add('prod', [positive(2, 3)], torch.prod, dims=[], keepdim=False, all=True)
    c.add('prod', [positive(2, 3)], lambda x: x.prod(1), dims=[1], keepdim=False, all=False)
    c.add('prod', [torch.tensor([[2., 0., 3.], [0., 0., 1.]])], lambda x: x.prod(1), dims=[1],
          keepdim=False, all=False)
    for op, f in {'max_along': torch.max, 'min_along': torch.min}.items():
        c.add(op, [distinct(3, 4)], lambda x, f=f: tuple(f(x, 1)), dim=1, keepdim=False)
        c.add(op, [distinct(3, 4)], lambda x, f=f: tuple(f(x, 0, True)), dim=0, keepdim=True)
    for op, f in {'argmax': torch.argmax, 'argmin': torch.argmin}.items():
        c.add(op, [distinct(3, 4)], lambda x, f=f: f(x, -1), wanted=[], dim=-1, keepdim=False)
        c.add(op, [distinct(3, 4)], lambda x, f=f: f(x, 0, True), wanted=[], dim=0, keepdim=True)
    bits = torch.tensor([[0., 1.], [0., 0.], [2., 1.]])
    for op, f in {'any': torch.any, 'all': torch.all}.items():
        c.add(op, [bits], lambda x, f=f: f(x != 0), wanted=[], dims=[], keepdim=False, all=True)
        c.add(op, [bits], lambda x, f=f: f(x != 0, 1), wanted=[], dims=[1], keepdim=False,
              all=False)
    c.save()


def linear_cases():
    c = Cases('ops_linear')
    shapes = [((3, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((2, 1, 3, 5), (4, 5, 2)), ((5,), (5,)),
              ((5,), (2, 5, 3)), ((2, 3, 5), (5,)), ((2, 3, 5), (2, 5, 4)), ((5,), (5, 3)),
              ((3, 5), (2, 5, 2)), ((3, 5), (5,))]
    for a, b in shapes:
        c.add('matmul', [normal(*a), normal(*b)], torch.matmul)
    for shape, bias in (((4, 6), True), ((2, 3, 6), True), ((2, 3, 6), False), ((6,), True)):
        inputs = [normal(*shape), normal(5, 6), normal(5) if bias else None]
        c.add('linear', inputs, F.linear)
        for formula in ('none', 'tanh'):
            c.add('linear_gelu', inputs, lambda x, w, b: F.gelu(F.linear(x, w, b),
                                                                approximate=formula),
                  formula='erf' if formula == 'none' else 'tanh')
    c.save()


def loss_cases():
    c = Cases('ops_loss')
    for dim in (-1, 1, 0):
        c.add('softmax', [normal(3, 4, 5)], lambda x: x.softmax(dim), dim=dim)
        c.add('log_softmax', [normal(3, 4, 5)], lambda x: x.log_softmax(dim), dim=dim)
    wide = torch.tensor([[1000., 1001., 990.], [-1000., -1e4, -1000.]])
    c.add('softmax', [wide], lambda x: x.softmax(-1), dim=-1)
    c.add('log_softmax', [wide], lambda x: x.log_softmax(-1), dim=-1)
    targets = torch.tensor([[3, 0, 6], [5, 2, 2]])
    ignored = torch.tensor([[3, -100, 6], [-100, 2, 2]])
    for reduction in ('mean', 'sum', 'none'):
        for smoothing, ignore, t in ((0.0, None, targets), (0.0, None, ignored),
                                     (0.1, None, ignored), (0.0, 2, targets), (0.25, 2, targets)):
            args = {'reduction': reduction, 'label_smoothing': smoothing}
            if ignore is not None:
                args['ignore_index'] = ignore
            c.add('cross_entropy', [normal(2, 3, 7), t],
                  lambda x, t: F.cross_entropy(x.transpose(1, 2), t, reduction=reduction,
                                               label_smoothing=smoothing,
                                               ignore_index=-100 if ignore is None else ignore),
                  **args)
            if smoothing == 0:
                del args['label_smoothing']
                c.add('nll_loss', [normal(2, 3, 7), t],
                      lambda x, t: F.nll_loss(x.transpose(1, 2), t, reduction=reduction,
                                              ignore_index=-100 if ignore is None else ignore),
                      **args)
        c.add('mse_loss', [normal(2, 5), normal(2, 5)],
              lambda x, y: F.mse_loss(x, y, reduction=reduction), reduction=reduction)
        for beta in (1.0, 0.5, 0.0):
            c.add('smooth_l1_loss', [normal(2, 5), normal(2, 5)], lambda x, y: F.smooth_l1_loss(
                x, y, beta=beta, reduction=reduction), reduction=reduction, beta=beta)
        c.add('huber_loss', [normal(2, 5), normal(2, 5)], lambda x, y: F.huber_loss(
            x, y, delta=1.5, reduction=reduction), reduction=reduction, delta=1.5)
        for log in (False, True):
            c.add('kl_div', [normal(3, 5), normal(3, 5) if log else positive(3, 5)],
                  lambda x, y: F.kl_div(x, y, reduction=reduction, log_target=log),
                  reduction=reduction, log=log)
        c.add('bce_with_logits', [normal(2, 5) * 4, grid((2, 5), 0, 1)],
              lambda x, y: F.binary_cross_entropy_with_logits(
                  x, y, reduction=reduction), reduction=reduction)
    c.add('kl_div', [normal(3, 5), positive(3, 5)],
          lambda x, y: F.kl_div(x, y, reduction='batchmean'), batch_mean=True)
    c.save()


def rms_norm(x, weight, eps, row_dims=1):
    dims = list(range(-row_dims if weight is None else -weight.dim(), 0))
    y = x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    return y if weight is None else y * weight


def norm_cases():
    c = Cases('ops_norm')
    for shape, row in (((4, 8), [8]), ((2, 3, 20), [20]), ((3, 2, 4), [2, 4])):
        x = normal(*shape)
        for eps in (1e-5, 0.5):
            c.add('layer_norm', [x, normal(*row), normal(*row)],
                  lambda x, w, b: F.layer_norm(x, row, w, b, eps), eps=eps)
            c.add('rms_norm', [x, normal(*row)], lambda x, w: rms_norm(x, w, eps), eps=eps)
        c.add('layer_norm', [x, normal(*row), None],
              lambda x, w, b: F.layer_norm(x, row, w, None), eps=0)
    c.add('layer_norm', [normal(4, 8), None, None], lambda x, w, b: F.layer_norm(x, [8]), eps=0)
    c.add('rms_norm', [normal(4, 8), None], lambda x, w: rms_norm(x, None, 1.1920929e-7), eps=0)
    c.add('layer_norm', [normal(3, 2, 4), None, None], lambda x, w, b: F.layer_norm(x, [2, 4]),
          eps=0, row_dims=2)
    c.add('rms_norm', [normal(3, 2, 4), None],
          lambda x, w: rms_norm(x, None, 1.1920929e-7, 2), eps=0, row_dims=2)
    c.save()


def batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """y, and what the running statistics have become."""
    if mean is not None:
        mean, var = mean.clone(), var.clone()
    y = F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    return y if mean is None or not training else (y, mean, var)


def instance_norm(x, weight, bias, mean, var, training, momentum):
    mean, var = mean.clone(), var.clone()
    return F.instance_norm(x, mean, var, weight, bias, training, momentum, 1e-3), mean, var


def channel_norm_cases():
    c = Cases('ops_channel')
    for shape in ((6, 3), (2, 3, 5), (2, 3, 4, 5), (3, 2, 5, 7), (1, 2, 3)):
        x, n = normal(*shape), shape[1]
        for training, momentum, eps in ((True, 0.1, 1e-5), (True, 0.75, 0.5), (False, 0.1, 1e-5)):
            c.add('batch_norm', [x, normal(n), normal(n), normal(n), positive(n)],
                  lambda x, w, b, m, v: batch_norm(x, w, b, m, v, training, momentum, eps),
                  wanted=[0, 1, 2], training=training, momentum=momentum, eps=eps)
        c.add('batch_norm', [x, None, None, None, None],
              lambda x, w, b, m, v: batch_norm(x, w, b, m, v, True, 0.1, 1e-5), training=False)
    for shape, groups in (((3, 8), 2), ((2, 6, 5), 3), ((2, 4, 3, 6), 1), ((2, 3, 5, 4), 3)):
        x, n = normal(*shape), shape[1]
        for eps in (1e-5, 0.5):
            c.add('group_norm', [x, normal(n), normal(n)],
                  lambda x, w, b: F.group_norm(x, groups, w, b, eps), groups=groups, eps=eps)
        c.add('group_norm', [x, None, normal(n)],
              lambda x, w, b: F.group_norm(x, groups, torch.ones(n).double(), b), groups=groups)
        c.add('group_norm', [x, None, None],
              lambda x, w, b: F.group_norm(x, groups, torch.ones(n).double()), groups=groups)
    for training, momentum in ((True, 0.1), (True, 0.75), (False, 0.1)):
        c.add('instance_norm', [normal(2, 3, 4, 2), normal(3), normal(3), normal(3), positive(3)],
              lambda x, w, b, m, v: instance_norm(x, w, b, m, v, training, momentum),
              wanted=[0, 1, 2], training=training, momentum=momentum, eps=1e-3)
    c.add('instance_norm', [normal(2, 3, 4), None, None, None, None],
          lambda x, w, b, m, v: F.instance_norm(x), training=True)
    c.save()


def conv_cases():
    c = Cases('ops_conv')
    for dims, sizes in ((1, (7, 40)), (2, ((5, 6),))):
        for size in sizes:
            plane = (size,) if dims == 1 else size
            for n, channels, out, kernel, more in (
                    (2, 3, 4, 3, {}), (1, 2, 9, 1, {}), (3, 4, 6, 3, {'padding': 1}),
                    (2, 4, 6, 3, {'stride': 2, 'padding': 2, 'groups': 2}),
                    (2, 3, 3, 2, {'stride': 3, 'groups': 3}),
                    (2, 2, 5, 3, {'dilation': 2, 'padding': 2}),
                    (2, 2, 3, 2, {'stride': 2, 'dilation': 3, 'padding': 1})):
                x, options = normal(n, channels, *plane), {'stride': 1, 'padding': 0, 'dilation': 1,
                                                           'groups': 1, **more}
                w = normal(out, channels // options['groups'], *([kernel] * dims))
                f = F.conv1d if dims == 1 else F.conv2d
                c.add(f.__name__, [x, w, normal(out)],
                      lambda x, w, b, f=f, o=options: f(x, w, b, **o), **options)
                c.add(f.__name__, [x[0], w, None], lambda x, w, b, f=f, o=options:
                      f(x[None], w, b, **o)[0], **options)
                w = normal(channels, out // options['groups'], *([kernel] * dims))
                f = F.conv_transpose1d if dims == 1 else F.conv_transpose2d
                options['output_padding'] = 1 if options['stride'] > 1 else 0
                c.add(f.__name__, [x, w, normal(out)],
                      lambda x, w, b, f=f, o=options: f(x, w, b, **o), **options)
    c.add('conv2d', [normal(1, 60, 3, 4), normal(15, 60, 3, 3), normal(15)],
          lambda x, w, b: F.conv2d(x, w, b, padding=1), stride=1, padding=1, dilation=1, groups=1)
    for plane, kernel, dilation in (((9,), (4,), 1), ((7,), (4,), 3), ((5, 6), (3, 3), 2),
                                    ((6, 5), (2, 3), 1), ((3, 40), (4, 2), 3)):
        f = F.conv1d if len(plane) == 1 else F.conv2d
        c.add(f.__name__, [normal(2, 4, *plane), normal(6, 2, *kernel), normal(6)],
              lambda x, w, b, f=f, d=dilation: f(x, w, b, padding='same', dilation=d, groups=2),
              stride=1, padding=0, dilation=dilation, groups=2, same=1)
    c.save()


def pool_cases():
    c = Cases('ops_pool')
    for dims in (1, 2):
        max_pool = F.max_pool1d if dims == 1 else F.max_pool2d
        for plane, kernel, more in (
                ((8, 6), (2, 2), {}), ((3, 41), (2, 2), {'ceil_mode': True}),
                ((34, 9), (3, 2), {'stride': (2, 1), 'padding': (1, 1)}),
                ((7, 8), (3, 3), {'stride': (1, 2), 'padding': (1, 1)}),
                ((11, 12), (2, 3), {'stride': (3, 2), 'padding': (1, 0), 'ceil_mode': True}),
                ((7, 20), (2, 3), {'stride': (1, 1), 'padding': (0, 1), 'dilation': (3, 2)}),
                ((12, 26), (3, 3), {'stride': (9, 12)}), ((3, 4), (3, 4), {})):
            options = {'kernel_size': kernel, 'stride': kernel, 'padding': (0, 0),
                       'dilation': (1, 1), 'ceil_mode': False, **more}
            options = {k: v if k == 'ceil_mode' else list(v[:dims]) for k, v in options.items()}
            for x in (normal(2, 1, *plane[:dims]), (normal(2, *plane[:dims]) / 2).round()):
                c.add('max_pool%dd' % dims, [x], lambda x, f=max_pool, o=options:
                      f(x, **o, return_indices=True), **options)
    holes = normal(1, 1, 4, 20)
    holes[0, 0, 1, 2:18:5] = math.nan
    holes[0, 0, 2:, 6:12] = -math.inf
    c.add('max_pool2d', [holes], lambda x: F.max_pool2d(x, 2, return_indices=True),
          kernel_size=[2, 2])
    average_pool_cases(c)
    c.save()


def average_pool_cases(c):
    for dims in (1, 2):
        for plane, kernel, more in (
                ((8, 6), (2, 2), {}), ((41, 5), (2, 2), {'ceil_mode': True}),
                ((9, 36), (3, 2), {'stride': (2, 1), 'padding': (1, 1)}),
                ((7, 8), (3, 3), {'stride': (1, 2), 'padding': (1, 1), 'count_include_pad': False}),
                ((5, 21), (3, 3), {'stride': (2, 2), 'padding': (1, 1), 'ceil_mode': True}),
                ((10, 11), (3, 3), {'stride': (3, 3), 'padding': (0, 1), 'ceil_mode': True,
                                    'count_include_pad': False}),
                ((12, 26), (3, 3), {'stride': (9, 12)}), ((3, 4), (3, 4), {}),
                ((6, 4), (3, 2), {'divisor_override': 5} if dims == 2 else {})):
            options = {'kernel_size': kernel, 'stride': kernel, 'padding': (0, 0),
                       'ceil_mode': False, 'count_include_pad': True, **more}
            options = {k: list(v[:dims]) if isinstance(v, tuple) else v for k, v in options.items()}
            f = F.avg_pool1d if dims == 1 else F.avg_pool2d
            c.add('avg_pool%dd' % dims, [normal(2, 1, *plane[:dims])],
                  lambda x, f=f, o=options: f(x, **o), **options)
        for plane, size in (((8, 6), (4, 3)), ((7, 9), (3, 2)), ((5, 4), (1, 1)), ((3, 4), (5, 6)),
                            ((10, 20), (10, 1))):
            x, size = normal(2, 2, *plane[:dims]), list(size[:dims])
            f = F.adaptive_avg_pool1d if dims == 1 else F.adaptive_avg_pool2d
            c.add('adaptive_avg_pool%dd' % dims, [x], lambda x, f=f: f(x, size), size=size)
            f = F.adaptive_max_pool1d if dims == 1 else F.adaptive_max_pool2d
            c.add('adaptive_max_pool%dd' % dims, [x],
                  lambda x, f=f: f(x, size, return_indices=True), size=size)


def interpolate_cases():
    c = Cases('ops_interpolate')

    def add(x, mode, size=None, scale=None, **more):
        options = {'size': size, 'scale_factor': scale, 'mode': mode, **more}
        args = {} if size is None else {'size': size}
        args.update({} if scale is None else {'scale': scale})
        c.add('interpolate', [x], lambda x: F.interpolate(x, **options), mode=mode, **args, **more)
    for dims, linear in ((1, 'linear'), (2, 'bilinear')):
        for plane, size, scale in (((5, 4), (10, 8), (2.0, 2.0)), ((7, 9), (3, 4), (0.5, 0.6)),
                                   ((4, 6), (7, 1), (1.7, 2.3)), ((1, 5), (3, 21), (3.5, 1.0))):
            x, size, scale = normal(2, 2, *plane[:dims]), list(size[:dims]), list(scale[:dims])
            add(x, 'nearest', size=size)
            add(x, 'nearest', scale=scale)
            for align in (False, True):
                add(x, linear, size=size, align_corners=align)
                add(x, linear, scale=scale, align_corners=align)
    c.save()


def projected(x, w, b, h, c, r, reverse):
    """An LSTM's steps with a projection r."""
    steps = []
    for a in x.flip(0) if reverse else x:
        i, f, g, o = (a + F.linear(h, w, b)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = F.linear(o.sigmoid() * c.tanh(), r)
        steps.append(h)
    return torch.stack(steps[::-1] if reverse else steps), c


def scan(kind, x, w, b, h, c, reverse):
    """A recurrent layer's steps by PyTorch's cells, the products of the inputs being x."""
    eye, none = torch.eye(x.shape[2]).double(), torch.zeros(x.shape[2]).double()
    b = none if b is None else b
    zeros = torch.zeros(x.shape[1], w.shape[1]).double()
    h, c = zeros if h is None else h, zeros if c is None else c
    steps = []
    for a in x.flip(0) if reverse else x:
        if kind == 'lstm_scan':
            h, c = torch.lstm_cell(a, (h, c), eye, w, none, b)
        else:
            cell = {'rnn_scan': torch.rnn_tanh_cell, 'relu': torch.rnn_relu_cell,
                    'gru_scan': torch.gru_cell}[kind]
            h = cell(a, h, eye, w, none, b)
        steps.append(h)
    y = torch.stack(steps[::-1] if reverse else steps)
    return (y, c) if kind == 'lstm_scan' else y


def scan_cases():
    c = Cases('ops_rnn')
    for kind, gates in (('rnn_scan', 1), ('relu', 1), ('lstm_scan', 4), ('gru_scan', 3)):
        for t, b, n, full, reverse in ((1, 2, 3, True, False), (4, 3, 5, True, False),
                                       (4, 2, 3, True, True), (3, 2, 4, False, False),
                                       (2, 1, 20, False, True)):
            inputs = [normal(t, b, gates * n), grid((gates * n, n), -1, 1), normal(gates * n),
                      normal(b, n)] if full else [normal(t, b, gates * n),
                                                  grid((gates * n, n), -1, 1), None, None]
            if kind == 'lstm_scan':
                inputs.append(normal(b, n) if full else None)
            c.add('rnn_scan' if kind == 'relu' else kind, inputs,
                  lambda x, w, b, h, c=None: scan(kind, x, w, b, h, c, reverse),
                  reverse=reverse, relu=kind == 'relu')
    for t, b, n, p, reverse in ((4, 3, 5, 2, False), (3, 2, 4, 3, True)):
        c.add('lstm_scan', [normal(t, b, 4 * n), grid((4 * n, p), -1, 1), normal(4 * n),
                            normal(b, p), normal(b, n), grid((p, n), -1, 1)],
              lambda x, w, b, h, c, r: projected(x, w, b, h, c, r, reverse), reverse=reverse)
    c.save()


def attention(q, k, v, padding, causal, scale):
    """softmax(scale q kᵀ) v; a query without keys gives zeros."""
    scores = (q @ k.transpose(-2, -1)) * (scale or 1 / math.sqrt(q.shape[-1]))
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    if causal:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    if padding is not None:
        hidden = hidden | padding[:, None, None, :]
    weights = scores.masked_fill(hidden, -1e300).softmax(-1).masked_fill(hidden, 0)
    return weights @ v


def rotary(x, base, start, interleaved):
    t, d = x.shape[-2:]
    angle = (torch.arange(t).double() + start)[:, None] * base ** (
        -torch.arange(0, d, 2).double() / d)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :d // 2], x[..., d // 2:])
    turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def embedding(indices, table, options):
    """The rows, and the table as it is then."""
    written = table.detach().clone()
    rows = F.embedding(indices, written.requires_grad_(True), **options)
    again = F.embedding(indices, table, **{k: v for k, v in options.items() if 'norm' not in k})
    return again + (rows - again).detach(), written.detach()


def nn_cases():
    c = Cases('ops_nn')
    c.add('embedding', [torch.tensor([[1, 0, 4], [4, 4, 2]]), normal(6, 3)], F.embedding)
    table = normal(6, 3)
    for ours, theirs in (({'padding': 4}, {'padding_idx': 4}),
                         ({'padding': -5}, {'padding_idx': -5}),
                         ({'scale_by_frequency': True}, {'scale_grad_by_freq': True}),
                         ({'scale_by_frequency': True, 'padding': 0},
                          {'scale_grad_by_freq': True, 'padding_idx': 0}),
                         ({'max_norm': 1.}, {'max_norm': 1.}),
                         ({'max_norm': .5, 'norm_p': 1.}, {'max_norm': .5, 'norm_type': 1.}),
                         ({'max_norm': 1., 'norm_p': 3., 'padding': 1},
                          {'max_norm': 1., 'norm_type': 3., 'padding_idx': 1})):
        c.add('embedding', [torch.tensor([[1, 0, 4], [4, 4, 2]]), table],
              lambda i, w: embedding(i, w, theirs), wanted=[1], **ours)
    c.add('dropout', [normal(3, 4)], torch.clone, p=0.5, training=False)
    padding = torch.tensor([[False, False, True, False, True], [False, True, False, False, False]])
    everything = torch.tensor([[True] * 5, [False] * 5])
    for tq, tk, causal, scale, mask in ((5, 5, False, 0, None), (5, 5, True, 0, None),
                                        (3, 5, True, 0.5, None), (7, 5, True, 0, padding),
                                        (4, 5, False, 0, padding), (4, 5, False, 0, everything)):
        inputs = [normal(2, 3, tq, 4), normal(2, 3, tk, 4), normal(2, 3, tk, 4), mask]
        c.add('attention', inputs, lambda q, k, v, m: attention(q, k, v, m, causal, scale),
              causal=causal, scale=scale)
    for causal, mask in ((True, None), (False, padding), (True, padding)):
        def fused(x, m):
            b, t, width = x.shape
            q, k, v = (u.view(b, t, 2, -1).transpose(1, 2) for u in x.split(width // 3, 2))
            return attention(q, k, v, m, causal, 0).transpose(1, 2).reshape(b, t, width // 3)
        c.add('attention_qkv', [normal(2, 5, 18), mask], fused, heads=2, causal=causal, scale=0)
    # Longer than the blocks of the kernel.
    long = [normal(1, 1, 90, 2), normal(1, 1, 90, 2), normal(1, 1, 90, 2), None]
    c.add('attention', long, lambda q, k, v, m: attention(q, k, v, m, True, 0), causal=True,
          scale=0)
    for interleaved in (False, True):
        c.add('rotary', [normal(2, 3, 6)], lambda x: rotary(x, 10000., 0, interleaved), base=0,
              start=0, interleaved=interleaved)
        c.add('rotary', [normal(2, 3, 6)], lambda x: rotary(x, 500., 7, interleaved), base=500,
              start=7, interleaved=interleaved)
    c.save()


# ---- optimizers, schedules ----------------------------------------------------------------------

OPTIMIZERS = {
    'sgd': (torch.optim.SGD, {'lr': 0.1}),
    'sgd_momentum': (torch.optim.SGD, {'lr': 0.1, 'momentum': 0.9}),
    'sgd_dampening': (torch.optim.SGD, {'lr': 0.1, 'momentum': 0.9, 'dampening': 0.5}),
    'sgd_nesterov': (torch.optim.SGD, {'lr': 0.1, 'momentum': 0.9, 'nesterov': True}),
    'sgd_decay': (torch.optim.SGD, {'lr': 0.1, 'momentum': 0.9, 'weight_decay': 0.1}),
    'adam': (torch.optim.Adam, {'lr': 0.01}),
    'adam_decay': (torch.optim.Adam, {'lr': 0.01, 'betas': [0.8, 0.95], 'eps': 1e-6,
                                      'weight_decay': 0.1}),
    'adamw': (torch.optim.AdamW, {'lr': 0.01}),
    'adamw_decay': (torch.optim.AdamW, {'lr': 0.01, 'betas': [0.8, 0.95], 'eps': 1e-6,
                                        'weight_decay': 0.1}),
}


def optim_cases():
    """grads.I and start.I are common; name/after.I [10, …] holds parameter I after each step."""
    shapes = [(5, 3), (7,)]
    tensors, metadata = {}, {}
    for i, shape in enumerate(shapes):
        tensors['start.%d' % i] = normal(*shape)
        tensors['grads.%d' % i] = normal(10, *shape)
    for name, (cls, options) in OPTIMIZERS.items():
        params = [tensors['start.%d' % i].double().requires_grad_(True) for i in range(2)]
        optim, after = cls(params, **options), [[], []]
        for step in range(10):
            for i, p in enumerate(params):
                p.grad = tensors['grads.%d' % i][step].double()
            optim.step()
            for i, p in enumerate(params):
                after[i].append(p.detach().float().clone())
        for i in range(2):
            tensors['%s/after.%d' % (name, i)] = torch.stack(after[i])
        kind = {torch.optim.SGD: 'sgd', torch.optim.Adam: 'adam', torch.optim.AdamW: 'adamw'}[cls]
        metadata[name] = json.dumps({'kind': kind, **options})
    clip_cases(tensors, metadata)
    save('optim', tensors, metadata)


def clip_cases(tensors, metadata):
    """The first step's gradients, clipped."""
    grads = [tensors['grads.%d' % i][0] for i in range(2)]
    params = [g.double().clone().requires_grad_(True) for g in grads]
    for name, clip in (('clip_norm', lambda: nn.utils.clip_grad_norm_(params, 1.5)),
                       ('clip_norm_inf', lambda: nn.utils.clip_grad_norm_(params, 0.5,
                                                                          float('inf'))),
                       ('clip_norm_small', lambda: nn.utils.clip_grad_norm_(params, 1e6)),
                       ('clip_value', lambda: nn.utils.clip_grad_value_(params, 0.75))):
        for p, g in zip(params, grads):
            p.grad = g.double().clone()
        norm = clip()
        if norm is not None:
            tensors[name + '/norm'] = norm.float()
        for i, p in enumerate(params):
            tensors['%s/after.%d' % (name, i)] = p.grad.float()
    for name, value in (('clip_norm', 1.5), ('clip_norm_inf', 0.5), ('clip_norm_small', 1e6),
                        ('clip_value', 0.75)):
        kind = name.replace('_inf', '').replace('_small', '')
        metadata[name] = json.dumps({'kind': kind, 'max': value, 'inf': name == 'clip_norm_inf'})


def sched_cases():
    """name: the learning rate at steps 0 … 29, f64; lr 0.1 is the base."""
    def rates(make):
        optim = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        sched, out = make(optim), []
        for _ in range(30):
            out.append(optim.param_groups[0]['lr'])
            optim.step()
            sched.step()
        return torch.tensor(out, dtype=torch.float64)

    s = torch.optim.lr_scheduler
    cases = {
        'constant': (lambda o: s.ConstantLR(o, factor=1.0, total_iters=1), {}),
        'step': (lambda o: s.StepLR(o, 8, 0.5), {'step_size': 8, 'gamma': 0.5}),
        'cosine': (lambda o: s.CosineAnnealingLR(o, 29, 0.001),
                   {'total_steps': 29, 'min_lr': 0.001}),
        'linear_warmup': (lambda o: s.LambdaLR(o, lambda i: min(1, (i + 1) / 10)),
                          {'warmup_steps': 10}),
        'warmup_cosine': (lambda o: s.LambdaLR(o, lambda i: (i + 1) / 5 if i < 5 else 0.1 + 0.9 * (
            1 + math.cos(math.pi * min(1, (i - 5) / 20))) / 2),
            {'warmup_steps': 5, 'total_steps': 25, 'min_ratio': 0.1}),
        'one_cycle': (lambda o: s.OneCycleLR(o, max_lr=0.1, total_steps=31),
                      {'total_steps': 31, 'pct_start': 0.3, 'div_factor': 25,
                       'final_div_factor': 1e4}),
    }
    tensors = {name: rates(make) for name, (make, _) in cases.items()}
    save('sched', tensors, {name: json.dumps({'lr': 0.1, **args})
                            for name, (_, args) in cases.items()})


# ---- recurrent layers ---------------------------------------------------------------------------

def rnn_cases():
    """name/P: parameter P; name/inI (x, h, c), name/outI, name/seedI, name/grad.P, name/gradI."""
    tensors, metadata = {}, {}
    for kind in ('rnn', 'relu', 'lstm', 'gru'):
        for name, layers, both, first, bias, state in (
                ('plain', 1, False, False, True, False), ('deep', 3, False, True, True, True),
                ('both', 2, True, False, True, True), ('unbiased', 1, True, True, False, False)):
            cls = {'lstm': nn.LSTM, 'gru': nn.GRU}.get(kind, nn.RNN)
            more = {'nonlinearity': 'relu'} if kind == 'relu' else {}
            m = cls(5, 6, layers, bias=bias, batch_first=first, bidirectional=both, **more).double()
            cell_case(tensors, metadata, '%s_%s' % (kind, name), m, state, {
                'kind': kind, 'in': 5, 'hidden': 6, 'layers': layers, 'bidirectional': both,
                'batch_first': first, 'bias': bias})
        cls = {'lstm': nn.LSTMCell, 'gru': nn.GRUCell}.get(kind, nn.RNNCell)
        for state in (False, True):
            cell_case(tensors, metadata, '%s_cell_%d' % (kind, state), cls(5, 6, **more).double(),
                      state, {'kind': kind, 'in': 5, 'hidden': 6, 'is_cell': True, 'bias': True})
    save('rnn', tensors, metadata)


def cell_case(tensors, metadata, name, m, state, config):
    is_cell = config.get('is_cell', False)
    for p in m.parameters():
        p.data = grid(p.shape, -1, 1).double()
    directions = config.get('layers', 1) * (2 if config.get('bidirectional') else 1)
    x = normal(3, 5) if is_cell else normal(3, 4, 5) if config['batch_first'] else normal(4, 3, 5)
    shape = (3, 6) if is_cell else (directions, 3, 6)
    inputs = [x] + [normal(*shape) for _ in range(2 if config['kind'] == 'lstm' else 1) if state]
    leaves = [i.double().requires_grad_(True) for i in inputs]
    given = None if not state else tuple(leaves[1:]) if config['kind'] == 'lstm' else leaves[1]
    out = m(leaves[0], given)
    outs = [out] if torch.is_tensor(out) else list(out) if is_cell else [out[0]] + (
        list(out[1]) if isinstance(out[1], tuple) else [out[1]])
    seeds = [grid(o.shape) for o in outs]
    torch.autograd.backward(outs, [s.double() for s in seeds])
    for kind, list_ in (('in', inputs), ('out', outs), ('seed', seeds),
                        ('grad', [i.grad for i in leaves])):
        for i, t in enumerate(list_):
            tensors['%s/%s%d' % (name, kind, i)] = t.detach().float()
    for key, p in m.named_parameters():
        tensors['%s/%s' % (name, key)] = p.detach().float()
        tensors['%s/grad.%s' % (name, key)] = p.grad.float()
    metadata[name] = json.dumps({**config, 'inputs': len(inputs), 'outputs': len(outs)})


# ---- a GPT --------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2)
                   for u in self.qkv(self.ln1(x)).split(c, 2))
        y = attention(q, k, v, None, True, 0)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, context, width, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, idx, target):
        x = self.tok(idx) + self.pos.weight[:idx.shape[1]]
        logits = self.head(self.ln(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def gpt_case():
    """The weights before training by their names, idx and target [10, B, T], losses [10]."""
    shape = {'vocab': 32, 'context': 16, 'width': 24, 'heads': 2, 'layers': 2}
    model, batch = GPT(**shape), 4
    tensors = {name: x.detach().clone() for name, x in model.state_dict().items()}
    model = model.double()
    idx = torch.randint(shape['vocab'], (10, batch, shape['context']))
    target = torch.randint(shape['vocab'] // 2, (10, batch, shape['context']))
    optim, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(10):
        loss = model(idx[step], target[step])
        optim.zero_grad()
        loss.backward()
        if step == 0:
            grads = {n: p.grad.float().norm() for n, p in model.named_parameters()}
        optim.step()
        losses.append(loss.item())
    tensors.update({'grad_norm.' + n: g for n, g in grads.items()})
    tensors.update(idx=idx.to(torch.uint8), target=target.to(torch.uint8),
                   losses=torch.tensor(losses, dtype=torch.float64))
    save('gpt', tensors, {'config': json.dumps({**shape, 'batch': batch, 'lr': 1e-2,
                                                'weight_decay': 0.01})})


if __name__ == '__main__':
    for make in (math_cases, shape_cases, reduce_cases, linear_cases, loss_cases, norm_cases,
                 channel_norm_cases, nn_cases, scan_cases, conv_cases, pool_cases,
                 interpolate_cases, optim_cases, sched_cases, rnn_cases, gpt_case):
        torch.manual_seed(7)
        make()
