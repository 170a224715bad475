/* nll_loss, and cross_entropy with weights of classes or with probabilities: gather, mask, sum.
 * Without either cross_entropy is an operation of its own (cross_entropy_op.c). */
#include "compute/op/loss/class_loss.h"

#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "compute/op/loss/loss_reduction.h"
#include "compute/op/math/elementwise.h"

static tutti_status_t check_weight(const char *loss, const tutti_tensor_t *x,
                                   const tutti_tensor_t *weight)
{
    char first[192], second[192];
    if (weight == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_status(weight));
    if (!tutti_dtype_is_float(weight->dtype) || weight->shape.rank != 1 ||
        weight->numel != x->shape.dims[x->shape.rank - 1]) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: want a floating weight for each class: %s and %s",
                       loss, tutti_tensor_describe(x, first, sizeof first),
                       tutti_tensor_describe(weight, second, sizeof second));
    }
    return TUTTI_OK;
}

static tutti_status_t check_nll(const tutti_tensor_t *log_probs, const tutti_tensor_t *targets,
                                const tutti_nll_loss_options_t *o)
{
    char first[192], second[192];
    TT_TRY(tt_tensor_status(log_probs));
    TT_TRY(tt_tensor_status(targets));
    TT_TRY(tt_loss_check("nll_loss", o->reduction));
    const tutti_dtype_t dtype = targets->dtype;
    if (!tutti_dtype_is_float(log_probs->dtype) ||
        (dtype != TUTTI_I64 && dtype != TUTTI_I32 && dtype != TUTTI_U8)) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "nll_loss: want floating log-probabilities, and targets of i64, i32 or u8: "
                       "%s and %s",
                       tutti_tensor_describe(log_probs, first, sizeof first),
                       tutti_tensor_describe(targets, second, sizeof second));
    }
    if (log_probs->shape.rank == 0 ||
        !tutti_shape_equal(tt_loss_rows(log_probs->shape), targets->shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "nll_loss: the targets must have the shape of the log-probabilities "
                       "without the classes, which come last: %s and %s",
                       tutti_tensor_describe(log_probs, first, sizeof first),
                       tutti_tensor_describe(targets, second, sizeof second));
    }
    return check_weight("nll_loss", log_probs, o->weight);
}

/* Rows of classes and the class that is meant, 0 where a row is ignored. */
typedef struct {
    tutti_tensor_t *logs, *is_ignored, *index, *weight; /* weight NULL: all are 1 */
} rows_t;

static rows_t rows_of(tutti_scope_t *s, tutti_tensor_t *logs, tutti_tensor_t *targets,
                      int64_t ignored, tutti_tensor_t *weight)
{
    const tutti_dtype_t dtype = tt_sum_dtype(logs->dtype);
    targets = tutti_cast(s, targets, TUTTI_I64);
    rows_t rows = {.logs = tutti_cast(s, logs, dtype),
                   .is_ignored = tutti_eq_scalar(s, targets, (double)ignored)};
    rows.index = tutti_masked_fill(s, targets, rows.is_ignored, 0);
    if (weight != NULL) {
        tutti_tensor_t *flat = tutti_flatten(s, rows.index, 0, -1);
        tutti_tensor_t *own = tutti_index_select(s, tutti_cast(s, weight, dtype), 0, flat);
        own = tutti_reshape(s, own, tutti_tensor_shape(rows.index));
        rows.weight = tutti_masked_fill(s, own, rows.is_ignored, 0);
    }
    return rows;
}

/* What a mean divides by: the weights of the rows that count, or their number. */
static tutti_tensor_t *weight_of_rows(tutti_scope_t *s, const rows_t *rows)
{
    return rows->weight != NULL
               ? tutti_sum(s, rows->weight)
               : tutti_cast(s, tutti_sum(s, tutti_logical_not(s, rows->is_ignored)),
                            rows->logs->dtype);
}

static tutti_tensor_t *losses_of(tutti_scope_t *s, const rows_t *rows)
{
    tutti_tensor_t *index = tutti_unsqueeze(s, rows->index, -1);
    tutti_tensor_t *picked = tutti_squeeze(s, tutti_gather_along(s, rows->logs, -1, index), -1);
    tutti_tensor_t *losses = tutti_neg(s, picked);
    losses = rows->weight == NULL ? losses : tutti_mul(s, losses, rows->weight);
    return tutti_masked_fill(s, losses, rows->is_ignored, 0);
}

