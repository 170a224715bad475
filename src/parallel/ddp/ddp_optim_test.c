/* The optimizer's step inside backward: the bits of a step behind finish, whatever arrives when,
 * is used, shared, or read once more; and what is refused. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/offload.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/log.h"
#include "core/base/place_testing.h"

enum { STEPS = 4, WIDE = 6, BATCH = 3, SHARDS = 3 };

typedef struct job {
    bool is_inside; /* else the optimizer steps behind finish */
    tutti_ddp_options_t options;
    const tutti_optim_ops_t *optimizer;
    const void *optimizer_options;
    const tutti_ddp_hook_ops_t *hook;
    tutti_dtype_t dtype, autocast;
    bool recomputes, packs;
    const char *folder; /* of the optimizer's state; NULL: it is in memory */
    int micro_batches;  /* 0: one */
    int last_step;      /* shard 2 has no data from then on; 0: always has */
    tutti_tensor_t *(*loss)(tutti_scope_t *s, tutti_module_t *model, tutti_tensor_t *x);
    int early_steps[TT_TEAM_MAX]; /* over all steps */
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

/* ---- what is trained ------------------------------------------------------------------------- */

/* Rows of tanh(a x), and b behind them, whose gradient is there before anything is computed again:
 * cat has saved nothing. */
typedef struct {
    tutti_tensor_t *a, *b;
} bend_t;

static tutti_status_t init_bend(tutti_module_t *m, const void *options)
{
    (void)options;
    bend_t *bend = tutti_module_state(m);
    const tutti_init_t init = {TUTTI_INIT_NORMAL, 0, 1};
    TUTTI_CHECK(tutti_module_new_parameter(m, "a", TUTTI_SHAPE(WIDE), init, &bend->a));
    return tutti_module_new_parameter(m, "b", TUTTI_SHAPE(1, WIDE), init, &bend->b);
}

static tutti_tensor_t *forward_bend(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const bend_t *bend = tutti_module_state(m);
    tutti_tensor_t *rows[] = {tutti_tanh(s, tutti_mul(s, x, bend->a)), bend->b};
    return tutti_cat(s, rows, 2, 0);
}

static const tutti_module_ops_t bend_layer = {
    .name = "bend", .state_bytes = sizeof(bend_t), .init = init_bend, .forward = forward_bend};

static tutti_status_t make_model(tutti_context_t *ctx, tutti_dtype_t dtype, bool recomputes,
                                 tutti_module_t **out)
{
    const tutti_sequential_options_t all = {.recompute = recomputes};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, &all, out));
    const tutti_linear_options_t options = {
        .in = WIDE, .out = WIDE, .activation = TUTTI_ACTIVATION_TANH};
    for (int i = 0; i < 4; i++) {
        TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &options, NULL));
    }
    for (int i = 0; i < 2 && recomputes; i++) {
        TUTTI_CHECK(tutti_sequential_add(*out, &bend_layer, NULL, NULL));
    }
    return tutti_module_cast(*out, dtype);
}

static tutti_tensor_t *plain_loss(tutti_scope_t *s, tutti_module_t *model, tutti_tensor_t *x)
{
    return tutti_mean(s, tutti_square(s, tutti_forward(s, model, x)));
}

static tutti_tensor_t *weight(tutti_module_t *model, const char *name)
{
    return tutti_module_find(model, name);
}

/* Weight 3 is used last, so that its gradient comes first; but the first node, whose backward runs
 * last, has kept it, without wanting a gradient of it there. */
static tutti_tensor_t *rereading_loss(tutti_scope_t *s, tutti_module_t *model, tutti_tensor_t *x)
{
    tutti_tensor_t *fixed = tutti_detach(s, weight(model, "3.weight"));
    tutti_tensor_t *a = tutti_mul(s, weight(model, "0.weight"), fixed);
    return plain_loss(s, model, tutti_matmul(s, x, a));
}

