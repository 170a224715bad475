/* Cases of op_loss.h's l1_loss and bce_loss, of op_likelihood.h, of op_margin_loss.h's kernels, and
 * of op_vocabulary.h. */
#include <math.h>

#include <tutti/op_likelihood.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_nn.h>
#include <tutti/op_vocabulary.h>

#include "op_cases.h"

static void call_l1_loss(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_l1_loss(s, in[0], in[1], TUTTI_LOSS_SUM);
    out[1] = tutti_l1_loss(s, in[0], in[1], TUTTI_LOSS_NONE);
}

static void call_bce_loss(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_bce_loss(s, in[0], in[1], TUTTI_LOSS_SUM);
    out[1] = tutti_bce_loss(s, in[0], in[1], TUTTI_LOSS_NONE);
}

static void call_bce_loss_each(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_bce_loss(s, in[0], in[1], TUTTI_LOSS_NONE);
}

/* Of logits: the gradient is PyTorch's, which is the true one together with log_softmax's. */
static void call_ctc_loss(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_ctc_options_t options = {.reduction = TUTTI_LOSS_NONE, .input_lengths = in[2]};
    out[0] = tutti_ctc_loss(s, tutti_log_softmax(s, in[0], -1), in[1], &options);
}

static void call_ctc_loss_dense(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_ctc_options_t options = {.blank = 0, .target_lengths = in[2]};
    out[0] = tutti_ctc_loss(s, tutti_log_softmax(s, in[0], -1), in[1], &options);
}

static void call_multilabel(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_multilabel_margin_loss(s, in[0], in[1], TUTTI_LOSS_NONE);
    out[1] = tutti_multilabel_margin_loss(s, in[0], in[1], TUTTI_LOSS_SUM);
}

/* The norms that have a way of their own, and two that have not; below 2 slopes are too steep for
 * differences. */
static void call_cdist(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    static const double norms[] = {2, 1, INFINITY, 3, 2.5};
    for (int i = 0; i < 5; i++) {
        out[i] = tutti_cdist(s, in[0], in[1], norms[i]);
    }
}

static void call_pdist(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    static const double norms[] = {2, 1, INFINITY, 2.5};
    for (int i = 0; i < 4; i++) {
        out[i] = tutti_pdist(s, in[0], norms[i]);
    }
}

static void count_cdist(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_cdist(s, in[0], in[1], 0);
}

static void count_pdist(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_pdist(s, in[0], 0);
}

/* Inputs: x, weight, bias, targets, a weight of each class. */
static void call_head(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_linear_cross_entropy_options_t options = {.bias = in[2], .loss.weight = in[4]};
    out[0] = tutti_linear_cross_entropy(s, in[0], in[1], in[3], &options);
}

static void call_head_sum(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_linear_cross_entropy_options_t options = {
        .bias = in[2],
        .loss = {.reduction = TUTTI_LOSS_SUM, .label_smoothing = 0.25, .weight = in[4]}};
    out[0] = tutti_linear_cross_entropy(s, in[0], in[1], in[3], &options);
}

static void call_head_each(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_linear_cross_entropy_options_t options = {
        .bias = in[2],
        .loss = {.reduction = TUTTI_LOSS_NONE, .label_smoothing = 0.25, .weight = in[4]}};
    out[0] = tutti_linear_cross_entropy(s, in[0], in[1], in[3], &options);
}

#define CASE(name, about) .op = name, .what = about
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }
#define MISSING                                                                                    \
    {                                                                                              \
        .is_missing = true                                                                         \
    }

