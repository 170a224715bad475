/* DDP over models that are not one f32 net: a tensor under two names, 16-bit parameters, empty
 * ones, an operation of one's own, two models in one context, gradients that somebody replaced. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include <tutti/ddp.h>
#include <tutti/nn.h>
#include <tutti/op.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>

#include "comm/group/group_team.h"
#include "core/base/log.h"
#include "core/base/testing.h"
#include "parallel/ddp/ddp_impl.h"

/* Parameters, and nothing that is done with them. */
static const tutti_module_ops_t bag_layer = {.name = "bag", .about = "parameters of a test"};

typedef struct {
    int shards;
    tutti_dtype_t dtype;
    double first; /* the gradient of shard 0; all others get 1 */
    double mean;  /* what is expected */
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *bag;
    tutti_tensor_t *w, *empty;
    tutti_ddp_t *ddp;
} setting_t;

static tutti_status_t add_parameter(setting_t *set, tutti_dtype_t dtype, tutti_shape_t shape,
                                    tutti_tensor_t **out)
{
    TUTTI_CHECK(tutti_tensor_create(dtype, shape, out));
    TUTTI_CHECK(tutti_tensor_set_requires_grad(*out, true));
    const char *name = tutti_tensor_numel(*out) == 0 ? "empty" : "w";
    return tutti_module_add_parameter(set->bag, name, *out);
}

static tutti_status_t open_bag(setting_t *set, tutti_dtype_t dtype)
{
    TUTTI_CHECK(tutti_module_create(set->ctx, &bag_layer, NULL, &set->bag));
    TUTTI_CHECK(add_parameter(set, dtype, TUTTI_SHAPE(3, 5), &set->w));
    TUTTI_CHECK(add_parameter(set, dtype, TUTTI_SHAPE(0, 4), &set->empty));
    return tutti_module_add_parameter(set->bag, "tied", set->w);
}

static tutti_status_t open_setting(tutti_group_t *world, const job_t *job, setting_t *set)
{
    const tutti_context_options_t options = {.threads = 1};
    const tutti_ddp_options_t wanted = {.shards = job->shards};
    if (set->ctx == NULL) {
        TUTTI_CHECK(tutti_context_create(&options, &set->ctx));
    }
    TUTTI_CHECK(open_bag(set, job->dtype));
    return tutti_ddp_create(set->ctx, set->bag, world, &wanted, &set->ddp);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_tensor_release(set->w);
    tutti_tensor_release(set->empty);
    tutti_module_release(set->bag);
    tutti_context_release(set->ctx);
}

/* The sum of w v: each element's gradient is v, made of two uses of w. */
static tutti_status_t run_shard(setting_t *set, double v)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *a = tutti_mul_scalar(s, set->w, v / 2), *b = tutti_mul_scalar(s, set->w, v / 2);
    tutti_tensor_t *nothing = tutti_sum(s, set->empty);
    (void)tutti_backward(s, tutti_add(s, tutti_sum(s, tutti_add(s, a, b)), nothing));
    return tutti_scope_close(s);
}

static tutti_status_t run_step(setting_t *set, const job_t *job)
{
    while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
        TUTTI_CHECK(run_shard(set, tutti_context_shard(set->ctx) == 0 ? job->first : 1));
    }
    return tutti_ddp_finish(set->ddp);
}

static bool has_gradient(const setting_t *set, double want)
{
    for (int64_t i = 0; i < tutti_tensor_numel(set->w); i++) {
        if (tutti_tensor_at(tutti_tensor_grad(set->w), i) != want) {
            return false;
        }
    }
    return true;
}

static void average(tt_member_t *member)
{
    const job_t *job = member->user;
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, job, &set) == TUTTI_OK);
    for (int step = 0; step < 2; step++) {
        TT_EXPECT(member, run_step(&set, job) == TUTTI_OK);
        TT_EXPECT(member, has_gradient(&set, job->mean));
        TT_EXPECT(member, tutti_ddp_unused(set.ddp)[0] == 0);
    }
    close_setting(&set);
}

/* 256 + 1 is 256 in bf16: the mean is 52 only if the sum is wider. */
static void tied_parameters_of_every_dtype_are_averaged_16_bits_in_f32(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_BF16, TUTTI_F16, TUTTI_F32, TUTTI_F64};
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
            const bool is_f16 = dtypes[i] == TUTTI_F16; /* 2048 + 1 is 2048 */
            job_t job = {.shards = 5,
                         .dtype = dtypes[i],
                         .first = is_f16 ? 2056 : 256,
                         .mean = is_f16 ? 412 : 52};
            tt_team_expect(ranks, 20000, average, &job);
        }
    }
}

