/* Stage 3 in rows of ranks (options.mesh): the bits of stage 0, bytes and memory as the formulas
 * say, rows that go their own ways, and meshes that do not fit. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <stdlib.h>

#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { TIMEOUT_MS = 60000, SHARDS = 6, STEPS = 3 };

typedef struct {
    int rows, size; /* 0: no mesh */
    bool shard_first;
} layout_t;

static tutti_status_t open_mesh(tutti_group_t *group, const layout_t *layout, tutti_mesh_t **out)
{
    const char *names[] = {layout->shard_first ? "shard" : "replicate",
                           layout->shard_first ? "replicate" : "shard"};
    const int sizes[] = {layout->shard_first ? layout->size : layout->rows,
                         layout->shard_first ? layout->rows : layout->size};
    *out = NULL;
    return layout->rows == 0 ? TUTTI_OK : tutti_mesh_create(group, 2, sizes, names, out);
}

typedef enum { SHARE, GATHER, TCP, WAYS } way_t;

static void go_by(way_t way)
{
    unsetenv("TUTTI_WIRES");
    unsetenv("TUTTI_PROTECT");
    setenv("TUTTI_SHARED_PARAMETERS", way == GATHER ? "0" : "1", 1);
    if (way == TCP) {
        setenv("TUTTI_WIRES", "tcp", 1);
        setenv("TUTTI_PROTECT", "off", 1);
    }
}

static void run_team(int ranks, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect_quietly(ranks, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct {
    const tutti_optim_ops_t *optimizer;
    tutti_ddp_options_t options;
    bool is_frozen, recomputes;
} mathematics_t;

static const mathematics_t mathematics[] = {
    {&tutti_adamw, {.shards = SHARDS}, false, true},
    {&tutti_lamb,
     {.shards = SHARDS,
      .uneven = TUTTI_DDP_WEIGHTED,
      .param_dtype = TUTTI_BF16,
      .reduce_dtype = TUTTI_BF16},
     true,
     false},
};

typedef struct {
    mathematics_t mathematics;
    layout_t layout;
    char digests[SHARDS][TUTTI_DIGEST_BYTES];
} training_t;

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, int step)
{
    tutti_scope_t *s;
    const int64_t shard = tutti_context_shard(ctx);
    if (ddp->options.uneven != TUTTI_DDP_EVEN) {
        const int64_t weight = (step + shard) % 3 == 1 ? 0 : 1 + shard;
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, weight));
        if (weight == 0) {
            return TUTTI_OK;
        }
    }
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, TT_STAGES_IN), -1, 1);
    tutti_tensor_t *y = tutti_cast(s, tutti_ddp_forward(s, ddp, x), TUTTI_F32);
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, y)));
    return tutti_scope_close(s);
}

static tutti_status_t train_ddp(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *opt,
                                char *digest)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        while (tutti_ddp_next_shard(ddp, ctx)) {
            TUTTI_CHECK(run_shard(ddp, ctx, step));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        TUTTI_CHECK(tutti_clip_grad_norm(opt, 0.05, 2, NULL));
        TUTTI_CHECK(tutti_optim_step(opt));
    }
    return tutti_ddp_digest(ddp, digest);
}

