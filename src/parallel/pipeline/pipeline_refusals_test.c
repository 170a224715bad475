/* What making a pipeline refuses, on all ranks: options, modules, and ranks that differ. */
#include "parallel/pipeline/pipeline_testing.h"

#include <tutti/tensor_parallel.h>

/* ---- what create refuses --------------------------------------------------------------------- */

typedef struct {
    tutti_pipeline_run_options_t options;
    const char *model;
    tutti_status_t want;
    const char *says;
} refusal_t;

static const char *const unknown[] = {"2", "nine"};
static const char *const backwards[] = {"5", "2"};
static const char *const few[] = {"5"};

static const refusal_t refusals[] = {
    {{.plan = {.micro_batches = 4}}, "mlp", TUTTI_ERR_ARG, "no loss function"},
    {{.plan = {.schedule = "interleaved", .stages_per_rank = 5, .micro_batches = 6},
      .loss = tt_pipeline_loss},
     "mlp",
     TUTTI_ERR_ARG,
     "15 stages, and the module has 9 parts: 0, 1, 2"},
    {{.plan = {.micro_batches = 4}, .loss = tt_pipeline_loss, .cut = unknown, .cut_count = 2},
     "mlp",
     TUTTI_ERR_ARG,
     "no part is called \"nine\": there are 0, 1, 2"},
    {{.plan = {.micro_batches = 4}, .loss = tt_pipeline_loss, .cut = few, .cut_count = 1},
     "mlp",
     TUTTI_ERR_ARG,
     "1 cuts make 2 stages, and there are 3"},
    {{.plan = {.micro_batches = 4}, .loss = tt_pipeline_loss, .cut = backwards, .cut_count = 2},
     "mlp",
     TUTTI_ERR_ARG,
     "stage 2 cannot begin with 2: stage 1 begins with 5, which is not before it"},
    {{.plan = {.micro_batches = 4, .ranks = 2}, .loss = tt_pipeline_loss},
     "mlp",
     TUTTI_ERR_ARG,
     "a plan of 2 ranks, and the group has 3"},
    {{.plan = {.schedule = "1f2b", .micro_batches = 4}, .loss = tt_pipeline_loss},
     "mlp",
     TUTTI_ERR_ARG,
     "1f1b"},
};

static void be_refused(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline = NULL;
    const refusal_t *r = m->user;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tt_make_model(ctx, r->model, &net) == 0);
    TT_EXPECT(m, tutti_pipeline_create(ctx, net, m->group, &r->options, &pipeline) == r->want);
    TT_EXPECT(m, strstr(tutti_last_error(), r->says) != NULL);
    TT_EXPECT(m, pipeline == NULL);
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tutti_module_digest(net, digest) == 0); /* it has its values still */
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void what_cannot_be_is_refused_on_all_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        tt_team_expect(3, 0, be_refused, (void *)(uintptr_t)&refusals[i]);
    }
}

enum { BATCHES, SCHEDULE, SUM, DEFERRED, MODULE, OWN, FROZEN, DTYPE, DIFFERENCES };

static const char *const rows_of_own[] = {"0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n",
                                          "0F1,0B1,0F0,0B0\n1F1,1B1,1F0,1B0\n"};

static tutti_module_t *make_different(tutti_context_t *ctx, int what)
{
    tutti_module_t *net = NULL;
    (void)tt_make_model(ctx, what == MODULE ? "norm" : "mlp", &net);
    if (net != NULL && what == FROZEN) {
        (void)tutti_tensor_set_requires_grad(tutti_module_find(net, "0.weight"), false);
    } else if (net != NULL && what == DTYPE) {
        (void)tutti_module_cast(net, TUTTI_BF16);
    }
    return net;
}

/* ---- parts of layers, and buffers of several ranks ------------------------------------------- */

