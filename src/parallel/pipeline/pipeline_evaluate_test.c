/* Evaluation of batches that are not cut: each loss has the bits of a plain forward on one rank,
 * for every schedule, cut and number of micro-batches; and what is refused, on all ranks. */
#include "parallel/pipeline/pipeline_testing.h"

#include "core/base/alloc.h"

enum { BATCHES_MAX = 11 };

typedef struct {
    tt_training_t training;
    int count;
    double losses[BATCHES_MAX]; /* of a plain forward */
} job_t;

typedef struct {
    tutti_scope_t *s;
    tutti_tensor_t *x[BATCHES_MAX], *y[BATCHES_MAX];
    tutti_pipeline_batch_t batches[BATCHES_MAX];
} data_t;

/* Of 1, 2 and 3 rows by turns: fewer than micro-batches. */
static tutti_status_t open_data(tutti_context_t *ctx, const tt_training_t *training, data_t *data)
{
    TT_TRY(tutti_scope_open(ctx, &data->s));
    for (int i = 0; i < BATCHES_MAX; i++) {
        tt_training_t one = *training;
        one.rows = 1 + i % 3;
        tt_make_batch(data->s, &one, 100 + i, &data->x[i], &data->y[i]);
        data->batches[i] = (tutti_pipeline_batch_t){&data->x[i], 1, &data->y[i], 1};
    }
    return tutti_scope_status(data->s);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* "skip" is a chain without a forward of its own, and has one output. */
static tutti_tensor_t *call(tutti_scope_t *s, tutti_module_t *net, const tt_training_t *training,
                            tutti_tensor_t *x)
{
    int count = 1;
    tutti_chain_link_t link;
    tutti_tensor_t *outputs[3] = {x};
    if (strcmp(training->model, "skip") != 0) {
        return tutti_forward(s, net, x);
    }
    for (int i = 0; tutti_module_kind(net)->chain(net, i, &link); i++, count = link.outputs) {
        tutti_tensor_t *inputs[3] = {outputs[0], outputs[1], outputs[2]};
        tutti_forward_many(s, link.module, inputs, count, outputs, link.outputs);
    }
    return outputs[0];
}

static double forward(tutti_context_t *ctx, tutti_module_t *net, const tt_training_t *training,
                      tutti_tensor_t *x, tutti_tensor_t *y)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *output = call(s, net, training, x);
    const double loss =
        tutti_tensor_item(tt_pipeline_loss(s, &output, 1, &y, 1, (void *)(uintptr_t)training));
    assert_int_equal(tutti_scope_close(s), 0);
    return loss;
}

static void forward_plainly(job_t *job)
{
    tt_trainer_t t = {0};
    data_t data;
    assert_int_equal(tt_open_contexts(&t, &job->training, 0), 0);
    assert_int_equal(tt_make_model(t.maker, job->training.model, &t.net), 0);
    assert_int_equal(open_data(t.ctx, &job->training, &data), 0);
    tutti_context_set_training(t.ctx, false);
    for (int i = 0; i < BATCHES_MAX; i++) {
        job->losses[i] = forward(t.ctx, t.net, &job->training, data.x[i], data.y[i]);
    }
    assert_int_equal(tutti_scope_close(data.s), 0);
    tt_trainer_close(&t);
}

static void evaluate_some(tt_member_t *m, tt_trainer_t *t, const job_t *job, const data_t *data,
                          int count)
{
    double losses[BATCHES_MAX + 1];
    for (int i = 0; i <= BATCHES_MAX; i++) {
        losses[i] = -1;
    }
    TT_EXPECT(m, tutti_pipeline_evaluate_batches(t->pipeline, data->batches, count, losses) == 0);
    TT_EXPECT(m, memcmp(losses, job->losses, (size_t)count * sizeof *losses) == 0);
    TT_EXPECT(m, losses[count] == -1);
    TT_EXPECT(m, tutti_pipeline_evaluate_batches(t->pipeline, data->batches, count, NULL) == 0);
    TT_EXPECT(m, tutti_context_is_training(t->ctx) && tutti_context_is_grad_enabled(t->ctx));
    TT_EXPECT(m, tutti_pipeline_stats(t->pipeline).steps == 0);
}

