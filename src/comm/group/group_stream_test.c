/* Calls on tensors of devices: the values of the host, in stream order, without waiting. */
#include "core/base/testing.h"

#include "comm/group/group_place.h"

/* ---- every form has the values of the host --------------------------------------------------- */

static void call_in_place(place_t *p, tutti_group_t *g)
{
    const int rank = p->m->rank;
    const double factor = 0.5;
    TT_EXPECT(p->m, tutti_all_reduce(g, make(p, 7, rank), TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_all_reduce(g, make(p, 7, rank), TUTTI_MAX, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_all_reduce_with(g, make(p, 7, rank), TUTTI_PREMUL_SUM,
                                          &(tutti_reduce_options_t){.factor = &factor},
                                          NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_reduce(g, make(p, 7, rank), TUTTI_AVG, 1, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_scan(g, make(p, 7, rank), TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_broadcast(g, make(p, 7, rank), 2, NULL) == TUTTI_OK);
}

static void call_pairs(place_t *p, tutti_group_t *g)
{
    const int rank = p->m->rank;
    const int64_t counts[] = {1, 2, 3}, gives[] = {2, 2, 2};
    tutti_tensor_t *six = make(p, 6, 10 * rank), *two = make(p, 2, 100 * rank);
    TT_EXPECT(p->m, tutti_all_gather(g, make(p, 6, 0), two, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_reduce_scatter(g, make(p, 2, 0), six, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_all_to_all(g, make(p, 6, 0), six, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_all_gather_uneven(g, make(p, 6, 0), make(p, counts[rank], rank), counts,
                                            NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_all_to_all_uneven(g, make(p, 6, 0), gives, six, gives, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_gather(g, rank == 0 ? make(p, 6, 0) : NULL, two, 0, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_scatter(g, make(p, 2, 0), rank == 0 ? six : NULL, 0, NULL) == TUTTI_OK);
}

static void call_lists(place_t *p, tutti_group_t *g)
{
    const int rank = p->m->rank;
    tutti_tensor_t *ins[3], *outs[3];
    for (int i = 0; i < 3; i++) {
        ins[i] = make(p, 4, 10 * rank + i);
        outs[i] = make(p, 4, 0);
    }
    TT_EXPECT(p->m, tutti_all_to_all_list(g, outs, ins, NULL) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_reduce_scatter_list(g, make(p, 4, 0), ins, TUTTI_SUM, NULL) == TUTTI_OK);
    const int begin = 8 * rank / 3, end = 8 * (rank + 1) / 3, first[] = {0, 2, 5, 8};
    const int pieces = tutti_contribution_pieces(8, begin, end, NULL); /* 1, 2 and 2 */
    const tutti_contributions_t leaves = {
        .count = 8, .first = first, .pieces = ins, .piece_count = pieces, .dtype = TUTTI_F32};
    TT_EXPECT(p->m, pieces == (rank == 0 ? 1 : 2));
    TT_EXPECT(p->m, tutti_all_reduce_contributions(g, &leaves, make(p, 4, 0), TUTTI_SUM, NULL) ==
                        TUTTI_OK);
}

static void call_messages(place_t *p, tutti_group_t *g)
{
    const int rank = p->m->rank;
    tutti_tensor_t *out = make(p, 5, 3 * rank), *in = make(p, 5, 0);
    if (rank == 0) {
        TT_EXPECT(p->m, tutti_send(g, out, 1, 7, NULL) == TUTTI_OK);
    } else if (rank == 1) {
        TT_EXPECT(p->m, tutti_recv(g, in, 0, 7, NULL) == TUTTI_OK);
    }
}

static void call_everywhere(tt_member_t *m)
{
    void (*const calls[])(place_t *, tutti_group_t *) = {call_in_place, call_pairs, call_lists,
                                                         call_messages};
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        place_t host = {.m = m}, device = {.m = m};
        calls[c](&host, m->group);
        open_place(&device);
        calls[c](&device, m->group);
        expect_same(&host, &device);
        close_place(&host);
        close_place(&device);
    }
}

static void all_forms_have_the_values_of_the_host(void **state)
{
    (void)state;
    tt_team_expect(3, 20000, call_everywhere, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* x = (sum of x over ranks) copied there and back, in turns with kernels: any other order shows. */
static void call_between_kernels(tt_member_t *m)
{
    enum { TURNS = 8 };
    place_t p = {.m = m};
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&p, 4, 0), *host = NULL;
    for (int i = 0; i < TURNS; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_copy(y, x) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(x, 1 + i) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, y, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1), &host) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(host, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, host, TUTTI_SUM, NULL) == TUTTI_OK); /* behind them */
    TT_EXPECT(m, tutti_tensor_at(host, 0) == m->size);
    expect_values(&p, y, (float)(m->size * m->size * (TURNS - 1)), 0);
    tutti_tensor_release(host);
    close_place(&p);
}

static void calls_keep_their_place_between_kernels(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, call_between_kernels, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void call_behind_slow_kernels(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = INT64_C(300000000)};
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 0);
    TT_EXPECT(m, tutti_tensor_fill(x, 3) == TUTTI_OK);
    const tt_event_t filled = tt_stream_event(tt_device_stream(p.device));
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, !tt_event_is_done(filled));
    expect_values(&p, x, (float)(3 * m->size), 0);
    close_place(&p);
}

static void a_call_returns_before_the_kernels_in_front_of_it_are_done(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, call_behind_slow_kernels, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* What a call was given is the caller's again when it returns, and it is not done then. */
static void call_and_forget(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = INT64_C(100000000)};
    const int rank = m->rank, taken = rank == 0 ? 1 : 3;
    int64_t gives[] = {1, 3}, takes[] = {taken, taken};
    double factor = 2;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 0), *y = make(&p, 4, 10 * rank);
    tutti_tensor_t *first = make(&p, 4, 0), *second = make(&p, 4, 0);
    tutti_tensor_t *uneven = make(&p, 2 * taken, 0);
    tutti_tensor_t *ins[] = {x, y}, *outs[] = {first, second};
    tutti_reduce_options_t options = {.factor = &factor};
    TT_EXPECT(m, tutti_tensor_fill(x, 3) == TUTTI_OK); /* what the calls wait for */
    TT_EXPECT(m, tutti_all_reduce_with(m->group, x, TUTTI_PREMUL_SUM, &options, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_to_all_list(m->group, outs, ins, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_to_all_uneven(m->group, uneven, takes, y, gives, NULL) == TUTTI_OK);
    factor = 0;
    gives[0] = gives[1] = takes[0] = takes[1] = 0;
    ins[0] = ins[1] = outs[0] = outs[1] = NULL;
    expect_values(&p, x, 12, 0);
    expect_values(&p, first, rank == 0 ? 12 : 0, (float)rank);
    expect_values(&p, second, rank == 0 ? 12 : 10, (float)rank);
    float values[6] = {0};
    TT_EXPECT(m, tt_tensor_read(uneven, values) == TUTTI_OK);
    TT_EXPECT(m, values[0] == (float)rank && values[taken] == (float)(10 + rank));
    TT_EXPECT(m, values[2 * taken - 1] == (float)(rank == 0 ? 10 : 13));
    close_place(&p);
}

static void what_a_call_was_given_may_change_when_it_returns(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, call_and_forget, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

#define REFUSED(m, call, status, text)                                                             \
    TT_EXPECT(m, (call) == (status) && strcmp(tutti_last_error(), text) == 0)

static void ask_wrongly(tt_member_t *m)
{
    place_t host = {.m = m}, p = {.m = m};
    char want[200];
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 0), *y = make(&host, 4, 0);
    snprintf(want, sizeof want,
             "all_gather: tensors of the host and of %s in one call; bring them to one device "
             "(tutti_tensor_to)",
             tutti_device_name(p.device));
    REFUSED(m, tutti_all_gather(m->group, x, y, NULL), TUTTI_ERR_ARG, want);
    REFUSED(m, tutti_broadcast(m->group, x, 5, NULL), TUTTI_ERR_ARG,
            "broadcast: root 5 is outside group world of 1 ranks");
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    expect_values(&p, x, 0, 1);
    close_place(&host);
    close_place(&p);
}

static void wrong_calls_are_refused_at_once(void **state)
{
    (void)state;
    tt_team_expect(1, 20000, ask_wrongly, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void wait_for_nobody(tt_member_t *m)
{
    place_t p = {.m = m};
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 0);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strstr(tutti_last_error(), ":0: all_reduce #2 f32[4] of ") != NULL);
        TT_EXPECT(m,
                  tutti_barrier(m->group, NULL) == TUTTI_ERR_TIMEOUT); /* the group is told, too */
        TT_EXPECT(m, tutti_barrier(m->group, NULL) < 0);               /* and is broken */
        TT_EXPECT(m, tutti_tensor_fill(x, 2) == TUTTI_OK);             /* the device is not */
        expect_values(&p, x, 2, 0);
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
    }
    close_place(&p);
}

static void a_failure_is_told_by_the_device_and_by_the_group(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 500, wait_for_nobody, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- a device that fails in front of a call ------------------------------------------------ */

static void expect_told(tt_member_t *m, tutti_status_t status, const char *call)
{
    const char *said = tutti_last_error();
    TT_EXPECT(m, status == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(said, call) != NULL);
    TT_EXPECT(m, strstr(said, "rank 1 gave ") != NULL);
    TT_EXPECT(m, strstr(said, ": all_reduce: strict:1: gather: index 9 is outside") != NULL);
}

/* A rank of another host that connects to one which has given a group up hears of it when that one
 * moves forward next. */
static void answer_until_told(tt_member_t *m, uint32_t times)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    while (atomic_load(m->told) < times && !tt_deadline_is_past(deadline)) {
        tutti_group_progress(m->group);
        tt_clock_sleep(TT_NS_PER_MS, deadline);
    }
}

/* Rank 0 waits on its device, rank 1 fails, rank 2 waits on the host; all in two groups. */
static void reduce_what_is_lost(tt_member_t *m)
{
    const int all[] = {0, 1, 2};
    tutti_group_t *pair = NULL;
    place_t p = {.m = m}, host = {.m = m};
    open_place(&p);
    TT_EXPECT(m, tutti_group_new(m->group, all, 3, NULL, &pair) == TUTTI_OK);
    const int64_t begin = tt_clock_ns();
    tutti_tensor_t *x = make(m->rank == 2 ? &host : &p, 4, m->rank), *y = make(&p, 4, 0);
    if (m->rank == 1) {
        spoil(&p);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(pair, y, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ARG);
        TT_EXPECT(m, strstr(tutti_last_error(), "strict:1: gather: index 9") != NULL);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ARG);
    } else if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        expect_told(m, tutti_device_synchronize(p.device, 0), "f32[4] of group world");
    } else {
        expect_told(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL), "f32[4] of group world");
        expect_told(m, tutti_recv(pair, x, 0, 3, NULL), "recv of f32[4] from rank 0 (tag 3)");
    }
    TT_EXPECT(m, tt_clock_ns() - begin < INT64_C(5000000000)); /* a quarter of the deadline */
    tt_member_tell(m);
    answer_until_told(m, 3);
    tutti_group_release(pair);
    close_place(&p);
    close_place(&host);
}

static void a_call_on_what_is_lost_tells_the_others_why(void **state)
{
    (void)state;
    tt_team_expect_quietly(3, 20000, reduce_what_is_lost, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Rank 1's device fails while the others wait for it; its host does nothing any more. */
static void fail_late_and_be_silent(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = m->rank == 1 ? INT64_C(200000000) : 0};
    open_place(&p);
    const int64_t begin = tt_clock_ns();
    tutti_tensor_t *x = make_unset(&p, 4);
    TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
    if (m->rank == 1) {
        spoil(&p);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    if (m->rank != 1) {
        expect_told(m, tutti_device_synchronize(p.device, 0), "f32[4] of group world");
        TT_EXPECT(m, tt_clock_ns() - begin < INT64_C(5000000000));
        tt_member_tell(m);
    }
    tt_member_await(m, 2);
    TT_EXPECT(m, m->rank != 1 || tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ARG);
    close_place(&p);
}

static void a_rank_that_is_silent_has_told_why(void **state)
{
    (void)state;
    tt_team_expect_quietly(3, 20000, fail_late_and_be_silent, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_have_the_values_of_the_host),
        cmocka_unit_test(calls_keep_their_place_between_kernels),
        cmocka_unit_test(a_call_returns_before_the_kernels_in_front_of_it_are_done),
        cmocka_unit_test(what_a_call_was_given_may_change_when_it_returns),
        cmocka_unit_test(wrong_calls_are_refused_at_once),
        cmocka_unit_test(a_failure_is_told_by_the_device_and_by_the_group),
        cmocka_unit_test(a_call_on_what_is_lost_tells_the_others_why),
        cmocka_unit_test(a_rank_that_is_silent_has_told_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
