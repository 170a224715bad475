"""What `checkpoint FOLDER ours` times, by torch.distributed.checkpoint: the same matrices as
DTensors, of which each rank has some rows, saved and loaded again.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python bench/peers/torch_checkpoint.py \\
        --folder FOLDER [--mib 1024] [--rounds 5] [--ranks 2]

Ranks meet over Gloo, each bound to a core. Prints a JSON line for each save, load from the disk and
load from the page cache (what: save, cold, load); removing the save before is not timed. Needs
`make peers`.
"""
import argparse
import json
import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

SIDE = 2048
TENSOR_MIB = SIDE * SIDE * 4 >> 20


def cool(folder):
    for name in os.listdir(folder):
        file = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def warm(folder):
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), 'rb') as file:
            while file.read(1 << 20):
                pass


def clock(rank, what, act):
    dist.barrier()
    start = time.perf_counter()
    act()
    dist.barrier()
    if rank == 0:
        print(json.dumps({'what': what, 'ours_s': round(time.perf_counter() - start, 4),
                          'torch': torch.__version__}), flush=True)


def measure(rank, options):
    os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = '127.0.0.1', str(options.port)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=options.ranks)
    mesh = init_device_mesh('cpu', (options.ranks,))
    values = torch.arange(SIDE * SIDE, dtype=torch.float32).reshape(SIDE, SIDE)
    state = {'t%05d.weight' % i: distribute_tensor(values + i, mesh, [Shard(0)])
             for i in range(options.mib // TENSOR_MIB)}
    before = None
    for number in range(options.rounds):
        folder = os.path.join(options.folder, str(number))
        clock(rank, 'save', lambda: dcp.save(state, checkpoint_id=folder))
        for what, prepare in (('cold', cool), ('load', warm)):
            for x in state.values():
                x.zero_()
            if rank == 0:
                prepare(folder)
            clock(rank, what, lambda: dcp.load(state, checkpoint_id=folder))
            for i, x in enumerate(state.values()):
                assert torch.equal(x.to_local(), (values + i).chunk(options.ranks)[rank])
        if rank == 0 and before is not None:
            shutil.rmtree(before)
        before = folder
    dist.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--folder', required=True)
    for name, value in {'mib': 1024, 'rounds': 5, 'ranks': 2,
                        'port': 29000 + os.getpid() % 2000}.items():
        parser.add_argument('--' + name, type=int, default=value)
    return parser.parse_args()


if __name__ == '__main__':
    chosen = parse()
    torch.multiprocessing.spawn(measure, args=(chosen,), nprocs=chosen.ranks)
