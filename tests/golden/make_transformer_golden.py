#!/usr/bin/env python3
"""Golden values of attention layers and transformers from PyTorch, as make_golden.py's.

    transformer.safetensors     golden_transformer_test.c

name/P: parameter P; name/inI, name/outI, name/seedI, name/grad.P, name/gradI. Inputs that are not
in the file are left out.
"""
import json

import torch
import torch.nn as nn

from make_golden import grid, normal, save

TENSORS, METADATA = {}, {}


def put(name, kind, index, x):
    x = x.detach()
    TENSORS['%s/%s%d' % (name, kind, index)] = x.float() if x.is_floating_point() else x


def case(kind, module, call, inputs, outputs=1, **config):
    """call(module, inputs) gives the outputs; `inputs`: by their places, None where left out."""
    name = '%s_%d' % (kind, len(METADATA))
    module = module.double()
    for p in module.parameters():
        p.data = grid(p.shape, -0.5, 0.5).double()
    leaves = [None if x is None else x.double() if x.is_floating_point() else x for x in inputs]
    wanted = [i for i, x in enumerate(leaves) if x is not None and x.is_floating_point()]
    for i in wanted:
        leaves[i] = leaves[i].clone().requires_grad_(True)
    ys = call(module, leaves)
    ys = list(ys) if isinstance(ys, tuple) else [ys]
    seeds = [grid(y.shape) for y in ys]
    torch.autograd.backward(ys, [s.double() for s in seeds])
    for i, x in enumerate(leaves):
        if x is not None:
            put(name, 'in', i, x)
    for i in wanted:
        put(name, 'grad', i, leaves[i].grad)
    for i, (y, seed) in enumerate(zip(ys, seeds)):
        put(name, 'out', i, y)
        put(name, 'seed', i, seed)
    for key, p in module.named_parameters():
        TENSORS['%s/%s' % (name, key)] = p.detach().float()
        TENSORS['%s/grad.%s' % (name, key)] = p.grad.float()
    METADATA[name] = json.dumps({'kind': kind, 'inputs': len(inputs), 'outputs': outputs, **config})


def flags(*shape):
    """About a third of them, but never the first key."""
    x = torch.rand(shape) < 0.3
    x[..., 0] = False
    return x


def attention_cases():
    def call(weights):
        def attend(m, x):
            x = x + [None] * (5 - len(x))
            q, k, v = x[0], x[0] if x[1] is None else x[1], x[2]
            v = k if v is None else v
            y = m(q, k, v, attn_mask=x[3], key_padding_mask=x[4], need_weights=weights,
                  average_attn_weights=False)
            return y if weights else y[0]
        return attend
    args = {'width': 8, 'heads': 2}

    def mha(**more):
        return nn.MultiheadAttention(8, 2, **more)
    case('multihead_attention', mha(), call(False), [normal(5, 3, 8)], **args)
    case('multihead_attention', mha(batch_first=True), call(False),
         [normal(3, 5, 8), None, None, None, flags(3, 5)], batch_first=True, **args)
    case('multihead_attention', mha(batch_first=True, bias=False), call(True),
         [normal(3, 4, 8), normal(3, 5, 8), normal(3, 5, 8), flags(4, 5), flags(3, 5)], outputs=2,
         batch_first=True, no_bias=True, **args)
    case('multihead_attention', mha(kdim=3, vdim=5), call(True),
         [normal(4, 3, 8), normal(6, 3, 3), normal(6, 3, 5), normal(6, 4, 6)], outputs=2,
         key_width=3, value_width=5, **args)
    case('multihead_attention', mha(batch_first=True), call(False),
         [normal(2, 5, 8), normal(2, 5, 8)], batch_first=True, **args)
    case('multihead_attention', mha(batch_first=True),
         lambda m, x: m(x[0], x[0], x[0], need_weights=False, is_causal=True,
                        attn_mask=torch.triu(torch.ones(5, 5), 1).bool())[0],
         [normal(2, 5, 8)], batch_first=True, causal=True, **args)


def block_cases():
    for first, act, batch_first, bias in ((False, 'relu', True, True), (True, 'gelu', False, True),
                                          (True, 'relu', True, False)):
        args = {'norm_first': first, 'batch_first': batch_first}
        ours = {'width': 8, 'heads': 2, 'hidden': 12, 'activation': act, 'no_bias': not bias,
                **args}
        shape, memory = ((2, 4, 8), (2, 5, 8)) if batch_first else ((4, 2, 8), (5, 2, 8))
        more = {'dropout': 0.0, 'activation': act, 'bias': bias, **args}
        case('encoder_block', nn.TransformerEncoderLayer(8, 2, 12, **more),
             lambda m, x: m(x[0], x[1], x[2]), [normal(*shape), flags(4, 4), flags(2, 4)], **ours)
        case('decoder_block', nn.TransformerDecoderLayer(8, 2, 12, **more),
             lambda m, x: m(*x), [normal(*shape), normal(*memory), None, flags(4, 5), flags(2, 4),
                                  flags(2, 5)], **ours)


def stack_cases():
    more = {'dropout': 0.0, 'batch_first': True}
    ours = {'width': 8, 'heads': 2, 'hidden': 12, 'layers': 2, 'activation': 'relu',
            'batch_first': True}
    layer = nn.TransformerEncoderLayer(8, 2, 12, **more)
    case('encoder', nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False),
         lambda m, x: m(*x), [normal(2, 4, 8), None, flags(2, 4)], final_norm=True, **ours)
    layer = nn.TransformerDecoderLayer(8, 2, 12, **more)
    case('decoder', nn.TransformerDecoder(layer, 2), lambda m, x: m(*x),
         [normal(2, 4, 8), normal(2, 3, 8)], **ours)
    model = nn.Transformer(8, 2, 2, 1, 12, **more)
    model.encoder.enable_nested_tensor = False
    later = nn.Transformer.generate_square_subsequent_mask(4)
    case('transformer', model, lambda m, x: m(x[0], x[1], tgt_mask=later.double(),
                                              src_key_padding_mask=x[5],
                                              memory_key_padding_mask=x[5]),
         [normal(2, 5, 8), normal(2, 4, 8), None, None, None, flags(2, 5)], decoder_layers=1,
         causal=True, pads_memory=True, **ours)


if __name__ == '__main__':
    torch.manual_seed(13)
    attention_cases()
    block_cases()
    stack_cases()
    save('transformer', TENSORS, METADATA)
