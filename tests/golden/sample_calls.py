"""How PyTorch's samples of operations become cases of golden_calls.h: for each name of its database
a function of a sample that gives (name of ours, inputs, function of them, arguments), or raises
Skip(reason). The function computes with PyTorch what ours gives of these inputs."""
import math

import torch
import torch.nn.functional as F


class Skip(Exception):
    pass


def bind(sample, names, **defaults):
    """The arguments behind the first, by name."""
    args = {**dict.fromkeys(names.split()), **defaults}
    if len(sample.args) > len(names.split()):
        raise Skip('more arguments')
    given = {**dict(zip(names.split(), sample.args)), **sample.kwargs}
    for name, value in given.items():
        if name not in args:
            raise Skip('argument ' + name)
        args[name] = value
    return args


def listed(value, count):
    if isinstance(value, (tuple, list)):
        return list(value) if len(value) != 1 else list(value) * count
    return [value] * count


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 2**53


CALLS = {}


def call(*names):
    def keep(function):
        for name in names:
            CALLS[name] = function
        return function
    return keep


# ---- element by element -------------------------------------------------------------------------

def unary(theirs, ours, f):
    def make(sample):
        if sample.args or sample.kwargs:
            raise Skip('more arguments')
        return ours, [sample.input], f, {}
    CALLS[theirs] = make


for name in ('abs', 'square', 'sqrt', 'rsqrt', 'exp', 'log', 'log1p', 'expm1', 'sin', 'cos', 'erf',
             'tanh', 'sigmoid', 'neg', 'sign', 'floor', 'ceil', 'round', 'trunc', 'logical_not',
             'isnan', 'isinf', 'isfinite', 'clone', 'contiguous'):
    unary(name, name, getattr(torch, name, None) or getattr(torch.Tensor, name))
for name in ('relu', 'silu', 'selu', 'mish', 'hardswish', 'relu6', 'softsign',
             'tanhshrink', 'logsigmoid'):
    unary('nn.functional.' + name, name, getattr(F, name))
# PyTorch's own gradient has 1/6 in f32.
unary('nn.functional.hardsigmoid', 'hardsigmoid', lambda x: F.relu6(x + 3) / 6)


@call('nn.functional.gelu')
def gelu(sample):
    how = bind(sample, 'approximate', approximate='none')['approximate']
    return ('gelu' if how == 'none' else 'gelu_tanh', [sample.input],
            lambda x: F.gelu(x, approximate=how), {})


def binary(theirs, f, scalar, only=()):
    def make(sample):
        a = bind(sample, 'other ' + ' '.join(only), alpha=1, rounding_mode=None)
        if a['alpha'] != 1 or a['rounding_mode'] is not None:
            raise Skip('alpha, rounding_mode')
        x, y = sample.input, a['other']
        if torch.is_tensor(x) and torch.is_tensor(y):
            return theirs, [x, y], f, {}
        if torch.is_tensor(x) and is_number(y) and scalar:
            return theirs + '_scalar', [x], lambda x: f(x, y), {'value': y}
        if is_number(x) and torch.is_tensor(y) and theirs in ('sub', 'div'):
            return 'scalar_' + theirs, [y], lambda y: f(x, y), {'value': x}
        raise Skip('numbers')
    return make


for name in ('add', 'sub', 'mul', 'div', 'pow', 'eq', 'ne', 'lt', 'le', 'gt', 'ge'):
    CALLS[name] = binary(name, getattr(torch, name), True)
for name in ('maximum', 'minimum', 'logical_and', 'logical_or', 'matmul'):
    CALLS[name] = binary(name, getattr(torch, name), False)
CALLS['true_divide'] = binary('div', torch.div, True)
CALLS['mm'] = CALLS['bmm'] = CALLS['mv'] = CALLS['dot'] = CALLS['matmul']


@call('clamp')
def clamp(sample):
    a = bind(sample, 'min max')
    low = -math.inf if a['min'] is None else a['min']
    high = math.inf if a['max'] is None else a['max']
    if torch.is_tensor(low) or torch.is_tensor(high) or math.isinf(low) or math.isinf(high):
        raise Skip('a bound is a tensor, or missing')
    return 'clamp', [sample.input], lambda x: x.clamp(low, high), {'low': low, 'high': high}


@call('where')
def where(sample):
    a = bind(sample, 'condition other')
    xs = [a['condition'], sample.input, a['other']]
    if not all(map(torch.is_tensor, xs)) or xs[0].dtype != torch.bool:
        raise Skip('numbers')
    return 'where', xs, torch.where, {}


@call('masked_fill')
def masked_fill(sample):
    a = bind(sample, 'mask value')
    if not is_number(a['value']) or a['mask'].ndim > sample.input.ndim:
        raise Skip('the value is a tensor, or the mask is larger')
    return ('masked_fill', [sample.input, a['mask']], lambda x, m: x.masked_fill(m, a['value']),
            {'value': a['value']})


ACTIVATIONS = {'leaky_relu': ({'negative_slope': 0.01}, F.leaky_relu),
               'elu': ({'alpha': 1.}, F.elu),
               'celu': ({'alpha': 1.}, F.celu), 'hardshrink': ({'lambd': .5}, F.hardshrink),
               'softshrink': ({'lambd': .5}, F.softshrink), 'softplus':
               ({'beta': 1, 'threshold': 20}, F.softplus), 'hardtanh':
               ({'min_val': -1., 'max_val': 1.}, F.hardtanh),
               'threshold': ({'threshold': None, 'value': None}, F.threshold)}


def activation(name, defaults, f):
    def make(sample):
        a = bind(sample, ' '.join(defaults) + ' inplace', **defaults)
        a.pop('inplace', None)
        return name, [sample.input], lambda x: f(x, **a), a
    CALLS['nn.functional.' + name] = make


for name, (defaults, f) in ACTIVATIONS.items():
    activation(name, defaults, f)


