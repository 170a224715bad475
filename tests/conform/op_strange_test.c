/* Operations called with arguments drawn at random: shapes with zeros and with sizes whose products
 * overflow, every dtype, dimensions out of range, strided inputs, numbers that are not finite. What
 * comes is a tensor or a failure with a text, forward and backward; sanitizers see the rest.
 *
 * TUTTI_SEED=N begins with that draw, and prints the number of each.
 */
#include <math.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_activation.h>
#include <tutti/op_conv.h>
#include <tutti/op_index.h>
#include <tutti/op_likelihood.h>
#include <tutti/op_loss.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_pad.h>
#include <tutti/op_reduce.h>
#include <tutti/op_sample.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "op_strange_draw.h"

enum { DRAWS = 12000 };

/* ---- calls, a family each -------------------------------------------------------------------- */

static tutti_tensor_t *call_one(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const functions[])(tutti_scope_t *, tutti_tensor_t *) = {
        tutti_neg,         tutti_abs,   tutti_square,   tutti_sqrt,  tutti_rsqrt, tutti_exp,
        tutti_log,         tutti_sin,   tutti_cos,      tutti_erf,   tutti_tanh,  tutti_sigmoid,
        tutti_relu,        tutti_silu,  tutti_sum,      tutti_mean,  tutti_var,   tutti_prod,
        tutti_max,         tutti_min,   tutti_any,      tutti_all,   tutti_clone, tutti_contiguous,
        tutti_logical_not, tutti_sign,  tutti_floor,    tutti_ceil,  tutti_round, tutti_trunc,
        tutti_isnan,       tutti_isinf, tutti_isfinite, tutti_log1p, tutti_expm1};
    return functions[below(d, (int64_t)(sizeof functions / sizeof functions[0]))](d->s, x);
}

static tutti_tensor_t *call_activation(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const plain[])(tutti_scope_t *, tutti_tensor_t *) = {
        tutti_selu,        tutti_logsigmoid, tutti_mish,     tutti_hardswish,
        tutti_hardsigmoid, tutti_relu6,      tutti_softsign, tutti_tanhshrink,
    };
    static tutti_tensor_t *(*const of_number[])(tutti_scope_t *, tutti_tensor_t *, double) = {
        tutti_leaky_relu, tutti_elu, tutti_celu, tutti_hardshrink, tutti_softshrink};
    static tutti_tensor_t *(*const of_two[])(tutti_scope_t *, tutti_tensor_t *, double, double) = {
        tutti_softplus, tutti_hardtanh, tutti_threshold, tutti_rrelu};
    switch (below(d, 7)) {
    case 0:
    case 1:
        return plain[below(d, 8)](d->s, x);
    case 2:
        return of_number[below(d, 5)](d->s, x, any_number(d));
    case 3:
        return of_two[below(d, 4)](d->s, x, any_number(d), any_number(d));
    case 6:
        return tutti_gumbel_softmax(d->s, x, any_number(d), one_in(d, 2), any_dim(d));
    case 4:
        return tutti_prelu(d->s, x, beside(d, x));
    default:
        return one_in(d, 2) ? tutti_glu(d->s, x, any_dim(d)) : tutti_softmin(d->s, x, any_dim(d));
    }
}

static tutti_tensor_t *call_two(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const functions[])(tutti_scope_t *, tutti_tensor_t *,
                                                tutti_tensor_t *) = {
        tutti_add,     tutti_sub,     tutti_mul, tutti_div,         tutti_pow,
        tutti_maximum, tutti_minimum, tutti_eq,  tutti_ne,          tutti_lt,
        tutti_le,      tutti_gt,      tutti_ge,  tutti_logical_and, tutti_logical_or};
    return functions[below(d, (int64_t)(sizeof functions / sizeof functions[0]))](d->s, x,
                                                                                  beside(d, x));
}

