/* How the cases of make_everyday_golden.py are called: as golden_calls.h. */
#ifndef TT_GOLDEN_EVERYDAY_H
#define TT_GOLDEN_EVERYDAY_H

#include <tutti/op_index.h>
#include <tutti/op_pad.h>

#include "golden_args.h"

/* ---- op_index.h ----------------------------------------------------------------------------- */

static int dim_of(const golden_call_t *c)
{
    return (int)integer(c, "dim");
}

static tutti_tensor_t *call_sort(golden_call_t *c)
{
    c->out[0] = tutti_sort(c->s, c->in[0], dim_of(c), truth(c, "descending"), &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_argsort(golden_call_t *c)
{
    return tutti_argsort(c->s, c->in[0], dim_of(c), truth(c, "descending"));
}

static tutti_tensor_t *call_topk(golden_call_t *c)
{
    c->out[0] = (truth(c, "largest") ? tutti_topk : tutti_topk_smallest)(
        c->s, c->in[0], integer(c, "k"), dim_of(c), &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_cumsum(golden_call_t *c)
{
    return tutti_cumsum(c->s, c->in[0], dim_of(c));
}

static tutti_tensor_t *call_cumprod(golden_call_t *c)
{
    return tutti_cumprod(c->s, c->in[0], dim_of(c));
}

static tutti_tensor_t *call_one_hot(golden_call_t *c)
{
    return tutti_one_hot(c->s, c->in[0], integer(c, "classes"));
}

static tutti_tensor_t *call_index_add(golden_call_t *c)
{
    return tutti_index_add(c->s, c->in[0], dim_of(c), c->in[1], c->in[2]);
}

static tutti_tensor_t *call_scatter_along(golden_call_t *c)
{
    return tutti_scatter_along(c->s, c->in[0], dim_of(c), c->in[1], c->in[2]);
}

static tutti_tensor_t *call_scatter_along_add(golden_call_t *c)
{
    return tutti_scatter_along_add(c->s, c->in[0], dim_of(c), c->in[1], c->in[2]);
}

/* ---- op_pad.h ------------------------------------------------------------------------------- */

static tutti_tensor_t *call_pad(golden_call_t *c)
{
    static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};
    const tutti_shape_t sizes = shape(c, "sizes");
    tutti_padding_t padding = {.count = sizes.rank};
    int mode = 0;
    memcpy(padding.sizes, sizes.dims, sizeof sizes.dims);
    while (strcmp(modes[mode], text(c, "mode")) != 0) {
        mode++;
    }
    return tutti_pad(c->s, c->in[0], padding, (tutti_pad_mode_t)mode, number(c, "value"));
}

static tutti_tensor_t *call_roll(golden_call_t *c)
{
    return tutti_roll(c->s, c->in[0], shape(c, "shifts"), dims(c, "dims"));
}

static tutti_tensor_t *call_flip(golden_call_t *c)
{
    return tutti_flip(c->s, c->in[0], dims(c, "dims"));
}

static tutti_tensor_t *call_tril(golden_call_t *c)
{
    return tutti_tril(c->s, c->in[0], integer(c, "diagonal"));
}

static tutti_tensor_t *call_triu(golden_call_t *c)
{
    return tutti_triu(c->s, c->in[0], integer(c, "diagonal"));
}

static tutti_unfold_options_t windows_of(const golden_call_t *c)
{
    tutti_unfold_options_t options;
    for (int d = 0; d < 2; d++) {
        options.kernel[d] = shape(c, "kernel").dims[d];
        options.stride[d] = shape(c, "stride").dims[d];
        options.padding[d] = shape(c, "padding").dims[d];
        options.dilation[d] = shape(c, "dilation").dims[d];
    }
    return options;
}

static tutti_tensor_t *call_unfold(golden_call_t *c)
{
    const tutti_unfold_options_t options = windows_of(c);
    return tutti_unfold(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_fold(golden_call_t *c)
{
    const tutti_unfold_options_t options = windows_of(c);
    const tutti_shape_t size = shape(c, "size");
    return tutti_fold(c->s, c->in[0], size.dims[0], size.dims[1], &options);
}

static tutti_tensor_t *call_einsum(golden_call_t *c)
{
    return tutti_einsum(c->s, text(c, "equation"), c->in, c->input_count);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const golden_entry_t golden_everyday[] = {
    {"sort", .other = call_sort},
    {"argsort", .other = call_argsort},
    {"topk", .other = call_topk},
    {"cumsum", .other = call_cumsum},
    {"cumprod", .other = call_cumprod},
    {"one_hot", .other = call_one_hot},
    {"index_add", .other = call_index_add},
    {"scatter_along", .other = call_scatter_along},
    {"scatter_along_add", .other = call_scatter_along_add},
    {"pad", .other = call_pad},
    {"roll", .other = call_roll},
    {"flip", .other = call_flip},
    {"tril", .other = call_tril},
    {"triu", .other = call_triu},
    {"unfold", .other = call_unfold},
    {"fold", .other = call_fold},
    {"einsum", .other = call_einsum},
};

#endif