@call('nn.functional.prelu')
def prelu(sample):
    return 'prelu', [sample.input, bind(sample, 'weight')['weight']], F.prelu, {}


@call('nn.functional.glu')
def glu(sample):
    dim = bind(sample, 'dim', dim=-1)['dim']
    return 'glu', [sample.input], lambda x: F.glu(x, dim), {'dim': dim}


def soft(name, f):
    def make(sample):
        a = bind(sample, 'dim', dim=-1, dtype=None, _stacklevel=3)
        if a['dtype'] is not None:
            raise Skip('another dtype')
        return name, [sample.input], lambda x: f(x, a['dim']), {'dim': a['dim']}
    return make


CALLS['softmax'] = soft('softmax', torch.softmax)
CALLS['log_softmax'] = soft('log_softmax', torch.log_softmax)
CALLS['nn.functional.softmin'] = soft('softmin', F.softmin)


# ---- reductions, order --------------------------------------------------------------------------

def over(theirs, ours, f):
    def make(sample):
        a = bind(sample, 'dim keepdim', keepdim=False, dtype=None)
        if a['dtype'] is not None:
            raise Skip('another dtype')
        dim = a['dim']
        if dim is None or dim == [] or dim == ():
            if a['keepdim']:
                raise Skip('keepdim of all')
            return ours, [sample.input], f, {'all': True}
        dims = listed(dim, 1)
        return (ours, [sample.input], lambda x: f(x, dim=dim, keepdim=a['keepdim']),
                {'dims': dims, 'keepdim': a['keepdim']})
    CALLS[theirs] = make


for theirs, ours in (('sum', 'sum'), ('mean', 'mean'), ('prod', 'prod'), ('amax', 'max'),
                     ('amin', 'min'), ('any', 'any'), ('all', 'all')):
    over(theirs, ours, getattr(torch, theirs))


@call('var')
def var(sample):
    a = bind(sample, 'dim unbiased keepdim', keepdim=False, correction=1)
    if isinstance(a['dim'], bool):
        raise Skip('unbiased alone')
    correction = {None: a['correction'], True: 1, False: 0}[a['unbiased']]
    correction = 1 if correction is None else correction
    if a['dim'] is None:
        if correction != 1 or a['keepdim']:
            raise Skip('correction of all')
        return 'var', [sample.input], torch.var, {'all': True}
    return ('var', [sample.input],
            lambda x: torch.var(x, a['dim'], correction=correction, keepdim=a['keepdim']),
            {'dims': listed(a['dim'], 1), 'keepdim': a['keepdim'], 'correction': correction})


def arg(name):
    def make(sample):
        a = bind(sample, 'dim keepdim', keepdim=False)
        if a['dim'] is None:
            raise Skip('of all')
        return (name, [sample.input],
                lambda x: getattr(torch, name)(x, a['dim'], keepdim=a['keepdim']), a)
    CALLS[name] = make


arg('argmax')
arg('argmin')


def along(name):
    def make(sample):
        if sample.args and torch.is_tensor(sample.args[0]):
            return ('maximum' if name == 'max' else 'minimum', [sample.input, sample.args[0]],
                    getattr(torch, name), {})
        a = bind(sample, 'dim keepdim', keepdim=False)
        f = getattr(torch, name)
        if a['dim'] is None:
            return name, [sample.input], f, {'all': True}
        return (name + '_along', [sample.input], lambda x: tuple(f(x, a['dim'], a['keepdim'])), a)
    CALLS[name] = make


along('max')
along('min')


def scan(name):
    def make(sample):
        a = bind(sample, 'dim', dtype=None)
        if a['dtype'] is not None:
            raise Skip('another dtype')
        return name, [sample.input], lambda x: getattr(torch, name)(x, a['dim']), {'dim': a['dim']}
    CALLS[name] = make


scan('cumsum')
scan('cumprod')


def has_ties(x, dim):
    return x.ndim > 0 and x.numel() > 0 and bool((x.sort(dim)[0].diff(dim=dim) == 0).any())


@call('sort', 'msort')
def sort(sample):
    a = bind(sample, 'dim descending', dim=-1, descending=False, stable=False)
    return ('sort', [sample.input],
            lambda x: tuple(x.sort(dim=a['dim'], descending=a['descending'], stable=True)),
            {'dim': a['dim'], 'descending': a['descending']})


@call('argsort')
def argsort(sample):
    a = bind(sample, 'dim descending', dim=-1, descending=False, stable=False)
    return ('argsort', [sample.input],
            lambda x: x.sort(dim=a['dim'], descending=a['descending'], stable=True)[1],
            {'dim': a['dim'], 'descending': a['descending']})


@call('topk')
def topk(sample):
    a = bind(sample, 'k dim largest sorted', dim=-1, largest=True, sorted=True)
    if has_ties(sample.input, a['dim']):
        raise Skip('ties')
    return ('topk', [sample.input], lambda x: tuple(x.topk(a['k'], a['dim'], a['largest'])),
            {'k': a['k'], 'dim': a['dim'], 'largest': a['largest']})


@call('nn.functional.one_hot')
def one_hot(sample):
    a = bind(sample, 'num_classes', num_classes=-1)
    if a['num_classes'] < 1:
        raise Skip('the number of classes is not given')
    return ('one_hot', [sample.input], lambda x: F.one_hot(x, a['num_classes']),
            {'classes': a['num_classes']})


@call('index_add')
def index_add(sample):
    a = bind(sample, 'dim index source', alpha=1)
    if a['alpha'] != 1 or sample.input.ndim == 0:
        raise Skip('alpha, a scalar')
    return ('index_add', [sample.input, a['index'], a['source']],
            lambda x, i, y: x.index_add(a['dim'], i, y), {'dim': a['dim']})