static tutti_tensor_t *call_number(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const functions[])(tutti_scope_t *, tutti_tensor_t *, double) = {
        tutti_add_scalar, tutti_sub_scalar, tutti_mul_scalar, tutti_div_scalar,
        tutti_pow_scalar, tutti_eq_scalar,  tutti_ne_scalar,  tutti_lt_scalar,
        tutti_le_scalar,  tutti_gt_scalar,  tutti_ge_scalar};
    const int64_t which = below(d, 14);
    switch (which) {
    case 11:
        return tutti_scalar_sub(d->s, any_number(d), x);
    case 12:
        return tutti_scalar_div(d->s, any_number(d), x);
    case 13:
        return tutti_clamp(d->s, x, any_number(d), any_number(d));
    default:
        return functions[which](d->s, x, any_number(d));
    }
}

static tutti_tensor_t *call_over(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const functions[])(tutti_scope_t *, tutti_tensor_t *, tutti_dims_t,
                                                bool) = {
        tutti_sum_over, tutti_mean_over, tutti_prod_over, tutti_max_over,
        tutti_min_over, tutti_any_over,  tutti_all_over};
    const int64_t which = below(d, 12);
    tutti_tensor_t *more = NULL;
    switch (which) {
    case 7:
        return tutti_var_over(d->s, x, any_dims(d), one_in(d, 2), any_number(d));
    case 8:
        return tutti_argmax(d->s, x, any_dim(d), one_in(d, 2));
    case 9:
        return tutti_argmin(d->s, x, any_dim(d), one_in(d, 2));
    case 10:
        return tutti_max_along(d->s, x, any_dim(d), one_in(d, 2), &more);
    case 11:
        return tutti_min_along(d->s, x, any_dim(d), one_in(d, 2), one_in(d, 2) ? &more : NULL);
    default:
        return functions[which](d->s, x, any_dims(d), one_in(d, 2));
    }
}

static tutti_shape_t open_shape(draw_t *d, tutti_tensor_t *x)
{
    tutti_shape_t shape = one_in(d, 2) ? any_shape(d) : tutti_tensor_shape(x);
    if (one_in(d, 3)) {
        shape.rank = (int)PICK(d, 0, 1, 2, 3, 8, 9, -1);
    }
    if (shape.rank > 0 && shape.rank <= TUTTI_RANK_MAX) {
        shape.dims[below(d, shape.rank)] = PICK(d, -1, -1, 0, 1, 2, -2, INT64_MAX, INT64_MIN);
    }
    return shape;
}

static tutti_tensor_t *call_view(draw_t *d, tutti_tensor_t *x)
{
    switch (below(d, 12)) {
    case 0:
        return tutti_view(d->s, x, open_shape(d, x));
    case 1:
        return tutti_reshape(d->s, x, open_shape(d, x));
    case 2:
        return tutti_flatten(d->s, x, any_dim(d), any_dim(d));
    case 3:
        return tutti_squeeze(d->s, x, any_dim(d));
    case 4:
        return tutti_unsqueeze(d->s, x, any_dim(d));
    case 5:
        return tutti_transpose(d->s, x, any_dim(d), any_dim(d));
    case 6:
        return tutti_permute(d->s, x, any_dims(d));
    case 7:
        return tutti_slice(d->s, x, any_dim(d),
                           (tutti_range_t){any_index(d), any_index(d), any_index(d)});
    case 8:
        return tutti_narrow(d->s, x, any_dim(d), any_index(d), any_index(d));
    case 9:
        return tutti_select(d->s, x, any_dim(d), any_index(d));
    case 10:
        return tutti_cast(d->s, x, any_dtype(d));
    default:
        return tutti_detach(d->s, x);
    }
}

