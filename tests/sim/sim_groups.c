/* Random lives of groups on simulated ranks: groups are made, called in, aborted, left; who
 * sees a failure shrinks the whole to the survivors and goes on where the furthest of them was.
 *
 * What must be true: a call gives the right result or an error, and ends by its deadline; ranks
 * that talk to each other are in the same epoch of the same group; one epoch has one set of
 * members, on all that get there; what can do no harm does none, and then nobody is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "core/base/clock.h"
#include "sim.h"
#include "sim_calls.h"

enum {
    STEPS = 6,
    COUNT = 5,
    NOTES = 4,
    EPOCHS_MAX = 64,
    TIMEOUT_MS = 2000,
    SHRINK_MS = 3000,
    PROMPT_MS = 500,
    SHRINKS_MAX = 6,
    TRIES_MAX = 3,
    ATTEMPTS_MAX = 4, /* of a shrink */
    SLACK_MS = 6000,
    TEXT_BYTES = 900,
    FAULT_WITHIN_NS = 30000000
};

typedef enum { CALL, SPLIT, PART, MEET, ABORT, LEAVE, KINDS } kind_t;

/* The same for all ranks. */
typedef struct {
    kind_t kind;
    int colours, rank; /* who aborts or leaves */
    uint64_t ranks;    /* of a part */
} step_t;

typedef struct {
    sim_t *sim;
    uint64_t seed;
    step_t steps[STEPS];
    char failure[TEXT_BYTES];     /* the first thing that is not as it must be */
    uint64_t members[EPOCHS_MAX]; /* ranks of the whole, of each epoch that somebody has seen */
    uint64_t left;                /* ranks that have left as they should */
} world_t;

typedef struct {
    world_t *world;
    int rank, step;
    tutti_group_t *origin, *whole; /* the world, and what is left of it */
} member_t;

static const char *const kind_names[KINDS] = {"call", "split", "part", "meet", "abort", "leave"};

static void note(const member_t *m, const char *what)
{
    world_t *world = m->world;
    if (world->failure[0] == 0) {
        snprintf(world->failure, sizeof world->failure,
                 "groups, seed %llu, rank %d of %d, step %d (%s), fault %d: %s",
                 (unsigned long long)world->seed, m->rank, world->sim->size, m->step,
                 m->step < STEPS ? kind_names[world->steps[m->step].kind] : "end",
                 world->sim->fault, what);
    }
}

/* Nobody may notice more than a delay. */
static bool is_harmless(const sim_t *sim)
{
    const bool is_short = sim->fault_end_ns - sim->fault_ns < TIMEOUT_MS / 4 * TT_NS_PER_MS;
    return sim->fault == SIM_NO_FAULT || sim->fault == SIM_SLOW ||
           ((sim->fault == SIM_PAUSE || sim->fault == SIM_STORE_PAUSE) && is_short);
}

static void check_time(const member_t *m, const char *call, int64_t start_ns, int64_t limit_ms)
{
    const sim_t *sim = m->world->sim;
    const bool slept = sim->fault == SIM_PAUSE && m->rank == sim->victim;
    const int64_t pause_ns = slept ? sim->fault_end_ns - sim->fault_ns : 0;
    const int64_t took_ms = (tt_clock_ns() - start_ns - pause_ns) / TT_NS_PER_MS;
    if (took_ms > limit_ms) {
        char text[TEXT_BYTES];
        snprintf(text, sizeof text,
                 "%s outlived its deadline: %lld ms, want %lld; last error: %.400s", call,
                 (long long)took_ms, (long long)limit_ms, tutti_last_error());
        note(m, text);
    }
}

/* Where nothing is late, ranks that leave and abort tell the others at once. */
static void check_prompt(const member_t *m, const char *call, int64_t start_ns)
{
    if (m->world->sim->fault == SIM_NO_FAULT) {
        check_time(m, call, start_ns, PROMPT_MS);
    }
}

static uint64_t members_of(const member_t *m, const tutti_group_t *group)
{
    uint64_t ranks = 0;
    for (int i = 0; i < tutti_group_size(group); i++) {
        ranks |= UINT64_C(1) << tutti_group_translate(group, i, m->origin);
    }
    return ranks;
}

/* ---- calls in a group ------------------------------------------------------------------------ */