def scatter(name, ours):
    def make(sample):
        a = bind(sample, 'dim index src', reduce=None)
        if a['reduce'] is not None or not torch.is_tensor(a['src']) or sample.input.ndim == 0:
            raise Skip('reduce, numbers, a scalar')
        if name == 'scatter' and a['index'].unique().numel() != a['index'].numel():
            raise Skip('one place twice: the gradient differs')
        return (ours, [sample.input, a['index'], a['src']],
                lambda x, i, y: getattr(x, name)(a['dim'], i, y), {'dim': a['dim']})
    CALLS[name] = make


scatter('scatter', 'scatter_along')
scatter('scatter_add', 'scatter_along_add')


@call('gather')
def gather(sample):
    a = bind(sample, 'dim index', sparse_grad=False)
    if sample.input.ndim == 0 or a['index'].ndim == 0 or a['index'].dtype != torch.int64:
        raise Skip('a scalar, indices of another dtype')
    return ('gather', [sample.input, a['index']], lambda x, i: x.gather(a['dim'], i),
            {'dim': a['dim']})


@call('index_select')
def index_select(sample):
    a = bind(sample, 'dim index')
    if sample.input.ndim == 0 or a['index'].ndim != 1:
        raise Skip('a scalar')
    return ('index_select', [sample.input, a['index']], lambda x, i: x.index_select(a['dim'], i),
            {'dim': a['dim']})


# ---- shapes -------------------------------------------------------------------------------------

def plain_shape(theirs, ours):
    def make(sample):
        shape = sample.args[0] if sample.args and isinstance(sample.args[0], (tuple, list)) \
            else sample.args
        if not all(isinstance(n, int) for n in shape) or sample.kwargs:
            raise Skip('the shape')
        f = getattr(torch.Tensor, theirs)
        want = f(sample.input, shape)
        if len(want.shape) > 8:
            raise Skip('more than eight dimensions')
        return ours, [sample.input], lambda x: f(x, shape), {'shape': list(shape)}
    CALLS[theirs] = make


plain_shape('view', 'view')
plain_shape('reshape', 'reshape')


@call('expand')
def expand(sample):
    want = sample.input.expand(*sample.args)
    return ('expand', [sample.input], lambda x: x.expand(want.shape), {'shape': list(want.shape)})


@call('flatten')
def flatten(sample):
    a = bind(sample, 'start_dim end_dim', start_dim=0, end_dim=-1)
    return ('flatten', [sample.input], lambda x: x.flatten(a['start_dim'], a['end_dim']),
            {'first': a['start_dim'], 'last': a['end_dim']})


def by_dims(name, names, f):
    def make(sample):
        a = bind(sample, names)
        if any(v is None or torch.is_tensor(v) or isinstance(v, (tuple, list))
               for v in a.values()):
            raise Skip('the arguments')
        keys = dict(zip(('transpose', 'narrow', 'select', 'squeeze', 'unsqueeze', 'tril', 'triu'),
                        ('a b', 'dim start length', 'dim index', 'dim', 'dim', 'diagonal',
                         'diagonal')))[name].split()
        values = list(a.values())
        if name == 'squeeze' and sample.input.ndim > 0 and sample.input.shape[a['dim']] != 1:
            raise Skip('a size that is not 1 stays: refused here')
        return name, [sample.input], lambda x: f(x, *values), dict(zip(keys, values))
    CALLS[name] = make


by_dims('transpose', 'dim0 dim1', torch.transpose)
by_dims('narrow', 'dim start length', torch.narrow)
by_dims('select', 'dim index', torch.select)
by_dims('squeeze', 'dim', torch.squeeze)
by_dims('unsqueeze', 'dim', torch.unsqueeze)


def triangle(name):
    def make(sample):
        diagonal = bind(sample, 'diagonal', diagonal=0)['diagonal']
        return (name, [sample.input], lambda x: getattr(torch, name)(x, diagonal),
                {'diagonal': diagonal})
    CALLS[name] = make


triangle('tril')
triangle('triu')


@call('permute')
def permute(sample):
    dims = bind(sample, 'dims')['dims']
    return 'permute', [sample.input], lambda x: x.permute(dims), {'dims': list(dims)}


@call('flip')
def flip(sample):
    dims = listed(bind(sample, 'dims')['dims'], 1)
    return 'flip', [sample.input], lambda x: x.flip(dims), {'dims': dims}


@call('roll')
def roll(sample):
    a = bind(sample, 'shifts dims', dims=())
    shifts, dims = listed(a['shifts'], 1), listed(a['dims'] if a['dims'] is not None else (), 1)
    if not dims and len(shifts) != 1:
        raise Skip('no dimensions')
    return ('roll', [sample.input], lambda x: x.roll(shifts, dims),
            {'shifts': shifts, 'dims': dims})


def joined(name):
    def make(sample):
        dim = bind(sample, 'dim', dim=0)['dim']
        xs = list(sample.input)
        if len(xs) > 8 or any(x.shape == (0,) for x in xs) or len({x.dtype for x in xs}) > 1:
            raise Skip('more than eight, or an empty one of another rank')
        return name, xs, lambda *xs: getattr(torch, name)(xs, dim), {'dim': dim}
    CALLS[name] = make


joined('cat')
joined('stack')


@call('split_with_sizes')
def split_with_sizes(sample):
    a = bind(sample, 'split_sizes dim', dim=0)
    if len(a['split_sizes']) > 8:
        raise Skip('more than eight')
    return ('split_sizes', [sample.input],
            lambda x: tuple(x.split_with_sizes(a['split_sizes'], a['dim'])),
            {'sizes': list(a['split_sizes']), 'dim': a['dim']})


@call('einsum')
def einsum(sample):
    equation = sample.args[0]
    return ('einsum', list(sample.input), lambda *xs: torch.einsum(equation, *xs),
            {'equation': equation})