static tutti_status_t train_net(tt_member_t *m, tutti_context_t *ctx, tutti_module_t *net,
                                training_t *training)
{
    tutti_ddp_options_t options = training->mathematics.options;
    tutti_mesh_t *mesh;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    TUTTI_CHECK(open_mesh(m->group, &training->layout, &mesh));
    options.stage = mesh != NULL ? 3 : 0;
    options.mesh = mesh;
    options.units.kind = mesh != NULL ? "block" : NULL;
    options.persistence_bytes = training->layout.size == 2 ? 100 : 0;
    TUTTI_CHECK(tutti_ddp_create(ctx, net, m->group, &options, &ddp));
    tutti_mesh_release(mesh);
    TUTTI_CHECK(tutti_optim_create(ctx, training->mathematics.optimizer, NULL, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    const tutti_status_t status = train_ddp(ddp, ctx, opt, training->digests[m->rank]);
    tutti_ddp_release(ddp);
    tutti_optim_release(opt);
    return status;
}

static void train(tt_member_t *m)
{
    training_t *training = m->user;
    const bool recomputes = training->mathematics.recomputes;
    const tutti_context_options_t options = {.threads = 1, .seed = 11};
    tutti_context_t *ctx;
    tutti_module_t *net;
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tt_stages_layer, &recomputes, &net) == TUTTI_OK);
    const tt_stages_net_t *state = tutti_module_state(net);
    TT_EXPECT(m, !training->mathematics.is_frozen ||
                     tutti_module_set_requires_grad(state->blocks[0], false) == TUTTI_OK);
    TT_EXPECT(m, train_net(m, ctx, net, training) == TUTTI_OK);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void check_layout(const mathematics_t *what, const layout_t *layout, int ranks,
                         const char *want)
{
    training_t training = {.mathematics = *what, .layout = *layout};
    run_team(ranks, train, &training);
    for (int rank = 0; rank < ranks; rank++) {
        if (strcmp(training.digests[rank], want) != 0) {
            fail_msg("%d rows of %d: rank %d has %s, stage 0 on one rank has %s", layout->rows,
                     layout->size, rank, training.digests[rank], want);
        }
    }
}

static void rows_have_the_bits_of_stage_0(void **state)
{
    (void)state;
    static const layout_t layouts[] = {{2, 2, false}, {3, 2, false}, {2, 1, false},
                                       {1, 2, false}, {2, 3, true},  {2, 2, true}};
    for (size_t i = 0; i < sizeof mathematics / sizeof mathematics[0]; i++) {
        training_t whole = {.mathematics = mathematics[i]};
        go_by(SHARE);
        run_team(1, train, &whole);
        for (int ranks = 2; ranks <= SHARDS; ranks += 2) {
            check_layout(&mathematics[i], &(layout_t){0}, ranks, whole.digests[0]);
        }
        for (size_t k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
            go_by((way_t)((k + i) % WAYS));
            check_layout(&mathematics[i], &layouts[k], layouts[k].rows * layouts[k].size,
                         whole.digests[0]);
        }
    }
    go_by(SHARE);
}

/* ---- a model that is cut evenly -------------------------------------------------------------- */

enum { LAYERS = 3, SIDE = 256, PSI = LAYERS * SIDE * SIDE * (int)sizeof(float) };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_mesh_t *mesh;
    tutti_ddp_t *ddp;
} job_t;

static void open_net(tt_member_t *m, job_t *job)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {
        .in = SIDE, .out = SIDE, .no_bias = true, .activation = TUTTI_ACTIVATION_TANH};
    *job = (job_t){0};
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->ctx, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_optim_create(job->ctx, &tutti_adamw, NULL, &job->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job->opt, job->net, NULL, NULL) == TUTTI_OK);
}

static void open_job(tt_member_t *m, const layout_t *layout, job_t *job)
{
    open_net(m, job);
    TT_EXPECT(m, open_mesh(m->group, layout, &job->mesh) == TUTTI_OK);
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .mesh = job->mesh};
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, &options, &job->ddp) == TUTTI_OK);
}

static void close_job(job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_mesh_release(job->mesh);
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    tutti_context_release(job->ctx);
}

static tutti_tensor_t *loss_of(tutti_scope_t *s, job_t *job)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    return tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x)));
}

static tutti_status_t compute(job_t *job)
{
    tutti_status_t status = TUTTI_OK;
    while (status >= 0 && tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        (void)tutti_backward(s, loss_of(s, job));
        status = tutti_scope_close(s);
    }
    const tutti_status_t end = tutti_ddp_finish(job->ddp);
    return status < 0 ? status : end;
}

static tutti_status_t step(job_t *job)
{
    TUTTI_CHECK(compute(job));
    return tutti_optim_step(job->opt);
}

/* ---- bytes and memory ------------------------------------------------------------------------ */

static int64_t sent(const job_t *job, const char *call)
{
    return tutti_group_sent_bytes(job->ddp->group, call) +
           tutti_group_sent_bytes(job->ddp->units.group, call) +
           tutti_group_sent_bytes(job->ddp->units.rows.group, call);
}

/* The ranks that have a rank's slice: of one part in every row. */
static int copies_elsewhere(const layout_t *layout, int rank)
{
    const int part = rank / layout->rows;
    const int place = layout->shard_first ? rank / layout->rows : rank % layout->size;
    return layout->rows - (part == place);
}

