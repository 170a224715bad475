/* Deferred statistics of batch norm: against a plain loop that looks at all rows of a batch at
 * once, and the same bits for every cut. */
#include "parallel/pipeline/pipeline_testing.h"

#include <math.h>

enum { LAYERS = 2, ROWS = 11, MICRO_BATCHES = 4, BATCHES = 3, WIDTH = TT_PIPELINE_WIDTH };

typedef struct {
    double mean[LAYERS][WIDTH], variance[LAYERS][WIDTH]; /* running */
    double batches[LAYERS];
    double evaluated;
    char digest[TUTTI_DIGEST_BYTES];
} statistics_t;

/* What a training is. */
typedef struct {
    const char *schedule;
    int ranks, micro_batches;
    bool deferred, recompute, on_devices, cumulative;
    statistics_t want;
} job_t;

/* linear, norm, gelu, linear, norm, linear */
static tutti_module_t *make_net(tutti_context_t *ctx, bool cumulative)
{
    tutti_module_t *net;
    const tutti_batch_norm_layer_options_t o = {.width = WIDTH, .cumulative = cumulative};
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net), 0);
    assert_int_equal(tt_add_linear(net, WIDTH, WIDTH), 0);
    assert_int_equal(tutti_sequential_add(net, &tutti_batch_norm_layer, &o, NULL), 0);
    assert_int_equal(tutti_sequential_add(net, &tutti_activation_layer, NULL, NULL), 0);
    assert_int_equal(tt_add_linear(net, WIDTH, WIDTH), 0);
    assert_int_equal(tutti_sequential_add(net, &tutti_batch_norm_layer, &o, NULL), 0);
    assert_int_equal(tt_add_linear(net, WIDTH, TT_PIPELINE_CLASSES), 0);
    return net;
}

static const tt_training_t training = {.model = "norm", .rows = ROWS, .micro_batches = 1};

static tutti_tensor_t *buffer_of(tutti_module_t *net, int layer, const char *what)
{
    char name[32];
    snprintf(name, sizeof name, "%d.%s", 1 + 3 * layer, what);
    return tutti_module_find(net, name);
}

/* ---- a plain loop ---------------------------------------------------------------------------- */

/* What came into each layer in a batch. */
typedef struct {
    int rows[LAYERS];
    float x[LAYERS][ROWS][WIDTH];
} seen_t;

typedef struct {
    seen_t *seen;
    int layer;
} eye_t;

static tutti_status_t see(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    const eye_t *eye = user;
    const float *x = tutti_tensor_data(call->inputs[0]);
    for (int64_t i = 0; i < tutti_tensor_dim(call->inputs[0], 0); i++) {
        memcpy(eye->seen->x[eye->layer][eye->seen->rows[eye->layer]++], x + i * WIDTH,
               WIDTH * sizeof *x);
    }
    return TUTTI_OK;
}

static void move_channel(const seen_t *seen, statistics_t *running, int layer, int channel,
                         double momentum)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < ROWS; i++) {
        mean += (double)seen->x[layer][i][channel] / ROWS;
    }
    for (int i = 0; i < ROWS; i++) {
        const double off = (double)seen->x[layer][i][channel] - mean;
        variance += off * off / (ROWS - 1);
    }
    double *at[] = {&running->mean[layer][channel], &running->variance[layer][channel]};
    *at[0] = (float)((1 - momentum) * *at[0] + momentum * mean);
    *at[1] = (float)((1 - momentum) * *at[1] + momentum * variance);
}

static void step_plainly(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt, int step)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tt_make_batch(s, &training, step, &x, &y);
    for (int64_t b = 0, first = 0; b < MICRO_BATCHES; b++) {
        const int64_t rows = ROWS / MICRO_BATCHES + (b < ROWS % MICRO_BATCHES);
        tutti_tensor_t *output = tutti_forward(s, net, tutti_narrow(s, x, 0, first, rows)),
                       *target = tutti_narrow(s, y, 0, first, rows);
        tutti_tensor_t *loss =
            tt_pipeline_loss(s, &output, 1, &target, 1, (void *)(uintptr_t)&training);
        const tutti_backward_options_t options = {
            .grad_output = tutti_full(s, TUTTI_F32, TUTTI_SCALAR, (double)rows / ROWS)};
        assert_int_equal(tutti_backward_with(s, loss, &options), 0);
        first += rows;
    }
    assert_int_equal(tutti_scope_close(s), 0);
    assert_int_equal(tutti_optim_step(opt), 0);
    tutti_optim_zero_grad(opt);
}

