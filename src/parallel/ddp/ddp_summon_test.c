/* Units that are summoned, written, or whole at the wrong time, and ranks that differ in how they
 * are cut: every rank is told, at once, and values are those that were written. Both where ranks
 * gather and where they share. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <stdlib.h>

#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { LAYERS = 3, SIDE = 24, TIMEOUT_MS = 60000 };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net, *layers[LAYERS];
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} job_t;

static void open_net(tt_member_t *m, tutti_dtype_t dtype, job_t *job)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {
        .in = SIDE, .out = SIDE, .activation = TUTTI_ACTIVATION_TANH};
    *job = (job_t){0};
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->ctx, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, &job->layers[i]) ==
                         TUTTI_OK);
    }
    TT_EXPECT(m, tutti_module_cast(job->net, dtype) == TUTTI_OK);
}

static tutti_status_t open_ddp(tt_member_t *m, const tutti_ddp_options_t *options, job_t *job)
{
    return tutti_ddp_create(job->ctx, job->net, m->group, options, &job->ddp);
}

static void open_job(tt_member_t *m, tutti_dtype_t dtype, const tutti_ddp_options_t *options,
                     job_t *job)
{
    open_net(m, dtype, job);
    TT_EXPECT(m, open_ddp(m, options, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(job->ctx, &tutti_adamw, NULL, &job->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job->opt, job->net, NULL, NULL) == TUTTI_OK);
}

static void close_job(job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    tutti_context_release(job->ctx);
}

/* Gradients of one layer alone, or of all. */
static void compute(tt_member_t *m, job_t *job, tutti_module_t *part)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TT_EXPECT(m, tutti_scope_open(job->ctx, &s) == TUTTI_OK);
        const tutti_tensor_t *weight = tutti_module_find(job->net, "0.weight");
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
        x = job->ddp->options.param_dtype == TUTTI_F32 ? tutti_cast(s, x, weight->dtype) : x;
        x = part == job->net ? tutti_ddp_forward(s, job->ddp, x) : tutti_forward(s, part, x);
        x = tutti_cast(s, x, TUTTI_F32);
        (void)tutti_backward(s, tutti_sum(s, tutti_square(s, x)));
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(job->ddp) == TUTTI_OK);
}

static void step(tt_member_t *m, job_t *job, tutti_module_t *part)
{
    compute(m, job, part);
    TT_EXPECT(m, tutti_optim_step(job->opt) == TUTTI_OK);
}

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *text)
{
    TT_EXPECT(m, status == want && strstr(tutti_last_error(), text) != NULL);
}

static void write(tt_member_t *m, job_t *job, const char *unit, const char *name, double value)
{
    TT_EXPECT(m, tutti_ddp_summon(job->ddp, unit, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(job->net, name), value) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(job->ddp) == TUTTI_OK);
}

static double read_first(tt_member_t *m, job_t *job, const char *name)
{
    TT_EXPECT(m, tutti_ddp_summon(job->ddp, NULL, false) == TUTTI_OK);
    const double value = tutti_tensor_at(tutti_module_find(job->net, name), 0);
    TT_EXPECT(m, tutti_ddp_dismiss(job->ddp) == TUTTI_OK);
    return value;
}

/* Where ranks gather, then where they share. */
static void run_both(void (*body)(tt_member_t *), void *user)
{
    for (int share = 0; share < 2; share++) {
        setenv("TUTTI_SHARED_PARAMETERS", share ? "1" : "0", 1);
        tt_team_expect_quietly(2, TIMEOUT_MS, body, user);
        assert_int_equal(tt_alloc_stats().blocks, 0);
    }
}

static const tutti_ddp_options_t by_layer = {.stage = 3, .units = {.kind = "linear"}};

/* ---- while something is summoned ------------------------------------------------------------- */

