/* What one thread does with a device while another one releases a block, or launches. */
#include "core/base/testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include <tutti/devices.h>

#include "core/device/device.h"

enum { ROUNDS = 1000, BLOCK_BYTES = 3 << 20 }; /* one block is all that there is */

typedef struct {
    tutti_device_t *device;
    tutti_stream_t *side;
    tutti_event_t *event;
    atomic_int round; /* that the other thread is to do */
    atomic_int done;
    atomic_bool is_recorded; /* the event, in this round */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){0};
    const tutti_device_options_t options = {.memory_bytes = 4 << 20};
    assert_int_equal(tutti_device_open("strict:0", &options, &f.device), 0);
    assert_int_equal(tutti_stream_create(f.device, &f.side), 0);
    assert_int_equal(tutti_event_create(&f.event), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_event_release(f->event);
    tutti_stream_release(f->side);
    tutti_device_release(f->device);
    return 0;
}

static void await(const atomic_int *value, int least)
{
    while (atomic_load(value) < least) {
        sched_yield();
    }
}

static const tt_pointer_t no_pointers[] = {TT_NO_POINTER};

/* Fails if it stands behind the event. */
static tutti_status_t run_look(tt_threads_t *threads, const void *arguments)
{
    fixture_t *f = *(fixture_t *const *)arguments;
    int64_t ns;
    (void)threads;
    while (!atomic_load(&f->is_recorded)) {
        sched_yield();
    }
    return tutti_event_elapsed_ns(f->event, f->event, &ns) < 0 ? TUTTI_OK
                                                               : TT_FAIL(TUTTI_ERR_ARG, "it fails");
}

static void launch_look(fixture_t *f)
{
    static const tt_kernel_t look = TT_KERNEL("look", fixture_t *, run_look, no_pointers);
    assert_int_equal(tt_launch(tt_device_exec(f->device), &look, &f), 0);
}

static void *launch_looks(void *user)
{
    fixture_t *f = user;
    for (int round = 1; round <= ROUNDS; round++) {
        await(&f->round, round);
        launch_look(f);
        atomic_store(&f->done, round);
    }
    return NULL;
}

static void an_event_tells_no_failure_behind_it(void **state)
{
    fixture_t *f = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, launch_looks, f), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_store(&f->is_recorded, false);
        atomic_store(&f->round, round);
        assert_int_equal(tutti_event_record(f->event, tutti_device_stream(f->device)), 0);
        atomic_store(&f->is_recorded, true);
        assert_int_equal(tutti_event_synchronize(f->event, 0), 0);
        await(&f->done, round);
        (void)tutti_device_synchronize(f->device, 0); /* ends the failure behind it */
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *look_at_stats(void *user)
{
    fixture_t *f = user;
    while (atomic_load(&f->round) < ROUNDS) {
        (void)tutti_device_stats(f->device);
    }
    return NULL;
}

static tutti_status_t do_nothing(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    (void)arguments;
    return TUTTI_OK;
}

/* Who looks at the counts gives it back now and then. */
static void a_block_on_its_way_back_is_no_want_of_memory(void **state)
{
    static const tt_kernel_t nothing = TT_KERNEL("nothing", int, do_nothing, no_pointers);
    fixture_t *f = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_at_stats, f), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        void *block = tt_device_alloc(f->device, BLOCK_BYTES, "block");
        assert_non_null(block);
        assert_int_equal(tt_launch(tt_device_exec(f->device), &nothing, &(int){0}), 0);
        tt_device_free(f->device, block, BLOCK_BYTES);
        atomic_store(&f->round, round);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- streams alone --------------------------------------------------------------------------- */

typedef struct {
    tt_streams_t streams;
    atomic_int begun, back; /* blocks that are given back */
} own_t;

static void give_back_slowly(void *user, void *memory, size_t bytes)
{
    own_t *own = user;
    (void)memory;
    (void)bytes;
    atomic_fetch_add(&own->begun, 1);
    usleep(20000);
    atomic_fetch_add(&own->back, 1);
}

static void *reclaim(void *user)
{
    own_t *own = user;
    tt_streams_reclaim(&own->streams);
    return NULL;
}

static tutti_status_t sleep_a_little(void *arguments)
{
    (void)arguments;
    usleep(1000);
    return TUTTI_OK;
}

static void who_settles_waits_for_what_another_thread_gives_back(void **state)
{
    (void)state;
    own_t own = {.begun = 0};
    pthread_t thread;
    tt_stream_t *side;
    const tt_streams_options_t options = {
        .name = "own", .threads = 1, .give_back = give_back_slowly, .user = &own};
    assert_int_equal(tt_streams_open(&own.streams, &options), 0);
    assert_int_equal(tt_streams_take(&own.streams, &side), 0);
    assert_int_equal(tt_stream_push(side, &(tt_work_t){.name = "sleep", .run = sleep_a_little}), 0);
    tt_streams_free(&own.streams, &own, 1);
    assert_int_equal(tt_event_pass(tt_stream_event(side), TT_NEVER), 0);
    assert_int_equal(pthread_create(&thread, NULL, reclaim, &own), 0);
    await(&own.begun, 1);
    assert_true(tt_streams_settle(&own.streams));
    assert_int_equal(atomic_load(&own.back), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tt_stream_let_go(side);
    tt_streams_close(&own.streams);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_event_tells_no_failure_behind_it),
        TEST(a_block_on_its_way_back_is_no_want_of_memory),
        cmocka_unit_test(who_settles_waits_for_what_another_thread_gives_back),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
