#!/usr/bin/env python3
"""RMSprop, Adagrad, Lion, LAMB and Adafactor over ten steps: `make golden` writes
optim_kinds.safetensors.

start.I and grads.I [10, …] are common, case/after.I [10, …] is parameter I after each step; the
metadata of a case is its options. RMSprop and Adagrad are torch's; the others, which torch 1.13
has not, are written out below from their papers, in f64.
"""
import json

import numpy as np
import torch

from make_golden import save

SHAPES = [(5, 3), (7,), (2, 3, 4), ()]
STEPS = 10


class Reference:
    """One parameter; x is what it is now, step what a subclass does with a gradient."""

    def __init__(self, x, **options):
        self.x, self.t, self.state = x.copy(), 0, {}
        self.options = {**self.DEFAULTS, **options}

    def at(self, name, shape):
        return self.state.setdefault(name, np.zeros(shape))

    def feed(self, g):
        self.t += 1
        self.step(-g if self.options.get('maximize') else g, **self.options)


class Lion(Reference):
    """Chen et al. 2023, program 1."""
    DEFAULTS = {'lr': 1e-4, 'beta1': 0.9, 'beta2': 0.99, 'weight_decay': 0.0}

    def step(self, g, lr, beta1, beta2, weight_decay, maximize=False):
        m = self.at('m', g.shape)
        self.x -= lr * (np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * self.x)
        self.state['m'] = beta2 * m + (1 - beta2) * g


class Lamb(Reference):
    """You et al. 2020, algorithm 2."""
    DEFAULTS = {'lr': 1e-3, 'beta1': 0.9, 'beta2': 0.999, 'eps': 1e-6, 'weight_decay': 0.0}

    def step(self, g, lr, beta1, beta2, eps, weight_decay, maximize=False):
        m = self.state['m'] = beta1 * self.at('m', g.shape) + (1 - beta1) * g
        v = self.state['v'] = beta2 * self.at('v', g.shape) + (1 - beta2) * g * g
        r = m / (1 - beta1 ** self.t) / (np.sqrt(v / (1 - beta2 ** self.t)) + eps)
        u = r + weight_decay * self.x
        norms = np.sqrt((self.x ** 2).sum()), np.sqrt((u ** 2).sum())
        self.x -= lr * (norms[0] / norms[1] if min(norms) > 0 else 1.0) * u


class Adafactor(Reference):
    """Shazeer and Stern 2018, algorithms 4 and 5; lr None is the relative step."""
    DEFAULTS = {'lr': None, 'eps1': 1e-30, 'eps2': 1e-3, 'clip': 1.0, 'decay_rate': -0.8,
                'beta1': 0.0, 'weight_decay': 0.0, 'scale': True, 'warmup_init': False}

    def second(self, g, eps1, decay_rate):
        beta2 = 1 - self.t ** decay_rate
        square = g * g + eps1
        if g.ndim < 2:
            v = self.state['v'] = beta2 * self.at('v', g.shape) + (1 - beta2) * square
            return v
        row, col = square.mean(-1), square.mean(-2)
        row = self.state['r'] = beta2 * self.at('r', row.shape) + (1 - beta2) * row
        col = self.state['c'] = beta2 * self.at('c', col.shape) + (1 - beta2) * col
        return (row / row.mean(-1, keepdims=True))[..., None] * col[..., None, :]

    def step(self, g, lr, eps1, eps2, clip, decay_rate, beta1, weight_decay, scale, warmup_init,
             maximize=False):
        def rms(x):
            return np.sqrt((x ** 2).mean())

        if lr is None:
            lr = min(1e-6 * self.t if warmup_init else 1e-2, 1 / np.sqrt(self.t))
        lr *= max(eps2, rms(self.x)) if scale else 1
        u = g / np.sqrt(self.second(g, eps1, decay_rate))
        u = lr * u / max(1.0, rms(u) / clip)
        if beta1:
            u = self.state['m'] = beta1 * self.at('m', g.shape) + (1 - beta1) * u
        self.x -= lr * weight_decay * self.x + u