const op_case_t op_cases_loss[] = {
    {CASE("l1_loss", ""), .input_count = 2, .output_count = 2, .inputs = {X(3, 4), X(3, 4)},
     .call = call_l1_loss},
    {CASE("l1_loss", "empty"), .input_count = 2, .output_count = 2, .inputs = {X(0), X(0)},
     .call = call_l1_loss},
    {CASE("bce_loss", ""), .input_count = 2, .output_count = 2,
     .inputs = {{.shape = SHAPE(3, 4), .low = 0.1, .high = 0.9},
                {.shape = SHAPE(3, 4), .low = 0.05, .high = 1}},
     .call = call_bce_loss},
    {CASE("bce_loss", "certain"), .input_count = 2,
     .inputs = {{.shape = SHAPE(4), .values = VALUES(0, 1, 0, 1)},
                {.shape = SHAPE(4), .values = VALUES(0, 1, 1, 0)}},
     .call = call_bce_loss_each, .expected = VALUES(0, 0, 100, 100), .expected_shape = SHAPE(4),
     .has_no_gradient = true},
    {CASE("bce_loss", "empty"), .input_count = 2, .output_count = 2, .inputs = {X(0), X(0)},
     .call = call_bce_loss},
    {CASE("ctc_loss", ""), .input_count = 3,
     .inputs = {X(5, 2, 4),
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(1, 1, 3, 2)},
                {.shape = SHAPE(2), .dtype = TUTTI_I32, .values = VALUES(5, 4)}},
     .call = call_ctc_loss},
    {CASE("ctc_loss", "one behind the other"), .input_count = 3,
     .inputs = {X(4, 2, 3),
                {.shape = SHAPE(3), .dtype = TUTTI_I32, .values = VALUES(1, 2, 1)},
                {.shape = SHAPE(2), .dtype = TUTTI_I64, .values = VALUES(1, 2)}},
     .call = call_ctc_loss_dense},
    {CASE("ctc_loss", "no path"), .input_count = 3,
     .inputs = {X(2, 1, 3),
                {.shape = SHAPE(1, 3), .dtype = TUTTI_I64, .values = VALUES(1, 2, 1)},
                {.shape = SHAPE(1), .dtype = TUTTI_I64, .values = VALUES(2)}},
     .call = call_ctc_loss, .expected = VALUES(INFINITY), .expected_shape = SHAPE(1),
     .has_no_gradient = true},
    {CASE("ctc_loss", "empty"), .input_count = 3,
     .inputs = {X(3, 0, 4),
                {.shape = SHAPE(0, 2), .dtype = TUTTI_I64},
                {.shape = SHAPE(0), .dtype = TUTTI_I64}},
     .call = call_ctc_loss},
    {CASE("multilabel_margin_loss", ""), .input_count = 2, .output_count = 2,
     .inputs = {{.shape = SHAPE(3, 4),
                 .values = VALUES(0.1, 0.2, 0.4, 0.8, 0.9, -0.3, 1.5, -1, 0, 0.25, -0.5, 2)},
                {.shape = SHAPE(3, 4),
                 .dtype = TUTTI_I64,
                 .values = VALUES(3, 0, -1, 1, 1, 1, 3, -1, -1, 0, 1, 2)}},
     .call = call_multilabel, .expected = VALUES(0.85, 4.1, 0), .expected_shape = SHAPE(3)},
    {CASE("multilabel_margin_loss", "a long row"), .input_count = 2, .output_count = 2,
     .inputs = {X(37),
                {.shape = SHAPE(37),
                 .dtype = TUTTI_I32,
                 .values = VALUES(36, 0, 17, -1, [36] = 0)}},
     .call = call_multilabel},
    {CASE("multilabel_margin_loss", "empty"), .input_count = 2, .output_count = 2,
     .inputs = {X(0, 4), {.shape = SHAPE(0, 4), .dtype = TUTTI_I64}}, .call = call_multilabel},
    {CASE("cdist", ""), .input_count = 2, .output_count = 5, .inputs = {X(3, 5), X(2, 5)},
     .call = call_cdist},
    {CASE("cdist", "several, of long rows"), .input_count = 2, .output_count = 5,
     .inputs = {X(2, 1, 3, 19), X(2, 5, 19)}, .call = call_cdist},
    {CASE("cdist", "which differ"), .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 2), .values = VALUES(1, 2, 3, 4)},
                {.shape = SHAPE(2, 2), .values = VALUES(1, 3, 3, 4)}},
     .call = count_cdist, .expected = VALUES(1, 2, 2, 0), .expected_shape = SHAPE(2, 2),
     .has_no_gradient = true},
    {CASE("cdist", "empty"), .input_count = 2, .output_count = 5, .inputs = {X(0, 5), X(2, 5)},
     .call = call_cdist},
    {CASE("pdist", ""), .output_count = 4, .inputs = {X(5, 4)}, .call = call_pdist},
    {CASE("pdist", "long rows"), .output_count = 4, .inputs = {X(7, 33)}, .call = call_pdist},
    {CASE("pdist", "which differ"),
     .inputs = {{.shape = SHAPE(3, 2), .values = VALUES(1, 2, 1, 2, 1, 3)}}, .call = count_pdist,
     .expected = VALUES(0, 1, 1), .expected_shape = SHAPE(3), .has_no_gradient = true},
    {CASE("pdist", "empty"), .output_count = 4, .inputs = {X(0, 4)}, .call = call_pdist},
    {CASE("linear_cross_entropy", ""), .input_count = 5,
     .inputs = {X(2, 2, 3),
                X(5, 3),
                X(5),
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(4, 0, 2, 4)},
                MISSING},
     .call = call_head},
    {CASE("linear_cross_entropy", "ignored, weights"), .input_count = 5,
     .inputs = {X(4, 3),
                X(5, 3),
                MISSING,
                {.shape = SHAPE(4), .dtype = TUTTI_I32, .values = VALUES(4, -100, 2, 4)},
                {.shape = SHAPE(5), .low = 0.5, .high = 2, .is_constant = true}},
     .call = call_head},
    {CASE("linear_cross_entropy", "smooth"), .input_count = 5,
     .inputs =
         {X(3), X(6, 3), X(6), {.shape = {0}, .dtype = TUTTI_U8, .values = VALUES(5)}, MISSING},
     .call = call_head_sum},
    {CASE("linear_cross_entropy", "several at each row, smooth, weights"), .input_count = 5,
     .inputs = {X(2, 3),
                X(2, 4, 3),
                X(2, 4),
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(3, 0, -100, 1)},
                {.shape = SHAPE(4), .low = 0.5, .high = 2, .is_constant = true}},
     .call = call_head_each},
    {CASE("linear_cross_entropy", "probabilities"), .input_count = 5,
     .inputs = {X(3, 2), X(4, 2), X(4), {.shape = SHAPE(3, 4), .low = 0.1, .high = 0.9}, MISSING},
     .call = call_head},
    {CASE("linear_cross_entropy", "each of probabilities, weights"), .input_count = 5,
     .inputs = {X(3, 2),
                X(2, 4, 2),
                MISSING,
                {.shape = SHAPE(3, 2, 4), .low = 0.1, .high = 0.9},
                {.shape = SHAPE(4), .low = 0.5, .high = 2, .is_constant = true}},
     .call = call_head_each},
    {CASE("linear_cross_entropy", "empty"), .input_count = 5,
     .inputs = {X(0, 3), X(5, 3), X(5), {.shape = SHAPE(0), .dtype = TUTTI_I64}, MISSING},
     .call = call_head_sum},
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* log_probs [3, 2, 4], of two targets each. */
static void call_ctc(tutti_scope_t *s, int64_t target, int64_t in, int64_t out, int64_t blank)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3, 2, 4));
    const tutti_ctc_options_t options = {
        .blank = blank,
        .input_lengths = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){3, in}),
        .target_lengths = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){2, out})};
    (void)tutti_ctc_loss(
        s, x, tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2, 2), (int64_t[]){1, 2, target, 3}),
        &options);
}

