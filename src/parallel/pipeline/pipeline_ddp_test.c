/* A pipeline and its ddp: what does not go together is refused, what one of both refuses is told to
 * the whole row, and ranks agree where a stage has nothing to average. */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <math.h>

#include <tutti/op_nn.h>
#include <tutti/sharded.h>

#include "parallel/ddp/ddp_impl.h"

static const tt_mesh_training_t plain = {
    .shards = 2, .micro_batches = 2, .schedule = "1f1b", .dp = 2, .pp = 2};

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *says)
{
    if (m->failure[0] == 0 && (status != want || strstr(tutti_last_error(), says) == NULL)) {
        snprintf(m->failure, sizeof m->failure, "rank %d: %d, %s; want %d, %s", m->rank,
                 (int)status, tutti_last_error(), (int)want, says);
    }
}

/* ---- which of both is first ------------------------------------------------------------------ */

/* Whatever it deals out, a ddp has parameters that the pipeline would move. */
static void make_ddp_first(tt_member_t *m)
{
    tt_mesh_trainer_t t = {.training = &plain};
    char before[TUTTI_DIGEST_BYTES], digest[TUTTI_DIGEST_BYTES];
    const tutti_pipeline_run_options_t run = {
        .plan = {.micro_batches = plain.micro_batches}, .loss = tt_mesh_loss, .loss_user = &t};
    TT_EXPECT(m, tt_mesh_open_ranks(&t, m->group) == TUTTI_OK);
    tutti_group_t *data = tutti_mesh_group(t.mesh, "dp"), *row = tutti_mesh_group(t.mesh, "pp");
    TT_EXPECT(m, tt_mesh_make(t.ctx, &plain, &t.net) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, data, NULL, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(t.net, before) == TUTTI_OK);
    expect_text(m, tutti_pipeline_create(t.ctx, t.net, row, &run, &t.pipeline), TUTTI_ERR_STATE,
                "is averaged by a DDP: make that behind the pipeline");
    TT_EXPECT(m, tutti_module_digest(t.net, digest) == TUTTI_OK); /* all values are there */
    TT_EXPECT(m, strcmp(digest, before) == 0);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    TT_EXPECT(m, tutti_pipeline_create(t.ctx, t.net, row, &run, &t.pipeline) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_ddp_is_made_behind_the_pipeline(void **state)
{
    (void)state;
    tt_team_expect(4, 0, make_ddp_first, NULL);
}

/* ---- one of all of it ------------------------------------------------------------------------ */

static void deal_out_twice(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    tutti_ddp_t *other = NULL;
    char before[TUTTI_DIGEST_BYTES], digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tt_mesh_open(&t, &plain, m->group) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    /* each rank has a block of its stage, and the other replica has the same */
    const char *const name = tutti_mesh_coordinate(t.mesh, "pp") == 0 ? "0" : "2";
    tutti_module_t *block = NULL, *rest = NULL;
    tutti_group_t *data = tutti_mesh_group(t.mesh, "dp");
    for (size_t i = 0; i < t.net->child_count; i++) {
        tutti_module_t *child = t.net->children[i].module;
        for (size_t k = 0; k < child->child_count; k++) {
            block = strcmp(child->children[k].name, name) == 0 ? child->children[k].module : block;
            rest = child->children[k].name[0] == name[0] + 1 ? child->children[k].module : rest;
        }
    }
    const tutti_ddp_options_t o = {.stage = 1, .shards = 2};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, block, data, &o, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_digest(t.pipeline, before) == TUTTI_OK);
    expect_text(m, tutti_ddp_create(t.ctx, rest, data, &o, &other), TUTTI_ERR_STATE,
                "dealt out by another DDP: release that first");
    TT_EXPECT(m, tutti_pipeline_digest(t.pipeline, digest) == TUTTI_OK);
    TT_EXPECT(m, strcmp(digest, before) == 0);
    tutti_ddp_release(t.ddp);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, rest, data, &o, &t.ddp) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_second_ddp_deals_nothing_out(void **state)
{
    (void)state;
    tt_team_expect(4, 0, deal_out_twice, NULL);
}

/* ---- averages of parameters ------------------------------------------------------------------ */

static tutti_status_t set_values(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    return tt_device_has_values(x->storage->device) ? tutti_tensor_fill(x, *(double *)user)
                                                    : TUTTI_OK;
}

static tutti_status_t expect_two(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    return !tt_device_has_values(x->storage->device) || tutti_tensor_at(x, 0) == 2
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s is %g", name, tutti_tensor_at(x, 0));
}

/* Replicas have 1 and 3; with a tied weight, which two stages have. */
static void average(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    tt_mesh_training_t training = plain;
    training.is_tied = true;
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    double value = 1 + 2 * tutti_mesh_coordinate(t.mesh, "dp");
    TT_EXPECT(m, tutti_module_each_parameter(t.net, set_values, &value) == TUTTI_OK);
    tutti_group_t *row = tutti_mesh_group(t.mesh, "pp"), *data = tutti_mesh_group(t.mesh, "dp");
    expect_text(m, tutti_average_parameters(t.net, row), TUTTI_ERR_MISMATCH,
                "rank 1 of the group has other stages of the pipeline than rank 0");
    TT_EXPECT(m, tutti_average_parameters(t.net, data) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_each_parameter(t.net, expect_two, NULL) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void parameters_are_averaged_over_the_same_stages(void **state)
{
    (void)state;
    tt_team_expect(4, 0, average, NULL);
}

/* ---- a weight of two stages in 16 bits ------------------------------------------------------- */

static tutti_status_t set_ddp(const tt_mesh_trainer_t *t, const tutti_ddp_options_t *options)
{
    tutti_ddp_t *ddp;
    TT_TRY(tutti_ddp_create(t->ctx, t->net, tutti_mesh_group(t->mesh, "dp"), options, &ddp));
    const tutti_status_t status = tutti_pipeline_set_ddp(t->pipeline, ddp);
    tutti_ddp_release(ddp);
    return status;
}

static void refuse_16_bits(tt_member_t *m)
{
    static const char *const kinds[] = {"embedding", "linear"};
    const tutti_ddp_options_t low = {.param_dtype = TUTTI_BF16},
                              outside = {.param_dtype = TUTTI_BF16,
                                         .f32_kinds = kinds,
                                         .f32_kind_count = 2};
    tt_mesh_training_t training = plain;
    training.is_tied = true;
    tt_mesh_trainer_t t;
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    expect_text(m, set_ddp(&t, &low), TUTTI_ERR_UNSUPPORTED,
                "the tied weight 0.weight is of stages on several ranks");
    TT_EXPECT(m, set_ddp(&t, &outside) == TUTTI_OK);
    tt_mesh_close(&t);
    training.is_tied = false;
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    TT_EXPECT(m, set_ddp(&t, &low) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_weight_of_two_ranks_is_not_rounded_on_one(void **state)
{
    (void)state;
    tt_team_expect(4, 0, refuse_16_bits, NULL);
}

/* ---- what DDP leaves alone ------------------------------------------------------------------- */

/* The norm of such a gradient would be that of all replicas together. */
static void refuse_ignored(tt_member_t *m)
{
    static const char *const norm[] = {"ln.weight"}, *const none[] = {"blocks.0.ln1"};
    tt_mesh_trainer_t t;
    TT_EXPECT(m, tt_mesh_open(&t, &plain, m->group) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    for (int stage = 0; stage < 4; stage++) {
        const tutti_ddp_options_t o = {.stage = stage, .ignored = norm, .ignored_count = 1},
                                  other = {.stage = stage, .ignored = none, .ignored_count = 1};
        if (stage == 0) {
            TT_EXPECT(m, set_ddp(&t, &o) == TUTTI_OK);
            TT_EXPECT(m, set_ddp(&t, &other) == TUTTI_OK);
            continue;
        }
        expect_text(m, set_ddp(&t, &o), TUTTI_ERR_UNSUPPORTED, "options.ignored: ln.weight");
        expect_text(m, set_ddp(&t, &other), TUTTI_ERR_UNSUPPORTED, "blocks.0.ln1.weight");
    }
    tt_mesh_close(&t);
}

static void what_is_dealt_out_and_ignored_is_refused(void **state)
{
    (void)state;
    tt_team_expect(4, 0, refuse_ignored, NULL);
}

/* ---- a summons that cannot be ---------------------------------------------------------------- */

/* The first stage's ranks have not dismissed theirs. */
static void summon_twice(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    double losses[TT_MESH_SHARDS_MAX], loss;
    char digest[TUTTI_DIGEST_BYTES];
    const tt_mesh_training_t *training = m->user;
    TT_EXPECT(m, tt_mesh_open(&t, training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_step(&t, 0, losses) == TUTTI_OK);
    const bool is_first = tutti_mesh_coordinate(t.mesh, "pp") == 0;
    TT_EXPECT(m, !is_first || tutti_ddp_summon(t.ddp, NULL, false) == TUTTI_OK);
    expect_text(m, tt_mesh_run(&t, false, &loss), TUTTI_ERR_STATE,
                "call tutti_ddp_dismiss() first");
    expect_text(m, tutti_pipeline_digest(t.pipeline, digest), TUTTI_ERR_STATE,
                "call tutti_ddp_dismiss() first");
    TT_EXPECT(m, !is_first || tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_run(&t, false, &loss) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_digest(t.pipeline, digest) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_step(&t, 1, losses) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_summons_that_fails_is_told_and_ends_nothing(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage += 3) {
        tt_mesh_training_t training = plain;
        training.stage = stage;
        tt_team_expect_quietly(4, 8000, summon_twice, &training);
    }
}

/* ---- a failure behind the row ---------------------------------------------------------------- */

static void finish_early(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    double loss;
    tt_mesh_training_t training = plain;
    training.shards = 4;
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tt_mesh_run(&t, true, &loss) == TUTTI_OK);
    tt_member_tell(m);
    tt_member_await(m, 4);
    const tutti_status_t status = tutti_ddp_finish(t.ddp);
    TT_EXPECT(m, status < 0 && strstr(tutti_last_error(), ", behind B of stage ") != NULL);
    TT_EXPECT(m, strstr(tutti_last_error(), ", with rank ") == NULL); /* nobody is waited for */
    tt_mesh_close(&t);
}

/* The last action is not what went wrong. */
static void a_failure_behind_the_row_says_so(void **state)
{
    (void)state;
    tt_team_expect_quietly(4, 8000, finish_early, NULL);
}

/* ---- when gradients leave -------------------------------------------------------------------- */

/* The last backward of a stage lets them go, not the end of the step. */
static void look_behind_the_row(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    double loss;
    TT_EXPECT(m, tt_mesh_open(&t, &plain, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tt_mesh_run(&t, true, &loss) == TUTTI_OK);
    TT_EXPECT(m, t.ddp->step.next_bucket == tutti_ddp_bucket_count(t.ddp));
    TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void gradients_leave_in_the_row(void **state)
{
    (void)state;
    tt_team_expect(4, 8000, look_behind_the_row, NULL);
}

/* ---- sums that stay sharded ------------------------------------------------------------------ */

typedef struct {
    tt_mesh_training_t training;
    tt_mesh_trained_t trained[4];
} sharded_t;

static void train_sharded(tt_member_t *m)
{
    sharded_t *sharded = m->user;
    TT_EXPECT(m, tt_mesh_train(&sharded->training, m->group, &sharded->trained[m->rank]) == 0);
}

/* Three shards, of which one replica has two. */
static void sums_of_replicas_may_stay_sharded(void **state)
{
    (void)state;
    for (int stage = 2; stage <= 3; stage++) {
        sharded_t one = {.training = plain};
        one.training.shards = 3;
        one.training.accumulates = stage == 2;
        one.training.is_uneven = stage == 3;
        sharded_t all = one;
        one.training.dp = one.training.pp = 1;
        all.training.stage = stage;
        all.training.accumulate = TUTTI_DDP_SHARDED;
        tt_team_expect(1, 0, train_sharded, &one);
        tt_team_expect(4, 0, train_sharded, &all);
        for (int rank = 0; rank < 4; rank++) {
            assert_string_equal(all.trained[rank].digest, one.trained[0].digest);
        }
    }
}

/* ---- a step that fails ----------------------------------------------------------------------- */

/* Of one rank: its row hears of it, and so do the other rows. Nothing has changed, so they try
 * again. */
static void step_in_vain(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    double losses[TT_MESH_SHARDS_MAX];
    TT_EXPECT(m, tt_mesh_open(&t, m->user, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_step(&t, 0, losses) == TUTTI_OK);
    tutti_optim_set_lr(t.opt, m->rank == 3 ? NAN : 0.1);
    expect_text(m, tt_mesh_step(&t, 1, losses), TUTTI_ERR_ARG, "the learning rate of group 0 is");
    tutti_optim_set_lr(t.opt, 0.1);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    TT_EXPECT(m, tt_mesh_step(&t, 2, losses) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_step_that_fails_in_one_row_is_told_to_all(void **state)
{
    (void)state;
    for (int stage = 0; stage < 2; stage++) {
        tt_mesh_training_t training = plain;
        training.stage = stage;
        tt_team_expect_quietly(4, 60000, step_in_vain, &training);
    }
}

/* ---- a stage without parameters -------------------------------------------------------------- */

static tutti_status_t make_short(tutti_context_t *ctx, tutti_module_t **out)
{
    const tutti_linear_options_t linear = {.in = TT_MESH_WIDTH, .out = TT_MESH_VOCAB};
    TT_TRY(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TT_TRY(tutti_sequential_add(*out, &tutti_linear_layer, &linear, NULL));
    return tutti_sequential_add(*out, &tutti_activation_layer, NULL, NULL);
}

static tutti_status_t open_short(tt_mesh_trainer_t *t, tutti_group_t *world)
{
    *t = (tt_mesh_trainer_t){.training = &plain};
    const tutti_pipeline_run_options_t run = {
        .plan = {.micro_batches = plain.micro_batches}, .loss = tt_mesh_loss, .loss_user = t};
    const tutti_ddp_options_t average = {
        .shards = plain.shards, .uneven = TUTTI_DDP_ACTIVE, .ends_with_first = true};
    TT_TRY(tt_mesh_open_ranks(t, world));
    TT_TRY(make_short(t->ctx, &t->net));
    TT_TRY(
        tutti_pipeline_create(t->ctx, t->net, tutti_mesh_group(t->mesh, "pp"), &run, &t->pipeline));
    TT_TRY(tutti_ddp_create(t->ctx, t->net, tutti_mesh_group(t->mesh, "dp"), &average, &t->ddp));
    return tutti_pipeline_set_ddp(t->pipeline, t->ddp);
}

static tutti_status_t run_short(tt_mesh_trainer_t *t)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, TT_MESH_WIDTH), 0, 1),
                   *y = tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(4), 0, TT_MESH_VOCAB);
    const tutti_status_t status =
        tutti_pipeline_step(t->pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, NULL);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* Shards below `with_data` have some. */
static tutti_status_t step_short(tt_mesh_trainer_t *t, int with_data)
{
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        TT_TRY(tutti_context_shard(t->ctx) < with_data ? run_short(t) : TUTTI_OK);
    }
    return tutti_ddp_finish(t->ddp);
}

static void end_together(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    TT_EXPECT(m, open_short(&t, m->group) == TUTTI_OK);
    TT_EXPECT(m, step_short(&t, 2) == TUTTI_OK);
    TT_EXPECT(m, step_short(&t, 1) == TUTTI_END);
    TT_EXPECT(m, step_short(&t, 2) == TUTTI_OK);
    TT_EXPECT(m, step_short(&t, 0) == TUTTI_END);
    tt_mesh_close(&t);
}

static void all_stages_see_the_same_end(void **state)
{
    (void)state;
    tt_team_expect(4, 0, end_together, NULL);
}

/* ---- a stage that learns nothing ------------------------------------------------------------- */

static tutti_status_t freeze(void *user, const char *name, tutti_tensor_t *x)
{
    const bool is_last = strncmp(name, "blocks.2", 8) == 0 || strncmp(name, "blocks.3", 8) == 0 ||
                         strncmp(name, "ln", 2) == 0 || strncmp(name, "head", 4) == 0;
    return is_last == *(const bool *)user ? tutti_tensor_set_requires_grad(x, false) : TUTTI_OK;
}

/* Half of the stages do. */
static tutti_status_t train_half(tt_mesh_trainer_t *t, tutti_group_t *world, bool is_last,
                                 tt_mesh_trained_t *out)
{
    const tutti_adamw_options_t adamw = {.lr = 1e-2};
    TT_TRY(tt_mesh_open_ranks(t, world));
    TT_TRY(tt_mesh_make(t->ctx, t->training, &t->net));
    TT_TRY(tutti_module_each_parameter(t->net, freeze, &is_last));
    TT_TRY(tt_mesh_open_pipeline(t));
    TT_TRY(tutti_optim_create(t->ctx, &tutti_adamw, &adamw, &t->opt));
    TT_TRY(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    TT_TRY(tt_mesh_open_average(t));
    return tt_mesh_train_on(t, out);
}

typedef struct {
    tt_mesh_training_t training;
    bool is_last;
    tt_mesh_trained_t trained[4];
} half_t;

static void train_half_member(tt_member_t *m)
{
    half_t *half = m->user;
    tt_mesh_trainer_t t = {.training = &half->training};
    TT_EXPECT(m, train_half(&t, m->group, half->is_last, &half->trained[m->rank]) == TUTTI_OK);
    tt_mesh_close(&t);
}

static void a_frozen_stage_has_one_ranks_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        half_t one = {.training = plain, .is_last = i % 2 == 1}, all = one;
        one.training.dp = one.training.pp = 1;
        all.training.stage = i / 2;
        tt_team_expect(1, 0, train_half_member, &one);
        tt_team_expect(4, 0, train_half_member, &all);
        for (int rank = 0; rank < 4; rank++) {
            assert_string_equal(all.trained[rank].digest, one.trained[0].digest);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ddp_is_made_behind_the_pipeline),
        cmocka_unit_test(a_second_ddp_deals_nothing_out),
        cmocka_unit_test(parameters_are_averaged_over_the_same_stages),
        cmocka_unit_test(a_weight_of_two_ranks_is_not_rounded_on_one),
        cmocka_unit_test(what_is_dealt_out_and_ignored_is_refused),
        cmocka_unit_test(a_summons_that_fails_is_told_and_ends_nothing),
        cmocka_unit_test(a_failure_behind_the_row_says_so),
        cmocka_unit_test(sums_of_replicas_may_stay_sharded),
        cmocka_unit_test(a_step_that_fails_in_one_row_is_told_to_all),
        cmocka_unit_test(all_stages_see_the_same_end),
        cmocka_unit_test(a_frozen_stage_has_one_ranks_bits),
        cmocka_unit_test(gradients_leave_in_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
