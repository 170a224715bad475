/* Stages 1 to 3: each rank steps slices of its own, and the bits are those of a training in which
 * every rank steps all, whatever the optimizer, the ranks, the dtypes and what stands around the
 * step. */
#include "core/base/testing.h"

#include <math.h>

#include <tutti/autograd.h>
#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/offload.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/device/heap.h"
#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"

enum { STEPS = 3, IN = 24, WIDE = 1500, BATCH = 2, SHARDS = 4, RANKS_MAX = 4 };

typedef struct {
    const char *name;
    const tutti_optim_ops_t *kind;
    const void *optimizer_options;
    tutti_ddp_options_t options;
    tutti_dtype_t dtype; /* of the model */
    double clip, p;      /* the norm that it is clipped to; 0: not at all */
    bool is_alone;       /* the first weight alone is stepped: its norm is the whole norm */
    bool is_inside;      /* options.optimizer */
    bool scales;         /* a loss scaler, whose first scale overflows */
    bool skips;          /* the last parameter gets a gradient in the last step alone */
    bool is_empty;       /* shard 1 has no data in the last step */
} case_t;

typedef struct {
    const case_t *at;
    int stage;
    const char *folder; /* optimizer state is there; NULL: in memory */
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
    double norms[RANKS_MAX][STEPS];
    int64_t state_numel[RANKS_MAX]; /* of all moments and masters */
} job_t;

/* ---- the training ---------------------------------------------------------------------------- */

typedef struct {
    tutti_module_t *net, *layers[3];
} net_t;

/* The weight of the first layer is cut in several places, that of the second in none. */
static tutti_status_t make_net(tutti_context_t *ctx, tutti_dtype_t dtype, net_t *out)
{
    const tutti_linear_options_t options[] = {
        {.in = IN, .out = WIDE, .activation = TUTTI_ACTIVATION_TANH},
        {.in = WIDE, .out = 3},
        {.in = 3, .out = 3}};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &out->net));
    for (int i = 0; i < 3; i++) {
        TUTTI_CHECK(
            tutti_sequential_add(out->net, &tutti_linear_layer, &options[i], &out->layers[i]));
    }
    return tutti_module_cast(out->net, dtype);
}

static tutti_status_t run_shard(const net_t *net, tutti_context_t *ctx, const case_t *at, int step,
                                const tutti_scaler_t *scaler)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    const tutti_dtype_t dtype =
        at->options.param_dtype == TUTTI_F32 ? at->dtype : at->options.param_dtype;
    tutti_tensor_t *x = tutti_uniform(s, dtype, TUTTI_SHAPE(BATCH, IN), -1, 1);
    for (int i = 0; i < (at->skips && step + 1 < STEPS ? 2 : 3); i++) {
        x = tutti_forward(s, net->layers[i], x);
    }
    tutti_tensor_t *loss = tutti_mean(s, tutti_square(s, tutti_cast(s, x, TUTTI_F32)));
    (void)tutti_backward(s, scaler != NULL ? tutti_scaler_scale(scaler, s, loss) : loss);
    return tutti_scope_close(s);
}

static tutti_status_t update(const case_t *at, tutti_optim_t *opt, tutti_scaler_t *scaler,
                             double *norm)
{
    if (scaler != NULL) {
        TUTTI_CHECK(tutti_scaler_unscale(scaler, opt));
    }
    if (at->clip > 0) {
        TUTTI_CHECK(tutti_clip_grad_norm(opt, at->clip, at->p == 0 ? 2 : at->p, norm));
    }
    if (scaler != NULL) {
        TUTTI_CHECK(tutti_scaler_step(scaler, opt, NULL));
        return tutti_scaler_update(scaler);
    }
    return at->is_inside ? TUTTI_OK : tutti_optim_step(opt);
}

static tutti_status_t run_step(tutti_ddp_t *ddp, const net_t *net, tutti_context_t *ctx,
                               const case_t *at, int step, tutti_optim_t *opt,
                               tutti_scaler_t *scaler, double *norm)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        const bool is_empty = at->is_empty && step + 1 == STEPS && tutti_context_shard(ctx) == 1;
        if (at->options.uneven != TUTTI_DDP_EVEN) {
            TUTTI_CHECK(tutti_ddp_set_weight(ddp, is_empty ? 0 : 1 + tutti_context_shard(ctx)));
        }
        TUTTI_CHECK(is_empty ? TUTTI_OK : run_shard(net, ctx, at, step, scaler));
    }
    TUTTI_CHECK(tutti_ddp_finish(ddp));
    TUTTI_CHECK(update(at, opt, scaler, norm));
    tutti_context_set_step(ctx, step + 1);
    return TUTTI_OK;
}

