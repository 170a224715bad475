#!/usr/bin/env python3
"""More golden values from PyTorch, as make_golden.py's: operations of op_volume.h and
op_feature.h.

    ops_volume, ops_feature     golden_op_test.c
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.utils.parametrizations import _SpectralNorm

from make_golden import Cases, normal, positive


def volume_cases():
    c = Cases('ops_volume')
    for n, channels, out, kernel, more in (
            (2, 3, 4, (3, 3, 3), {}), (1, 2, 9, (1, 1, 1), {}),
            (2, 4, 6, (3, 2, 1), {'padding': (1, 0, 2)}),
            (2, 4, 6, (3, 3, 3), {'stride': (2, 1, 2), 'padding': (2, 1, 1), 'groups': 2}),
            (1, 3, 3, (2, 2, 2), {'stride': (3, 2, 3), 'groups': 3}),
            (2, 2, 5, (2, 3, 2), {'dilation': (2, 1, 2), 'padding': (1, 2, 0)}),
            (1, 2, 3, (2, 2, 2), {'stride': (2, 2, 2), 'dilation': (3, 1, 2), 'padding': 1})):
        x = normal(n, channels, 4, 4, 5)
        options = {'stride': 1, 'padding': 0, 'dilation': 1, 'groups': 1, **more}
        w = normal(out, channels // options['groups'], *kernel)
        c.add('conv3d', [x, w, normal(out)], lambda x, w, b: F.conv3d(x, w, b, **options),
              **options)
        c.add('conv3d', [x[0], w, None], lambda x, w, b: F.conv3d(x, w, b, **options), **options)
        w = normal(channels, out // options['groups'], *kernel)
        stride = options['stride']
        options['output_padding'] = [int(s > 1) for s in (stride if isinstance(stride, tuple)
                                                          else [stride] * 3)]
        c.add('conv_transpose3d', [x[:, :, :2], w, normal(out)],
              lambda x, w, b: F.conv_transpose3d(x, w, b, **options), **options)
    c.add('conv3d', [normal(1, 4, 4, 5, 4), normal(6, 2, 2, 3, 2), normal(6)],
          lambda x, w, b: F.conv3d(x, w, b, padding='same', dilation=(1, 2, 1), groups=2),
          stride=1, padding=0, dilation=(1, 2, 1), groups=2, same=1)
    pool_cases(c)
    lp_pool_cases(c)
    for size, scale, mode, more in (((6, 3, 9), None, 'nearest', {}),
                                    (None, (1.7, 0.6, 2.0), 'nearest', {}),
                                    ((6, 3, 9), None, 'trilinear', {}),
                                    (None, (0.7, 2.0, 1.3), 'trilinear', {}),
                                    ((1, 7, 4), None, 'trilinear', {'align_corners': True})):
        args = {'size': size} if scale is None else {'scale': scale}
        c.add('interpolate', [normal(2, 2, 4, 5, 4)],
              lambda x: F.interpolate(x, size, scale, mode, **more), mode=mode, **args, **more)
    unpool_cases(c)
    c.save()


def pool_cases(c):
    for kernel, more in (((2, 2, 2), {}), ((3, 2, 2), {'stride': (2, 1, 3), 'padding': (1, 1, 1)}),
                         ((2, 3, 2), {'stride': (3, 2, 2), 'padding': (1, 0, 1),
                                      'ceil_mode': True}),
                         ((2, 2, 2), {'stride': (1, 1, 1), 'dilation': (3, 1, 2)}),
                         ((5, 4, 6), {})):
        options = {'kernel_size': kernel, 'stride': kernel, 'padding': (0, 0, 0),
                   'dilation': (1, 1, 1), 'ceil_mode': False, **more}
        for x in (normal(2, 1, 5, 4, 6), (normal(2, 5, 4, 6) / 2).round()):
            c.add('max_pool3d', [x], lambda x: F.max_pool3d(x, **options, return_indices=True),
                  **options)
    for kernel, more in (((2, 2, 2), {}), ((3, 2, 2), {'stride': (2, 1, 3), 'padding': (1, 1, 1)}),
                         ((3, 3, 2), {'stride': (2, 2, 2), 'padding': (1, 1, 1),
                                      'ceil_mode': True, 'count_include_pad': False}),
                         ((2, 3, 2), {'divisor_override': 5}),
                         ((3, 3, 3), {'stride': (2, 2, 2), 'padding': (1, 1, 1),
                                      'ceil_mode': True})):
        options = {'kernel_size': kernel, 'stride': kernel, 'padding': (0, 0, 0),
                   'ceil_mode': False, 'count_include_pad': True, **more}
        c.add('avg_pool3d', [normal(2, 1, 5, 4, 6)], lambda x: F.avg_pool3d(x, **options),
              **options)
    for size in ((2, 2, 3), (3, 3, 4), (1, 1, 1), (7, 5, 6)):
        x = normal(2, 2, 5, 4, 6)
        c.add('adaptive_avg_pool3d', [x], lambda x: F.adaptive_avg_pool3d(x, size), size=size)
        c.add('adaptive_max_pool3d', [x],
              lambda x: F.adaptive_max_pool3d(x, size, return_indices=True), size=size)


def unpool_cases(c):
    for dims in (1, 2, 3):
        pool, f = getattr(F, 'max_pool%dd' % dims), getattr(F, 'max_unpool%dd' % dims)
        for kernel, stride, padding, size in (((2, 2, 2), (2, 2, 2), (0, 0, 0), None),
                                              ((2, 2, 3), (2, 2, 3), (0, 0, 0), (7, 5, 6)),
                                              ((3, 2, 2), (3, 3, 2), (1, 0, 1), (6, 5, 6))):
            kernel, stride, padding = kernel[:dims], stride[:dims], padding[:dims]
            x = normal(2, 2, *(size or (6, 4, 6))[:dims])
            for x in (x, x[0]):
                y, at = pool(x, kernel, stride, padding, return_indices=True)
                more = {} if size is None else {'size': size[:dims]}
                c.add(f.__name__, [y, at],
                      lambda y, at: f(y, at, kernel, stride, padding, more.get('size')),
                      kernel_size=kernel, stride=stride, padding=padding, **more)


def lp_pool_cases(c):
    for dims, f in ((1, F.lp_pool1d), (2, F.lp_pool2d), (3, F.lp_pool3d)):
        for p, kernel, stride, ceil_mode in ((2, (2, 3, 2), None, False),
                                             (3, (3, 2, 2), (2, 1, 3), True),
                                             (1.5, (2, 2, 2), (1, 2, 2), False)):
            kernel, stride = kernel[:dims], (stride or kernel)[:dims]
            c.add(f.__name__, [positive(2, 2, *(5, 4, 6)[:dims])],
                  lambda x: f(x, p, kernel if dims > 1 else kernel[0],
                              stride if dims > 1 else stride[0], ceil_mode),
                  p=p, kernel_size=kernel, stride=stride, ceil_mode=ceil_mode)


def feature_cases():
    c = Cases('ops_feature')
    for factor, shape in ((1, (2, 3, 2)), (2, (2, 8, 2, 3)), (3, (2, 1, 9, 1, 2))):
        c.add('pixel_shuffle', [normal(*shape)], lambda x: F.pixel_shuffle(x, factor),
              factor=factor)
    for factor, shape in ((1, (2, 3, 2)), (2, (2, 2, 4, 6)), (3, (2, 1, 2, 3, 6))):
        c.add('pixel_unshuffle', [normal(*shape)], lambda x: F.pixel_unshuffle(x, factor),
              factor=factor)
    for groups, shape in ((2, (2, 6, 2)), (3, (1, 6, 2, 2)), (1, (2, 3))):
        c.add('channel_shuffle', [normal(*shape)], lambda x:
              F.channel_shuffle(x.reshape(*shape, *[1] * (4 - len(shape))), groups).reshape(shape),
              factor=groups)
    for p, dim in ((2, 1), (2, -1), (1, 0), (3, 1), (float('inf'), 1)):
        c.add('normalize', [normal(2, 3, 4)], lambda x: F.normalize(x, p, dim),
              p=min(p, 1e9), dim=dim)
    for shape, size, more in (((2, 7, 4), 3, {}), ((2, 4, 2, 3), 2, {'alpha': 0.5, 'beta': 0.5,
                                                                     'k': 2.0}),
                              ((1, 3, 2, 2, 2), 6, {'alpha': 1.0})):
        c.add('local_response_norm', [normal(*shape)],
              lambda x: F.local_response_norm(x, size, **more), size=size, **more)
    for shape in ((4,), (2, 4), (2, 3, 4)):
        for bias in (normal(3), None):
            c.add('bilinear', [normal(*shape), normal(*shape[:-1], 5), normal(3, 4, 5), bias],
                  F.bilinear)
    bag_cases(c)
    for shape, dim in (((3, 4), 0), ((2, 3, 4), 1), ((4, 2, 2), -1)):
        sizes = [n if i == dim % len(shape) else 1 for i, n in enumerate(shape)]
        c.add('weight_norm', [normal(*shape), positive(*sizes)],
              lambda v, g: torch._weight_norm(v, g, dim % len(shape)) if dim != 1 else
              v * (g / v.norm(dim=(0, 2), keepdim=True)), dim=dim)
    for shape, training in (((3, 4), False), ((3, 4), True), ((4, 2, 3), True)):
        c.add('spectral_norm', [normal(*shape), positive(shape[0]),
                                positive(math.prod(shape[1:]))],
              lambda w, u, v: spectral_norm(w, u, v, 2 if training else 0), wanted=[0],
              training=training, iterations=2)
    c.save()


def spectral_norm(w, u, v, iterations):
    """The weight, u and v: PyTorch's own parametrization, whose u and v are given."""
    p = _SpectralNorm(w.detach(), max(iterations, 1))
    p._u.copy_(u)
    p._v.copy_(v)
    return p.train(iterations > 0)(w), p._u, p._v


