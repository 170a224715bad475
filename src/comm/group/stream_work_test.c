/* Works of calls on tensors of devices; batches, coalesced and prepared calls there. */
#include "core/base/testing.h"

#include "comm/group/group_place.h"

static void run(int ranks, void (*body)(tt_member_t *m))
{
    tt_team_expect(ranks, 20000, body, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- works ----------------------------------------------------------------------------------- */

/* Rank 1 enters when rank 0 has seen what it does meanwhile. */
static void reduce_late(tt_member_t *m, float sum)
{
    place_t host = {.m = m};
    tt_member_await(m, 1);
    tutti_tensor_t *x = make(&host, 4, 10);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    expect_values(&host, x, sum, 2);
    close_place(&host);
}

static void go_on_meanwhile(tt_member_t *m)
{
    if (m->rank == 1) {
        reduce_late(m, 11);
        return;
    }
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&p, 4, 0);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(y, 3) == TUTTI_OK);
    expect_values(&p, y, 3, 0); /* the device goes on */
    TT_EXPECT(m, tutti_work_test(work) == TUTTI_PENDING && !tutti_work_is_done(work));
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK); /* the host does */
    TT_EXPECT(m, tutti_work_test(work) == TUTTI_PENDING);
    TT_EXPECT(m, tutti_work_wait_all(&work, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_copy(y, x) == TUTTI_OK);
    tt_member_tell(m);
    expect_values(&p, y, 11, 2); /* the device has waited */
    TT_EXPECT(m, tutti_work_is_done(work) && tutti_work_test(work) == TUTTI_OK);
    tutti_work_release(work);
    close_place(&p);
}

/* Issued on a stream beside the device's own, awaited on that. */
static void wait_elsewhere(tt_member_t *m)
{
    if (m->rank == 1) {
        reduce_late(m, 11);
        return;
    }
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    tutti_stream_t *side;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&p, 4, 0);
    TT_EXPECT(m, tutti_stream_create(p.device, &side) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_set_stream(p.device, side) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_set_stream(p.device, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_copy(y, x) == TUTTI_OK);
    tt_member_tell(m);
    expect_values(&p, y, 11, 2);
    tutti_work_release(work);
    tutti_stream_release(side);
    close_place(&p);
}

static void the_stream_of_who_waits_waits(void **state)
{
    (void)state;
    run(2, wait_elsewhere);
}

static void a_device_waits_for_a_work_when_it_is_told_to(void **state)
{
    (void)state;
    run(2, go_on_meanwhile);
}

/* What is launched behind the release comes behind the call, also on memory that was given back. */
static void forget_the_work(tt_member_t *m)
{
    if (m->rank == 1) {
        reduce_late(m, 11);
        return;
    }
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
    tutti_work_release(work);
    tutti_tensor_t *again = make_unset(&p, 4);
    TT_EXPECT(m, tutti_tensor_fill(x, 5) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(again, 6) == TUTTI_OK);
    tt_member_tell(m);
    expect_values(&p, x, 5, 0);
    expect_values(&p, again, 6, 0);
    close_place(&p);
}

static void a_device_waits_for_a_work_that_is_released(void **state)
{
    (void)state;
    run(2, forget_the_work);
}

/* The tensor, the device and the group go before the call is made. */
static void forget_all(tt_member_t *m)
{
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, m->rank);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
    close_place(&p);
    tutti_group_release(m->group);
    m->group = NULL;
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK && tutti_work_test(work) == TUTTI_OK);
    tutti_work_release(work);
}

static void a_work_keeps_what_its_call_needs(void **state)
{
    (void)state;
    run(2, forget_all);
}

static void wait_for_any(tt_member_t *m)
{
    place_t p = {.m = m};
    tutti_work_t *works[3] = {NULL};
    int index = -1;
    open_place(&p);
    for (int i = 1; i < 3; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, make(&p, 4, i), TUTTI_SUM, &works[i]) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* the stream forgets both */
    TT_EXPECT(m, tutti_work_test(works[2]) == TUTTI_OK && tutti_work_error(works[2])[0] == 0);
    TT_EXPECT(m, tutti_work_wait_any(works, 3, &index) == TUTTI_OK);
    TT_EXPECT(m, index == 1 && tutti_work_is_done(works[1]));
    tutti_work_release(works[1]);
    works[1] = NULL;
    TT_EXPECT(m, tutti_work_wait_any(works, 3, &index) == TUTTI_OK && index == 2);
    tutti_work_release(works[2]);
    close_place(&p);
}

static void the_host_may_wait_for_any_of_several(void **state)
{
    (void)state;
    run(2, wait_for_any);
}

