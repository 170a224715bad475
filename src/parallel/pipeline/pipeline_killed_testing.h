/* Ranks that are processes, of which one dies in the middle of an action. For *_test.c only.
 *
 *     tt_death_t death = {.ranks = 3, .victim = 1, .action = 'F', .be_rank = be_rank};
 *     tt_kill_one(&death);      // all others say where they were; prints when the last one knew
 *
 * be_rank() joins the others by tt_killed_join(), arms the victim with tt_die_in_module() or
 * tt_die_at_weight(), and trains; death->step is the step under way.
 */
#ifndef TT_PIPELINE_KILLED_TESTING_H
#define TT_PIPELINE_KILLED_TESTING_H

#include "core/base/testing.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "core/base/clock.h"
#include "core/base/fail.h"

enum { TT_KILLED_RANKS_MAX = 8, TT_KILLED_STEPS = 8, TT_KILLED_STEP = 2, TT_KILLED_GUARD_S = 60 };

/* In memory that all ranks have. */
typedef struct {
    _Atomic int64_t killed_ns, told_ns[TT_KILLED_RANKS_MAX];
    int status[TT_KILLED_RANKS_MAX];
    char errors[TT_KILLED_RANKS_MAX][1024];
} tt_killed_report_t;

/* Who dies, and where. */
typedef struct tt_death {
    int ranks, victim;
    char action;              /* 'F', 'B' (or I), 'W', 'S': a step of a weight, 'V': behind all */
    bool is_async, validates; /* the schedule; steps before all gradients are known */
    int micro_batch;          /* the how manyeth of step TT_KILLED_STEP */
    tutti_status_t (*be_rank)(struct tt_death *death, int rank);
    /* Whether it is in order that a rank says this, which names no action; NULL: never. */
    bool (*excuses)(const struct tt_death *death, const char *said);

    int step, seen;
    tt_killed_report_t *report;
    char store[40];
} tt_death_t;

static inline void tt_die(tt_death_t *death)
{
    if (death->step == TT_KILLED_STEP && death->seen++ == death->micro_batch) {
        atomic_store(&death->report->killed_ns, tt_clock_ns());
        (void)kill(getpid(), SIGKILL);
    }
}

/* A module's hook, before forward or backward. */
static inline tutti_status_t tt_die_in_module(tutti_scope_t *s, tutti_module_call_t *call,
                                              void *death)
{
    (void)s, (void)call;
    tt_die(death);
    return TUTTI_OK;
}

/* Of tutti_tensor_on_accumulate(). */
static inline void tt_die_at_weight(tutti_scope_t *s, tutti_tensor_t *leaf, void *death)
{
    (void)s, (void)leaf;
    tt_die(death);
}

static inline tutti_status_t tt_killed_join(const tt_death_t *death, int rank,
                                            tutti_group_t **world)
{
    tutti_init_options_t options = {.rank = rank, .world_size = death->ranks};
    TT_TRY(tutti_store_file_open(death->store, &options.store));
    return tutti_init(&options, world);
}

static inline void tt_killed_start(tt_death_t *death, int rank)
{
    tt_killed_report_t *report = death->report;
    alarm(TT_KILLED_GUARD_S);
    report->status[rank] = death->be_rank(death, rank);
    atomic_store(&report->told_ns[rank], tt_clock_ns());
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    _exit(1); /* without a goodbye */
}

static inline void tt_killed_run(tt_death_t *death)
{
    pid_t children[TT_KILLED_RANKS_MAX];
    int ended[TT_KILLED_RANKS_MAX];
    for (int rank = 0; rank < death->ranks; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            tt_killed_start(death, rank);
        }
    }
    for (int rank = 0; rank < death->ranks; rank++) {
        assert_int_equal(waitpid(children[rank], &ended[rank], 0), children[rank]);
    }
    for (int rank = 0; rank < death->ranks; rank++) {
        const bool is_killed = WIFSIGNALED(ended[rank]) && WTERMSIG(ended[rank]) == SIGKILL;
        if (rank == death->victim ? !is_killed : !WIFEXITED(ended[rank])) {
            fail_msg("rank %d was to die in %c %d; rank %d ended with %d: %s", death->victim,
                     death->action, death->micro_batch, rank, ended[rank],
                     death->report->errors[rank]);
        }
    }
}

static inline void tt_killed_expect_place(const tt_death_t *death, int rank)
{
    char here[64];
    const char *said = death->report->errors[rank];
    const int status = death->report->status[rank];
    snprintf(here, sizeof here, "pipeline: rank %d, step %d, ", rank, TT_KILLED_STEP);
    const bool names_place = strncmp(said, here, strlen(here)) == 0 &&
                             strstr(said, " of stage ") != NULL &&
                             strstr(said, "micro-batch ") != NULL;
    if ((status != TUTTI_ERR_PEER && status != TUTTI_ERR_ABORTED) ||
        (!names_place && (death->excuses == NULL || !death->excuses(death, said)))) {
        fail_msg("rank %d died in %c %d; rank %d says (%d): %s", death->victim, death->action,
                 death->micro_batch, rank, status, said);
    }
}

static inline void tt_killed_expect_told(const tt_death_t *death)
{
    const tt_killed_report_t *report = death->report;
    int64_t last_ns = 0;
    int last = 0;
    for (int rank = 0; rank < death->ranks; rank++) {
        if (rank != death->victim) {
            const int64_t told_ns = report->told_ns[rank] - report->killed_ns;
            tt_killed_expect_place(death, rank);
            last = told_ns > last_ns ? rank : last;
            last_ns = told_ns > last_ns ? told_ns : last_ns;
        }
    }
    print_message("rank %d died in %c %d: all knew after %.1f ms, last rank %d: %s\n",
                  death->victim, death->action, death->micro_batch, (double)last_ns * 1e-6, last,
                  report->errors[last]);
    assert_true(last_ns < 20 * TT_NS_PER_S);
}

static inline void tt_kill_one(tt_death_t *death)
{
    tt_killed_report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    death->report = report;
    snprintf(death->store, sizeof death->store, "/tmp/tutti_pipeline_killed_XXXXXX");
    const int fd = mkstemp(death->store);
    assert_true(fd >= 0);
    close(fd);
    tt_killed_run(death);
    unlink(death->store);
    tt_killed_expect_told(death);
    munmap(report, sizeof *report);
}

#endif
