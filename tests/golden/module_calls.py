"""How PyTorch's samples of modules become cases of golden_samples_test.c: for each class a function
of its constructor's arguments that gives (kind of ours, its options), or raises Skip(reason). A
loss is a function here: its sample becomes one of sample_calls.py.

Inputs of a case are those of the module, then its state, by PyTorch's names; outputs are those of
the module, then its buffers. Options have the names of nn_layers.h and its neighbours."""
import copy
import inspect
import os
import re
import types

import torch
from torch.func import functional_call

from sample_calls import CALLS, Skip, back, last, listed, lookup

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = {}  # by class
LOSSES = {'L1Loss': 'l1_loss', 'SmoothL1Loss': 'smooth_l1_loss', 'MSELoss': 'mse_loss',
          'KLDivLoss': 'kl_div', 'NLLLoss': 'nll_loss', 'GaussianNLLLoss': 'gaussian_nll_loss',
          'PoissonNLLLoss': 'poisson_nll_loss', 'HingeEmbeddingLoss': 'hinge_embedding_loss',
          'HuberLoss': 'huber_loss', 'BCELoss': 'binary_cross_entropy',
          'BCEWithLogitsLoss': 'binary_cross_entropy_with_logits',
          'CrossEntropyLoss': 'cross_entropy', 'CTCLoss': 'ctc_loss',
          'CosineEmbeddingLoss': 'cosine_embedding_loss', 'SoftMarginLoss': 'soft_margin_loss',
          'MarginRankingLoss': 'margin_ranking_loss', 'MultiMarginLoss': 'multi_margin_loss',
          'MultiLabelMarginLoss': 'multilabel_margin_loss',
          'MultiLabelSoftMarginLoss': 'multilabel_soft_margin_loss',
          'FractionalMaxPool2d': 'fractional_max_pool2d',
          'FractionalMaxPool3d': 'fractional_max_pool3d'}


def layer(*names):
    def keep(function):
        for name in names:
            LAYERS[name] = function
        return function
    return keep


def number(x):
    """0 means the default, TUTTI_ZERO the number."""
    return -0.0 if x == 0 else x


# ---- linear, windows ----------------------------------------------------------------------------

@layer('Linear')
def linear(a):
    return 'linear', {'in': a['in_features'], 'out': a['out_features'], 'no_bias': not a['bias']}


@layer('Bilinear')
def bilinear(a):
    return 'bilinear', {'in': a['in1_features'], 'second_in': a['in2_features'],
                        'out': a['out_features'], 'no_bias': not a['bias']}


def conv(kind, dims):
    def make(a):
        if a['padding_mode'] != 'zeros':
            raise Skip('padding_mode')
        same = a['padding'] == 'same'
        options = {'in': a['in_channels'], 'out': a['out_channels'],
                   'kernel': listed(a['kernel_size'], dims), 'no_bias': not a['bias'],
                   'move.stride': listed(a['stride'], dims), 'move.same': same,
                   'move.padding': [0] * dims if same else listed(a['padding'], dims),
                   'move.dilation': listed(a['dilation'], dims), 'move.groups': a['groups']}
        if 'output_padding' in a:
            options['move.output_padding'] = listed(a['output_padding'], dims)
        return kind, options
    return make


def pool(kind, dims):
    def make(a):
        renamed = {'kernel_size': 'kernel', 'norm_type': 'p', 'divisor_override': 'divisor'}
        options = {renamed.get(k, k): v if k in ('ceil_mode', 'divisor_override', 'norm_type')
                   else listed(v, dims) for k, v in a.items()
                   if v is not None and k not in ('return_indices', 'count_include_pad')}
        options['excludes_padding'] = not a.get('count_include_pad', True)
        if kind.startswith('avg'):
            return kind, options
        options.pop('excludes_padding')
        return kind, options
    return make


def adaptive(kind, dims):
    def make(a):
        return kind, {'size': [n or 0 for n in listed(a['output_size'], dims)]}
    return make


def pad(theirs, mode, dims):
    def make(a):
        return 'pad', {'sizes': listed(a['padding'], 2 * dims), 'mode': mode,
                       'value': a.get('value', 0)}
    LAYERS['%s%dd' % (theirs, dims)] = make