static void fail_with_a_work(tt_member_t *m)
{
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, m->rank);
    if (m->rank == 1) {
        spoil(&p);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
    int index;
    TT_EXPECT(m, tutti_work_wait_any(&work, 1, &index) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_work_error(work), "strict:1: gather: index 9 is outside") != NULL);
    TT_EXPECT(m, tutti_work_test(work) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ARG); /* it is known by now */
    tutti_work_release(work);
    TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ARG);
    close_place(&p);
}

static void a_work_tells_what_failed(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, fail_with_a_work, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- batches and coalesced calls ------------------------------------------------------------- */

/* Around a ring, both ways at once. */
static void exchange(tt_member_t *m)
{
    place_t p = {.m = m}, host = {.m = m};
    const int next = (m->rank + 1) % m->size, last = (m->rank + m->size - 1) % m->size;
    open_place(&p);
    place_t *mine = m->rank == 2 ? &host : &p; /* the others do not care */
    for (int turn = 0; turn < 2; turn++) {
        tutti_work_t *work = NULL;
        tutti_tensor_t *up = make(mine, 4, m->rank), *down = make(mine, 4, 10 * m->rank);
        tutti_tensor_t *from_last = make(mine, 4, 0), *from_next = make(mine, 4, 0);
        const tutti_transfer_t all[] = {{TUTTI_SEND, up, next, 1},
                                        {TUTTI_SEND, down, last, 2},
                                        {TUTTI_RECV, from_last, last, 1},
                                        {TUTTI_RECV, from_next, next, 2}};
        TT_EXPECT(m, tutti_batch_send_recv(m->group, all, 4, turn == 0 ? NULL : &work) == 0);
        TT_EXPECT(m, turn == 0 || tutti_work_wait(work, 0) == TUTTI_OK);
        expect_values(mine, from_last, (float)last, 1);
        expect_values(mine, from_next, (float)(10 * next), 1);
        tutti_work_release(work);
    }
    close_place(&p);
    close_place(&host);
}

static void batches_are_exchanged_between_devices_and_hosts(void **state)
{
    (void)state;
    run(3, exchange);
}

/* Small ones are fused, with those of the host on another rank. */
static void coalesce_all(tt_member_t *m)
{
    enum { CALLS = 5 };
    place_t p = {.m = m}, host = {.m = m};
    open_place(&p);
    place_t *mine = m->rank == 1 ? &host : &p;
    for (int turn = 0; turn < 2; turn++) {
        tutti_work_t *work = NULL;
        tutti_tensor_t *x[CALLS], *whole = make(mine, 3 * m->size, 0);
        TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
        for (int i = 0; i < CALLS; i++) {
            x[i] = make(mine, 3 + i, m->rank + i);
            const tutti_reduction_t op = i == 2 ? TUTTI_MAX : TUTTI_SUM;
            TT_EXPECT(m, tutti_all_reduce(m->group, x[i], op, NULL) == TUTTI_OK);
        }
        tutti_tensor_t *part = make(mine, 3, 3 * m->rank);
        TT_EXPECT(m, tutti_all_gather(m->group, whole, part, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_coalesce_end(m->group, turn == 0 ? NULL : &work) == TUTTI_OK);
        TT_EXPECT(m, turn == 0 || tutti_work_wait(work, 0) == TUTTI_OK);
        for (int i = 0; i < CALLS; i++) {
            const bool is_max = i == 2;
            expect_values(mine, x[i], is_max ? 3 : (float)(1 + 2 * i), is_max ? 1 : 2);
        }
        expect_values(mine, whole, 0, 1);
        tutti_work_release(work);
        release_all(&p);
        release_all(&host);
    }
    close_place(&p);
    close_place(&host);
}

static void coalesced_calls_are_those_of_the_host(void **state)
{
    (void)state;
    run(2, coalesce_all);
}

#define REFUSED(m, call, status, text)                                                             \
    TT_EXPECT(m, (call) == (status) && strcmp(tutti_last_error(), text) == 0)

static void mix_devices(tt_member_t *m)
{
    place_t host = {.m = m}, p = {.m = m}, other = {.m = m, .number = 1};
    open_place(&p);
    open_place(&other);
    tutti_tensor_t *x = make(&p, 4, 0), *y = make(&other, 4, 0), *z = make(&host, 4, 0);
    tutti_work_t *work = NULL;
    tutti_prepared_t *calls[2];
    REFUSED(m, tutti_all_gather(m->group, x, y, &work), TUTTI_ERR_ARG,
            "all_gather: tensors of strict:1 and of strict:0 in one call; bring them to one device "
            "(tutti_tensor_to)");
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    REFUSED(m, tutti_all_reduce(m->group, y, TUTTI_SUM, NULL), TUTTI_ERR_ARG,
            "all_reduce: tensors of strict:0 and of strict:1 in one batch; bring them to one "
            "device (tutti_tensor_to)");
    REFUSED(m, tutti_all_reduce(m->group, z, TUTTI_SUM, NULL), TUTTI_ERR_ARG,
            "group world: a call without a tensor of the device among coalesced ones that have "
            "some: tensors of the host and of a device in one batch");
    REFUSED(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work), TUTTI_ERR_STATE,
            "group world: calls are coalesced: pass NULL for the work, tutti_coalesce_end gives "
            "one for all");
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_coalesce_begin(m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(m->group, z, TUTTI_SUM, NULL) == TUTTI_OK);
    REFUSED(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL), TUTTI_ERR_ARG,
            "all_reduce: tensors of the host and of a device in one batch; bring them to one "
            "device (tutti_tensor_to)");
    TT_EXPECT(m, tutti_coalesce_end(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &calls[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, y, TUTTI_SUM, &calls[1]) == TUTTI_OK);
    REFUSED(m, tutti_prepared_start_all(calls, 2, NULL), TUTTI_ERR_ARG,
            "all_reduce: tensors of strict:0 and of strict:1 in one batch; bring them to one "
            "device (tutti_tensor_to)");
    REFUSED(m, tutti_prepared_rebind(calls[0], y), TUTTI_ERR_ARG,
            "prepared all_reduce of group world: x lies on strict:1, as it was prepared on "
            "strict:0");
    tutti_prepared_release(calls[1]);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, z, TUTTI_SUM, &calls[1]) == TUTTI_OK);
    REFUSED(m, tutti_prepared_start_all(calls, 2, NULL), TUTTI_ERR_ARG,
            "prepared_start_all: call 1, all_reduce, is on the host, the first one on strict:0");
    tutti_prepared_release(calls[0]);
    tutti_prepared_release(calls[1]);
    expect_values(&p, x, 0, 1);
    close_place(&host);
    close_place(&p);
    close_place(&other);
}

