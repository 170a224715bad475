/* Streams and events of devices: order between them, overlap, memory that several use, time, and
 * what is asked of them wrongly. */
#include "core/base/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/op_math.h>
#include <tutti/tensor.h>

#include "core/device/device.h"

typedef struct {
    int gate;  /* that it waits for */
    int fails; /* behind that */
} gate_t;

static atomic_bool is_open[2];
static atomic_int waiting; /* kernels, now */

static tutti_status_t run_gate(tt_threads_t *threads, const void *arguments)
{
    const gate_t *gate = arguments;
    (void)threads;
    atomic_fetch_add(&waiting, 1);
    while (!atomic_load(&is_open[gate->gate])) {
        usleep(100);
    }
    atomic_fetch_sub(&waiting, 1);
    return gate->fails ? TT_FAIL(TUTTI_ERR_ARG, "it fails") : TUTTI_OK;
}

static const tt_pointer_t no_pointers[] = {TT_NO_POINTER};
static const tt_kernel_t gate_kernel = TT_KERNEL("gate", gate_t, run_gate, no_pointers);

typedef struct {
    tutti_device_t *device;
    tutti_stream_t *own, *side;
    tutti_event_t *event;
    tutti_tensor_t *host, *x; /* [64] f32: pinned; on the device */
    tutti_context_t *ctx;
    tutti_scope_t *s;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    const tutti_device_options_t options = {.memory_bytes = 4 << 20};
    assert_int_equal(tutti_device_open("strict:0", &options, &f.device), 0);
    assert_int_equal(tutti_stream_create(f.device, &f.side), 0);
    assert_int_equal(tutti_event_create(&f.event), 0);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = f.device}, &f.ctx),
                     0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    f.own = tutti_device_stream(f.device);
    f.x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(64), 3);
    f.host = tutti_empty_pinned(f.s, TUTTI_F32, TUTTI_SHAPE(64));
    assert_int_equal(tutti_tensor_fill(f.host, 7), 0);
    assert_int_equal(tutti_device_synchronize(f.device, 0), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    tutti_event_release(f->event);
    tutti_stream_release(f->side);
    tutti_device_release(f->device);
    return 0;
}

static void use(const fixture_t *f, tutti_stream_t *stream)
{
    assert_int_equal(tutti_device_set_stream(f->device, stream), 0);
    assert_ptr_equal(tutti_device_stream(f->device), stream == NULL ? f->own : stream);
}

/* What is behind it in the calling thread's stream waits for open_gate(). */
static void close_gate(const fixture_t *f, int gate, bool fails)
{
    atomic_store(&is_open[gate], false);
    assert_int_equal(tt_launch(tt_device_exec(f->device), &gate_kernel, &(gate_t){gate, fails}), 0);
}

static void open_gate(int gate)
{
    atomic_store(&is_open[gate], true);
}

static void expect_last(const tutti_tensor_t *x, double value)
{
    assert_true(tutti_tensor_at(x, 63) == value);
}

static void a_copy_overlaps_a_kernel(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *y = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(64));
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    close_gate(f, 0, false);
    use(f, f->side);
    assert_int_equal(tutti_tensor_copy(y, f->host), 0);
    assert_int_equal(tutti_stream_synchronize(f->side, 0), 0);
    expect_last(y, 7); /* reads on this thread's stream, while the other one computes */
    use(f, NULL);
    assert_false(tt_event_is_done(tt_stream_event(f->own)));
    open_gate(0);
}

static void kernels_of_two_streams_run_at_once(void **state)
{
    const fixture_t *f = *state;
    close_gate(f, 0, false);
    use(f, f->side);
    close_gate(f, 1, false);
    const tt_deadline_t deadline = tt_deadline_in_ms(10000);
    while (atomic_load(&waiting) < 2) {
        assert_false(tt_deadline_is_past(deadline));
        usleep(100);
    }
    open_gate(0);
    open_gate(1);
    use(f, NULL);
}

