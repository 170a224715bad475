#!/usr/bin/env python3
"""all_reduce of torch.distributed over Gloo on this host, to compare `tutti bench` with.

    gloo_all_reduce.py [--ranks N] [--min BYTES] [--max BYTES]

f32, sum, in place, hot, by fours, a JSON line for each size: the slowest rank's mean over a batch,
the best of three batches after one to warm up. Fewer calls than elsewhere: Gloo takes long.
"""
import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing


def calls_for(size):
    return 300 if size < 1 << 16 else 60 if size < 4 << 20 else 6


def batch_time(x, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    mean = torch.tensor([time.perf_counter() - begin], dtype=torch.float64) / calls
    dist.all_reduce(mean, op=dist.ReduceOp.MAX)
    return mean.item()


def measure(rank, ranks, size):
    x = torch.zeros(size // 4)
    times = [batch_time(x, calls_for(size)) for _ in range(4)]
    if rank == 0:
        best = min(times[1:])
        print(json.dumps({'op': 'all_reduce', 'peer': 'gloo', 'bytes': size, 'ranks': ranks,
                          'time_us': round(best * 1e6, 3),
                          'algbw_GBps': round(size / best * 1e-9, 3)}), flush=True)


def be_rank(rank, options, port):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=options.ranks)
    size = options.min
    while size <= options.max:
        measure(rank, options.ranks, size)
        size *= 4
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--ranks', type=int, default=2)
    parser.add_argument('--min', type=int, default=4)
    parser.add_argument('--max', type=int, default=64 << 20)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(be_rank, args=(options, port), nprocs=options.ranks)


if __name__ == '__main__':
    main()
