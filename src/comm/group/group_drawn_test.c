/* Sequences of small calls drawn at random, of all collectives, of any root, with delays of any
 * rank, bring what they should. Calls that are queued, large or of another group come in between.
 * More ranks than two, as threads; they are told that each has a core of its own, so that small
 * calls are carried out on the spot (coll_small.c) on small machines, too.
 */
#include <sched.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/testing.h"

enum {
    TIMEOUT_MS = 20000,
    KINDS = 4, /* of calls in a phase: fewer than are remembered */
    PHASES = 6,
    CALLS = 60,
    COUNT_MAX = 40, /* of a part: what goes around in flag lines, and a little more */
    LARGE = 3000,
    RANKS_MAX = 5,
    TENSOR = LARGE * RANKS_MAX
};

typedef struct {
    tt_member_t *member;
    uint64_t shared, own; /* random numbers, the same on all ranks and not */
    tutti_group_t *other; /* of all ranks, too */
    tutti_tensor_t *input, *output;
    int64_t turn;
    int small; /* calls that were known to be small, at the ends of phases */
} player_t;

/* A call as all ranks make it. */
typedef struct {
    tt_collective_t collective;
    tutti_reduction_t op;
    int root;
    int64_t count;
} kind_t;

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

static kind_t draw_kind(player_t *p, int size)
{
    static const tutti_reduction_t ops[] = {TUTTI_SUM, TUTTI_MAX, TUTTI_AVG};
    const kind_t kind = {.collective = (tt_collective_t)draw(&p->shared, TT_COLLECTIVE_COUNT),
                         .op = ops[draw(&p->shared, 3)],
                         .root = (int)draw(&p->shared, (uint32_t)size),
                         .count = draw(&p->shared, COUNT_MAX)};
    return kind;
}

typedef struct {
    kind_t kind;
    int64_t number, in_count, out_count;
    tutti_tensor_t *in, *out;
} turn_t;

/* ---- what is given, and what is wanted ------------------------------------------------------- */

/* Small integers, so that sums are exact; of each rank, call and place. */
static float value_of(int rank, int64_t turn, int64_t i)
{
    return (float)((rank * 31 + turn * 17 + i * 5) % 97);
}

/* Over the first `size` ranks. */
static float combined(const kind_t *kind, int size, int64_t turn, int64_t i)
{
    float sum = 0, greatest = 0;
    for (int rank = 0; rank < size; rank++) {
        const float value = value_of(rank, turn, i);
        sum += value;
        greatest = value > greatest ? value : greatest;
    }
    return kind->op == TUTTI_MAX ? greatest : kind->op == TUTTI_AVG ? sum / (float)size : sum;
}

/* At `i` of this rank's output. */
static float wanted(const tt_member_t *m, const turn_t *t, int64_t i)
{
    const kind_t *kind = &t->kind;
    const int64_t count = kind->count, own = m->rank * count;
    const int peer = (int)(i / count);
    switch (kind->collective) {
    case TT_BROADCAST:
        return value_of(kind->root, t->number, i);
    case TT_ALL_GATHER:
    case TT_GATHER:
        return value_of(peer, t->number, i % count);
    case TT_SCATTER:
        return value_of(kind->root, t->number, own + i);
    case TT_ALL_TO_ALL:
        return value_of(peer, t->number, own + i % count);
    case TT_SCAN:
        return combined(kind, m->rank + 1, t->number, i);
    case TT_EXSCAN: /* rank 0 keeps its own */
        return combined(kind, m->rank > 0 ? m->rank : 1, t->number, i);
    case TT_REDUCE_SCATTER:
        return combined(kind, m->size, t->number, own + i);
    default:
        return combined(kind, m->size, t->number, i);
    }
}

static bool has_all(const kind_t *kind, bool is_output)
{
    const tt_collective_t c = kind->collective;
    return c == TT_ALL_TO_ALL || (is_output ? c == TT_ALL_GATHER || c == TT_GATHER
                                            : c == TT_SCATTER || c == TT_REDUCE_SCATTER);
}

static bool is_in_place(const kind_t *kind)
{
    return kind->collective == TT_ALL_REDUCE || kind->collective == TT_BROADCAST ||
           kind->collective == TT_REDUCE || tt_collective_is_prefix(kind->collective);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static tutti_tensor_t *cut(tt_member_t *m, tutti_tensor_t *whole, int64_t begin, int64_t count)
{
    tutti_tensor_t *part = NULL;
    float *data = tutti_tensor_data(whole);
    TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(count), data + begin, &part) == TUTTI_OK);
    return part;
}

static tutti_status_t start(const turn_t *t, tutti_group_t *group, tutti_work_t **work)
{
    const kind_t *kind = &t->kind;
    const bool is_root = tutti_group_rank(group) == kind->root;
    switch (kind->collective) {
    case TT_ALL_REDUCE:
        return tutti_all_reduce(group, t->out, kind->op, work);
    case TT_BROADCAST:
        return tutti_broadcast(group, t->out, kind->root, work);
    case TT_REDUCE:
        return tutti_reduce(group, t->out, kind->op, kind->root, work);
    case TT_SCAN:
        return tutti_scan(group, t->out, kind->op, work);
    case TT_EXSCAN:
        return tutti_exscan(group, t->out, kind->op, work);
    case TT_REDUCE_SCATTER:
        return tutti_reduce_scatter(group, t->out, t->in, kind->op, work);
    case TT_ALL_GATHER:
        return tutti_all_gather(group, t->out, t->in, work);
    case TT_GATHER:
        return tutti_gather(group, is_root ? t->out : NULL, t->in, kind->root, work);
    case TT_SCATTER:
        return tutti_scatter(group, t->out, is_root ? t->in : NULL, kind->root, work);
    case TT_ALL_TO_ALL:
        return tutti_all_to_all(group, t->out, t->in, work);
    default:
        return tutti_barrier(group, work);
    }
}

