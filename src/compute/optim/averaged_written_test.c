/* What writes a module's tensors while averages of weights are in it: tables that forward bounds,
 * and buffers. */
#include <math.h>
#include <string.h>

#include <tutti/averaged.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>

#include "compute/autograd/op_testing.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { ROWS = 4, WIDTH = 8, COUNT = ROWS * WIDTH };

typedef struct {
    char bytes[COUNT * sizeof(float)];
} bits_t;

static bits_t bits_of(const tutti_tensor_t *x)
{
    bits_t bits = {{0}};
    memcpy(bits.bytes, tt_test_host(x), tutti_tensor_bytes(x));
    return bits;
}

typedef struct {
    const char *name;
    tutti_tensor_t *found;
} search_t;

static tutti_status_t match(void *user, const char *name, tutti_tensor_t *x)
{
    search_t *search = user;
    search->found = strcmp(name, search->name) == 0 ? x : search->found;
    return TUTTI_OK;
}

/* Borrowed; NULL: there is none. */
static tutti_tensor_t *average_of(tutti_averaged_t *average, const char *name)
{
    search_t search = {.name = name};
    assert_int_equal(tutti_averaged_each_state(average, match, &search), 0);
    return search.found;
}

static tutti_averaged_t *new_average(fixture_t *f, tutti_module_t *net, bool buffers)
{
    tutti_averaged_t *average;
    const tutti_averaged_options_t options = {.buffers = buffers};
    assert_int_equal(tutti_averaged_create(f->ctx, net, &options, &average), 0);
    return average;
}

/* Row i is i + 1 times numbers of norm 0.4, of more bits than 16-bit types have. */
static void write_rows(fixture_t *f, tutti_tensor_t *x, float scale)
{
    float values[COUNT];
    tutti_tensor_t *wide;
    for (int i = 0; i < COUNT; i++) {
        values[i] = scale * (float)(i / WIDTH + 1) * (i % 2 == 0 ? 0.12345F : -0.15678F);
    }
    assert_int_equal(tt_test_tensor(TUTTI_F32, tutti_tensor_shape(x), &wide), 0);
    assert_int_equal(tutti_tensor_copy_from(wide, values), 0);
    assert_int_equal(tutti_tensor_copy(x, tutti_cast(f->s, wide, tutti_tensor_dtype(x))), 0);
    tutti_tensor_release(wide);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const tutti_embedding_options_t bounded = {
    .count = ROWS, .width = WIDTH, .lookup = {.max_norm = 1}};
static const tutti_embedding_bag_layer_options_t bag = {
    .count = ROWS, .width = WIDTH, .max_norm = 1};

static void look_up(fixture_t *f, tutti_module_t *net, int64_t row)
{
    tutti_scope_t *s;
    tutti_tensor_t *index;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tt_test_tensor(TUTTI_I64, TUTTI_SHAPE(1, 1), &index), 0);
    assert_int_equal(tutti_tensor_fill(index, (double)row), 0);
    assert_non_null(tutti_forward(s, net, index));
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_tensor_release(index);
}

static double norm_of(const tutti_tensor_t *x, int64_t row)
{
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++) {
        const double value = tutti_tensor_at(x, row * WIDTH + i);
        sum += value * value;
    }
    return sqrt(sum);
}

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
    tutti_dtype_t dtype;
} table_t;

static tutti_averaged_t *new_table(fixture_t *f, const table_t *kind, tutti_module_t **net)
{
    assert_int_equal(tutti_module_create(f->ctx, kind->ops, kind->options, net), 0);
    assert_int_equal(tutti_module_cast(*net, kind->dtype), 0);
    tutti_averaged_t *average = new_average(f, *net, false);
    write_rows(f, tutti_module_find(*net, "weight"), 1);
    assert_int_equal(tutti_averaged_update(average), 0);
    write_rows(f, tutti_module_find(*net, "weight"), 1.0101F);
    assert_int_equal(tutti_averaged_update(average), 0);
    return average;
}

/* A row that is looked up and too long is shorter in the average, too; all others keep their bits,
 * those that the module's dtype has not, too. */
static void expect_bounded(fixture_t *f, const table_t *kind)
{
    enum { ROW_BYTES = WIDTH * sizeof(float), LONG = ROWS - 1 };
    tutti_module_t *net;
    tutti_averaged_t *average = new_table(f, kind, &net);
    tutti_tensor_t *weight = tutti_module_find(net, "weight");
    const bits_t own = bits_of(weight), before = bits_of(average_of(average, "weight"));
    double seen[WIDTH];
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    look_up(f, net, 0);
    look_up(f, net, LONG);
    assert_true(norm_of(weight, LONG) < 1.01 && norm_of(weight, LONG - 1) > 1.1);
    for (int64_t i = 0; i < WIDTH; i++) {
        seen[i] = tutti_tensor_at(weight, LONG * WIDTH + i);
    }
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    const bits_t is_now = bits_of(weight), after = bits_of(average_of(average, "weight"));
    assert_memory_equal(&is_now, &own, sizeof own);
    assert_memory_equal(after.bytes, before.bytes, LONG * ROW_BYTES);
    for (int64_t i = 0; i < WIDTH; i++) {
        assert_true(tutti_tensor_at(average_of(average, "weight"), LONG * WIDTH + i) == seen[i]);
    }
    tutti_averaged_release(average);
    tutti_module_release(net);
}