def bag_cases(c):
    table, square = normal(6, 3), torch.tensor([[0, 2, 5, 2], [1, 1, 3, 0]])
    row, offsets = torch.tensor([1, 4, 4, 0, 5, 2]), torch.tensor([0, 2, 2, 5])
    for mode in ('mean', 'sum', 'max'):
        for padding in (None, 2, 1, -2):
            args = {'mode': mode} | ({} if padding is None else {'padding': padding})
            c.add('embedding_bag', [square, table, None, None],
                  lambda x, w, o, f: F.embedding_bag(x, w, mode=mode, padding_idx=padding),
                  wanted=[1], **args)
            for last, begins in ((False, offsets), (True, torch.tensor([0, 2, 2, 6]))):
                c.add('embedding_bag', [row, table, begins, None],
                      lambda x, w, o, f: F.embedding_bag(x, w, o, mode=mode, padding_idx=padding,
                                                         include_last_offset=last),
                      wanted=[1], last=last, **args)
        often = mode != 'max'
        c.add('embedding_bag', [row, table, offsets, None],
              lambda x, w, o, f: F.embedding_bag(x, w.clone(), o, 1., 1., often, mode),
              wanted=[1], mode=mode, max_norm=1, norm_p=1, scale_by_frequency=often)
    c.add('embedding_bag', [square, table, None, normal(2, 4)],
          lambda x, w, o, f: F.embedding_bag(x, w, mode='sum', per_sample_weights=f), mode='sum')
    c.add('embedding_bag', [row, table, offsets, normal(6)],
          lambda x, w, o, f: F.embedding_bag(x, w, o, mode='sum', per_sample_weights=f,
                                             padding_idx=4), mode='sum', padding=4)


if __name__ == '__main__':
    for make in (volume_cases, feature_cases):
        torch.manual_seed(11)
        make()
