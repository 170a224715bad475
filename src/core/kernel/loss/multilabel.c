/* Margins of several labels, some rows at a time (multilabel_simd.c). Cost: a pass over the row, in
 * a cache, for each of its targets. */
#include "core/kernel/loss/multilabel.h"

enum { PIECE = 16384 };

typedef struct {
    const tt_multilabel_t *job;
    void (*do_row)(const tt_multilabel_t *job, size_t row);
    size_t group;
} multilabel_run_t;

static tutti_status_t check(const tt_multilabel_t *job)
{
    const int64_t n = (int64_t)job->n;
    for (size_t i = 0; i < job->rows * job->n; i++) {
        if (job->targets[i] < -1 || job->targets[i] >= n) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "multilabel_margin_loss: target %lld at element %zu is outside [-1, "
                           "%lld)",
                           (long long)job->targets[i], i, (long long)n);
        }
    }
    return TUTTI_OK;
}

static void do_piece(void *arg, size_t piece)
{
    const multilabel_run_t *run = arg;
    const size_t first = piece * run->group;
    for (size_t i = first; i < first + run->group && i < run->job->rows; i++) {
        run->do_row(run->job, i);
    }
}

static tutti_status_t run(tt_threads_t *threads, const void *arguments)
{
    const tt_multilabel_t *job = arguments;
    TT_TRY(check(job));
    multilabel_run_t all = {
        .job = job,
        .do_row = tt_kernels_of(job->is_wide ? TUTTI_F64 : TUTTI_F32)->multilabel->row,
        .group = PIECE / (job->n * 4 + 1) + 1};
    tt_threads_run(threads, (job->rows + all.group - 1) / all.group, do_piece, &all);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {
    TT_POINTER(tt_multilabel_t, x), TT_POINTER(tt_multilabel_t, targets),
    TT_POINTER(tt_multilabel_t, loss), TT_POINTER(tt_multilabel_t, slope), TT_NO_POINTER};
TT_LAUNCHER(tt_multilabel, "multilabel_margin_loss", tt_multilabel_t, run, pointers)