static void a_stream_waits_for_an_event_of_another(void **state)
{
    const fixture_t *f = *state;
    close_gate(f, 0, false);
    assert_int_equal(tutti_tensor_fill(f->x, 5), 0);
    assert_int_equal(tutti_event_record(f->event, f->own), 0);
    assert_false(tutti_event_is_done(f->event));
    assert_int_equal(tutti_event_synchronize(f->event, 1), TUTTI_ERR_TIMEOUT);
    assert_int_equal(tutti_stream_wait_event(f->side, f->event), 0);
    use(f, f->side);
    assert_int_equal(tutti_tensor_copy(f->host, f->x), 0);
    assert_int_equal(tutti_stream_synchronize(f->side, 1), TUTTI_ERR_TIMEOUT);
    expect_last(f->host, 7);
    open_gate(0);
    assert_int_equal(tutti_stream_synchronize(f->side, 0), 0);
    expect_last(f->host, 5);
    assert_true(tutti_event_is_done(f->event));
    use(f, NULL);
}

static void a_device_waits_for_an_event_of_another(void **state)
{
    const fixture_t *f = *state;
    tutti_device_t *other;
    assert_int_equal(tutti_device_open("strict:1", NULL, &other), 0);
    tutti_stream_t *others = tutti_device_stream(other);
    close_gate(f, 0, false);
    assert_int_equal(tutti_event_record(f->event, f->own), 0);
    assert_int_equal(tutti_stream_wait_event(others, f->event), 0);
    assert_int_equal(tutti_event_record(f->event, others), 0);
    assert_int_equal(tutti_device_synchronize(other, 1), TUTTI_ERR_TIMEOUT);
    open_gate(0);
    assert_int_equal(tutti_event_synchronize(f->event, 0), 0);
    tutti_device_release(other);
    assert_int_equal(tutti_event_synchronize(f->event, 0), 0);
    assert_true(tutti_event_is_done(f->event));
}

/* The target waits; then it fails, and takes nobody with it. */
static void what_fails_on_one_device_is_copied_to_it_in_vain(void **state)
{
    const fixture_t *f = *state;
    for (int fails = 0; fails < 2; fails++) {
        tutti_device_t *other;
        assert_int_equal(tutti_device_open("strict:1", NULL, &other), 0);
        assert_int_equal(tutti_tensor_fill(f->x, 5), 0);
        const fixture_t target = {.device = other};
        close_gate(&target, 0, fails);
        tutti_tensor_t *y = tutti_tensor_to(f->s, f->x, other);
        assert_int_equal(tutti_tensor_fill(f->x, 6), 0);
        tutti_tensor_t *z = tutti_neg(f->s, f->x);
        assert_int_equal(tutti_device_synchronize(f->device, 1), TUTTI_ERR_TIMEOUT);
        open_gate(0);
        assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
        expect_last(z, -6);
        if (!fails) {
            expect_last(y, 5);
        }
        assert_int_equal(tutti_device_synchronize(other, 0), fails ? TUTTI_ERR_ARG : 0);
        tutti_device_release(other);
    }
}

static void the_device_waits_for_all_its_streams(void **state)
{
    const fixture_t *f = *state;
    use(f, f->side);
    close_gate(f, 0, true);
    use(f, NULL);
    assert_int_equal(tutti_device_synchronize(f->device, 1), TUTTI_ERR_TIMEOUT);
    open_gate(0);
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    tt_expect_error("strict:0: gate: it fails");
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
}

static void an_event_tells_the_failure_before_it_and_leaves_it(void **state)
{
    const fixture_t *f = *state;
    close_gate(f, 0, true);
    assert_int_equal(tutti_event_record(f->event, f->own), 0);
    assert_int_equal(tutti_stream_wait_event(f->side, f->event), 0);
    open_gate(0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_event_synchronize(f->event, 0), TUTTI_ERR_ARG);
        tt_expect_error("strict:0: gate: it fails");
        assert_int_equal(tutti_stream_synchronize(f->side, 0), TUTTI_ERR_ARG);
    }
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_stream_synchronize(f->own, 0), 0); /* it is over there */
    assert_int_equal(tutti_stream_synchronize(f->side, 0), 0);
    assert_int_equal(tutti_event_record(f->event, f->own), 0);
    assert_int_equal(tutti_event_synchronize(f->event, 0), 0);
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
}

