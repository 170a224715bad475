/* Calls move the versions of the tensors that they write on this rank, of no other ones, and before
 * they return: every row of group_calls.def, started and prepared, with lists apart and side by
 * side; scaled and coalesced calls, and messages together. */
#include "core/base/testing.h"

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/prepared.h>

#include "comm/group/group_team.h"
#include "core/tensor/tensor_impl.h"

enum { RANKS = 2, ROOT = 1, PART = 2, WHOLE = RANKS * PART };

/* What a call is given. */
typedef struct {
    bool is_root;
    tutti_tensor_t *x;                                /* [WHOLE], in place */
    tutti_tensor_t *in_part, *in_whole;               /* [PART], [WHOLE] */
    tutti_tensor_t *out_part, *out_whole;             /* the same */
    tutti_tensor_t *in_list[RANKS], *out_list[RANKS]; /* of [PART] */
    tutti_tensor_t *memory[2];                        /* of lists side by side */
    tutti_contributions_t leaves;                     /* one of each rank: in_whole */
    int other;                                        /* the other rank */
    tutti_prepared_t *prepared;
} given_t;

/* What of it a call writes. */
enum { NOTHING = 0, IN_PLACE = 1, OUT_PART = 2, OUT_WHOLE = 4, OUT_LIST = 8, KINDS = 16 };

static const int64_t counts[RANKS] = {PART, PART};
static const tutti_reduce_options_t to_root = {.root = ROOT};

/* For each row of group_calls.def: its arguments, then what ranks 0 and 1 write. */
#define GIVEN_all_reduce (g->x, TUTTI_SUM), IN_PLACE, IN_PLACE
#define GIVEN_all_reduce_with (g->x, TUTTI_SUM, NULL), IN_PLACE, IN_PLACE
#define GIVEN_reduce (g->x, TUTTI_SUM, ROOT), NOTHING, IN_PLACE
#define GIVEN_reduce_with (g->x, TUTTI_SUM, &to_root), NOTHING, IN_PLACE
#define GIVEN_scan (g->x, TUTTI_SUM), IN_PLACE, IN_PLACE
#define GIVEN_scan_with (g->x, TUTTI_SUM, NULL), IN_PLACE, IN_PLACE
#define GIVEN_exscan (g->x, TUTTI_SUM), IN_PLACE, IN_PLACE
#define GIVEN_exscan_with (g->x, TUTTI_SUM, NULL), IN_PLACE, IN_PLACE
#define GIVEN_broadcast (g->x, ROOT), IN_PLACE, NOTHING
#define GIVEN_reduce_scatter (g->out_part, g->in_whole, TUTTI_SUM), OUT_PART, OUT_PART
#define GIVEN_reduce_scatter_with (g->out_part, g->in_whole, TUTTI_SUM, NULL), OUT_PART, OUT_PART
#define GIVEN_reduce_scatter_uneven                                                                \
    (g->out_part, g->in_whole, counts, TUTTI_SUM), OUT_PART, OUT_PART
#define GIVEN_reduce_scatter_list (g->out_part, g->in_list, TUTTI_SUM), OUT_PART, OUT_PART
#define GIVEN_all_gather (g->out_whole, g->in_part), OUT_WHOLE, OUT_WHOLE
#define GIVEN_all_gather_uneven (g->out_whole, g->in_part, counts), OUT_WHOLE, OUT_WHOLE
#define GIVEN_all_gather_list (g->out_list, g->in_part), OUT_LIST, OUT_LIST
#define GIVEN_gather (g->is_root ? g->out_whole : NULL, g->in_part, ROOT), NOTHING, OUT_WHOLE
#define GIVEN_gather_uneven                                                                        \
    (g->is_root ? g->out_whole : NULL, g->in_part, counts, ROOT), NOTHING, OUT_WHOLE
#define GIVEN_gather_list (g->is_root ? g->out_list : NULL, g->in_part, ROOT), NOTHING, OUT_LIST
#define GIVEN_scatter (g->out_part, g->is_root ? g->in_whole : NULL, ROOT), OUT_PART, OUT_PART
#define GIVEN_scatter_uneven                                                                       \
    (g->out_part, g->is_root ? g->in_whole : NULL, counts, ROOT), OUT_PART, OUT_PART