static tutti_status_t count_state(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(int64_t *)user += tutti_tensor_rank(x) == 0 ? 0 : tutti_tensor_numel(x);
    return TUTTI_OK;
}

static tutti_status_t train(const tt_member_t *m, tutti_context_t *ctx, const net_t *net,
                            tutti_optim_t *opt, job_t *job)
{
    const case_t *at = job->at;
    tutti_ddp_options_t options = at->options;
    tutti_ddp_t *ddp;
    tutti_scaler_t *scaler = NULL;
    options.shards = SHARDS;
    options.stage = job->stage;
    options.units.kind = job->stage == 3 ? "linear" : NULL;
    options.bucket_bytes = 100 << 10;
    options.optimizer = at->is_inside ? opt : NULL;
    const tutti_scaler_options_t scaling = {.init_scale = 1e38, .group = m->group};
    TUTTI_CHECK(at->scales ? tutti_scaler_create(&scaling, &scaler) : TUTTI_OK);
    TUTTI_CHECK(tutti_ddp_create(ctx, net->net, m->group, &options, &ddp));
    tutti_status_t status = TUTTI_OK;
    for (int step = 0; step < STEPS && status >= 0; step++) {
        status = run_step(ddp, net, ctx, at, step, opt, scaler, &job->norms[m->rank][step]);
    }
    if (status >= 0) {
        status = tutti_optim_each_state(opt, count_state, &job->state_numel[m->rank]);
    }
    char digest[TUTTI_DIGEST_BYTES];
    status = status < 0 ? status : tutti_ddp_digest(ddp, digest);
    status = status < 0 ? status : tutti_ddp_unshard(ddp, NULL);
    tutti_ddp_release(ddp);
    tutti_scaler_release(scaler);
    TUTTI_CHECK(status);
    TUTTI_CHECK(tutti_module_digest(net->net, job->digests[m->rank]));
    return strcmp(digest, job->digests[m->rank]) == 0 ? TUTTI_OK : TUTTI_ERR_MISMATCH;
}

static int choose(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)x;
    const case_t *at = user;
    return !at->is_alone || strcmp(name, "0.weight") == 0 ? 0 : -1;
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    tutti_context_t *ctx;
    net_t net;
    tutti_optim_t *opt;
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_net(ctx, job->at->dtype, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(ctx, job->at->kind, job->at->optimizer_options, &opt) == 0);
    case_t at = *job->at;
    TT_EXPECT(m, tutti_optim_add_module(opt, net.net, choose, &at) == TUTTI_OK);
    TT_EXPECT(m, job->folder == NULL || tutti_optim_offload(opt, job->folder) == TUTTI_OK);
    TT_EXPECT(m, train(m, ctx, &net, opt, job) == TUTTI_OK);
    tutti_optim_release(opt);
    tutti_module_release(net.net);
    tutti_context_release(ctx);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static const tutti_sgd_options_t momentum = {.lr = 0.1, .momentum = 0.9};
static const tutti_adafactor_options_t factored = {.lr = 0.01};

static const case_t cases[] = {
    {.name = "sgd", .kind = &tutti_sgd},
    {.name = "momentum, clipped", .kind = &tutti_sgd, .optimizer_options = &momentum, .clip = 1e-3},
    {.name = "adamw, clipped", .kind = &tutti_adamw, .clip = 0.01},
    {.name = "adamw, largest", .kind = &tutti_adamw, .clip = 1e-4, .p = INFINITY},
    {.name = "adamw inside", .kind = &tutti_adamw, .is_inside = true},
    {.name = "lion", .kind = &tutti_lion},
    {.name = "lamb", .kind = &tutti_lamb, .clip = 0.5},
    {.name = "lamb inside", .kind = &tutti_lamb, .is_inside = true},
    {.name = "adafactor",
     .kind = &tutti_adafactor,
     .optimizer_options = &factored,
     .options = {.whole_slices = true}},
    {.name = "adafactor inside",
     .kind = &tutti_adafactor,
     .optimizer_options = &factored,
     .is_inside = true},
    {.name = "bf16 with masters", .kind = &tutti_adamw, .dtype = TUTTI_BF16, .clip = 0.01},
    {.name = "f16, scaled", .kind = &tutti_adamw, .dtype = TUTTI_F16, .scales = true, .clip = 1},
    {.name = "mixed",
     .kind = &tutti_adamw,
     .options = {.param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16},
     .clip = 0.01},
    {.name = "reduced in bf16", .kind = &tutti_lamb, .options = {.reduce_dtype = TUTTI_BF16}},
    {.name = "weighted",
     .kind = &tutti_adamw,
     .options = {.uneven = TUTTI_DDP_WEIGHTED},
     .is_empty = true},
    {.name = "alone, clipped", .kind = &tutti_sgd, .clip = 1e-4, .is_alone = true},
    {.name = "alone, largest", .kind = &tutti_sgd, .clip = 1e-5, .p = INFINITY, .is_alone = true},
    {.name = "late parameters", .kind = &tutti_adamw, .skips = true, .clip = 0.01},
};