static void end_a_summons_otherwise(tt_member_t *m)
{
    job_t job;
    open_job(m, TUTTI_F32, &by_layer, &job);
    compute(m, &job, job.net);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, "1", true) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(job.net, "1.bias"), 3) == TUTTI_OK);
    static const char text[] = "call tutti_ddp_dismiss() first";
    expect_text(m, tutti_ddp_reshard(job.ddp, "1"), TUTTI_ERR_STATE, text);
    expect_text(m, tutti_ddp_reshard(job.ddp, NULL), TUTTI_ERR_STATE, text);
    TT_EXPECT(m, tutti_ddp_reshard(job.ddp, "2") == TUTTI_OK);
    expect_text(m, tutti_optim_step(job.opt), TUTTI_ERR_STATE, text);
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, read_first(m, &job, "1.bias") == 3);
    TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_OK);
    close_job(&job);
}

static void what_is_summoned_for_writing_is_dismissed_first(void **state)
{
    (void)state;
    run_both(end_a_summons_otherwise, NULL);
}

static void step_while_summoned(tt_member_t *m)
{
    const bool *writes = m->user;
    job_t job;
    open_job(m, TUTTI_F32, &by_layer, &job);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, "1", *writes) == TUTTI_OK);
    TT_EXPECT(m, !tutti_ddp_next_shard(job.ddp, job.ctx));
    expect_text(m, tutti_ddp_finish(job.ddp), TUTTI_ERR_STATE,
                "call tutti_ddp_dismiss() before a step");
    close_job(&job);
}

static void no_step_begins_while_something_is_summoned(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool writes = i == 1;
        run_both(step_while_summoned, &writes);
    }
}

/* ---- ranks that differ ----------------------------------------------------------------------- */

typedef struct {
    tutti_ddp_options_t options[2];
} pair_t;

static void differ(tt_member_t *m)
{
    const pair_t *pair = m->user;
    job_t job;
    open_net(m, TUTTI_F32, &job);
    expect_text(m, open_ddp(m, &pair->options[m->rank], &job), TUTTI_ERR_MISMATCH,
                "not the same on every rank");
    TT_EXPECT(m, job.ddp == NULL);
    close_job(&job);
}

static void units_are_the_same_on_every_rank(void **state)
{
    (void)state;
    static const char *const first[] = {"0"}, *const second[] = {"1"};
    static const tutti_ddp_options_t others[] = {
        {.stage = 3},
        {.stage = 3, .units = {.bytes = 1}},
        {.stage = 3, .units = {.kind = "linear"}, .persistence_bytes = 200},
        {.stage = 3, .units = {.kind = "linear"}, .prefetch = 3},
        {.stage = 3, .units = {.kind = "linear"}, .keep_after_forward = true},
        {.stage = 3, .units = {.kind = "linear"}, .keep_after_backward = true},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        pair_t pair = {{by_layer, others[i]}};
        run_both(differ, &pair);
    }
    pair_t names = {{{.stage = 3, .units = {.names = first, .name_count = 1}},
                     {.stage = 3, .units = {.names = second, .name_count = 1}}}};
    run_both(differ, &names);
}

/* ---- 16-bit parameters ----------------------------------------------------------------------- */

/* A layer is written, and has no gradient in the next step: its master is to be made anew later. */
static void write_and_skip(tt_member_t *m)
{
    const tutti_ddp_options_t *options = m->user;
    job_t job;
    open_job(m, TUTTI_BF16, options, &job);
    step(m, &job, job.net);
    write(m, &job, NULL, "0.bias", 5);
    step(m, &job, job.layers[1]);
    step(m, &job, job.net);
    const double value = read_first(m, &job, "0.bias");
    TT_EXPECT(m, value > 4.5 && value < 5.5);
    close_job(&job);
}

static void what_was_written_outlives_a_step_without_its_gradient(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        tutti_ddp_options_t options = {.stage = stage};
        options.units.kind = stage == 3 ? "linear" : NULL;
        run_both(write_and_skip, &options);
    }
}

static void write_a_frozen_one(tt_member_t *m)
{
    const tutti_ddp_options_t *options = m->user;
    job_t job;
    open_net(m, TUTTI_F32, &job);
    TT_EXPECT(m, tutti_module_set_requires_grad(job.layers[1], false) == TUTTI_OK);
    TT_EXPECT(m, open_ddp(m, options, &job) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(job.ctx, &tutti_adamw, NULL, &job.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job.opt, job.net, NULL, NULL) == TUTTI_OK);
    step(m, &job, job.net);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, NULL, true) == TUTTI_OK);
    tutti_tensor_t *x = tutti_module_find(job.net, "1.bias");
    ((float *)tutti_tensor_data(x))[0] = 7; /* by pointer: nobody counts it */
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, x->dtype == TUTTI_BF16 && tutti_tensor_at(x, 0) == 7);
    close_job(&job);
}