#define GIVEN_scatter_list (g->out_part, g->is_root ? g->in_list : NULL, ROOT), OUT_PART, OUT_PART
#define GIVEN_all_to_all (g->out_whole, g->in_whole), OUT_WHOLE, OUT_WHOLE
#define GIVEN_all_to_all_uneven (g->out_whole, counts, g->in_whole, counts), OUT_WHOLE, OUT_WHOLE
#define GIVEN_all_to_all_list (g->out_list, g->in_list), OUT_LIST, OUT_LIST
#define GIVEN_all_reduce_contributions (&g->leaves, g->x, TUTTI_SUM), IN_PLACE, IN_PLACE
#define GIVEN_reduce_scatter_contributions (&g->leaves, g->out_part, TUTTI_SUM), OUT_PART, OUT_PART
#define GIVEN_reduce_scatter_contributions_uneven                                                  \
    (&g->leaves, g->out_part, counts, TUTTI_SUM), OUT_PART, OUT_PART
#define GIVEN_send (g->in_whole, g->other, 0), NOTHING, NOTHING
#define GIVEN_recv (g->x, g->other, 0), IN_PLACE, IN_PLACE

#define UNPACKED(...) __VA_ARGS__
#define ARGUMENTS_OF(arguments, ...) UNPACKED arguments
#define WRITES_OF(arguments, ...)                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define APPLY(macro, ...) macro(__VA_ARGS__)

#define X(name, ...)                                                                               \
    static tutti_status_t call_##name(tutti_group_t *group, given_t *g)                            \
    {                                                                                              \
        return tutti_##name(group, APPLY(ARGUMENTS_OF, GIVEN_##name), NULL);                       \
    }                                                                                              \
    static tutti_status_t prepare_##name(tutti_group_t *group, given_t *g)                         \
    {                                                                                              \
        return tutti_prepare_##name(group, APPLY(ARGUMENTS_OF, GIVEN_##name), &g->prepared);       \
    }
#include "comm/group/group_calls.def"
#undef X

static const struct {
    const char *name;
    tutti_status_t (*call)(tutti_group_t *group, given_t *g);
    tutti_status_t (*prepare)(tutti_group_t *group, given_t *g);
    unsigned writes[RANKS];
} calls[] = {
#define X(name, ...) {#name, call_##name, prepare_##name, APPLY(WRITES_OF, GIVEN_##name)},
#include "comm/group/group_calls.def"
#undef X
};

/* ---- what is given --------------------------------------------------------------------------- */

static tutti_tensor_t *make(tt_member_t *m, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static void make_list(tt_member_t *m, bool is_adjacent, tutti_tensor_t **memory,
                      tutti_tensor_t **list)
{
    *memory = make(m, WHOLE);
    for (int i = 0; i < RANKS; i++) {
        float *data = tutti_tensor_data(*memory);
        if (!is_adjacent) {
            list[i] = make(m, PART);
        } else {
            TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(PART), data + (size_t)i * PART,
                                           &list[i]) == TUTTI_OK);
        }
    }
}

static given_t give(tt_member_t *m, bool is_adjacent)
{
    given_t g = {.is_root = m->rank == ROOT,
                 .x = make(m, WHOLE),
                 .in_part = make(m, PART),
                 .in_whole = make(m, WHOLE),
                 .out_part = make(m, PART),
                 .out_whole = make(m, WHOLE)};
    make_list(m, is_adjacent, &g.memory[0], g.in_list);
    make_list(m, is_adjacent, &g.memory[1], g.out_list);
    return g;
}