/* Input and output with what is given in them; now and then one is a part of the other. */
static void set_up(player_t *p, turn_t *t)
{
    tt_member_t *m = p->member;
    const bool has_all_in = has_all(&t->kind, false), has_all_out = has_all(&t->kind, true);
    const int64_t count = t->kind.count, own = m->rank * count;
    const bool is_inside =
        (t->kind.collective == TT_ALL_GATHER || t->kind.collective == TT_REDUCE_SCATTER) &&
        t->number % 3 == 0;
    const bool in_is_part = is_inside && has_all_out, out_is_part = is_inside && has_all_in;
    t->in_count = count * (has_all_in ? m->size : 1);
    t->out_count = count * (has_all_out ? m->size : 1);
    t->in = cut(m, in_is_part ? p->output : p->input, in_is_part ? own : 0, t->in_count);
    t->out = cut(m, out_is_part ? p->input : p->output, out_is_part ? own : 0, t->out_count);
    float *in = tutti_tensor_data(t->in), *out = tutti_tensor_data(t->out);
    for (int64_t i = 0; i < t->out_count; i++) {
        out[i] = is_in_place(&t->kind) ? value_of(m->rank, t->number, i) : -1;
    }
    for (int64_t i = 0; i < t->in_count; i++) {
        in[i] = value_of(m->rank, t->number, i);
    }
}

static void dawdle(player_t *p)
{
    if (draw(&p->own, 24) == 0) {
        usleep(draw(&p->own, 150));
    } else if (draw(&p->own, 8) == 0) {
        sched_yield();
    }
}

static void check(tt_member_t *m, const turn_t *t)
{
    const tt_collective_t collective = t->kind.collective;
    const float *out = tutti_tensor_data(t->out);
    if (collective == TT_BARRIER ||
        (m->rank != t->kind.root && (collective == TT_REDUCE || collective == TT_GATHER))) {
        return;
    }
    for (int64_t i = 0; i < t->out_count; i++) {
        TT_EXPECT(m, out[i] == wanted(m, t, i));
    }
}

/* All of it is the caller's again, who may write something else there at once. */
static void spoil(turn_t *t)
{
    float *in = tutti_tensor_data(t->in), *out = tutti_tensor_data(t->out);
    for (int64_t i = 0; i < t->in_count; i++) {
        in[i] = -2;
    }
    for (int64_t i = 0; i < t->out_count; i++) {
        out[i] = -3;
    }
    tutti_tensor_release(t->in);
    tutti_tensor_release(t->out);
}

/* A call, waited for at once, or queued with another one behind it. */
static void play(player_t *p, const kind_t *kind, tutti_group_t *group, bool is_queued)
{
    tt_member_t *m = p->member;
    tutti_work_t *work = NULL;
    turn_t turn = {.kind = *kind, .number = p->turn++};
    set_up(p, &turn);
    dawdle(p);
    TT_EXPECT(m, start(&turn, group, is_queued ? &work : NULL) == TUTTI_OK);
    if (work != NULL) {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
    }
    check(m, &turn);
    spoil(&turn);
}

static int count_small(const tt_coll_t *coll)
{
    int found = 0;
    for (int i = 0; i < TT_PREPARED_SETS * TT_PREPARED_WAYS; i++) {
        const tt_prepared_t *at =
            coll->prepared.entries[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS];
        found += at != NULL && at->is_small;
    }
    return found;
}

/* Some calls in some order, again and again, and now and then one of another sort. */
static void play_phase(player_t *p)
{
    kind_t kinds[KINDS];
    for (int i = 0; i < KINDS; i++) {
        kinds[i] = draw_kind(p, p->member->size);
    }
    for (int i = 0; i < CALLS; i++) {
        kind_t kind = kinds[draw(&p->shared, KINDS)];
        const uint32_t sort = draw(&p->shared, 40);
        tutti_group_t *group = sort == 0 ? p->other : p->member->group;
        kind.count = sort == 1 ? LARGE : kind.count;
        play(p, &kind, group, sort == 2);
    }
    p->small += count_small(tt_native_coll(p->member->group->state));
}

static void play_all(tt_member_t *m)
{
    const uint64_t seed = *(const uint64_t *)m->user;
    player_t p = {.member = m, .shared = seed, .own = seed * 7919 + (uint64_t)m->rank};
    int ranks[RANKS_MAX];
    for (int i = 0; i < m->size; i++) {
        ranks[i] = i;
    }
    tt_node_peers_set_oversubscribed(tt_native_coll(m->group->state)->node_peers, false);
    TT_EXPECT(m, tutti_group_new(m->group, ranks, m->size, NULL, &p.other) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(TENSOR), &p.input) == 0);
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(TENSOR), &p.output) == 0);
    for (int i = 0; i < PHASES && m->failure[0] == 0; i++) {
        play_phase(&p);
    }
    TT_EXPECT(m, p.small >= PHASES);
    tutti_tensor_release(p.input);
    tutti_tensor_release(p.output);
    tutti_group_release(p.other);
}

static void calls_drawn_at_random_bring_what_they_should(void **state)
{
    (void)state;
    for (int size = 3; size <= RANKS_MAX; size++) {
        uint64_t seed = (uint64_t)size;
        tt_team_expect(size, TIMEOUT_MS, play_all, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_drawn_at_random_bring_what_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