/* Weight 3 is used first and last. */
static tutti_tensor_t *sharing_loss(tutti_scope_t *s, tutti_module_t *model, tutti_tensor_t *x)
{
    return plain_loss(s, model, tutti_matmul(s, x, weight(model, "3.weight")));
}

/* Weight 3 in every shard, 1 and 2 in one each, all others in none. */
static tutti_tensor_t *partial_loss(tutti_scope_t *s, tutti_module_t *model, tutti_tensor_t *x)
{
    const int64_t shard = tutti_context_shard(tutti_scope_context(s));
    x = tutti_matmul(s, x, weight(model, "3.weight"));
    x = shard == 0 ? tutti_matmul(s, x, weight(model, "1.weight")) : x;
    x = shard == 2 ? tutti_matmul(s, x, weight(model, "2.weight")) : x;
    return tutti_mean(s, tutti_square(s, x));
}

/* Hooks that keep what was saved as it is. */
static tutti_status_t pack(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed)
{
    (void)s, (void)user;
    *packed = tutti_tensor_retain(x);
    return TUTTI_OK;
}

static tutti_tensor_t *unpack(tutti_scope_t *s, void *packed, void *user)
{
    (void)s, (void)user;
    return packed;
}

static void release(void *packed, void *user)
{
    (void)user;
    tutti_tensor_release(packed);
}

static const tutti_saved_hooks_t keep_as_it_is = {pack, unpack, release, NULL};

/* ---- training -------------------------------------------------------------------------------- */

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    const int count = job->micro_batches > 0 ? job->micro_batches : 1;
    for (int i = 0; i < count; i++) {
        tutti_scope_t *s;
        tutti_ddp_no_sync(ddp, i + 1 < count);
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, job->dtype, TUTTI_SHAPE(BATCH, WIDE), -1, 1);
        (void)tutti_context_set_autocast(ctx, job->autocast);
        TUTTI_CHECK(job->packs ? tutti_saved_hooks_push(ctx, &keep_as_it_is) : TUTTI_OK);
        tutti_tensor_t *loss =
            (job->loss != NULL ? job->loss : plain_loss)(s, tutti_ddp_module(ddp), x);
        (void)tutti_context_set_autocast(ctx, TUTTI_F32);
        TUTTI_CHECK(job->packs ? tutti_saved_hooks_pop(ctx) : TUTTI_OK);
        (void)tutti_backward(s, loss);
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return TUTTI_OK;
}

static tutti_status_t run_step(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job, int step)
{
    while (tutti_ddp_next_shard(ddp, ctx)) {
        const int64_t shard = tutti_context_shard(ctx);
        const bool is_empty = job->last_step > 0 && step >= job->last_step && shard == 2;
        if (job->options.uneven != TUTTI_DDP_EVEN) {
            const int64_t weight = job->options.uneven == TUTTI_DDP_WEIGHTED ? 1 + shard : 1;
            TUTTI_CHECK(tutti_ddp_set_weight(ddp, is_empty ? 0 : weight));
        }
        if (!is_empty) {
            TUTTI_CHECK(run_shard(ddp, ctx, job));
        }
    }
    return tutti_ddp_finish(ddp);
}