/* ---- two models in one context --------------------------------------------------------------- */

static int count_idle(const tutti_context_t *ctx)
{
    int count = 0;
    for (const tutti_idle_t *idle = ctx->idle; idle != NULL; idle = idle->next) {
        count++;
    }
    return count;
}

static void train_both(tt_member_t *member)
{
    const job_t job = {.shards = 3, .first = 4, .mean = 2};
    setting_t one = {0}, two = {0};
    TT_EXPECT(member, open_setting(member->group, &job, &one) == TUTTI_OK);
    two.ctx = tutti_context_retain(one.ctx);
    TT_EXPECT(member, open_setting(member->group, &job, &two) == TUTTI_OK);
    TT_EXPECT(member, count_idle(one.ctx) == 2); /* neither pushes the other out */
    for (int step = 0; step < 2; step++) {
        TT_EXPECT(member, run_step(&one, &job) == TUTTI_OK);
        TT_EXPECT(member, run_step(&two, &job) == TUTTI_OK);
        TT_EXPECT(member, has_gradient(&one, 2) && has_gradient(&two, 2));
    }
    tutti_context_t *ctx = tutti_context_retain(one.ctx);
    close_setting(&one);
    TT_EXPECT(member, count_idle(ctx) == 1);
    TT_EXPECT(member, run_step(&two, &job) == TUTTI_OK);
    close_setting(&two);
    TT_EXPECT(member, count_idle(ctx) == 0);
    tutti_context_release(ctx);
}

static void two_models_share_a_context(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, train_both, NULL);
}

/* Buckets of a finished step are not seen to arrive once more, while another model's backward runs.
 */
static void time_both(tt_member_t *member)
{
    const job_t job = {.shards = 2, .first = 4, .mean = 2.5};
    setting_t one = {0}, two = {0};
    TT_EXPECT(member, open_setting(member->group, &job, &one) == TUTTI_OK);
    two.ctx = tutti_context_retain(one.ctx);
    TT_EXPECT(member, open_setting(member->group, &job, &two) == TUTTI_OK);
    TT_EXPECT(member, run_step(&one, &job) == TUTTI_OK);
    usleep(50000);
    TT_EXPECT(member, run_step(&two, &job) == TUTTI_OK);
    const int64_t begin = tt_clock_ns();
    TT_EXPECT(member, run_step(&one, &job) == TUTTI_OK);
    const double ms = (double)(tt_clock_ns() - begin) * 1e-6;
    TT_EXPECT(member, tutti_ddp_stats(one.ddp).comm_ms <= ms);
    TT_EXPECT(member, tutti_ddp_stats(one.ddp).comm_ms > 0);
    close_setting(&one);
    close_setting(&two);
}

static void a_step_s_times_are_its_own(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, time_both, NULL);
}

/* ---- a static graph -------------------------------------------------------------------------- */

/* Rank 1 has no data in the first step, so that its first step with data says what is static. */
static void begin_late(tt_member_t *member)
{
    const tutti_context_options_t options = {.threads = 1};
    const tutti_ddp_options_t wanted = {.uneven = TUTTI_DDP_WEIGHTED, .static_graph = true};
    setting_t set = {0};
    TT_EXPECT(member, tutti_context_create(&options, &set.ctx) == TUTTI_OK);
    TT_EXPECT(member, open_bag(&set, TUTTI_F32) == TUTTI_OK);
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, set.bag, member->group, &wanted, &set.ddp) == TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        const bool has_data = step > 0 || member->rank == 0;
        TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
        TT_EXPECT(member, tutti_ddp_set_weight(set.ddp, has_data) == TUTTI_OK);
        TT_EXPECT(member, !has_data || run_shard(&set, member->rank == 0 ? 4 : 1) == TUTTI_OK);
        TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        TT_EXPECT(member, has_gradient(&set, step == 0 ? 4 : 2.5));
    }
    close_setting(&set);
}

static void a_static_graph_may_begin_without_data(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, begin_late, NULL);
}

/* ---- a long operation ------------------------------------------------------------------------ */

static void wait_a_little(void *work, size_t piece)
{
    (void)piece;
    if (!tutti_work_is_done(work)) {
        usleep(1000);
    }
}

