/* Drawing by weights. See multinomial.h. A number of the stream is a block of it, so that 53 bits
 * decide.
 */
#include "core/kernel/random/multinomial.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/alloc.h"

/* In [0, 1), of 53 bits. */
static double uniform(const tt_multinomial_t *choice, int64_t i)
{
    const tt_rng_block_t block = tt_rng_block(choice->at.rng, choice->at.first + (uint64_t)i);
    const uint64_t bits = (uint64_t)block.v[0] << 32 | block.v[1];
    return (double)(bits >> 11) * 0x1p-53;
}

static tutti_status_t check_row(const tt_multinomial_t *choice, int64_t row)
{
    const double *weights = choice->weights + row * choice->length;
    int64_t positive = 0;
    for (int64_t i = 0; i < choice->length; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i])) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "multinomial: weight %lld of row %lld is %g: want finite ones, not "
                           "below 0",
                           (long long)i, (long long)row, weights[i]);
        }
        positive += weights[i] > 0;
    }
    if (positive == 0 || (!choice->replaces && positive < choice->count)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "multinomial: row %lld has %lld weights above 0: %lld are to be drawn%s",
                       (long long)row, (long long)positive, (long long)choice->count,
                       choice->replaces ? "" : " without replacement");
    }
    return TUTTI_OK;
}

/* ---- with replacement ------------------------------------------------------------------------ */

/* sums[i]: the weights up to i, in parts of the largest, so that no sum is infinite or lost. */
static void sum_weights(const double *weights, int64_t n, double *sums)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, weights[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i] / most;
        sums[i] = sum;
    }
}

/* The first index whose sum is above `at`, which is below the last. */
static int64_t find_sum(const double *sums, int64_t n, double at)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void draw_again(const tt_multinomial_t *choice, int64_t row, double *sums)
{
    const int64_t n = choice->length;
    sum_weights(choice->weights + row * n, n, sums);
    for (int64_t i = 0; i < choice->count; i++) {
        const int64_t number = row * choice->count + i;
        const double at = uniform(choice, number) * sums[n - 1];
        /* Rounding may lead to the sum itself: the last weight that adds something is meant. */
        choice->out[number] = find_sum(sums, n, at < sums[n - 1] ? at : nextafter(sums[n - 1], 0));
    }
}

/* ---- without --------------------------------------------------------------------------------- */

typedef struct {
    double time;
    int64_t index;
} waiting_t;

static int compare(const void *a, const void *b)
{
    const waiting_t *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1)
                              : (x->index > y->index) - (x->index < y->index);
}

/* The logarithm of the waiting time is kept: tiny weights wait for longer than a number holds. */
static void draw_once(const tt_multinomial_t *choice, int64_t row, waiting_t *waiting)
{
    const int64_t n = choice->length;
    const double *weights = choice->weights + row * n;
    for (int64_t j = 0; j < n; j++) {
        const double u = uniform(choice, row * n + j);
        waiting[j].time =
            weights[j] == 0 ? (double)INFINITY : log(-log1p(-u) + 0x1p-1000) - log(weights[j]);
        waiting[j].index = j;
    }
    qsort(waiting, (size_t)n, sizeof *waiting, compare);
    for (int64_t i = 0; i < choice->count; i++) {
        choice->out[row * choice->count + i] = waiting[i].index;
    }
}

static tutti_status_t run_choice(tt_threads_t *threads, const void *arguments)
{
    const tt_multinomial_t *choice = arguments;
    (void)threads;
    for (int64_t row = 0; row < choice->rows; row++) {
        TT_TRY(check_row(choice, row));
    }
    if (choice->rows == 0) {
        return TUTTI_OK;
    }
    void *scratch = tt_alloc_array((size_t)choice->length, sizeof(waiting_t), "scratch");
    TT_TRY_ALLOC(scratch);
    for (int64_t row = 0; row < choice->rows; row++) {
        if (choice->replaces) {
            draw_again(choice, row, scratch);
        } else {
            draw_once(choice, row, scratch);
        }
    }
    tt_free(scratch);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_multinomial_t, out),
                                        TT_POINTER(tt_multinomial_t, weights), TT_NO_POINTER};

TT_LAUNCHER(tt_multinomial, "multinomial", tt_multinomial_t, run_choice, pointers)
