/* Tensors [N, C, ...] as the kernels of channels.h take them: contiguous [batch, channels, n].
 * Where n is small the channels are put first, as one sample [1, channels, batch n], so that a
 * segment is long enough to be worth a loop. */
#ifndef TT_CHANNEL_ORDER_H
#define TT_CHANNEL_ORDER_H

#include "compute/autograd/op_call.h"

typedef struct {
    size_t batch, channels, n;
    bool is_moved; /* channels first */
} tt_channel_order_t;

/* How the kernel sees a shape of two or more dimensions. */
tt_channel_order_t tt_channel_order(tutti_shape_t shape);

/* [C] as it is broadcast to x [N, C, ...]. */
tutti_shape_t tt_channel_shape(tutti_shape_t x);

/* In `infer`, where x [N, C, ...] is input 0: an input that may be missing is [C] and floating.
 * names: of those that this is asked for, for the text. */
tutti_status_t tt_channels_check(const tutti_op_call_t *call, int input, const char *names);

/* x in that order and of a dtype: x itself, retained, or a copy; owned by the caller. */
tutti_status_t tt_channels_bring(tutti_scope_t *s, tutti_tensor_t *x, tt_channel_order_t order,
                                 tutti_dtype_t dtype, tutti_tensor_t **out);

/* Where the kernel writes y, which is contiguous: y itself, retained, or memory whose contents
 * tt_channels_return() puts in place; owned by the caller. */
tutti_status_t tt_channels_lend(tutti_scope_t *s, tutti_tensor_t *y, tt_channel_order_t order,
                                tutti_tensor_t **out);
tutti_status_t tt_channels_return(tutti_scope_t *s, tutti_tensor_t *y, const tutti_tensor_t *lent);

#endif