/* Ranks that share a layer are no stages of each other. */
static void refuse_parts(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline = NULL;
    const tutti_pipeline_run_options_t options = {.plan = {.micro_batches = 2},
                                                  .loss = tt_pipeline_loss};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    const tutti_gpt_options_t even = {
        .layers = 2, .width = 8, .heads = 2, .context = 6, .vocab = 6};
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_gpt_layer, &even, &net) == 0);
    TT_EXPECT(m, tutti_parallelize(net, m->group, NULL) == 0);
    TT_EXPECT(m,
              tutti_pipeline_create(ctx, net, m->group, &options, &pipeline) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, strstr(tutti_last_error(), "different modules, parts of layers") != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void parts_of_one_layer_are_no_stages(void **state)
{
    (void)state;
    tt_team_expect(2, 0, refuse_parts, NULL);
}

/* One batch norm in front and behind. */
static void refuse_buffer(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net, *norm;
    tutti_pipeline_t *pipeline = NULL;
    const tutti_batch_norm_layer_options_t o = {.width = TT_PIPELINE_WIDTH};
    const tutti_pipeline_run_options_t options = {.plan = {.micro_batches = 2},
                                                  .loss = tt_pipeline_loss};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net) == 0);
    TT_EXPECT(m, tutti_sequential_add(net, &tutti_batch_norm_layer, &o, &norm) == 0);
    TT_EXPECT(m, tt_add_linear(net, TT_PIPELINE_WIDTH, TT_PIPELINE_WIDTH) == 0);
    TT_EXPECT(m, tutti_module_add_child(net, "2", norm) == 0);
    TT_EXPECT(m, tutti_pipeline_create(ctx, net, m->group, &options, &pipeline) ==
                     TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "the buffer 0.running_mean is of parts on rank 0 and "
                                            "on rank 1") != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void a_buffer_of_two_ranks_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 0, refuse_buffer, NULL);
}

/* ---- ranks that differ ----------------------------------------------------------------------- */

/* Ranks that want different things; rank 1's wish is its own. */
static void differ(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_pipeline_t *pipeline = NULL;
    tutti_pipeline_schedule_t own;
    const int what = *(const int *)m->user;
    const bool is_odd = m->rank == 1;
    const char *rows = rows_of_own[is_odd];
    tutti_pipeline_run_options_t options = {
        .plan = {.schedule = is_odd && what == SCHEDULE ? "gpipe" : "1f1b",
                 .micro_batches = is_odd && what == BATCHES ? 5 : 4},
        .loss = tt_pipeline_loss,
        .loss_is_sum = is_odd && what == SUM,
        .deferred_statistics = is_odd && what == DEFERRED};
    TT_EXPECT(m, tutti_pipeline_read(rows, strlen(rows), 0, &own) == 0);
    if (what == OWN) {
        options.plan = (tutti_pipeline_options_t){.own = &own};
    }
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    tutti_module_t *net = make_different(ctx, is_odd ? what : DIFFERENCES);
    TT_EXPECT(m, net != NULL);
    TT_EXPECT(m,
              tutti_pipeline_create(ctx, net, m->group, &options, &pipeline) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, strstr(tutti_last_error(), "ranks have different modules") != NULL);
    TT_EXPECT(m, (strncmp(tutti_last_error(), "rank 1: ", 8) == 0) == !is_odd);
    tutti_pipeline_schedule_release(&own);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void ranks_that_differ_are_told(void **state)
{
    (void)state;
    for (int what = 0; what < DIFFERENCES; what++) {
        tt_team_expect(2, 0, differ, &what);
    }
}

/* ---- ranks in different calls ---------------------------------------------------------------- */

/* user: the rank that steps while the other one evaluates. Nobody waits until a timeout. */
static void call_apart(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    const tt_training_t training = {.model = "mlp", .micro_batches = 2};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tt_train_step(&t, &training, 0, &loss) == TUTTI_OK);
    const bool steps = m->rank == *(const int *)m->user;
    const tutti_status_t status =
        steps ? tt_train_step(&t, &training, 1, &loss) : tt_evaluate(&t, &training, &loss);
    if (m->rank == 1) {
        TT_EXPECT(m, status == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, strstr(tutti_last_error(), steps ? "it evaluates, and this rank trains"
                                                      : "it trains, and this rank evaluates"));
    } else {
        TT_EXPECT(m, status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER);
    }
    tt_trainer_close(&t);
}

static void a_step_is_no_evaluation(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        tt_team_expect_quietly(2, 4000, call_apart, &rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused_on_all_ranks),
        cmocka_unit_test(parts_of_one_layer_are_no_stages),
        cmocka_unit_test(a_buffer_of_two_ranks_is_refused),
        cmocka_unit_test(ranks_that_differ_are_told),
        cmocka_unit_test(a_step_is_no_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
