/* Tensors that have two names, on meta, loaded from files that have either. */
#include <tutti/tutti.h>

#include "runtime/checkpoint/source_testing.h"

static const tutti_linear_options_t sizes = {.in = 3, .out = 2};

static void expect_same(tutti_module_t *a, tutti_module_t *b)
{
    char one[TUTTI_DIGEST_BYTES], other[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(a, one), TUTTI_OK);
    assert_int_equal(tutti_module_digest(b, other), TUTTI_OK);
    assert_string_equal(one, other);
}

/* A layer whose matrix has two names. */
static tutti_status_t init_twice(tutti_module_t *m, const void *options)
{
    (void)options;
    TUTTI_CHECK(tutti_module_new_child(m, "a", &tutti_linear_layer, &sizes, NULL));
    return tutti_module_add_parameter(m, "z", tutti_module_find(m, "a.weight"));
}

/* Whichever of them is left out; without either it has no values. */
static void a_tensor_of_two_names_on_meta_is_loaded_by_one(void **state)
{
    (void)state;
    static const tutti_module_ops_t twice = {.name = "twice", .init = init_twice};
    static const char *const names[] = {"a.weight", "z"};
    tt_place_of_files_t place;
    tutti_device_t *meta;
    tutti_context_t *ctx, *on_meta;
    tutti_module_t *there, *net;
    tt_begin_files(&place);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &twice, NULL, &there), TUTTI_OK);
    assert_int_equal(tutti_module_save(there, tt_file_of(&place, "a"), NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_device_open("meta", NULL, &meta), TUTTI_OK);
    const tutti_context_options_t options = {.threads = 1, .device = meta};
    assert_int_equal(tutti_context_create(&options, &on_meta), TUTTI_OK);
    static const size_t left_out[][2] = {{0, 0}, {0, 1}, {1, 1}, {0, 2}}; /* from, so many */
    for (size_t i = 0; i < 4; i++) {
        const tutti_load_options_t some = {.exclude = names + left_out[i][0],
                                           .exclude_count = left_out[i][1]};
        assert_int_equal(tutti_module_create(on_meta, &twice, NULL, &net), TUTTI_OK);
        const tutti_checkpoint_t checkpoint = {.module = net};
        assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), &some),
                         i == 3 ? TUTTI_ERR_STATE : TUTTI_OK);
        if (i < 3) {
            expect_same(net, there);
            assert_ptr_equal(tutti_module_find(net, "z"), tutti_module_find(net, "a.weight"));
        } else {
            tt_expect_error("\"z\" lies on meta, and nothing is loaded into it");
        }
        tutti_module_release(net);
    }
    tutti_module_release(there);
    tutti_context_release(on_meta);
    tutti_context_release(ctx);
    tutti_device_release(meta);
    tt_end_files(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_of_two_names_on_meta_is_loaded_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
