"""The step of torch_gpt.py on several ranks: a pipeline (torch.distributed.pipelining, 1F1B) or
tensor parallelism (parallelize_module), over Gloo, each rank bound to a core.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python bench/peers/torch_parallel.py pp \\
        --layers 6 --width 384 --heads 6 --context 256 --batch 8 --micro-batches 8

Prints one JSON line with the median step. Needs `make peers`.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

from torch_gpt import Block, Gpt

RANKS = 2


def join_world(rank, options):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(options.port)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---------------------------------------------------------------- pipeline

class Stage(nn.Module):
    """Half of the blocks, with the embeddings or the head."""

    def __init__(self, whole, rank):
        super().__init__()
        half = len(whole.blocks) // 2
        self.first = rank == 0
        self.blocks = whole.blocks[:half] if rank == 0 else whole.blocks[half:]
        if rank == 0:
            self.tok, self.pos = whole.tok, whole.pos
        else:
            self.ln, self.head = whole.ln, whole.head

    def forward(self, x):
        if self.first:
            x = self.tok(x) + self.pos.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x if self.first else self.head(self.ln(x))


def open_pipeline(rank, options, whole, tokens, targets):
    stage = Stage(whole, rank)
    schedule = Schedule1F1B(PipelineStage(stage, rank, RANKS, torch.device("cpu")),
                            options.micro_batches, loss_fn=loss_of)

    def step():
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=targets, losses=[])
    return stage, step


# ---------------------------------------------------------------- tensor parallelism

class HeadsBlock(Block):
    """q, k and v apart, so that each is cut by heads."""

    def __init__(self, width, heads):
        super().__init__(width, heads)
        del self.qkv
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def attend(self, x):
        batch, tokens, width = x.shape
        q, k, v = (linear(x).view(batch, tokens, self.heads // RANKS, width // self.heads)
                   .transpose(1, 2) for linear in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width // RANKS))


def open_tensor(options, whole, tokens, targets):
    mesh = init_device_mesh("cpu", (RANKS,))
    for i in range(len(whole.blocks)):
        block = HeadsBlock(options.width, options.heads)
        parallelize_module(block, mesh, {
            "q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(),
            "proj": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
        whole.blocks[i] = block
    parallelize_module(whole, mesh, {
        "tok": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate())})
    return whole, lambda: whole(tokens, targets).backward()


# ---------------------------------------------------------------- measuring

def measure(rank, options):
    torch.set_num_threads(1)
    join_world(rank, options)
    torch.manual_seed(1)
    whole = Gpt(options.layers, options.width, options.heads, options.context, options.vocab)
    shape = (options.batch, options.context)
    tokens, targets = (torch.randint(options.vocab, shape) for _ in range(2))
    if options.kind == "pp":
        model, compute = open_pipeline(rank, options, whole, tokens, targets)
    else:
        model, compute = open_tensor(options, whole, tokens, targets)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    seconds = []
    for _ in range(options.steps):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        compute()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "kind": options.kind, "ranks": RANKS,
                          "step_ms": round(statistics.median(seconds[1:]) * 1e3, 2)}), flush=True)
    dist.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=["pp", "tp"])
    defaults = {"layers": 6, "width": 384, "heads": 6, "context": 256, "batch": 8, "vocab": 256,
                "micro_batches": 8, "steps": 6, "port": 29000 + os.getpid() % 2000}
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    return parser.parse_args()


if __name__ == "__main__":
    torch.multiprocessing.spawn(measure, args=(parse(),), nprocs=RANKS)