static void devices_are_not_mixed(void **state)
{
    (void)state;
    run(1, mix_devices);
}

static void mix_messages(tt_member_t *m)
{
    place_t p = {.m = m}, host = {.m = m};
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 0), *y = make(&host, 4, 0);
    const tutti_transfer_t all[] = {{TUTTI_SEND, x, 1 - m->rank, 0},
                                    {TUTTI_RECV, y, 1 - m->rank, 0}};
    char want[200];
    snprintf(want, sizeof want,
             "batch_send_recv: transfer 1: recv: tensors of strict:%d and of the host in one "
             "batch; bring them to one device (tutti_tensor_to)",
             m->rank);
    REFUSED(m, tutti_batch_send_recv(m->group, all, 2, NULL), TUTTI_ERR_ARG, want);
    close_place(&p);
    close_place(&host);
}

static void messages_of_a_batch_lie_in_one_place(void **state)
{
    (void)state;
    run(2, mix_messages);
}

/* ---- prepared calls -------------------------------------------------------------------------- */

enum { FORMS = 4 };

static void prepare_forms(place_t *p, tutti_prepared_t **calls)
{
    tutti_group_t *g = p->m->group;
    const int64_t counts[] = {1, 2};
    const double factor = 0.5;
    tutti_tensor_t *ins[2] = {make(p, 4, 1), make(p, 4, 2)};
    const tutti_contributions_t leaves = {
        .count = 2, .pieces = ins, .piece_count = 1, .dtype = TUTTI_F32};
    tutti_tensor_t *part = make(p, counts[p->m->rank], 1);
    TT_EXPECT(p->m, tutti_prepare_all_gather_uneven(g, make(p, 3, 0), part, counts, &calls[0]) ==
                        TUTTI_OK);
    TT_EXPECT(p->m, tutti_prepare_all_reduce_with(g, make(p, 4, 4), TUTTI_PREMUL_SUM,
                                                  &(tutti_reduce_options_t){.factor = &factor},
                                                  &calls[1]) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_prepare_reduce_scatter_list(g, make(p, 4, 0), ins, TUTTI_SUM,
                                                      &calls[2]) == TUTTI_OK);
    TT_EXPECT(p->m, tutti_prepare_all_reduce_contributions(g, &leaves, make(p, 4, 0), TUTTI_SUM,
                                                           &calls[3]) == TUTTI_OK);
}

