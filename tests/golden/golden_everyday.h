/* How the cases of make_everyday_golden.py are called: as golden_calls.h. */
#ifndef TT_GOLDEN_EVERYDAY_H
#define TT_GOLDEN_EVERYDAY_H

#include <math.h>

#include <tutti/op_activation.h>
#include <tutti/op_index.h>
#include <tutti/op_likelihood.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_pad.h>
#include <tutti/op_reduce.h>

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

/* ---- op_activation.h ------------------------------------------------------------------------ */

static tutti_tensor_t *call_leaky_relu(golden_call_t *c)
{
    return tutti_leaky_relu(c->s, c->in[0], number(c, "negative_slope"));
}

static tutti_tensor_t *call_elu(golden_call_t *c)
{
    return tutti_elu(c->s, c->in[0], number(c, "alpha"));
}

static tutti_tensor_t *call_celu(golden_call_t *c)
{
    return tutti_celu(c->s, c->in[0], number(c, "alpha"));
}

static tutti_tensor_t *call_softplus(golden_call_t *c)
{
    return tutti_softplus(c->s, c->in[0], number(c, "beta"), number(c, "threshold"));
}

static tutti_tensor_t *call_hardtanh(golden_call_t *c)
{
    return tutti_hardtanh(c->s, c->in[0], number(c, "min_val"), number(c, "max_val"));
}

static tutti_tensor_t *call_threshold(golden_call_t *c)
{
    return tutti_threshold(c->s, c->in[0], number(c, "threshold"), number(c, "value"));
}

static tutti_tensor_t *call_hardshrink(golden_call_t *c)
{
    return tutti_hardshrink(c->s, c->in[0], number(c, "lambd"));
}

static tutti_tensor_t *call_softshrink(golden_call_t *c)
{
    return tutti_softshrink(c->s, c->in[0], number(c, "lambd"));
}

static tutti_tensor_t *call_glu(golden_call_t *c)
{
    return tutti_glu(c->s, c->in[0], dim_of(c));
}

static tutti_tensor_t *call_softmin(golden_call_t *c)
{
    return tutti_softmin(c->s, c->in[0], dim_of(c));
}

static tutti_tensor_t *call_rrelu(golden_call_t *c)
{
    tutti_context_set_training(tutti_scope_context(c->s), false);
    tutti_tensor_t *y = tutti_rrelu(c->s, c->in[0], number(c, "lower"), number(c, "upper"));
    tutti_context_set_training(tutti_scope_context(c->s), true);
    return y;
}

/* ---- op_margin_loss.h ----------------------------------------------------------------------- */

static double norm_of(const golden_call_t *c)
{
    return number(c, "p") < 1e9 ? number(c, "p") : HUGE_VAL;
}

static tutti_tensor_t *call_pairwise_distance(golden_call_t *c)
{
    return tutti_pairwise_distance(c->s, c->in[0], c->in[1], norm_of(c), 1e-6);
}

static tutti_tensor_t *call_cosine_similarity(golden_call_t *c)
{
    return tutti_cosine_similarity(c->s, c->in[0], c->in[1], dim_of(c), 1e-8);
}

static tutti_tensor_t *call_triplet_margin_loss(golden_call_t *c)
{
    const tutti_triplet_margin_options_t options = {.reduction = reduction(c),
                                                    .margin = number(c, "margin"),
                                                    .p = number(c, "p"),
                                                    .swap = truth(c, "swap")};
    return tutti_triplet_margin_loss(c->s, c->in[0], c->in[1], c->in[2], &options);
}

/* A city's distance, or PyTorch's where there is no user. */
static tutti_tensor_t *city_distance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                     void *user)
{
    tutti_tensor_t *d = tutti_abs(s, tutti_sub(s, x, y));
    return tutti_mul_scalar(s, tutti_sum_over(s, d, TUTTI_DIMS(-1), false), *(double *)user);
}

