/* DDP over a module that is spread over two devices of each rank: the bits of the host. The module
 * is that of lesson 17, small: a convolution and a residual block on each device, and splits.
 */
#include "core/base/testing.h"

#include <string.h>

#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_conv.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"

enum { STEPS = 4, SHARDS = 2, BATCH = 4, SIDE = 6, WIDTH = 3, KINDS = 5, DEVICES = 2 };

typedef struct {
    int64_t split;     /* pictures that go through the halves together */
    int micro_batches; /* backwards of a shard */
    bool has_extra;    /* a layer that is used in some steps of some shards alone */
    tutti_ddp_options_t options;
} way_t;

typedef struct {
    bool is_on_devices;
    way_t way;
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
    uint64_t launches[TT_TEAM_MAX][DEVICES];
} job_t;

/* ---- the module ------------------------------------------------------------------------------ */

typedef struct {
    const way_t *way;
    tutti_device_t *second_device; /* NULL: the host */
} net_options_t;

typedef struct {
    net_options_t options;
    tutti_module_t *conv[DEVICES], *norm[DEVICES], *inner[DEVICES], *head, *extra, *never;
} net_t;

static tutti_status_t add_half(tutti_module_t *m, net_t *net, int half)
{
    static const char *const names[DEVICES][3] = {{"conv0", "inner0", "norm0"},
                                                  {"conv1", "inner1", "norm1"}};
    const int64_t stride = 1 + half;
    const tutti_conv_layer_options_t conv = {
        .in = WIDTH,
        .out = WIDTH,
        .kernel = {3, 3},
        .move = {.stride = {stride, stride}, .padding = {1, 1}}};
    const tutti_conv_layer_options_t inner = {
        .in = WIDTH, .out = WIDTH, .kernel = {3, 3}, .move = {.padding = {1, 1}}, .no_bias = true};
    const tutti_batch_norm_layer_options_t norm = {.width = WIDTH, .relu = true};
    const char *const *name = names[half];
    TUTTI_CHECK(tutti_module_new_child(m, name[0], &tutti_conv2d_layer, &conv, &net->conv[half]));
    TUTTI_CHECK(tutti_module_new_child(m, name[1], &tutti_conv2d_layer, &inner, &net->inner[half]));
    return tutti_module_new_child(m, name[2], &tutti_batch_norm_layer, &norm, &net->norm[half]);
}

static tutti_status_t init_net(tutti_module_t *m, const void *options)
{
    net_t *net = tutti_module_state(m);
    net->options = *(const net_options_t *)options;
    const tutti_linear_options_t head = {.in = WIDTH, .out = KINDS};
    TUTTI_CHECK(add_half(m, net, 0));
    TUTTI_CHECK(add_half(m, net, 1));
    TUTTI_CHECK(tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &net->head));
    TUTTI_CHECK(tutti_module_new_child(m, "extra", &tutti_linear_layer, &head, &net->extra));
    return tutti_module_new_child(m, "never", &tutti_linear_layer, &head, &net->never);
}

static tutti_tensor_t *forward_half(tutti_scope_t *s, net_t *net, int half, tutti_tensor_t *x)
{
    x = tutti_forward(s, net->conv[half], x);
    tutti_tensor_t *y = tutti_forward(s, net->inner[half], x);
    tutti_forward_many(s, net->norm[half], (tutti_tensor_t *[]){y, x}, 2, &y, 1);
    return y; /* relu(norm(inner(x)) + x) */
}

/* In the second shard, and there in every other step. */
static bool uses_extra(const net_t *net, const tutti_context_t *ctx)
{
    return net->options.way->has_extra && tutti_context_shard(ctx) == 1 &&
           tutti_context_step(ctx) % 2 == 1;
}

