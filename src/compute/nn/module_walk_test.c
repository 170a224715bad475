/* Walks over a module of many parameters, half of which have a second name. */
#include "core/base/testing.h"

#include <tutti/nn.h>
#include <tutti/tensor.h>

enum { PARTS = 100, IN_PART = 100, COUNT = PARTS * IN_PART };

typedef struct {
    tutti_tensor_t *last;
    size_t visits, in_order;
} visits_t;

static tutti_status_t init_part(tutti_module_t *m, const void *options)
{
    tutti_module_t *const *before = options;
    for (int i = 0; i < IN_PART; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (i % 2 == 0 || *before == NULL) {
            TUTTI_CHECK(
                tutti_module_new_parameter(m, name, TUTTI_SHAPE(1), (tutti_init_t){0}, NULL));
        } else { /* by a name of the last part's, which may have it from the one before */
            TUTTI_CHECK(tutti_module_add_parameter(m, name, tutti_module_find(*before, name)));
        }
    }
    return TUTTI_OK;
}

static const tutti_module_ops_t part = {.name = "part", .init = init_part};

static tutti_status_t init_whole(tutti_module_t *m, const void *options)
{
    tutti_module_t *before = NULL;
    (void)options;
    for (int i = 0; i < PARTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        TUTTI_CHECK(tutti_module_new_child(m, name, &part, &before, &before));
    }
    return TUTTI_OK;
}

static const tutti_module_ops_t whole = {.name = "whole", .init = init_whole};

static tutti_status_t count_visit(void *user, const char *name, tutti_tensor_t *x)
{
    visits_t *visits = user;
    (void)name;
    visits->visits++;
    visits->in_order += visits->last != x;
    visits->last = x;
    return TUTTI_OK;
}

/* What the walk remembers grows by doubling: its allocations are counted. */
static void ten_thousand_names_are_visited_once_each(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_module_t *m;
    enum { ONCE = IN_PART + (PARTS - 1) * IN_PART / 2 };
    assert_int_equal(tutti_context_create(NULL, &ctx), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, &whole, NULL, &m), TUTTI_OK);
    visits_t all = {0}, once = {0};
    assert_int_equal(tutti_module_each_tensor(m, count_visit, &all), TUTTI_OK);
    assert_int_equal(all.visits, COUNT);
    const size_t before = tt_alloc_stats().allocations;
    assert_int_equal(tutti_module_each_parameter(m, count_visit, &once), TUTTI_OK);
    assert_int_equal(tt_alloc_stats().allocations - before, 8); /* 128 places to 16,384 */
    assert_int_equal(once.visits, ONCE);
    assert_int_equal(once.in_order, ONCE);
    assert_int_equal(tutti_module_parameter_count(m), ONCE);
    tutti_module_release(m);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_names_are_visited_once_each),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