/* Rank 0's bucket waits for rank 1's, and comes back while rank 0 is within an operation. */
static void compute_long(tt_member_t *member)
{
    enum { PIECES = 20000 }; /* a guard against hanging */
    const job_t job = {.shards = 2, .first = 4, .mean = 2.5, .dtype = TUTTI_F32};
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &job, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    if (member->rank == 1) {
        tt_member_await(member, 1);
    }
    TT_EXPECT(member, run_shard(&set, member->rank == 0 ? job.first : 1) == TUTTI_OK);
    if (member->rank == 0) {
        tutti_work_t *work = set.ddp->reducer->buckets[0].work;
        TT_EXPECT(member, work != NULL && !tutti_work_is_done(work));
        tt_member_tell(member);
        tt_threads_run(set.ctx->exec.threads, PIECES, wait_a_little, work);
        TT_EXPECT(member, tutti_work_is_done(work));
    }
    TT_EXPECT(member, !tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_OK && has_gradient(&set, job.mean));
    close_setting(&set);
}

static void buckets_travel_while_an_operation_runs(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, compute_long, NULL);
}

/* ---- an operation of the user's own ---------------------------------------------------------- */

/* y = w u r with random numbers r; z = w²; in a shard whose y is not used, u gets no gradient. */
static tutti_status_t noisy_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TUTTI_CHECK(tutti_op_infer_same_float(call, &outputs[0]));
    outputs[1] = outputs[0];
    return TUTTI_OK;
}

static tutti_status_t noisy_forward(tutti_op_call_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *w = call->inputs[0], *u = call->inputs[1];
    tutti_tensor_t *r = tutti_uniform(s, TUTTI_F32, tutti_tensor_shape(w), 0.5, 1.5);
    TUTTI_CHECK(tutti_op_save(call, w));
    TUTTI_CHECK(tutti_op_save(call, u));
    TUTTI_CHECK(tutti_op_save(call, r));
    TUTTI_CHECK(tutti_tensor_copy(call->outputs[0], tutti_mul(s, tutti_mul(s, w, u), r)));
    return tutti_tensor_copy(call->outputs[1], tutti_mul(s, w, w));
}

static tutti_status_t noisy_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *w = call->saved[0], *u = call->saved[1], *r = call->saved[2];
    tutti_tensor_t *gy = call->grad_outputs[0], *gz = call->grad_outputs[1];
    if (gy != NULL) {
        call->grads[0] = tutti_mul(s, gy, tutti_mul(s, u, r));
        call->grads[1] = tutti_mul(s, gy, tutti_mul(s, w, r));
    }
    if (gz != NULL) {
        tutti_tensor_t *more = tutti_mul(s, gz, tutti_mul_scalar(s, w, 2));
        call->grads[0] = call->grads[0] == NULL ? more : tutti_add(s, call->grads[0], more);
    }
    return TUTTI_OK;
}

static const tutti_op_t noisy = {.name = "noisy",
                                 .input_count = 2,
                                 .output_count = 2,
                                 .infer = noisy_infer,
                                 .forward = noisy_forward,
                                 .backward = noisy_backward};

typedef struct {
    bool steps_inside; /* backward */
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} own_job_t;

/* z of the first call is u of the second, which saves w once more. */
static tutti_status_t run_noisy(tutti_context_t *ctx, tutti_tensor_t *w, tutti_tensor_t *u)
{
    tutti_scope_t *s;
    tutti_tensor_t *first[2], *second[2];
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_op_run_many(s, &noisy, (tutti_tensor_t *[]){w, u}, 2, NULL, first, 2);
    tutti_op_run_many(s, &noisy, (tutti_tensor_t *[]){w, first[1]}, 2, NULL, second, 2);
    const bool is_odd = tutti_context_shard(ctx) % 2 == 1;
    (void)tutti_backward(s, tutti_sum(s, is_odd ? second[0] : tutti_add(s, first[0], second[0])));
    return tutti_scope_close(s);
}

static tutti_status_t train_noisy(tt_member_t *m, setting_t *set, tutti_tensor_t *u,
                                  tutti_optim_t *opt)
{
    const bool steps_inside = ((const own_job_t *)m->user)->steps_inside;
    const tutti_ddp_options_t wanted = {.shards = 5, .optimizer = steps_inside ? opt : NULL};
    TUTTI_CHECK(tutti_ddp_create(set->ctx, set->bag, m->group, &wanted, &set->ddp));
    for (int step = 0; step < 3; step++) {
        tutti_context_set_step(set->ctx, step);
        while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
            TUTTI_CHECK(run_noisy(set->ctx, set->w, u));
        }
        TUTTI_CHECK(tutti_ddp_finish(set->ddp));
        TUTTI_CHECK(steps_inside ? TUTTI_OK : tutti_optim_step(opt));
    }
    return TUTTI_OK;
}

