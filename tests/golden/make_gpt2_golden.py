#!/usr/bin/env python3
"""GPT-2 of random weights as others store it, and its logits: `make golden` writes

    gpt2_hf.safetensors      weights as transformers' save_pretrained() names and lays them out,
                             with the masks that older versions kept
    gpt2.bin                 the same as llm.c's write_model() does, in f32
    gpt2_logits.safetensors  tokens [2, 9] and logits [2, 9, V]

The forward is written down here from the paper; it was compared with transformers 4.36's
GPT2LMHeadModel of the same weights, whose logits differ by less than 1e-5.
"""
import math
import os
import struct

import torch
import torch.nn.functional as F

from make_golden import HERE, save

LAYERS, WIDTH, HEADS, CONTEXT, VOCAB, PADDED = 2, 16, 2, 12, 21, 32


def weights():
    """Under Hugging Face's names; Conv1D's weights are [in, out]."""
    shapes = {'wte.weight': (VOCAB, WIDTH), 'wpe.weight': (CONTEXT, WIDTH)}
    for i in range(LAYERS):
        for name, shape in (('ln_1', (WIDTH,)), ('attn.c_attn', (WIDTH, 3 * WIDTH)),
                            ('attn.c_proj', (WIDTH, WIDTH)), ('ln_2', (WIDTH,)),
                            ('mlp.c_fc', (WIDTH, 4 * WIDTH)), ('mlp.c_proj', (4 * WIDTH, WIDTH))):
            shapes['h.%d.%s.weight' % (i, name)] = shape
            shapes['h.%d.%s.bias' % (i, name)] = shape[-1:]
    shapes['ln_f.weight'] = shapes['ln_f.bias'] = (WIDTH,)
    return {'transformer.' + name: 0.4 * torch.randn(shape) for name, shape in shapes.items()}


def forward(w, tokens):
    def conv(x, name):
        return x @ w[name + '.weight'] + w[name + '.bias']

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[name + '.weight'], w[name + '.bias'], 1e-5)

    def heads(x):
        return x.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

    w = {name[len('transformer.'):]: x.double() for name, x in w.items()}
    length = tokens.shape[1]
    x = w['wte.weight'][tokens] + w['wpe.weight'][:length]
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    for i in range(LAYERS):
        block = 'h.%d.' % i
        q, k, v = map(heads, conv(norm(x, block + 'ln_1'), block + 'attn.c_attn').split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(hidden, -math.inf)
        y = (scores.softmax(3) @ v).transpose(1, 2).reshape(x.shape)
        x = x + conv(y, block + 'attn.c_proj')
        y = conv(norm(x, block + 'ln_2'), block + 'mlp.c_fc')
        x = x + conv(F.gelu(y, approximate='tanh'), block + 'mlp.c_proj')
    return norm(x, 'ln_f') @ w['wte.weight'].T


def write_llmc(w):
    """A header of 256 numbers, then each tensor of all layers; matrices are [out, in]."""
    header = [20240326, 3, CONTEXT, VOCAB, LAYERS, HEADS, WIDTH, PADDED]
    data = [F.pad(w['transformer.wte.weight'], (0, 0, 0, PADDED - VOCAB), value=7.0),
            w['transformer.wpe.weight']]
    for name in ('ln_1.weight', 'ln_1.bias', 'attn.c_attn.weight', 'attn.c_attn.bias',
                 'attn.c_proj.weight', 'attn.c_proj.bias', 'ln_2.weight', 'ln_2.bias',
                 'mlp.c_fc.weight', 'mlp.c_fc.bias', 'mlp.c_proj.weight', 'mlp.c_proj.bias'):
        of_layers = [w['transformer.h.%d.%s' % (i, name)] for i in range(LAYERS)]
        data += [x.T if x.dim() == 2 else x for x in of_layers]
    data += [w['transformer.ln_f.weight'], w['transformer.ln_f.bias']]
    with open(os.path.join(HERE, 'gpt2.bin'), 'wb') as file:
        file.write(struct.pack('<256i', *header, *[0] * (256 - len(header))))
        for x in data:
            file.write(x.contiguous().numpy().tobytes())


def main():
    torch.manual_seed(20)
    w = weights()
    tokens = torch.randint(0, VOCAB, (2, 9))
    save('gpt2_logits', {'tokens': tokens, 'logits': forward(w, tokens).float()}, {})
    write_llmc(w)
    mask = torch.tril(torch.ones(1, 1, CONTEXT, CONTEXT, dtype=torch.uint8))
    masks = {'transformer.h.%d.attn.bias' % i: mask for i in range(LAYERS)}
    save('gpt2_hf', {**w, **masks}, {'format': 'pt'})


if __name__ == '__main__':
    main()