static void run_in(job_t *job, const case_t *at, int ranks, int stage, const char *folder)
{
    *job = (job_t){.at = at, .stage = stage, .folder = folder};
    tt_team_expect_quietly(ranks, 20000, train_member, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void run(job_t *job, const case_t *at, int ranks, int stage)
{
    run_in(job, at, ranks, stage, NULL);
}

static void expect_same(const job_t *want, const job_t *job, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], want->digests[0]);
        for (int step = 0; step < STEPS; step++) {
            const double a = job->norms[rank][step], b = want->norms[0][step];
            assert_true(a == b || (isnan(a) && isnan(b)));
        }
    }
}

static void slices_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    job_t want, job;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("%s\n", cases[i].name);
        run(&want, &cases[i], 1, 0);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            run(&job, &cases[i], ranks, 1 + ((int)i + ranks) % 3); /* stages take turns */
            expect_same(&want, &job, ranks);
        }
    }
}

enum { CASES = sizeof cases / sizeof cases[0], LAYOUTS = 4 }; /* ranks 1 and 2, stages 0 and 1 */

/* A share of them, and one at least. */
static void a_disk_has_the_bits_of_memory(void **state)
{
    (void)state;
    job_t want, job;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    for (uint64_t i = 0; i < CASES * LAYOUTS; i++) {
        const int ranks = 1 + (int)(i / CASES % 2), stage = (int)(i / CASES / 2);
        if (tt_test_takes(i) || i + 1 == CASES * LAYOUTS) {
            print_message("%s, %d ranks, stage %d\n", cases[i % CASES].name, ranks, stage);
            run(&want, &cases[i % CASES], 1, 0);
            run_in(&job, &cases[i % CASES], ranks, stage, folder);
            expect_same(&want, &job, ranks);
            assert_int_equal(tt_alloc_stats().blocks, 0);
        }
    }
    tt_place_remove(folder);
}