static tutti_tensor_t *call_triplet_margin_with_distance_loss(golden_call_t *c)
{
    double factor = number(c, "city");
    const tutti_triplet_distance_options_t options = {.reduction = reduction(c),
                                                      .margin = number(c, "margin"),
                                                      .swap = truth(c, "swap"),
                                                      .distance =
                                                          factor == 0 ? NULL : city_distance,
                                                      .user = &factor};
    return tutti_triplet_margin_with_distance_loss(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_pdist(golden_call_t *c)
{
    return tutti_pdist(c->s, c->in[0], norm_of(c));
}

static tutti_tensor_t *call_cdist(golden_call_t *c)
{
    return tutti_cdist(c->s, c->in[0], c->in[1], norm_of(c));
}

static tutti_tensor_t *call_multilabel_margin_loss(golden_call_t *c)
{
    return tutti_multilabel_margin_loss(c->s, c->in[0], c->in[1], reduction(c));
}

static tutti_margin_options_t margin_of(const golden_call_t *c)
{
    return (tutti_margin_options_t){reduction(c), number(c, "margin")};
}

static tutti_tensor_t *call_cosine_embedding_loss(golden_call_t *c)
{
    const tutti_margin_options_t options = margin_of(c);
    return tutti_cosine_embedding_loss(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_hinge_embedding_loss(golden_call_t *c)
{
    const tutti_margin_options_t options = margin_of(c);
    return tutti_hinge_embedding_loss(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_margin_ranking_loss(golden_call_t *c)
{
    const tutti_margin_options_t options = margin_of(c);
    return tutti_margin_ranking_loss(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_soft_margin_loss(golden_call_t *c)
{
    return tutti_soft_margin_loss(c->s, c->in[0], c->in[1], reduction(c));
}

static tutti_tensor_t *call_multi_margin_loss(golden_call_t *c)
{
    const tutti_multi_margin_options_t options = {.reduction = reduction(c),
                                                  .margin = number(c, "margin"),
                                                  .p = (int)integer(c, "p"),
                                                  .weight = c->in[2]};
    return tutti_multi_margin_loss(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_multilabel_soft_margin_loss(golden_call_t *c)
{
    return tutti_multilabel_soft_margin_loss(c->s, c->in[0], c->in[1], c->in[2], reduction(c));
}

/* ---- op_likelihood.h, op_loss.h ------------------------------------------------------------- */

static tutti_tensor_t *call_poisson_nll_loss(golden_call_t *c)
{
    const tutti_poisson_nll_options_t options = {
        .reduction = reduction(c), .is_rate = truth(c, "rate"), .full = truth(c, "full")};
    return tutti_poisson_nll_loss(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_gaussian_nll_loss(golden_call_t *c)
{
    const tutti_gaussian_nll_options_t options = {
        .reduction = reduction(c), .full = truth(c, "full"), .eps = number(c, "eps")};
    return tutti_gaussian_nll_loss(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_bce_with_logits_with(golden_call_t *c)
{
    const tutti_bce_options_t options = {
        .reduction = reduction(c), .weight = c->in[2], .pos_weight = c->in[3]};
    return tutti_bce_with_logits_with(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_focal_loss(golden_call_t *c)
{
    const tutti_focal_options_t options = {.reduction = reduction(c),
                                           .alpha = number(c, "alpha"),
                                           .gamma = number(c, "gamma") == 0 ? TUTTI_ZERO
                                                                            : number(c, "gamma")};
    return tutti_focal_loss(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_bce_loss(golden_call_t *c)
{
    const tutti_bce_options_t options = {.reduction = reduction(c),
                                         .weight = c->input_count > 2 ? c->in[2] : NULL};
    return tutti_bce_loss_with(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_l1_loss(golden_call_t *c)
{
    return tutti_l1_loss(c->s, c->in[0], c->in[1], reduction(c));
}

static tutti_tensor_t *call_weighted_cross_entropy(golden_call_t *c)
{
    const tutti_cross_entropy_options_t options = {.reduction = reduction(c),
                                                   .label_smoothing = number(c, "label_smoothing"),
                                                   .has_ignore_index = is_given(c, "ignore_index"),
                                                   .ignore_index = integer(c, "ignore_index"),
                                                   .weight = c->in[2]};
    return tutti_cross_entropy_with(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_weighted_nll_loss(golden_call_t *c)
{
    const tutti_nll_loss_options_t options = {.reduction = reduction(c),
                                              .has_ignore_index = is_given(c, "ignore_index"),
                                              .ignore_index = integer(c, "ignore_index"),
                                              .weight = c->in[2]};
    return tutti_nll_loss(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_ctc_loss(golden_call_t *c)
{
    const tutti_ctc_options_t options = {.reduction = reduction(c),
                                         .blank = integer(c, "blank"),
                                         .zero_infinity = truth(c, "zero_infinity"),
                                         .input_lengths = c->in[2],
                                         .target_lengths = c->in[3]};
    return tutti_ctc_loss(c->s, c->in[0], c->in[1], &options);
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
    {"pairwise_distance", .other = call_pairwise_distance},
    {"cosine_similarity", .other = call_cosine_similarity},
    {"triplet_margin_loss", .other = call_triplet_margin_loss},
    {"triplet_margin_with_distance_loss", .other = call_triplet_margin_with_distance_loss},
    {"pdist", .other = call_pdist},
    {"cdist", .other = call_cdist},
    {"multilabel_margin_loss", .other = call_multilabel_margin_loss},
    {"cosine_embedding_loss", .other = call_cosine_embedding_loss},
    {"hinge_embedding_loss", .other = call_hinge_embedding_loss},
    {"margin_ranking_loss", .other = call_margin_ranking_loss},
    {"soft_margin_loss", .other = call_soft_margin_loss},
    {"multi_margin_loss", .other = call_multi_margin_loss},
    {"multilabel_soft_margin_loss", .other = call_multilabel_soft_margin_loss},
    {"poisson_nll_loss", .other = call_poisson_nll_loss},
    {"gaussian_nll_loss", .other = call_gaussian_nll_loss},
    {"bce_with_logits_with", .other = call_bce_with_logits_with},
    {"focal_loss", .other = call_focal_loss},
    {"bce_loss", .other = call_bce_loss},
    {"l1_loss", .other = call_l1_loss},
    {"weighted_cross_entropy", .other = call_weighted_cross_entropy},
    {"weighted_nll_loss", .other = call_weighted_nll_loss},
    {"ctc_loss", .other = call_ctc_loss},
    {"leaky_relu", .other = call_leaky_relu},
    {"elu", .other = call_elu},
    {"celu", .other = call_celu},
    {"softplus", .other = call_softplus},
    {"hardtanh", .other = call_hardtanh},
    {"threshold", .other = call_threshold},
    {"hardshrink", .other = call_hardshrink},
    {"softshrink", .other = call_softshrink},
    {"rrelu", .other = call_rrelu},
    {"glu", .other = call_glu},
    {"softmin", .other = call_softmin},
    {"selu", .unary = tutti_selu},
    {"logsigmoid", .unary = tutti_logsigmoid},
    {"mish", .unary = tutti_mish},
    {"hardswish", .unary = tutti_hardswish},
    {"hardsigmoid", .unary = tutti_hardsigmoid},
    {"relu6", .unary = tutti_relu6},
    {"softsign", .unary = tutti_softsign},
    {"tanhshrink", .unary = tutti_tanhshrink},
    {"prelu", .binary = tutti_prelu},
};

#endif