static void a_table_that_forward_bounds_goes_out_again(void **state)
{
    for (int dtype = 0; dtype < 3; dtype++) {
        const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
        expect_bounded(*state, &(table_t){&tutti_embedding_layer, &bounded, dtypes[dtype]});
        expect_bounded(*state, &(table_t){&tutti_embedding_bag_layer, &bag, dtypes[dtype]});
    }
}

/* Also behind a bounding. */
static void such_a_table_is_not_trained_meanwhile(void **state)
{
    fixture_t *f = *state;
    const table_t kind = {&tutti_embedding_layer, &bounded, TUTTI_F32};
    tutti_module_t *net;
    tutti_averaged_t *average = new_table(f, &kind, &net);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    look_up(f, net, ROWS - 1);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "weight"), 1), 0);
    look_up(f, net, ROWS - 1);
    assert_int_equal(tutti_averaged_swap_out(average), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "weight was written while the averages were in"));
    tutti_averaged_release(average);
    tutti_module_release(net);
}

/* Without memory the averages stay in; then they go out. */
static void any_allocation_of_going_out_may_fail(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    const table_t kind = {&tutti_embedding_layer, &bounded, TUTTI_BF16};
    tutti_module_t *net;
    tutti_averaged_t *average = new_table(f, &kind, &net);
    tutti_tensor_t *weight = tutti_module_find(net, "weight");
    const bits_t own = bits_of(weight);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    look_up(f, net, ROWS - 1);
    const bits_t in = bits_of(weight);
    tutti_status_t status = TUTTI_ERR_NOMEM;
    int failures = -1;
    for (; status == TUTTI_ERR_NOMEM; failures++) {
        const bits_t now = bits_of(weight);
        assert_memory_equal(&now, &in, sizeof in);
        tt_alloc_fail_at(failures + 2);
        status = tutti_averaged_swap_out(average);
        tt_alloc_fail_at(0);
    }
    const bits_t out = bits_of(weight);
    assert_int_equal(status, 0);
    assert_true(failures > 0);
    assert_memory_equal(&out, &own, sizeof own);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void write_buffers(fixture_t *f, tutti_module_t *norm, float scale)
{
    tutti_tensor_t *one;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(WIDTH), &one), 0);
    assert_int_equal(tutti_tensor_fill(one, scale), 0);
    const char *const names[] = {"running_mean", "running_var"};
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *x = tutti_module_find(norm, names[i]);
        assert_int_equal(tutti_tensor_copy(x, tutti_cast(f->s, one, tutti_tensor_dtype(x))), 0);
    }
    tutti_tensor_release(one);
}

/* The mean is written while averages are in; the variance is not, or with what it has. */
static void expect_buffers(fixture_t *f, tutti_dtype_t dtype, bool writes_same)
{
    tutti_module_t *norm;
    const tutti_batch_norm_layer_options_t options = {.width = WIDTH};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_batch_norm_layer, &options, &norm), 0);
    assert_int_equal(dtype == TUTTI_F64 ? 0 : tutti_module_cast(norm, dtype), 0);
    tutti_averaged_t *average = new_average(f, norm, true);
    assert_int_equal(tutti_module_cast(norm, dtype), 0); /* f64 has no average, but later on */
    assert_int_equal(tutti_tensor_dtype(tutti_module_find(norm, "running_mean")), dtype);
    write_buffers(f, norm, 1);
    assert_int_equal(tutti_averaged_update(average), 0);
    write_buffers(f, norm, 1.0078125F);
    assert_int_equal(tutti_averaged_update(average), 0);
    assert_int_equal(tutti_averaged_update(average), 0); /* 1.0052…, of more bits */
    const bits_t var = bits_of(average_of(average, "running_var"));
    assert_true(tutti_tensor_at(average_of(average, "running_mean"), 0) > 1);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(norm, "running_mean"), 3), 0);
    if (writes_same) { /* as a broadcast of buffers */
        tutti_tensor_t *x = tutti_module_find(norm, "running_var");
        assert_int_equal(tutti_tensor_copy(x, tutti_clone(f->s, x)), 0);
    }
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    const bits_t is_now = bits_of(average_of(average, "running_var"));
    assert_memory_equal(&is_now, &var, sizeof var);
    assert_true(tutti_tensor_at(average_of(average, "running_mean"), 0) == 3);
    tutti_averaged_release(average);
    tutti_module_release(norm);
}

static void buffers_that_nobody_wrote_keep_their_averages_bits(void **state)
{
    for (int same = 0; same < 2; same++) {
        expect_buffers(*state, TUTTI_F32, same);
        expect_buffers(*state, TUTTI_BF16, same);
        expect_buffers(*state, TUTTI_F16, same);
        expect_buffers(*state, TUTTI_F64, same);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_table_that_forward_bounds_goes_out_again),
        TEST(such_a_table_is_not_trained_meanwhile),
        TEST(any_allocation_of_going_out_may_fail),
        TEST(buffers_that_nobody_wrote_keep_their_averages_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