static void count_bytes(tt_member_t *m)
{
    const layout_t *layout = m->user;
    job_t job;
    open_job(m, layout, &job);
    const int64_t slice = PSI / m->size, part = PSI / layout->size;
    const int64_t published = layout->rows == 1 ? 0 : slice * copies_elsewhere(layout, m->rank);
    for (int i = 0; i < 3; i++) {
        const int64_t gathered = sent(&job, "all_gather"), pushed = sent(&job, "send"),
                      scattered = sent(&job, "reduce_scatter");
        TT_EXPECT(m, step(&job) == TUTTI_OK);
        TT_EXPECT(m, sent(&job, "reduce_scatter") - scattered == slice * (m->size - 1));
        TT_EXPECT(m, sent(&job, "all_gather") - gathered == 2 * part * (layout->size - 1));
        TT_EXPECT(m, sent(&job, "send") - pushed == published);
    }
    const tutti_ddp_memory_t memory = tutti_ddp_memory(job.ddp, job.opt);
    const int64_t own = layout->rows == 1 ? 0 : slice;
    TT_EXPECT(m, memory.parameter_bytes == (size_t)(part + own));
    TT_EXPECT(m, memory.gradient_bytes == (size_t)slice);
    TT_EXPECT(m, memory.optimizer_bytes == (size_t)(2 * slice));
    TT_EXPECT(m, memory.sent_bytes == sent(&job, NULL));
    TT_EXPECT(m, strcmp(tutti_ddp_stats(job.ddp).unit_source, "gather") == 0);
    close_job(&job);
}

/* Each rank a host of its own: for gradients Ψ(W − 1)/W; for units 2Ψ(S − 1)/S, within the row; for
 * what is published Ψ/W to each of R ranks but itself. */
static void a_step_sends_what_the_formula_says(void **state)
{
    (void)state;
    static layout_t layouts[] = {
        {2, 2, false}, {2, 2, true}, {4, 1, false}, {2, 1, false}, {1, 2, false}};
    go_by(TCP);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        run_team(layouts[i].rows * layouts[i].size, count_bytes, &layouts[i]);
    }
    go_by(SHARE);
}

/* ---- rows of their own ----------------------------------------------------------------------- */

static double evaluate(tt_member_t *m, job_t *job)
{
    tutti_scope_t *s;
    const bool was = tutti_context_set_grad_enabled(job->ctx, false);
    TT_EXPECT(m, tutti_scope_open(job->ctx, &s) == TUTTI_OK);
    const tutti_tensor_t *loss = loss_of(s, job);
    const double value = tutti_tensor_status(loss) < 0 ? -1 : tutti_tensor_item(loss);
    (void)tutti_context_set_grad_enabled(job->ctx, was);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    return value;
}

static const layout_t two_by_two = {2, 2, false};

/* A row may evaluate while the other one does not: it asks nothing of it. */
static void evaluate_in_one_row(tt_member_t *m)
{
    job_t job;
    open_job(m, &two_by_two, &job);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, step(&job) == TUTTI_OK);
        TT_EXPECT(m, m->rank >= 2 || evaluate(m, &job) > 0);
    }
    close_job(&job);
}

/* Every rank writes other values, which is a mistake: rows have the same ones nevertheless, each
 * slice's owner's. */
static void write_what_differs(tt_member_t *m)
{
    job_t job;
    float *all = m->user;
    open_job(m, &two_by_two, &job);
    tutti_tensor_t *x = tutti_module_find(job.net, "1.weight");
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, "1", true) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, 1 + m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, NULL, false) == TUTTI_OK);
    const float *values = tutti_tensor_data(x);
    for (int i = 0; i < m->size && values != NULL; i++) {
        all[m->rank * m->size + i] = values[(size_t)i * SIDE * SIDE / (size_t)m->size];
    }
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    close_job(&job);
}

static void rows_ask_nothing_of_each_other_between_steps(void **state)
{
    (void)state;
    for (way_t way = SHARE; way < WAYS; way++) {
        float values[4][4];
        go_by(way);
        run_team(4, evaluate_in_one_row, NULL);
        run_team(4, write_what_differs, values);
        for (int rank = 0; rank < 4; rank++) {
            for (int i = 0; i < 4; i++) {
                assert_true(values[rank][i] == (float)(1 + i));
            }
        }
    }
    go_by(SHARE);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void expect_refused(tt_member_t *m, job_t *job, const tutti_ddp_options_t *options,
                           tutti_status_t want, const char *text)
{
    tutti_ddp_t *ddp;
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, options, &ddp) == want);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
}