static tutti_tensor_t *call_parts(draw_t *d, tutti_tensor_t *x)
{
    tutti_tensor_t *parts[20] = {x, x, x, x}, *many[20] = {x, beside(d, x), x};
    const int count = (int)PICK(d, 0, 1, 2, 3, -1);
    const int64_t which = below(d, 7);
    switch (which) {
    case 0:
    case 1:
        for (int i = 0; i < 20 && one_in(d, 2); i++) {
            many[i] = x;
        }
        return which == 0 ? tutti_cat(d->s, many, count, any_dim(d))
                          : tutti_stack(d->s, many, count, any_dim(d));
    case 2:
        tutti_split(d->s, x, any_dim(d), count, parts);
        return parts[0];
    case 3:
        tutti_split_sizes(d->s, x, any_dim(d), open_shape(d, x), parts);
        return parts[0];
    case 4:
        return tutti_gather_along(d->s, x, any_dim(d), indices(d, x, false));
    case 5:
        return tutti_index_select(d->s, x, any_dim(d),
                                  make(d, TUTTI_I64, TUTTI_SHAPE(below(d, 4))));
    default:
        return tutti_where(d->s, beside(d, x), x, beside(d, x));
    }
}

static tutti_tensor_t *call_index(draw_t *d, tutti_tensor_t *x)
{
    tutti_tensor_t *more = NULL, **where = one_in(d, 2) ? &more : NULL;
    tutti_tensor_t *index = indices(d, x, false), *source = one_in(d, 4) ? beside(d, x) : x;
    switch (below(d, 11)) {
    case 0:
        return tutti_sort(d->s, x, any_dim(d), one_in(d, 2), where);
    case 1:
        return tutti_argsort(d->s, x, any_dim(d), one_in(d, 2));
    case 2:
        return tutti_topk(d->s, x, any_index(d), any_dim(d), where);
    case 3:
        return tutti_topk_smallest(d->s, x, any_index(d), any_dim(d), where);
    case 4:
        return tutti_cumsum(d->s, x, any_dim(d));
    case 5:
        return tutti_cumprod(d->s, x, any_dim(d));
    case 6:
        return tutti_one_hot(d->s, index, PICK(d, 0, 1, 4, 17, -1, INT64_MAX, INT64_MIN));
    case 7:
        return tutti_multinomial(d->s, x, PICK(d, 0, 1, 3, -1, INT64_MAX), one_in(d, 2));
    case 8:
        return tutti_index_add(d->s, x, any_dim(d), make(d, TUTTI_I64, TUTTI_SHAPE(below(d, 4))),
                               source);
    case 9:
        return tutti_scatter_along(d->s, x, any_dim(d), index, source);
    default:
        return tutti_scatter_along_add(d->s, x, any_dim(d), index, source);
    }
}

static tutti_tensor_t *call_windows(draw_t *d, tutti_tensor_t *x)
{
    tutti_unfold_options_t o = {.kernel = {0}};
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = PICK(d, 1, 1, 2, 2, 3, 0, -1, INT64_MAX);
        o.stride[i] = PICK(d, 0, 1, 2, 17, -1, INT64_MAX);
        o.padding[i] = PICK(d, 0, 0, 1, -1, INT64_MAX);
        o.dilation[i] = PICK(d, 0, 1, 2, INT64_MIN, INT64_MAX);
    }
    return one_in(d, 2) ? tutti_unfold(d->s, x, one_in(d, 8) ? NULL : &o)
                        : tutti_fold(d->s, x, PICK(d, 0, 1, 2, 3, INT64_MAX, -1),
                                     PICK(d, 0, 1, 2, 3, INT64_MAX, -1), &o);
}

static tutti_tensor_t *call_einsum(draw_t *d, tutti_tensor_t *x)
{
    static const char *const equations[] = {"ij,jk",     "...i,...i", "ii",     "iij->j", "...",
                                            "...->",     "i,j->ij",   "ab,ba",  "->",     ",",
                                            "...a,...b", "abcdefgh",  "ij,ij,", "a-",     "i.."};
    const int64_t which = below(d, (int64_t)(sizeof equations / sizeof *equations));
    return tutti_einsum(d->s, equations[which], (tutti_tensor_t *[]){x, beside(d, x), x},
                        (int)PICK(d, 1, 2, 2, 3, 0, -1));
}

