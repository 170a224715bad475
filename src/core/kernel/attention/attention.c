/* Attention: pairs of batch and head over the threads, each with scratch of its thread. Backward
 * those that share keys stay together, for their gradients are sums.
 *
 * Each job has one piece per thread, which takes pairs until none is left: so scratch is as large
 * as the number of threads asks, and a pair's bits do not depend on who computes it.
 * Source: attention.h.
 */
#include "core/kernel/attention/attention.h"

#include <stdatomic.h>

#include "core/base/alloc.h"
#include "core/base/profiler.h"
#include "core/kernel/attention/attention_ops.h"

typedef void (*head_fn_t)(const tt_head_t *head);
typedef void (*head_f64_fn_t)(const tt_attention_t *a, int64_t bh);

typedef struct {
    const tt_attention_t *a;
    head_fn_t fn;
    head_f64_fn_t fn_f64;
    const tt_gemm_ops_t *gemm;
    const tt_attention_ops_t *ops;
    float *scratch;
    int64_t floats; /* of scratch, per piece */
    int64_t each;   /* pairs that are taken together */
    _Atomic int64_t next;
} job_t;

static void take_heads(void *arg, size_t piece)
{
    job_t *job = arg;
    const tt_attention_t *a = job->a;
    tt_head_t head = {
        .a = a,
        .gemm = job->gemm,
        .ops = job->ops,
        .is_short = job->gemm->k_per_step > 1,
        .to_f32 = tt_convert_to(TT_CLASS_F32, a->dtype),
        .from_f32 = tt_convert_from(TT_CLASS_F32, a->dtype),
        .scratch = job->scratch == NULL ? NULL : job->scratch + (int64_t)piece * job->floats};
    tt_gemm_begin(head.gemm);
    const int64_t pairs = a->batch * a->heads;
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->each)) < pairs) {
        for (head.bh = first; head.bh < first + job->each; head.bh++) {
            head.b = head.bh / a->heads;
            head.h = head.bh % a->heads;
            if (a->dtype == TUTTI_F64) {
                job->fn_f64(a, head.bh);
            } else {
                job->fn(&head);
            }
        }
    }
    tt_gemm_end(head.gemm);
}

static tutti_status_t check(const tt_attention_t *a)
{
    if (!tutti_dtype_is_float(a->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "attention takes f32, f64, bf16 or f16, not %s",
                       tutti_dtype_name(a->dtype));
    }
    if (!(a->dropout >= 0 && a->dropout < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "attention's dropout must be in [0,1), not %g",
                       (double)a->dropout);
    }
    if (a->group < 0 || (a->group > 1 && a->heads % a->group != 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "attention's %lld heads are no multiple of groups of %lld",
                       (long long)a->heads, (long long)a->group);
    }
    if (a->d > TT_HEAD_MAX && a->dtype != TUTTI_F64) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "attention takes heads of at most %d elements, not %lld; use more heads",
                       TT_HEAD_MAX, (long long)a->d);
    }
    return TUTTI_OK;
}

/* Products of bf16 in bf16, where the CPU can. */
static const tt_gemm_ops_t *choose_gemm(tutti_dtype_t dtype)
{
    const tt_gemm_ops_t *gemm = dtype == TUTTI_BF16 ? tt_gemm_ops(TUTTI_BF16) : NULL;
    return gemm != NULL ? gemm : tt_gemm_ops(TUTTI_F32);
}

