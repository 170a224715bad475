#!/usr/bin/env python3
"""More golden values from PyTorch, as make_golden.py's: operations of op_sample.h, and modes of
interpolate.

    ops_sampling     golden_op_test.c
"""
import itertools

import torch
import torch.nn.functional as F

from make_golden import Cases, normal


def interpolate_cases(c):
    """No width of 1 with antialias: PyTorch 2.15 makes all rows the first one there."""
    def add(shape, mode, size=None, scale=None, **more):
        args = {k: v for k, v in (('size', size), ('scale', scale)) if v is not None}
        c.add('interpolate', [normal(1, 2, *shape)],
              lambda x: F.interpolate(x, size, scale, mode, **more), mode=mode, **args, **more)
    for shape, size, scale in (((5, 4, 3), (10, 8, 7), (2., 2., 1.3)),
                               ((7, 9, 4), (3, 4, 2), (.5, .6, .7)),
                               ((4, 6, 5), (1, 7, 5), (1.7, 2.3, 1.)),
                               ((1, 5, 2), (3, 21, 3), (3.5, 1., .5))):
        for dims, mode in itertools.product((1, 2, 3), ('nearest-exact', 'area')):
            add(shape[:dims], mode, size=size[:dims])
            add(shape[:dims], mode, scale=scale[:dims])
        for align, (mode, antialias) in itertools.product(
                (False, True), (('bicubic', False), ('bicubic', True), ('bilinear', True))):
            more = {'align_corners': align, 'antialias': antialias}
            add(shape[:2], mode, size=size[:2], **more)
            add(shape[:2], mode, scale=scale[:2], **more)
    for mode in ('bilinear', 'bicubic'):
        add((17, 23), mode, size=(3, 4), align_corners=False, antialias=True)


def grid_cases(c):
    for shape, points in (((3, 4), (3, 5)), ((3, 2, 4), (2, 3, 2)), ((1, 5), (2, 2))):
        for mode, padding, align in itertools.product(
                ('bilinear', 'nearest', 'bicubic'), ('zeros', 'border', 'reflection'),
                (False, True)):
            grid = (torch.rand(2, *points, len(shape)) * 512).round() / 128 - 2
            c.add('grid_sample', [normal(2, 2, *shape), grid],
                  lambda x, g: F.grid_sample(x, g, mode, padding, align),
                  mode=mode, padding=padding, align_corners=align)


def affine_cases(c):
    for size, align in itertools.product(((2, 3, 4, 5), (1, 1, 1, 3), (2, 1, 3, 2, 4)),
                                         (False, True)):
        dims = len(size) - 2
        c.add('affine_grid', [normal(size[0], dims, dims + 1)],
              lambda t: F.affine_grid(t, size, align), size=size, align_corners=align)


def lanczos_cases(c):
    def add(shape, **how):
        named = {{'scale_factor': 'scale'}.get(k, k): v for k, v in how.items()}
        c.add('interpolate', [normal(1, 2, *shape)],
              lambda x: F.interpolate(x, **how, mode='lanczos', antialias=True),
              mode='lanczos', antialias=True, **named)
    for shape, size, scale in (((7, 9), (3, 4), (.5, .6)), ((4, 6), (11, 7), (2.7, 1.2)),
                               ((1, 5), (3, 2), (3., .4)), ((17, 23), (3, 4), (.2, .25))):
        add(shape, size=size)
        add(shape, scale_factor=scale)


if __name__ == '__main__':
    torch.manual_seed(12)
    cases = Cases('ops_sampling')
    interpolate_cases(cases)
    grid_cases(cases)
    affine_cases(cases)
    lanczos_cases(cases)
    cases.save()
