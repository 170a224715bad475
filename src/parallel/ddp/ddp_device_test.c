/* DDP over modules on devices: the bits of the host, on any number of ranks. */
#include "core/base/testing.h"

#include <string.h>

#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "parallel/ddp/ddp_testing.h"

enum { STEPS = 4, IN = 10, HIDDEN = 19, OUT = 5, BATCH = 4 };

typedef struct {
    bool is_on_devices;
    tutti_ddp_options_t options;
    const tutti_ddp_hook_ops_t *hook; /* NULL: none */
    const void *hook_options;
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

/* ---- training -------------------------------------------------------------------------------- */

static tutti_status_t make_model(tutti_context_t *ctx, tutti_module_t **out)
{
    return tt_test_net(ctx, (int64_t[]){IN, HIDDEN, OUT}, NULL, out);
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(BATCH, IN), 0.5, 1);
    tutti_tensor_t *y = tutti_cast(s, tutti_ddp_forward(s, ddp, x), TUTTI_F32);
    tutti_tensor_t *wanted = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, OUT));
    (void)tutti_backward(s, tutti_mse_loss(s, y, wanted, TUTTI_LOSS_MEAN));
    return tutti_scope_close(s);
}

static tutti_status_t run_steps(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *optim)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        while (tutti_ddp_next_shard(ddp, ctx)) {
            TUTTI_CHECK(run_shard(ddp, ctx));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        TUTTI_CHECK(tutti_optim_step(optim));
    }
    return TUTTI_OK;
}

static tutti_status_t train(tutti_group_t *group, tutti_context_t *ctx, job_t *job)
{
    tutti_module_t *model;
    tutti_ddp_t *ddp = NULL;
    tutti_optim_t *optim = NULL;
    TUTTI_CHECK(make_model(ctx, &model));
    tutti_status_t status = tutti_ddp_create(ctx, model, group, &job->options, &ddp);
    if (status >= 0) {
        status = tutti_ddp_set_hook(ddp, job->hook, job->hook_options);
    }
    if (status >= 0) {
        status = tutti_optim_create(ctx, &tutti_adamw, &(tutti_adamw_options_t){.lr = 0.1}, &optim);
    }
    if (status >= 0) {
        status = tutti_optim_add_module(optim, model, NULL, NULL);
    }
    if (status >= 0) {
        status = run_steps(ddp, ctx, optim);
    }
    if (status >= 0) {
        status = tutti_module_digest(model, job->digests[tutti_group_rank(group)]);
    }
    tutti_optim_release(optim);
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    return status;
}

static tutti_status_t train_rank(tutti_group_t *group, job_t *job)
{
    char name[32];
    tutti_device_t *device = NULL;
    tutti_context_t *ctx = NULL;
    snprintf(name, sizeof name, "strict:%d", tutti_group_rank(group));
    if (job->is_on_devices) {
        TUTTI_CHECK(tutti_device_open(name, &(tutti_device_options_t){.threads = 1}, &device));
    }
    const tutti_context_options_t options = {.threads = 1, .seed = 42, .device = device};
    tutti_status_t status = tutti_context_create(&options, &ctx);
    if (status >= 0) {
        status = train(group, ctx, job);
    }
    tutti_context_release(ctx);
    tutti_device_release(device);
    return status;
}

static void train_member(tt_member_t *member)
{
    TT_EXPECT(member, train_rank(member->group, member->user) == TUTTI_OK);
}

static job_t host, on_devices;

static void expect_the_bits_of_the_host(tutti_ddp_options_t options)
{
    host = (job_t){.options = options};
    assert_string_equal(tt_team_run(1, 20000, train_member, &host).text, "");
    for (int ranks = 1; ranks <= options.shards; ranks++) {
        on_devices = (job_t){.is_on_devices = true, .options = options};
        assert_string_equal(tt_team_run(ranks, 20000, train_member, &on_devices).text, "");
        for (int rank = 0; rank < ranks; rank++) {
            assert_string_equal(on_devices.digests[rank], host.digests[0]);
        }
    }
}

static void devices_give_the_bits_of_the_host(void **state)
{
    (void)state;
    expect_the_bits_of_the_host((tutti_ddp_options_t){.shards = 3});
}