/* Weights do not depend on running statistics. */
static void train_plainly(job_t *job)
{
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    seen_t seen;
    eye_t eyes[LAYERS];
    const tutti_module_hooks_t hooks = {.before_forward = see};
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 5}, &ctx), 0);
    tutti_module_t *net = make_net(ctx, job->cumulative);
    assert_int_equal(tutti_optim_create(ctx, &tutti_sgd, NULL, &opt), 0);
    assert_int_equal(tutti_optim_add_module(opt, net, NULL, NULL), 0);
    for (int i = 0; i < LAYERS; i++) {
        tutti_chain_link_t link;
        eyes[i] = (eye_t){&seen, i};
        assert_true(tutti_module_kind(net)->chain(net, 1 + 3 * i, &link));
        assert_int_equal(tutti_module_add_hooks(link.module, &hooks, &eyes[i]), 0);
        for (int c = 0; c < WIDTH; c++) {
            job->want.variance[i][c] = 1;
        }
    }
    for (int step = 0; step < BATCHES; step++) {
        memset(&seen, 0, sizeof seen);
        step_plainly(ctx, net, opt, step);
        for (int i = 0; i < LAYERS; i++) {
            assert_int_equal(seen.rows[i], ROWS);
            for (int c = 0; c < WIDTH; c++) {
                move_channel(&seen, &job->want, i, c, job->cumulative ? 1.0 / (step + 1) : 0.1);
            }
            job->want.batches[i]++;
        }
    }
    assert_int_equal(tutti_module_digest(net, job->want.digest), 0);
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static tutti_status_t open_trainer(tt_trainer_t *t, const job_t *job, tutti_group_t *group)
{
    static const char *const cut[][2] = {{"3"}, {"1", "4"}};
    tt_training_t place = training;
    place.on_devices = job->on_devices;
    const tutti_pipeline_run_options_t options = {
        .plan = {.schedule = job->schedule, .micro_batches = job->micro_batches},
        .cut = job->ranks < 2 || strcmp(job->schedule, "zb-v") == 0 ? NULL : cut[job->ranks - 2],
        .cut_count = strcmp(job->schedule, "zb-v") == 0 ? 0 : job->ranks - 1,
        .loss = tt_pipeline_loss,
        .loss_user = (void *)(uintptr_t)&training,
        .recompute = job->recompute,
        .deferred_statistics = job->deferred};
    *t = (tt_trainer_t){0};
    TT_TRY(tt_open_contexts(t, &place, group == NULL ? 0 : tutti_group_rank(group)));
    t->net = make_net(t->maker, job->cumulative);
    TT_TRY(tutti_pipeline_create(t->ctx, t->net, group, &options, &t->pipeline));
    TT_TRY(tutti_optim_create(t->ctx, &tutti_sgd, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

/* Of layers that this rank has; others stay as they are. */
static tutti_status_t read_statistics(tutti_module_t *net, statistics_t *got)
{
    for (int i = 0; i < LAYERS; i++) {
        tutti_tensor_t *mean = buffer_of(net, i, "running_mean"),
                       *variance = buffer_of(net, i, "running_var");
        float values[2][WIDTH];
        int64_t batches;
        if (!tt_device_has_values(mean->storage->device)) {
            continue;
        }
        TT_TRY(tt_tensor_read(mean, values[0]));
        TT_TRY(tt_tensor_read(variance, values[1]));
        TT_TRY(tt_tensor_read(buffer_of(net, i, "num_batches_tracked"), &batches));
        for (int c = 0; c < WIDTH; c++) {
            got->mean[i][c] = (double)values[0][c];
            got->variance[i][c] = (double)values[1][c];
        }
        got->batches[i] = (double)batches;
    }
    return TUTTI_OK;
}

static tutti_status_t train(const job_t *job, tutti_group_t *group, statistics_t *got)
{
    tt_trainer_t t;
    double loss;
    tutti_status_t status = open_trainer(&t, job, group);
    for (int step = 0; step < BATCHES && status >= 0; step++) {
        status = tt_train_step(&t, &training, step, &loss);
    }
    status = status < 0 ? status : tt_evaluate(&t, &training, &got->evaluated);
    status = status < 0 ? status : tutti_pipeline_digest(t.pipeline, got->digest);
    status = status < 0 ? status : read_statistics(t.net, got);
    tt_trainer_close(&t);
    return status;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * (1 + fabs(b));
}

static void train_member(tt_member_t *m)
{
    const job_t *job = m->user;
    statistics_t got = job->want;
    TT_EXPECT(m, train(job, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, job->want.digest) == 0);
    TT_EXPECT(m, job->want.evaluated == 0 || got.evaluated == job->want.evaluated);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, got.batches[i] == job->want.batches[i]);
        for (int c = 0; c < WIDTH; c++) {
            TT_EXPECT(m, is_near(got.mean[i][c], job->want.mean[i][c]));
            TT_EXPECT(m, is_near(got.variance[i][c], job->want.variance[i][c]));
        }
    }
}

static void run(job_t job, const statistics_t *want)
{
    job.want = *want;
    tt_team_expect(job.ranks, 0, train_member, &job);
}

/* One rank is compared with the loop; others with its evaluation, to the bit, too. */
static void they_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    for (int cumulative = 0; cumulative < 2; cumulative++) {
        statistics_t one;
        job_t job = {.schedule = "gpipe",
                     .ranks = 1,
                     .micro_batches = MICRO_BATCHES,
                     .deferred = true,
                     .cumulative = cumulative > 0};
        train_plainly(&job);
        run(job, &job.want);
        one = job.want;
        assert_int_equal(train(&job, NULL, &one), 0);
        job.ranks = 2;
        run(job, &one);
        job.recompute = true;
        job.on_devices = true;
        job.ranks = 3;
        job.schedule = "zb-h1";
        run(job, &one);
        job.ranks = 1;
        job.schedule = "zb-v";
        run(job, &one);
    }
}