static tutti_status_t run_job(tt_threads_t *threads, job_t *job)
{
    const tt_attention_t *a = job->a;
    const int64_t takes = a->batch * a->heads / job->each, workers = tt_threads_count(threads);
    const int64_t pieces = takes < workers ? takes : workers;
    if (pieces <= 0) {
        return TUTTI_OK;
    }
    job->ops = tt_kernels()->attention;
    job->gemm = choose_gemm(a->dtype);
    if (a->dtype != TUTTI_F64) {
        job->scratch = tt_threads_borrow(threads, (size_t)(pieces * job->floats) * sizeof(float));
        TT_TRY_ALLOC(job->scratch);
    }
    tt_threads_run(threads, (size_t)pieces, take_heads, job);
    if (job->scratch != NULL) {
        tt_threads_give_back(threads, job->scratch);
    }
    return TUTTI_OK;
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const tt_attention_t *a = arguments;
    job_t job = {.a = a,
                 .fn = tt_attention_forward_head,
                 .fn_f64 = tt_attention_forward_f64,
                 .floats = tt_attention_forward_floats(a),
                 .each = 1};
    return run_job(threads, &job);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const tt_attention_t *a = arguments;
    job_t job = {.a = a,
                 .fn = tt_attention_backward_head,
                 .fn_f64 = tt_attention_backward_f64,
                 .floats = tt_attention_backward_floats(a),
                 .each = tt_attention_group(a)};
    return run_job(threads, &job);
}

static tutti_status_t run_hidden(tt_threads_t *threads, const void *arguments)
{
    const tt_attention_t *a = arguments;
    uint8_t *hidden = a->out.data;
    (void)threads;
    for (int64_t i = 0; i < a->batch * a->tq * a->tk; i++) {
        const int64_t batch = i / (a->tq * a->tk), query = i / a->tk % a->tq, key = i % a->tk;
        hidden[i] = (a->causal && key > query) ||
                    (a->key_padding != NULL && a->key_padding[batch * a->tk + key] != 0);
    }
    return TUTTI_OK;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static const tt_pointer_t pointers[] = {TT_POINTER(tt_attention_t, q.data),
                                        TT_POINTER(tt_attention_t, k.data),
                                        TT_POINTER(tt_attention_t, v.data),
                                        TT_POINTER(tt_attention_t, key_padding),
                                        TT_POINTER(tt_attention_t, out.data),
                                        TT_POINTER(tt_attention_t, max_sum),
                                        TT_POINTER(tt_attention_t, dout.data),
                                        TT_POINTER(tt_attention_t, dq.data),
                                        TT_POINTER(tt_attention_t, dk.data),
                                        TT_POINTER(tt_attention_t, dv.data),
                                        TT_NO_POINTER};
static const tt_kernel_t forward_kernel =
    TT_KERNEL("attention", tt_attention_t, run_forward, pointers);
static const tt_kernel_t backward_kernel =
    TT_KERNEL("attention_backward", tt_attention_t, run_backward, pointers);
static const tt_kernel_t hidden_kernel =
    TT_KERNEL("attention_hidden", tt_attention_t, run_hidden, pointers);

/* `products` of D for each pair of a query and a key that it sees; of key_padding nothing is known
 * here. */
static void count(const tt_attention_t *a, int products)
{
    const int64_t seen = a->tq < a->tk ? a->tq : a->tk; /* queries that see one key more each */
    const double pairs =
        a->causal ? (double)seen * (double)(seen + 1) / 2 + (double)(a->tq - seen) * (double)a->tk
                  : (double)a->tq * (double)a->tk;
    tt_profile_count(2.0 * products * (double)a->d * pairs * (double)(a->batch * a->heads));
}

tutti_status_t tt_attention_forward(tt_exec_t *exec, const tt_attention_t *attention)
{
    TT_TRY(check(attention));
    count(attention, 2); /* scores, and the sum of v */
    return tt_launch(exec, &forward_kernel, attention);
}

tutti_status_t tt_attention_backward(tt_exec_t *exec, const tt_attention_t *attention)
{
    TT_TRY(check(attention));
    count(attention, 5); /* scores again, dp, and dv, dq, dk */
    return tt_launch(exec, &backward_kernel, attention);
}

tutti_status_t tt_attention_hidden(tt_exec_t *exec, const tt_attention_t *attention)
{
    TT_TRY(check(attention));
    return tt_launch(exec, &hidden_kernel, attention);
}