static void take_meshes_that_do_not_fit(tt_member_t *m)
{
    job_t job;
    tutti_mesh_t *named, *row;
    tutti_group_t *turned;
    const int back[] = {3, 2, 1, 0}, halves[] = {2, 2};
    open_net(m, &job);
    TT_EXPECT(m, tutti_mesh_create(m->group, 2, halves, (const char *[]){"dp", "shard"}, &named) ==
                     TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 3, .mesh = named}, TUTTI_ERR_ARG,
                   "options.mesh has 2 dimensions, the first is called \"dp\": want two, "
                   "\"replicate\" and \"shard\"");
    TT_EXPECT(m, open_mesh(m->group, &two_by_two, &job.mesh) == TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 2, .mesh = job.mesh}, TUTTI_ERR_ARG,
                   "options.mesh at stage 2, where every rank has all parameters: it is for "
                   "stage 3");
    TT_EXPECT(m, open_mesh(tutti_mesh_group(named, "shard"), &(layout_t){1, 2, false}, &row) ==
                     TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 3, .mesh = row}, TUTTI_ERR_ARG,
                   "options.mesh is replicate 1 × shard 2, so of 2 ranks, and group world has 4: "
                   "make it of that group, with sizes whose product is 4");
    tutti_mesh_release(row);
    TT_EXPECT(m, tutti_group_new(m->group, back, 4, NULL, &turned) == TUTTI_OK);
    TT_EXPECT(m, open_mesh(turned, &two_by_two, &row) == TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 3, .mesh = row}, TUTTI_ERR_ARG,
                   "options.mesh lays out other ranks than those of group world");
    /* of other shapes on some ranks */
    const tutti_ddp_options_t options = {.stage = 3, .mesh = m->rank == 3 ? NULL : job.mesh};
    expect_refused(m, &job, &options, TUTTI_ERR_MISMATCH, "mesh: replicate 2, shard 2");
    tutti_mesh_release(row);
    tutti_group_release(turned);
    tutti_mesh_release(named);
    close_job(&job);
}

static void a_mesh_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    run_team(4, take_meshes_that_do_not_fit, NULL);
}

/* ---- without memory -------------------------------------------------------------------------- */

typedef struct {
    size_t nth;
    bool has_failed;
    tutti_status_t statuses[4];
} lack_t;

/* One allocation of one rank fails in what all ranks do between the two. */
static void begin_lack(tt_member_t *m, const lack_t *lack)
{
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
}

static void end_lack(tt_member_t *m, lack_t *lack)
{
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
}

static void step_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    job_t job;
    open_job(m, &two_by_two, &job);
    TT_EXPECT(m, compute(&job) == TUTTI_OK);
    begin_lack(m, lack);
    lack->statuses[m->rank] = tutti_optim_step(job.opt);
    TT_EXPECT(m, lack->statuses[m->rank] >= 0 || tutti_last_error()[0] != 0);
    end_lack(m, lack);
    close_job(&job);
}

/* Nobody hangs, and nobody believes that it went well where a slice did not come. */
static void a_rank_that_cannot_publish_stops_all(void **state)
{
    (void)state;
    int failed = 0;
    go_by(GATHER);
    lack_t lack = {.nth = 1, .has_failed = true};
    for (; lack.has_failed; lack.nth += 7) {
        run_team(4, step_without_memory, &lack);
        int count = 0;
        for (int rank = 0; rank < 4; rank++) {
            count += lack.statuses[rank] < 0;
        }
        assert_true(count == 0 || count == 4);
        failed += count > 0;
    }
    assert_true(failed > 0);
    go_by(SHARE);
}

static void wrap_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    job_t job = {0};
    open_net(m, &job);
    TT_EXPECT(m, open_mesh(m->group, &two_by_two, &job.mesh) == TUTTI_OK);
    const tutti_ddp_options_t options = {.stage = 3, .units = {.kind = "linear"}, .mesh = job.mesh};
    begin_lack(m, lack);
    lack->statuses[m->rank] = tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp);
    end_lack(m, lack);
    close_job(&job);
}

/* What a rank fails of, those of its row and of the others return. */
static void a_row_without_memory_stops_all(void **state)
{
    (void)state;
    int failed = 0;
    go_by(GATHER);
    lack_t lack = {.nth = 1, .has_failed = true};
    for (; lack.has_failed; lack.nth += 31) {
        run_team(4, wrap_without_memory, &lack);
        for (int rank = 0; rank < 4; rank++) {
            assert_true(lack.statuses[rank] != TUTTI_ERR_TIMEOUT);
            assert_int_equal(lack.statuses[rank] < 0, lack.statuses[0] < 0);
        }
        failed += lack.statuses[0] < 0;
    }
    assert_true(failed > 0);
    go_by(SHARE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_stage_0),
        cmocka_unit_test(a_step_sends_what_the_formula_says),
        cmocka_unit_test(rows_ask_nothing_of_each_other_between_steps),
        cmocka_unit_test(a_mesh_that_does_not_fit_is_refused),
        cmocka_unit_test(a_rank_that_cannot_publish_stops_all),
        cmocka_unit_test(a_row_without_memory_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