/* A batch of one micro-batch moves them by the bits that forward would. */
static void one_micro_batch_moves_as_forward_does(void **state)
{
    (void)state;
    statistics_t deferred = {0}, at_once = {0};
    job_t job = {.schedule = "1f1b", .ranks = 1, .micro_batches = 1};
    assert_int_equal(train(&job, NULL, &at_once), 0);
    job.deferred = true;
    assert_int_equal(train(&job, NULL, &deferred), 0);
    assert_memory_equal(&deferred, &at_once, sizeof deferred);
    assert_true(deferred.evaluated > 0);
}

/* Behind an evaluation, and without a pipeline, layers are as they were. */
static void what_is_no_training_moves_nothing(void **state)
{
    (void)state;
    tt_trainer_t t;
    double loss;
    statistics_t before = {0}, after = {0}, moved = {0};
    const job_t job = {.schedule = "1f1b", .ranks = 1, .micro_batches = 4, .deferred = true};
    assert_int_equal(open_trainer(&t, &job, NULL), 0);
    assert_int_equal(tt_train_step(&t, &training, 0, &loss), 0);
    assert_int_equal(read_statistics(t.net, &before), 0);
    assert_int_equal(tt_evaluate(&t, &training, &loss), 0);
    assert_int_equal(read_statistics(t.net, &after), 0);
    assert_memory_equal(&before, &after, sizeof before);
    tutti_pipeline_release(t.pipeline);
    t.pipeline = NULL;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    assert_int_equal(tutti_scope_open(t.ctx, &s), 0);
    tt_make_batch(s, &training, 1, &x, &y);
    (void)tutti_forward(s, t.net, x);
    assert_int_equal(tutti_scope_close(s), 0);
    assert_int_equal(read_statistics(t.net, &moved), 0);
    assert_true(moved.batches[0] == before.batches[0] + 1);
    assert_true(moved.mean[0][0] != before.mean[0][0]);
    tt_trainer_close(&t);
}

static void what_cannot_defer_is_refused(void **state)
{
    (void)state;
    tt_trainer_t t, other = {0};
    const job_t async = {.schedule = "pipedream", .ranks = 1, .micro_batches = 4, .deferred = true},
                job = {.schedule = "1f1b", .ranks = 1, .micro_batches = 4, .deferred = true};
    assert_int_equal(open_trainer(&t, &async, NULL), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("deferred_statistics move once for a batch, and this schedule steps inside it");
    tt_trainer_close(&t);
    assert_int_equal(open_trainer(&t, &job, NULL), 0);
    const tutti_pipeline_run_options_t again = {.loss = tt_pipeline_loss,
                                                .deferred_statistics = true};
    assert_int_equal(tutti_pipeline_create(t.ctx, t.net, NULL, &again, &other.pipeline),
                     TUTTI_ERR_STATE);
    tt_expect_error("another pipeline defers the statistics of a batch norm");
    tt_trainer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_those_of_the_whole_batch),
        cmocka_unit_test(one_micro_batch_moves_as_forward_does),
        cmocka_unit_test(what_is_no_training_moves_nothing),
        cmocka_unit_test(what_cannot_defer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