static tutti_tensor_t *call_places(draw_t *d, tutti_tensor_t *x)
{
    tutti_padding_t padding = {.count = (int)PICK(d, 0, 2, 2, 4, 4, 6, 1, -2, 18, INT32_MAX)};
    for (int i = 0; i < 2 * TUTTI_RANK_MAX; i++) {
        padding.sizes[i] = one_in(d, 8) ? any_index(d) : PICK(d, 0, 1, 1, 2, -1);
    }
    tutti_dims_t dims = any_dims(d);
    switch (below(d, 8)) {
    case 0:
    case 1:
        return tutti_pad(d->s, x, padding, (tutti_pad_mode_t)below(d, 5), any_number(d));
    case 2:
        return tutti_roll(d->s, x,
                          (tutti_shape_t){one_in(d, 4) ? 1 : dims.count,
                                          {any_index(d), any_index(d), any_index(d)}},
                          dims);
    case 3:
        return tutti_flip(d->s, x, dims);
    case 4:
        return tutti_tril(d->s, x, any_index(d));
    case 5:
        return tutti_triu(d->s, x, any_index(d));
    case 6:
        return call_einsum(d, x);
    default:
        return call_windows(d, x);
    }
}

static tutti_tensor_t *matrix_for(draw_t *d, tutti_tensor_t *x)
{
    tutti_shape_t shape = tutti_tensor_shape(x);
    if (shape.rank > 0 && !one_in(d, 6)) {
        shape.dims[0] = shape.dims[shape.rank - 1];
        shape.dims[1] = PICK(d, 0, 1, 2, 17);
        shape.rank = 2;
    }
    return make(d, one_in(d, 6) ? any_dtype(d) : tutti_tensor_dtype(x), shape);
}

static tutti_tensor_t *weight_for(draw_t *d, tutti_tensor_t *x)
{
    const int64_t in = tutti_tensor_dim(x, -1);
    return one_in(d, 8) ? any_tensor(d)
                        : make(d, tutti_tensor_dtype(x),
                               in > 17 ? TUTTI_SHAPE(2, 3) : TUTTI_SHAPE(PICK(d, 0, 1, 17), in));
}

static tutti_tensor_t *vector_for(draw_t *d, tutti_tensor_t *x, int dim)
{
    if (one_in(d, 3)) {
        return one_in(d, 6) ? any_tensor(d) : NULL;
    }
    return make(d, tutti_tensor_dtype(x), TUTTI_SHAPE(tutti_tensor_dim(x, dim)));
}

static tutti_tensor_t *call_layer(draw_t *d, tutti_tensor_t *x)
{
    tutti_tensor_t *weight;
    switch (below(d, 8)) {
    case 0:
        return tutti_matmul(d->s, x, matrix_for(d, x));
    case 1:
        weight = weight_for(d, x);
        return tutti_linear(d->s, x, weight, vector_for(d, weight, 0));
    case 2:
        weight = weight_for(d, x);
        return tutti_linear_gelu(d->s, x, weight, vector_for(d, weight, 0), TUTTI_GELU_TANH);
    case 3:
        return tutti_layer_norm(d->s, x, vector_for(d, x, -1), vector_for(d, x, -1), any_number(d));
    case 4:
        return tutti_rms_norm(d->s, x, vector_for(d, x, -1), any_number(d));
    case 5:
        return tutti_embedding(d->s, indices(d, x, false), matrix_for(d, x));
    case 6:
        return tutti_dropout(d->s, x, (float)any_number(d));
    default:
        return tutti_rotary(d->s, x,
                            &(tutti_rotary_options_t){any_number(d), any_index(d), one_in(d, 2)});
    }
}

