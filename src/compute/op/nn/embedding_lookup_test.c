/* embedding_with where PyTorch's golden values do not reach: what is written, what a graph says to
 * it, gradients that are no numbers, gradients of gradients, and what is refused. */
#include <math.h>
#include <string.h>

#include <tutti/modes.h>

#include "compute/autograd/op_testing.h"

enum { ROWS = 5, WIDTH = 2 };

/* Rows of length 5, 10, 15 …; a leaf. */
static tutti_tensor_t *table_of(fixture_t *f)
{
    double values[ROWS * WIDTH];
    for (int i = 0; i < ROWS; i++) {
        values[i * WIDTH] = 3.0 * (i + 1);
        values[i * WIDTH + 1] = -4.0 * (i + 1);
    }
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(ROWS, WIDTH), values);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static tutti_tensor_t *indices_of(fixture_t *f)
{
    return tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(2, 2), (int64_t[]){1, 3, 3, 1});
}

static double length_of_row(const tutti_tensor_t *x, int row)
{
    return hypot(tutti_tensor_at(x, (int64_t)row * WIDTH),
                 tutti_tensor_at(x, (int64_t)row * WIDTH + 1));
}

/* ---- the bound ------------------------------------------------------------------------------- */

static void rows_that_are_taken_are_bounded_in_the_table(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *indices = indices_of(f), *grad;
    const tutti_embedding_lookup_options_t options = {.max_norm = 12};
    tutti_tensor_t *y = tutti_embedding_with(f->s, indices, table, &options);
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_true(length_of_row(table, 0) == 5 && length_of_row(table, 1) == 10);
    assert_true(length_of_row(table, 2) == 15 && length_of_row(table, 4) == 25);
    assert_true(fabs(length_of_row(table, 3) - 12 / (1 + 1e-7 / 20)) < 1e-12);
    assert_true(tutti_tensor_at(y, 2) == tutti_tensor_at(table, 6));
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &table, 1, &grad), 0);
    assert_true(tutti_tensor_at(grad, 2) == 2 && tutti_tensor_at(grad, 6) == 2);
    assert_true(tutti_tensor_at(grad, 0) == 0 && tutti_tensor_at(grad, 8) == 0);
}

static void a_graph_that_saved_the_table_says_so(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *grad;
    const tutti_embedding_lookup_options_t options = {.max_norm = 1};
    tutti_tensor_t *before = tutti_sum(f->s, tutti_square(f->s, table));
    tutti_tensor_t *copy = tutti_sum(f->s, tutti_square(f->s, tutti_clone(f->s, table)));
    (void)tutti_embedding_with(f->s, indices_of(f), table, &options);
    assert_int_equal(tutti_grad(f->s, copy, NULL, &table, 1, &grad), 0);
    assert_true(tutti_tensor_at(grad, 0) == 6);
    assert_int_equal(tutti_grad(f->s, before, NULL, &table, 1, &grad), TUTTI_ERR_STATE);
}

static void without_rows_nothing_is_written(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *grad;
    const tutti_embedding_lookup_options_t options = {.max_norm = 1};
    tutti_tensor_t *before = tutti_sum(f->s, tutti_square(f->s, table));
    tutti_tensor_t *none = tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(0));
    assert_int_equal(tutti_tensor_numel(tutti_embedding_with(f->s, none, table, &options)), 0);
    assert_int_equal(tutti_grad(f->s, before, NULL, &table, 1, &grad), 0);
}

static void a_forward_that_is_run_again_writes_nothing(void **state)
{
    fixture_t *f = *state;
    const tutti_embedding_options_t options = {
        .count = ROWS, .width = WIDTH, .lookup = {.max_norm = 0.1, .padding = 3}};
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_embedding_layer, &options, &m), 0);
    tutti_tensor_t *weight = tutti_module_find(m, "weight");
    tutti_tensor_t *y = tutti_recompute(f->s, m, indices_of(f));
    assert_true(length_of_row(weight, 3) < 0.1001);
    const tt_storage_t *storage = weight->storage;
    const uint32_t version = storage->version;
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    assert_int_equal(storage->version, version);
    assert_true(tutti_tensor_at(tutti_tensor_grad(weight), 6) == 2);
    tutti_module_release(m);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void padding_gets_no_gradient_not_even_one_that_is_no_number(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *grad;
    const tutti_embedding_lookup_options_t options = {.has_padding = true, .padding = -2};
    tutti_tensor_t *y = tutti_embedding_with(f->s, indices_of(f), table, &options);
    assert_true(tutti_tensor_at(y, 2) == 12);
    tutti_tensor_t *rows =
        tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(2, 2, 1), (double[]){1, NAN, INFINITY, 4});
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_mul(f->s, y, rows));
    assert_int_equal(tutti_grad(f->s, loss, NULL, &table, 1, &grad), 0);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(tutti_tensor_at(grad, i) == (i / WIDTH == 1 ? 5 : 0));
    }
}

static void gradients_count_by_frequency(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *grad;
    const tutti_embedding_lookup_options_t options = {.scale_by_frequency = true};
    tutti_tensor_t *indices =
        tutti_from_data(f->s, TUTTI_I32, TUTTI_SHAPE(5), (int32_t[]){2, 0, 2, 2, 2});
    tutti_tensor_t *y = tutti_embedding_with(f->s, indices, table, &options);
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &table, 1, &grad), 0);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(tutti_tensor_at(grad, i) == (i / WIDTH == 2 || i / WIDTH == 0 ? 1 : 0));
    }
}

