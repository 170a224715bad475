/* Random integers: element i is tt_rng_below(first + i), one block of the stream each. */
#include "core/kernel/random/random.h"

enum { PIECE = 4096 };

typedef struct {
    tt_random_t at;
    int64_t *out;
    size_t count;
    int64_t low;
    uint64_t bound;
} whole_job_t;

static void fill_piece(void *arg, size_t piece)
{
    const whole_job_t *job = arg;
    const size_t first = piece * PIECE;
    for (size_t i = first; i < first + PIECE && i < job->count; i++) {
        const uint64_t value = tt_rng_below(job->at.rng, job->at.first + i, job->bound);
        job->out[i] = (int64_t)((uint64_t)job->low + value);
    }
}

static tutti_status_t run_whole(tt_threads_t *threads, const void *arguments)
{
    whole_job_t job = *(const whole_job_t *)arguments;
    tt_threads_run(threads, (job.count + PIECE - 1) / PIECE, fill_piece, &job);
    return TUTTI_OK;
}

tutti_status_t tt_fill_whole(tt_exec_t *exec, tt_random_t at, int64_t *out, size_t count,
                             int64_t low, uint64_t bound)
{
    static const tt_pointer_t pointers[] = {TT_POINTER(whole_job_t, out), TT_NO_POINTER};
    static const tt_kernel_t kernel = TT_KERNEL("randint", whole_job_t, run_whole, pointers);
    return tt_launch(exec, &kernel, &(whole_job_t){at, out, count, low, bound});
}
