/* Averages in pieces of 16384 elements for the threads, by a rule of updates.def; 16-bit values are
 * widened a batch at a time. Cost: memory bandwidth. */
#include "core/kernel/optim/weight_average.h"

#include "core/base/integers.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/kernels.h"
#include "core/kernel/optim/optim_steps.h"

enum { PIECE = 16384, BATCH = 256 };

static void move(const tt_average_t *a, size_t i, const float *x, size_t n)
{
    const tt_update_numbers_t numbers = {.sign = 1, .gain1 = a->share, .first = a->share == 1};
    const tt_update_buffers_t at = {.weight = a->average + i, .gradient = x};
    tt_kernels()->optim_steps->update[TT_UPDATE_AVERAGE](&numbers, &at, n);
}

static void move_piece(void *arg, size_t piece)
{
    const tt_average_t *a = arg;
    const size_t first = piece * PIECE, end = first + tt_min_size(a->n - first, PIECE);
    if (a->dtype == TUTTI_F32) {
        move(a, first, (const float *)a->x + first, end - first);
        return;
    }
    for (size_t i = first; i < end; i += BATCH) {
        float wide[BATCH];
        const size_t n = tt_min_size(end - i, BATCH);
        tt_convert_to(TT_CLASS_F32,
                      a->dtype)(wide, (const char *)a->x + i * tutti_dtype_bytes(a->dtype), n);
        move(a, i, wide, n);
    }
}

static tutti_status_t run_average(tt_threads_t *threads, const void *arguments)
{
    tt_average_t a = *(const tt_average_t *)arguments;
    tt_threads_run(threads, tt_divide_up(a.n, PIECE), move_piece, &a);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_average_t, average),
                                        TT_POINTER(tt_average_t, x), TT_NO_POINTER};
/* Behind a failure, too: an update is counted, and the weights are what they are. */
static const tt_kernel_t kernel = TT_KERNEL_ALWAYS("average", tt_average_t, run_average, pointers);

tutti_status_t tt_average(tt_exec_t *exec, const tt_average_t *average)
{
    return average->n == 0 ? TUTTI_OK : tt_launch(exec, &kernel, average);
}