static void train_own(tt_member_t *m)
{
    own_job_t *job = m->user;
    setting_t set = {0};
    tutti_tensor_t *u;
    tutti_optim_t *opt;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set.ctx) == 0);
    TT_EXPECT(m, tutti_module_create(set.ctx, &bag_layer, NULL, &set.bag) == TUTTI_OK);
    TT_EXPECT(m, add_parameter(&set, TUTTI_F32, TUTTI_SHAPE(3, 5), &set.w) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3, 5), &u) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_set_requires_grad(u, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_add_parameter(set.bag, "u", u) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(set.w, 0.7) == 0 && tutti_tensor_fill(u, 1.3) == 0);
    TT_EXPECT(m, tutti_optim_create(set.ctx, &tutti_adam, NULL, &opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(opt, set.bag, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, train_noisy(m, &set, u, opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(set.bag, job->digests[m->rank]) == TUTTI_OK);
    tutti_ddp_release(set.ddp);
    set.ddp = NULL;
    tutti_optim_release(opt);
    tutti_tensor_release(u);
    close_setting(&set);
}

static void an_own_operation_gives_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    own_job_t one = {0};
    tt_team_expect_quietly(1, 20000, train_own, &one);
    for (int i = 1; i < 10; i++) {
        own_job_t job = {.steps_inside = i % 2 == 1};
        const int ranks = 1 + i / 2;
        tt_team_expect_quietly(ranks, 20000, train_own, &job);
        for (int rank = 0; rank < ranks; rank++) {
            assert_string_equal(job.digests[rank], one.digests[0]);
        }
    }
}

/* ---- what would be averaged is not what was computed ----------------------------------------- */

static void replace_gradient(tt_member_t *member)
{
    const job_t job = {.shards = member->size, .first = 1};
    setting_t set = {0};
    TT_EXPECT(member, open_setting(member->group, &job, &set) == TUTTI_OK);
    TT_EXPECT(member, tutti_tensor_set_grad(set.w, NULL) == TUTTI_OK);
    TT_EXPECT(member, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(member, run_shard(&set, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), "w has another gradient tensor") != NULL);
    TT_EXPECT(member, tutti_ddp_finish(set.ddp) == TUTTI_ERR_STATE);
    close_setting(&set);
}

static void ignore_log(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static void a_replaced_gradient_is_noticed(void **state)
{
    (void)state;
    tt_log_set_sink(ignore_log, NULL);
    tt_team_expect(1, 20000, replace_gradient, NULL);
    tt_log_set_sink(NULL, NULL);
}

static void wrap_twice(tt_member_t *member)
{
    const job_t job = {.shards = member->size, .first = 1, .mean = 1};
    setting_t set = {0};
    tutti_ddp_t *second = NULL;
    TT_EXPECT(member, open_setting(member->group, &job, &set) == TUTTI_OK);
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, set.bag, member->group, NULL, &second) == TUTTI_ERR_STATE);
    TT_EXPECT(member, strstr(tutti_last_error(), "w is averaged by another") != NULL);
    TT_EXPECT(member, run_step(&set, &job) == TUTTI_OK); /* the first is unharmed */
    TT_EXPECT(member, has_gradient(&set, 1));
    close_setting(&set);
}

static void a_parameter_has_one_ddp(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, wrap_twice, NULL);
}

/* Gradients of one rank would be averaged with those of other parameters. */
static void freeze_on_others(tt_member_t *m)
{
    setting_t set = {0};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set.ctx) == 0);
    TT_EXPECT(m, open_bag(&set, TUTTI_F32) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_set_requires_grad(set.w, m->rank == 0) == TUTTI_OK);
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.bag, m->group, NULL, &set.ddp) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, m->rank != 1 ||
                     strstr(tutti_last_error(), "rank 1 has \"w f32[3, 5], no gradient\"") != NULL);
    close_setting(&set);
}

static void a_parameter_that_learns_on_some_ranks_alone_is_named(void **state)
{
    (void)state;
    tt_team_expect_quietly(3, 20000, freeze_on_others, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_parameters_of_every_dtype_are_averaged_16_bits_in_f32),
        cmocka_unit_test(two_models_share_a_context),
        cmocka_unit_test(a_step_s_times_are_its_own),
        cmocka_unit_test(a_static_graph_may_begin_without_data),
        cmocka_unit_test(buckets_travel_while_an_operation_runs),
        cmocka_unit_test(an_own_operation_gives_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(a_replaced_gradient_is_noticed),
        cmocka_unit_test(a_parameter_has_one_ddp),
        cmocka_unit_test(a_parameter_that_learns_on_some_ranks_alone_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