static void release(given_t *g)
{
    tutti_tensor_t *const all[] = {g->x,           g->in_part,    g->in_whole,   g->out_part,
                                   g->out_whole,   g->in_list[0], g->in_list[1], g->out_list[0],
                                   g->out_list[1], g->memory[0],  g->memory[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tutti_tensor_release(all[i]);
    }
}

static uint32_t version(const tutti_tensor_t *x)
{
    return x->storage->version;
}

/* What has been written since all versions were 0, which they are again then; KINDS: a tensor that
 * is only read, or one of a list alone. */
static unsigned look(given_t *g)
{
    const bool one = version(g->out_list[0]) > 0, other = version(g->out_list[1]) > 0;
    const uint32_t read = version(g->in_part) + version(g->in_whole) + version(g->in_list[0]) +
                          version(g->in_list[1]);
    const unsigned seen = (version(g->x) > 0 ? IN_PLACE : 0u) |
                          (version(g->out_part) > 0 ? OUT_PART : 0u) |
                          (version(g->out_whole) > 0 ? OUT_WHOLE : 0u) | (one ? OUT_LIST : 0u) |
                          (read > 0 || one != other ? KINDS : 0u);
    tutti_tensor_t *const all[] = {g->x,          g->in_part,     g->in_whole,
                                   g->out_part,   g->out_whole,   g->in_list[0],
                                   g->in_list[1], g->out_list[0], g->out_list[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i]->storage->version = 0;
    }
    return seen;
}

static void expect_writes(tt_member_t *m, given_t *g, const char *name, unsigned wanted)
{
    const unsigned seen = look(g);
    if (seen != wanted && m->failure[0] == 0) {
        snprintf(m->failure, sizeof m->failure, "rank %d: %s moved versions %#x, not %#x", m->rank,
                 name, seen, wanted);
    }
}

/* ---- rows, each alone ------------------------------------------------------------------------ */

static void call_all(tt_member_t *m)
{
    given_t g = give(m, *(const bool *)m->user);
    g.other = 1 - m->rank;
    g.leaves = (tutti_contributions_t){
        .count = RANKS, .pieces = &g.in_whole, .piece_count = 1, .dtype = TUTTI_F32};
    (void)look(&g);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const unsigned wanted = calls[i].writes[m->rank];
        TT_EXPECT(m, calls[i].call(m->group, &g) == TUTTI_OK);
        expect_writes(m, &g, calls[i].name, wanted);
        TT_EXPECT(m, calls[i].prepare(m->group, &g) == TUTTI_OK);
        expect_writes(m, &g, calls[i].name, NOTHING);
        for (int k = 0; k < 2; k++) {
            tutti_work_t *work = NULL;
            TT_EXPECT(m, tutti_prepared_start(g.prepared, &work) == TUTTI_OK);
            expect_writes(m, &g, calls[i].name, wanted);
            TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
            tutti_work_release(work);
        }
        tutti_prepared_release(g.prepared);
        (void)look(&g); /* what came with the end of a call is no matter */
    }
    release(&g);
}

static void a_call_moves_the_versions_of_what_it_writes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool is_adjacent = i == 1;
        tt_team_expect(RANKS, 20000, call_all, &is_adjacent);
    }
}

static void scale_and_coalesce(tt_member_t *m)
{
    const double factor = 2;
    const tutti_reduce_options_t scaled = {.factor = &factor};
    given_t g = give(m, false);
    (void)look(&g);
    TT_EXPECT(m, tutti_all_reduce_with(m->group, g.x, TUTTI_PREMUL_SUM, &scaled, NULL) == TUTTI_OK);
    expect_writes(m, &g, "scaled", IN_PLACE);
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, g.x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, g.out_part, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_gather(m->group, g.out_whole, g.in_part, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK);
    expect_writes(m, &g, "coalesced", IN_PLACE | OUT_PART | OUT_WHOLE);
    release(&g);
}

static void scaled_and_coalesced_calls_do_too(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 20000, scale_and_coalesce, NULL);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void exchange(tt_member_t *m)
{
    const int other = 1 - m->rank;
    given_t g = give(m, false);
    (void)look(&g);
    const tutti_transfer_t both[] = {{TUTTI_SEND, g.in_part, other, 1},
                                     {TUTTI_RECV, g.out_part, other, 1}};
    TT_EXPECT(m, tutti_batch_send_recv(m->group, both, 2, NULL) == TUTTI_OK);
    expect_writes(m, &g, "batch_send_recv", OUT_PART);
    tutti_prepared_t *pair[2];
    TT_EXPECT(m, tutti_prepare_send(m->group, g.in_whole, other, 2, &pair[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_recv(m->group, g.out_whole, other, 2, &pair[1]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start_all(pair, 2, NULL) == TUTTI_OK);
    expect_writes(m, &g, "prepared messages", OUT_WHOLE);
    tutti_prepared_release(pair[0]);
    tutti_prepared_release(pair[1]);
    release(&g);
}

static void messages_together_move_the_version_of_what_receives(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 20000, exchange, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_moves_the_versions_of_what_it_writes),
        cmocka_unit_test(scaled_and_coalesced_calls_do_too),
        cmocka_unit_test(messages_together_move_the_version_of_what_receives),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
