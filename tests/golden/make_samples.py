#!/usr/bin/env python3
"""PyTorch's own samples of operations and modules, from the databases that its tests walk, as cases
of golden_samples_test.c (sample_calls.py and module_calls.py say how).

    make_samples.py     the few that are committed: samples.safetensors
    write(FILE)         all of them; returns {(name, dtype): {reason: count}} of those
                        left out

A case is as make_golden.py's, but inputs are of the dtype that the sample is for, and outputs,
seeds and gradients are f64: PyTorch's values of the same inputs in f64.
"""
import collections
import itertools
import json
import os
import struct
import sys
import warnings

import torch

from module_calls import module_call
from sample_calls import CALLS, Skip

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {torch.float64: 'F64', torch.float32: 'F32', torch.bfloat16: 'BF16', torch.int64: 'I64',
         torch.int32: 'I32', torch.uint8: 'U8', torch.bool: 'BOOL'}
DTYPES = {'f64': torch.float64, 'f32': torch.float32, 'bf16': torch.bfloat16}
ELEMENTS_MAX = 20000
INPUTS_MAX, OUTPUTS_MAX = 56, 8  # golden_args.h


def bytes_of(x):
    x = x.detach().contiguous()
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy().tobytes()


def save(path, tensors, metadata):
    header, data, offset = {'__metadata__': metadata}, [], 0
    for key, x in tensors.items():
        raw = bytes_of(x)
        header[key] = {'dtype': NAMES[x.dtype], 'shape': list(x.shape),
                       'data_offsets': [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(data))


def check_inputs(xs):
    if len(xs) > INPUTS_MAX:
        raise Skip('more than %d inputs' % INPUTS_MAX)
    for x in xs:
        if x is not None and (not torch.is_tensor(x) or x.dtype not in NAMES):
            raise Skip('an input of another dtype')
        if x is not None and (x.numel() > ELEMENTS_MAX or x.ndim > 8):
            raise Skip('large')


def gradients(leaves, ys):
    roots = [i for i, y in enumerate(ys) if y.requires_grad]
    seeds = {i: (torch.rand(ys[i].shape, dtype=torch.float64) * 64).round() / 64 + 0.5
             for i in roots}
    grads = torch.autograd.grad([ys[i] for i in roots], leaves, [seeds[i] for i in roots],
                                allow_unused=True) if roots and leaves else []
    return seeds, grads


def make_case(call, sample, is_differentiable):
    """The tensors of a case, and its description."""
    ours, xs, f, args = call(sample)
    args = dict(args)
    constant = args.pop('constant', [])
    check_inputs(xs)
    if xs[0] is not None and xs[0].ndim == 0 and {'dim', 'dims', 'a'} & set(args):
        raise Skip('a dimension of a scalar: refused here')
    xs = [None if x is None else x.detach().clone() for x in xs]
    wide = [None if x is None else x.double() if x.is_floating_point() else x for x in xs]
    wanted = [i for i, x in enumerate(wide) if x is not None and x.is_floating_point() and
              i not in constant and is_differentiable]
    for i in wanted:
        wide[i] = wide[i].clone().requires_grad_(True)
    ys = f(*wide)
    ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
    if not all(torch.is_tensor(y) and y.dtype in NAMES for y in ys) or len(ys) > OUTPUTS_MAX:
        raise Skip('outputs')
    seeds, grads = gradients([wide[i] for i in wanted], ys)
    tensors = {'in%d' % i: x for i, x in enumerate(xs) if x is not None}
    tensors.update({'out%d' % i: y for i, y in enumerate(ys)})
    tensors.update({'seed%d' % i: s for i, s in seeds.items()})
    if seeds:
        tensors.update({'grad%d' % i: torch.zeros_like(wide[i]) if g is None else g
                        for i, g in zip(wanted, grads)})
    return tensors, {'op': ours, 'args': args, 'inputs': len(xs), 'outputs': len(ys)}


def samples_of_operations():
    """(name, dtype, what makes a case of a sample, whether there are gradients, samples)"""
    from torch.testing._internal.common_methods_invocations import op_db
    for op in (op for op in op_db if op.name in CALLS):
        for short, dtype in DTYPES.items():
            if dtype in op.dtypes:
                torch.manual_seed(5)
                yield (op.name, short, CALLS[op.name], op.supports_autograd,
                       op.sample_inputs('cpu', dtype, requires_grad=False))


def samples_of_modules():
    """The same; a module trains, and if that differs is evaluated, too."""
    from torch.testing._internal.common_modules import module_db
    for info in module_db:
        for short, dtype in DTYPES.items():
            for training in (True, False) if info.train_and_eval_differ else (True,):
                torch.manual_seed(5)
                yield (info.name, short, module_call(info.module_cls, dtype, training), True,
                       info.module_inputs_func(info, device='cpu', dtype=dtype,
                                               requires_grad=False, training=training))


def samples_of_classes():
    """The same of classes that its database lacks."""
    from torch.testing._internal.common_modules import FunctionInput, ModuleInput
    cls = torch.nn.AdaptiveLogSoftmaxWithLoss
    for short, dtype in DTYPES.items():
        torch.manual_seed(5)
        made = []
        for rows, classes, cutoffs, more in (((7,), 20, [4, 10], {}), ((), 9, [3], {}),
                                             ((5,), 30, [2, 9, 15], {'div_value': 2.0}),
                                             ((2,), 12, [11], {'head_bias': True})):
            made.append(ModuleInput(FunctionInput(16, classes, cutoffs, **more),
                                    FunctionInput(torch.randn(*rows, 16, dtype=dtype),
                                                  torch.randint(0, classes, rows))))
        yield cls.__name__, short, module_call(cls, dtype, True), True, made


def cases():
    """(tensors, metadata, reasons of those left out by name and dtype)."""
    tensors, metadata, left_out = {}, {}, collections.defaultdict(collections.Counter)
    numbers = collections.Counter()
    for name, short, call, is_differentiable, samples in itertools.chain(
            samples_of_operations(), samples_of_modules(), samples_of_classes()):
        for sample in samples:
            try:
                made, description = make_case(call, sample, is_differentiable)
            except Skip as skip:
                left_out[name, short][str(skip)] += 1
                continue
            except (RuntimeError, IndexError, TypeError, ValueError) as error:
                left_out[name, short]['PyTorch: ' + str(error).split('\n')[0][:60]] += 1
                continue
            case = '%s#%d#%s' % (name, numbers[name, short], short)
            numbers[name, short] += 1
            metadata[case] = json.dumps(description, separators=(',', ':'))
            tensors.update({'%s/%s' % (case, key): x for key, x in made.items()})
    return tensors, metadata, left_out


def write(path):
    tensors, metadata, left_out = cases()
    save(path, tensors, metadata)
    return left_out


def is_module(name):
    return name not in CALLS


def small(name):
    """How many numbers a small sample has; modules have more."""
    return 600 if is_module(name) else 150


def few(tensors, metadata):
    """In f32 and bf16 the first two small samples of each operation, the first of each module."""
    parts, counts, chosen = collections.defaultdict(dict), collections.Counter(), {}
    for key, x in tensors.items():
        parts[key.rsplit('/', 1)[0]][key] = x
    for name, description in metadata.items():
        op, _, dtype = name.split('#')
        size = sum(x.numel() for x in parts[name].values())
        if dtype != 'f64' and size <= small(op) and counts[op, dtype] < 2 - is_module(op):
            counts[op, dtype] += 1
            chosen[name] = description
    return {key: x for name in chosen for key, x in parts[name].items()}, chosen


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    try:
        chosen = few(*cases()[:2])
    except ImportError as error:  # the Python of `tools/peers torch` has all it wants
        print('samples.safetensors stays as it is: %s' % error)
        sys.exit(0)
    save(os.path.join(HERE, 'samples.safetensors'), *chosen)
    sys.stdout.write('%d samples\n' % len(chosen[1]))