static tutti_tensor_t *call_attention(draw_t *d, tutti_tensor_t *x)
{
    const tutti_attention_options_t options = {.causal = one_in(d, 2),
                                               .scale = one_in(d, 2) ? 0 : any_number(d),
                                               .dropout = one_in(d, 3) ? (float)any_number(d) : 0,
                                               .kv_heads = one_in(d, 3) ? any_index(d) : 0};
    if (one_in(d, 3)) {
        return tutti_attention_qkv(d->s, x, any_index(d), &options);
    }
    const int64_t queries = PICK(d, 0, 1, 3), keys = PICK(d, 0, 1, 3, 70), size = PICK(d, 0, 1, 5);
    const tutti_dtype_t dtype = tutti_tensor_dtype(x);
    tutti_tensor_t *q = make(d, dtype, TUTTI_SHAPE(2, below(d, 3), queries, size)),
                   *k = make(d, dtype,
                             TUTTI_SHAPE(2, one_in(d, 3) ? 1 : tutti_tensor_dim(q, 1), keys, size));
    return tutti_attention(d->s, one_in(d, 6) ? x : q, k, one_in(d, 3) ? k : beside(d, k),
                           &options);
}

static tutti_tensor_t *call_loss(draw_t *d, tutti_tensor_t *x)
{
    const tutti_loss_reduction_t reduction = (tutti_loss_reduction_t)below(d, 3);
    const tutti_cross_entropy_options_t entropy = {reduction, (float)any_number(d), one_in(d, 2),
                                                   any_index(d), vector_for(d, x, -1)};
    const tutti_nll_loss_options_t likelihood = {reduction, one_in(d, 2), any_index(d),
                                                 vector_for(d, x, -1)};
    switch (below(d, 6)) {
    case 0:
        return tutti_softmax(d->s, x, any_dim(d));
    case 1:
        return tutti_log_softmax(d->s, x, any_dim(d));
    case 2:
        return tutti_cross_entropy_with(d->s, x, indices(d, x, true),
                                        one_in(d, 2) ? NULL : &entropy);
    case 3:
        return tutti_nll_loss(d->s, x, indices(d, x, true), &likelihood);
    case 4:
        return tutti_mse_loss(d->s, x, beside(d, x), reduction);
    default:
        return tutti_bce_with_logits(d->s, x, beside(d, x), reduction);
    }
}

static tutti_tensor_t *call_ctc(draw_t *d, tutti_tensor_t *x)
{
    const int64_t samples = tutti_tensor_rank(x) == 3 ? tutti_tensor_dim(x, 1) : 1;
    const tutti_shape_t each =
        one_in(d, 6) ? any_shape(d) : TUTTI_SHAPE(samples > 17 ? 1 : samples);
    const tutti_ctc_options_t options = {
        .reduction = (tutti_loss_reduction_t)below(d, 3),
        .blank = PICK(d, 0, 0, 1, -1, INT64_MAX),
        .zero_infinity = one_in(d, 2),
        .input_lengths = one_in(d, 3) ? make(d, TUTTI_I64, each) : NULL,
        .target_lengths = one_in(d, 2) ? make(d, TUTTI_I32, each) : NULL};
    return tutti_ctc_loss(
        d->s, x, one_in(d, 2) ? indices(d, x, true) : make(d, TUTTI_I64, TUTTI_SHAPE(below(d, 4))),
        &options);
}

