"""The step that `gpt --bench` times, in PyTorch: forward, cross entropy, backward, AdamW.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python bench/peers/torch_gpt.py \\
        --layers 6 --width 384 --heads 6 --context 256 --batch 4 [--bf16] [--ranks 2]

Prints one JSON line with the keys of `gpt --bench`. The model is the same: learned positions,
LayerNorm before each part, exact GELU, a head of its own without bias. --ranks runs it under
DistributedDataParallel over Gloo, each rank bound to a core; with --shard under fully_shard, each
block a unit of its own and the rest another; with --rank it is one of those, which meet at
--address (rank 0's), whatever hosts they are on. Needs `make peers`.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, tokens, width = x.shape
        heads = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())


def join_world(rank, options):
    os.environ["MASTER_ADDR"] = options.address
    os.environ["MASTER_PORT"] = str(options.port)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)


def spread(model, options):
    if not options.shard:
        return nn.parallel.DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (options.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def measure(rank, options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt(options.layers, options.width, options.heads, options.context, options.vocab)
    params = sum(p.numel() for p in model.parameters())
    if options.ranks > 1:
        join_world(rank, options)
        model = spread(model, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    shape = (options.batch, options.context)
    tokens, targets = (torch.randint(options.vocab, shape) for _ in range(2))
    seconds = []
    for _ in range(options.steps):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        report(options, params, statistics.median(seconds[1:]))


def report(options, params, step):
    tokens = options.batch * options.context * options.ranks
    flops = (6 * params + 12 * options.layers * options.width * options.context) * tokens
    print(json.dumps({
        "torch": torch.__version__, "params": params, "ranks": options.ranks,
        "threads": options.threads, "dtype": "bf16" if options.bf16 else "f32",
        "step_ms": round(step * 1e3, 2), "tokens_per_second": round(tokens / step, 1),
        "gflops": round(flops / step * 1e-9, 1),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    defaults = {"layers": 6, "width": 384, "heads": 6, "context": 256, "batch": 4, "vocab": 256,
                "threads": 1, "ranks": 1, "steps": 8, "port": 29000 + os.getpid() % 2000,
                "rank": -1}
    for name, value in defaults.items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--shard", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse()
    if chosen.ranks == 1 or chosen.rank >= 0:
        measure(max(chosen.rank, 0), chosen)
    else:
        torch.multiprocessing.spawn(measure, args=(chosen,), nprocs=chosen.ranks)
