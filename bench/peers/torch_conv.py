"""Convolutions and their gradients in PyTorch beside ours, on one thread, shape by shape.

    OMP_NUM_THREADS=1 build/peers/torch/bin/python bench/peers/torch_conv.py \\
        build/bench/conv_speed [seconds]

Runs conv_speed for a shape, then PyTorch on the same shape, and prints the milliseconds of both
and theirs over ours: forward, dx, dw, and all three. bf16 stands beside PyTorch's f32. Needs
`make peers`.
"""
import subprocess
import sys
import time

import torch

PARTS = ("forward", "dx", "dw")


def best_of(run, seconds):
    run()
    best, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def torch_times(batch, channels, out, size, kernel, stride, padding, seconds):
    x = torch.randn(batch, channels, size, size)
    w = torch.randn(out, channels, kernel, kernel)
    y = torch.nn.functional.conv2d(x, w, None, stride, padding)

    def backward(mask):
        return torch.ops.aten.convolution_backward(
            y, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask)

    with torch.no_grad():
        runs = (lambda: torch.nn.functional.conv2d(x, w, None, stride, padding),
                lambda: backward([True, False, False]), lambda: backward([False, True, False]))
        return [best_of(run, seconds / 3) for run in runs]


def row(title, ours, theirs):
    parts = [f"{name} {mine:7.2f} {other:7.2f} {other / mine:5.2f}"
             for name, mine, other in zip(PARTS, ours, theirs)]
    print(f"{title:32}", "  ".join(parts), f" all {sum(theirs) / sum(ours):5.2f}", flush=True)


def main():
    program, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    torch.set_num_threads(1)
    shape = 0
    while True:
        text = subprocess.run([program, str(seconds), str(shape)], check=True,
                              capture_output=True, text=True).stdout
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        if not lines:
            return
        sizes = [int(word) for word in lines[0][1:8]]
        theirs = torch_times(*sizes, seconds)
        for line in lines:
            ours = [float(word) / 1e3 for word in line[8:14:2]]
            row(" ".join(line[:8]), ours, theirs)
        shape += 1


main()
