/* Names of many parameters in one module: each once, in time that grows as their number does. */
#include "core/base/testing.h"

#include <tutti/context.h>
#include <tutti/nn.h>
#include <tutti/tensor.h>

#include "compute/nn/module_impl.h"

enum { COUNT = 4000 };

typedef struct {
    tutti_context_t *ctx;
    tutti_tensor_t *x;
    tutti_module_t *m;
} fixture_t;

static int setup(void **state)
{
    static const tutti_module_ops_t plain = {.name = "plain"};
    static fixture_t f;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1), &f.x), 0);
    assert_int_equal(tutti_module_create(f.ctx, &plain, NULL, &f.m), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_module_release(f->m);
    tutti_tensor_release(f->x);
    tutti_context_release(f->ctx);
    return 0;
}

static tutti_status_t add(const fixture_t *f, int i)
{
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    return i % 2 == 0 ? tutti_module_add_parameter(f->m, name, f->x)
                      : tutti_module_add_buffer(f->m, name, f->x);
}

static void expect_taken(const fixture_t *f, int i)
{
    char text[64];
    snprintf(text, sizeof text, "module plain: the name \"%d\" is taken", i);
    assert_int_equal(add(f, i), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), text);
}

static void many_are_hardly_compared(void **state)
{
    const fixture_t *f = *state;
    const size_t before = tt_alloc_stats().allocations;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(add(f, i), TUTTI_OK);
    }
    assert_in_range(f->m->names_compared, 1, 200);
    assert_in_range(f->m->hashes.looks, COUNT, 8 * COUNT);
    assert_in_range(tt_alloc_stats().allocations - before, COUNT, COUNT + 30); /* of the names */
    assert_int_equal(f->m->slot_count, COUNT);
    for (int i = 0; i < COUNT; i += 101) {
        expect_taken(f, i);
    }
    tutti_module_t *child;
    assert_int_equal(tutti_module_create(f->ctx, f->m->ops, NULL, &child), 0);
    assert_int_equal(tutti_module_add_child(f->m, "77", child), TUTTI_ERR_ARG);
    assert_int_equal(tutti_module_add_child(f->m, "child", child), TUTTI_OK);
    assert_int_equal(tutti_module_add_child(f->m, "", child), TUTTI_OK);
    assert_int_equal(tutti_module_add_parameter(f->m, "child", f->x), TUTTI_ERR_ARG);
    tutti_module_release(child);
}

/* Each allocation fails once; what was not added may be added again, and nothing twice. */
static void without_memory_nothing_is_taken(void **state)
{
    const fixture_t *f = *state;
    for (int i = 0; i < 300; i++) {
        tutti_status_t status = TUTTI_ERR_NOMEM;
        for (size_t nth = 1; status < 0; nth++) {
            assert_int_equal(status, TUTTI_ERR_NOMEM);
            tt_alloc_fail_at(nth);
            status = add(f, i);
            tt_alloc_fail_at(0);
        }
        expect_taken(f, i);
        expect_taken(f, i / 2);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(many_are_hardly_compared),
        TEST(without_memory_nothing_is_taken),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