static tutti_tensor_t *forward_net(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    net_t *net = tutti_module_state(m);
    tutti_tensor_t *outputs[BATCH];
    int count = 0;
    for (int64_t at = 0; at < BATCH; at += net->options.way->split) {
        tutti_tensor_t *part = tutti_narrow(s, x, 0, at, net->options.way->split);
        part = tutti_tensor_to(s, forward_half(s, net, 0, part), net->options.second_device);
        part = forward_half(s, net, 1, part);
        outputs[count++] = tutti_adaptive_avg_pool2d(s, part, 1, 1);
    }
    x = tutti_reshape(s, tutti_cat(s, outputs, count, 0), TUTTI_SHAPE(BATCH, WIDTH));
    tutti_tensor_t *y = tutti_forward(s, net->head, x);
    return uses_extra(net, tutti_scope_context(s))
               ? tutti_add(s, y, tutti_forward(s, net->extra, x))
               : y;
}

static const tutti_module_ops_t net_ops = {
    .name = "spread_net", .state_bytes = sizeof(net_t), .init = init_net, .forward = forward_net};

static tutti_status_t move_second_half(const net_t *net, tutti_device_t *device)
{
    tutti_module_t *const second[] = {net->conv[1], net->inner[1], net->norm[1],
                                      net->head,    net->extra,    net->never};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        TUTTI_CHECK(tutti_module_to(second[i], device));
    }
    return TUTTI_OK;
}

/* ---- training -------------------------------------------------------------------------------- */

static tutti_status_t run_micro_batch(tutti_ddp_t *ddp, tutti_context_t *ctx, int index)
{
    const net_t *net = tutti_module_state(tutti_ddp_module(ddp));
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x =
        tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH, SIDE, SIDE), 0.5 * index, 1);
    tutti_tensor_t *kinds = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(BATCH), 0, KINDS);
    kinds = tutti_tensor_to(s, kinds, net->options.second_device);
    (void)tutti_backward(s, tutti_cross_entropy(s, tutti_ddp_forward(s, ddp, x), kinds));
    return tutti_scope_close(s);
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const way_t *way)
{
    for (int i = 0; i < way->micro_batches; i++) {
        tutti_ddp_no_sync(ddp, i + 1 < way->micro_batches);
        TUTTI_CHECK(run_micro_batch(ddp, ctx, i));
    }
    return TUTTI_OK;
}

/* Whoever never gets a gradient is named, on every rank. */
static tutti_status_t check_unused(const tutti_ddp_t *ddp)
{
    const char *unused = tutti_ddp_unused(ddp);
    return strstr(unused, "never.weight") != NULL && strstr(unused, "conv1") == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "unused: %s", unused);
}

static tutti_status_t run_steps(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *optim,
                                const way_t *way)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        while (tutti_ddp_next_shard(ddp, ctx)) {
            TUTTI_CHECK(run_shard(ddp, ctx, way));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        TUTTI_CHECK(check_unused(ddp));
        TUTTI_CHECK(tutti_optim_step(optim));
    }
    return TUTTI_OK;
}

static tutti_status_t train(tutti_group_t *group, tutti_context_t *ctx, tutti_device_t *second,
                            job_t *job)
{
    tutti_module_t *model;
    tutti_ddp_t *ddp = NULL;
    tutti_optim_t *optim = NULL;
    const net_options_t options = {&job->way, second};
    TUTTI_CHECK(tutti_module_create(ctx, &net_ops, &options, &model));
    tutti_status_t status = move_second_half(tutti_module_state(model), second);
    if (status >= 0) {
        status = tutti_ddp_create(ctx, model, group, &job->way.options, &ddp);
    }
    if (status >= 0) {
        status = tutti_optim_create(ctx, &tutti_adamw, &(tutti_adamw_options_t){.lr = 0.1}, &optim);
    }
    if (status >= 0) {
        status = tutti_optim_add_module(optim, model, NULL, NULL);
    }
    if (status >= 0) {
        status = run_steps(ddp, ctx, optim, &job->way);
    }
    if (status >= 0) {
        status = tutti_module_digest(model, job->digests[tutti_group_rank(group)]);
    }
    tutti_optim_release(optim);
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    return status;
}

