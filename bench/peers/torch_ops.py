"""Forward and backward of one operation after the other in PyTorch, in turns: what bench/op_speed
does, with its lines and its answers.

    build/peers/torch/bin/python bench/peers/torch_ops.py

Operations are called as PyTorch's manual shows them, with its defaults.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

MASK = 0xffffffff
GRADIENT_SEED = 99


class Case:
    def __init__(self, words):
        self.numbers = [int(word) for word in words if word.lstrip('-').isdigit()]
        self.text = next((word for word in words if not word.lstrip('-').isdigit()), '')
        self.inputs, self.module, self.grad_output, self.second = [], None, None, None

    def add(self, x, grad=False):
        self.inputs.append(x.requires_grad_(grad))
        return x

    # ---- inputs: the numbers of bench/op_speed/op_inputs.c

    def input(self, shape, low, high, grad=True):
        self.add(spread(shape, len(self.inputs), low, high), grad)

    def constant(self, shape, low, high):
        self.input(shape, low, high, grad=False)

    def indices(self, shape, below):
        self.add((unit(shape, len(self.inputs)) * below).long())

    def signs(self, shape):
        x = spread(shape, len(self.inputs), -1, 1)
        self.add(torch.where(x < 0, -torch.ones_like(x), torch.ones_like(x)))

    def fill_module(self, module):
        self.module = module
        with torch.no_grad():
            for parameter in module.parameters():
                bound = 1 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5
                parameter.copy_(spread(parameter.shape, parameter.numel(), -bound, bound))


def unit(shape, seed):
    count = 1
    for size in shape:
        count *= size
    h = (torch.arange(count) * 2654435761 + (seed * 2246822519 + 1 & MASK)) & MASK
    h = ((h ^ h >> 16) * 0x85ebca6b) & MASK
    h = ((h ^ h >> 13) * 0xc2b2ae35) & MASK
    h = h ^ h >> 16
    return ((h >> 8).double() * 2.0 ** -24).reshape(tuple(shape))


def spread(shape, seed, low, high):
    return (low + (high - low) * unit(shape, seed)).float()


# ---------------------------------------------------------------- what moves

def rows(c):
    c.input(c.numbers[:2], -2, 2)


def fixed_rows(c):
    c.constant(c.numbers[:2], -2, 2)


def factors(c):
    c.input(c.numbers[:2], 0.99, 1.01)


def classes(c):
    c.indices(c.numbers[:1], c.numbers[1])


def weights(c):
    c.constant(c.numbers[:2], 0.1, 1)


def scatter(c):
    count, length, written = c.numbers
    c.input((count, length), -2, 2)
    places = torch.arange(written) * 7919 + torch.arange(count).unsqueeze(1)
    c.add(places % length)
    c.input((count, written), -2, 2)


def index_add(c):
    c.input(c.numbers[:2], -2, 2)
    c.indices(c.numbers[2:3], c.numbers[0])
    c.input((c.numbers[2], c.numbers[1]), -2, 2)


def planes(c):
    c.input(c.numbers[:4], -2, 2)


def matrices(c):
    c.input(c.numbers[:3], -2, 2)


def pad(mode):
    return lambda c: F.pad(c.inputs[0], [c.numbers[4]] * 4, mode=mode)


def columns(c):
    n = c.numbers
    places = 1
    for size in n[2:4]:
        places *= (size + 2 * n[6] - n[4]) // n[5] + 1
    c.input((n[0], n[1] * n[4] ** 2, places), -2, 2)


def terms(c):
    letters = sorted(set(filter(str.isalpha, c.text)))
    sizes = dict(zip(letters, c.numbers))
    for term in c.text.split('->')[0].split(','):
        c.input([sizes[letter] for letter in term], -2, 2)


# ---------------------------------------------------------------- layers

def flat(c):
    c.input(c.numbers, -4, 4)


def prelu(c):
    flat(c)
    c.input(c.numbers[1:2], 0, 0.5)


def conv(spatial, kernel):
    """kernel(numbers) gives its first two sizes, its window and the channels of the bias."""
    def prepare(c):
        first, second, window, channels = kernel(c.numbers)
        c.input(c.numbers[:2 + spatial], -1, 1)
        c.input([first, second] + [window] * spatial, -0.1, 0.1)
        c.input([channels], -1, 1)
    return prepare


def attention(c):
    c.input(c.numbers[:3], -1, 1)
    c.fill_module(nn.MultiheadAttention(c.numbers[2], c.numbers[3], batch_first=True))


def attend(c):
    x = c.inputs[0]
    return c.module(x, x, x, need_weights=False)[0]


def block(kind, memory):
    def prepare(c):
        count, steps, others, width, heads, hidden = c.numbers
        c.input((count, steps, width), -1, 1)
        if memory:
            c.input((count, others, width), -1, 1)
        c.fill_module(kind(width, heads, hidden, dropout=0, batch_first=True))
    return prepare


def rms_norm(c):
    rows(c)
    c.input(c.numbers[1:2], -1, 1)


def group_norm(c):
    planes(c)
    c.input(c.numbers[1:2], -1, 1)
    c.input(c.numbers[1:2], -1, 1)


def bags(c):
    c.indices(c.numbers[:2], c.numbers[2])
    c.input(c.numbers[2:4], -1, 1)


class Weight(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


def weight_norm(c):
    n = c.numbers
    layer = Weight(spread(n, 0, -1, 1))
    c.module = nn.utils.parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.copy_(
            spread([n[0]] + [1] * (len(n) - 1), 1, 0.5, 1))
        layer.parametrizations.weight.original1.copy_(spread(n, 0, -1, 1))


def spectral_norm(c):
    layer = Weight(spread(c.numbers, 0, -1, 1))
    c.module = nn.utils.parametrizations.spectral_norm(layer)
    power = layer.parametrizations.weight[0]
    power._u.copy_(spread(power._u.shape, 1, -1, 1))
    power._v.copy_(spread(power._v.shape, 2, -1, 1))


# ---------------------------------------------------------------- losses

def pair(c):
    c.input(c.numbers, -2, 2)
    c.constant(c.numbers, -2, 2)


def log_probs(c):
    c.input(c.numbers, -5, 0)
    c.constant(c.numbers, 0.01, 1)


def probabilities(c):
    c.input(c.numbers, 0.01, 0.99)
    c.constant(c.numbers, 0, 1)


def nll(c):
    c.input(c.numbers, -5, 0)
    c.indices(c.numbers[:1], c.numbers[1])


def head(c):
    rows, width, classes = c.numbers
    c.input((rows, width), -1, 1)
    c.input((classes, width), -0.1, 0.1)
    c.indices((rows,), classes)


def chunked_head(c):
    return F.linear_cross_entropy(*c.inputs, options=torch.nn.LinearCrossEntropyOptions())


def ctc(c):
    steps, count, letters, length = c.numbers
    c.input((steps, count, letters), -6, 0)
    c.indices((count, length), letters - 1)
    c.inputs[1].add_(1)
    c.lengths = torch.full((count,), steps), torch.full((count,), length)


def triplet(c):
    for _ in range(3):
        c.input(c.numbers, -1, 1)


def labels(c):
    c.input(c.numbers, -2, 2)
    c.indices(c.numbers, c.numbers[1] + 1)
    c.inputs[1] -= 1
    c.inputs[1][:, 4:] = -1


def points(c):
    c.input(c.numbers, -1, 1)


def distances(c):
    c.input((c.numbers[0], c.numbers[2]), -1, 1)
    c.input(c.numbers[1:], -1, 1)


def cosine(c):
    c.input(c.numbers, -1, 1)
    c.input(c.numbers, -1, 1)
    c.signs(c.numbers[:1])


def hinge(c):
    c.input(c.numbers, -2, 2)
    c.signs(c.numbers)


def focal(c):
    hinge(c)
    c.inputs[1] = (c.inputs[1] > 0).float()


def focal_loss(c):
    """The formula of Lin et al. with alpha 0.25 and gamma 2, as detectors in PyTorch write it."""
    x, y = c.inputs
    p = torch.sigmoid(x)
    entropy = F.binary_cross_entropy_with_logits(x, y, reduction='none')
    right = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * entropy * (1 - right) ** 2).mean()


OPS = {
    'topk': (rows, lambda c: torch.topk(c.inputs[0], c.numbers[2])),
    'sort': (rows, lambda c: torch.sort(c.inputs[0])),
    'argsort': (fixed_rows, lambda c: torch.argsort(c.inputs[0])),
    'cumsum': (rows, lambda c: torch.cumsum(c.inputs[0], c.numbers[2])),
    'cumprod': (factors, lambda c: torch.cumprod(c.inputs[0], c.numbers[2])),
    'one_hot': (classes, lambda c: F.one_hot(c.inputs[0], c.numbers[1])),
    'multinomial': (weights, lambda c: torch.multinomial(c.inputs[0], c.numbers[2],
                                                         bool(c.numbers[3]))),
    'scatter_along': (scatter, lambda c: c.inputs[0].scatter(1, c.inputs[1], c.inputs[2])),
    'scatter_along_add': (scatter, lambda c: c.inputs[0].scatter_add(1, c.inputs[1], c.inputs[2])),
    'index_add': (index_add, lambda c: c.inputs[0].index_add(0, c.inputs[1], c.inputs[2])),
    'pad_constant': (planes, pad('constant')),
    'pad_reflect': (planes, pad('reflect')),
    'pad_replicate': (planes, pad('replicate')),
    'pad_circular': (planes, pad('circular')),
    'tril': (matrices, lambda c: torch.tril(c.inputs[0], c.numbers[3])),
    'triu': (matrices, lambda c: torch.triu(c.inputs[0], c.numbers[3])),
    'roll': (planes, lambda c: torch.roll(c.inputs[0], c.numbers[4:6], (1, 2))),
    'flip': (planes, lambda c: torch.flip(c.inputs[0], (2 if c.numbers[4] else 3,))),
    'unfold': (planes, lambda c: F.unfold(c.inputs[0], c.numbers[4], stride=c.numbers[5],
                                          padding=c.numbers[6])),
    'fold': (columns, lambda c: F.fold(c.inputs[0], c.numbers[2:4], c.numbers[4],
                                       stride=c.numbers[5], padding=c.numbers[6])),
    'einsum': (terms, lambda c: torch.einsum(c.text, *c.inputs)),
    'leaky_relu': (flat, lambda c: F.leaky_relu(c.inputs[0])),
    'elu': (flat, lambda c: F.elu(c.inputs[0])),
    'selu': (flat, lambda c: F.selu(c.inputs[0])),
    'celu': (flat, lambda c: F.celu(c.inputs[0])),
    'softplus': (flat, lambda c: F.softplus(c.inputs[0])),
    'mish': (flat, lambda c: F.mish(c.inputs[0])),
    'hardswish': (flat, lambda c: F.hardswish(c.inputs[0])),
    'prelu': (prelu, lambda c: F.prelu(*c.inputs)),
    'glu': (flat, lambda c: F.glu(c.inputs[0], 1)),
    'logsigmoid': (flat, lambda c: F.logsigmoid(c.inputs[0])),
    'conv1d': (conv(1, lambda n: (n[3], n[1] // n[7], n[4], n[3])),
               lambda c: F.conv1d(*c.inputs, c.numbers[5], c.numbers[6] * (c.numbers[4] - 1) // 2,
                                  c.numbers[6], c.numbers[7])),
    'conv3d': (conv(3, lambda n: (n[5], n[1], n[6], n[5])),
               lambda c: F.conv3d(*c.inputs, c.numbers[7], (c.numbers[6] - 1) // 2)),
    'conv_transpose2d': (conv(2, lambda n: (n[1], n[4], n[5], n[4])),
                         lambda c: F.conv_transpose2d(*c.inputs, c.numbers[6], c.numbers[7])),
    'conv_grouped': (conv(2, lambda n: (n[4], n[1] // n[7], n[5], n[4])),
                     lambda c: F.conv2d(*c.inputs, c.numbers[6], (c.numbers[5] - 1) // 2, 1,
                                        c.numbers[7])),
    'conv_dilated': (conv(2, lambda n: (n[4], n[1], n[5], n[4])),
                     lambda c: F.conv2d(*c.inputs, 1, c.numbers[6] * (c.numbers[5] - 1) // 2,
                                        c.numbers[6])),
    'multihead_attention': (attention, attend),
    'encoder_block': (block(nn.TransformerEncoderLayer, False), lambda c: c.module(*c.inputs)),
    'decoder_block': (block(nn.TransformerDecoderLayer, True), lambda c: c.module(*c.inputs)),
    'rms_norm': (rms_norm, lambda c: F.rms_norm(c.inputs[0], c.numbers[1:2], c.inputs[1], 1e-6)),
    'group_norm': (group_norm, lambda c: F.group_norm(c.inputs[0], c.numbers[4], *c.inputs[1:])),
    'instance_norm': (planes, lambda c: F.instance_norm(c.inputs[0])),
    'embedding_bag': (bags, lambda c: F.embedding_bag(
        *c.inputs, mode=('mean', 'sum', 'max')[c.numbers[4]])),
    'weight_norm': (weight_norm, lambda c: c.module.weight),
    'spectral_norm': (spectral_norm, lambda c: c.module.weight),
    'smooth_l1': (pair, lambda c: F.smooth_l1_loss(*c.inputs)),
    'huber': (pair, lambda c: F.huber_loss(*c.inputs)),
    'kl_div': (log_probs, lambda c: F.kl_div(*c.inputs, reduction='batchmean')),
    'bce': (probabilities, lambda c: F.binary_cross_entropy(*c.inputs)),
    'nll': (nll, lambda c: F.nll_loss(*c.inputs)),
    'ctc': (ctc, lambda c: F.ctc_loss(*c.inputs, *c.lengths)),
    'linear_cross_entropy': (head, chunked_head),
    'triplet': (triplet, lambda c: F.triplet_margin_loss(*c.inputs)),
    'cosine': (cosine, lambda c: F.cosine_embedding_loss(*c.inputs)),
    'hinge': (hinge, lambda c: F.hinge_embedding_loss(*c.inputs)),
    'focal': (focal, focal_loss),
    'multilabel_margin': (labels, lambda c: F.multilabel_margin_loss(*c.inputs)),
    'pdist': (points, lambda c: F.pdist(*c.inputs)),
    'cdist': (distances, lambda c: torch.cdist(*c.inputs)),
}


# ---------------------------------------------------------------- steps and lines

def leaves(c):
    return c.inputs + (list(c.module.parameters()) if c.module is not None else [])


def step(c, forward):
    for x in leaves(c):
        x.grad = None
    y = forward(c)
    if isinstance(y, tuple):
        y, c.second = y
    if y.requires_grad:
        if y.dim() > 0 and c.grad_output is None:
            c.grad_output = spread(y.shape, GRADIENT_SEED, -1, 1)
        y.backward(c.grad_output)
    return y


def sums(tensors):
    total = size = 0
    for x in tensors:
        values = x.detach().reshape(-1).double()
        values = values * (torch.arange(len(values)) % 97 + 1)
        total, size = total + values.sum().item(), size + values.abs().sum().item()
    return [total, size]


def median_ms(c, forward, steps):
    took = []
    for _ in range(steps):
        begin = time.process_time()
        step(c, forward)
        took.append(time.process_time() - begin)
    return 1e3 * statistics.median(took)


def open_case(name, words):
    prepare, forward = OPS[name]
    c = Case(words)
    prepare(c)
    y = step(c, forward)
    result = {'count': y.numel(), 'result': sums([y]),
              'gradients': sums([x.grad for x in leaves(c) if x.grad is not None]),
              'second': sums([] if c.second is None else [c.second])}
    print(json.dumps(result), flush=True)
    return c, forward


def main():
    torch.set_num_threads(1)
    case = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == 'case':
            case = open_case(words[1], words[2:])
        else:
            print('%.6f' % median_ms(*case, int(words[0])), flush=True)


if __name__ == '__main__':
    main()