static int64_t hash_name(const char *name)
{
    uint64_t hash = 5381;
    for (; *name != 0; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return (int64_t)hash;
}

static tutti_status_t gather(tutti_group_t *group, int64_t *mine, int64_t *all)
{
    tutti_tensor_t *in, *out;
    TT_TRY(tutti_tensor_wrap(TUTTI_I64, TUTTI_SHAPE(NOTES), mine, &in));
    TT_TRY(tutti_tensor_wrap(TUTTI_I64, TUTTI_SHAPE(NOTES * tutti_group_size(group)), all, &out));
    const tutti_status_t status = tutti_all_gather(group, out, in, NULL);
    tutti_tensor_release(in);
    tutti_tensor_release(out);
    return status;
}

/* Who is here, in which epoch of which group, at which step? *latest is the furthest step. */
static tutti_status_t compare_notes(const member_t *m, tutti_group_t *group, int *latest)
{
    int64_t mine[NOTES] = {m->rank, tutti_group_epoch(group), hash_name(tutti_group_name(group)),
                           m->step};
    int64_t all[SIM_RANKS_MAX * NOTES];
    TT_TRY(gather(group, mine, all));
    *latest = 0;
    for (int i = 0; i < tutti_group_size(group); i++) {
        const int64_t *one = all + (ptrdiff_t)i * NOTES;
        if (one[0] != tutti_group_translate(group, i, m->origin)) {
            note(m, "a rank is another than it was thought to be");
        }
        if (one[1] != mine[1] || one[2] != mine[2]) {
            note(m, "ranks of two epochs have talked to each other");
        }
        *latest = one[3] > *latest ? (int)one[3] : *latest;
    }
    return TUTTI_OK;
}

static int64_t value_of(int rank, int i)
{
    return (int64_t)rank * rank * 1000 + (int64_t)i * 7 + 1;
}

static tutti_status_t sum_up(const member_t *m, tutti_group_t *group)
{
    int64_t x[COUNT];
    tutti_tensor_t *tensor;
    for (int i = 0; i < COUNT; i++) {
        x[i] = value_of(m->rank, i);
    }
    TT_TRY(tutti_tensor_wrap(TUTTI_I64, TUTTI_SHAPE(COUNT), x, &tensor));
    const tutti_status_t status = tutti_all_reduce(group, tensor, TUTTI_SUM, NULL);
    tutti_tensor_release(tensor);
    TT_TRY(status);
    for (int i = 0; i < COUNT; i++) {
        int64_t sum = 0;
        for (int rank = 0; rank < tutti_group_size(group); rank++) {
            sum += value_of(tutti_group_translate(group, rank, m->origin), i);
        }
        if (x[i] != sum) {
            note(m, "a wrong sum");
        }
    }
    return TUTTI_OK;
}

static tutti_status_t call(const member_t *m, tutti_group_t *group)
{
    int latest = m->step;
    int64_t start_ns = tt_clock_ns();
    tutti_status_t status = compare_notes(m, group, &latest);
    check_time(m, "all_gather", start_ns, TIMEOUT_MS + SLACK_MS);
    TT_TRY(status);
    if (latest != m->step) {
        note(m, "ranks are at different steps of a group");
    }
    start_ns = tt_clock_ns();
    status = sum_up(m, group);
    check_time(m, "all_reduce", start_ns, TIMEOUT_MS + SLACK_MS);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static tutti_status_t use_and_release(const member_t *m, tutti_group_t *group)
{
    const tutti_status_t status = call(m, group);
    tutti_group_release(group);
    return status;
}

static tutti_status_t split(const member_t *m, const step_t *step)
{
    tutti_group_t *part;
    const int64_t start_ns = tt_clock_ns();
    const int colour = m->rank % step->colours;
    const tutti_status_t status = tutti_group_split(m->whole, colour, -m->rank, &part);
    check_time(m, "split", start_ns, 3 * TIMEOUT_MS + SLACK_MS);
    TT_TRY(status);
    for (int i = 1; i < tutti_group_size(part); i++) {
        const int rank = tutti_group_translate(part, i, m->origin);
        const int before = tutti_group_translate(part, i - 1, m->origin);
        if (rank > before || rank % step->colours != colour) {
            note(m, "a split of other ranks, or in another order");
        }
    }
    return use_and_release(m, part);
}

static tutti_status_t take_part(const member_t *m, const step_t *step)
{
    int ranks[SIM_RANKS_MAX], count = 0;
    for (int i = 0; i < tutti_group_size(m->whole); i++) {
        if (step->ranks >> tutti_group_translate(m->whole, i, m->origin) & 1) {
            ranks[count++] = i;
        }
    }
    if (count == 0) {
        return TUTTI_OK;
    }
    tutti_group_t *part;
    const int64_t start_ns = tt_clock_ns();
    const tutti_status_t status = tutti_group_new(m->whole, ranks, count, NULL, &part);
    check_time(m, "group_new", start_ns, 2 * TIMEOUT_MS + SLACK_MS);
    TT_TRY(status);
    if ((status == TUTTI_NONMEMBER) == (step->ranks >> m->rank & 1)) {
        note(m, "a member is none, or the other way round");
    }
    return status == TUTTI_NONMEMBER ? TUTTI_OK : use_and_release(m, part);
}

static tutti_status_t meet(const member_t *m)
{
    const int64_t start_ns = tt_clock_ns();
    const tutti_status_t status = tutti_monitored_barrier(m->whole, TIMEOUT_MS);
    check_time(m, "monitored_barrier", start_ns, 2 * TIMEOUT_MS + SLACK_MS);
    return status;
}

static bool is_here(const member_t *m, int rank)
{
    return members_of(m, m->whole) >> rank & 1;
}

/* One of the others aborts the group or leaves it: the call cannot succeed, nor wait for long. */
static tutti_status_t miss_one(const member_t *m, const step_t *step)
{
    const int64_t start_ns = tt_clock_ns();
    const tutti_status_t status = call(m, m->whole);
    check_prompt(m, "a call that somebody else gave up", start_ns);
    if (is_here(m, step->rank) && status >= 0) {
        note(m, "a call succeeded without one of its ranks");
    }
    return status;
}

/* END: this rank has left. */
static tutti_status_t take_step(const member_t *m)
{
    const step_t *step = &m->world->steps[m->step];
    switch (step->kind) {
    case SPLIT:
        return split(m, step);
    case PART:
        return take_part(m, step);
    case MEET:
        return meet(m);
    case ABORT:
        if (m->rank == step->rank) {
            tutti_group_abort(m->whole);
            return TUTTI_ERR_ABORTED;
        }
        return miss_one(m, step);
    case LEAVE:
        if (m->rank == step->rank) {
            m->world->left |= UINT64_C(1) << m->rank;
            return TUTTI_END;
        }
        return miss_one(m, step);
    default:
        return call(m, m->whole);
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

static void check_members(const member_t *m, const tutti_group_t *group)
{
    const uint32_t epoch = tutti_group_epoch(group);
    const uint64_t members = members_of(m, group);
    world_t *world = m->world;
    if (epoch >= EPOCHS_MAX || epoch <= tutti_group_epoch(m->whole)) {
        note(m, "an epoch that is none of the next");
    } else if (world->members[epoch] != 0 && world->members[epoch] != members) {
        char text[160];
        snprintf(text, sizeof text, "epoch %u has members %llx here and %llx elsewhere", epoch,
                 (unsigned long long)members, (unsigned long long)world->members[epoch]);
        note(m, text);
    } else {
        world->members[epoch] = members;
    }
    const uint64_t all = members_of(m, m->origin);
    if (is_harmless(world->sim) && members != (all & ~world->left)) {
        note(m, "a rank was lost without need");
    }
}

/* The whole without those that are gone. False: not with this rank. */
static bool shrink(member_t *m)
{
    const tutti_shrink_options_t options = {.timeout_ms = SHRINK_MS};
    for (int i = 0; i < TRIES_MAX; i++) {
        tutti_group_t *rest;
        const int64_t start_ns = tt_clock_ns();
        const tutti_status_t status = tutti_group_shrink(m->whole, &options, &rest);
        check_time(m, "shrink", start_ns, (int64_t)ATTEMPTS_MAX * 2 * SHRINK_MS + SLACK_MS);
        check_prompt(m, "shrink", start_ns);
        if (status >= 0) {
            check_members(m, rest);
            tutti_group_release(m->whole);
            m->whole = rest;
            return true;
        }
        if (is_harmless(m->world->sim)) {
            note(m, tutti_last_error());
        }
        if (strstr(tutti_last_error(), "came too late") != NULL) {
            return false;
        }
    }
    return false;
}

static bool is_lossy(const member_t *m, int index)
{
    const step_t *step = &m->world->steps[index];
    return (step->kind == ABORT || step->kind == LEAVE) && is_here(m, step->rank);
}

/* Calls may fail where a rank gives the group up; and before that, when a rank that is further on
 * aborts it already. */
static void note_failure(const member_t *m, tutti_status_t status)
{
    bool may_fail = !is_harmless(m->world->sim) || (m->step < STEPS && is_lossy(m, m->step));
    for (int i = m->step; i < STEPS && status == TUTTI_ERR_ABORTED; i++) {
        may_fail = may_fail || is_lossy(m, i);
    }
    if (!may_fail) {
        note(m, tutti_last_error());
    }
}

/* Shrink until the rest can agree on where they are. */
static bool recover(member_t *m)
{
    for (int i = 0; i < SHRINKS_MAX; i++) {
        int latest;
        if (!shrink(m)) {
            return false;
        }
        const tutti_status_t status = compare_notes(m, m->whole, &latest);
        if (status >= 0) {
            m->step = latest;
            return true;
        }
        note_failure(m, status);
    }
    return false;
}

static void run_steps(member_t *m)
{
    for (; m->step < STEPS; m->step++) {
        const tutti_status_t status = take_step(m);
        if (status == TUTTI_END) {
            return;
        }
        if (status < 0) {
            note_failure(m, status);
        }
        if (status < 0 && !recover(m)) {
            return;
        }
    }
}

static tutti_status_t join(member_t *m, sim_rank_t *self)
{
    tt_peers_t *peers;
    tutti_store_t *store;
    const int size = m->world->sim->size;
    TT_TRY(sim_open_store(self, &store));
    tutti_status_t status = tt_peers_simulate(m->rank, size, &self->hooks, &peers);
    if (status >= 0) {
        const int64_t start_ns = tt_clock_ns();
        status = tt_group_create(&(tt_group_options_t){.name = "world",
                                                       .rank = m->rank,
                                                       .size = size,
                                                       .store = store,
                                                       .timeout_ms = TIMEOUT_MS,
                                                       .peers = peers},
                                 &m->origin);
        check_time(m, "joining", start_ns, TIMEOUT_MS + SLACK_MS);
        tt_peers_release(peers);
    }
    tutti_store_release(store);
    return status;
}

static void live(sim_t *sim, int rank, void *user)
{
    member_t m = {.world = user, .rank = rank};
    if (join(&m, &sim->ranks[rank]) < 0) {
        if (is_harmless(sim)) {
            note(&m, tutti_last_error());
        }
        return;
    }
    m.whole = tutti_group_retain(m.origin);
    run_steps(&m);
    tutti_group_release(m.whole);
    tutti_group_release(m.origin);
}

static void draw_steps(sim_t *sim, world_t *world, int size)
{
    for (int i = 0; i < STEPS; i++) {
        world->steps[i] = (step_t){.kind = (kind_t)sim_draw(sim, KINDS),
                                   .colours = 1 + (int)sim_draw(sim, 4),
                                   .rank = (int)sim_draw(sim, (uint64_t)size),
                                   .ranks = sim_draw(sim, UINT64_MAX) | sim_draw(sim, UINT64_MAX)};
    }
}

const char *sim_check_groups(uint64_t seed, uint64_t *trace, char *text, size_t text_bytes)
{
    static world_t world;
    static sim_t sim;
    memset(&world, 0, sizeof world);
    sim = (sim_t){.seed = seed ^ UINT64_C(0x960095)};
    const int size = sim_draw(&sim, 60) == 0 ? SIM_RANKS_MAX : 2 + (int)sim_draw(&sim, 9);
    const sim_fault_t fault = (sim_fault_t)sim_draw(&sim, SIM_FAULTS);
    draw_steps(&sim, &world, size);
    setenv("TUTTI_ALGO", "auto", 1);
    world.sim = &sim;
    world.seed = seed;
    *trace = sim_run(&sim, &(sim_plan_t){.seed = seed,
                                         .size = size,
                                         .fault = fault,
                                         .fault_within_ns = FAULT_WITHIN_NS,
                                         .body = live,
                                         .user = &world});
    snprintf(text, text_bytes, "%s", world.failure);
    return text;
}