@call('nn.functional.pad')
def pad(sample):
    a = bind(sample, 'pad mode value', mode='constant', value=None)
    if a['mode'] == 'constant':
        value = 0 if a['value'] is None else a['value']
        return ('pad', [sample.input], lambda x: F.pad(x, a['pad'], value=value),
                {'mode': 'constant', 'sizes': list(a['pad']), 'value': value})
    return ('pad', [sample.input], lambda x: F.pad(x, a['pad'], a['mode']),
            {'mode': a['mode'], 'sizes': list(a['pad'])})


@call('nn.functional.unfold')
def unfold(sample):
    a = bind(sample, 'kernel_size dilation padding stride', dilation=1, padding=0, stride=1)
    args = {k: listed(v, 2) for k, v in a.items()}
    args['kernel'] = args['kernel_size']
    return 'unfold', [sample.input], lambda x: F.unfold(x, **a), args


for name in ('pixel_shuffle', 'pixel_unshuffle'):
    def make(sample, name=name):
        factor = bind(sample, 'factor upscale_factor downscale_factor')
        factor = next(v for v in factor.values() if v is not None)
        return name, [sample.input], lambda x: getattr(F, name)(x, factor), {'factor': factor}
    CALLS['nn.functional.' + name] = make


@call('nn.functional.channel_shuffle')
def channel_shuffle(sample):
    groups = bind(sample, 'groups')['groups']
    return ('channel_shuffle', [sample.input], lambda x: F.channel_shuffle(x, groups),
            {'factor': groups})


# ---- windows ------------------------------------------------------------------------------------

CONV = dict(stride=1, padding=0, dilation=1, groups=1, bias=None)


def conv(name, dims, is_transposed):
    f = getattr(F, name)

    def make(sample):
        names = 'weight bias stride padding ' + ('output_padding groups dilation' if is_transposed
                                                 else 'dilation groups')
        a = bind(sample, names, **CONV, **({'output_padding': 0} if is_transposed else {}))
        xs = [sample.input, a.pop('weight'), a.pop('bias')]
        options = {k: v if k == 'groups' or isinstance(v, str) else listed(v, dims)
                   for k, v in a.items()}
        if options['padding'] == 'valid':
            options['padding'] = [0] * dims
        if options['padding'] == 'same':
            options.update(padding=[0] * dims, same=1)
        return name, xs, lambda x, w, b: f(x, w, b, **a), options
    CALLS['nn.functional.' + name] = make


for dims in (1, 2, 3):
    conv('conv%dd' % dims, dims, False)
    conv('conv_transpose%dd' % dims, dims, True)


def max_pool(dims):
    f = getattr(F, 'max_pool%dd' % dims)

    def make(sample):
        a = bind(sample, 'kernel_size stride padding dilation', stride=None, padding=0, dilation=1,
                 ceil_mode=False, return_indices=False)
        a['return_indices'] = True
        args = {k: v if isinstance(v, bool) or v is None else listed(v, dims)
                for k, v in a.items()}
        args['stride'] = args['stride'] or args['kernel_size']
        return 'max_pool%dd' % dims, [sample.input], lambda x: tuple(f(x, **a)), args
    CALLS['nn.functional.max_pool%dd' % dims] = make


def avg_pool(dims):
    f = getattr(F, 'avg_pool%dd' % dims)

    def make(sample):
        a = bind(sample, 'kernel_size stride padding ceil_mode count_include_pad divisor_override',
                 padding=0, ceil_mode=False, count_include_pad=True)
        if dims == 1:
            a.pop('divisor_override')
        args = {k: v if isinstance(v, bool) or v is None or k == 'divisor_override'
                else listed(v, dims) for k, v in a.items()}
        args['stride'] = args['stride'] or args['kernel_size']
        return 'avg_pool%dd' % dims, [sample.input], lambda x: f(x, **a), args
    CALLS['nn.functional.avg_pool%dd' % dims] = make


def adaptive(dims, kind):
    f = getattr(F, 'adaptive_%s_pool%dd' % (kind, dims))

    def make(sample):
        a = bind(sample, 'output_size return_indices')
        size = listed(a['output_size'], dims)
        args = {'size': [0 if n is None else n for n in size]}
        more = {'return_indices': True} if kind == 'max' else {}
        return ('adaptive_%s_pool%dd' % (kind, dims), [sample.input],
                lambda x: f(x, a['output_size'], **more), args)
    CALLS['nn.functional.adaptive_%s_pool%dd' % (kind, dims)] = make


for dims in (1, 2, 3):
    max_pool(dims)
    avg_pool(dims)
    adaptive(dims, 'max')
    adaptive(dims, 'avg')


def max_unpool(dims):
    f = getattr(F, 'max_unpool%dd' % dims)

    def make(sample):
        a = bind(sample, 'indices kernel_size stride padding output_size', stride=None, padding=0)
        at = a.pop('indices')
        rows = at.reshape(-1, max(math.prod(at.shape[-dims:]), 1))
        if any(row.unique().numel() != row.numel() for row in rows):
            raise Skip('one place twice: the gradient differs')
        args = {k: listed(v, dims) for k, v in a.items() if v is not None and k != 'output_size'}
        if a['output_size'] is not None:
            args['size'] = list(a['output_size'])[-dims:]
        return 'max_unpool%dd' % dims, [sample.input, at], lambda x, i: f(x, i, **a), args
    CALLS['nn.functional.max_unpool%dd' % dims] = make


for dims in (1, 2, 3):
    max_unpool(dims)


def fractional(dims):
    f = getattr(F, 'fractional_max_pool%dd' % dims)

    def make(sample):
        a = bind(sample, 'kernel_size output_size output_ratio return_indices _random_samples')
        x, u = sample.input, a['_random_samples']
        batch = x.shape[0] if x.ndim == dims + 2 else 1
        if u is None:
            u = torch.rand(batch, x.shape[-1 - dims], dims)
        u = u[:batch].to(torch.float32).to(x.dtype)
        how = {k: listed(a[k], dims) for k in ('output_size', 'output_ratio') if a[k] is not None}
        return ('fractional_max_pool%dd' % dims, [x, u],
                lambda x, u: f(x, a['kernel_size'], return_indices=True, _random_samples=u, **how),
                {'kernel': listed(a['kernel_size'], dims), **how, 'constant': [1]})
    CALLS['nn.functional.fractional_max_pool%dd' % dims] = make