for dims in (1, 2, 3):
    LAYERS['Conv%dd' % dims] = conv('conv%dd' % dims, dims)
    LAYERS['ConvTranspose%dd' % dims] = conv('conv_transpose%dd' % dims, dims)
    for theirs, ours in (('MaxPool', 'max_pool'), ('AvgPool', 'avg_pool'), ('LPPool', 'lp_pool')):
        LAYERS['%s%dd' % (theirs, dims)] = pool('%s%dd' % (ours, dims), dims)
    for theirs, ours in (('AdaptiveAvgPool', 'avg'), ('AdaptiveMaxPool', 'max')):
        LAYERS['%s%dd' % (theirs, dims)] = adaptive('adaptive_%s_pool%dd' % (ours, dims), dims)
    for theirs, mode in (('ConstantPad', 0), ('ZeroPad', 0), ('ReflectionPad', 1),
                         ('ReplicationPad', 2), ('CircularPad', 3)):
        pad(theirs, mode, dims)


# ---- element by element -------------------------------------------------------------------------

def activation(theirs, name, **renamed):
    def make(a):
        with open(os.path.join(HERE, '..', '..', 'include', 'tutti', 'nn_layers.h')) as file:
            names = re.findall(r'^    TUTTI_ACTIVATION_(\w+),', file.read(), re.M)
        return 'activation', {'kind': names.index(name),
                              **{ours: number(a[key]) for key, ours in renamed.items()}}
    LAYERS[theirs] = make


for theirs in ('ReLU', 'SiLU', 'Sigmoid', 'Tanh', 'SELU', 'LogSigmoid', 'Mish', 'Softsign',
               'Tanhshrink', 'ReLU6', 'Hardsigmoid', 'Hardswish'):
    activation(theirs, theirs.upper())
activation('LeakyReLU', 'LEAKY_RELU', negative_slope='slope')
activation('ELU', 'ELU', alpha='alpha')
activation('CELU', 'CELU', alpha='alpha')
activation('Softplus', 'SOFTPLUS', beta='beta', threshold='bound')
activation('Threshold', 'THRESHOLD', threshold='threshold', value='value')
activation('Hardtanh', 'HARDTANH', min_val='low', max_val='high')
activation('Hardshrink', 'HARDSHRINK', lambd='lambda')
activation('Softshrink', 'SOFTSHRINK', lambd='lambda')
activation('GELU', 'GELU')


@layer('PReLU')
def prelu(a):
    return 'prelu', {'count': a['num_parameters']}


def over_dim(theirs, kind):
    LAYERS[theirs] = lambda a: (kind, {'dim': a.get('dim', -3)})


for theirs, kind in (('Softmax', 'softmax'), ('Softmax2d', 'softmax'), ('Softmin', 'softmin'),
                     ('LogSoftmax', 'log_softmax'), ('GLU', 'glu')):
    over_dim(theirs, kind)


# ---- norms, tables ------------------------------------------------------------------------------

@layer('BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d')
def batch_norm(a):
    return 'batch_norm', {'width': a['num_features'], 'eps': a['eps'],
                          'no_affine': not a['affine'], 'no_bias': not a['bias'],
                          'momentum': a['momentum'] or 0, 'cumulative': a['momentum'] is None,
                          'no_running': not a['track_running_stats']}


@layer('GroupNorm')
def group_norm(a):
    return 'group_norm', {'width': a['num_channels'], 'groups': a['num_groups'], 'eps': a['eps'],
                          'no_affine': not a['affine'], 'no_bias': not a['bias']}


def instance_norm(dims):
    def make(a):
        momentum = number(a['momentum']) if a['momentum'] is not None else -0.0
        return 'instance_norm', {
            'width': a['num_features'], 'eps': a['eps'], 'affine': a['affine'],
            'no_bias': not a['bias'], 'running': a['track_running_stats'], 'momentum': momentum,
            'spatial_dims': dims}
    LAYERS['InstanceNorm%dd' % dims] = make


for dims in (1, 2, 3):
    instance_norm(dims)


@layer('LayerNorm', 'RMSNorm')
def row_norm(a):
    kind, more = ('layer_norm', {'no_bias': not a['bias']}) if 'bias' in a else ('rms_norm', {})
    return kind, {'shape': listed(a['normalized_shape'], 1), 'eps': a['eps'],
                  'no_affine': not a['elementwise_affine'], **more}


@layer('LocalResponseNorm')
def local_response_norm(a):
    return 'local_response_norm', a


@layer('Embedding')
def embedding(a):
    options = lookup(a)
    options['has_padding'] = 'padding' in options
    return 'embedding', {'count': a['num_embeddings'], 'width': a['embedding_dim'],
                         **{'lookup.' + name: value for name, value in options.items()}}


@layer('LinearCrossEntropyLoss')
def linear_cross_entropy(a):
    ignore = {} if a['ignore_index'] is None else {'has_ignore_index': True,
                                                   'ignore_index': a['ignore_index']}
    return 'linear_cross_entropy', {
        'in': a['in_features'], 'classes': a['num_classes'], 'sizes': list(a['out_features']),
        'has_bias': a['bias'], 'has_weight': a['weight'] is not None,
        'reduction': ('mean', 'sum', 'none').index(a['reduction']),
        'label_smoothing': a['label_smoothing'], **ignore}


