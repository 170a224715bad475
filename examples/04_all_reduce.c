/* Lesson 4: processes that compute together.
 *
 *     tutti run -n 3 build/bin/04_all_reduce
 *     tutti run -n 3 build/bin/04_all_reduce --mismatch
 *     build/bin/04_all_reduce                            # alone: a world of one
 *
 * All ranks of a group make the same calls in the same order. What a call is about (operation,
 * dtype, count) is compared on every rank before a byte moves, so that a mistake is an error on
 * all of them, and never a hang.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/collectives.h>

enum { COUNT = 4 };

static void print_tensor(int rank, const char *what, const tutti_tensor_t *x)
{
    char line[160];
    int used = snprintf(line, sizeof line, "rank %d: %s", rank, what);
    for (int64_t i = 0; i < tutti_tensor_numel(x) && used < (int)sizeof line; i++) {
        used += snprintf(line + used, sizeof line - (size_t)used, " %g", tutti_tensor_at(x, i));
    }
    puts(line); /* in one piece, since the others print too */
}

/* Every rank contributes its rank + 1; every rank gets the sum. */
static tutti_status_t sum_up(tutti_group_t *world, tutti_tensor_t *x)
{
    const int rank = tutti_group_rank(world);
    TUTTI_CHECK(tutti_tensor_fill(x, rank + 1));
    TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, NULL)); // no work: waits here
    print_tensor(rank, "the sum is", x);
    return TUTTI_OK;
}

/* A call can be started, and waited for when its result is needed. */
static tutti_status_t sum_up_meanwhile(tutti_group_t *world, tutti_tensor_t *x)
{
    tutti_work_t *work;
    TUTTI_CHECK(tutti_tensor_fill(x, tutti_group_rank(world)));
    TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_AVG, &work));
    /* … here this rank computes something else; x must be left alone … */
    const tutti_status_t status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    TUTTI_CHECK(status);
    print_tensor(tutti_group_rank(world), "the average is", x);
    return TUTTI_OK;
}

/* The last rank passes another number of elements. */
static tutti_status_t disagree(tutti_group_t *world)
{
    const int rank = tutti_group_rank(world);
    const int64_t count = rank == tutti_group_size(world) - 1 ? 2 * COUNT : COUNT;
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(count), &x));
    const tutti_status_t status = tutti_all_reduce(world, x, TUTTI_SUM, NULL);
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t lesson(tutti_group_t *world, bool mismatch)
{
    /* Memory that all ranks of this host see: peers read and write it in place. */
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(COUNT), &x));
    tutti_status_t status = sum_up(world, x);
    if (status >= 0) {
        status = sum_up_meanwhile(world, x);
    }
    tutti_tensor_release(x);
    TUTTI_CHECK(status);
    return mismatch ? disagree(world) : tutti_barrier(world, NULL);
}

int main(int argc, char **argv)
{
    const bool mismatch = argc > 1 && strcmp(argv[1], "--mismatch") == 0;
    tutti_group_t *world = NULL;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status >= 0) {
        status = lesson(world, mismatch);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_group_release(world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
