#!/usr/bin/env python3
"""Which samples torch's DistributedSampler gives: `make golden` writes sampler.safetensors.

A tensor `N/n/drop` is [ranks, entries], N samples dealt to n ranks in their own order; with
`/shuffled` behind it the order is torch's permutation, which is `N/order`.
"""
import torch
from torch.utils.data import DistributedSampler

from make_golden import save


def deal(count, replicas, drop_last, shuffle):
    """What each rank gets in epoch 2 of seed 1."""
    rows = []
    for rank in range(replicas):
        sampler = DistributedSampler(range(count), replicas, rank, shuffle=shuffle, seed=1,
                                     drop_last=drop_last)
        sampler.set_epoch(2)
        rows.append(list(sampler))
    return torch.tensor(rows, dtype=torch.int64)


def main():
    tensors = {}
    for count in range(1, 13):
        generator = torch.Generator()
        generator.manual_seed(1 + 2)
        tensors['%d/order' % count] = torch.randperm(count, generator=generator)
        for replicas in (1, 2, 3, 5, 30):
            for drop in (False, True):
                name = '%d/%d/%d' % (count, replicas, drop)
                tensors[name] = deal(count, replicas, drop, False)
                tensors[name + '/shuffled'] = deal(count, replicas, drop, True)
    save('sampler', tensors, {'torch': torch.__version__})


if __name__ == '__main__':
    main()