@layer('AdaptiveLogSoftmaxWithLoss')
def adaptive_log_softmax(a):
    return 'adaptive_log_softmax', {
        'in': a['in_features'], 'classes': a['n_classes'], 'cutoffs': list(a['cutoffs']),
        'div_value': a['div_value'], 'has_bias': a['head_bias']}


# ---- recurrent, attention -----------------------------------------------------------------------

def recurrent(theirs):
    def make(a):
        return theirs.lower(), {
            'in': a['input_size'], 'hidden': a['hidden_size'], 'layers': a['num_layers'],
            'bidirectional': a['bidirectional'], 'batch_first': a['batch_first'],
            'no_bias': not a['bias'], 'dropout': a['dropout'],
            'nonlinearity': int(a.get('nonlinearity') == 'relu'),
            'projection': a.get('proj_size', 0)}
    LAYERS[theirs] = make
    LAYERS[theirs + 'Cell'] = lambda a: (theirs.lower() + '_cell', {
        'in': a['input_size'], 'hidden': a['hidden_size'], 'no_bias': not a['bias'],
        'nonlinearity': int(a.get('nonlinearity') == 'relu')})


for theirs in ('RNN', 'LSTM', 'GRU'):
    recurrent(theirs)


@layer('MultiheadAttention')
def multihead_attention(a):
    return 'multihead_attention', {
        'width': a['embed_dim'], 'heads': a['num_heads'], 'dropout': a['dropout'],
        'key_width': a['kdim'] or 0, 'value_width': a['vdim'] or 0, 'no_bias': not a['bias'],
        'batch_first': a['batch_first'], 'bias_kv': a['add_bias_kv'],
        'zero_attention': a['add_zero_attn']}


def transformer_options(a):
    names = {torch.nn.functional.relu: 1, torch.nn.functional.gelu: 2, 'relu': 1, 'gelu': 2}
    return {'width': a['d_model'], 'heads': a['nhead'], 'hidden': a['dim_feedforward'],
            'activation': names[a['activation']], 'dropout': a['dropout'],
            'eps': a['layer_norm_eps'], 'norm_first': a['norm_first'],
            'batch_first': a['batch_first'], 'no_bias': not a['bias']}


@layer('TransformerEncoderLayer')
def encoder_block(a):
    return 'encoder_block', transformer_options(a)


@layer('TransformerDecoderLayer')
def decoder_block(a):
    return 'decoder_block', transformer_options(a)


@layer('TransformerEncoder')
def encoder(a):
    block = a['encoder_layer']
    if a['norm'] is not None:
        raise Skip('a norm of its own')
    return 'encoder', {
        'width': block.linear1.in_features, 'heads': block.self_attn.num_heads,
        'hidden': block.linear1.out_features, 'layers': a['num_layers'],
        'activation': 2 if block.activation is torch.nn.functional.gelu else 1,
        'dropout': block.dropout.p, 'eps': block.norm1.eps, 'norm_first': block.norm_first,
        'batch_first': block.self_attn.batch_first, 'no_bias': block.linear1.bias is None}


@layer('Transformer')
def transformer(a):
    return 'transformer', {**transformer_options(a), 'layers': a['num_encoder_layers'],
                           'decoder_layers': a['num_decoder_layers']}


# Inputs in our order, where there are more, or others.
INPUTS = {**{'ConvTranspose%dd' % dims: ('input',) for dims in (1, 2, 3)},
          'MultiheadAttention': ('query', 'key', 'value', 'attn_mask', 'key_padding_mask'),
          'TransformerEncoder': ('src', 'mask', 'src_key_padding_mask'),
          'TransformerEncoderLayer': ('src', 'src_mask', 'src_key_padding_mask'),
          'TransformerDecoderLayer': ('tgt', 'memory', 'tgt_mask', 'memory_mask',
                                      'tgt_key_padding_mask', 'memory_key_padding_mask'),
          'Transformer': ('src', 'tgt', 'src_mask', 'tgt_mask', 'memory_mask',
                          'src_key_padding_mask', 'tgt_key_padding_mask',
                          'memory_key_padding_mask')}
FIXED = {'MultiheadAttention': {'need_weights': True, 'average_attn_weights': False}}


# ---- a sample -----------------------------------------------------------------------------------

def bound(function, given, *front):
    b = inspect.signature(function).bind(*front, *given.args, **given.kwargs)
    b.apply_defaults()
    return {k: v for k, v in b.arguments.items() if k != 'self'}


