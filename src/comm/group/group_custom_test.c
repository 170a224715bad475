/* Reductions of the program's own: what is refused, ranks that disagree, groups that are aborted or
 * released meanwhile. What they compute is the conformance suite's business. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/prepared.h>

#include "comm/group/group_team.h"

enum { TIMEOUT_MS = 20000 };

/* What ranks pass. */
typedef struct {
    tutti_custom_reduction_t all[2]; /* by rank */
    const char *says[2];
} pair_t;

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *make(tt_member_t *m, tutti_dtype_t dtype, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

/* The later one. user: counts the calls, or NULL. */
static void take_later(void *inout, const void *in, int64_t count, tutti_dtype_t dtype, void *user)
{
    memcpy(inout, in, (size_t)count * tutti_dtype_bytes(dtype));
    if (user != NULL) {
        ++*(int *)user;
    }
}

static tutti_status_t reduce(tt_member_t *m, tutti_tensor_t *x,
                             const tutti_custom_reduction_t *custom)
{
    const tutti_reduce_options_t options = {.custom = custom};
    return tutti_all_reduce_with(m->group, x, TUTTI_CUSTOM, &options, NULL);
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

#define REFUSED(m, call, status, text)                                                             \
    do {                                                                                           \
        TT_EXPECT(m, (call) == (status));                                                          \
        TT_EXPECT(m, says(text));                                                                  \
    } while (0)

/* ---- misuse ---- */

static void wrong_customs(tt_member_t *m)
{
    const tutti_custom_reduction_t good = {.name = "later", .combine = take_later};
    tutti_custom_reduction_t bad = good;
    tutti_tensor_t *x = make(m, TUTTI_F32, 6);
    bad.name = NULL;
    REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_ARG, "\"\", has 0 bytes; want 1 to 15");
    bad.name = "sixteen letters!";
    REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_ARG, "\"sixteen letters!\", has 16 bytes");
    bad = good;
    bad.combine = NULL;
    REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_ARG, "all_reduce: later has no function");
    for (int i = 0; i < 4; i++) {
        const int widths[] = {-1, 3, 65, 128};
        bad = good;
        bad.width = widths[i];
        REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_ARG, "want 1, 2, 4, ... 64");
    }
    bad = good;
    bad.dtypes = 1u << TUTTI_F64 | 1u << TUTTI_I32;
    REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_DTYPE, "all_reduce: later does not take f32");
    bad = good;
    bad.width = 4;
    REFUSED(m, reduce(m, x, &bad), TUTTI_ERR_SHAPE,
            "all_reduce: later combines elements of 4 numbers; 6 numbers are not whole ones");
    REFUSED(m, reduce(m, x, NULL), TUTTI_ERR_ARG,
            "custom needs a function: pass it to tutti_all_reduce_with");
    REFUSED(m, reduce(m, NULL, &good), TUTTI_ERR_ARG, "all_reduce: x is NULL");
    REFUSED(m, tutti_scan(m->group, x, TUTTI_CUSTOM, NULL), TUTTI_ERR_ARG, "tutti_scan_with");
    bad.width = 2;
    TT_EXPECT(m, reduce(m, x, &bad) == TUTTI_OK);
    tutti_tensor_release(x);
}

static void wrong_options(tt_member_t *m)
{
    const double factor = 1;
    const tutti_custom_reduction_t good = {.name = "later", .combine = take_later, .width = 2};
    const tutti_reduce_options_t options = {.custom = &good},
                                 both = {.factor = &factor, .custom = &good};
    tutti_tensor_t *x = make(m, TUTTI_F32, 3), *all = make(m, TUTTI_F32, 6);
    tutti_prepared_t *prepared;
    REFUSED(m, tutti_all_reduce_with(m->group, x, TUTTI_SUM, &options, NULL), TUTTI_ERR_ARG,
            "a function goes with custom, not with sum");
    REFUSED(m, tutti_all_reduce_with(m->group, x, TUTTI_CUSTOM, &both, NULL), TUTTI_ERR_ARG,
            "a factor goes with premul_sum, not with custom");
    /* parts of 3 numbers, 6 in all */
    REFUSED(m, tutti_reduce_scatter_with(m->group, x, all, TUTTI_CUSTOM, &options, NULL),
            TUTTI_ERR_SHAPE, "3 numbers are not whole ones");
    REFUSED(m, tutti_prepare_exscan_with(m->group, x, TUTTI_CUSTOM, &options, &prepared),
            TUTTI_ERR_SHAPE, "exscan: later combines elements of 2");
    REFUSED(m, tutti_all_reduce(m->group, x, TUTTI_MINLOC, NULL), TUTTI_ERR_SHAPE,
            "all_reduce: minloc combines elements of 2 numbers; 3");
    REFUSED(
        m,
        tutti_reduce_scatter_uneven(m->group, x, all, (const int64_t[]){3, 3}, TUTTI_MAXLOC, NULL),
        TUTTI_ERR_SHAPE, "maxloc combines elements of 2 numbers; 3");
    tutti_tensor_release(x);
    tutti_tensor_release(all);
}

static void misuse_is_refused_and_harms_nothing(void **state)
{
    (void)state;
    run_team(2, wrong_customs, NULL);
    run_team(2, wrong_options, NULL);
}

/* ---- ranks that disagree ---- */