static tutti_tensor_t *reduce_rows(tutti_scope_t *s, const rows_t *rows, tutti_tensor_t *losses,
                                   tutti_loss_reduction_t reduction)
{
    return reduction == TUTTI_LOSS_MEAN
               ? tutti_div(s, tutti_sum(s, losses), weight_of_rows(s, rows))
               : tt_loss_reduce(s, losses, reduction);
}

tutti_tensor_t *tutti_nll_loss(tutti_scope_t *s, tutti_tensor_t *log_probs, tutti_tensor_t *targets,
                               const tutti_nll_loss_options_t *options)
{
    const tutti_nll_loss_options_t o =
        options == NULL ? (tutti_nll_loss_options_t){.weight = NULL} : *options;
    const tutti_status_t status = check_nll(log_probs, targets, &o);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const rows_t rows =
        rows_of(s, log_probs, targets, o.has_ignore_index ? o.ignore_index : -100, o.weight);
    return tutti_scope_status(s) < 0 ? rows.logs
                                     : reduce_rows(s, &rows, losses_of(s, &rows), o.reduction);
}

/* ---- cross_entropy --------------------------------------------------------------------------- */

/* -Σ w[c] p[c] log softmax[c] for each row; w NULL: all are 1. */
static tutti_tensor_t *against(tutti_scope_t *s, tutti_tensor_t *logs, tutti_tensor_t *p,
                               tutti_tensor_t *weight)
{
    tutti_tensor_t *each = p == NULL ? logs : tutti_mul(s, logs, p);
    each = weight == NULL ? each : tutti_mul(s, each, tutti_cast(s, weight, logs->dtype));
    return tutti_neg(s, tutti_sum_over(s, each, TUTTI_DIMS(-1), false));
}

static tutti_tensor_t *of_classes(tutti_scope_t *s, tutti_tensor_t *logs, tutti_tensor_t *targets,
                                  const tutti_cross_entropy_options_t *o)
{
    const double smoothing = o->label_smoothing;
    const rows_t rows =
        rows_of(s, logs, targets, o->has_ignore_index ? o->ignore_index : -100, o->weight);
    tutti_tensor_t *losses = losses_of(s, &rows);
    if (smoothing > 0 && tutti_scope_status(s) >= 0) {
        tutti_tensor_t *all =
            tutti_masked_fill(s, against(s, rows.logs, NULL, o->weight), rows.is_ignored, 0);
        all = tutti_mul_scalar(s, all, smoothing / (double)tutti_tensor_dim(logs, -1));
        losses = tutti_add(s, tutti_mul_scalar(s, losses, 1 - smoothing), all);
    }
    return tutti_scope_status(s) < 0 ? losses : reduce_rows(s, &rows, losses, o->reduction);
}

static tutti_tensor_t *of_probabilities(tutti_scope_t *s, tutti_tensor_t *logs, tutti_tensor_t *p,
                                        const tutti_cross_entropy_options_t *o)
{
    const double smoothing = o->label_smoothing, classes = (double)tutti_tensor_dim(logs, -1);
    p = tutti_cast(s, p, logs->dtype);
    if (smoothing > 0) {
        p = tutti_add_scalar(s, tutti_mul_scalar(s, p, 1 - smoothing), smoothing / classes);
    }
    return tt_loss_reduce(s, against(s, logs, p, o->weight), o->reduction);
}

tutti_tensor_t *tt_cross_entropy_composed(tutti_scope_t *s, tutti_tensor_t *logits,
                                          tutti_tensor_t *targets,
                                          const tutti_cross_entropy_options_t *o)
{
    const bool has_classes = !tutti_dtype_is_float(targets->dtype);
    const tutti_shape_t want = has_classes ? tt_loss_rows(logits->shape) : logits->shape;
    tutti_status_t status = tt_loss_check("cross_entropy", o->reduction);
    if (status >= 0) {
        status = tt_loss_check_pair("cross_entropy", logits, targets, want,
                                    has_classes ? "the targets"
                                                : "targets of a floating dtype are probabilities "
                                                  "(classes are i64, i32 or u8), and");
    }
    if (status >= 0 && logits->shape.rank == 0) {
        status = TT_FAIL(TUTTI_ERR_SHAPE, "cross_entropy: logits have no dimension of classes");
    }
    if (status >= 0 && o->weight != NULL) {
        status = check_weight("cross_entropy", logits, o->weight);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *logs = tutti_log_softmax(s, tt_wide(s, logits), -1);
    return logs->status < 0 ? logs
           : has_classes    ? of_classes(s, logs, targets, o)
                            : of_probabilities(s, logs, targets, o);
}
