"""Forward and backward of one layer in PyTorch, in turns: what bench/layer_speed.c does, with its
arguments and its answers.

    build/peers/torch/bin/python bench/peers/torch_layer.py conv 16 64 128 56 3 2

Images lie in memory as N C H W or as N H W C, whichever is faster: both are tried at the start.
"""
import statistics
import sys
import time

import torch
from torch import nn

FORMATS = (torch.contiguous_format, torch.channels_last)


def make(kind, n):
    if kind == 'lstm':
        return nn.LSTM(n[0], n[1], n[2]), torch.randn(n[4], n[3], n[0])
    if kind == 'conv':
        return (nn.Conv2d(n[1], n[2], n[4], n[5], n[4] // 2, bias=False),
                torch.randn(n[0], n[1], n[3], n[3]))
    return nn.AdaptiveAvgPool2d(1), torch.randn(n[0], n[1], n[2], n[2])


class Step:
    def __init__(self, layer, x):
        self.layer, self.x = layer, x.requires_grad_()
        self.grad_output = torch.randn_like(self.forward())

    def forward(self):
        y = self.layer(self.x)
        return y[0] if isinstance(y, tuple) else y

    def run(self):
        self.layer.zero_grad()
        self.x.grad = None
        self.forward().backward(self.grad_output)

    def median_ms(self, steps):
        took = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.run()
            took.append(time.perf_counter() - begin)
        return 1e3 * statistics.median(took)


def steps_of(kind, numbers):
    """The same layer with each order of memory that it knows."""
    for memory_format in FORMATS:
        torch.manual_seed(1)
        layer, x = make(kind, numbers)
        if kind == 'lstm':
            yield Step(layer, x)
            return
        yield Step(layer.to(memory_format=memory_format),
                   x.to(memory_format=memory_format).detach())


def main():
    torch.set_num_threads(1)
    ways = list(steps_of(sys.argv[1], [int(word) for word in sys.argv[2:]]))
    for way in ways:
        way.median_ms(2)
    best = min(ways, key=lambda way: way.median_ms(5))
    for line in sys.stdin:
        print('%.6f' % best.median_ms(int(line)), flush=True)


main()