static tutti_status_t train(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *opt, job_t *job,
                            int rank)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        tutti_optim_set_lr(opt, 0.05 / (1 + step));
        const tutti_status_t status = run_step(ddp, ctx, job, step);
        if (status != TUTTI_OK) {
            return status;
        }
        job->early_steps[rank] += tutti_ddp_stats(ddp).early_steps;
        if (!job->is_inside) {
            TUTTI_CHECK(tutti_optim_step(opt));
        }
    }
    return TUTTI_OK;
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    tutti_context_t *ctx;
    tutti_module_t *model = NULL;
    tutti_optim_t *opt = NULL;
    tutti_ddp_t *ddp = NULL;
    const tutti_context_options_t options = {.threads = 1, .seed = 42};
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_model(ctx, job->dtype, job->recomputes, &model) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(ctx, job->optimizer, job->optimizer_options, &opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(opt, model, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, job->folder == NULL || tutti_optim_offload(opt, job->folder) == TUTTI_OK);
    tutti_ddp_options_t wanted = job->options;
    wanted.shards = SHARDS;
    wanted.bucket_bytes = wanted.bucket_bytes > 0 ? wanted.bucket_bytes : 64;
    wanted.optimizer = job->is_inside ? opt : NULL;
    TT_EXPECT(m, tutti_ddp_create(ctx, model, m->group, &wanted, &ddp) == TUTTI_OK);
    TT_EXPECT(m, job->hook == NULL || tutti_ddp_set_hook(ddp, job->hook, NULL) == TUTTI_OK);
    const tutti_status_t status = train(ddp, ctx, opt, job, m->rank);
    TT_EXPECT(m, status == TUTTI_OK || (status == TUTTI_END && job->options.ends_with_first));
    TT_EXPECT(m, tutti_module_digest(model, job->digests[m->rank]) == TUTTI_OK);
    tutti_ddp_release(ddp);
    TT_EXPECT(m, tutti_optim_step(opt) == TUTTI_OK); /* nobody else does any more */
    tutti_optim_release(opt);
    tutti_module_release(model);
    tutti_context_release(ctx);
}

static const char *digest_on(int ranks, job_t *job)
{
    tt_team_expect_quietly(ranks, 20000, train_member, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

/* On 1 to 4 ranks, of which one hosts no shard; one rank knows when its buckets come back. */
static void expect_the_same_bits(const job_t *job, bool is_early)
{
    job_t plain = *job, spread = *job;
    plain.is_inside = spread.is_inside = false;
    const char *wanted = digest_on(1, &plain);
    assert_string_equal(digest_on(4, &spread), wanted);
    for (int ranks = 1; ranks <= 4; ranks++) {
        job_t inside = *job;
        inside.is_inside = true;
        assert_string_equal(digest_on(ranks, &inside), wanted);
        assert_true(ranks > 1 || (inside.early_steps[0] > 0) == is_early);
    }
}

static const tutti_sgd_options_t momentum = {.lr = 0.05, .momentum = 0.9};

static void the_bits_are_those_of_a_step_behind(void **state)
{
    (void)state;
    const tutti_optim_ops_t *const kinds[] = {&tutti_sgd, &tutti_adamw, &tutti_lamb};
    for (int k = 0; k < 3; k++) {
        job_t job = {.optimizer = kinds[k], .optimizer_options = k == 0 ? &momentum : NULL};
        expect_the_same_bits(&job, true);
    }
}

static void sixteen_bits_change_nothing(void **state)
{
    (void)state;
    job_t masters = {.optimizer = &tutti_adamw, .dtype = TUTTI_BF16};
    expect_the_same_bits(&masters, true);
    job_t autocast = {.optimizer = &tutti_adamw, .autocast = TUTTI_BF16};
    expect_the_same_bits(&autocast, true);
}

static void what_is_recomputed_has_its_old_weights(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .recomputes = true};
    expect_the_same_bits(&job, true);
}

static void micro_batches_are_stepped_once(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .micro_batches = 3};
    expect_the_same_bits(&job, true);
}

/* Without a look at what is still to be read, backward fails: "it was written since". */
static void what_is_read_once_more_waits(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .loss = rereading_loss};
    expect_the_same_bits(&job, true);
    job.loss = sharing_loss;
    expect_the_same_bits(&job, true);
    job_t packed = {.optimizer = &tutti_adamw, .loss = rereading_loss, .packs = true};
    expect_the_same_bits(&packed, true);
}

static void parameters_without_gradients_are_left_alone(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .loss = partial_loss};
    expect_the_same_bits(&job, true);
}

static void what_is_known_at_the_end_alone_is_stepped_there(void **state)
{
    (void)state;
    job_t late = {.optimizer = &tutti_adamw, .options.no_overlap = true};
    expect_the_same_bits(&late, false);
    for (int kind = TUTTI_DDP_WEIGHTED; kind <= TUTTI_DDP_ACTIVE; kind++) {
        job_t job = {.optimizer = &tutti_adamw, .last_step = 2};
        job.options.uneven = (tutti_ddp_uneven_t)kind;
        expect_the_same_bits(&job, false);
        job.options.ends_with_first = true;
        expect_the_same_bits(&job, false);
    }
}

