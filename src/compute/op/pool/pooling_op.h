/* What the pooling operations share: parameters, shape rule, and what the kernels are given. */
#ifndef TT_POOLING_OP_H
#define TT_POOLING_OP_H

#include "compute/autograd/op_call.h"
#include "core/kernel/pool/pooling.h"

/* Height first; of a line the height is 1 and nothing moves along it. */
typedef struct {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode, excludes_padding;
    int64_t divisor; /* 0: the window's */
    int64_t size[2]; /* of what is adaptive; 0: that of x */
} tt_pool_params_t;

/* What tells the operations apart: their family. */
typedef struct {
    int dims;
    bool is_adaptive;
} tt_pool_kind_t;

/* The parameters of an operation of `dims` dimensions, from options; NULL: all zero. */
tt_pool_params_t tt_pool_params(int dims, const int64_t kernel[2], const int64_t stride[2],
                                const int64_t padding[2], const int64_t dilation[2]);

/* Shape rule of all: y, and indices in i64 as a second output. */
tutti_status_t tt_pool_infer(const tutti_op_call_t *call, tutti_spec_t *outputs);

tt_pooling_t tt_pool_describe(const tutti_op_t *op, const tt_pool_params_t *params, tutti_shape_t x,
                              tutti_shape_t y, tutti_dtype_t dtype);

#endif