static void ctc_target(tutti_scope_t *s)
{
    call_ctc(s, 4, 3, 2, 0);
}

static void ctc_input_length(tutti_scope_t *s)
{
    call_ctc(s, 1, 4, 2, 0);
}

static void ctc_target_length(tutti_scope_t *s)
{
    call_ctc(s, 1, 3, 3, 0);
}

static void ctc_blank(tutti_scope_t *s)
{
    call_ctc(s, 1, 3, 2, 4);
}

static void ctc_dtype(tutti_scope_t *s)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3, 2, 4));
    (void)tutti_ctc_loss(s, x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 2)), NULL);
}

static void ctc_shape(tutti_scope_t *s)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3, 2, 4));
    (void)tutti_ctc_loss(s, x, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(3, 2)), NULL);
}

static void l1_shape(tutti_scope_t *s)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3));
    (void)tutti_l1_loss(s, x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1)), TUTTI_LOSS_MEAN);
}

static void bce_dtype(tutti_scope_t *s)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3));
    (void)tutti_bce_loss(s, x, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(3)), TUTTI_LOSS_MEAN);
}

static void call_labels(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, double label)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    (void)tutti_multilabel_margin_loss(s, x, tutti_full(s, dtype, shape, label), TUTTI_LOSS_MEAN);
}