static void hooks_are_waited_for(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        job_t plain = {.optimizer = &tutti_adamw, .hook = &tutti_bf16_hook}, inside = plain;
        inside.is_inside = true;
        const char *wanted = digest_on(ranks, &plain);
        assert_string_equal(digest_on(ranks, &inside), wanted);
    }
}

/* ---- a model, an optimizer and a ddp --------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model, *other;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} setting_t;

static void open_setting(tt_member_t *m, setting_t *set)
{
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set->ctx) ==
                     TUTTI_OK);
    TT_EXPECT(m, make_model(set->ctx, TUTTI_F32, false, &set->model) == TUTTI_OK);
    TT_EXPECT(m, make_model(set->ctx, TUTTI_F32, false, &set->other) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(set->ctx, &tutti_sgd, NULL, &set->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(set->opt, set->model, NULL, NULL) == TUTTI_OK);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_optim_release(set->opt);
    tutti_module_release(set->model);
    tutti_module_release(set->other);
    tutti_context_release(set->ctx);
}

static bool says(const char *part)
{
    return strstr(tutti_last_error(), part) != NULL;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* At stages 1 and 2 buckets are stepped and gathered in their order. */
static void expect_the_same_bits_of_slices(job_t job, bool is_early)
{
    for (int stage = 1; stage <= 2; stage++) {
        job.options.stage = stage;
        expect_the_same_bits(&job, is_early);
    }
}

static void slices_are_stepped_and_gathered_under_backward(void **state)
{
    (void)state;
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw}, true);
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw, .micro_batches = 2}, true);
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw, .recomputes = true}, true);
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw, .dtype = TUTTI_BF16}, true);
    const tutti_ddp_options_t mixed = {.param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16};
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw, .options = mixed}, true);
}

static void state_of_slices_may_lie_on_a_disk(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make_quick(folder);
    expect_the_same_bits_of_slices((job_t){.optimizer = &tutti_adamw, .folder = folder}, true);
    tt_place_remove(folder);
}

static void slices_wait_for_whoever_reads_their_bucket(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .loss = rereading_loss};
    expect_the_same_bits_of_slices(job, true);
    job.loss = sharing_loss;
    expect_the_same_bits_of_slices(job, true);
    job.loss = partial_loss; /* the first bucket has no gradient */
    expect_the_same_bits_of_slices(job, false);
}

/* LAMB measures whole parameters; where it has them whole, it needs nobody. */
static void kinds_that_measure_step_slices_at_the_end(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_lamb};
    expect_the_same_bits_of_slices(job, false);
    job.options.whole_slices = true;
    expect_the_same_bits_of_slices(job, true);
    job_t uneven = {.optimizer = &tutti_adamw, .options.uneven = TUTTI_DDP_ACTIVE, .last_step = 2};
    expect_the_same_bits_of_slices(uneven, false);
}

static void sums_that_stay_sharded_are_stepped_in_the_last_round(void **state)
{
    (void)state;
    job_t job = {.optimizer = &tutti_adamw, .micro_batches = 2};
    job.options.accumulate = TUTTI_DDP_SHARDED;
    job.options.stage = 2;
    job_t plain = {.optimizer = &tutti_adamw, .micro_batches = 2};
    const char *wanted = digest_on(1, &plain);
    for (int ranks = 1; ranks <= 4; ranks++) {
        job_t inside = job;
        inside.is_inside = true;
        assert_string_equal(digest_on(ranks, &inside), wanted);
        assert_true(ranks > 1 || inside.early_steps[0] > 0);
    }
}

/* A step that fails on one rank, inside backward or behind, ends all; nobody waits in vain. At
 * stage 0 others may have made theirs. */