static void a_frozen_parameter_is_written_as_others_are(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        tutti_ddp_options_t options = {.stage = stage, .param_dtype = TUTTI_BF16};
        options.units.kind = stage == 3 ? "linear" : NULL;
        run_both(write_a_frozen_one, &options);
    }
}

/* ---- written without a summons --------------------------------------------------------------- */

/* Nobody waits for rank 0, whose slice another one needs. */
static void write_on_one_rank(tt_member_t *m)
{
    job_t job;
    open_job(m, TUTTI_F32, &by_layer, &job);
    compute(m, &job, job.net);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, "1") == TUTTI_OK);
    if (m->rank == 0) {
        tt_tensor_touch(tutti_module_find(job.net, "1.bias"));
    }
    expect_text(m, tutti_optim_step(job.opt), TUTTI_ERR_STATE,
                "parameter 1.bias was written while its unit was whole");
    TT_EXPECT(m, read_first(m, &job, "1.bias") == read_first(m, &job, "1.bias"));
    step(m, &job, job.net);
    close_job(&job);
}

static void all_hear_of_what_one_rank_wrote(void **state)
{
    (void)state;
    run_both(write_on_one_rank, NULL);
}

/* ---- small parameters ------------------------------------------------------------------------ */

static void write_a_kept_one(tt_member_t *m)
{
    char *digest = m->user;
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .persistence_bytes = 200};
    job_t job;
    open_job(m, TUTTI_F32, &options, &job);
    TT_EXPECT(m, strstr(job.ddp->units.units[job.ddp->units.count - 1].reason,
                        "options.persistence_bytes") != NULL);
    write(m, &job, "1", "1.bias", 1);
    TT_EXPECT(m, read_first(m, &job, "1.bias") == 1);
    step(m, &job, job.net);
    char text[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tutti_ddp_digest(job.ddp, text) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(digest, text, sizeof text);
    }
    close_job(&job);
}

static void a_units_small_parameters_are_summoned_with_it(void **state)
{
    (void)state;
    char digests[2][TUTTI_DIGEST_BYTES];
    for (int share = 0; share < 2; share++) {
        setenv("TUTTI_SHARED_PARAMETERS", share ? "1" : "0", 1);
        tt_team_expect_quietly(2, TIMEOUT_MS, write_a_kept_one, digests[share]);
    }
    assert_string_equal(digests[0], digests[1]);
}

/* ---- once more ------------------------------------------------------------------------------- */

static void make_again(tt_member_t *m)
{
    job_t job;
    open_job(m, TUTTI_F32, &by_layer, &job);
    tutti_ddp_release(job.ddp);
    job.ddp = NULL;
    expect_text(m, open_ddp(m, &by_layer, &job), TUTTI_ERR_STATE, "0.weight f32[24, 24] is not in");
    TT_EXPECT(m, strstr(tutti_last_error(), "was released while it was sharded") != NULL);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* the group is not given up */
    close_job(&job);
}

static void a_module_without_values_is_refused(void **state)
{
    (void)state;
    run_both(make_again, NULL);
}

/* ---- whose memory is written ----------------------------------------------------------------- */

/* The root is whole before: what rank 0 writes in a summons, rank 1 has when it is dismissed. */
static void write_the_root(tt_member_t *m)
{
    job_t job = {0};
    open_job(m, TUTTI_F32, &(tutti_ddp_options_t){.stage = 3}, &job);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, NULL, true) == TUTTI_OK);
    tutti_tensor_t *x = tutti_module_find(job.net, "0.weight");
    const double was = tutti_tensor_at(x, 0);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, m->rank != 0 || tutti_tensor_fill(x, 7) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(x, 0) == (m->rank == 0 ? 7 : was));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, m->rank == 0 || tutti_tensor_fill(x, 7) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_OK);
    TT_EXPECT(m, read_first(m, &job, "0.weight") == 7);
    close_job(&job);
}