static void copies_of_16_bits_do_too(void **state)
{
    (void)state;
    expect_the_bits_of_the_host(
        (tutti_ddp_options_t){.shards = 2, .param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_F32});
    expect_the_bits_of_the_host((tutti_ddp_options_t){.shards = 2, .reduce_dtype = TUTTI_BF16});
}

/* Weights may depend on the number of ranks, but not on where they lie. */
static void expect_the_bits_of_as_many_ranks(const job_t *job, int ranks)
{
    host = on_devices = *job;
    on_devices.is_on_devices = true;
    assert_string_equal(tt_team_run(ranks, 20000, train_member, &host).text, "");
    assert_string_equal(tt_team_run(ranks, 20000, train_member, &on_devices).text, "");
    for (int rank = 0; rank < ranks; rank++) {
        assert_string_equal(on_devices.digests[rank], host.digests[rank]);
    }
}

/* Its steps behind the second one are compressed: gradients of IN x HIDDEN, in one bucket. */
static void hooks_see_gradients_of_devices_on_the_host(void **state)
{
    (void)state;
    const tutti_powersgd_options_t thin = {.rank = 2, .start_step = 2, .min_compression = 1.5};
    const job_t jobs[] = {
        {.hook = &tutti_allreduce_hook},
        {.hook = &tutti_bf16_hook},
        {.hook = &tutti_powersgd_hook, .hook_options = &thin},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            job_t job = jobs[i];
            job.options.shards = 2;
            expect_the_bits_of_as_many_ranks(&job, ranks);
        }
    }
}

/* ---- modules over two devices ---------------------------------------------------------------- */

typedef struct {
    tutti_device_t *devices[2];
    tutti_context_t *ctx;
    tutti_module_t *model, *layers[3];
} halves_t;

/* Rank l has strict:2l and strict:2l + 1, in this order or the other; layers from `first` on lie on
 * the second one. */
static tutti_status_t open_halves(int rank, int first, bool is_turned, halves_t *h)
{
    const tutti_linear_options_t layer = {.in = IN, .out = IN};
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "strict:%d", 2 * rank + (is_turned ? 1 - i : i));
        TUTTI_CHECK(tutti_device_open(name, NULL, &h->devices[i]));
    }
    const tutti_context_options_t options = {.threads = 1, .device = h->devices[0]};
    TUTTI_CHECK(tutti_context_create(&options, &h->ctx));
    TUTTI_CHECK(tutti_module_create(h->ctx, &tutti_sequential_layer, NULL, &h->model));
    for (int i = 0; i < 3; i++) {
        TUTTI_CHECK(tutti_sequential_add(h->model, &tutti_linear_layer, &layer, &h->layers[i]));
        TUTTI_CHECK(i >= first ? tutti_module_to(h->layers[i], h->devices[1]) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static void close_halves(halves_t *h)
{
    tutti_module_release(h->model);
    tutti_context_release(h->ctx);
    tutti_device_release(h->devices[0]);
    tutti_device_release(h->devices[1]);
}

static void cut_elsewhere_on_rank_1(tt_member_t *m)
{
    halves_t h = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(m, open_halves(m->rank, m->rank == 1 ? 1 : 2, false, &h) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(h.ctx, h.model, m->group, NULL, &ddp) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, strstr(tutti_last_error(),
                        "rank 1 has \"1.weight f32[10, 10], on device 2 of the module\" where rank "
                        "0 has \"1.weight f32[10, 10]\"") != NULL);
    TT_EXPECT(m, tutti_module_to(h.layers[1], h.devices[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(h.ctx, h.model, m->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_halves(&h);
}

static void ranks_that_cut_a_module_elsewhere_are_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, cut_elsewhere_on_rank_1, NULL);
}

/* One layer lies on the first device again, and the ranks' devices have names of another order. */
static void cut_alike(tt_member_t *m)
{
    halves_t h = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(m, open_halves(m->rank, 1, m->rank == 1, &h) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_to(h.layers[2], h.devices[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(h.ctx, h.model, m->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_halves(&h);
}

static void devices_may_have_any_names(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, cut_alike, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_give_the_bits_of_the_host),
        cmocka_unit_test(copies_of_16_bits_do_too),
        cmocka_unit_test(hooks_see_gradients_of_devices_on_the_host),
        cmocka_unit_test(ranks_that_cut_a_module_elsewhere_are_refused),
        cmocka_unit_test(devices_may_have_any_names),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
