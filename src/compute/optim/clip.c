/* Clipping and unscaling of gradients. The norm is a sum in f64 of fixed blocks within a parameter,
 * and of parameters in their order, so that it is the same for any number of threads, and for
 * a rank that holds only some of the blocks. Source: torch.nn.utils.clip_grad_norm_,
 * clip_grad_value_.
 */
#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/optim/flat.h"
#include "core/tensor/tensor_impl.h"

/* torch adds this to the norm before dividing by it. */
static const double norm_eps = 1e-6;

static tutti_status_t measure(tutti_optim_t *opt, bool is_largest, double *norm)
{
    double total = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        if (grad == NULL) {
            continue;
        }
        const float *data = tutti_tensor_data(grad);
        const size_t count = (size_t)grad->numel;
        if (is_largest) {
            const double most = tt_flat_largest(opt->ctx->exec.threads, data, count);
            total = isnan(most) || most > total ? most : total;
        } else {
            total += tt_flat_sum_squares(opt->ctx->exec.threads, data, count);
        }
    }
    *norm = is_largest ? total : sqrt(total);
    return TUTTI_OK;
}

/* All that may fail, before the first gradient is written: a call that failed may be repeated. */
static tutti_status_t find_grads(tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
    }
    return TUTTI_OK;
}

/* A parameter's gradient, to be written; NULL if there is none. After find_grads() or measure(). */
static tutti_status_t open_grad(tutti_optim_t *opt, size_t slot, tutti_tensor_t **grad)
{
    TT_TRY(tt_optim_flat_grad(opt, &opt->slots[slot], grad));
    if (*grad != NULL) {
        tt_tensor_touch(*grad);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_clip_grad_norm(tutti_optim_t *opt, double max_norm, double p, double *norm)
{
    if (!(max_norm >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g: it must be at least 0",
                       max_norm);
    }
    if (p != 2 && p != INFINITY) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: p is %g: it must be 2 or infinity", p);
    }
    double total;
    TT_TRY(tt_optim_check_free(opt, "clip_grad_norm"));
    TT_TRY(measure(opt, p == INFINITY, &total));
    const double factor = max_norm == INFINITY ? 1 : max_norm / (total + norm_eps);
    for (size_t i = 0; i < opt->slot_count && !(factor >= 1); i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        if (grad != NULL) {
            tt_flat_scale(opt->ctx->exec.threads, tutti_tensor_data(grad), (size_t)grad->numel,
                          (float)factor);
        }
    }
    if (norm != NULL) {
        *norm = total;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_clip_grad_value(tutti_optim_t *opt, double clip_value)
{
    if (!(clip_value >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_value: clip_value is %g: it must be at least 0",
                       clip_value);
    }
    TT_TRY(tt_optim_check_free(opt, "clip_grad_value"));
    TT_TRY(find_grads(opt));
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        if (grad != NULL) {
            const tt_strided_t x = tt_tensor_strided(grad);
            TT_TRY(tt_map_unary(&opt->ctx->exec, TT_UNARY_CLAMP,
                                (tt_map_params_t){-clip_value, clip_value}, &x, &x));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, bool *is_finite)
{
    *is_finite = true;
    TT_TRY(tt_optim_check_free(opt, "scaler: unscale"));
    TT_TRY(find_grads(opt));
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        *is_finite =
            (grad == NULL || tt_flat_unscale(opt->ctx->exec.threads, tutti_tensor_data(grad),
                                             (size_t)grad->numel, (float)factor)) &&
            *is_finite;
    }
    return TUTTI_OK;
}
