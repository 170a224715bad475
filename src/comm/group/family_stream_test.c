/* The family's stream beside calls of the host: what a call keeps from when it was issued, whose
 * failure is told to whom, and who waits for how long. */
#include "core/base/testing.h"

#include "comm/group/group_place.h"

/* ---- what a call keeps ----------------------------------------------------------------------- */

/* In each form, with a tag of its own each time. */
static void call_with_tags(place_t *p, uint64_t tag)
{
    tutti_group_t *group = p->m->group;
    tutti_prepared_t *prepared;
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *x = make(p, 4, 1), *large = make(p, 64, 1);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_tensor_fill(x, 1) == TUTTI_OK); /* takes long on one rank */
        TT_EXPECT(p->m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_prepare_all_reduce(group, large, TUTTI_SUM, &prepared) == TUTTI_OK);
        TT_EXPECT(p->m, tutti_prepared_start(prepared, NULL) == TUTTI_OK);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_coalesce_begin(group) == TUTTI_OK);
        TT_EXPECT(p->m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_broadcast(group, x, 0, NULL) == TUTTI_OK);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_all_reduce(group, large, TUTTI_MAX, NULL) == TUTTI_OK);
        tutti_group_set_tag(group, ++tag);
        TT_EXPECT(p->m, tutti_coalesce_end(group, NULL) == TUTTI_OK);
        tutti_prepared_release(prepared);
    }
    tutti_group_set_tag(group, ++tag);
}

/* One device is slow, one rank has none: the tags of calls are those of when they were issued. */
static void tag_calls(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = m->rank == 1 ? INT64_C(50000000) : 0}, host = {.m = m};
    open_place(&p);
    call_with_tags(m->rank == 2 ? &host : &p, 0);
    TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    close_place(&p);
    close_place(&host);
}

static void a_call_has_the_tag_of_when_it_was_issued(void **state)
{
    (void)state;
    tt_team_expect(3, 20000, tag_calls, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- whose failure it is --------------------------------------------------------------------- */

static tutti_group_t *make_group(tt_member_t *m)
{
    tutti_group_t *group = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &group) == TUTTI_OK);
    return group;
}

/* A call of the world fails, for rank 1's device has; all of this is of another group. */
static void use_another_group(tt_member_t *m)
{
    place_t p = {.m = m}, host = {.m = m};
    tutti_work_t *works[2] = {NULL};
    int index = -1;
    open_place(&p);
    tutti_group_t *other = make_group(m);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&host, 4, 1), *z = make(&p, 4, m->rank);
    TT_EXPECT(m, tutti_all_reduce(other, y, TUTTI_SUM, &works[1]) == TUTTI_OK);
    if (m->rank == 1) {
        spoil(&p);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &works[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(works[1], 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(other, NULL) == TUTTI_OK); /* made, as the others make it */
    TT_EXPECT(m, tutti_work_wait_any(works, 2, &index) == TUTTI_ERR_ARG && index == 0);
    TT_EXPECT(m, tutti_work_wait_any(&works[1], 1, &index) == TUTTI_OK && index == 0);
    tutti_work_release(works[0]); /* here the device is told */
    TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_all_reduce(other, z, TUTTI_SUM, NULL) == TUTTI_OK); /* it is over there */
    expect_values(&p, z, 1, 2);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ARG); /* the group stays given up */
    TT_EXPECT(m, strstr(tutti_last_error(), "strict:1: gather: index 9 is outside") != NULL);
    TT_EXPECT(m, tutti_barrier(other, NULL) == TUTTI_OK);
    tutti_work_release(works[1]);
    tutti_group_release(other);
    close_place(&p);
    close_place(&host);
}