for dims in (2, 3):
    fractional(dims)


@call('nn.functional.interpolate')
def interpolate(sample):
    a = bind(sample, 'size scale_factor mode align_corners recompute_scale_factor', mode='nearest',
             antialias=False)
    dims = sample.input.ndim - 2
    args = {'mode': a['mode'], 'align_corners': bool(a['align_corners']),
            'antialias': bool(a['antialias'])}
    if a['recompute_scale_factor']:
        scales = listed(a['scale_factor'], dims)
        a['size'] = [math.floor(n * f) for n, f in zip(sample.input.shape[2:], scales)]
        a['scale_factor'] = a['recompute_scale_factor'] = None
    key, value = ('size', a['size']) if a['size'] is not None else ('scale', a['scale_factor'])
    args[key] = listed(value, dims)
    return 'interpolate', [sample.input], lambda x: F.interpolate(x, **a), args


@call('nn.functional.upsample_bilinear')
def upsample_bilinear(sample):
    sample.kwargs = {**sample.kwargs, 'mode': 'bilinear', 'align_corners': True}
    return interpolate(sample)


CALLS['nn.functional.upsample_nearest'] = interpolate


@call('_upsample_bilinear2d_aa')
def upsample_aa(sample):
    a = bind(sample, 'output_size align_corners scale_factors scales_h scales_w')
    if a['scales_h'] is not None:
        raise Skip('size and scale')
    sample.args, sample.kwargs = (), {
        'size': a['output_size'], 'scale_factor': a['scale_factors'], 'mode': 'bilinear',
        'align_corners': a['align_corners'], 'antialias': True}
    return interpolate(sample)


@call('nn.functional.grid_sample')
def grid_sample(sample):
    a = bind(sample, 'grid mode padding_mode align_corners', mode='bilinear', padding_mode='zeros')
    args = {'mode': a['mode'], 'padding': a['padding_mode'],
            'align_corners': bool(a['align_corners'])}
    how = (a['mode'], a['padding_mode'], args['align_corners'])
    return 'grid_sample', [sample.input, a['grid']], lambda x, g: F.grid_sample(x, g, *how), args


@call('grid_sampler_2d', 'grid_sampler_3d')
def grid_sampler(sample):
    grid, mode, padding, align = sample.args
    sample.args = (grid, ('bilinear', 'nearest', 'bicubic')[mode],
                   ('zeros', 'border', 'reflection')[padding], align)
    return grid_sample(sample)


# ---- networks -----------------------------------------------------------------------------------

@call('nn.functional.linear')
def linear(sample):
    a = bind(sample, 'weight bias')
    if a['weight'].ndim != 2:
        raise Skip('a weight that is no matrix')
    return 'linear', [sample.input, a['weight'], a['bias']], F.linear, {}


@call('nn.functional.bilinear')
def bilinear(sample):
    a = bind(sample, 'input2 weight bias')
    return 'bilinear', [sample.input, a['input2'], a['weight'], a['bias']], F.bilinear, {}


def lookup(a):
    """Options of ours for padding_idx, max_norm, norm_type, scale_grad_by_freq."""
    args = {} if a['padding_idx'] is None else {'padding': a['padding_idx']}
    if a['max_norm'] is not None:
        args.update(max_norm=float(a['max_norm']), norm_p=float(a['norm_type']))
    return {**args, 'scale_by_frequency': a['scale_grad_by_freq']}


@call('nn.functional.embedding')
def embedding(sample):
    a = bind(sample, 'weight padding_idx max_norm norm_type scale_grad_by_freq sparse',
             norm_type=2., scale_grad_by_freq=False, sparse=False)
    table, index = a.pop('weight'), sample.input
    if index.is_floating_point():
        table, index = index, table
    a['sparse'] = False
    return 'embedding', [index, table], lambda i, w: F.embedding(i, w, **a), lookup(a)


@call('nn.functional.embedding_bag')
def embedding_bag(sample):
    a = bind(sample, 'weight offsets max_norm norm_type scale_grad_by_freq mode sparse '
             'per_sample_weights include_last_offset padding_idx', norm_type=2., mode='mean',
             scale_grad_by_freq=False, sparse=False, include_last_offset=False)
    table, index = a.pop('weight'), sample.input
    if index.is_floating_point():
        table, index = index, table
    inputs = [index, table, a.pop('offsets'), a.pop('per_sample_weights')]
    a['sparse'] = False
    return ('embedding_bag', inputs,
            lambda i, w, o, f: F.embedding_bag(i, w, o, per_sample_weights=f, **a),
            {'mode': a['mode'], 'last': a['include_last_offset'], **lookup(a)})


def row_norm(name):
    def make(sample):
        a = bind(sample, 'normalized_shape weight bias eps' if name == 'layer_norm' else
                 'normalized_shape weight eps')
        shape, weight, eps = a['normalized_shape'], a['weight'], a['eps']
        if eps is not None and eps < 0:
            raise Skip('a negative eps')
        if name == 'layer_norm':
            eps = 1e-5 if eps is None else eps
            return (name, [sample.input, weight, a['bias']],
                    lambda x, w, b: F.layer_norm(x, shape, w, b, eps),
                    {'eps': eps, 'row_dims': len(shape)})
        eps = 1.1920929e-7 if eps is None else eps
        return (name, [sample.input, weight], lambda x, w: F.rms_norm(x, shape, w, eps),
                {'eps': eps, 'row_dims': len(shape)})
    CALLS['nn.functional.' + name] = make


