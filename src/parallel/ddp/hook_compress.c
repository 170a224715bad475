/* bf16, fp16: the sum over all ranks of what was rounded to 16 bits, after a division by V, so that
 * sums stay in range. Ranks add up in f32 and round once.
 * Source: torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py. */
#include <tutti/ddp.h>

#include "core/base/fail.h"
#include "core/kernel/elementwise/combine.h"

static tutti_status_t compress(tutti_bucket_t *bucket, tutti_dtype_t dtype, tutti_work_t **work)
{
    tutti_tensor_t *grad = bucket->grad;
    if (tutti_dtype_bytes(tutti_tensor_dtype(grad)) == 2) { /* no smaller in either type */
        return tutti_all_reduce(bucket->group, grad, TUTTI_SUM, work);
    }
    if (*bucket->data == NULL) {
        tutti_tensor_t *half;
        TT_TRY(tutti_group_tensor(bucket->group, dtype, tutti_tensor_shape(grad), &half));
        *bucket->data = half;
    }
    tt_combine_divide(tt_combine_kernels(), tutti_tensor_data(grad), tutti_tensor_dtype(grad),
                      bucket->shards, (size_t)tutti_tensor_numel(grad));
    bucket->divisor = 1;
    TT_TRY(tutti_tensor_copy(*bucket->data, grad));
    return tutti_all_reduce(bucket->group, *bucket->data, TUTTI_SUM, work);
}

static tutti_status_t finish(void *state, tutti_bucket_t *bucket)
{
    (void)state;
    return *bucket->data == NULL ? TUTTI_OK : tutti_tensor_copy(bucket->grad, *bucket->data);
}

static void drop(void *state, void *data)
{
    (void)state;
    tutti_tensor_release(data);
}

static tutti_status_t start_bf16(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    (void)state;
    return compress(bucket, TUTTI_BF16, work);
}

static tutti_status_t start_fp16(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    (void)state;
    return compress(bucket, TUTTI_F16, work);
}

const tutti_ddp_hook_ops_t tutti_bf16_hook = {
    .name = "bf16",
    .about = "gradients travel rounded to bf16",
    .start = start_bf16,
    .finish = finish,
    .drop = drop,
};

const tutti_ddp_hook_ops_t tutti_fp16_hook = {
    .name = "fp16",
    .about = "gradients travel rounded to f16",
    .start = start_fp16,
    .finish = finish,
    .drop = drop,
};
