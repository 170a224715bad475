/* CTC, sample by sample: lengths and targets are checked, then each sample's paths are counted
 * (ctc_paths.h) by a thread, in scratch of its own. See ctc.h.
 */
#include "core/kernel/loss/ctc.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/kernel/kernels.h"
#include "core/kernel/loss/ctc_paths.h"

static int64_t input_length(const tt_ctc_t *ctc, int64_t n)
{
    return ctc->input_lengths == NULL ? ctc->steps : ctc->input_lengths[n];
}

static int64_t target_length(const tt_ctc_t *ctc, int64_t n)
{
    return ctc->target_lengths == NULL ? ctc->target_stride : ctc->target_lengths[n];
}

/* The targets of all samples before this one, where they lie one behind the other. */
static int64_t target_begin(const tt_ctc_t *ctc, int64_t n)
{
    int64_t begin = n * ctc->target_stride;
    for (int64_t i = 0; i < n && ctc->target_stride == 0; i++) {
        begin += target_length(ctc, i);
    }
    return begin;
}

static tutti_status_t check_lengths(const tt_ctc_t *ctc)
{
    int64_t total = 0;
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t in = input_length(ctc, n), out = target_length(ctc, n);
        if (in < 0 || in > ctc->steps) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ctc_loss: input length %lld of sample %lld is outside 0 to %lld",
                           (long long)in, (long long)n, (long long)ctc->steps);
        }
        const int64_t room =
            ctc->target_stride > 0 ? ctc->target_stride : ctc->target_count - total;
        if (out < 0 || out > room) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ctc_loss: target length %lld of sample %lld is outside 0 to %lld",
                           (long long)out, (long long)n, (long long)room);
        }
        total += out;
    }
    return TUTTI_OK;
}

static tutti_status_t check_targets(const tt_ctc_t *ctc)
{
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t *labels = ctc->targets + target_begin(ctc, n);
        for (int64_t i = 0; i < target_length(ctc, n); i++) {
            if (labels[i] < 0 || labels[i] >= ctc->classes) {
                return TT_FAIL(TUTTI_ERR_ARG,
                               "ctc_loss: target %lld of sample %lld is %lld, outside [0, %lld)",
                               (long long)i, (long long)n, (long long)labels[i],
                               (long long)ctc->classes);
            }
        }
    }
    return TUTTI_OK;
}

/* ---- all samples ----------------------------------------------------------------------------- */

typedef struct {
    const tt_ctc_t *ctc;
    char *scratch;
    size_t room; /* of a sample */
    const int64_t *begins;
    tt_map_fn_t exp;
    bool has_gradient;
} job_t;

static tt_ctc_sample_t sample_of(const job_t *job, int64_t n)
{
    const tt_ctc_t *ctc = job->ctc;
    tt_ctc_sample_t sample = {.ctc = ctc,
                              .exp = job->exp,
                              .n = n,
                              .steps = input_length(ctc, n),
                              .labels = target_length(ctc, n),
                              .label = ctc->targets + job->begins[n]};
    tt_ctc_cut(&sample, sample.labels, job->has_gradient, job->scratch + (size_t)n * job->room);
    return sample;
}

static void sample_piece(void *arg, size_t n)
{
    const job_t *job = arg;
    const tt_ctc_t *ctc = job->ctc;
    tt_ctc_sample_t sample = sample_of(job, (int64_t)n);
    if (job->has_gradient) {
        tt_ctc_sample_backward(&sample);
        return;
    }
    double loss = tt_ctc_sample_forward(&sample);
    loss = ctc->zero_infinity && loss == (double)INFINITY ? 0 : loss;
    if (ctc->dtype == TUTTI_F32) {
        ((float *)ctc->losses)[n] = (float)loss;
    } else {
        ((double *)ctc->losses)[n] = loss;
    }
}

static tutti_status_t run_samples(tt_threads_t *threads, const tt_ctc_t *ctc, bool has_gradient)
{
    int64_t longest = 0;
    TT_TRY(check_lengths(ctc));
    TT_TRY(check_targets(ctc));
    if (ctc->samples == 0) {
        return TUTTI_OK;
    }
    int64_t *begins = tt_alloc_array((size_t)ctc->samples, sizeof *begins, "scratch");
    TT_TRY_ALLOC(begins);
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t length = target_length(ctc, n);
        longest = length > longest ? length : longest;
        begins[n] = target_begin(ctc, n);
    }
    job_t job = {.ctc = ctc,
                 .room = tt_ctc_room(ctc, longest, has_gradient),
                 .begins = begins,
                 .exp = tt_kernels_of(TUTTI_F64)->map->unary[TT_UNARY_EXP],
                 .has_gradient = has_gradient};
    job.scratch = tt_threads_borrow(threads, (size_t)ctc->samples * job.room);
    if (job.scratch == NULL) {
        tt_free(begins);
        return TUTTI_ERR_NOMEM;
    }
    tt_threads_run(threads, (size_t)ctc->samples, sample_piece, &job);
    tt_threads_give_back(threads, job.scratch);
    tt_free(begins);
    return TUTTI_OK;
}

static tutti_status_t run_ctc(tt_threads_t *threads, const void *arguments)
{
    return run_samples(threads, arguments, false);
}

static tutti_status_t run_ctc_backward(tt_threads_t *threads, const void *arguments)
{
    return run_samples(threads, arguments, true);
}

static const tt_pointer_t pointers[] = {
    TT_POINTER(tt_ctc_t, log_probs),      TT_POINTER(tt_ctc_t, targets),
    TT_POINTER(tt_ctc_t, input_lengths),  TT_POINTER(tt_ctc_t, target_lengths),
    TT_POINTER(tt_ctc_t, losses),         TT_POINTER(tt_ctc_t, grad_losses),
    TT_POINTER(tt_ctc_t, grad_log_probs), TT_NO_POINTER};

TT_LAUNCHER(tt_ctc, "ctc_loss", tt_ctc_t, run_ctc, pointers)
TT_LAUNCHER(tt_ctc_backward, "ctc_loss_backward", tt_ctc_t, run_ctc_backward, pointers)