/* Moments of a slice, and of no more. */
static void state_is_dealt_out(void **state)
{
    (void)state;
    job_t whole, job;
    run(&whole, &cases[2], 1, 0);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        int64_t all = 0, most = 0;
        run(&job, &cases[2], ranks, 1);
        for (int rank = 0; rank < ranks; rank++) {
            all += job.state_numel[rank];
            most = job.state_numel[rank] > most ? job.state_numel[rank] : most;
        }
        assert_int_equal(all, whole.state_numel[0]);
        assert_true(most < whole.state_numel[0]);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct {
    size_t nth; /* allocation that fails, on whichever rank */
    tutti_status_t statuses[2];
    bool is_changed[2], has_failed;
    bool is_repeated[2]; /* the step, which had failed */
    char after[2][TUTTI_DIGEST_BYTES];
} lack_t;

typedef struct {
    tutti_context_t *ctx;
    net_t net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} small_t;

static void open_staged(tt_member_t *m, const tutti_optim_ops_t *kind,
                        const tutti_ddp_options_t *sliced, small_t *out)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    TT_EXPECT(m, tutti_context_create(&options, &out->ctx) == TUTTI_OK);
    TT_EXPECT(m, make_net(out->ctx, TUTTI_F32, &out->net) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(out->ctx, kind, NULL, &out->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(out->opt, out->net.net, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(out->ctx, out->net.net, m->group, sliced, &out->ddp) == 0);
}

static void open_small(tt_member_t *m, const tutti_optim_ops_t *kind, bool whole_slices,
                       small_t *out)
{
    const tutti_ddp_options_t sliced = {.stage = 1, .whole_slices = whole_slices};
    open_staged(m, kind, &sliced, out);
}

static void close_small(small_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net.net);
    tutti_context_release(t->ctx);
}

static void backward(tt_member_t *m, small_t *t)
{
    static const case_t plain = {.name = "plain"};
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        TT_EXPECT(m, run_shard(&t->net, t->ctx, &plain, 0, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(t->ddp) == TUTTI_OK);
}

static void step_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    small_t t;
    char before[TUTTI_DIGEST_BYTES], *after = lack->after[m->rank];
    open_small(m, &tutti_lamb, false, &t);
    backward(m, &t);
    TT_EXPECT(m, tutti_module_digest(t.net.net, before) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    const tutti_status_t clipped = tutti_clip_grad_norm(t.opt, 0.1, 2, NULL);
    tutti_status_t status = clipped < 0 ? clipped : tutti_optim_step(t.opt);
    lack->statuses[m->rank] = status;
    pthread_barrier_wait(m->start);
    tt_alloc_fail_at(0);
    pthread_barrier_wait(m->start);
    TT_EXPECT(m, tutti_module_digest(t.net.net, after) == TUTTI_OK);
    lack->is_changed[m->rank] = strcmp(before, after) != 0;
    if (clipped == TUTTI_OK && status == TUTTI_ERR_NOMEM && !lack->is_changed[m->rank] &&
        tutti_optim_step(t.opt) == TUTTI_OK) {
        TT_EXPECT(m, tutti_module_digest(t.net.net, after) == TUTTI_OK);
        lack->is_repeated[m->rank] = true;
    }
    close_small(&t);
}

/* All ranks step, or none, and nobody waits for the one that cannot. A step that has failed before
 * it changed anything can be made again, as if it had not been tried. */
static void a_rank_without_memory_stops_all(void **state)
{
    (void)state;
    int failed = 0, stepped = 0, repeated = 0;
    lack_t unbroken = {.nth = 0};
    tt_team_expect_quietly(2, 20000, step_without_memory, &unbroken);
    for (size_t nth = 1; nth <= 300; nth += 1) {
        lack_t lack = {.nth = nth};
        tt_team_expect_quietly(2, 20000, step_without_memory, &lack);
        assert_true((lack.statuses[0] < 0) == (lack.statuses[1] < 0));
        assert_true(lack.statuses[0] < 0 || (lack.is_changed[0] && lack.is_changed[1]));
        failed += lack.statuses[0] < 0;
        stepped += lack.statuses[0] == TUTTI_OK;
        repeated += lack.is_repeated[0];
        if (lack.is_repeated[0]) {
            assert_true(lack.is_repeated[1]);
            assert_string_equal(lack.after[0], unbroken.after[0]);
            assert_string_equal(lack.after[1], unbroken.after[1]);
        }
    }
    print_message("%d steps failed, %d of them were made again\n", failed, repeated);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    assert_true(failed > 10 && stepped > 10);
}

/* Of the memory that ranks share, as nothing is under way. */
static size_t shared_bytes(const tt_member_t *m)
{
    return tt_device_stats(m->group->backend->memory(m->group->state)).live_bytes;
}

enum { SMALL_BUCKET = 16 << 10 };

/* At stage 2 the gradients' buckets are gone behind each step; beside what stage 1 has, without the
 * gradients, there are this rank's averages. */
static void look_at_buckets(tt_member_t *m)
{
    small_t t;
    size_t bytes[3] = {0};
    for (int stage = 1; stage <= 2; stage++) {
        const tutti_ddp_options_t options = {.stage = stage, .bucket_bytes = SMALL_BUCKET};
        const size_t before = shared_bytes(m);
        open_staged(m, &tutti_adamw, &options, &t);
        for (int step = 0; step < 2; step++) {
            backward(m, &t);
            TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
            TT_EXPECT(m, bytes[stage] == 0 || bytes[stage] == shared_bytes(m) - before);
            bytes[stage] = shared_bytes(m) - before;
        }
        const tutti_ddp_stats_t stats = tutti_ddp_stats(t.ddp);
        const size_t pages = 3 * (size_t)stats.buckets * tt_heap_page_bytes();
        TT_EXPECT(m, stats.buckets >= 2);
        TT_EXPECT(m, stage == 1 || bytes[1] - bytes[2] + stats.bucket_bytes * 2 / 3 + pages >=
                                       stats.bucket_bytes);
        close_small(&t);
    }
}

static void buckets_of_gradients_come_and_go(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, look_at_buckets, NULL);
}

/* An allocation fails somewhere in a step at stage 2, on whichever rank: all ranks fail. */
static void backward_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    small_t t;
    static const case_t plain = {.name = "plain"};
    const tutti_ddp_options_t options = {.stage = 2, .bucket_bytes = SMALL_BUCKET};
    open_staged(m, &tutti_sgd, &options, &t);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    while (tutti_ddp_next_shard(t.ddp, t.ctx)) {
        (void)run_shard(&t.net, t.ctx, &plain, 0, NULL);
    }
    tutti_status_t status = tutti_ddp_finish(t.ddp);
    status = status < 0 ? status : tutti_optim_step(t.opt);
    lack->statuses[m->rank] = status;
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    close_small(&t);
}

