/* Small calls are carried out on the spot if everybody is there (coll_small.c): the values are
 * those of the queue, and what goes wrong after many calls that went well is reported as it is
 * otherwise: ranks that are late, gone, or in another call. Two ranks, which most machines have
 * cores for.
 */
#include <string.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/testing.h"
#include "core/kernel/elementwise/combine.h"

enum { RANKS = 2, WARM = 20, COUNT = 6, LATE_MS = 40, TIMEOUT_MS = 700, CALLS = 12 };

static tutti_tensor_t *make(tt_member_t *m, tutti_dtype_t dtype, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static tt_coll_t *coll_of(const tt_member_t *m)
{
    return tt_native_coll(m->group->state);
}

static bool is_small(const tt_prepared_t *prepared)
{
    return prepared != NULL && prepared->is_small;
}

/* How many kinds of calls may be carried out on the spot; -1 on a machine where none may. */
static int count_small(const tt_member_t *m)
{
    const tt_coll_t *coll = coll_of(m);
    int found = 0;
    for (int i = 0; i < TT_PREPARED_SETS * TT_PREPARED_WAYS; i++) {
        found += is_small(coll->prepared.entries[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS]);
    }
    return coll->local_count < coll->size || tt_node_peers_is_oversubscribed(coll->node_peers)
               ? -1
               : found;
}

/* Whether some calls of this kind may. */
static bool has_small(const tt_member_t *m, tt_collective_t collective)
{
    const tt_coll_t *coll = coll_of(m);
    bool found = count_small(m) < 0;
    for (int i = 0; i < TT_PREPARED_SETS * TT_PREPARED_WAYS; i++) {
        const tt_prepared_t *at =
            coll->prepared.entries[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS];
        found = found || (is_small(at) && at->call.collective == collective);
    }
    return found;
}

static void set(tutti_tensor_t *x, float value)
{
    float *data = tutti_tensor_data(x);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        data[i] = value + (float)i;
    }
}

/* An all_reduce of what rank and `turn` say, checked. */
static void call(tt_member_t *m, tutti_tensor_t *x, int turn)
{
    set(x, (float)(turn * 8 + m->rank));
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    const float *data = tutti_tensor_data(x);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        TT_EXPECT(m, data[i] == (float)(turn * 16 + 1 + 2 * i));
    }
}

static void warm(tt_member_t *m, tutti_tensor_t *x)
{
    for (int i = 0; i < WARM; i++) {
        call(m, x, i);
    }
    TT_EXPECT(m, count_small(m) != 0);
}

static void run_pair(void (*body)(tt_member_t *))
{
    assert_string_equal(tt_team_run(RANKS, TIMEOUT_MS, body, NULL).text, "");
}

/* ---- values ---------------------------------------------------------------------------------- */

/* All calls must give the same bytes, those before which a rank had to wait too. */
static void repeat(tt_member_t *m, tutti_dtype_t dtype, tutti_reduction_t op, int64_t count)
{
    unsigned char first[1024] = {0}, given[1024];
    tutti_tensor_t *x = make(m, dtype, count);
    const size_t bytes = (size_t)count * tutti_dtype_bytes(dtype);
    for (size_t i = 0; i < sizeof given; i++) {
        const size_t mine = i * 37 + (size_t)m->rank * 11;
        given[i] = (unsigned char)(mine & (dtype == TUTTI_BOOL ? 1 : 0x3f));
    }
    for (int i = 0; i < CALLS; i++) {
        memcpy(tutti_tensor_data(x), given, bytes);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, op, NULL) == TUTTI_OK);
        if (i == 0) {
            memcpy(first, tutti_tensor_data(x), bytes);
        }
        TT_EXPECT(m, memcmp(first, tutti_tensor_data(x), bytes) == 0);
    }
    tutti_tensor_release(x);
}

static void repeat_all(tt_member_t *m)
{
    static const int64_t counts[] = {1, 3, 10, 11, 64, 128};
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < TUTTI_REDUCTION_COUNT; op++) {
            if (tt_combine_check("test", (tutti_dtype_t)dtype, (tutti_reduction_t)op) < 0) {
                continue;
            }
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                if (counts[i] % tt_combine_width((tutti_reduction_t)op) == 0) {
                    repeat(m, (tutti_dtype_t)dtype, (tutti_reduction_t)op, counts[i]);
                }
            }
        }
    }
    TT_EXPECT(m, count_small(m) != 0);
}