row_norm('layer_norm')
row_norm('rms_norm')


@call('nn.functional.group_norm')
def group_norm(sample):
    a = bind(sample, 'num_groups weight bias eps', eps=1e-5)
    if a['eps'] < 0:
        raise Skip('a negative eps')
    return ('group_norm', [sample.input, a['weight'], a['bias']],
            lambda x, w, b: F.group_norm(x, a['num_groups'], w, b, a['eps']),
            {'groups': a['num_groups'], 'eps': a['eps'] or 1e-300})


@call('nn.functional.batch_norm')
def batch_norm(sample):
    a = bind(sample, 'running_mean running_var weight bias training momentum eps', training=False,
             momentum=0.1, eps=1e-5)
    mean, variance = a['running_mean'], a['running_var']
    if (mean is None) != (variance is None) or sample.input.ndim < 2:
        raise Skip('a mean without a variance, one dimension')
    if not 0 < a['momentum'] <= 1 or not a['eps'] > 0:
        raise Skip('a momentum or an eps that is 0 or negative')
    if mean is None and not a['training']:
        raise Skip('no statistics')

    def run(x, w, b, m, v):
        m, v = None if m is None else m.clone(), None if v is None else v.clone()
        return F.batch_norm(x, m, v, w, b, a['training'], a['momentum'], a['eps'])
    return ('batch_norm', [sample.input, a['weight'], a['bias'], mean, variance], run,
            {**{k: a[k] for k in ('training', 'momentum', 'eps')}, 'constant': [3, 4]})


@call('nn.functional.instance_norm')
def instance_norm(sample):
    a = bind(sample, 'running_mean running_var weight bias use_input_stats momentum eps',
             use_input_stats=True, momentum=0.1, eps=1e-5)
    mean, variance = a['running_mean'], a['running_var']
    if not a['eps'] > 0 or not 0 < a['momentum'] <= 1:
        raise Skip('a momentum or an eps that is 0 or negative')
    if (mean is None) != (variance is None):
        raise Skip('a mean without a variance')

    def run(x, w, b, m, v):
        m, v = None if m is None else m.clone(), None if v is None else v.clone()
        y = F.instance_norm(x, m, v, w, b, a['use_input_stats'], a['momentum'], a['eps'])
        return y if m is None else (y, m, v)
    return ('instance_norm', [sample.input, a['weight'], a['bias'], mean, variance], run,
            {'training': a['use_input_stats'], 'momentum': a['momentum'], 'eps': a['eps'],
             'constant': [3, 4]})


@call('nn.functional.normalize')
def normalize(sample):
    a = bind(sample, 'p dim eps', p=2., dim=1, eps=1e-12)
    if isinstance(a['dim'], (tuple, list)) or not a['p'] > 0 or a['eps'] != 1e-12:
        raise Skip('several dimensions, a p of 0 or less')
    return ('normalize', [sample.input], lambda x: F.normalize(x, a['p'], a['dim']),
            {'p': min(a['p'], 1e9), 'dim': a['dim']})


@call('nn.functional.local_response_norm')
def local_response_norm(sample):
    a = bind(sample, 'size alpha beta k', alpha=1e-4, beta=.75, k=1.)
    if 0 in (a['alpha'], a['beta'], a['k']):
        raise Skip('a 0')
    return 'local_response_norm', [sample.input], lambda x: F.local_response_norm(x, **a), a


@call('nn.functional.cosine_similarity')
def cosine_similarity(sample):
    a = bind(sample, 'x2 dim eps', dim=1, eps=1e-8)
    if sample.input.shape != a['x2'].shape or a['eps'] != 1e-8 or sample.input.ndim == 0:
        raise Skip('unlike shapes, eps, scalars')
    return ('cosine_similarity', [sample.input, a['x2']],
            lambda x, y: F.cosine_similarity(x, y, a['dim']), {'dim': a['dim']})


@call('nn.functional.pairwise_distance')
def pairwise_distance(sample):
    a = bind(sample, 'x2 p eps keepdim', p=2., eps=1e-6, keepdim=False)
    if sample.input.shape != a['x2'].shape or a['keepdim'] or a['eps'] != 1e-6 or a['p'] <= 0:
        raise Skip('unlike shapes, keepdim, eps')
    return ('pairwise_distance', [sample.input, a['x2']],
            lambda x, y: F.pairwise_distance(x, y, a['p']), {'p': min(a['p'], 1e9)})


@call('nn.functional.pdist')
def pdist(sample):
    p = bind(sample, 'p', p=2.)['p']
    return 'pdist', [sample.input], lambda x: F.pdist(x, p), {'p': min(p, 1e9)}


@call('cdist')
def cdist(sample):
    a = bind(sample, 'x2 p compute_mode', p=2.)
    return ('cdist', [sample.input, a['x2']], lambda x, y: torch.cdist(
        x, y, a['p'], compute_mode='donot_use_mm_for_euclid_dist'), {'p': min(a['p'], 1e9)})


@call('nn.functional.rrelu')
def rrelu(sample):
    a = bind(sample, 'lower upper training inplace', lower=1 / 8, upper=1 / 3, training=False)
    if a['training']:
        raise Skip('slopes are drawn')
    lower, upper = a['lower'], a['upper']
    return ('rrelu', [sample.input], lambda x: F.rrelu(x, lower, upper),
            {'lower': lower, 'upper': upper})