static void a_rank_without_memory_for_a_bucket_stops_all(void **state)
{
    (void)state;
    int failed = 0;
    lack_t lack = {.nth = 1, .has_failed = true};
    for (; lack.has_failed; lack.nth += 13) {
        lack.has_failed = false;
        tt_team_expect_quietly(2, 20000, backward_without_memory, &lack);
        assert_true((lack.statuses[0] < 0) == (lack.statuses[1] < 0));
        failed += lack.statuses[0] < 0;
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
    assert_true(failed > 5);
}

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *text)
{
    TT_EXPECT(m, status == want && strstr(tutti_last_error(), text) != NULL);
}

/* Moments of Adafactor: never as long as the parameter's values, which another rank has changed. */
static tutti_status_t count_own(void *user, const char *name, tutti_tensor_t *x)
{
    const bool is_moment = strstr(name, ".step") == NULL;
    *(size_t *)user += is_moment;
    return !is_moment || tutti_tensor_at(x, 0) > 0 ? TUTTI_OK
                                                   : TT_FAIL(TUTTI_ERR_STATE, "%s", name);
}

static void misuse(tt_member_t *m)
{
    small_t t;
    tutti_ddp_t *ddp;
    open_small(m, &tutti_adamw, false, &t);
    expect_text(m, tutti_ddp_set_hook(t.ddp, &tutti_bf16_hook, NULL), TUTTI_ERR_UNSUPPORTED,
                "wants options.stage 0");
    expect_text(m, tutti_optim_save(t.opt, "/dev/null"), TUTTI_ERR_STATE,
                "tutti_checkpoint_save() writes them as one");
    backward(m, &t);
    TT_EXPECT(m, tutti_tensor_grad(tutti_module_find(t.net.net, "0.weight")) == NULL);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    backward(m, &t);
    tutti_optim_zero_grad(t.opt); /* no gradient: no step */
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    expect_text(m, tutti_optim_save(t.opt, "/dev/null"), TUTTI_ERR_STATE, "others, or did so");
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net.net, m->group, &(tutti_ddp_options_t){.stage = 0},
                                  &t.ddp) == TUTTI_OK);
    backward(m, &t);
    expect_text(m, tutti_optim_step(t.opt), TUTTI_ERR_STATE, "but this rank steps");
    close_small(&t);
    open_small(m, &tutti_adafactor, true, &t);
    backward(m, &t);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    size_t saved = 0;
    expect_text(m, tutti_optim_save(t.opt, "/dev/null"), TUTTI_ERR_STATE, "others, or did so");
    TT_EXPECT(m, tutti_optim_each_state(t.opt, count_own, &saved) == TUTTI_OK && saved > 0);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net.net, m->group, NULL, &t.ddp) == TUTTI_OK);
    backward(m, &t);
    expect_text(m, tutti_optim_step(t.opt), TUTTI_ERR_STATE, "another rank has its state");
    close_small(&t);
    open_small(m, &tutti_adafactor, false, &t);
    backward(m, &t);
    expect_text(m, tutti_optim_step(t.opt), TUTTI_ERR_STATE, "options.whole_slices");
    expect_text(
        m, tutti_ddp_create(t.ctx, t.net.net, m->group, &(tutti_ddp_options_t){.stage = 4}, &ddp),
        TUTTI_ERR_ARG, "stage 4");
    close_small(&t);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, misuse, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_have_the_bits_of_the_whole),
        cmocka_unit_test(a_disk_has_the_bits_of_memory),
        cmocka_unit_test(state_is_dealt_out),
        cmocka_unit_test(a_rank_without_memory_stops_all),
        cmocka_unit_test(buckets_of_gradients_come_and_go),
        cmocka_unit_test(a_rank_without_memory_for_a_bucket_stops_all),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