static tutti_tensor_t *call_margin(draw_t *d, tutti_tensor_t *x)
{
    const tutti_loss_reduction_t reduction = (tutti_loss_reduction_t)below(d, 4);
    const tutti_margin_options_t margin = {reduction, any_number(d)};
    tutti_tensor_t *y = one_in(d, 2) ? x : beside(d, x);
    switch (below(d, 15)) {
    case 11:
        return tutti_cdist(d->s, x, y, any_number(d));
    case 12:
        return tutti_pdist(d->s, x, any_number(d));
    case 13:
        return tutti_multilabel_margin_loss(
            d->s, x, make(d, TUTTI_I64, tutti_tensor_shape(one_in(d, 4) ? y : x)), reduction);
    case 14:
        return tutti_triplet_margin_with_distance_loss(
            d->s, x, y, beside(d, x),
            &(tutti_triplet_distance_options_t){reduction, any_number(d), one_in(d, 2), NULL,
                                                NULL});
    case 0:
        return tutti_cosine_similarity(d->s, x, y, any_dim(d), any_number(d));
    case 1:
        return tutti_pairwise_distance(d->s, x, y, any_number(d), any_number(d));
    case 2:
        return tutti_triplet_margin_loss(
            d->s, x, y, beside(d, x),
            &(tutti_triplet_margin_options_t){reduction, any_number(d), any_number(d),
                                              any_number(d), one_in(d, 2)});
    case 3:
        return tutti_cosine_embedding_loss(d->s, x, y, indices(d, x, true), &margin);
    case 4:
        return tutti_margin_ranking_loss(d->s, x, y, y, one_in(d, 2) ? NULL : &margin);
    case 5:
        return tutti_hinge_embedding_loss(d->s, x, y, one_in(d, 2) ? NULL : &margin);
    case 6:
        return tutti_multi_margin_loss(d->s, x, indices(d, x, true), NULL);
    case 7:
        return tutti_multilabel_soft_margin_loss(d->s, x, y, vector_for(d, x, -1), reduction);
    case 8:
        return tutti_gaussian_nll_loss(d->s, x, y, beside(d, x), NULL);
    case 9:
        return one_in(d, 2) ? tutti_poisson_nll_loss(d->s, x, y, NULL)
                            : tutti_focal_loss(d->s, x, y, NULL);
    default:
        return tutti_bce_with_logits_with(
            d->s, x, y, &(tutti_bce_options_t){reduction, beside(d, x), vector_for(d, x, -1)});
    }
}

static tutti_tensor_t *call_pool(draw_t *d, tutti_tensor_t *x)
{
    tutti_tensor_t *more = NULL, **indices = one_in(d, 2) ? &more : NULL;
    tutti_pool_options_t max = {.ceil_mode = one_in(d, 2)};
    tutti_interpolate_options_t other = {(tutti_interpolate_mode_t)below(d, 6),
                                         .align_corners = one_in(d, 4), .antialias = one_in(d, 4)};
    for (int i = 0; i < 2; i++) {
        max.kernel[i] = PICK(d, 0, 1, 1, 2, 2, 3, -1, INT64_MAX);
        max.stride[i] = PICK(d, 0, 1, 2, 17, -1, INT64_MAX);
        max.padding[i] = PICK(d, 0, 0, 1, -1, INT64_MAX);
        max.dilation[i] = PICK(d, 0, 1, 2, INT64_MIN, INT64_MAX);
        other.size[i] = PICK(d, 0, 0, 1, 7, -1, INT64_MAX);
        other.scale[i] = other.size[i] != 0 ? 0 : any_number(d);
    }
    const tutti_avg_pool_options_t mean = {{max.kernel[0], max.kernel[1]},
                                           {max.stride[0], max.stride[1]},
                                           {max.padding[0], max.padding[1]},
                                           max.ceil_mode,
                                           one_in(d, 2),
                                           PICK(d, 0, 0, -3, INT64_MIN)};
    const tutti_grid_sample_options_t places = {(tutti_grid_mode_t)below(d, 4),
                                                (tutti_grid_padding_t)below(d, 4), one_in(d, 2)};
    switch (below(d, 8)) {
    case 6:
        return tutti_grid_sample(d->s, x, beside(d, x), one_in(d, 4) ? NULL : &places);
    case 7:
        return tutti_affine_grid(d->s, x, any_shape(d), one_in(d, 2));
    case 0:
        return tutti_max_pool1d(d->s, x, &max, indices);
    case 1:
        return tutti_max_pool2d(d->s, x, &max, indices);
    case 2:
        return tutti_avg_pool2d(d->s, x, &mean);
    case 3:
        return tutti_adaptive_max_pool2d(d->s, x, PICK(d, 0, 1, 4, -1), PICK(d, 0, 1, 4, -1),
                                         indices);
    case 4:
        return tutti_adaptive_avg_pool1d(d->s, x, PICK(d, 0, 1, 4, -1, INT64_MAX));
    default:
        return tutti_interpolate(d->s, x, &other);
    }
}