@call('nn.functional.scaled_dot_product_attention')
def attention(sample):
    a = bind(sample, 'key value attn_mask dropout_p is_causal', dropout_p=0., is_causal=False,
             scale=None, enable_gqa=False)
    q, k, v, mask = sample.input, a['key'], a['value'], a['attn_mask']
    if a['dropout_p'] > 0 or a['enable_gqa'] or q.ndim != 4:
        raise Skip('dropout, grouped heads, another rank')
    if a['is_causal'] and q.shape[2] != k.shape[2]:
        raise Skip('causal from the first key')
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    more = {'scale': a['scale']} if a['scale'] is not None else {}

    def run(q, k, v, m):
        m = ~m if m is not None and m.dtype == torch.bool else m
        return F.scaled_dot_product_attention(q, k, v, m, is_causal=a['is_causal'], **more)
    return 'masked_attention', [q, k, v, mask], run, {'causal': a['is_causal'], **more}


# ---- losses -------------------------------------------------------------------------------------

def reduction_of(a):
    if a.get('size_average') is not None or a.get('reduce') is not None:
        raise Skip('deprecated')
    return a['reduction']


def pair_loss(name, names='', ours=None, **defaults):
    f = getattr(F, name)

    def make(sample):
        a = bind(sample, 'target ' + names + ' reduction', reduction='mean', size_average=None,
                 reduce=None, **defaults)
        r = reduction_of(a)
        y = a['target']
        if sample.input.shape != y.shape or a.get('weight') is not None:
            raise Skip('unlike shapes, a weight')
        if not y.is_floating_point():
            raise Skip('a whole target')
        more = {k: v for k, v in a.items() if k in defaults}
        constant = {'constant': [1]} if name == 'soft_margin_loss' else {}
        return (ours or name, [sample.input, y], lambda x, y: f(x, y, reduction=r, **more),
                {'reduction': r, **more, **constant})
    CALLS['nn.functional.' + name] = make


pair_loss('mse_loss', 'size_average reduce')
pair_loss('l1_loss', 'size_average reduce')
pair_loss('smooth_l1_loss', 'size_average reduce', beta=1.0)
pair_loss('huber_loss', delta=1.0)
pair_loss('soft_margin_loss', 'size_average reduce')
pair_loss('hinge_embedding_loss', 'margin size_average reduce', margin=1.0)


@call('nn.functional.binary_cross_entropy')
def bce(sample):
    a = bind(sample, 'target weight size_average reduce reduction', reduction='mean')
    r = reduction_of(a)
    return ('bce_loss', [sample.input, a['target'], a['weight']],
            lambda x, y, w: F.binary_cross_entropy(x, y, w, reduction=r),
            {'reduction': r, 'constant': [2]})


@call('nn.functional.binary_cross_entropy_with_logits')
def bce_with_logits(sample):
    a = bind(sample, 'target weight size_average reduce reduction pos_weight', reduction='mean')
    r = reduction_of(a)
    return ('bce_with_logits_with', [sample.input, a['target'], a['weight'], a['pos_weight']],
            lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p,
                                                                  reduction=r),
            {'reduction': r, 'constant': [2, 3]})


@call('nn.functional.kl_div')
def kl_div(sample):
    a = bind(sample, 'target size_average reduce reduction log_target', reduction='mean',
             log_target=False)
    r = reduction_of(a)
    if sample.input.shape != a['target'].shape:
        raise Skip('unlike shapes')
    args = {'reduction': 'sum' if r == 'batchmean' else r, 'log': a['log_target']}
    if r == 'batchmean':
        args['batch_mean'] = True
    return ('kl_div', [sample.input, a['target']],
            lambda x, y: F.kl_div(x, y, reduction=r, log_target=a['log_target']), args)


@call('nn.functional.poisson_nll_loss')
def poisson(sample):
    a = bind(sample, 'target log_input full size_average eps reduce reduction', log_input=True,
             full=False, eps=1e-8, reduction='mean')
    r = reduction_of(a)
    if a['eps'] != 1e-8 or sample.input.shape != a['target'].shape:
        raise Skip('eps, unlike shapes')
    # Of a count that is 0 PyTorch's gradient is NaN.
    constant = [1] if a['full'] and (a['target'] == 0).any() else []
    return ('poisson_nll_loss', [sample.input, a['target']],
            lambda x, y: F.poisson_nll_loss(x, y, a['log_input'], a['full'], reduction=r),
            {'rate': not a['log_input'], 'full': a['full'], 'reduction': r, 'constant': constant})


@call('nn.functional.gaussian_nll_loss')
def gaussian(sample):
    a = bind(sample, 'target var full eps reduction', full=False, eps=1e-6, reduction='mean')
    if sample.input.shape != a['target'].shape or not torch.is_tensor(a['var']):
        raise Skip('unlike shapes')
    return ('gaussian_nll_loss', [sample.input, a['target'], a['var']],
            lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=a['full'], eps=a['eps'],
                                                reduction=a['reduction']),
            {'full': a['full'], 'eps': a['eps'], 'reduction': a['reduction']})


def margin_loss(name, first, margin):
    f = getattr(F, name)

    def make(sample):
        a = bind(sample, first + ' target margin size_average reduce reduction', margin=margin,
                 reduction='mean')
        r = reduction_of(a)
        if sample.input.shape != a[first].shape:
            raise Skip('unlike shapes')
        return (name, [sample.input, a[first], a['target']],
                lambda x, y, t: f(x, y, t, margin=a['margin'], reduction=r),
                {'margin': a['margin'], 'reduction': r})
    CALLS['nn.functional.' + name] = make


margin_loss('margin_ranking_loss', 'input2', 0.)
margin_loss('cosine_embedding_loss', 'input2', 0.)


@call('nn.functional.triplet_margin_loss')
def triplet(sample):
    a = bind(sample, 'positive negative margin p eps swap size_average reduce reduction', margin=1.,
             p=2., eps=1e-6, swap=False, reduction='mean')
    r = reduction_of(a)
    if not sample.input.shape == a['positive'].shape == a['negative'].shape or a['eps'] != 1e-6:
        raise Skip('unlike shapes, eps')
    if a['margin'] == 0:
        raise Skip('a margin of 0')
    return ('triplet_margin_loss', [sample.input, a['positive'], a['negative']],
            lambda x, y, z: F.triplet_margin_loss(x, y, z, a['margin'], a['p'], swap=a['swap'],
                                                  reduction=r),
            {'margin': a['margin'], 'p': a['p'], 'swap': a['swap'], 'reduction': r})


