/* A training saved at one stage of DDP, on so many ranks, goes on at another, on others, and ends
 * with the bits of one that nobody stopped. */
#include "comm/group/group_team.h"

#include <tutti/checkpoint.h>
#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/sharded.h>

#include "core/base/alloc.h"
#include "core/base/place_testing.h"

enum { SHARDS = 4, HALF = 2, STEPS = 4, IN = 20, WIDE = 2000 };

typedef struct {
    int stage, ranks, rows; /* rows: 0: no mesh */
    bool is_offloaded;      /* f32 parameters lie on a disk */
    bool is_on_meta;        /* the module is built there; what is loaded is not made before */
} layout_t;

typedef struct {
    const tutti_optim_ops_t *kind;
    tutti_dtype_t dtype;
} model_t;

typedef struct {
    model_t model;
    layout_t layout;
    const char *folder;
    int from, to; /* steps; a checkpoint is loaded where it does not begin at 0, and saved where it
                     does not end at the last one */
    char digest[TUTTI_DIGEST_BYTES];
} job_t;

static tutti_status_t run_step(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *opt,
                               tutti_dtype_t dtype)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, dtype, TUTTI_SHAPE(2, IN), -1, 1);
        x = tutti_cast(s, tutti_ddp_forward(s, ddp, x), TUTTI_F32);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(ddp));
    return tutti_optim_step(opt);
}

static tutti_status_t train(tutti_group_t *group, tutti_context_t *ctx, tutti_module_t *net,
                            tutti_optim_t *opt, job_t *job)
{
    tutti_mesh_t *mesh = NULL;
    const int rows = job->layout.rows;
    TUTTI_CHECK(rows == 0 ? TUTTI_OK
                          : tutti_mesh_create(group, 2, (int[]){rows, job->layout.ranks / rows},
                                              (const char *[]){"replicate", "shard"}, &mesh));
    const tutti_ddp_options_t options = {
        .shards = SHARDS,
        .mesh = mesh,
        .offload = job->layout.is_offloaded && job->model.dtype == TUTTI_F32 ? job->folder : NULL,
        .stage = job->layout.stage,
        .bucket_bytes = 60 << 10,
        .no_init = job->layout.is_on_meta && job->from > 0,
        .units = {.kind = job->layout.stage == 3 ? "linear" : NULL},
        .whole_slices = job->model.kind == &tutti_adafactor};
    const tutti_checkpoint_t checkpoint = {
        .folder = job->folder, .group = group, .module = net, .optim = opt};
    int64_t step = job->from;
    tutti_ddp_t *ddp;
    TUTTI_CHECK(tutti_ddp_create(ctx, net, group, &options, &ddp));
    tutti_mesh_release(mesh);
    tutti_status_t status = job->from > 0 ? tutti_checkpoint_load(&checkpoint, &step) : TUTTI_OK;
    for (; step < job->to && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        status = run_step(ddp, ctx, opt, job->model.dtype);
    }
    if (job->to < STEPS && status >= 0) {
        status = tutti_checkpoint_save(&checkpoint, step);
    }
    status = status < 0 ? status : tutti_ddp_unshard(ddp, NULL);
    tutti_ddp_release(ddp);
    return status < 0 ? status : TUTTI_OK;
}

static tutti_status_t make_net(const job_t *job, tutti_module_t **net)
{
    const tutti_linear_options_t up = {.in = IN, .out = WIDE}, down = {.in = WIDE, .out = IN};
    tutti_context_options_t options = {.threads = 1, .seed = 5};
    tutti_device_t *meta;
    tutti_context_t *ctx;
    TUTTI_CHECK(tutti_device_open("meta", NULL, &meta));
    options.device = job->layout.is_on_meta ? meta : NULL;
    TUTTI_CHECK(tutti_context_create(&options, &ctx));
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, net));
    TUTTI_CHECK(tutti_sequential_add(*net, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(*net, &tutti_linear_layer, &down, NULL));
    tutti_context_release(ctx);
    tutti_device_release(meta);
    return tutti_module_cast(*net, job->model.dtype);
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    char digest[TUTTI_DIGEST_BYTES] = "";
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_net(job, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(ctx, job->model.kind, NULL, &opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(opt, net, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, train(m->group, ctx, net, opt, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(net, digest) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(job->digest, digest, sizeof digest);
    }
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void run(job_t *job)
{
    tt_team_expect_quietly(job->layout.ranks, 20000, train_member, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static const layout_t layouts[] = {{.stage = 0, .ranks = 1},
                                   {.stage = 0, .ranks = 2},
                                   {.stage = 1, .ranks = 1},
                                   {.stage = 1, .ranks = 3},
                                   {.stage = 2, .ranks = 2},
                                   {.stage = 3, .ranks = 1},
                                   {.stage = 3, .ranks = 2, .is_offloaded = true},
                                   {.stage = 3, .ranks = 4, .is_on_meta = true},
                                   {.stage = 3, .ranks = 4, .rows = 2}};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void change_layout(const model_t *model)
{
    job_t whole = {.model = *model, .layout = layouts[0], .to = STEPS};
    run(&whole);
    for (int i = 0; i < LAYOUTS; i++) {
        char place[TT_PLACE_BYTES];
        tt_place_make_quick(place);
        job_t first = {.model = *model, .layout = layouts[i], .folder = place, .to = HALF};
        run(&first);
        for (int k = 0; k < LAYOUTS; k++) {
            job_t second = {
                .model = *model, .layout = layouts[k], .folder = place, .from = HALF, .to = STEPS};
            run(&second);
            if (strcmp(second.digest, whole.digest) != 0) {
                fail_msg("stage %d on %d ranks, then stage %d on %d: %s, want %s", layouts[i].stage,
                         layouts[i].ranks, layouts[k].stage, layouts[k].ranks, second.digest,
                         whole.digest);
            }
        }
        tt_place_remove(place);
    }
}

static void any_layout_goes_on(void **state)
{
    (void)state;
    change_layout(&(model_t){&tutti_adamw, TUTTI_F32});
}

static void masters_travel(void **state)
{
    (void)state;
    change_layout(&(model_t){&tutti_lamb, TUTTI_BF16});
}

static void whole_state_travels(void **state)
{
    (void)state;
    change_layout(&(model_t){&tutti_adafactor, TUTTI_F32});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_goes_on),
        cmocka_unit_test(masters_travel),
        cmocka_unit_test(whole_state_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
