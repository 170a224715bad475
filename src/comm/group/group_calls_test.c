/* What the calls of a group refuse, and that it harms nothing; lists without copies; coalesced
 * calls; works of several messages; limits of bytes. That they compute the right thing is
 * tests/conform/backend_conform_test.c. */
#include "core/base/testing.h"

#include <stdlib.h>

#include <tutti/messages.h>
#include <tutti/objects.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

static void run_team(int size, void (*body)(tt_member_t *))
{
    tt_team_expect(size, 20000, body, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *make(tt_member_t *m, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, dtype, shape, &x) == TUTTI_OK);
    return x;
}

/* The call fails with this status and a text that has this part. */
#define REFUSED(member, call, status, part)                                                        \
    do {                                                                                           \
        TT_EXPECT(member, (call) == (status));                                                     \
        TT_EXPECT(member, strstr(tutti_last_error(), part) != NULL);                               \
    } while (0)

static void wrong_sizes(tt_member_t *m)
{
    tutti_group_t *g = m->group;
    tutti_tensor_t *six = make(m, TUTTI_F32, TUTTI_SHAPE(3, 2));
    tutti_tensor_t *two = make(m, TUTTI_F32, TUTTI_SHAPE(1, 2));
    tutti_tensor_t *one = make(m, TUTTI_F32, TUTTI_SHAPE(1));
    tutti_tensor_t *whole = make(m, TUTTI_I32, TUTTI_SHAPE(2));
    tutti_tensor_t *scalar = make(m, TUTTI_F32, TUTTI_SCALAR);
    const int64_t counts[] = {1, 2}, negative[] = {-1, 3}, many[] = {9, 2};
    REFUSED(m, tutti_all_gather(g, six, two, NULL), TUTTI_ERR_SHAPE,
            "output f32[3, 2] must have 2 times the elements of input f32[1, 2]");
    REFUSED(m, tutti_reduce_scatter(g, two, six, TUTTI_SUM, NULL), TUTTI_ERR_SHAPE,
            "input f32[3, 2] must have 2 times the elements of output");
    REFUSED(m, tutti_all_gather(g, whole, one, NULL), TUTTI_ERR_DTYPE, "have one dtype");
    REFUSED(m, tutti_all_to_all(g, one, one, NULL), TUTTI_ERR_SHAPE, "divisible by 2 ranks");
    REFUSED(m, tutti_all_gather_uneven(g, six, six, counts, NULL), TUTTI_ERR_SHAPE,
            "as the counts say of this rank");
    REFUSED(m, tutti_all_gather_uneven(g, two, m->rank == 0 ? two : six, counts, NULL),
            TUTTI_ERR_SHAPE, m->rank == 0 ? "as the counts are together" : "input f32[3, 2]");
    REFUSED(m, tutti_all_gather_uneven(g, six, one, counts, NULL), TUTTI_ERR_SHAPE, "rows of");
    REFUSED(m, tutti_all_gather_uneven(g, six, scalar, counts, NULL), TUTTI_ERR_SHAPE, "scalar");
    REFUSED(m, tutti_all_gather_uneven(g, six, two, negative, NULL), TUTTI_ERR_ARG,
            "counts[0] of input is -1");
    REFUSED(m, tutti_all_gather_uneven(g, six, two, NULL, NULL), TUTTI_ERR_ARG, "counts are NULL");
    REFUSED(m, tutti_all_to_all_uneven(g, six, counts, six, many, NULL), TUTTI_ERR_SHAPE,
            "11 rows");
    tutti_tensor_release(six);
    tutti_tensor_release(two);
    tutti_tensor_release(one);
    tutti_tensor_release(whole);
    tutti_tensor_release(scalar);
    TT_EXPECT(m, tutti_barrier(g, NULL) == TUTTI_OK);
}

/* Rank 0 gives rank 1 two rows, of which rank 1 wants some other number. */
static void give_two_rows(tt_member_t *m)
{
    const int64_t wants = *(const int64_t *)m->user;
    const int64_t gives[] = {1, m->rank == 0 ? 2 : 1}, takes[] = {m->rank == 0 ? 1 : wants, 1};
    tutti_tensor_t *in = make(m, TUTTI_F32, TUTTI_SHAPE(gives[0] + gives[1]));
    tutti_tensor_t *out = make(m, TUTTI_F32, TUTTI_SHAPE(takes[0] + takes[1]));
    const tutti_status_t status = tutti_all_to_all_uneven(m->group, out, takes, in, gives, NULL);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH);
    const bool has_heard = strstr(tutti_last_error(), "rank 1 gave the group up") != NULL;
    TT_EXPECT(m,
              (m->rank == 0 && has_heard) ||
                  strstr(tutti_last_error(), "rank 0 gives rank 1 2 elements, but rank 1 wants"));
    tutti_tensor_release(in);
    tutti_tensor_release(out);
}