static void label_outside(tutti_scope_t *s)
{
    call_labels(s, TUTTI_I64, TUTTI_SHAPE(2, 3), 3);
}

static void label_below(tutti_scope_t *s)
{
    call_labels(s, TUTTI_I32, TUTTI_SHAPE(2, 3), -2);
}

static void label_dtype(tutti_scope_t *s)
{
    call_labels(s, TUTTI_F32, TUTTI_SHAPE(2, 3), 0);
}

static void label_shape(tutti_scope_t *s)
{
    call_labels(s, TUTTI_I64, TUTTI_SHAPE(2, 2), 0);
}

static void call_distances(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t other, double p)
{
    tutti_tensor_t *x = tutti_zeros(s, dtype, TUTTI_SHAPE(2, 3));
    (void)tutti_cdist(s, x, tutti_zeros(s, TUTTI_F32, other), p);
}

static void cdist_norm(tutti_scope_t *s)
{
    call_distances(s, TUTTI_F32, TUTTI_SHAPE(4, 3), -1);
}

static void cdist_dtype(tutti_scope_t *s)
{
    call_distances(s, TUTTI_I64, TUTTI_SHAPE(4, 3), 2);
}

static void cdist_shape(tutti_scope_t *s)
{
    call_distances(s, TUTTI_F32, TUTTI_SHAPE(4, 2), 2);
}

static void cdist_batch(tutti_scope_t *s)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 4, 3));
    (void)tutti_cdist(s, x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3, 4, 3)), 2);
}

static void pdist_norm(tutti_scope_t *s)
{
    (void)tutti_pdist(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3)), (double)NAN);
}

static void pdist_shape(tutti_scope_t *s)
{
    (void)tutti_pdist(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3)), 2);
}

/* x [2, 3] and a weight of [5, 3]. */
static void call_bad_head(tutti_scope_t *s, tutti_tensor_t *targets,
                          tutti_linear_cross_entropy_options_t options)
{
    (void)tutti_linear_cross_entropy(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3)),
                                     tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(5, 3)), targets,
                                     &options);
}

static void head_target(tutti_scope_t *s)
{
    call_bad_head(s, tutti_arange(s, TUTTI_I64, 4, 1, 2),
                  (tutti_linear_cross_entropy_options_t){.chunk = 1});
}

static void head_targets(tutti_scope_t *s)
{
    call_bad_head(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2, 1)),
                  (tutti_linear_cross_entropy_options_t){.chunk = 0});
}

static void head_bias(tutti_scope_t *s)
{
    tutti_tensor_t *bias = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1, 5));
    call_bad_head(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)),
                  (tutti_linear_cross_entropy_options_t){.bias = bias});
}

static void head_weight(tutti_scope_t *s)
{
    tutti_tensor_t *weight = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(4));
    call_bad_head(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)),
                  (tutti_linear_cross_entropy_options_t){.loss.weight = weight});
}

static void head_ignores_probabilities(tutti_scope_t *s)
{
    call_bad_head(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 5)),
                  (tutti_linear_cross_entropy_options_t){.loss.has_ignore_index = true});
}

static void head_chunk(tutti_scope_t *s)
{
    call_bad_head(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)),
                  (tutti_linear_cross_entropy_options_t){.chunk = -1});
}

static void head_smoothing(tutti_scope_t *s)
{
    call_bad_head(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)),
                  (tutti_linear_cross_entropy_options_t){.loss.label_smoothing = -0.5});
}

static void head_width(tutti_scope_t *s)
{
    (void)tutti_linear_cross_entropy(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 4)),
                                     tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(5, 3)),
                                     tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)), NULL);
}