static void evaluate_member(tt_member_t *m)
{
    tt_trainer_t t;
    data_t data;
    const job_t *job = m->user;
    double cut[2];
    TT_EXPECT(m, tt_trainer_open(&t, &job->training, m->group) == TUTTI_OK);
    TT_EXPECT(m, open_data(t.ctx, &job->training, &data) == TUTTI_OK);
    TT_EXPECT(m, tt_evaluate(&t, &job->training, &cut[0]) == TUTTI_OK);
    for (int count = 1; count <= BATCHES_MAX; count += 2) {
        evaluate_some(m, &t, job, &data, count);
    }
    TT_EXPECT(m, tt_evaluate(&t, &job->training, &cut[1]) == TUTTI_OK); /* and cut again */
    TT_EXPECT(m, cut[0] == cut[1]);
    TT_EXPECT(m, tutti_scope_close(data.s) == TUTTI_OK);
    tt_trainer_close(&t);
}

static void each_loss_has_the_bits_of_a_plain_forward(void **state)
{
    (void)state;
    static const struct {
        const char *model, *schedule;
        int ranks, micro_batches;
    } cases[] = {{"mlp", "1f1b", 1, 1},   {"mlp", "1f1b", 3, 1},     {"skip", "gpipe", 2, 4},
                 {"tied", "zb-v", 2, 4},  {"gpt", "1f1b", 3, 3},     {"norm", "interleaved", 2, 4},
                 {"gpt", "zb-h1", 2, 12}, {"dropout", "1f1b", 2, 2}, {"mlp", "pipedream", 3, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job_t job = {.training = {.model = cases[i].model,
                                  .schedule = cases[i].schedule,
                                  .micro_batches = cases[i].micro_batches}};
        forward_plainly(&job);
        tt_team_expect(cases[i].ranks, 0, evaluate_member, &job);
        job.training.sums = true; /* a batch's loss is its own all the same */
        tt_team_expect(cases[i].ranks, 0, evaluate_member, &job);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

enum { OTHER_COUNT, NO_BATCHES, OTHER_CALL, STEPS, BAD_TARGETS, FAULTS };

typedef struct {
    int fault, rank; /* who does it */
    int hears;       /* who finds out */
    tutti_status_t status;
    const char *says;
} refusal_t;

static tutti_status_t call_wrongly(tt_trainer_t *t, const tt_training_t *training, data_t *data,
                                   int fault, double *losses)
{
    double loss;
    switch (fault) {
    case OTHER_COUNT:
        return tutti_pipeline_evaluate_batches(t->pipeline, data->batches, 4, losses);
    case NO_BATCHES:
        return tutti_pipeline_evaluate_batches(t->pipeline, data->batches, 0, losses);
    case OTHER_CALL:
        return tt_evaluate(t, training, &loss);
    case STEPS:
        return tt_train_step(t, training, 0, &loss);
    default:
        data->y[3] = data->y[4];
        return tutti_pipeline_evaluate_batches(t->pipeline, data->batches, 5, losses);
    }
}

static void be_refused(tt_member_t *m)
{
    tt_trainer_t t;
    data_t data;
    double losses[BATCHES_MAX] = {[0] = -1};
    const refusal_t *r = m->user;
    const tt_training_t training = {.model = "mlp", .micro_batches = 2};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, open_data(t.ctx, &training, &data) == TUTTI_OK);
    const tutti_status_t status =
        m->rank == r->rank ? call_wrongly(&t, &training, &data, r->fault, losses)
                           : tutti_pipeline_evaluate_batches(t.pipeline, data.batches, 5, losses);
    if (m->rank == r->hears) {
        TT_EXPECT(m, status == r->status);
        TT_EXPECT(m, strstr(tutti_last_error(), r->says) != NULL);
    } else {
        TT_EXPECT(m, status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER);
    }
    TT_EXPECT(m, losses[0] == -1); /* of the first round, too */
    TT_EXPECT(m, tutti_scope_close(data.s) == TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_evaluate_batches(t.pipeline, data.batches, 5, losses) == status);
    tt_trainer_close(&t);
}

static void ranks_that_differ_end_it_everywhere(void **state)
{
    (void)state;
    static const refusal_t all[] = {
        {OTHER_COUNT, 0, 1, TUTTI_ERR_MISMATCH,
         "rank 0 has 4 batches in this call, and this rank "
         "5"},
        {OTHER_COUNT, 1, 1, TUTTI_ERR_MISMATCH,
         "rank 0 has 5 batches in this call, and this rank "
         "4"},
        {NO_BATCHES, 0, 0, TUTTI_ERR_ARG, "0 batches: every rank gives at least one"},
        {NO_BATCHES, 1, 1, TUTTI_ERR_ARG, "0 batches: every rank gives at least one"},
        {OTHER_CALL, 0, 1, TUTTI_ERR_MISMATCH,
         "it evaluates, and this rank evaluates batches that "
         "are not cut"},
        {OTHER_CALL, 1, 1, TUTTI_ERR_MISMATCH,
         "it evaluates batches that are not cut, and this "
         "rank evaluates"},
        {STEPS, 0, 1, TUTTI_ERR_MISMATCH, "it trains, and this rank evaluates batches"},
        {BAD_TARGETS, 1, 1, TUTTI_ERR_SHAPE,
         "rank 1, step 0, F of stage 1, batch 3: target 0 has "
         "2 rows, and the inputs have 1"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_team_expect_quietly(2, 8000, be_refused, (void *)(uintptr_t)&all[i]);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct {
    size_t fails, allocations; /* of rank 0 */
    _Atomic int failed, memory;
} outcome_t;

static void lack_memory(tt_member_t *m)
{
    tt_trainer_t t;
    data_t data;
    outcome_t *o = m->user;
    double losses[BATCHES_MAX] = {[0] = -1};
    const tt_training_t training = {.model = "mlp", .micro_batches = 2};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, open_data(t.ctx, &training, &data) == TUTTI_OK);
    tt_member_tell(m);
    tt_member_await(m, m->size);
    const size_t before = tt_alloc_stats().allocations;
    if (m->rank == 0) {
        tt_alloc_fail_at(o->fails);
    }
    const tutti_status_t status =
        tutti_pipeline_evaluate_batches(t.pipeline, data.batches, 3, losses);
    if (m->rank == 0) {
        o->allocations = tt_alloc_stats().allocations - before;
    }
    atomic_fetch_add(&o->failed, status < 0);
    atomic_fetch_add(&o->memory, status == TUTTI_ERR_NOMEM);
    TT_EXPECT(m, status < 0 ? losses[0] == -1 : losses[0] > 0);
    TT_EXPECT(m, tutti_scope_close(data.s) == TUTTI_OK);
    tt_trainer_close(&t);
}

static outcome_t evaluate_with(int ranks, size_t fails)
{
    outcome_t o = {.fails = fails};
    tt_team_expect_quietly(ranks, 8000, lack_memory, &o);
    tt_alloc_fail_at(0);
    return o;
}

/* Each allocation of one rank; of two ranks some, for either may make it. */
static void memory_that_is_missing_is_told(void **state)
{
    (void)state;
    const size_t alone = evaluate_with(1, 0).allocations, two = evaluate_with(2, 0).allocations;
    int told = 0;
    assert_true(alone > 20 && two > 20);
    for (size_t i = 1; i <= alone; i++) {
        const outcome_t o = evaluate_with(1, i);
        assert_int_equal(o.memory, 1);
    }
    for (size_t i = 1; i <= two; i += 1 + two / 24) {
        const outcome_t o = evaluate_with(2, i);
        assert_int_not_equal(o.failed,
                             1); /* what fails may be a message's, which goes on without */
        assert_true(o.failed == 0 || o.memory > 0);
        told += o.failed;
    }
    assert_true(told > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_loss_has_the_bits_of_a_plain_forward),
        cmocka_unit_test(ranks_that_differ_end_it_everywhere),
        cmocka_unit_test(memory_that_is_missing_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
