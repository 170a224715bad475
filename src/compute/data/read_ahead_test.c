/* Data loaders with workers: reading ahead, failures, and who is late. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/data/dataloader_testing.h"

static seen_t seen[ROOM];

/* ---- reading ahead --------------------------------------------------------------------------- */

/* While the caller has batch 0 in its hands, exactly workers × prefetch others are read. */
static void batches_are_read_while_the_caller_computes_and_no_more(void **state)
{
    _Atomic uint32_t reads = 0;
    numbers_options_t data = count_to(200);
    data.reads = &reads;
    const tutti_dataloader_options_t o = {.batch = 5, .workers = 2, .prefetch = 3};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(atomic_load(&reads), 0);
    for (uint32_t step = 1; step < 5; step++) {
        assert_int_equal(next(*state, loader, 0, seen), 0);
        const uint32_t most = 5 * (step + 2 * 3);
        assert_true(wait_for(&reads, most));
        tt_futex_wait(&reads, most, tt_deadline_in_ms(20)); /* time to go too far */
        assert_int_equal(atomic_load(&reads), most);
    }
    tutti_dataloader_release(loader);
    assert_int_equal(atomic_load(&reads), 5 * (4 + 2 * 3));
}

static void open_gate(_Atomic uint32_t *gate)
{
    atomic_store(gate, 1);
    tt_futex_wake_all(gate);
}

static void *open_gate_when_read(void *user)
{
    const numbers_options_t *data = user;
    if (wait_for(data->reads, 4)) { /* three samples of other batches, behind the blocked one */
        open_gate(data->gate);
    }
    return NULL;
}

/* The first batch ends last: it cannot end before the second and third are read. */
static void a_slow_batch_is_not_overtaken(void **state)
{
    _Atomic uint32_t reads = 0, gate = 0;
    numbers_options_t data = count_to(12);
    data.blocks_at = 0;
    data.gate = &gate;
    data.reads = &reads;
    const tutti_dataloader_options_t o = {.batch = 1, .workers = 2};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_when_read, &data), 0);
    assert_int_equal(read_epoch(*state, loader, &o, seen), 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(seen[i].samples[0], i);
    }
    assert_int_equal(pthread_join(opener, NULL), 0);
    tutti_dataloader_release(loader);
}

static void signals_are_for_the_callers_thread(void **state)
{
    _Atomic uint32_t taken = 0;
    numbers_options_t data = count_to(20);
    data.open = &taken;
    for (int workers = 0; workers < 3; workers += 2) {
        const tutti_dataloader_options_t o = {.batch = 2, .workers = workers};
        tutti_dataloader_t *loader = make_loader(&data, &o);
        assert_int_equal(read_epoch(*state, loader, &o, seen), 10);
        tutti_dataloader_release(loader);
        assert_int_equal(atomic_load(&taken), 20); /* the caller's own, workers' none */
    }
}

static void a_loader_may_be_released_at_any_time(void **state)
{
    const tutti_dataloader_options_t o = {.batch = 2, .workers = 3};
    const numbers_options_t data = count_to(50);
    for (int batches = 0; batches < 12; batches++) {
        tutti_dataloader_t *loader = make_loader(&data, &o);
        for (int i = 0; i < batches; i++) {
            assert_int_equal(next(*state, loader, 0, seen), 0);
        }
        tutti_dataloader_release(loader);
    }
    tutti_dataloader_release(NULL);
}