static void all_dtypes_and_reductions_give_the_same_bits_each_time(void **state)
{
    (void)state;
    run_pair(repeat_all);
}

/* Of both roots, in turns and mixed with sums. */
static void broadcast_often(tt_member_t *m)
{
    static const int64_t counts[] = {1, 2, 3, 16, 63, 64};
    tutti_tensor_t *sum = make(m, TUTTI_F32, COUNT);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        tutti_tensor_t *x = make(m, TUTTI_F32, counts[k]);
        for (int i = 0; i < 4 * CALLS; i++) {
            const int root = i / 8 % 2;
            set(x, (float)(i * 8 + m->rank));
            TT_EXPECT(m, tutti_broadcast(m->group, x, root, NULL) == TUTTI_OK);
            for (int64_t j = 0; j < counts[k]; j++) {
                TT_EXPECT(m, ((float *)tutti_tensor_data(x))[j] == (float)(i * 8 + root + j));
            }
            if (i % 5 == 0) {
                call(m, sum, i);
            }
        }
        tutti_tensor_release(x);
    }
    TT_EXPECT(m, count_small(m) < 0 || count_small(m) > 1);
    tutti_tensor_release(sum);
}

static void broadcasts_bring_what_the_root_has(void **state)
{
    (void)state;
    run_pair(broadcast_often);
}

/* ---- every collective ------------------------------------------------------------------------ */

static float value_of(int rank, int turn, int64_t i)
{
    return (float)(rank * 1000 + turn * 7 + i);
}

/* What `rank` has at `i` after a call of `collective` that was given value_of; -1: nothing. */
static float want_of(tt_collective_t collective, int rank, int root, int turn, int64_t count,
                     int64_t i)
{
    const int part = (int)(i / count);
    const int64_t in_part = i % count, at = rank * count + in_part;
    switch (collective) {
    case TT_ALL_GATHER:
        return value_of(part, turn, in_part);
    case TT_ALL_TO_ALL:
        return value_of(part, turn, at);
    case TT_REDUCE_SCATTER:
        return value_of(0, turn, at) + value_of(1, turn, at);
    case TT_GATHER:
        return rank == root ? value_of(part, turn, in_part) : -1;
    case TT_SCATTER:
        return value_of(root, turn, at);
    default:
        return rank == root ? value_of(0, turn, i) + value_of(1, turn, i) : value_of(rank, turn, i);
    }
}

typedef struct {
    tt_collective_t collective;
    bool is_input_all, is_output_all; /* the parts of all ranks */
    tutti_tensor_t *input, *output;
} kind_t;

static tutti_status_t call_kind(const tt_member_t *m, const kind_t *k, int root)
{
    const bool is_root = m->rank == root;
    switch (k->collective) {
    case TT_ALL_GATHER:
        return tutti_all_gather(m->group, k->output, k->input, NULL);
    case TT_ALL_TO_ALL:
        return tutti_all_to_all(m->group, k->output, k->input, NULL);
    case TT_REDUCE_SCATTER:
        return tutti_reduce_scatter(m->group, k->output, k->input, TUTTI_SUM, NULL);
    case TT_GATHER:
        return tutti_gather(m->group, is_root ? k->output : NULL, k->input, root, NULL);
    case TT_SCATTER:
        return tutti_scatter(m->group, k->output, is_root ? k->input : NULL, root, NULL);
    default:
        return tutti_reduce(m->group, k->output, TUTTI_SUM, root, NULL);
    }
}