/* Of Σ y² the gradient is 2 y at rows that are no padding, and that of its sum is 2 there. */
static void gradients_have_gradients(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *table = table_of(f), *grad, *second;
    const tutti_embedding_lookup_options_t options = {.has_padding = true, .padding = 3};
    const tutti_backward_options_t recorded = {.create_graph = true};
    tutti_tensor_t *y = tutti_embedding_with(f->s, indices_of(f), table, &options);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_square(f->s, y));
    assert_int_equal(tutti_grad(f->s, loss, &recorded, &table, 1, &grad), 0);
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, grad), NULL, &table, 1, &second), 0);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(tutti_tensor_at(second, i) == (i / WIDTH == 1 ? 4 : 0));
    }
}

/* The other rows are those of a table without padding. */
static void the_row_of_padding_begins_as_zeros(void **state)
{
    (void)state;
    tutti_module_t *tables[2];
    for (int i = 0; i < 2; i++) {
        tutti_context_t *ctx;
        const tutti_embedding_options_t options = {
            .count = ROWS, .width = WIDTH, .lookup = {.has_padding = i == 1, .padding = -2}};
        assert_int_equal(tt_test_context(&(tutti_context_options_t){.seed = 3}, &ctx), 0);
        assert_int_equal(tutti_module_create(ctx, &tutti_embedding_layer, &options, &tables[i]), 0);
        tutti_context_release(ctx);
    }
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        const double plain = tutti_tensor_at(tutti_module_find(tables[0], "weight"), i);
        const double got = tutti_tensor_at(tutti_module_find(tables[1], "weight"), i);
        assert_true(plain != 0 && got == (i / WIDTH == 3 ? 0 : plain));
    }
    tutti_module_release(tables[0]);
    tutti_module_release(tables[1]);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { LONG = 300, WIDE = 130 };

static void run_large(int threads, float *grad, float *written)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *got;
    const tutti_context_options_t on = {.threads = threads, .seed = 7};
    assert_int_equal(tt_test_context(&on, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *table = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(LONG, WIDE), 0, 1);
    tutti_tensor_t *indices =
        tutti_cast(s, tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(4 * LONG), 0, LONG / 2.0), TUTTI_I64);
    assert_int_equal(tutti_tensor_set_requires_grad(table, true), 0);
    const tutti_embedding_lookup_options_t options = {.has_padding = true,
                                                      .padding = 1,
                                                      .max_norm = 11,
                                                      .norm_p = 2.5,
                                                      .scale_by_frequency = true};
    tutti_tensor_t *y = tutti_embedding_with(s, indices, table, &options);
    tutti_tensor_t *loss = tutti_sum(s, tutti_square(s, y));
    assert_int_equal(tutti_grad(s, loss, NULL, &table, 1, &got), 0);
    memcpy(grad, tt_test_host(got), sizeof(float) * LONG * WIDE);
    memcpy(written, tt_test_host(table), sizeof(float) * LONG * WIDE);
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_context_release(ctx);
}

static void threads_change_no_bit(void **state)
{
    static float grads[2][LONG * WIDE], tables[2][LONG * WIDE];
    (void)state;
    run_large(1, grads[0], tables[0]);
    run_large(5, grads[1], tables[1]);
    assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    assert_memory_equal(tables[0], tables[1], sizeof tables[0]);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void options_that_are_wrong_are_named(void **state)
{
    fixture_t *f = *state;
    static const struct {
        tutti_embedding_lookup_options_t options;
        const char *text;
    } cases[] = {
        {{.has_padding = true, .padding = 5}, "embedding: padding 5 is no row of a table of 5"},
        {{.has_padding = true, .padding = -6}, "embedding: padding -6 is no row of a table of 5"},
        {{.max_norm = -1}, "embedding: max_norm must be at least 0, not -1"},
        {{.norm_p = -2}, "embedding: norm_p must be above 0, not -2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_module_t *m;
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        (void)tutti_embedding_with(s, indices_of(f), table_of(f), &cases[i].options);
        assert_int_equal(tutti_scope_status(s), TUTTI_ERR_ARG);
        assert_string_equal(tutti_scope_error(s), cases[i].text);
        (void)tutti_scope_close(s);
        const tutti_embedding_options_t layer = {
            .count = ROWS, .width = WIDTH, .lookup = cases[i].options};
        assert_int_equal(tutti_module_create(f->ctx, &tutti_embedding_layer, &layer, &m),
                         TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), cases[i].text));
    }
}

static void an_index_outside_writes_nothing(void **state)
{
    fixture_t *f = *state;
    const tutti_embedding_lookup_options_t options = {.max_norm = 1};
    tutti_tensor_t *table = table_of(f);
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *indices = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){1, ROWS});
    (void)tutti_embedding_with(s, indices, table, &options);
    if (tutti_device_synchronize(tutti_context_device(f->ctx), 10000) >= 0) {
        assert_int_equal(tutti_scope_status(s), TUTTI_ERR_ARG); /* it runs at once */
    }
    assert_non_null(strstr(tutti_last_error(), "index 5 at [1] is outside a vocabulary of 5"));
    (void)tutti_scope_close(s);
    assert_true(length_of_row(table, 1) == 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_that_are_taken_are_bounded_in_the_table, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_graph_that_saved_the_table_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(without_rows_nothing_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forward_that_is_run_again_writes_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(padding_gets_no_gradient_not_even_one_that_is_no_number,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_count_by_frequency, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_have_gradients, setup, teardown),
        cmocka_unit_test(the_row_of_padding_begins_as_zeros),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test_setup_teardown(options_that_are_wrong_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(an_index_outside_writes_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