/* The first block is in use by its own stream, and by another one. */
static void a_released_block_is_used_again_behind_all_streams(void **state)
{
    const fixture_t *f = *state;
    enum { BYTES = 1 << 20 };
    void *first = tt_device_alloc(f->device, BYTES, "first");
    close_gate(f, 0, false);
    use(f, f->side);
    close_gate(f, 1, false);
    tt_device_free(f->device, first, BYTES);
    const size_t live = tutti_device_stats(f->device).live_bytes;
    for (int gate = 0; gate < 2; gate++) {
        void *other = tt_device_alloc(f->device, BYTES, "other");
        assert_non_null(other);
        assert_ptr_not_equal(other, first);
        tt_device_free(f->device, other, BYTES);
        open_gate(gate);
        assert_int_equal(tutti_stream_synchronize(gate == 0 ? f->own : f->side, 0), 0);
    }
    assert_true(tutti_device_stats(f->device).live_bytes <= live - BYTES);
    void *again = tt_device_alloc(f->device, BYTES, "again");
    assert_ptr_equal(again, first);
    tt_device_free(f->device, again, BYTES);
    use(f, NULL);
}

static void *open_later(void *unused)
{
    usleep(20000);
    open_gate(0);
    return unused;
}

static void want_of_memory_waits_for_released_blocks(void **state)
{
    const fixture_t *f = *state;
    enum { BYTES = 3 << 20 };
    pthread_t thread;
    void *first = tt_device_alloc(f->device, BYTES, "first");
    close_gate(f, 0, false);
    tt_device_free(f->device, first, BYTES);
    assert_int_equal(pthread_create(&thread, NULL, open_later, NULL), 0);
    void *second = tt_device_alloc(f->device, BYTES, "second");
    assert_non_null(second);
    assert_true(atomic_load(&is_open[0]));
    tt_device_free(f->device, second, BYTES);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Without memory to remember the block, the streams wait for each other. */
static void a_block_that_cannot_be_remembered_is_safe(void **state)
{
    const fixture_t *f = *state;
    enum { BYTES = 1 << 20 };
    void *first = tt_device_alloc(f->device, BYTES, "first");
    close_gate(f, 0, false);
    tt_alloc_fail_at(1);
    tt_device_free(f->device, first, BYTES);
    assert_true(tt_alloc_has_failed());
    tt_alloc_fail_at(0);
    void *again = tt_device_alloc(f->device, BYTES, "again");
    assert_ptr_equal(again, first);
    assert_int_equal(tutti_stream_synchronize(f->side, 1), TUTTI_ERR_TIMEOUT);
    open_gate(0);
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    tt_device_free(f->device, again, BYTES);
}

static void time_between_events_is_that_of_the_work(void **state)
{
    (void)state;
    tutti_device_t *device;
    tutti_event_t *begin, *end;
    int64_t ns = -1;
    const tutti_device_options_t slow = {.launch_ns = 5 * TT_NS_PER_MS};
    assert_int_equal(tutti_device_open("strict:2", &slow, &device), 0);
    assert_int_equal(tutti_event_create(&begin), 0);
    assert_int_equal(tutti_event_create(&end), 0);
    assert_int_equal(tutti_event_elapsed_ns(begin, end, &ns), TUTTI_ERR_STATE);
    tt_expect_error("the begin has not been recorded");
    assert_true(tutti_event_is_done(end) && tutti_event_synchronize(end, 0) == 0);
    tutti_stream_t *own = tutti_device_stream(device);
    assert_int_equal(tutti_event_record(begin, own), 0);
    open_gate(0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tt_launch(tt_device_exec(device), &gate_kernel, &(gate_t){0, 0}), 0);
    }
    assert_int_equal(tutti_event_record(end, own), 0);
    assert_int_equal(tutti_event_elapsed_ns(begin, end, &ns), TUTTI_ERR_STATE);
    tt_expect_error("has not been passed: synchronize it");
    assert_int_equal(ns, -1);
    tutti_event_release(tutti_event_retain(end));
    assert_int_equal(tutti_event_synchronize(end, 0), 0);
    assert_int_equal(tutti_event_elapsed_ns(begin, end, &ns), 0);
    assert_true(ns >= 20 * TT_NS_PER_MS && ns < 2000 * TT_NS_PER_MS);
    assert_int_equal(tutti_event_elapsed_ns(end, begin, &ns), 0);
    assert_true(ns <= -20 * TT_NS_PER_MS);
    tutti_event_release(begin);
    tutti_event_release(end);
    tutti_device_release(device);
}

