/* Layers that move elements: padding, shuffles, windows, unflatten. */
#include <tutti/nn_functions.h>
#include <tutti/op_feature.h>
#include <tutti/op_pad.h>
#include <tutti/op_shape.h>

#include "compute/nn/layers/kept_options.h"

static tutti_status_t init_pad(tutti_module_t *m, const void *options)
{
    const tutti_pad_layer_options_t *o = tt_keep_options(m, options);
    return o->sizes.count > 0 && o->sizes.count % 2 == 0 && o->sizes.count <= 2 * TUTTI_RANK_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pad: %d sizes: there must be two for each dimension",
                         o->sizes.count);
}

static tutti_tensor_t *forward_pad(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_pad_layer_options_t *o = tutti_module_state(m);
    return tutti_pad(s, x, o->sizes, o->mode, o->value);
}

static tutti_status_t init_shuffle(tutti_module_t *m, const void *options)
{
    const tutti_shuffle_options_t *o = tt_keep_options(m, options);
    return o->factor >= 1 ? TUTTI_OK
                          : TT_FAIL(TUTTI_ERR_ARG, "%s: factor %lld: it must be at least 1",
                                    tutti_module_kind(m)->name, (long long)o->factor);
}

static tutti_tensor_t *forward_pixel_shuffle(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_shuffle_options_t *o = tutti_module_state(m);
    return tutti_pixel_shuffle(s, x, o->factor);
}

static tutti_tensor_t *forward_pixel_unshuffle(tutti_scope_t *s, tutti_module_t *m,
                                               tutti_tensor_t *x)
{
    const tutti_shuffle_options_t *o = tutti_module_state(m);
    return tutti_pixel_unshuffle(s, x, o->factor);
}

static tutti_tensor_t *forward_channel_shuffle(tutti_scope_t *s, tutti_module_t *m,
                                               tutti_tensor_t *x)
{
    const tutti_shuffle_options_t *o = tutti_module_state(m);
    return tutti_channel_shuffle(s, x, o->factor);
}

static tutti_status_t check_windows(const char *name, const tutti_unfold_options_t *o)
{
    return o->kernel[0] >= 1 && o->kernel[1] >= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: kernel %lld and %lld: both must be at least 1", name,
                         (long long)o->kernel[0], (long long)o->kernel[1]);
}

static tutti_status_t init_unfold(tutti_module_t *m, const void *options)
{
    return check_windows("unfold", tt_keep_options(m, options));
}

static tutti_tensor_t *forward_unfold(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_unfold(s, x, tutti_module_state(m));
}

static tutti_status_t init_fold(tutti_module_t *m, const void *options)
{
    const tutti_fold_options_t *o = tt_keep_options(m, options);
    return check_windows("fold", &o->windows);
}

static tutti_tensor_t *forward_fold(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_fold_options_t *o = tutti_module_state(m);
    return tutti_fold(s, x, o->size[0], o->size[1], &o->windows);
}

static tutti_status_t init_unflatten(tutti_module_t *m, const void *options)
{
    const tutti_unflatten_options_t *o = tt_keep_options(m, options);
    return o->sizes.rank >= 1 ? TUTTI_OK : TT_FAIL(TUTTI_ERR_ARG, "unflatten: there must be sizes");
}

static tutti_tensor_t *forward_unflatten(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_unflatten_options_t *o = tutti_module_state(m);
    const tutti_shape_t shape = tutti_tensor_shape(x);
    const int dim = o->dim < 0 ? o->dim + shape.rank : o->dim;
    if (dim < 0 || dim >= shape.rank || shape.rank - 1 + o->sizes.rank > TUTTI_RANK_MAX) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                           "unflatten: dimension %d of %d as %d: there is none, or "
                                           "they are too many",
                                           o->dim, shape.rank, o->sizes.rank));
    }
    tutti_shape_t split = {.rank = 0};
    int64_t known = 1;
    for (int i = 0; i < o->sizes.rank; i++) {
        known *= o->sizes.dims[i] < 0 ? 1 : o->sizes.dims[i];
    }
    for (int i = 0; i < shape.rank; i++) {
        for (int k = 0; k < o->sizes.rank && i == dim; k++) {
            const int64_t size = o->sizes.dims[k];
            split.dims[split.rank++] = size >= 0 || known == 0 ? size : shape.dims[dim] / known;
        }
        if (i != dim) {
            split.dims[split.rank++] = shape.dims[i];
        }
    }
    return tutti_reshape(s, x, split);
}

const tutti_module_ops_t tutti_pad_layer = {
    .name = "pad",
    .about = "elements beside x: constant, reflected, replicated or from the other end",
    .state_bytes = sizeof(tutti_pad_layer_options_t),
    .init = init_pad,
    .forward = forward_pad,
};

const tutti_module_ops_t tutti_pixel_shuffle_layer = {
    .name = "pixel_shuffle",
    .about = "channels as pixels of larger planes",
    .state_bytes = sizeof(tutti_shuffle_options_t),
    .init = init_shuffle,
    .forward = forward_pixel_shuffle,
};

const tutti_module_ops_t tutti_pixel_unshuffle_layer = {
    .name = "pixel_unshuffle",
    .about = "pixels as channels of smaller planes",
    .state_bytes = sizeof(tutti_shuffle_options_t),
    .init = init_shuffle,
    .forward = forward_pixel_unshuffle,
};

const tutti_module_ops_t tutti_channel_shuffle_layer = {
    .name = "channel_shuffle",
    .about = "channels of groups, in turn",
    .state_bytes = sizeof(tutti_shuffle_options_t),
    .init = init_shuffle,
    .forward = forward_channel_shuffle,
};

const tutti_module_ops_t tutti_unfold_layer = {
    .name = "unfold",
    .about = "windows of planes as columns",
    .state_bytes = sizeof(tutti_unfold_options_t),
    .init = init_unfold,
    .forward = forward_unfold,
};

const tutti_module_ops_t tutti_fold_layer = {
    .name = "fold",
    .about = "columns added up as windows of planes",
    .state_bytes = sizeof(tutti_fold_options_t),
    .init = init_fold,
    .forward = forward_fold,
};

const tutti_module_ops_t tutti_unflatten_layer = {
    .name = "unflatten",
    .about = "one dimension as several",
    .state_bytes = sizeof(tutti_unflatten_options_t),
    .init = init_unflatten,
    .forward = forward_unflatten,
};