/* Batches outlive the loader: they are the scope's. */
static void batches_belong_to_the_scope(void **state)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    const tutti_dataloader_options_t o = {.batch = 2, .workers = 1};
    const numbers_options_t data = count_to(50);
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(tutti_scope_open(*state, &s), 0);
    assert_int_equal(tutti_dataloader_next(loader, s, &batch), 0);
    tutti_dataloader_release(loader);
    assert_int_equal((int)tutti_tensor_at(batch.target, 1), 1);
    assert_int_equal(tutti_scope_close(s), 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_names_worker_and_sample_and_loses_no_batch(void **state)
{
    for (int workers = 0; workers < 3; workers++) {
        numbers_options_t data = count_to(20);
        const tutti_dataloader_options_t o = {.batch = 3, .workers = workers};
        data.fails_at = 7;
        tutti_dataloader_t *loader = make_loader(&data, &o);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(next(*state, loader, 0, &seen[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(next(*state, loader, 0, &seen[2]), TUTTI_ERR_FORMAT);
            tt_expect_error(workers == 0 ? "dataloader: sample 7" : "dataloader: worker ");
            tt_expect_error("sample 7, in batch 2 of epoch 0: number 7 is unlucky");
        }
        data.fails_at = -1;
        assert_int_equal(read_epoch(*state, loader, &o, &seen[2]), 5);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(seen[i / 3].samples[i % 3], i);
        }
        tutti_dataloader_release(loader);
    }
}

static void a_sampler_beyond_the_data_is_a_failure(void **state)
{
    const int64_t samples[] = {0, 1, 2, 33};
    tutti_sampler_t *sampler;
    const tutti_subset_sampler_options_t subset = {
        .samples = samples, .count = 4, .in_order = true};
    assert_int_equal(tutti_sampler_create(&tutti_subset_sampler, &subset, &sampler), 0);
    const numbers_options_t data = count_to(20);
    const tutti_dataloader_options_t o = {.batch = 4, .workers = 1, .sampler = sampler};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    tutti_sampler_release(sampler);
    assert_int_equal(next(*state, loader, 0, seen), TUTTI_ERR_ARG);
    tt_expect_error("worker 0: sample 33, in batch 0 of epoch 0: data set numbers: sample 33: it "
                    "has 20");
    tutti_dataloader_release(loader);
}

static tutti_status_t next_in_time(tutti_context_t *ctx, tutti_dataloader_t *loader)
{
    tutti_status_t status = TUTTI_ERR_TIMEOUT;
    while (status == TUTTI_ERR_TIMEOUT) { /* a machine may be slow */
        status = next(ctx, loader, 0, seen);
    }
    return status;
}

static void a_late_worker_is_named_and_may_come_later(void **state)
{
    _Atomic uint32_t gate = 0;
    numbers_options_t data = count_to(6);
    data.blocks_at = 3;
    data.gate = &gate;
    const tutti_dataloader_options_t o = {.batch = 2, .workers = 1, .timeout_ms = 30};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(next(*state, loader, 0, seen), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(next(*state, loader, 0, seen), TUTTI_ERR_TIMEOUT);
        tt_expect_error("batch 1 of epoch 0 is not there in time: worker 0 is reading sample 3 of "
                        "data set numbers");
    }
    assert_int_equal(tutti_dataloader_set_epoch(loader, 1), TUTTI_ERR_TIMEOUT);
    open_gate(&gate);
    tutti_dataloader_release(loader);
}

static void a_late_worker_loses_no_batch(void **state)
{
    _Atomic uint32_t gate = 0;
    numbers_options_t data = count_to(6);
    data.blocks_at = 1;
    data.gate = &gate;
    const tutti_dataloader_options_t o = {.batch = 2, .workers = 2, .timeout_ms = 100};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(next(*state, loader, 0, seen), TUTTI_ERR_TIMEOUT);
    open_gate(&gate);
    assert_int_equal(next_in_time(*state, loader), TUTTI_OK);
    assert_int_equal(seen[0].samples[1], 1);
    tutti_dataloader_release(loader);
}

/* A batch fails while the one behind it is read: until that is through, nothing can be forgotten,
 * and what it then holds is not the batch that failed. */
static void a_failure_in_front_of_a_late_worker_loses_no_batch(void **state)
{
    _Atomic uint32_t gate = 0, reads = 0;
    numbers_options_t data = count_to(6);
    data.fails_at = 0;
    data.blocks_at = 1;
    data.gate = &gate;
    data.reads = &reads;
    const tutti_dataloader_options_t o = {.workers = 2, .prefetch = 1, .timeout_ms = 30};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(next_in_time(*state, loader), TUTTI_ERR_FORMAT);
    assert_true(wait_for(&reads, 2));
    data.fails_at = -1;
    assert_int_equal(next(*state, loader, 0, seen), TUTTI_ERR_TIMEOUT);
    tt_expect_error("batch 1 of epoch 0 is not there in time");
    open_gate(&gate);
    assert_int_equal(next_in_time(*state, loader), TUTTI_OK);
    assert_int_equal(seen[0].samples[0], 0);
    tutti_dataloader_release(loader);
}

static void a_forked_child_is_told_that_it_has_no_workers(void **state)
{
    const numbers_options_t data = count_to(20);
    const tutti_dataloader_options_t o = {.batch = 3, .workers = 1};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    const pid_t child = fork();
    if (child == 0) {
        const bool is_told = next(*state, loader, 0, seen) == TUTTI_ERR_STATE &&
                             tutti_dataloader_set_epoch(loader, 1) == TUTTI_ERR_STATE;
        tutti_dataloader_release(loader);
        _exit(is_told ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read_epoch(*state, loader, &o, seen), 7);
    tutti_dataloader_release(loader);
}

/* Every allocation on the way fails once; the batch comes with the next call. */
static void no_allocation_that_fails_is_lost(void **state)
{
    const numbers_options_t data = count_to(9);
    tutti_dataset_t *d = make_numbers(&data);
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        const tutti_dataloader_options_t o = {.batch = 3, .shuffle = true, .workers = 1};
        tutti_dataloader_t *loader = NULL;
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_dataloader_create(d, &o, &loader);
        for (int i = 0; status == TUTTI_OK && i < 3; i++) {
            tutti_scope_t *s = NULL;
            tutti_batch_t batch;
            status = tutti_scope_open(*state, &s);
            if (status == TUTTI_OK) {
                status = tutti_dataloader_next(loader, s, &batch);
                (void)tutti_scope_close(s);
            }
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (loader != NULL && has_failed) {
            const int64_t done = tutti_dataloader_step(loader);
            assert_int_equal(done + read_epoch(*state, loader, &o, seen), 3);
        }
        tutti_dataloader_release(loader);
    }
    tutti_dataset_release(d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(batches_are_read_while_the_caller_computes_and_no_more),
        TEST(a_slow_batch_is_not_overtaken),
        TEST(signals_are_for_the_callers_thread),
        TEST(a_loader_may_be_released_at_any_time),
        TEST(batches_belong_to_the_scope),
        TEST(a_failure_names_worker_and_sample_and_loses_no_batch),
        TEST(a_sampler_beyond_the_data_is_a_failure),
        TEST(a_late_worker_is_named_and_may_come_later),
        TEST(a_late_worker_loses_no_batch),
        TEST(a_failure_in_front_of_a_late_worker_loses_no_batch),
        TEST(a_forked_child_is_told_that_it_has_no_workers),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