CASES = {
    'rmsprop': (torch.optim.RMSprop, {'lr': 0.01}),
    'rmsprop_momentum': (torch.optim.RMSprop, {'lr': 0.01, 'alpha': 0.9, 'momentum': 0.8}),
    'rmsprop_centered': (torch.optim.RMSprop, {'lr': 0.01, 'alpha': 0.9, 'centered': True,
                                               'eps': 1e-4}),
    'rmsprop_all': (torch.optim.RMSprop, {'lr': 0.01, 'alpha': 0.9, 'centered': True, 'eps': 1e-4,
                                          'momentum': 0.5, 'weight_decay': 0.1}),
    'rmsprop_maximize': (torch.optim.RMSprop, {'lr': 0.01, 'maximize': True}),
    'adagrad': (torch.optim.Adagrad, {'lr': 0.1}),
    'adagrad_all': (torch.optim.Adagrad, {'lr': 0.1, 'lr_decay': 0.2, 'weight_decay': 0.1,
                                          'initial_accumulator_value': 0.5}),
    'adagrad_maximize': (torch.optim.Adagrad, {'lr': 0.1, 'maximize': True}),
    'lion': (Lion, {'lr': 1e-2}),
    'lion_all': (Lion, {'lr': 1e-2, 'beta1': 0.8, 'beta2': 0.9, 'weight_decay': 0.3}),
    'lion_maximize': (Lion, {'lr': 1e-2, 'maximize': True}),
    'lamb': (Lamb, {'lr': 1e-2}),
    'lamb_all': (Lamb, {'lr': 1e-2, 'beta1': 0.8, 'beta2': 0.9, 'eps': 1e-3, 'weight_decay': 0.3}),
    'lamb_maximize': (Lamb, {'lr': 1e-2, 'maximize': True}),
    'adafactor': (Adafactor, {}),
    'adafactor_warmup': (Adafactor, {'warmup_init': True, 'decay_rate': -0.5}),
    'adafactor_fixed': (Adafactor, {'lr': 1e-2, 'scale': False, 'eps1': 1e-3}),
    'adafactor_all': (Adafactor, {'lr': 1e-1, 'beta1': 0.9, 'weight_decay': 0.1, 'clip': 0.5,
                                  'eps2': 0.75, 'maximize': True}),
}


def run_torch(cls, options, start, grads):
    params = [x.double().requires_grad_(True) for x in start]
    optim, after = cls(params, **options), [[] for _ in params]
    for step in range(STEPS):
        for i, p in enumerate(params):
            p.grad = grads[i][step].double()
        optim.step()
        for i, p in enumerate(params):
            after[i].append(p.detach().float().clone())
    return [torch.stack(rows) for rows in after]


def run_reference(cls, options, start, grads):
    out = []
    for x, g in zip(start, grads):
        one, after = cls(x.double().numpy(), **options), []
        for step in range(STEPS):
            one.feed(g[step].double().numpy())
            after.append(torch.from_numpy(np.asarray(one.x, dtype=np.float32).copy()))
        out.append(torch.stack(after))
    return out


def main():
    torch.manual_seed(11)
    start = [torch.randn(shape) for shape in SHAPES]
    grads = [torch.randn(STEPS, *shape) for shape in SHAPES]
    grads[0][:, 4] *= 1e-6  # a row of nearly nothing
    tensors, metadata = {}, {}
    for i in range(len(SHAPES)):
        tensors['start.%d' % i], tensors['grads.%d' % i] = start[i], grads[i]
    for name, (cls, options) in CASES.items():
        run = run_reference if issubclass(cls, Reference) else run_torch
        for i, after in enumerate(run(cls, options, start, grads)):
            assert torch.isfinite(after).all(), name
            tensors['%s/after.%d' % (name, i)] = after
        metadata[name] = json.dumps({'kind': name.split('_')[0], **options})
    save('optim_kinds', tensors, metadata)


if __name__ == '__main__':
    main()
