/* Clipping and unscaling of gradients. The norm is a sum in f64 of fixed blocks within a parameter,
 * and of parameters in their order, so that it is the same for any number of threads, and for
 * whoever holds only some of the blocks. Source: torch.nn.utils.clip_grad_norm_, clip_grad_value_.
 */
#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/kernel/flat.h"
#include "core/tensor/tensor_impl.h"

/* torch adds this to the norm before dividing by it. */
static const double norm_eps = 1e-6;

/* The gradient as f32 in a row; set anew if it had gaps. */
static tutti_status_t flat_grad(const tt_optim_slot_t *slot, float **data, size_t *count)
{
    tutti_tensor_t *grad = tt_optim_grad(slot);
    *data = NULL;
    *count = 0;
    if (grad != NULL && !tutti_tensor_is_contiguous(grad)) {
        tutti_tensor_t *packed;
        TT_TRY(tutti_tensor_create(TUTTI_F32, tutti_tensor_shape(grad), &packed));
        tutti_status_t status = tutti_tensor_copy(packed, grad);
        if (status >= 0) {
            status = tutti_tensor_set_grad(slot->tensor, packed);
        }
        tutti_tensor_release(packed);
        TT_TRY(status);
        grad = packed; /* the tensor holds it */
    }
    if (grad != NULL) {
        *data = tutti_tensor_data(grad);
        *count = (size_t)tutti_tensor_numel(grad);
    }
    return TUTTI_OK;
}

static double largest(const float *x, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        const double size = fabs((double)x[i]);
        most = isnan(size) || size > most ? size : most;
        if (isnan(most)) {
            break;
        }
    }
    return most;
}

static tutti_status_t measure(tutti_optim_t *opt, bool is_largest, double *norm)
{
    double total = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        float *data;
        size_t count;
        TT_TRY(flat_grad(&opt->slots[i], &data, &count));
        if (is_largest) {
            const double most = largest(data, count);
            total = isnan(most) || most > total ? most : total;
        } else {
            total += tt_flat_sum_squares(opt->ctx->pool, data, count);
        }
    }
    *norm = is_largest ? total : sqrt(total);
    return TUTTI_OK;
}

tutti_status_t tutti_clip_grad_norm(tutti_optim_t *opt, double limit, double p, double *norm)
{
    if (!(limit >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: limit is %g: it must be at least 0", limit);
    }
    if (p != 2 && p != INFINITY) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: p is %g: it must be 2 or infinity", p);
    }
    double total;
    TT_TRY(measure(opt, p == INFINITY, &total));
    const double factor = limit / (total + norm_eps);
    for (size_t i = 0; i < opt->slot_count && !(factor >= 1); i++) {
        float *data;
        size_t count;
        TT_TRY(flat_grad(&opt->slots[i], &data, &count));
        tt_flat_scale(opt->ctx->pool, data, count, (float)factor);
    }
    if (norm != NULL) {
        *norm = total;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_clip_grad_value(tutti_optim_t *opt, double limit)
{
    if (!(limit >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_value: limit is %g: it must be at least 0", limit);
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        float *data;
        size_t count;
        TT_TRY(flat_grad(&opt->slots[i], &data, &count));
        tt_flat_clamp(opt->ctx->pool, data, count, (float)limit);
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, bool *is_finite)
{
    *is_finite = true;
    for (size_t i = 0; i < opt->slot_count; i++) {
        float *data;
        size_t count;
        TT_TRY(flat_grad(&opt->slots[i], &data, &count));
        *is_finite = tt_flat_unscale(opt->ctx->pool, data, count, (float)factor) && *is_finite;
    }
    return TUTTI_OK;
}
