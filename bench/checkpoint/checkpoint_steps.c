/* Steps of a training while a save is written in the background, and as many without one, in turns.
 * A step is products on this rank's cores and a sum over all ranks, which also tells whether all
 * have written. The copy that a save begins with is its own figure. */
#include "checkpoint_bench.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <tutti/context.h>
#include <tutti/op_math.h>

enum { SIZE = 512, PRODUCTS = 8, SUMMED = 1 << 20, STEPS_MIN = 20 };

typedef struct {
    const state_t *state;
    tutti_context_t *ctx;
    tutti_saver_t *saver;
    tutti_tensor_t *a, *b;
    tutti_tensor_t *gradient; /* the last element: ranks that write */
} training_t;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tutti_status_t step(const training_t *t, bool *is_written)
{
    tutti_scope_t *s;
    float *last = (float *)tutti_tensor_data(t->gradient) + SUMMED - 1;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    for (int i = 0; i < PRODUCTS; i++) {
        (void)tutti_matmul(s, t->a, t->b);
    }
    TUTTI_CHECK(tutti_scope_close(s));
    *last = tutti_saver_is_done(t->saver) ? 0 : 1;
    TUTTI_CHECK(tutti_all_reduce(t->state->world, t->gradient, TUTTI_SUM, NULL));
    *is_written = *last == 0;
    return TUTTI_OK;
}

typedef struct {
    double wall, cpu; /* of a step */
    int count;
} steps_t;

/* So many, or if it is 0, until all ranks have written. */
static tutti_status_t take_steps(const training_t *t, int count, steps_t *out)
{
    bool is_written = false;
    const double begin = seconds_now(), cpu_begin = cpu_now();
    for (out->count = 0; count > 0 ? out->count < count : !is_written; out->count++) {
        TUTTI_CHECK(step(t, &is_written));
    }
    out->wall = (seconds_now() - begin) / out->count;
    out->cpu = (cpu_now() - cpu_begin) / out->count;
    return TUTTI_OK;
}

static tutti_status_t take_turns(const training_t *t, int rounds)
{
    steps_t with, without = {0};
    for (int round = -1; round < rounds; round++) { /* the first one warms up */
        const double begin = seconds_now();
        TUTTI_CHECK(tutti_saver_save(t->saver, round + 1));
        const double held = seconds_now() - begin;
        TUTTI_CHECK(take_steps(t, 0, &with));
        TUTTI_CHECK(tutti_saver_wait(t->saver));
        sync(); /* what the system writes later is not of the steps without */
        TUTTI_CHECK(take_steps(t, with.count > STEPS_MIN ? with.count : STEPS_MIN, &without));
        if (round >= 0 && t->state->rank == 0) {
            printf("{\"what\":\"steps\",\"with_s\":%.6f,\"without_s\":%.6f,\"steps\":%d,"
                   "\"held_s\":%.4f,\"written_s\":%.4f,\"cpu_s\":%.4f}\n",
                   with.wall, without.wall, with.count, held, with.wall * with.count,
                   (with.cpu - without.cpu) * with.count);
            fflush(stdout);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(training_t *t)
{
    const tutti_shape_t square = TUTTI_SHAPE(SIZE, SIZE);
    TUTTI_CHECK(tutti_context_create(NULL, &t->ctx));
    TUTTI_CHECK(tutti_saver_create(&t->state->checkpoint, &t->saver));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, square, &t->a));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, square, &t->b));
    TUTTI_CHECK(tutti_group_tensor(t->state->world, TUTTI_F32, TUTTI_SHAPE(SUMMED), &t->gradient));
    return TUTTI_OK;
}

tutti_status_t bench_steps(const state_t *state, int rounds)
{
    training_t t = {.state = state};
    tutti_status_t status = prepare(&t);
    status = status < 0 ? status : take_turns(&t, rounds);
    tutti_saver_release(t.saver);
    tutti_tensor_release(t.a);
    tutti_tensor_release(t.b);
    tutti_tensor_release(t.gradient);
    tutti_context_release(t.ctx);
    return status;
}