static void fail_on_one(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {
        .stage = *(const int *)m->user, .bucket_bytes = 64, .optimizer = set.opt};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    tutti_optim_set_lr(set.opt, m->rank == 1 ? NAN : 0.1);
    const job_t job = {.options = options};
    const bool is_told = run_step(set.ddp, set.ctx, &job, 0) < 0;
    TT_EXPECT(m, is_told || (options.stage == 0 && run_step(set.ddp, set.ctx, &job, 1) < 0));
    TT_EXPECT(m, m->rank != 1 || says("the learning rate of group 0 is nan"));
    close_setting(&set);
}

static void a_step_of_slices_that_fails_ends_all_ranks(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 2; stage++) {
        tt_team_expect_quietly(3, 60000, fail_on_one, &stage);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusals(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    tutti_ddp_options_t options = {.optimizer = set.opt};
    tutti_ddp_t *second = NULL;
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_step(set.opt) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("optim_step: ddp steps this optimizer inside backward"));
    TT_EXPECT(m, tutti_clip_grad_norm(set.opt, 1, 2, NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("clip_grad_norm: ddp steps") && says("needs all gradients"));
    TT_EXPECT(m, tutti_clip_grad_value(set.opt, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, tutti_optim_add_module(set.opt, set.other, NULL, NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("parameter \"0.weight\": ddp steps this optimizer and would leave it out"));
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.other, m->group, &options, &second) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("options.optimizer is stepped by ddp already"));
    tutti_scaler_t *scaler;
    TT_EXPECT(m, tutti_scaler_create(NULL, &scaler) == TUTTI_OK);
    TT_EXPECT(m, tutti_scaler_step(scaler, set.opt, NULL) == TUTTI_ERR_STATE);
    TT_EXPECT(m, says("scaler: unscale: ddp steps"));
    tutti_scaler_release(scaler);
    close_setting(&set);
}

static void what_needs_all_gradients_is_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, expect_refusals, NULL);
}

static void expect_foreign(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    tutti_tensor_t *frozen = weight(set.other, "0.bias"), *free = weight(set.other, "0.weight");
    const tutti_ddp_options_t options = {.optimizer = set.opt};
    TT_EXPECT(m, tutti_tensor_set_requires_grad(frozen, false) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_parameter(set.opt, 0, "frozen", frozen) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    tutti_ddp_release(set.ddp);
    set.ddp = NULL;
    TT_EXPECT(m, tutti_optim_add_parameter(set.opt, 0, "mine", free) == TUTTI_OK);
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("has a parameter \"mine\" that is none of the module"));
    close_setting(&set);
}

static void parameters_of_others_are_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, expect_foreign, NULL);
}

static void expect_mismatch(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {.optimizer = m->rank == 1 ? set.opt : NULL};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) ==
                     TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, m->rank == 0 || says(", steps in backward"));
    close_setting(&set);
}

static void ranks_that_differ_are_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, expect_mismatch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_a_step_behind),
        cmocka_unit_test(sixteen_bits_change_nothing),
        cmocka_unit_test(what_is_recomputed_has_its_old_weights),
        cmocka_unit_test(micro_batches_are_stepped_once),
        cmocka_unit_test(what_is_read_once_more_waits),
        cmocka_unit_test(parameters_without_gradients_are_left_alone),
        cmocka_unit_test(what_is_known_at_the_end_alone_is_stepped_there),
        cmocka_unit_test(hooks_are_waited_for),
        cmocka_unit_test(slices_are_stepped_and_gathered_under_backward),
        cmocka_unit_test(state_of_slices_may_lie_on_a_disk),
        cmocka_unit_test(slices_wait_for_whoever_reads_their_bucket),
        cmocka_unit_test(kinds_that_measure_step_slices_at_the_end),
        cmocka_unit_test(sums_that_stay_sharded_are_stepped_in_the_last_round),
        cmocka_unit_test(a_step_of_slices_that_fails_ends_all_ranks),
        cmocka_unit_test(what_needs_all_gradients_is_refused),
        cmocka_unit_test(parameters_of_others_are_refused),
        cmocka_unit_test(ranks_that_differ_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