@call('nn.functional.triplet_margin_with_distance_loss')
def triplet_with_distance(sample):
    a = bind(sample, 'positive negative distance_function margin swap reduction', margin=1.,
             swap=False, reduction='mean')
    r = reduction_of(a)
    if not sample.input.shape == a['positive'].shape == a['negative'].shape:
        raise Skip('unlike shapes')
    if not isinstance(a['distance_function'], (type(None), torch.nn.PairwiseDistance)):
        raise Skip("a distance of one's own")
    return ('triplet_margin_with_distance_loss', [sample.input, a['positive'], a['negative']],
            lambda x, y, z: F.triplet_margin_with_distance_loss(
                x, y, z, margin=a['margin'], swap=a['swap'], reduction=r),
            {'margin': a['margin'], 'swap': a['swap'], 'reduction': r})


@call('nn.functional.multilabel_margin_loss')
def multilabel_margin(sample):
    a = bind(sample, 'target size_average reduce reduction', reduction='mean')
    r = reduction_of(a)
    if sample.input.ndim == 0:
        raise Skip('a scalar')
    return ('multilabel_margin_loss', [sample.input, a['target']],
            lambda x, t: F.multilabel_margin_loss(x, t, reduction=r), {'reduction': r})


@call('nn.functional.multi_margin_loss')
def multi_margin(sample):
    a = bind(sample, 'target p margin weight size_average reduce reduction', p=1, margin=1.,
             reduction='mean')
    r = reduction_of(a)
    if a['margin'] == 0 or sample.input.ndim != a['target'].ndim + 1:
        raise Skip('a margin of 0, a scalar, a target of another rank')
    return ('multi_margin_loss', [sample.input, a['target'], a['weight']],
            lambda x, t, w: F.multi_margin_loss(x, t, a['p'], a['margin'], w, reduction=r),
            {'p': a['p'], 'margin': a['margin'], 'reduction': r, 'constant': [2]})


@call('nn.functional.multilabel_soft_margin_loss')
def multilabel_soft_margin(sample):
    a = bind(sample, 'target weight size_average reduce reduction', reduction='mean')
    r = reduction_of(a)
    if a['weight'] is not None and a['weight'].ndim != 1:
        raise Skip('a weight for each element')
    return ('multilabel_soft_margin_loss', [sample.input, a['target'], a['weight']],
            lambda x, y, w: F.multilabel_soft_margin_loss(x, y, w, reduction=r), {'reduction': r})


def last(x):
    """Classes last."""
    return x.movedim(1, -1).contiguous() if x.ndim > 1 else x


def back(x):
    return x.movedim(-1, 1) if x.ndim > 1 else x


def class_loss(name, ours):
    f = getattr(F, name)

    def make(sample):
        a = bind(sample, 'target weight size_average ignore_index reduce reduction label_smoothing',
                 ignore_index=-100, reduction='mean', label_smoothing=0.)
        r = reduction_of(a)
        x, y = last(sample.input), a['target']
        probabilities = y.is_floating_point()
        y = last(y) if probabilities else y
        more = {} if name == 'nll_loss' else {'label_smoothing': a['label_smoothing']}
        ignore = a['ignore_index']
        if ignore != -100 and probabilities:
            raise Skip('ignore_index of probabilities')
        ignored = {'ignore_index': ignore} if ignore != -100 else {}
        return (ours, [x, y, a['weight']],
                lambda x, y, w: f(back(x).contiguous(), back(y) if probabilities else y, w,
                                  reduction=r, **more, **ignored),
                {'reduction': r, **more, **ignored, 'constant': [2]})
    CALLS['nn.functional.' + name] = make


class_loss('cross_entropy', 'weighted_cross_entropy')
class_loss('nll_loss', 'weighted_nll_loss')


def classes_last(x, more=0):
    """[V, d..., more] as [d..., V, more]."""
    return x.movedim(0, x.ndim - 1 - more).contiguous()


def classes_first(x, more=0):
    return x.movedim(x.ndim - 1 - more, 0)


@call('nn.functional.linear_cross_entropy')
def linear_cross_entropy(sample):
    a = bind(sample, 'linear_weight target', linear_bias=None, weight=None, reduction='mean',
             ignore_index=None, label_smoothing=0., options=None)
    options = {k: a[k] for k in ('reduction', 'ignore_index', 'label_smoothing', 'options')}
    y, bias = a['target'], a['linear_bias']
    probabilities = y.is_floating_point()

    def run(x, w, b, t, e):
        return F.linear_cross_entropy(
            x, classes_first(w, 1), back(t) if probabilities else t,
            linear_bias=None if b is None else classes_first(b), weight=e, **options)
    more = {k: a[k] for k in ('reduction', 'label_smoothing')}
    if a['ignore_index'] is not None:
        more['ignore_index'] = a['ignore_index']
    return ('linear_cross_entropy',
            [sample.input, classes_last(a['linear_weight'], 1),
             None if bias is None else classes_last(bias), last(y) if probabilities else y,
             a['weight']], run, {**more, 'constant': [4]})


@call('nn.functional.ctc_loss')
def ctc(sample):
    a = bind(sample, 'targets input_lengths target_lengths blank reduction zero_infinity', blank=0,
             reduction='mean', zero_infinity=False)
    lengths = [torch.as_tensor(a[k]) for k in ('input_lengths', 'target_lengths')]
    more = {k: a[k] for k in ('blank', 'reduction', 'zero_infinity')}
    return ('ctc_loss', [sample.input, a['targets'], *lengths],
            lambda x, t, i, o: F.ctc_loss(x, t, i, o, **more), more)
