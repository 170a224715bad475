/* The distributed sampler against the lists that torch's DistributedSampler gives. */
#include <tutti/dataloader.h>
#include <tutti/safetensors.h>

#include "core/base/testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_safetensors_t *file;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    if (tutti_safetensors_open(TUTTI_SOURCE_DIR "/tests/golden/sampler.safetensors", &f.file) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    const tutti_status_t status = tutti_scope_close(f->s);
    tutti_safetensors_close(f->file);
    tutti_context_release(f->ctx);
    return status == TUTTI_OK ? 0 : -1;
}

static void expect_rank(const tutti_tensor_t *wanted,
                        const tutti_distributed_sampler_options_t *options)
{
    tutti_sampler_t *sampler;
    assert_int_equal(tutti_sampler_create(&tutti_distributed_sampler, options, &sampler), 0);
    const int64_t entries = tutti_tensor_dim(wanted, 1);
    assert_int_equal(tutti_sampler_count(sampler), entries);
    for (int64_t i = 0; i < entries; i++) {
        int64_t sample;
        assert_int_equal(tutti_sampler_read(sampler, 2, i, &sample, NULL), 0);
        const int64_t wanted_at = options->rank * entries + i;
        assert_int_equal(sample, (int64_t)tutti_tensor_at(wanted, wanted_at));
    }
    tutti_sampler_release(sampler);
}

/* `shuffled`: the order is torch's permutation, through a sampler of ours that has just that. */
static void expect_case(fixture_t *f, const char *name, bool shuffled)
{
    int count, replicas, drop;
    char order_name[32];
    assert_int_equal(sscanf(name, "%d/%d/%d", &count, &replicas, &drop), 3);
    tutti_distributed_sampler_options_t options = {
        .count = count, .replicas = replicas, .drop_last = drop != 0};
    if (shuffled) {
        snprintf(order_name, sizeof order_name, "%d/order", count);
        const tutti_tensor_t *order = tutti_safetensors_load(f->s, f->file, order_name);
        const tutti_subset_sampler_options_t subset = {
            .samples = tutti_tensor_data(order), .count = count, .in_order = true};
        assert_int_equal(tutti_sampler_create(&tutti_subset_sampler, &subset, &options.sampler), 0);
        options.count = 0;
    }
    const tutti_tensor_t *wanted = tutti_safetensors_load(f->s, f->file, name);
    assert_int_equal(tutti_tensor_dim(wanted, 0), replicas);
    for (options.rank = 0; options.rank < replicas; options.rank++) {
        expect_rank(wanted, &options);
    }
    tutti_sampler_release(options.sampler);
}

static void ranks_get_what_torch_gives_them(void **state)
{
    fixture_t *f = *state;
    int cases = 0;
    for (size_t i = 0; i < tutti_safetensors_count(f->file); i++) {
        const char *name = tutti_safetensors_at(f->file, i)->name;
        if (strstr(name, "order") == NULL) {
            expect_case(f, name, strstr(name, "shuffled") != NULL);
            cases++;
        }
    }
    assert_int_equal(cases, 12 * 5 * 2 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_get_what_torch_gives_them, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