/* Twice each, and all together, on the host and on the device. */
static void start_forms(tt_member_t *m)
{
    place_t host = {.m = m}, device = {.m = m};
    place_t *places[] = {&host, &device};
    open_place(&device);
    for (int i = 0; i < 2; i++) {
        tutti_prepared_t *calls[FORMS];
        tutti_work_t *work = NULL;
        prepare_forms(places[i], calls);
        for (int c = 0; c < FORMS; c++) {
            TT_EXPECT(m, tutti_prepared_start(calls[c], NULL) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_prepared_start_all(calls, FORMS, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        for (int c = 0; c < FORMS; c++) {
            tutti_prepared_release(calls[c]);
        }
        tutti_work_release(work);
    }
    expect_same(&host, &device);
    close_place(&host);
    close_place(&device);
}

static void prepared_calls_have_the_values_of_the_host(void **state)
{
    (void)state;
    run(2, start_forms);
}

static void rebind_and_start(tt_member_t *m)
{
    place_t p = {.m = m};
    tutti_prepared_t *sum;
    tutti_work_t *works[2];
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&p, 4, 5);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x, TUTTI_SUM, &sum) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(sum, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(sum, &works[1]) == TUTTI_OK); /* in order */
    TT_EXPECT(m, tutti_prepared_rebind(sum, y) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(sum, NULL) == TUTTI_OK);
    tutti_prepared_release(sum);
    TT_EXPECT(m, tutti_work_wait_all(works, 2) == TUTTI_OK);
    expect_values(&p, x, 4, 4);
    expect_values(&p, y, 10, 2);
    tutti_work_release(works[0]);
    tutti_work_release(works[1]);
    close_place(&p);
}

static void a_prepared_call_starts_again_behind_itself(void **state)
{
    (void)state;
    run(2, rebind_and_start);
}

/* ---- aborts, ranks that go ------------------------------------------------------------------- */

/* Rank 1 never comes; the deadline is far away. A second call stands behind the first. */
static void abort_what_hangs(tt_member_t *m)
{
    place_t p = {.m = m};
    tutti_work_t *work = NULL;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&p, 4, 1);
    const int64_t begin = tt_clock_ns();
    int index;
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, y, TUTTI_SUM, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_test(work) == TUTTI_PENDING);
        tutti_group_abort(m->group);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 0 aborted group world") != NULL);
        TT_EXPECT(m, tutti_work_wait_any(&work, 1, &index) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, tutti_tensor_fill(x, 2) == TUTTI_OK);
        expect_values(&p, x, 2, 0); /* the device is free */
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, y, TUTTI_SUM, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait_any(&work, 1, &index) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ABORTED);
    }
    TT_EXPECT(m, tt_clock_ns() - begin < INT64_C(5000000000));
    tutti_work_release(work);
    close_place(&p);
}

static void a_call_that_hangs_is_aborted(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, abort_what_hangs, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* The kernel in front of the call takes longer than the abort. */
static void abort_behind_a_kernel(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = INT64_C(400000000)};
    open_place(&p);
    tutti_tensor_t *x = make_unset(&p, 4);
    TT_EXPECT(m, tutti_tensor_fill(x, 3) == TUTTI_OK);
    const tt_event_t filled = tt_stream_event(tt_device_stream(p.device));
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    tutti_group_abort(m->group);
    TT_EXPECT(m, !tt_event_is_done(filled));
    TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "all_reduce: rank 0 aborted group world") != NULL);
    close_place(&p);
}

static void an_abort_does_not_wait_for_kernels(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, abort_behind_a_kernel, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void leave_in_the_middle(tt_member_t *m)
{
    place_t p = {.m = m};
    open_place(&p);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_all_reduce(m->group, make(&p, 4, 1), TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_PEER);
        TT_EXPECT(m, strstr(tutti_last_error(), "f32[4] of group world") != NULL);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1 ") != NULL);
    }
    close_place(&p);
}

static void a_rank_that_leaves_is_named_with_the_call(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, leave_in_the_middle, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_waits_for_a_work_when_it_is_told_to),
        cmocka_unit_test(the_stream_of_who_waits_waits),
        cmocka_unit_test(a_device_waits_for_a_work_that_is_released),
        cmocka_unit_test(a_work_keeps_what_its_call_needs),
        cmocka_unit_test(the_host_may_wait_for_any_of_several),
        cmocka_unit_test(a_work_tells_what_failed),
        cmocka_unit_test(batches_are_exchanged_between_devices_and_hosts),
        cmocka_unit_test(coalesced_calls_are_those_of_the_host),
        cmocka_unit_test(devices_are_not_mixed),
        cmocka_unit_test(messages_of_a_batch_lie_in_one_place),
        cmocka_unit_test(prepared_calls_have_the_values_of_the_host),
        cmocka_unit_test(a_prepared_call_starts_again_behind_itself),
        cmocka_unit_test(a_call_that_hangs_is_aborted),
        cmocka_unit_test(an_abort_does_not_wait_for_kernels),
        cmocka_unit_test(a_rank_that_leaves_is_named_with_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
