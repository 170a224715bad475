/* Redistribution: every pair of placements, its gradient and the gradient of that, on 1 to 4 ranks,
 * with parts of all sizes. Values are small integers, so that every sum is exact. */
#include "comm/group/group_team.h"

#include <string.h>

#include <tutti/autograd.h>
#include <tutti/context.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/placement.h>

#include "core/tensor/tensor_impl.h"
#include "parallel/placement/cut.h"

enum { DIMS = 3, RANKS_MAX = 4 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_group_t *group;
    tutti_shape_t shape; /* of the whole */
    int leaves;          /* of shards; 0: one for each rank */
} place_t;

static tutti_status_t open_place(tt_member_t *m, place_t *p)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    p->group = m->group;
    TUTTI_CHECK(tutti_context_create(&options, &p->ctx));
    return tutti_scope_open(p->ctx, &p->s);
}

static tutti_status_t close_place(place_t *p)
{
    const tutti_status_t status = tutti_scope_close(p->s);
    tutti_context_release(p->ctx);
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A whole tensor, a function of its name. */
static tutti_tensor_t *numbers(place_t *p, int name)
{
    const int64_t count = tutti_shape_numel(p->shape);
    tutti_tensor_t *x = tutti_zeros(p->s, TUTTI_F32, p->shape);
    for (int64_t i = 0; i < count; i++) {
        ((float *)tutti_tensor_data(x))[i] = (float)((i * 7 + name * 13 + i * i % 5) % 31 - 15);
    }
    return x;
}

/* What the ranks have of the whole when it is partial; and the whole, that is their sum. */
static tutti_tensor_t *summand(place_t *p, int name, int rank)
{
    return numbers(p, name * 10 + rank);
}

static tutti_tensor_t *whole_of(place_t *p, int name, bool is_partial)
{
    tutti_tensor_t *x = is_partial ? summand(p, name, 0) : numbers(p, name);
    for (int rank = 1; is_partial && rank < tutti_group_size(p->group); rank++) {
        x = tutti_add(p->s, x, summand(p, name, rank));
    }
    return x;
}

static tutti_tensor_t *part_of(place_t *p, tutti_tensor_t *whole, const tutti_placement_t *at)
{
    int64_t begin, count;
    if (at->kind != TUTTI_PLACEMENT_SHARD) {
        return whole;
    }
    if (tutti_placement_part(at, p->shape.dims[at->dim], tutti_group_size(p->group),
                             tutti_group_rank(p->group), &begin, &count) < 0) {
        return tutti_scope_fail(p->s, TUTTI_ERR_ARG);
    }
    return tutti_clone(p->s, tutti_narrow(p->s, whole, at->dim, begin, count));
}

/* This rank's of a value that is placed so. */
static tutti_tensor_t *placed(place_t *p, int name, const tutti_placement_t *at)
{
    return at->kind == TUTTI_PLACEMENT_PARTIAL ? summand(p, name, tutti_group_rank(p->group))
                                               : part_of(p, numbers(p, name), at);
}

static void expect_equal(tt_member_t *m, const char *what, const tutti_redistribution_t *how,
                         tutti_tensor_t *got, tutti_tensor_t *want)
{
    char from[40], to[40], grad[40];
    if (m->failure[0] != 0) {
        return;
    }
    if (got != NULL && tutti_shape_equal(tutti_tensor_shape(got), tutti_tensor_shape(want))) {
        int64_t i = 0;
        while (i < got->numel && tutti_tensor_at(got, i) == tutti_tensor_at(want, i)) {
            i++;
        }
        if (i == got->numel) {
            return;
        }
    }
    (void)tutti_placement_describe(&how->from, from, sizeof from);
    (void)tutti_placement_describe(&how->to, to, sizeof to);
    (void)tutti_placement_describe(&how->grad, grad, sizeof grad);
    snprintf(m->failure, sizeof m->failure, "rank %d of %d: %s to %s, gradient %s: %s: %s", m->rank,
             m->size, from, to, grad, what, tutti_last_error());
}

/* ---- a pair ---------------------------------------------------------------------------------- */

static bool is_partial(const tutti_placement_t *p)
{
    return p->kind == TUTTI_PLACEMENT_PARTIAL;
}

static tutti_tensor_t *dot(place_t *p, tutti_tensor_t *a, tutti_tensor_t *b)
{
    return tutti_sum(p->s, tutti_mul(p->s, a, b));
}

/* y as it should be; where it is partial, the sum of all. */
static void check_value(tt_member_t *m, place_t *p, const tutti_redistribution_t *how,
                        tutti_tensor_t *y, tutti_tensor_t *whole)
{
    if (is_partial(&how->to)) {
        y = tutti_clone(p->s, tutti_detach(p->s, y));
        TT_EXPECT(m, tutti_all_reduce(p->group, y, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    expect_equal(m, "value", how, y, part_of(p, whole, &how->to));
}

static tutti_tensor_t *leaf(tutti_tensor_t *x)
{
    (void)tutti_tensor_set_requires_grad(x, true);
    return x;
}

static const tutti_placement_t *grad_of(const tutti_redistribution_t *how)
{
    return how->to.kind == TUTTI_PLACEMENT_SHARD ? &how->to : &how->grad;
}

/* Loss <y, w>; then <its gradient to x, u>. */
static void check_gradients(tt_member_t *m, place_t *p, const tutti_redistribution_t *how,
                            tutti_tensor_t *x, tutti_tensor_t *y)
{
    const tutti_backward_options_t create = {.create_graph = true};
    const tutti_placement_t *grad = grad_of(how);
    tutti_tensor_t *w = leaf(placed(p, 2, grad)), *dx = NULL;
    TT_EXPECT(m, tutti_grad(p->s, dot(p, y, w), &create, &x, 1, &dx) == TUTTI_OK);
    expect_equal(m, "gradient", how, dx, part_of(p, whole_of(p, 2, is_partial(grad)), &how->from));
    tutti_tensor_t *u = part_of(p, numbers(p, 3), &how->from), *dw = NULL;
    TT_EXPECT(m, tutti_grad(p->s, dot(p, dx, u), NULL, &w, 1, &dw) == TUTTI_OK);
    expect_equal(m, "gradient of the gradient", how, dw, part_of(p, numbers(p, 3), grad));
}

static void check_pair(tt_member_t *m, place_t *p, const tutti_redistribution_t *how)
{
    tutti_tensor_t *x = leaf(placed(p, 1, &how->from));
    tutti_tensor_t *y = tutti_redistribute(p->s, x, p->group, how);
    TT_EXPECT(m, tutti_tensor_status(y) == TUTTI_OK);
    check_value(m, p, how, y, whole_of(p, 1, is_partial(&how->from)));
    check_gradients(m, p, how, x, y);
}

static tutti_placement_t nth_placement(const place_t *p, int i)
{
    if (i < DIMS) {
        tutti_placement_t at = tutti_shard_of(i, p->shape.dims[i]);
        at.leaves = p->leaves;
        return at;
    }
    return i == DIMS ? tutti_replicate() : tutti_partial(TUTTI_SUM);
}

static void check_all_pairs(tt_member_t *m)
{
    place_t p = *(const place_t *)m->user;
    p.leaves = p.leaves > 0 && p.leaves < m->size ? m->size : p.leaves;
    TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
    for (int i = 0; i < (DIMS + 2) * (DIMS + 2) * 2 && m->failure[0] == 0; i++) {
        const tutti_redistribution_t how = {.from = nth_placement(&p, i / 2 % (DIMS + 2)),
                                            .to = nth_placement(&p, i / 2 / (DIMS + 2)),
                                            .grad = i % 2 == 0 ? tutti_replicate()
                                                               : tutti_partial(TUTTI_SUM)};
        if (is_partial(&how.from) && is_partial(&how.to)) {
            continue; /* no pair: bad_input_is_named */
        }
        if (i % 2 == 0 || how.to.kind == TUTTI_PLACEMENT_REPLICATE) {
            check_pair(m, &p, &how);
        }
    }
    TT_EXPECT(m, close_place(&p) == TUTTI_OK);
}

static void every_pair_moves_values_and_gradients(void **state)
{
    (void)state;
    static const place_t cases[] = {{.shape = {3, {4, 12, 8}}},
                                    {.shape = {3, {3, 5, 2}}},
                                    {.shape = {3, {1, 7, 3}}, .leaves = 5},
                                    {.shape = {3, {6, 4, 9}}, .leaves = 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            place_t p = cases[i];
            tt_team_expect(ranks, 20000, check_all_pairs, &p);
        }
    }
}

/* ---- other reductions and dtypes ------------------------------------------------------------- */

static void reduce_otherwise(tt_member_t *m)
{
    place_t p = {.shape = TUTTI_SHAPE(2, 3)};
    TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
    tutti_redistribution_t how = {.from = tutti_partial(TUTTI_AVG), .to = tutti_replicate()};
    tutti_tensor_t *x = leaf(tutti_full(p.s, TUTTI_F32, p.shape, m->rank)), *dx = NULL;
    tutti_tensor_t *y = tutti_redistribute(p.s, x, p.group, &how);
    TT_EXPECT(m, tutti_tensor_at(y, 5) == (m->size - 1) / 2.0);
    TT_EXPECT(m, tutti_grad(p.s, tutti_sum(p.s, y), NULL, &x, 1, &dx) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(dx, 0) == (double)(float)(1.0 / m->size));
    how.from = tutti_partial(TUTTI_MAX);
    y = tutti_redistribute(p.s, tutti_detach(p.s, x), p.group, &how);
    TT_EXPECT(m, tutti_tensor_at(y, 0) == m->size - 1);
    tutti_tensor_t *whole = tutti_full(p.s, TUTTI_I64, p.shape, m->rank + 1);
    how.from = tutti_partial(TUTTI_SUM);
    y = tutti_redistribute(p.s, whole, p.group, &how);
    TT_EXPECT(m, tutti_tensor_at(y, 0) == m->size * (m->size + 1) / 2.0);
    TT_EXPECT(m, tutti_tensor_at(whole, 0) == m->rank + 1); /* x is only read */
    TT_EXPECT(m, close_place(&p) == TUTTI_OK);
}

static void averages_have_gradients_and_integers_move(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, reduce_otherwise, NULL);
    tt_team_expect(4, 20000, reduce_otherwise, NULL);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void cuts_are_those_of_torch_chunk(void **state)
{
    (void)state;
    static const int64_t want[][4] = {{3, 3, 3, 1}, {2, 2, 1, 0}, {1, 1, 0, 0}, {0, 0, 0, 0}};
    static const int64_t sizes[] = {10, 5, 2, 0};
    for (int i = 0; i < 4; i++) {
        int64_t first = 0;
        for (int rank = 0; rank < 4; rank++) {
            int64_t begin, count;
            const tutti_placement_t at = tutti_shard(0);
            assert_int_equal(tutti_placement_part(&at, sizes[i], 4, rank, &begin, &count), 0);
            assert_int_equal(begin, first);
            assert_int_equal(count, want[i][rank]);
            first += count;
        }
    }
    int64_t begin, count; /* four leaves of ten on three ranks: the last one has two */
    tutti_placement_t at = tutti_shard(0);
    at.leaves = 4;
    assert_int_equal(tutti_placement_part(&at, 10, 3, 2, &begin, &count), 0);
    assert_int_equal(begin, 6);
    assert_int_equal(count, 4);
    at.leaves = 2;
    assert_int_equal(tutti_placement_part(&at, 10, 3, 2, &begin, &count), TUTTI_ERR_ARG);
    tt_expect_error("2 leaves on 3 ranks");
    assert_int_equal(tutti_placement_part(&at, 10, 3, 3, &begin, &count), TUTTI_ERR_ARG);
}

/* ---- bad input ------------------------------------------------------------------------------- */

typedef struct {
    tutti_redistribution_t how;
    tutti_status_t status;
    const char *text;
} bad_t;

static void try_bad(tt_member_t *m)
{
    const bad_t *bad = m->user;
    place_t p = {.shape = TUTTI_SHAPE(2, 3)};
    TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
    tutti_tensor_t *x = leaf(numbers(&p, 0));
    tutti_tensor_t *y = tutti_redistribute(p.s, x, p.group, &bad->how);
    TT_EXPECT(m, tutti_tensor_status(y) == bad->status);
    TT_EXPECT(m, strstr(tutti_last_error(), bad->text) != NULL);
    TT_EXPECT(m, close_place(&p) == bad->status);
}

static void bad_input_is_named(void **state)
{
    (void)state;
    const bad_t bads[] = {
        {{.from = tutti_shard(2)}, TUTTI_ERR_ARG, "shard(2) of size 0, of a tensor of 2 dim"},
        {{.from = tutti_shard_of(1, -1)}, TUTTI_ERR_ARG, "of size -1"},
        {{.from = tutti_shard_of(0, 9)}, TUTTI_ERR_SHAPE, "whose whole size is 9"},
        {{.to = tutti_shard(1)}, TUTTI_ERR_SHAPE, "dimension 1 is 3, which is not 2 equal parts"},
        {{.to = tutti_shard_of(1, 4)}, TUTTI_ERR_SHAPE, "is to be cut from 4, but has 3"},
        {{.from = {.kind = 7}}, TUTTI_ERR_ARG, "7 is no kind of placement"},
        {{.to = tutti_partial(TUTTI_MAX)}, TUTTI_ERR_ARG, "can become a sum alone"},
        {{.from = tutti_partial(TUTTI_SUM), .to = tutti_partial(TUTTI_SUM)},
         TUTTI_ERR_ARG,
         "partial(sum) to partial(sum) with a gradient that is replicate: what is partial is"},
        {{.from = tutti_partial(TUTTI_AVG), .to = tutti_partial(TUTTI_AVG)},
         TUTTI_ERR_ARG,
         "partial(avg) to partial(avg)"},
        {{.from = tutti_partial(TUTTI_MAX), .to = tutti_partial(TUTTI_SUM)},
         TUTTI_ERR_ARG,
         "partial(max) to partial(sum)"},
        {{.from = tutti_partial(TUTTI_CUSTOM)}, TUTTI_ERR_ARG, "needs no more than its name"},
        {{.from = tutti_shard(0), .to = tutti_replicate(), .grad = tutti_shard(0)},
         TUTTI_ERR_ARG,
         "shard(0) to replicate with a gradient that is shard(0): the gradient of a shard"},
        {{.to = tutti_shard(0), .grad = tutti_partial(TUTTI_SUM)}, TUTTI_ERR_ARG, "that shard's"},
        {{.to = tutti_shard(0), .grad = tutti_shard(1)}, TUTTI_ERR_ARG, "that shard's"},
        {{.grad = tutti_partial(TUTTI_MIN)}, TUTTI_ERR_ARG, "partial(sum) alone"},
        {{.from = tutti_partial(TUTTI_MIN)}, TUTTI_ERR_UNSUPPORTED, "partial(min) has no gradient"},
        {{.from = tutti_shard(0), .to = {.kind = TUTTI_PLACEMENT_SHARD, .leaves = 4}},
         TUTTI_ERR_ARG,
         "other leaves by way of replicate"},
        {{.to = {.kind = TUTTI_PLACEMENT_SHARD, .leaves = 1}},
         TUTTI_ERR_ARG,
         "1 leaves on 2 ranks"},
    };
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        bad_t bad = bads[i];
        tt_team_expect_quietly(2, 20000, try_bad, &bad);
    }
}

/* ---- a rank that fails ----------------------------------------------------------------------- */

/* Rank 1 has a tensor that failed; rank 0 waits for it, forward or backward, far below its
 * deadline. */
static void fail_alone(tt_member_t *m)
{
    const bool in_backward = *(const bool *)m->user;
    place_t p = {.shape = TUTTI_SHAPE(2, 3)};
    TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
    const tutti_redistribution_t f = {.from = tutti_replicate(),
                                      .to = tutti_replicate(),
                                      .grad = tutti_partial(TUTTI_SUM)},
                                 g = {.from = tutti_partial(TUTTI_SUM), .to = tutti_replicate()};
    tutti_tensor_t *x = leaf(numbers(&p, 0));
    tutti_status_t status;
    if (in_backward) {
        tutti_tensor_t *loss = tutti_sum(p.s, tutti_redistribute(p.s, x, p.group, &f));
        TT_EXPECT(m, tutti_tensor_status(loss) == TUTTI_OK);
        if (m->rank == 1) {
            tutti_group_abort(p.group); /* as a hook of this rank's would */
            status = tutti_scope_fail(p.s, TUTTI_ERR_NOMEM)->status;
        } else {
            status = tutti_backward(p.s, loss);
        }
    } else {
        x = m->rank == 1 ? tutti_scope_fail(p.s, TUTTI_ERR_NOMEM) : x;
        status = tutti_tensor_status(tutti_redistribute(p.s, x, p.group, &g));
    }
    TT_EXPECT(m, status == (m->rank == 1 ? TUTTI_ERR_NOMEM : TUTTI_ERR_ABORTED));
    TT_EXPECT(m, close_place(&p) == status);
}

/* Rank 1 has no tensor at all; rank 0 waits for it. */
static void pass_nothing(tt_member_t *m)
{
    place_t p = {.shape = TUTTI_SHAPE(2, 3)};
    TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
    const tutti_redistribution_t how = {.from = tutti_partial(TUTTI_SUM), .to = tutti_replicate()};
    tutti_tensor_t *x = m->rank == 1 ? NULL : numbers(&p, 0);
    const tutti_status_t status = tutti_tensor_status(tutti_redistribute(p.s, x, p.group, &how));
    TT_EXPECT(m, status == (m->rank == 1 ? TUTTI_ERR_ARG : TUTTI_ERR_ABORTED));
    TT_EXPECT(m, m->rank == 0 || strstr(tutti_last_error(), "redistribute: x is NULL") != NULL);
    TT_EXPECT(m, close_place(&p) == status);
}

static void nobody_waits_for_a_rank_that_failed(void **state)
{
    (void)state;
    bool in_backward = false;
    tt_team_expect_quietly(2, 100000, pass_nothing, NULL);
    tt_team_expect_quietly(2, 100000, fail_alone, &in_backward);
    in_backward = true;
    tt_team_expect_quietly(2, 100000, fail_alone, &in_backward);
}

/* On one rank every allocation fails once. */
static void fail_allocations(tt_member_t *m)
{
    bool has_failed = true;
    for (size_t n = 1; has_failed && m->failure[0] == 0; n++) {
        place_t p = {.shape = TUTTI_SHAPE(3, 4, 2)};
        TT_EXPECT(m, open_place(m, &p) == TUTTI_OK);
        tutti_tensor_t *x = leaf(numbers(&p, 0));
        tutti_redistribution_t how = {.from = tutti_shard(1), .to = tutti_shard(2)};
        tt_alloc_fail_at(n);
        tutti_tensor_t *y = tutti_redistribute(p.s, x, p.group, &how);
        how = (tutti_redistribution_t){.from = tutti_shard(2), .to = tutti_partial(TUTTI_SUM)};
        y = tutti_redistribute(p.s, y, p.group, &how);
        how = (tutti_redistribution_t){.from = tutti_partial(TUTTI_SUM), .to = tutti_shard(1)};
        y = tutti_redistribute(p.s, y, p.group, &how);
        (void)tutti_backward(p.s, tutti_sum(p.s, y));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        TT_EXPECT(m, close_place(&p) == (has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK));
    }
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    tt_team_expect(1, 20000, fail_allocations, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_those_of_torch_chunk),
        cmocka_unit_test(every_pair_moves_values_and_gradients),
        cmocka_unit_test(averages_have_gradients_and_integers_move),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(nobody_waits_for_a_rank_that_failed),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
