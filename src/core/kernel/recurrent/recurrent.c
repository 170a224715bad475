/* Rows of a recurrent step over threads. Cost: a step reads and writes its operands once. */
#include "core/kernel/recurrent/recurrent.h"

#include "core/kernel/recurrent/recurrent_ops.h"

enum { PIECE = 4096 }; /* hidden units; each costs several exponentials */

typedef struct {
    const tt_recurrent_step_t *step;
    tt_recurrent_row_t call;
    size_t group; /* rows of a piece */
} recurrent_job_t;

size_t tt_recurrent_gates(tt_recurrent_t kind)
{
    return kind == TT_RECURRENT_LSTM ? 4 : kind == TT_RECURRENT_GRU ? 3 : 1;
}

size_t tt_recurrent_kept(tt_recurrent_t kind)
{
    return kind == TT_RECURRENT_LSTM || kind == TT_RECURRENT_GRU ? 4 : 1;
}

static void recurrent_piece(void *arg, size_t piece)
{
    const recurrent_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t row = first; row < first + job->group && row < job->step->rows; row++) {
        job->call(job->step, row);
    }
}

static void run(tt_threads_t *threads, const tt_recurrent_step_t *step,
                const tt_recurrent_row_t call[TUTTI_DTYPE_COUNT])
{
    const size_t group = PIECE / (step->n + 1) + 1;
    recurrent_job_t job = {step, call[step->dtype], group};
    tt_threads_run(threads, (step->rows + group - 1) / group, recurrent_piece, &job);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const tt_recurrent_step_t *step = arguments;
    run(threads, step, tt_kernels_of(step->dtype)->recurrent->forward);
    return TUTTI_OK;
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const tt_recurrent_step_t *step = arguments;
    run(threads, step, tt_kernels_of(step->dtype)->recurrent->backward);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_recurrent_step_t, x),
                                        TT_POINTER(tt_recurrent_step_t, product),
                                        TT_POINTER(tt_recurrent_step_t, h),
                                        TT_POINTER(tt_recurrent_step_t, c),
                                        TT_POINTER(tt_recurrent_step_t, kept),
                                        TT_POINTER(tt_recurrent_step_t, c_next),
                                        TT_POINTER(tt_recurrent_step_t, y),
                                        TT_POINTER(tt_recurrent_step_t, dy),
                                        TT_POINTER(tt_recurrent_step_t, dh),
                                        TT_POINTER(tt_recurrent_step_t, dc),
                                        TT_POINTER(tt_recurrent_step_t, dx),
                                        TT_POINTER(tt_recurrent_step_t, dproduct),
                                        TT_NO_POINTER};
TT_LAUNCHER(tt_recurrent_forward, "recurrent_step", tt_recurrent_step_t, run_forward, pointers)
TT_LAUNCHER(tt_recurrent_backward, "recurrent_step_backward", tt_recurrent_step_t, run_backward,
            pointers)