const op_error_t op_errors_loss[] = {
    {"multilabel_margin_loss", label_outside,
     "multilabel_margin_loss: target 3 at element 0 is outside [-1, 3)"},
    {"multilabel_margin_loss", label_below,
     "multilabel_margin_loss: target -2 at element 0 is outside [-1, 3)"},
    {"multilabel_margin_loss", label_dtype,
     "multilabel_margin_loss: want a floating input, and targets of i64 or i32: f32[2, 3] and "
     "f32[2, 3]"},
    {"multilabel_margin_loss", label_shape,
     "multilabel_margin_loss: want an input [..., V], and targets of its shape: f32[2, 3] and "
     "i64[2, 2]"},
    {"cdist", cdist_norm, "cdist: p must be at least 0, not -1: f32[2, 3] and f32[4, 3]"},
    {"cdist", cdist_dtype, "cdist: rows must be of a floating dtype: i64[2, 3] and f32[4, 3]"},
    {"cdist", cdist_shape, "cdist: want rows [..., P, D] and [..., R, D]: f32[2, 3] and f32[4, 2]"},
    {"cdist", cdist_batch,
     "cdist: shapes [2] and [3] do not broadcast: dimension -1 must be equal or 1"},
    {"pdist", pdist_norm, "pdist: p must be at least 0, not nan: f32[2, 3]"},
    {"pdist", pdist_shape, "pdist: want rows [N, D]: f32[3]"},
    {"linear_cross_entropy", head_target,
     "cross_entropy: target 1 is 5, outside the 5 classes and not ignore_index -100"},
    {"linear_cross_entropy", head_targets,
     "linear_cross_entropy: the targets must have the shape of the logits, of classes without the "
     "last size: f32[2, 3], f32[5, 3], none, i64[2, 1] and none"},
    {"linear_cross_entropy", head_bias,
     "linear_cross_entropy: the bias must be the weight's [..., classes]: f32[2, 3], f32[5, 3], "
     "f32[1, 5], i64[2] and none"},
    {"linear_cross_entropy", head_weight,
     "linear_cross_entropy: want a floating weight for each class: f32[2, 3], f32[5, 3], none, "
     "i64[2] and f32[4]"},
    {"linear_cross_entropy", head_ignores_probabilities,
     "linear_cross_entropy: ignore_index is of classes, not of probabilities"},
    {"linear_cross_entropy", head_chunk,
     "linear_cross_entropy: a chunk of -1 rows: want at least 1, or 0"},
    {"linear_cross_entropy", head_smoothing,
     "linear_cross_entropy: label_smoothing must be in [0, 1], not -0.5"},
    {"linear_cross_entropy", head_width,
     "linear_cross_entropy: want x of [..., in] and a weight of [..., classes, in]: f32[2, 4], "
     "f32[5, 3], none, i64[2] and none"},
    {"ctc_loss", ctc_target, "ctc_loss: target 0 of sample 1 is 4, outside [0, 4)"},
    {"ctc_loss", ctc_input_length, "ctc_loss: input length 4 of sample 1 is outside 0 to 3"},
    {"ctc_loss", ctc_target_length, "ctc_loss: target length 3 of sample 1 is outside 0 to 2"},
    {"ctc_loss", ctc_blank,
     "ctc_loss: the blank 4 is outside [0, 4): f32[3, 2, 4], i64[2, 2], i64[2] and i64[2]"},
    {"ctc_loss", ctc_dtype,
     "ctc_loss: want floating log-probabilities; targets and lengths of i64 or i32: f32[3, 2, 4], "
     "f32[2, 2], none and none"},
    {"ctc_loss", ctc_shape,
     "ctc_loss: want targets [N, S], or one behind the other with their lengths: f32[3, 2, 4], "
     "i64[3, 2], none and none"},
    {"l1_loss", l1_shape, "l1_loss: both inputs must have the same shape: f32[3] and f32[1]"},
    {"bce_loss", bce_dtype, "bce_loss: both inputs must be of a floating dtype: f32[3] and i64[3]"},
};

OP_CASE_LISTS(loss);