static void disagree(tt_member_t *m)
{
    const pair_t *pair = m->user;
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    TT_EXPECT(m, reduce(m, x, &pair->all[0]) == TUTTI_OK); /* it is known from now on */
    TT_EXPECT(m, reduce(m, x, &pair->all[m->rank]) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, (says(pair->says[0]) && says(pair->says[1])) ||
                     says("gave the group up (ranks are in different calls)"));
    tutti_tensor_release(x);
}

static void ranks_with_other_functions_hear_of_both(void **state)
{
    (void)state;
    const tutti_custom_reduction_t later = {.name = "later", .combine = take_later};
    tutti_custom_reduction_t other = later, wide = later, turned = later;
    other.name = "fifteen letters";
    wide.width = 4;
    turned.commutes = true;
    pair_t pairs[] = {
        {{later, other},
         {"rank 0 passed f32[4] combined by later (width 1)",
          "rank 1 passed f32[4] combined by fifteen letters (width 1)"}},
        {{later, wide}, {"by later (width 1)", "by later (width 4)"}},
        {{turned, later},
         {"rank 0 passed f32[4] combined by later (width 1, commutes)",
          "rank 1 passed f32[4] combined by later (width 1)"}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        run_team(2, disagree, &pairs[i]);
    }
    setenv("TUTTI_WIRES", "tcp", 1);
    setenv("TUTTI_PROTECT", "off", 1);
    run_team(2, disagree, &pairs[0]);
    unsetenv("TUTTI_PROTECT");
    unsetenv("TUTTI_WIRES");
}

/* ---- same name, other data ---- */

/* The function and what it is handed come with each call, also where the call is known already. */
static void hand_over(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, TUTTI_F32, 4);
    int counts[2] = {0};
    for (int turn = 0; turn < 6; turn++) {
        const tutti_custom_reduction_t custom = {
            .name = "later", .combine = take_later, .user = &counts[turn % 2]};
        TT_EXPECT(m, reduce(m, x, &custom) == TUTTI_OK);
    }
    TT_EXPECT(m, counts[0] == 3 && counts[1] == 3);
    tutti_tensor_release(x);
}

static void a_function_is_that_of_its_call(void **state)
{
    (void)state;
    run_team(2, hand_over, NULL);
}

/* ---- the order of ranks ---- */

static void follow_the_last(tt_member_t *m)
{
    const tutti_custom_reduction_t later = {.name = "later", .combine = take_later};
    tutti_tensor_t *x = make(m, TUTTI_I32, 50000);
    TT_EXPECT(m, tutti_tensor_fill(x, m->rank) == TUTTI_OK);
    TT_EXPECT(m, reduce(m, x, &later) == TUTTI_OK);
    for (int64_t i = 0; i < 50000; i++) {
        TT_EXPECT(m, ((const int32_t *)tutti_tensor_data(x))[i] == tutti_group_size(m->group) - 1);
    }
    tutti_tensor_release(x);
}

static void the_order_of_ranks_is_kept_whatever_algorithm_is_asked_for(void **state)
{
    (void)state;
    setenv("TUTTI_ALGO", "ring", 1);
    run_team(4, follow_the_last, NULL);
    unsetenv("TUTTI_ALGO");
}

/* ---- the end of a group ---- */

/* Rank 1 never comes; the call ends without the function having been called. */
static void abort_meanwhile(tt_member_t *m)
{
    int calls = 0;
    const tutti_custom_reduction_t later = {.name = "later", .combine = take_later, .user = &calls};
    const tutti_reduce_options_t options = {.custom = &later};
    tutti_tensor_t *x = make(m, TUTTI_F32, 50000);
    tutti_work_t *work = NULL;
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce_with(m->group, x, TUTTI_CUSTOM, &options, &work) == TUTTI_OK);
        tutti_group_abort(m->group);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
        tutti_work_release(work);
        TT_EXPECT(m, reduce(m, x, &later) == TUTTI_ERR_ABORTED);
    } else {
        TT_EXPECT(m, tutti_recv(m->group, x, 0, 0, NULL) < 0);
    }
    TT_EXPECT(m, calls == 0);
    tutti_tensor_release(x);
}

static void release_before_start(tt_member_t *m)
{
    const tutti_custom_reduction_t later = {.name = "later", .combine = take_later};
    const tutti_reduce_options_t options = {.custom = &later};
    tutti_tensor_t *x = make(m, TUTTI_F32, 8);
    tutti_prepared_t *prepared = NULL;
    TT_EXPECT(m,
              tutti_prepare_scan_with(m->group, x, TUTTI_CUSTOM, &options, &prepared) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(prepared, NULL) == TUTTI_OK);
    tutti_group_release(m->group);
    m->group = NULL;
    REFUSED(m, tutti_prepared_start(prepared, NULL), TUTTI_ERR_STATE, "has been released");
    tutti_prepared_release(prepared);
    tutti_tensor_release(x);
}

static void the_end_of_a_group_ends_its_calls(void **state)
{
    (void)state;
    run_team(2, abort_meanwhile, NULL);
    run_team(2, release_before_start, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_refused_and_harms_nothing),
        cmocka_unit_test(ranks_with_other_functions_hear_of_both),
        cmocka_unit_test(a_function_is_that_of_its_call),
        cmocka_unit_test(the_order_of_ranks_is_kept_whatever_algorithm_is_asked_for),
        cmocka_unit_test(the_end_of_a_group_ends_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