static void a_failure_is_that_of_its_group_and_its_device(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, use_another_group, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Between two calls on one device stands one that fails on another. */
static void fail_on_one_of_two_devices(tt_member_t *m)
{
    place_t p = {.m = m}, lost = {.m = m, .number = 2};
    open_place(&p);
    open_place(&lost);
    tutti_group_t *other = make_group(m);
    tutti_tensor_t *x = make(&p, 4, m->rank), *y = make(&lost, 4, 1), *z = make(&p, 4, m->rank);
    TT_EXPECT(m, tutti_all_reduce(other, x, TUTTI_SUM, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        spoil(&lost);
    }
    TT_EXPECT(m, tutti_all_reduce(m->group, y, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(other, z, TUTTI_SUM, NULL) == TUTTI_OK);
    expect_values(&p, x, 1, 2);
    expect_values(&p, z, 1, 2);
    TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_synchronize(lost.device, 0) == TUTTI_ERR_ARG);
    tutti_group_release(other);
    close_place(&p);
    close_place(&lost);
}

static void a_device_that_fails_leaves_others_alone(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, fail_on_one_of_two_devices, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- who waits ------------------------------------------------------------------------------- */

/* Rank 1 enters the device's call when rank 0 has looked at all that does not wait for it. */
static void look_meanwhile(tt_member_t *m)
{
    place_t p = {.m = m}, host = {.m = m};
    tutti_work_t *works[2] = {NULL};
    tutti_message_info_t info;
    int index = -1;
    open_place(&p);
    tutti_tensor_t *x = make(&p, 4, 1), *y = make(&host, 4, 0);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_recv(m->group, y, 1, 3, &works[0]) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &works[1]) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_test(works[0]) == TUTTI_PENDING);
        TT_EXPECT(m, !tutti_work_is_done(works[0]));
        TT_EXPECT(m, tutti_work_wait(works[0], 10) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_iprobe(m->group, 1, 4, &info) == TUTTI_PENDING);
        tutti_group_progress(m->group);
        tt_member_tell(m);
        TT_EXPECT(m, tutti_work_wait_any(works, 2, &index) == TUTTI_OK);
        TT_EXPECT(m, index == 1);
        tt_member_tell(m);
        TT_EXPECT(m, tutti_work_wait_any(works, 1, &index) == TUTTI_OK && index == 0);
        expect_values(&host, y, 5, 1);
    } else {
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        tt_member_await(m, 2);
        TT_EXPECT(m, tutti_send(m->group, make(&host, 4, 5), 0, 3, NULL) == TUTTI_OK);
    }
    expect_values(&p, x, 2, 2);
    tutti_work_release(works[0]);
    tutti_work_release(works[1]);
    close_place(&p);
    close_place(&host);
}

static void looks_do_not_wait_for_calls_on_devices(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, look_meanwhile, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Rank 0's call waits for a kernel; its message, which is under way, does not. */
static void send_beside_a_kernel(tt_member_t *m)
{
    enum { COUNT = 1 << 16 };
    place_t p = {.m = m, .launch_ns = m->rank == 0 ? INT64_C(1000000000) : 0};
    tutti_tensor_t *large = NULL, *x;
    tutti_work_t *work = NULL;
    open_place(&p);
    x = make_unset(&p, 4);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(COUNT), &large) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_send(m->group, large, 1, 3, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
        const tt_event_t filled = tt_stream_event(tt_device_stream(p.device));
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        tt_member_await(m, 1);
        TT_EXPECT(m, !tt_event_is_done(filled));
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_recv(m->group, large, 0, 3, NULL) == TUTTI_OK);
        tt_member_tell(m);
        TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    expect_values(&p, x, 2, 0);
    tutti_work_release(work);
    tutti_tensor_release(large);
    close_place(&p);
}

static void a_message_moves_while_a_call_waits_for_a_kernel(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, send_beside_a_kernel, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* The kernel takes five times the group's deadline. */
static void call_behind_a_stuck_kernel(tt_member_t *m)
{
    place_t p = {.m = m, .launch_ns = INT64_C(1500000000)};
    const int64_t begin = tt_clock_ns();
    if (m->rank == 0) {
        open_place(&p);
        tutti_tensor_t *x = make_unset(&p, 4);
        TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strcmp(tutti_last_error(),
                            "group world: calls on tensors of devices are not done in 300 ms, so "
                            "rank 0 gives the group up: a call behind them cannot be made") == 0);
        TT_EXPECT(m, tt_clock_ns() - begin < INT64_C(1200000000));
        tt_member_tell(m);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, tutti_device_synchronize(p.device, 0) == TUTTI_ERR_ABORTED);
    } else {
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, strstr(tutti_last_error(),
                            "rank 0 gave the group up: group world: calls on tensors of "
                            "devices are not done in 300 ms") != NULL);
    }
    close_place(&p);
}

static void a_call_behind_a_stuck_device_ends_with_its_deadline(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 300, call_behind_a_stuck_kernel, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void use_many_devices(tt_member_t *m)
{
    enum { DEVICES = 20 };
    for (int i = 0; i < DEVICES; i++) {
        place_t p = {.m = m, .number = i * m->size, .memory_bytes = 1 << 20};
        open_place(&p);
        tutti_tensor_t *x = make(&p, 4, i);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        expect_values(&p, x, (float)(i * m->size), (float)m->size);
        close_place(&p);
    }
}

static void a_process_uses_as_many_devices_as_it_likes(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, use_many_devices, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_has_the_tag_of_when_it_was_issued),
        cmocka_unit_test(a_failure_is_that_of_its_group_and_its_device),
        cmocka_unit_test(a_device_that_fails_leaves_others_alone),
        cmocka_unit_test(looks_do_not_wait_for_calls_on_devices),
        cmocka_unit_test(a_message_moves_while_a_call_waits_for_a_kernel),
        cmocka_unit_test(a_call_behind_a_stuck_device_ends_with_its_deadline),
        cmocka_unit_test(a_process_uses_as_many_devices_as_it_likes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