static void a_rank_writes_memory_of_its_own(void **state)
{
    (void)state;
    run_both(write_the_root, NULL);
}

/* ---- between the shards of a step ------------------------------------------------------------ */

/* Also the first layer, of whose input nobody wants a gradient. */
static void look_between_shards(tt_member_t *m)
{
    for (int keeps = 0; keeps < 2; keeps++) {
        job_t job = {0};
        tutti_ddp_options_t options = by_layer;
        options.shards = 4;
        options.keep_after_backward = keeps == 1;
        open_job(m, TUTTI_F32, &options, &job);
        while (tutti_ddp_next_shard(job.ddp, job.ctx)) {
            tutti_scope_t *s;
            TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == TUTTI_OK);
            tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
            (void)tutti_backward(s, tutti_sum(s, tutti_ddp_forward(s, job.ddp, x)));
            TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
            for (int i = 0; i < LAYERS; i++) {
                const tutti_tensor_t *weight = tutti_module_find(job.layers[i], "weight");
                TT_EXPECT(m, (weight->storage->away == NULL) == (keeps == 1));
            }
        }
        TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
        close_job(&job);
    }
}

static void units_stay_between_shards_where_they_are_to(void **state)
{
    (void)state;
    run_both(look_between_shards, NULL);
}

/* ---- a step behind which small parameters do not come ---------------------------------------- */

static void step_without_memory(tt_member_t *m)
{
    job_t job = {0};
    tutti_ddp_options_t options = by_layer;
    options.persistence_bytes = 200;
    open_job(m, TUTTI_F32, &options, &job);
    compute(m, &job, job.net);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        tt_alloc_fail_at(*(const size_t *)m->user);
    }
    tt_member_tell(m);
    tt_member_await(m, 2);
    const tutti_status_t status = tutti_optim_step(job.opt);
    const tutti_tensor_t *bias = tutti_module_find(job.net, "1.bias");
    TT_EXPECT(m, status < 0 || bias->storage->away == NULL);
    tt_member_tell(m);
    tt_member_await(m, 4); /* a rank that leaves the group would be noticed */
    close_job(&job);
}

static void a_step_that_is_well_has_its_small_parameters(void **state)
{
    (void)state;
    size_t nth = 0;
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    do {
        nth++;
        tt_team_expect_quietly(2, TIMEOUT_MS, step_without_memory, &nth);
    } while (tt_alloc_has_failed());
    tt_alloc_fail_at(0);
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_true(nth > 20);
}

/* ---- a unit that does not come --------------------------------------------------------------- */

static void unshard_in_vain(tt_member_t *m)
{
    job_t job = {0};
    open_job(m, TUTTI_F32, &by_layer, &job);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_group_abort(job.ddp->units.group);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_ERR_ABORTED);
    close_job(&job);
}

/* Ranks that gather: a group that was given up gathers nothing. */
static void what_cannot_be_gathered_is_told(void **state)
{
    (void)state;
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    tt_team_expect_quietly(2, 20000, unshard_in_vain, NULL);
    unsetenv("TUTTI_SHARED_PARAMETERS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_summoned_for_writing_is_dismissed_first),
        cmocka_unit_test(no_step_begins_while_something_is_summoned),
        cmocka_unit_test(units_are_the_same_on_every_rank),
        cmocka_unit_test(what_was_written_outlives_a_step_without_its_gradient),
        cmocka_unit_test(a_frozen_parameter_is_written_as_others_are),
        cmocka_unit_test(all_hear_of_what_one_rank_wrote),
        cmocka_unit_test(a_units_small_parameters_are_summoned_with_it),
        cmocka_unit_test(a_module_without_values_is_refused),
        cmocka_unit_test(a_rank_writes_memory_of_its_own),
        cmocka_unit_test(units_stay_between_shards_where_they_are_to),
        cmocka_unit_test(a_step_that_is_well_has_its_small_parameters),
        cmocka_unit_test(what_cannot_be_gathered_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
