/* What fails later on a device: reads are told and leave it, and who synchronizes ends it. */
#include "core/base/testing.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "core/exec/gate_testing.h"
#include "core/tensor/tensor_impl.h"

enum { READERS = 2, ROUNDS = 20 };

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x; /* [4] f32, of threes */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), 0);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = f.device}, &f.ctx),
                     0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    f.x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(4), 3);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_scope_close(f->s), 0);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    return 0;
}

/* Forward, the loss that is printed, backward, a step. */
static double train(fixture_t *f, tutti_optim_t *opt, tutti_tensor_t *table, int64_t index)
{
    tutti_tensor_t *at = tutti_full(f->s, TUTTI_I64, TUTTI_SHAPE(1), (double)index);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_embedding(f->s, at, table));
    const double printed = tutti_tensor_item(loss);
    assert_int_equal(tutti_backward(f->s, loss), 0);
    assert_int_equal(tutti_optim_step(opt), 0);
    return printed;
}

static void reading_hides_no_failure(void **state)
{
    fixture_t *f = *state;
    tutti_optim_t *opt;
    float weights[10] = {0};
    tutti_tensor_t *table = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(5, 2));
    tutti_tensor_set_requires_grad(table, true);
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.5}, &opt), 0);
    assert_int_equal(tutti_optim_add_parameter(opt, 0, "table", table), 0);
    assert_true(isnan(train(f, opt, table, 9)));
    assert_int_equal(tt_tensor_read(table, weights), TUTTI_ERR_ARG);
    tt_expect_error("strict:0: embedding: index 9 at [0] is outside a vocabulary of 5");
    assert_true(isnan(tutti_tensor_item(tutti_sum(f->s, table)))); /* it is so still */
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_int_equal(tt_tensor_read(table, weights), 0);
    for (int i = 0; i < 10; i++) {
        assert_true(weights[i] == 1);
    }
    tutti_optim_zero_grad(opt);
    assert_true(train(f, opt, table, 4) == 2);
    assert_true(tutti_tensor_at(table, 9) == 0.5 && tutti_tensor_at(table, 0) == 1);
    tutti_optim_release(opt);
}

/* The memory of the host is the caller's then: nothing writes to it later. */
static void a_wait_that_is_too_long_says_so(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *host;
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    tt_gate_close(tt_device_exec(f->device), TT_GATE_PASSES);
    assert_int_equal(setenv("TUTTI_TIMEOUT_MS", "20", 1), 0);
    assert_true(isnan(tutti_tensor_item(tutti_sum(f->s, f->x))));
    tt_expect_error("pieces of work are not done");
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &host), 0);
    assert_int_equal(tutti_tensor_copy(host, f->x), TUTTI_ERR_TIMEOUT);
    assert_int_equal(tutti_tensor_copy(f->x, host), TUTTI_ERR_TIMEOUT);
    assert_int_equal(unsetenv("TUTTI_TIMEOUT_MS"), 0);
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_true(tutti_tensor_at(host, 3) == 0 && tutti_tensor_at(f->x, 3) == 3);
    tutti_tensor_release(host);
}

typedef struct {
    const fixture_t *f;
    tutti_tensor_t *host; /* NULL: synchronize */
    tutti_status_t status;
    char error[256];
} reader_t;

static atomic_int ready;

static void *read_x(void *user)
{
    reader_t *reader = user;
    atomic_fetch_add(&ready, 1);
    reader->status = reader->host == NULL ? tutti_device_synchronize(reader->f->device, 0)
                                          : tutti_tensor_copy(reader->host, reader->f->x);
    snprintf(reader->error, sizeof reader->error, "%s", tutti_last_error());
    return NULL;
}

/* The gate opens when they are about to wait. */
static void read_behind_a_failure(const fixture_t *f, reader_t *readers)
{
    pthread_t threads[READERS];
    atomic_store(&ready, 0);
    tt_gate_close(tt_device_exec(f->device), TT_GATE_FAILS);
    for (int i = 0; i < READERS; i++) {
        readers[i].f = f;
        assert_int_equal(pthread_create(&threads[i], NULL, read_x, &readers[i]), 0);
    }
    while (atomic_load(&ready) < READERS) {
        usleep(100);
    }
    usleep(2000);
    tt_gate_open();
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void expect_told(const reader_t *reader)
{
    assert_int_equal(reader->status, TUTTI_ERR_ARG);
    assert_string_equal(reader->error, "strict:0: gate: it fails");
}

static void all_threads_that_read_are_told(void **state)
{
    const fixture_t *f = *state;
    reader_t readers[READERS] = {{0}};
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &readers[i].host), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        read_behind_a_failure(f, readers);
        expect_told(&readers[0]);
        expect_told(&readers[1]);
        assert_int_equal(tutti_tensor_copy(readers[0].host, f->x), TUTTI_ERR_ARG);
        assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
        assert_int_equal(tutti_tensor_copy(readers[0].host, f->x), 0);
    }
    assert_true(tutti_tensor_at(readers[0].host, 3) == 3);
    for (int i = 0; i < READERS; i++) {
        tutti_tensor_release(readers[i].host);
    }
}

/* One reads, and one ends it: whether that is before the read looks or behind it. */
static void who_reads_is_told_though_another_one_ends_it(void **state)
{
    const fixture_t *f = *state;
    reader_t readers[READERS] = {{0}};
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &readers[0].host), 0);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(tutti_tensor_fill(readers[0].host, 0), 0);
        read_behind_a_failure(f, readers);
        expect_told(&readers[1]);
        if (readers[0].status == 0) { /* it began late */
            assert_true(tutti_tensor_at(readers[0].host, 3) == 3);
        } else {
            expect_told(&readers[0]);
        }
        assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    }
    tutti_tensor_release(readers[0].host);
}

static void all_threads_that_synchronize_are_told(void **state)
{
    const fixture_t *f = *state;
    for (int round = 0; round < ROUNDS; round++) {
        reader_t readers[READERS] = {{0}};
        read_behind_a_failure(f, readers);
        expect_told(&readers[0]);
        expect_told(&readers[1]);
        assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reading_hides_no_failure),
        TEST(a_wait_that_is_too_long_says_so),
        TEST(all_threads_that_read_are_told),
        TEST(who_reads_is_told_though_another_one_ends_it),
        TEST(all_threads_that_synchronize_are_told),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