static void where_all_is_done_at_once_all_is_legal(void **state)
{
    const fixture_t *f = *state;
    const char *names[] = {"cpu", "meta", NULL};
    for (int i = 0; i < 3; i++) {
        tutti_device_t *device = NULL;
        tutti_stream_t *stream = f->side;
        int64_t ns = -1;
        if (names[i] != NULL) {
            assert_int_equal(tutti_device_open(names[i], NULL, &device), 0);
        }
        assert_int_equal(tutti_stream_create(device, &stream), 0);
        assert_null(stream);
        assert_null(tutti_device_stream(device));
        assert_int_equal(tutti_device_set_stream(device, stream), 0);
        assert_int_equal(tutti_device_set_stream(device, f->side), TUTTI_ERR_ARG);
        assert_int_equal(tutti_event_record(f->event, stream), 0);
        assert_true(tutti_event_is_done(f->event));
        assert_int_equal(tutti_event_elapsed_ns(f->event, f->event, &ns), 0);
        assert_int_equal(ns, 0);
        assert_int_equal(tutti_stream_wait_event(stream, f->event), 0);
        assert_int_equal(tutti_stream_wait_event(f->side, f->event), 0);
        assert_int_equal(tutti_stream_synchronize(stream, 0), 0);
        tutti_stream_release(stream);
        tutti_device_release(device);
    }
}

