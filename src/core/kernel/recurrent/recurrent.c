/* Rows of a recurrent step over threads. Cost: a step reads and writes its operands once. */
#include "core/kernel/recurrent/recurrent.h"

#include "core/kernel/recurrent/recurrent_ops.h"

enum { PIECE = 4096 }; /* hidden units; each costs several exponentials */

typedef struct {
    const tt_recurrent_step_t *step;
    void (*call)(const tt_recurrent_step_t *step, size_t row);
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

static const tt_recurrent_ops_t *ops_for(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? &tt_recurrent_ops_f64 : tt_kernels()->recurrent;
}

static void recurrent_piece(void *arg, size_t piece)
{
    const recurrent_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t row = first; row < first + job->group && row < job->step->rows; row++) {
        job->call(job->step, row);
    }
}

static void run(tt_threads_t *threads, recurrent_job_t job)
{
    job.group = PIECE / (job.step->n + 1) + 1;
    tt_threads_run(threads, (job.step->rows + job.group - 1) / job.group, recurrent_piece, &job);
}

void tt_recurrent_forward(tt_threads_t *threads, const tt_recurrent_step_t *step)
{
    run(threads, (recurrent_job_t){.step = step, .call = ops_for(step->dtype)->forward});
}

void tt_recurrent_backward(tt_threads_t *threads, const tt_recurrent_step_t *step)
{
    run(threads, (recurrent_job_t){.step = step, .call = ops_for(step->dtype)->backward});
}