static tutti_tensor_t *call_random(draw_t *d, tutti_tensor_t *x)
{
    const tutti_shape_t shape = any_shape(d);
    (void)x;
    switch (below(d, 5)) {
    case 0:
        return tutti_uniform(d->s, any_dtype(d), shape, any_number(d), any_number(d));
    case 1:
        return tutti_normal(d->s, any_dtype(d), shape, any_number(d), any_number(d));
    case 2:
        return tutti_randint(d->s, any_dtype(d), shape, any_index(d), any_index(d));
    case 3:
        return tutti_arange(d->s, any_dtype(d), any_number(d), any_number(d), PICK(d, -1, 0, 5));
    default:
        return tutti_bernoulli(d->s, any_dtype(d), shape, any_number(d));
    }
}

/* ---- draws ----------------------------------------------------------------------------------- */

static tutti_tensor_t *call_any(draw_t *d, tutti_tensor_t *x)
{
    static tutti_tensor_t *(*const families[])(draw_t *, tutti_tensor_t *) = {
        call_one,   call_two,    call_number,     call_over, call_view,  call_parts,
        call_layer, call_layer,  call_attention,  call_loss, call_pool,  call_random,
        call_index, call_places, call_activation, call_ctc,  call_margin};
    return families[below(d, (int64_t)(sizeof families / sizeof families[0]))](d, x);
}

static void run_draw(tutti_context_t *ctx, uint64_t seed, int *succeeded)
{
    draw_t d = {.ctx = ctx, .rng = tt_rng_stream(seed, 0, 0, 0, 0)};
    tutti_context_set_training(ctx, one_in(&d, 2));
    assert_int_equal(tutti_scope_open(ctx, &d.s), 0);
    tutti_tensor_t *x = any_tensor(&d);
    tutti_tensor_t *y = call_any(&d, x);
    assert_true(tutti_tensor_status(y) == tutti_scope_status(d.s) || tutti_tensor_status(y) == 0);
    if (tutti_scope_status(d.s) >= 0 && tutti_tensor_requires_grad(y)) {
        const tutti_backward_options_t options = {
            .grad_output = make(&d, tutti_tensor_dtype(y), tutti_tensor_shape(y))};
        (void)tutti_backward_with(d.s, y, &options);
    }
    tutti_status_t status = tutti_scope_close(d.s);
    const tutti_status_t told = tt_test_wait(ctx); /* which ends a device's failure, too */
    status = status < 0 ? status : told;
    *succeeded += status >= 0;
    if (status < 0 && tutti_last_error()[0] == 0) {
        fail_msg("TUTTI_SEED=%llu: %s without a text", (unsigned long long)seed,
                 tutti_status_name(status));
    }
}

static void strange_arguments_give_a_tensor_or_a_text(void **state)
{
    (void)state;
    const char *chosen = getenv("TUTTI_SEED");
    const uint64_t first = chosen == NULL ? 0 : strtoull(chosen, NULL, 10);
    int succeeded = 0;
    tutti_context_t *ctx;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (uint64_t seed = first; seed < first + DRAWS; seed++) {
        if (chosen != NULL) {
            fprintf(stderr, "TUTTI_SEED=%llu\n", (unsigned long long)seed);
        }
        run_draw(ctx, seed, &succeeded);
    }
    tutti_context_release(ctx);
    assert_in_range(succeeded, DRAWS / 4, DRAWS * 3 / 4); /* neither refuses nor accepts all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strange_arguments_give_a_tensor_or_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