static void the_host_waits_for_an_event(void **state)
{
    const fixture_t *f = *state;
    pthread_t thread;
    close_gate(f, 0, false);
    assert_int_equal(tutti_event_record(f->event, f->own), 0);
    assert_int_equal(pthread_create(&thread, NULL, open_later, NULL), 0);
    assert_int_equal(tutti_stream_wait_event(NULL, f->event), 0);
    assert_true(tutti_event_is_done(f->event));
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *see_own(void *user)
{
    const fixture_t *f = user;
    return tutti_device_stream(f->device);
}

static void each_thread_has_its_own(void **state)
{
    fixture_t *f = *state;
    pthread_t thread;
    void *seen;
    use(f, f->side);
    assert_int_equal(pthread_create(&thread, NULL, see_own, f), 0);
    assert_int_equal(pthread_join(thread, &seen), 0);
    assert_ptr_equal(seen, f->own);
    use(f, NULL);
}

static void streams_that_are_released_are_used_again(void **state)
{
    fixture_t *f = *state;
    enum { MORE = TT_DEVICE_STREAMS_MAX - 2 };
    tutti_stream_t *before = f->side, *more[MORE], *one_more;
    tutti_stream_release(f->side);
    assert_int_equal(tutti_stream_create(f->device, &f->side), 0);
    assert_ptr_equal(f->side, before);
    for (int i = 0; i < MORE; i++) {
        assert_int_equal(tutti_stream_create(f->device, &more[i]), 0);
    }
    assert_int_equal(tutti_stream_create(f->device, &one_more), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("stream_create: 31 streams of strict:0 are in use: release one");
    for (int i = 0; i < MORE; i++) {
        tutti_stream_release(more[i]);
    }
}

static void a_new_stream_begins_behind_the_first(void **state)
{
    const fixture_t *f = *state;
    tutti_stream_t *stream;
    close_gate(f, 0, false);
    assert_int_equal(tutti_stream_create(f->device, &stream), 0);
    assert_int_equal(tutti_stream_synchronize(stream, 1), TUTTI_ERR_TIMEOUT);
    open_gate(0);
    assert_int_equal(tutti_stream_synchronize(stream, 0), 0);
    tutti_stream_release(stream);
}

static void streams_of_other_and_closed_devices_are_refused(void **state)
{
    const fixture_t *f = *state;
    tutti_device_t *other;
    tutti_stream_t *stream;
    assert_int_equal(tutti_device_open("strict:1", NULL, &other), 0);
    assert_int_equal(tutti_stream_create(other, &stream), 0);
    assert_int_equal(tutti_device_set_stream(f->device, stream), TUTTI_ERR_ARG);
    tt_expect_error("device_set_stream: the stream is not one of strict:0");
    assert_int_equal(tutti_device_set_stream(other, stream), 0);
    assert_int_equal(tutti_event_record(f->event, stream), 0);
    tutti_device_release(other);
    assert_int_equal(tutti_event_synchronize(f->event, 0), 0);
    assert_int_equal(tutti_event_record(f->event, stream), TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "strict:1 has closed: its streams take no more work");
    assert_int_equal(tutti_stream_wait_event(stream, f->event), TUTTI_ERR_STATE);
    assert_int_equal(tutti_stream_synchronize(stream, 0), TUTTI_ERR_STATE);
    assert_int_equal(tutti_device_set_stream(f->device, stream), TUTTI_ERR_STATE);
    assert_int_equal(tutti_stream_wait_event(f->side, f->event), 0);
    assert_int_equal(tutti_device_open("strict:1", NULL, &other), 0);
    assert_ptr_not_equal(tutti_device_stream(other), stream);
    tutti_stream_release(stream);
    tutti_device_release(other);
}

static void negative_timeouts_are_refused(void **state)
{
    const fixture_t *f = *state;
    assert_int_equal(tutti_event_synchronize(f->event, -1), TUTTI_ERR_ARG);
    tt_expect_error("event_synchronize: timeout_ms is -1: want at least 0");
    assert_int_equal(tutti_stream_synchronize(NULL, -5), TUTTI_ERR_ARG);
    tt_expect_error("stream_synchronize: timeout_ms is -5");
}

static int use_in_a_child(const fixture_t *f)
{
    tutti_stream_t *stream;
    const bool is_refused = tutti_stream_create(f->device, &stream) == TUTTI_ERR_STATE &&
                            tutti_event_record(f->event, f->side) == TUTTI_ERR_STATE &&
                            tutti_stream_wait_event(f->side, f->event) == TUTTI_ERR_STATE &&
                            tutti_stream_synchronize(f->side, 0) == TUTTI_ERR_STATE &&
                            tutti_event_synchronize(f->event, 0) == TUTTI_ERR_STATE;
    return is_refused ? 0 : 1;
}

static void a_forked_child_is_told(void **state)
{
    const fixture_t *f = *state;
    int status = -1;
    assert_int_equal(tutti_event_record(f->event, f->side), 0);
    const pid_t child = fork();
    if (child == 0) {
        _exit(use_in_a_child(f));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_wait_that_is_too_long_takes_no_failure(void **state)
{
    const fixture_t *f = *state;
    close_gate(f, 0, false);
    use(f, f->side);
    close_gate(f, 1, true);
    open_gate(1);
    use(f, NULL);
    assert_int_equal(tutti_stream_synchronize(f->side, 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_device_synchronize(f->device, 20), TUTTI_ERR_TIMEOUT);
    open_gate(0);
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    tt_expect_error("it fails");
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_copy_overlaps_a_kernel),
        TEST(kernels_of_two_streams_run_at_once),
        TEST(a_stream_waits_for_an_event_of_another),
        TEST(a_device_waits_for_an_event_of_another),
        TEST(what_fails_on_one_device_is_copied_to_it_in_vain),
        TEST(the_device_waits_for_all_its_streams),
        TEST(an_event_tells_the_failure_before_it_and_leaves_it),
        TEST(a_released_block_is_used_again_behind_all_streams),
        TEST(want_of_memory_waits_for_released_blocks),
        TEST(a_block_that_cannot_be_remembered_is_safe),
        TEST(time_between_events_is_that_of_the_work),
        TEST(where_all_is_done_at_once_all_is_legal),
        TEST(the_host_waits_for_an_event),
        TEST(each_thread_has_its_own),
        TEST(streams_that_are_released_are_used_again),
        TEST(a_new_stream_begins_behind_the_first),
        TEST(streams_of_other_and_closed_devices_are_refused),
        TEST(negative_timeouts_are_refused),
        TEST(a_wait_that_is_too_long_takes_no_failure),
        TEST(a_forked_child_is_told),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
