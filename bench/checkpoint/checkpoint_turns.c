/* Our side and the limit program in turns. Before each turn the disk has nothing to do, for what
 * the one before has freed and written would be paid by it. */
#include "checkpoint_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FOLDER_BYTES = 4000 };

typedef struct {
    const state_t *state;
    bool is_cold;
    int64_t step; /* of ours, the newest */
    int64_t limit_step;
    char limit_folder[FOLDER_BYTES + 16];
} turns_t;

typedef tutti_status_t act_t(turns_t *);

typedef struct {
    double wall, cpu; /* of the slowest rank; of this one's processor */
} seconds_t;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tutti_status_t of_limit(int result)
{
    if (result != 0) {
        fprintf(stderr, "checkpoint: the limit program: %s\n", strerror(errno));
    }
    return result == 0 ? TUTTI_OK : TUTTI_ERR_IO;
}

static tutti_status_t save_ours(turns_t *turns)
{
    return tutti_checkpoint_save(&turns->state->checkpoint, ++turns->step);
}

static tutti_status_t save_limit(turns_t *turns)
{
    return of_limit(
        limit_save(turns->state, turns->limit_folder, turns->step, ++turns->limit_step));
}

static tutti_status_t load_ours(turns_t *turns)
{
    return tutti_checkpoint_load(&turns->state->checkpoint, &turns->step);
}

static tutti_status_t load_limit(turns_t *turns)
{
    return of_limit(limit_load(turns->state, turns->state->checkpoint.folder, turns->step));
}

/* This rank's files into the page cache, or out of it. */
static void warm_or_cool(const turns_t *turns, bool is_cold)
{
    static const char *const kinds[] = {"safetensors", "digests"};
    static char buffer[1 << 20];
    char path[FOLDER_BYTES + 100];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/step-%012lld/rank-%05d-0.%s",
                 turns->state->checkpoint.folder, (long long)turns->step, turns->state->rank,
                 kinds[i]);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (is_cold) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        while (!is_cold && read(fd, buffer, sizeof buffer) > 0) {
        }
        close(fd);
    }
}

static tutti_status_t clock_save(turns_t *turns, act_t *act, seconds_t *took)
{
    sync();
    TUTTI_CHECK(tutti_barrier(turns->state->world, NULL));
    const double begin = seconds_now(), cpu_begin = cpu_seconds();
    TUTTI_CHECK(act(turns));
    took->cpu = cpu_seconds() - cpu_begin;
    TUTTI_CHECK(tutti_barrier(turns->state->world, NULL));
    took->wall = seconds_now() - begin;
    return TUTTI_OK;
}

static tutti_status_t clock_load(turns_t *turns, act_t *act, seconds_t *took)
{
    state_fill(turns->state, true);
    warm_or_cool(turns, turns->is_cold);
    TUTTI_CHECK(clock_save(turns, act, took));
    return state_check(turns->state);
}

static void print_round(const turns_t *turns, const char *what, bool has_limit,
                        const seconds_t *took)
{
    if (turns->state->rank == 0) {
        printf("{\"what\":\"%s\",\"ours_s\":%.4f,\"ours_cpu_s\":%.4f", what, took[0].wall,
               took[0].cpu);
        if (has_limit) {
            printf(",\"limit_s\":%.4f,\"limit_cpu_s\":%.4f", took[1].wall, took[1].cpu);
        }
        printf("}\n");
        fflush(stdout);
    }
}

static turns_t begin(const state_t *state, bool is_cold)
{
    turns_t turns = {.state = state, .is_cold = is_cold};
    snprintf(turns.limit_folder, sizeof turns.limit_folder, "%.*s.limit", FOLDER_BYTES,
             state->checkpoint.folder);
    return turns;
}

typedef tutti_status_t clock_act_t(turns_t *, act_t *, seconds_t *);

static tutti_status_t take_turns(turns_t *turns, const char *what, int rounds, act_t *const acts[2],
                                 clock_act_t *clock)
{
    const bool has_limit = acts[1] != NULL;
    seconds_t took[2];
    for (int round = -1; round < rounds; round++) { /* the first one warms up */
        for (int i = 0; i < 1 + has_limit; i++) {
            TUTTI_CHECK(clock(turns, acts[i], &took[i]));
        }
        if (round >= 0) {
            print_round(turns, what, has_limit, took);
        }
    }
    return TUTTI_OK;
}

tutti_status_t bench_save(const state_t *state, int rounds, bool has_limit)
{
    turns_t turns = begin(state, false);
    act_t *const acts[] = {save_ours, has_limit ? save_limit : NULL};
    TUTTI_CHECK(save_ours(&turns));
    return take_turns(&turns, "save", rounds, acts, clock_save);
}

tutti_status_t bench_load(const state_t *state, int rounds, bool has_limit, bool is_cold)
{
    turns_t turns = begin(state, is_cold);
    act_t *const acts[] = {load_ours, has_limit ? load_limit : NULL};
    TUTTI_CHECK(save_ours(&turns));
    return take_turns(&turns, is_cold ? "cold" : "load", rounds, acts, clock_load);
}