static void uneven_parts_that_differ_are_told(void **state)
{
    (void)state;
    for (int64_t wants = 3; wants >= 0; wants -= wants == 3 ? 2 : 1) {
        tt_team_expect(2, 20000, give_two_rows, &wants);
        assert_int_equal(tt_alloc_stats().blocks, 0);
    }
}

static void wrong_roots_and_tensors(tt_member_t *m)
{
    tutti_group_t *g = m->group;
    tutti_tensor_t *x = make(m, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_tensor_t *y = make(m, TUTTI_BOOL, TUTTI_SHAPE(4));
    REFUSED(m, tutti_reduce(g, x, TUTTI_SUM, 2, NULL), TUTTI_ERR_ARG,
            "reduce: root 2 is outside group world of 2");
    REFUSED(m, tutti_broadcast(g, x, -1, NULL), TUTTI_ERR_ARG, "root -1");
    REFUSED(m, tutti_reduce(g, NULL, TUTTI_SUM, 0, NULL), TUTTI_ERR_ARG, "reduce: x is NULL");
    REFUSED(m, tutti_all_gather(g, NULL, x, NULL), TUTTI_ERR_ARG, "all_gather: output is NULL");
    REFUSED(m, tutti_gather(g, m->rank == 0 ? NULL : x, x, 0, NULL), TUTTI_ERR_ARG,
            m->rank == 0 ? "gather: output is NULL" : "output is for root 0 alone; rank 1 passes");
    REFUSED(m, tutti_all_gather_list(g, NULL, x, NULL), TUTTI_ERR_ARG, "outputs is NULL");
    REFUSED(m, tutti_all_gather_list(g, (tutti_tensor_t *[]){x, NULL}, x, NULL), TUTTI_ERR_ARG,
            "outputs[1] is NULL");
    REFUSED(m, tutti_all_gather_list(g, (tutti_tensor_t *[]){x, y}, x, NULL), TUTTI_ERR_DTYPE,
            "outputs[1] is bool[4]");
    REFUSED(m, tutti_all_reduce(g, y, TUTTI_SUM, NULL), TUTTI_ERR_DTYPE, "sum of bool");
    REFUSED(m, tutti_all_gather(g, x, x, NULL), TUTTI_ERR_SHAPE, "2 times");
    REFUSED(m, tutti_all_to_all(g, x, x, NULL), TUTTI_ERR_ARG, "input and output overlap");
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    TT_EXPECT(m, tutti_barrier(g, NULL) == TUTTI_OK);
}

static void wrong_factors(tt_member_t *m)
{
    tutti_group_t *g = m->group;
    const double factor = 2;
    const tutti_reduce_options_t options = {.factor = &factor};
    tutti_tensor_t *x = make(m, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_tensor_t *y = make(m, TUTTI_I32, TUTTI_SHAPE(4));
    REFUSED(m, tutti_all_reduce(g, x, TUTTI_PREMUL_SUM, NULL), TUTTI_ERR_ARG,
            "tutti_all_reduce_with");
    REFUSED(m, tutti_all_reduce_with(g, x, TUTTI_PREMUL_SUM, NULL, NULL), TUTTI_ERR_ARG,
            "needs a factor");
    REFUSED(m, tutti_all_reduce_with(g, x, TUTTI_MAX, &options, NULL), TUTTI_ERR_ARG,
            "not with max");
    REFUSED(m, tutti_all_reduce_with(g, y, TUTTI_PREMUL_SUM, &options, NULL), TUTTI_ERR_DTYPE,
            "premul_sum of i32");
    TT_EXPECT(m, tutti_tensor_fill(x, 3) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce_with(g, x, TUTTI_SUM, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 3) == 6);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void wrong_messages(tt_member_t *m)
{
    tutti_group_t *g = m->group;
    tutti_tensor_t *x = make(m, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_work_t *work;
    REFUSED(m, tutti_send(g, x, m->rank, 0, NULL), TUTTI_ERR_ARG, "this rank itself");
    REFUSED(m, tutti_send(g, x, 2, 0, NULL), TUTTI_ERR_ARG, "send: rank 2 is outside");
    REFUSED(m, tutti_send(g, x, TUTTI_ANY_RANK, 0, NULL), TUTTI_ERR_ARG, "rank -1 is outside");
    REFUSED(m, tutti_send(g, x, 1 - m->rank, -1, NULL), TUTTI_ERR_ARG, "tag -1; want 0 or more");
    REFUSED(m, tutti_recv(g, x, 1 - m->rank, -2, NULL), TUTTI_ERR_ARG, "or TUTTI_ANY_TAG");
    REFUSED(m, tutti_recv(g, NULL, 1 - m->rank, 0, NULL), TUTTI_ERR_ARG, "recv: x is NULL");
    const tutti_transfer_t bad[] = {{TUTTI_SEND, x, 1 - m->rank, 0}, {TUTTI_RECV, x, 5, 0}};
    REFUSED(m, tutti_batch_send_recv(g, bad, 2, &work), TUTTI_ERR_ARG,
            "batch_send_recv: transfer 1: recv: rank 5");
    TT_EXPECT(m, tutti_batch_send_recv(g, NULL, 0, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(g, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

static tutti_tensor_t *view(tt_member_t *m, tutti_tensor_t *x, int64_t begin, int64_t count)
{
    tutti_tensor_t *part = NULL;
    float *data = tutti_tensor_data(x);
    TT_EXPECT(m, tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(count), data + begin, &part) == TUTTI_OK);
    return part;
}

/* Outputs among themselves; a result and the pieces of leaves. Inputs may share memory. */
static void overlapping_lists(tt_member_t *m)
{
    tutti_group_t *g = m->group;
    char want[80];
    tutti_tensor_t *all = make(m, TUTTI_F32, TUTTI_SHAPE(12));
    tutti_tensor_t *in = make(m, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_tensor_t *low = view(m, all, 0, 4), *mid = view(m, all, 3, 4), *high = view(m, all, 4, 4);
    snprintf(want, sizeof want, "outputs[0] and outputs[1] of rank %d overlap", m->rank);
    REFUSED(m, tutti_all_gather_list(g, (tutti_tensor_t *[]){low, mid}, in, NULL), TUTTI_ERR_ARG,
            want);
    REFUSED(m, tutti_all_gather_list(g, (tutti_tensor_t *[]){mid, low}, in, NULL), TUTTI_ERR_ARG,
            want);
    REFUSED(m,
            tutti_all_to_all_list(g, (tutti_tensor_t *[]){in, in}, (tutti_tensor_t *[]){low, high},
                                  NULL),
            TUTTI_ERR_ARG, want);
    TT_EXPECT(m, tutti_all_to_all_list(g, (tutti_tensor_t *[]){high, low},
                                       (tutti_tensor_t *[]){in, in}, NULL) == TUTTI_OK);
    tutti_contributions_t leaves = {
        .count = 2, .pieces = &low, .piece_count = 1, .dtype = TUTTI_F32};
    snprintf(want, sizeof want, "the result of rank %d overlaps pieces[0]; it may be the whole",
             m->rank);
    REFUSED(m, tutti_all_reduce_contributions(g, &leaves, mid, TUTTI_SUM, NULL), TUTTI_ERR_ARG,
            want);
    tutti_tensor_t *whole = view(m, all, 0, 8);
    leaves.pieces = &whole;
    snprintf(want, sizeof want, "the result of rank %d overlaps pieces[0]; it may be this rank's",
             m->rank);
    REFUSED(
        m,
        tutti_reduce_scatter_contributions(g, &leaves, m->rank == 0 ? high : low, TUTTI_SUM, NULL),
        TUTTI_ERR_ARG, want);
    TT_EXPECT(m, tutti_reduce_scatter_contributions(g, &leaves, m->rank == 0 ? low : high,
                                                    TUTTI_SUM, NULL) == TUTTI_OK);
    tutti_tensor_t *const made[] = {whole, low, mid, high, in, all};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        tutti_tensor_release(made[i]);
    }
}

/* Every piece is the result's own memory. */
static void leaves_of_one_tensor(tt_member_t *m)
{
    enum { LEAVES = 5 };
    tutti_tensor_t *x = make(m, TUTTI_F32, TUTTI_SHAPE(5000)),
                   *pieces[TUTTI_CONTRIBUTION_PIECES_MAX];
    int counts[2];
    for (int i = 0; i < 2; i++) {
        counts[i] = tutti_contribution_pieces(LEAVES, LEAVES * i / 2, LEAVES * (i + 1) / 2, NULL);
    }
    for (int i = 0; i < counts[m->rank]; i++) {
        pieces[i] = x;
    }
    const tutti_contributions_t leaves = {
        .count = LEAVES, .pieces = pieces, .piece_count = counts[m->rank], .dtype = TUTTI_F32};
    TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce_contributions(m->group, &leaves, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 0) == counts[0] + counts[1]);
    TT_EXPECT(m, tutti_tensor_at(x, 4999) == counts[0] + counts[1]);
    tutti_tensor_release(x);
}

static void misuse_is_refused_and_harms_nothing(void **state)
{
    (void)state;
    run_team(2, wrong_sizes);
    run_team(2, wrong_roots_and_tensors);
    run_team(2, wrong_factors);
    run_team(2, wrong_messages);
    run_team(2, overlapping_lists);
    run_team(2, leaves_of_one_tensor);
}

/* ---- in place, and side by side ---- */

static void side_by_side(tt_member_t *m)
{
    tutti_tensor_t *all = make(m, TUTTI_F32, TUTTI_SHAPE(4000)), *parts[2];
    parts[0] = view(m, all, 0, 1000);
    parts[1] = view(m, all, 1000, 3000);
    TT_EXPECT(m, tutti_tensor_fill(parts[m->rank], 5 + m->rank) == TUTTI_OK);
    /* its own part of the whole is its input: in place */
    TT_EXPECT(m, tutti_all_gather_list(m->group, parts, parts[m->rank], NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(all, 999) == 5 && tutti_tensor_at(all, 1000) == 6);
    /* nothing was packed: the pack that holds the tensors has no memory */
    TT_EXPECT(m, m->group->free_packs != NULL && m->group->free_packs->bytes == 0);
    tutti_tensor_t *turned[2] = {parts[1], parts[0]}; /* not in order: packed */
    tutti_tensor_t *mine = make(m, TUTTI_F32, TUTTI_SHAPE(m->rank == 0 ? 3000 : 1000));
    TT_EXPECT(m, tutti_tensor_fill(mine, 8 + m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_gather_list(m->group, turned, mine, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(all, 999) == 9 && tutti_tensor_at(all, 1000) == 8);
    TT_EXPECT(m, m->group->free_packs->bytes >= 16000);
    for (int i = 0; i < 2; i++) {
        tutti_tensor_release(parts[i]);
    }
    tutti_tensor_release(mine);
    tutti_tensor_release(all);
}

static void lists_that_lie_side_by_side_are_not_copied(void **state)
{
    (void)state;
    run_team(2, side_by_side);
}

static void in_place(tt_member_t *m)
{
    tutti_tensor_t *all = make(m, TUTTI_F32, TUTTI_SHAPE(300));
    tutti_tensor_t *mine = view(m, all, 100 * m->rank, 100);
    tutti_tensor_t *crooked = view(m, all, 100 * m->rank + (m->rank == 2 ? -1 : 1), 100);
    TT_EXPECT(m, tutti_tensor_fill(mine, m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_gather(m->group, all, mine, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(all, 50) == 0 && tutti_tensor_at(all, 250) == 2);
    TT_EXPECT(m, tutti_reduce_scatter(m->group, mine, all, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(mine, 99) == 3 * m->rank);
    REFUSED(m, tutti_all_gather(m->group, all, crooked, NULL), TUTTI_ERR_ARG,
            "overlap, but not at this rank's part");
    tutti_tensor_release(crooked);
    tutti_tensor_release(mine);
    tutti_tensor_release(all);
}

static void a_part_may_lie_in_its_whole(void **state)
{
    (void)state;
    run_team(3, in_place);
}

/* ---- coalesced calls ---- */

static void coalesce(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_work_t *work;
    tutti_group_t *none;
    tutti_buffer_t buffer;
    REFUSED(m, tutti_coalesce_end(m->group, NULL), TUTTI_ERR_STATE, "has not begun");
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    REFUSED(m, tutti_coalesce_begin(m->group), TUTTI_ERR_STATE, "coalesce_end first");
    REFUSED(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work), TUTTI_ERR_STATE, "pass NULL");
    REFUSED(m, tutti_group_new(m->group, NULL, 0, NULL, &none), TUTTI_ERR_STATE, "coalesced");
    REFUSED(m, tutti_monitored_barrier(m->group, 0), TUTTI_ERR_STATE, "coalesced");
    REFUSED(m, tutti_all_gather_bytes(m->group, tutti_text("a"), &buffer), TUTTI_ERR_STATE,
            "coalesced");
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK); /* nothing is fine */
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    REFUSED(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL), TUTTI_ERR_ARG,
            "x, f32[4], overlaps f32[4] of call 1 before it, with which it is fused");
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_MAX, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_broadcast(m->group, x, 0, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_coalesce_end(m->group, &work) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK && tutti_work_is_done(work));
    TT_EXPECT(m, tutti_work_source(work) == -1 && tutti_work_error(work)[0] == 0);
    tutti_work_release(work);
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK); /* and dropped with the group */
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

static void coalescing_has_a_beginning_and_an_end(void **state)
{
    (void)state;
    run_team(2, coalesce);
}

static void fuse(tt_member_t *m)
{
    tutti_tensor_t *x[30];
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    for (int i = 0; i < 30; i++) {
        x[i] = make(m, TUTTI_F32, TUTTI_SHAPE(i));
        TT_EXPECT(m, tutti_tensor_fill(x[i], i + m->rank) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x[i], TUTTI_SUM, NULL) == TUTTI_OK);
    }
    tutti_work_t *work;
    TT_EXPECT(m, tutti_coalesce_end(m->group, &work) == TUTTI_OK);
    TT_EXPECT(m, work->part_count == 1); /* one call */
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    tutti_work_release(work);
    for (int i = 0; i < 30; i++) {
        TT_EXPECT(m, i == 0 || tutti_tensor_at(x[i], i - 1) == 3 * i + 3);
        tutti_tensor_release(x[i]);
    }
}

static void small_all_reduces_are_fused_into_one(void **state)
{
    (void)state;
    run_team(3, fuse);
}

/* ---- works of messages ---- */

static void hear_from_anybody(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_I64, TUTTI_SHAPE(1));
    tutti_work_t *work;
    if (m->rank == 2) {
        TT_EXPECT(m, tutti_recv(m->group, x, TUTTI_ANY_RANK, 6, &work) == TUTTI_OK);
        TT_EXPECT(m, !tutti_work_is_done(work) && tutti_work_source(work) == -1);
        TT_EXPECT(m, tutti_work_wait(work, 20) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_source(work) == 1 && tutti_work_tag(work) == 6);
        TT_EXPECT(m, tutti_tensor_at(x, 0) == 77);
        tutti_work_release(work);
    } else {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        if (m->rank == 1) {
            TT_EXPECT(m, tutti_tensor_fill(x, 77) == TUTTI_OK);
            TT_EXPECT(m, tutti_send(m->group, x, 2, 6, NULL) == TUTTI_OK);
        }
    }
    tutti_tensor_release(x);
}

static void a_receive_tells_who_sent_and_with_which_tag(void **state)
{
    (void)state;
    run_team(3, hear_from_anybody);
}

/* ---- bytes ---- */

static void too_long(tt_member_t *m)
{
    char bytes[100] = "x";
    tutti_buffer_t out[2] = {{0}}, one = {0};
    const tutti_bytes_t all = {bytes, m->rank == 0 ? 90 : 20}, some = {bytes, 10};
    REFUSED(m, tutti_broadcast_bytes(m->group, (tutti_bytes_t){bytes, 101}, 0, &one),
            TUTTI_ERR_NOMEM, "101 bytes are more than the 100 that TUTTI_OBJECT_BYTES_MAX");
    REFUSED(m, tutti_all_gather_bytes(m->group, all, out), TUTTI_ERR_NOMEM, "110 bytes");
    REFUSED(m, tutti_gather_bytes(m->group, all, 0, m->rank == 0 ? NULL : out), TUTTI_ERR_ARG,
            "root 0 passes buffers");
    REFUSED(m, tutti_send_bytes(m->group, (tutti_bytes_t){NULL, 3}, 1 - m->rank, 0), TUTTI_ERR_ARG,
            "NULL of 3 bytes");
    TT_EXPECT(m, out[0].data == NULL && one.data == NULL);
    TT_EXPECT(m, tutti_all_gather_bytes(m->group, some, out) == TUTTI_OK); /* it goes on */
    TT_EXPECT(m, out[1].bytes == 10 && strcmp(out[1].data, "x") == 0);
    tutti_buffer_release(&out[0]);
    tutti_buffer_release(&out[1]);
}

static void what_is_too_long_is_refused_by_all_before_memory_is_taken(void **state)
{
    (void)state;
    setenv("TUTTI_OBJECT_BYTES_MAX", "100", 1);
    run_team(2, too_long);
    unsetenv("TUTTI_OBJECT_BYTES_MAX");
}

/* ---- the steady state ---- */

static void repeat(tt_member_t *m)
{
    tutti_tensor_t *parts[2], *x = make(m, TUTTI_F32, TUTTI_SHAPE(700));
    const double factor = 0.5;
    const tutti_reduce_options_t options = {.factor = &factor};
    size_t allocations = 0;
    for (int i = 0; i < 2; i++) {
        parts[i] = make(m, TUTTI_F32, TUTTI_SHAPE(700));
    }
    for (int i = 0; i < 60; i++) {
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        if (i == 20) {
            allocations = tt_alloc_stats().allocations;
        }
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_gather_list(m->group, parts, x, NULL) == TUTTI_OK);
        TT_EXPECT(m,
                  tutti_all_reduce_with(m->group, x, TUTTI_PREMUL_SUM, &options, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_alloc_stats().allocations == allocations);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_tensor_release(parts[0]);
    tutti_tensor_release(parts[1]);
    tutti_tensor_release(x);
}

static void packs_are_kept_and_used_again(void **state)
{
    (void)state;
    run_team(2, repeat);
}

/* ---- allocations that fail ---- */

static tutti_status_t call_everything(tutti_group_t *world, tutti_tensor_t *x, tutti_tensor_t *y)
{
    const double factor = 2;
    const int64_t count = 8;
    const tutti_reduce_options_t options = {.factor = &factor};
    tutti_buffer_t bytes = {0};
    tutti_group_t *group;
    TUTTI_CHECK(tutti_group_split(world, 0, 0, &group));
    tutti_status_t status = tutti_all_gather_list(group, &y, x, NULL);
    status = status < 0 ? status : tutti_all_gather_uneven(group, y, x, &count, NULL);
    status =
        status < 0 ? status : tutti_all_reduce_with(group, x, TUTTI_PREMUL_SUM, &options, NULL);
    status = status < 0 ? status : tutti_all_gather_bytes(group, tutti_text("a"), &bytes);
    tutti_buffer_release(&bytes);
    status = status < 0 ? status : tutti_broadcast_bytes(group, tutti_text("b"), 0, &bytes);
    tutti_buffer_release(&bytes);
    status = status < 0 ? status : tutti_coalesce_begin(group);
    if (status >= 0) {
        const tutti_status_t first = tutti_all_reduce(group, x, TUTTI_SUM, NULL);
        const tutti_status_t second = tutti_all_gather(group, y, y, NULL);
        const tutti_status_t end = tutti_coalesce_end(group, NULL);
        status = first < 0 ? first : second < 0 ? second : end;
    }
    tutti_group_release(group);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    tutti_group_t *world;
    tutti_tensor_t *x, *y;
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(8), &x), TUTTI_OK);
    assert_int_equal(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(8), &y), TUTTI_OK);
    size_t failures = 0;
    for (size_t nth = 1;; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = call_everything(world, x, y);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        if (!has_failed) {
            assert_int_equal(status, TUTTI_OK);
            break;
        }
        failures += status == TUTTI_ERR_NOMEM;
    }
    assert_true(failures > 15);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_group_release(world);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_refused_and_harms_nothing),
        cmocka_unit_test(uneven_parts_that_differ_are_told),
        cmocka_unit_test(lists_that_lie_side_by_side_are_not_copied),
        cmocka_unit_test(a_part_may_lie_in_its_whole),
        cmocka_unit_test(coalescing_has_a_beginning_and_an_end),
        cmocka_unit_test(small_all_reduces_are_fused_into_one),
        cmocka_unit_test(a_receive_tells_who_sent_and_with_which_tag),
        cmocka_unit_test(what_is_too_long_is_refused_by_all_before_memory_is_taken),
        cmocka_unit_test(packs_are_kept_and_used_again),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
