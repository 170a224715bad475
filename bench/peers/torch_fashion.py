"""The step that `fashion` trains with, in PyTorch: forward, cross entropy, backward, AdamW.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python bench/peers/torch_fashion.py \\
        [--model cnn|mlp|resnet] [--batch 64] [--steps 60] [--bf16]

Prints one JSON line with fashion's "samples_per_second". Pictures are random numbers that lie ready
in memory; the networks are layer for layer those of examples/fashion. Needs `make peers`.
"""
import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

KINDS = 10


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.25),
                         nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, KINDS))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Dropout(0.25),
                         nn.Linear(128, KINDS))


def convolution(inputs, outputs, size, stride):
    return [nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(*convolution(inputs, outputs, 3, stride), nn.ReLU(),
                                  *convolution(outputs, outputs, 3, 1))
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        return F.relu(self.main(x) + self.shortcut(x))


def resnet():
    layers, width = [*convolution(1, 16, 3, 1), nn.ReLU()], 16
    for stage in range(3):
        for i in range(3):
            is_smaller = stage > 0 and i == 0
            layers.append(Block(width // 2 if is_smaller else width, width, 2 if is_smaller else 1))
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.25),
                         nn.Linear(64, KINDS))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--model', choices=('cnn', 'mlp', 'resnet'), default='cnn')
    parser.add_argument('--batch', type=int, default=64)
    parser.add_argument('--steps', type=int, default=60)
    parser.add_argument('--bf16', action='store_true')
    settings = parser.parse_args()
    torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', '1')))
    torch.manual_seed(0)
    net = {'cnn': cnn, 'mlp': mlp, 'resnet': resnet}[settings.model]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    pictures = torch.randn(16, settings.batch, 1, 28, 28)
    kinds = torch.randint(KINDS, (16, settings.batch))

    def train(steps):
        begin = time.monotonic()
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast('cpu', torch.bfloat16, enabled=settings.bf16):
                loss = F.cross_entropy(net(pictures[step % 16]), kinds[step % 16])
            loss.backward()
            optimizer.step()
            loss.item()
        return steps * settings.batch / (time.monotonic() - begin)

    train(5)
    print(json.dumps({'samples_per_second': train(settings.steps)}))


if __name__ == '__main__':
    main()
