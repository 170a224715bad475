/* spectral_norm. Source: op_feature.h. */
#include <tutti/modes.h>
#include <tutti/op_feature.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/op/math/elementwise.h"

static tutti_status_t check(const tutti_tensor_t *w, const tutti_spectral_norm_options_t *o)
{
    char text[160];
    TT_TRY(tt_tensor_status(w));
    if (o == NULL || o->u == NULL || o->v == NULL || o->iterations < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "spectral_norm: u and v are required, iterations must not be negative");
    }
    TT_TRY(tt_tensor_status(o->u));
    TT_TRY(tt_tensor_status(o->v));
    const bool is_good = w->shape.rank >= 2 && tutti_dtype_is_float(w->dtype) && w->numel > 0 &&
                         o->u->shape.rank == 1 && o->v->shape.rank == 1 &&
                         o->u->shape.dims[0] == w->shape.dims[0] &&
                         o->v->shape.dims[0] == w->numel / w->shape.dims[0];
    return is_good ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_SHAPE,
                             "spectral_norm: the weight must be floating, [O, ...], u [O] and v "
                             "the other sizes' product: %s",
                             tutti_tensor_describe(w, text, sizeof text));
}

/* One step: to = W from / ‖W from‖, written. */
static tutti_tensor_t *step(tutti_scope_t *s, tutti_tensor_t *matrix, tutti_tensor_t *from,
                            tutti_tensor_t *to, double eps)
{
    tutti_tensor_t *y = tutti_matmul(s, matrix, from);
    y = tutti_cast(s, tutti_normalize(s, y, 2, 0, eps), to->dtype);
    const tutti_status_t status =
        tt_tensor_status(y) < 0 ? tutti_scope_status(s) : tutti_tensor_copy(to, y);
    return status < 0 ? tutti_scope_fail(s, status) : tutti_clone(s, to);
}

/* What does not depend on autocast, nor is recorded: u and v, moved if the context trains. A
 * forward that is run again for its backward takes them where the first one has left them. */
static void iterate(tutti_scope_t *s, tutti_tensor_t *matrix,
                    const tutti_spectral_norm_options_t *o, tutti_tensor_t **u, tutti_tensor_t **v)
{
    tutti_context_t *ctx = tutti_scope_context(s);
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, false);
    tutti_tensor_t *turned = tutti_transpose(s, matrix, 0, 1);
    const bool moves = tutti_context_is_training(ctx) && !tutti_context_is_recomputing(ctx);
    const int count = !moves ? 0 : o->iterations == 0 ? 1 : o->iterations;
    *u = tutti_clone(s, o->u);
    *v = tutti_clone(s, o->v);
    for (int i = 0; i < count; i++) {
        *u = step(s, matrix, *v, o->u, o->eps);
        *v = step(s, turned, *u, o->v, o->eps);
    }
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
}

tutti_tensor_t *tutti_spectral_norm(tutti_scope_t *s, tutti_tensor_t *weight,
                                    const tutti_spectral_norm_options_t *options)
{
    const tutti_status_t status = check(weight, options);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_context_t *ctx = tutti_scope_context(s);
    const tutti_dtype_t was = tutti_context_autocast(ctx);
    tutti_tensor_t *u, *v, *wide = tt_wide(s, weight);
    (void)tutti_context_set_autocast(ctx, TUTTI_F32);
    tutti_tensor_t *matrix = tutti_reshape(s, wide, TUTTI_SHAPE(weight->shape.dims[0], -1));
    iterate(s, matrix, options, &u, &v);
    tutti_tensor_t *sigma = tutti_sum(s, tutti_mul(s, u, tutti_matmul(s, matrix, v)));
    (void)tutti_context_set_autocast(ctx, was);
    return tutti_cast(s, tutti_div(s, wide, sigma), weight->dtype);
}