/* The rank with local rank l owns the devices 2 l and 2 l + 1. */
static tutti_status_t open_devices(int local_rank, tutti_device_t **devices)
{
    for (int i = 0; i < DEVICES; i++) {
        char name[32];
        snprintf(name, sizeof name, "strict:%d", DEVICES * local_rank + i);
        TUTTI_CHECK(tutti_device_open(name, &(tutti_device_options_t){.threads = 1}, &devices[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t train_rank(tutti_group_t *group, job_t *job)
{
    const int rank = tutti_group_rank(group);
    tutti_device_t *devices[DEVICES] = {NULL, NULL};
    tutti_context_t *ctx = NULL;
    tutti_status_t status = job->is_on_devices ? open_devices(rank, devices) : TUTTI_OK;
    if (status >= 0) {
        status = tutti_context_create(
            &(tutti_context_options_t){.threads = 1, .seed = 42, .device = devices[0]}, &ctx);
    }
    if (status >= 0) {
        status = train(group, ctx, devices[1], job);
    }
    tutti_context_release(ctx);
    for (int i = 0; i < DEVICES; i++) {
        job->launches[rank][i] = devices[i] == NULL ? 0 : tutti_device_stats(devices[i]).launches;
        tutti_device_release(devices[i]);
    }
    return status;
}

static void train_member(tt_member_t *member)
{
    TT_EXPECT(member, train_rank(member->group, member->user) == TUTTI_OK);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static job_t host, on_devices;

static void expect_the_bits_of_the_host(way_t way)
{
    way.options.shards = SHARDS;
    host = (job_t){.way = way};
    assert_string_equal(tt_team_run(1, 20000, train_member, &host).text, "");
    for (int ranks = 1; ranks <= SHARDS; ranks++) {
        on_devices = (job_t){.is_on_devices = true, .way = way};
        assert_string_equal(tt_team_run(ranks, 20000, train_member, &on_devices).text, "");
        for (int rank = 0; rank < ranks; rank++) {
            assert_string_equal(on_devices.digests[rank], host.digests[0]);
            for (int i = 0; i < DEVICES; i++) {
                assert_true(on_devices.launches[rank][i] > 0); /* each did a part of it */
            }
        }
    }
}

static void two_devices_of_each_rank_give_the_bits_of_the_host(void **state)
{
    (void)state;
    expect_the_bits_of_the_host((way_t){.split = BATCH, .micro_batches = 1});
}

static void so_do_splits_that_follow_each_other(void **state)
{
    (void)state;
    expect_the_bits_of_the_host((way_t){.split = 2, .micro_batches = 1});
}

static void so_do_micro_batches(void **state)
{
    (void)state;
    expect_the_bits_of_the_host((way_t){.split = 2, .micro_batches = 3});
}

/* Buckets of one parameter or two: those of both devices are under way at a time. */
static void so_do_parameters_that_some_shards_do_not_use(void **state)
{
    (void)state;
    expect_the_bits_of_the_host((way_t){.split = 2,
                                        .micro_batches = 2,
                                        .has_extra = true,
                                        .options = {.bucket_bytes = 64, .first_bucket_bytes = 64}});
}

static void so_do_copies_of_16_bits(void **state)
{
    (void)state;
    expect_the_bits_of_the_host(
        (way_t){.split = 2, .micro_batches = 1, .options = {.reduce_dtype = TUTTI_BF16}});
}

static int check_leaks(void **state)
{
    (void)state;
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_of_each_rank_give_the_bits_of_the_host),
        cmocka_unit_test(so_do_splits_that_follow_each_other),
        cmocka_unit_test(so_do_micro_batches),
        cmocka_unit_test(so_do_parameters_that_some_shards_do_not_use),
        cmocka_unit_test(so_do_copies_of_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, check_leaks);
}