def arguments(cls, given):
    """Of the constructor, by name."""
    if not issubclass(cls, torch.nn.RNNBase):
        return bound(cls.__init__, given, None)
    own = {k: v for k, v in given.kwargs.items() if k == 'nonlinearity'}
    base = {k: v for k, v in given.kwargs.items() if k not in own}
    return {**own, **bound(torch.nn.RNNBase.__init__,
                           types.SimpleNamespace(args=given.args, kwargs=base), None, None)}


def flat(values):
    return [x for v in values for x in (flat(v) if isinstance(v, (tuple, list)) else [v])]


def refill(value, xs):
    return tuple(refill(v, xs) for v in value) if isinstance(value, (tuple, list)) else next(xs)


def random_state(m, dtype):
    """The state of m as tensors of a dtype, none of them 0 or 1 everywhere."""
    for p in m.parameters():
        p.data += torch.randn_like(p) * (.3 if p.ndim == 1 else 0)
    for b in m.buffers():
        b.copy_(torch.rand_like(b) + .5 if b.is_floating_point() else torch.full_like(b, 3))
    return [x.to(dtype) if x.is_floating_point() else x for x in m.state_dict().values()]


def with_classes(name, forward, move):
    """The inputs of a module with the classes of probabilities elsewhere."""
    y = forward.get('target')
    is_moved = name == 'LinearCrossEntropyLoss' and y.is_floating_point()
    return {**forward, 'target': move(y)} if is_moved else forward


def is_uncounted(name, x, training):
    """A batch without values counts as one for PyTorch's batch norm, and as none here."""
    return name.startswith('BatchNorm') and training and x.numel() == 0


def call_of_module(name, m, forward, names):
    """A function of inputs and state that gives the outputs, and buffers behind them."""
    order = INPUTS.get(name, list(forward))
    buffers = [n for n, _ in m.named_buffers()]
    forward = with_classes(name, forward, last)
    more = {**forward, **FIXED.get(name, {})}

    def run(*xs):
        it = iter(xs)
        given = {n: refill(forward[n], it) for n in order}
        state = {n: x.clone() if n in buffers else x for n, x in zip(names, it)}
        given = with_classes(name, {**more, **given}, back)
        y = functional_call(m.double(), state, (), given)
        if is_uncounted(name, xs[0], m.training) and 'num_batches_tracked' in state:
            state['num_batches_tracked'] -= 1
        return flat([y]) + [state[n] for n in buffers]
    return run, flat([forward[n] for n in order]), buffers


def from_module(cls, sample, dtype, training):
    """As a function of sample_calls.py."""
    name = cls.__name__
    given = sample.constructor_input
    a = arguments(cls, given)
    kind, options = LAYERS[name]({k: v for k, v in a.items() if k not in
                                  ('device', 'dtype', 'inplace')})
    m = cls(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs)).train(training)
    state, names = random_state(m, dtype), list(m.state_dict())
    run, xs, buffers = call_of_module(name, m, bound(m.forward, sample.forward_input), names)
    constant = [len(xs) + names.index(n) for n in buffers]
    more = {}
    if name.startswith('Transformer') and dtype == torch.bfloat16:
        # Norms of four numbers, and a ReLU that may be on the other side of 0: no gradients.
        more['tolerance'], constant = .15, range(len(xs + state))
    return ('module', xs + state, run,
            {'kind': kind, 'options': options, 'state': names, 'buffers': buffers,
             'training': training, 'constant': constant, **more})


def from_loss(name, sample):
    """As a function of sample_calls.py."""
    cls = getattr(torch.nn, name)
    b = inspect.signature(cls.__init__).bind(None, *sample.constructor_input.args,
                                             **sample.constructor_input.kwargs)
    inputs = flat(sample.forward_input.args)
    more = {k: v for k, v in b.arguments.items() if k != 'self'}
    if name == 'CTCLoss':
        inputs = list(sample.forward_input.args)
    return CALLS['nn.functional.' + LOSSES[name]](
        types.SimpleNamespace(input=inputs[0], args=tuple(inputs[1:]),
                              kwargs={**more, **sample.forward_input.kwargs}))


def module_call(cls, dtype, training):
    """As a function of sample_calls.py, for samples of a class."""
    def make(sample):
        if issubclass(cls, torch.nn.modules.lazy.LazyModuleMixin):
            raise Skip('shapes are given here')
        if cls.__name__ in LOSSES:
            return from_loss(cls.__name__, sample)
        if cls.__name__ not in LAYERS:
            raise Skip('not here')
        return from_module(cls, sample, dtype, training)
    return make