static void repeat_kind(tt_member_t *m, kind_t *k, int64_t count)
{
    k->input = make(m, TUTTI_F32, k->is_input_all ? RANKS * count : count);
    k->output = make(m, TUTTI_F32, k->is_output_all ? RANKS * count : count);
    float *given = tutti_tensor_data(k->input), *got = tutti_tensor_data(k->output);
    for (int turn = 0; turn < 3 * CALLS; turn++) {
        const int root = turn / 3 % RANKS;
        for (int64_t i = 0; i < tutti_tensor_numel(k->input); i++) {
            given[i] = value_of(m->rank, turn, i);
        }
        for (int64_t i = 0; i < tutti_tensor_numel(k->output); i++) {
            got[i] = k->collective == TT_REDUCE ? given[i] : -1;
        }
        TT_EXPECT(m, call_kind(m, k, root) == TUTTI_OK);
        for (int64_t i = 0; i < tutti_tensor_numel(k->output); i++) {
            TT_EXPECT(m, got[i] == want_of(k->collective, m->rank, root, turn, count, i));
        }
    }
    tutti_tensor_release(k->output);
    tutti_tensor_release(k->input);
}

static const kind_t kinds[] = {
    {.collective = TT_ALL_GATHER, .is_output_all = true},
    {.collective = TT_ALL_TO_ALL, .is_input_all = true, .is_output_all = true},
    {.collective = TT_REDUCE_SCATTER, .is_input_all = true},
    {.collective = TT_GATHER, .is_output_all = true},
    {.collective = TT_SCATTER, .is_input_all = true},
    {.collective = TT_REDUCE},
};

static void repeat_kinds(tt_member_t *m)
{
    static const int64_t counts[] = {1, 2, 5, 10, 11, 40, 64};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            kind_t kind = kinds[i];
            repeat_kind(m, &kind, counts[j]);
            TT_EXPECT(m, has_small(m, kind.collective));
        }
    }
}

static void every_collective_brings_what_it_should(void **state)
{
    (void)state;
    run_pair(repeat_kinds);
}

/* A rank that has come to a barrier has seen what the other wrote before it. */
static void meet_often(tt_member_t *m)
{
    static _Atomic int written[RANKS];
    atomic_store_explicit(&written[m->rank], -1, memory_order_relaxed);
    for (int i = 0; i < 20 * CALLS; i++) {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        atomic_store_explicit(&written[m->rank], i, memory_order_relaxed);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        TT_EXPECT(m, atomic_load_explicit(&written[1 - m->rank], memory_order_relaxed) == i);
    }
    TT_EXPECT(m, has_small(m, TT_BARRIER));
}

static void barriers_hold_everybody_back(void **state)
{
    (void)state;
    run_pair(meet_often);
}

/* ---- around the cache ------------------------------------------------------------------------ */

enum { LONG = 5003 };

static void set_cache(const tt_member_t *m, size_t bytes)
{
    coll_of(m)->steps.cache_bytes = bytes;
}

/* Where nothing fits the cache, large calls are stored around it; small ones never are. */
static void repeat_around(tt_member_t *m)
{
    set_cache(m, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kind_t kind = kinds[i];
        repeat_kind(m, &kind, LONG);
    }
    tutti_tensor_t *x = make(m, TUTTI_F32, LONG);
    for (int turn = 0; turn < CALLS; turn++) {
        call(m, x, turn);
        set(x, (float)m->rank);
        TT_EXPECT(m, tutti_broadcast(m->group, x, turn % RANKS, NULL) == TUTTI_OK);
        TT_EXPECT(m, ((float *)tutti_tensor_data(x))[LONG - 1] == (float)(turn % RANKS + LONG - 1));
    }
    tutti_tensor_release(x);
}

static void results_around_the_cache_are_the_same(void **state)
{
    (void)state;
    run_pair(repeat_around);
}

/* Other calls in between, under way meanwhile, and of another group. */
static void mix(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT), *big = make(m, TUTTI_F32, 5000);
    tutti_group_t *other = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &other) == TUTTI_OK);
    warm(m, x);
    for (int i = 0; i < CALLS; i++) {
        tutti_work_t *work = NULL;
        tutti_group_t *group = i % 2 != 0 ? other : m->group;
        set(big, (float)m->rank);
        TT_EXPECT(m, tutti_all_reduce(group, big, TUTTI_SUM, &work) == TUTTI_OK);
        call(m, x, i);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
        TT_EXPECT(m, ((const float *)tutti_tensor_data(big))[4999] == 9999);
        tutti_group_set_tag(m->group, (uint64_t)(i % 3));
        call(m, x, i);
    }
    tutti_group_release(other);
    tutti_tensor_release(big);
    tutti_tensor_release(x);
}

