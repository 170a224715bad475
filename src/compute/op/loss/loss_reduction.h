/* What losses share: their reductions, and checks of losses that consist of other operations. */
#ifndef TT_LOSS_REDUCTION_H
#define TT_LOSS_REDUCTION_H

#include <tutti/op.h>
#include <tutti/op_loss.h>
#include <tutti/op_reduce.h>

#include "core/tensor/tensor_impl.h"

static inline tutti_status_t tt_loss_check(const char *loss, tutti_loss_reduction_t reduction)
{
    return reduction == TUTTI_LOSS_MEAN || reduction == TUTTI_LOSS_SUM ||
                   reduction == TUTTI_LOSS_NONE
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: reduction %d: want TUTTI_LOSS_MEAN, "
                         "TUTTI_LOSS_SUM or TUTTI_LOSS_NONE",
                         loss, (int)reduction);
}

/* Losses, of which there is one for each sample or element, as they are asked for. */
static inline tutti_tensor_t *tt_loss_reduce(tutti_scope_t *s, tutti_tensor_t *losses,
                                             tutti_loss_reduction_t reduction)
{
    return reduction == TUTTI_LOSS_NONE  ? losses
           : reduction == TUTTI_LOSS_SUM ? tutti_sum(s, losses)
                                         : tutti_mean(s, losses);
}

/* DTYPE unless x is floating, SHAPE unless y has the shape that it must have. `what` names y. */
static inline tutti_status_t tt_loss_check_pair(const char *loss, const tutti_tensor_t *x,
                                                const tutti_tensor_t *y, tutti_shape_t want,
                                                const char *what)
{
    char first[192], second[192];
    TT_TRY(tt_tensor_status(x));
    TT_TRY(tt_tensor_status(y));
    if (!tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: the input must be of a floating dtype: %s", loss,
                       tutti_tensor_describe(x, first, sizeof first));
    }
    if (!tutti_shape_equal(y->shape, want)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s must have the shape %s, of an input of %s: %s",
                       loss, what, tutti_shape_format(want, first, sizeof first),
                       tutti_shape_format(x->shape, second, sizeof second),
                       tutti_shape_format(y->shape, (char[160]){0}, 160));
    }
    return TUTTI_OK;
}

/* SHAPE unless w, a weight or a variance, is broadcast to the shape of x. */
static inline tutti_status_t tt_loss_check_spread(const char *loss, const tutti_tensor_t *x,
                                                  const tutti_tensor_t *w, const char *what)
{
    char first[160], second[160];
    tutti_shape_t both;
    TT_TRY(tt_tensor_status(w));
    const tutti_status_t status = tutti_op_broadcast_shapes(loss, x->shape, w->shape, &both);
    return status >= 0 && tutti_shape_equal(both, x->shape)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s must be broadcast to %s: %s", loss, what,
                         tutti_shape_format(x->shape, first, sizeof first),
                         tutti_shape_format(w->shape, second, sizeof second));
}

/* A shape without its last dimension. */
static inline tutti_shape_t tt_loss_rows(tutti_shape_t shape)
{
    shape.rank -= shape.rank > 0;
    return shape;
}

#endif