static void other_calls_in_between_change_nothing(void **state)
{
    (void)state;
    run_pair(mix);
}

/* ---- trouble --------------------------------------------------------------------------------- */

static void take_turns_being_late(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT);
    warm(m, x);
    for (int i = 0; i < 4; i++) {
        if (m->rank == i % 2) {
            usleep(LATE_MS * 1000);
        }
        call(m, x, i);
        call(m, x, i + 1);
    }
    tutti_tensor_release(x);
}

static void a_rank_may_be_late(void **state)
{
    (void)state;
    run_pair(take_turns_being_late);
}

static void stay_away(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT);
    warm(m, x);
    if (m->rank == 1) {
        tt_member_await(m, 1);
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says("all_reduce #22 f32[6] of group world (group_small_test.c:"));
        TT_EXPECT(m, says("rank 1 never entered it: it "));
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_TIMEOUT);
        tt_member_tell(m);
    }
    tutti_tensor_release(x);
}

static void a_rank_that_never_comes_is_named_at_the_deadline(void **state)
{
    (void)state;
    run_pair(stay_away);
}

static void leave(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT);
    warm(m, x);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_PEER);
        TT_EXPECT(m, says("rank 1"));
    }
    tutti_tensor_release(x);
}

static void a_rank_that_has_left_is_noticed(void **state)
{
    (void)state;
    run_pair(leave);
}

/* Both kinds of calls are warm on both ranks. */
static void disagree(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT);
    warm(m, x);
    for (int i = 0; i < WARM; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_MAX, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, count_small(m) >= 2 || count_small(m) == -1);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, m->rank == 0 ? TUTTI_SUM : TUTTI_MAX, NULL) ==
                     TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, says("passed f32[6] sum") || says("gave the group up"));
    TT_EXPECT(m, says("passed f32[6] max") || says("gave the group up"));
    tutti_tensor_release(x);
}

static void ranks_in_different_calls_are_told_so(void **state)
{
    (void)state;
    run_pair(disagree);
}

/* ---- the recorder ---------------------------------------------------------------------------- */

static void look_at_records(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, COUNT);
    warm(m, x);
    const tt_coll_t *coll = coll_of(m);
    tt_record_t record = tt_records_last_call(&coll->block->records);
    const uint64_t sequence = record.sequence;
    TT_EXPECT(m, record.state == TT_RECORD_DONE && record.collective == TT_ALL_REDUCE);
    TT_EXPECT(m, record.count == COUNT && record.dtype == TUTTI_F32 && record.site != 0);
    if (m->rank == 0) { /* what rank 1 shows of a call that waits */
        usleep(LATE_MS * 1000);
        record = tt_records_last_call(&coll->blocks[1]->records);
        TT_EXPECT(m, record.sequence == sequence + 1 && record.state == TT_RECORD_POSTED);
    }
    call(m, x, 3);
    record = tt_records_last_call(&coll->block->records);
    TT_EXPECT(m, record.sequence == sequence + 1 && record.state == TT_RECORD_DONE);
    tutti_tensor_release(x);
}

static void calls_are_written_down(void **state)
{
    (void)state;
    run_pair(look_at_records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_dtypes_and_reductions_give_the_same_bits_each_time),
        cmocka_unit_test(broadcasts_bring_what_the_root_has),
        cmocka_unit_test(every_collective_brings_what_it_should),
        cmocka_unit_test(barriers_hold_everybody_back),
        cmocka_unit_test(results_around_the_cache_are_the_same),
        cmocka_unit_test(other_calls_in_between_change_nothing),
        cmocka_unit_test(a_rank_may_be_late),
        cmocka_unit_test(a_rank_that_never_comes_is_named_at_the_deadline),
        cmocka_unit_test(a_rank_that_has_left_is_noticed),
        cmocka_unit_test(ranks_in_different_calls_are_told_so),
        cmocka_unit_test(calls_are_written_down),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
