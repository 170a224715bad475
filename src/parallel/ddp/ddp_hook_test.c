/* Hooks: what becomes of buckets, in which order hooks are called, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/testing.h"

enum { SHARDS = 5, IN = 40, OUT = 30, STEPS = 3 };

typedef struct {
    const tutti_ddp_hook_ops_t *hook;
    const void *options;
    double tolerance; /* of the average */
    bool is_local;    /* of the rank's own shards alone */
    int failing_rank;
    int shards; /* 0: SHARDS */
    tutti_dtype_t dtype;
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
} setting_t;

static tutti_status_t open_setting_of(tutti_group_t *world, const tutti_ddp_options_t *options,
                                      tutti_dtype_t dtype, setting_t *set)
{
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set->ctx));
    const tutti_linear_options_t linear = {.in = IN, .out = OUT};
    TUTTI_CHECK(tutti_module_create(set->ctx, &tutti_linear_layer, &linear, &set->model));
    TUTTI_CHECK(tutti_module_cast(set->model, dtype));
    return tutti_ddp_create(set->ctx, set->model, world, options, &set->ddp);
}

static tutti_status_t open_setting(tutti_group_t *world, const tutti_ddp_options_t *options,
                                   setting_t *set)
{
    return open_setting_of(world, options, TUTTI_F32, set);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* The gradient of both parameters is value everywhere. */
static tutti_status_t backward_of(setting_t *set, double value)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *w = tutti_module_find(set->model, "weight");
    tutti_tensor_t *b = tutti_module_find(set->model, "bias");
    tutti_tensor_t *sum = tutti_add(s, tutti_sum(s, w), tutti_sum(s, b));
    (void)tutti_backward(s, tutti_mul_scalar(s, sum, value));
    return tutti_scope_close(s);
}

static double gradient(const setting_t *set, const char *parameter)
{
    return tutti_tensor_at(tutti_tensor_grad(tutti_module_find(set->model, parameter)), 2);
}

static double value_of(int shard, int step)
{
    return 1.1 * shard * shard - 0.7 * step + 0.01;
}

static double mean_of(int first, int count, int step)
{
    double sum = 0;
    for (int i = first; i < first + count; i++) {
        sum += value_of(i, step);
    }
    return count > 0 ? sum / count : 0;
}

static void train(tt_member_t *m)
{
    const job_t *job = m->user;
    setting_t set = {0};
    const int shards = job->shards == 0 ? SHARDS : job->shards;
    const tutti_ddp_options_t options = {
        .shards = shards, .bucket_bytes = 64, .first_bucket_bytes = 64};
    TT_EXPECT(m, open_setting_of(m->group, &options, job->dtype, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, job->hook, job->options) == TUTTI_OK);
    TT_EXPECT(m, strcmp(tutti_ddp_hook_name(set.ddp), job->hook->name) == 0);
    int first = 0, count = shards;
    if (job->is_local) {
        tutti_ddp_local_shards(set.ddp, &first, &count);
    }
    for (int step = 0; step < STEPS; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            const double value = value_of(tutti_context_shard(set.ctx), step);
            TT_EXPECT(m, backward_of(&set, value) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        const double want = mean_of(first, count, step);
        TT_EXPECT(m, fabs(gradient(&set, "weight") - want) <= job->tolerance * fabs(want));
        TT_EXPECT(m, fabs(gradient(&set, "bias") - want) <= job->tolerance * fabs(want));
    }
    close_setting(&set);
}

static void averages_are_those_of_all_shards(void **state)
{
    (void)state;
    job_t jobs[] = {{.hook = &tutti_allreduce_hook, .tolerance = 1e-6},
                    {.hook = &tutti_bf16_hook, .tolerance = 1.0 / 128},
                    {.hook = &tutti_fp16_hook, .tolerance = 1.0 / 1024}};
    for (int j = 0; j < 3; j++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            tt_team_expect_quietly(ranks, 20000, train, &jobs[j]);
        }
    }
}

/* With one shard the divisor is 1, whatever a hook did to the bucket. */
static void gradients_of_every_dtype_are_averaged(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_BF16, TUTTI_F16};
    for (int i = 0; tutti_ddp_hooks()[i] != NULL; i++) {
        const tutti_ddp_hook_ops_t *hook = tutti_ddp_hooks()[i];
        for (int k = 0; k < 4; k++) {
            job_t one = {.hook = hook,
                         .tolerance = 1.0 / 64,
                         .is_local = hook == &tutti_noop_hook || hook == &tutti_local_sgd_hook,
                         .shards = 1,
                         .dtype = dtypes[k]};
            job_t two = one;
            two.shards = 2;
            tt_team_expect_quietly(1, 20000, train, &one);
            tt_team_expect_quietly(2, 20000, train, &two);
        }
    }
}

/* A rank without shards has zero. */
static void without_a_group_averages_are_those_of_what_is_here(void **state)
{
    (void)state;
    job_t jobs[] = {{.hook = &tutti_noop_hook, .tolerance = 1e-6, .is_local = true},
                    {.hook = &tutti_local_sgd_hook, .tolerance = 1e-6, .is_local = true}};
    for (int j = 0; j < 2; j++) {
        for (int ranks = 1; ranks <= SHARDS + 1; ranks++) {
            tt_team_expect_quietly(ranks, 20000, train, &jobs[j]);
        }
    }
}

/* It travels whole, also from start_step on. */
static void what_is_not_f32_is_never_compressed(void **state)
{
    (void)state;
    const tutti_powersgd_options_t options = {.start_step = 2, .min_compression = 1};
    job_t job = {
        .hook = &tutti_powersgd_hook, .options = &options, .tolerance = 1e-12, .dtype = TUTTI_F64};
    tt_team_expect_quietly(2, 20000, train, &job);
}

static void ask_for_nonsense(tt_member_t *m)
{
    setting_t set = {0};
    const tutti_ddp_options_t options = {0};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    const tutti_powersgd_options_t bad[] = {
        {.rank = -1}, {.start_step = 1}, {.min_compression = 0.5}};
    static const char *const texts[] = {"rank -1", "start_step 1", "min_compression 0.5"};
    for (int i = 0; i < 3; i++) {
        TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &tutti_powersgd_hook, &bad[i]) == TUTTI_ERR_ARG);
        TT_EXPECT(m, strstr(tutti_last_error(), texts[i]) != NULL);
    }
    TT_EXPECT(m,
              tutti_ddp_set_hook(set.ddp, &tutti_local_sgd_hook,
                                 &(tutti_local_sgd_options_t){.start_step = -1}) == TUTTI_ERR_ARG);
    const tutti_ddp_hook_ops_t idle = {.name = "idle"};
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &idle, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "idle has no start") != NULL);
    close_setting(&set);
}

static void options_of_hooks_are_checked(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, ask_for_nonsense, NULL);
}

/* ---- local sgd, and averages of parameters --------------------------------------------------- */

/* Ranks {0, 1} and {2, 3} from step 2 on. */
static void average_in_pairs(tt_member_t *m)
{
    setting_t set = {0};
    tutti_group_t *pair;
    TT_EXPECT(m, tutti_group_split(m->group, m->rank / 2, m->rank, &pair) == TUTTI_OK);
    const tutti_ddp_options_t options = {.shards = 8};
    const tutti_local_sgd_options_t local = {.subgroup = pair, .start_step = 1};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &tutti_local_sgd_hook, &local) == TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            const double value = value_of(tutti_context_shard(set.ctx), step);
            TT_EXPECT(m, backward_of(&set, value) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        const double want = step == 0 ? mean_of(0, 8, 0) : mean_of(m->rank / 2 * 4, 4, step);
        TT_EXPECT(m, fabs(gradient(&set, "bias") - want) < 1e-5 * fabs(want));
    }
    close_setting(&set);
    tutti_group_release(pair);
}

static void local_sgd_averages_in_its_subgroup(void **state)
{
    (void)state;
    tt_team_expect_quietly(4, 20000, average_in_pairs, NULL);
}

/* Rank 1 gives up: rank 0, which waits in the subgroup for it, hears of it by DDP's group. */
static void give_up_in_a_pair(tt_member_t *m)
{
    setting_t set = {0};
    tutti_group_t *pair;
    TT_EXPECT(m, tutti_group_split(m->group, 0, m->rank, &pair) == TUTTI_OK);
    const tutti_ddp_options_t options = {0};
    const tutti_local_sgd_options_t local = {.subgroup = pair};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &tutti_local_sgd_hook, &local) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
    if (m->rank == 0) {
        TT_EXPECT(m, backward_of(&set, 1) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) < 0);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1") != NULL);
        tt_member_tell(m);
    } else {
        tutti_ddp_release(set.ddp);
        set.ddp = NULL;
        tt_member_await(m, 1);
    }
    close_setting(&set);
    tutti_group_release(pair);
}

static void who_gives_up_ends_those_who_wait_in_a_subgroup(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 60000, give_up_in_a_pair, NULL);
}

static double fill_and_step(tt_member_t *m, const setting_t *set, tutti_averager_t *averager)
{
    tutti_tensor_t *w = tutti_module_find(set->model, "weight");
    TT_EXPECT(m, tutti_tensor_fill(w, m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_averager_step(averager, set->model) == TUTTI_OK);
    return tutti_tensor_at(w, 7);
}

static void average_by_levels(tt_member_t *m)
{
    setting_t set = {0};
    tutti_group_t *pair;
    const tutti_ddp_options_t options = {0};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_split(m->group, m->rank / 2, m->rank, &pair) == TUTTI_OK);
    const tutti_average_level_t levels[] = {{2, pair}, {4, m->group}};
    tutti_averager_t *averager;
    TT_EXPECT(m, tutti_averager_create(levels, 2, 1, &averager) == TUTTI_OK);
    const double alone = m->rank, paired = m->rank / 2 * 2 + 0.5, all = 1.5;
    const double want[] = {alone, all, alone, paired, alone, all, alone, paired};
    for (int step = 0; step < 8; step++) {
        TT_EXPECT(m, fill_and_step(m, &set, averager) == want[step]);
    }
    tutti_averager_set_step(averager, 1);
    TT_EXPECT(m, fill_and_step(m, &set, averager) == all);
    tutti_averager_release(averager);
    close_setting(&set);
    tutti_group_release(pair);
}

static void parameters_are_averaged_by_levels(void **state)
{
    (void)state;
    tt_team_expect_quietly(4, 20000, average_by_levels, NULL);
    tutti_averager_t *averager;
    const tutti_average_level_t bad[] = {{2, NULL}, {3, NULL}};
    assert_int_equal(tutti_averager_create(bad, 2, 0, &averager), TUTTI_ERR_ARG);
    tt_expect_error("level 1 is 3");
    assert_int_equal(tutti_averager_create(bad, 0, 0, &averager), TUTTI_ERR_ARG);
    assert_int_equal(tutti_averager_create(bad, 1, -1, &averager), TUTTI_ERR_ARG);
}

/* ---- the contract ---------------------------------------------------------------------------- */

enum { CALLS_MAX = 32 };

typedef struct {
    char calls[CALLS_MAX][16];
    int count, dropped;
    bool fails;
} diary_t;

typedef struct {
    diary_t *diary;
} watch_t;

static tutti_status_t init_watch(void *state, const void *options, tutti_group_t *group)
{
    (void)group;
    watch_t *watch = state;
    union { /* of the test's own, which is not const */
        const void *given;
        diary_t *diary;
    } to = {options};
    watch->diary = to.diary;
    return to.diary != NULL ? TUTTI_OK : TT_FAIL(TUTTI_ERR_ARG, "watch: no diary");
}

static void note(void *state, const char *what, const tutti_bucket_t *bucket)
{
    diary_t *diary = ((watch_t *)state)->diary;
    if (diary->count < CALLS_MAX) {
        snprintf(diary->calls[diary->count++], sizeof diary->calls[0], "%s %d/%d", what,
                 bucket->index, bucket->count);
    }
}

static tutti_status_t start_watch(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    note(state, "start", bucket);
    if (((watch_t *)state)->diary->fails) {
        return TT_FAIL(TUTTI_ERR_STATE, "watch: this one fails");
    }
    if (*bucket->data == NULL) {
        *bucket->data = tt_strdup("kept", "test");
    }
    tutti_tensor_t *whole = bucket->gradients[0];
    bucket->divisor = 2; /* not what it would be */
    if (bucket->parameter_count != 1 ||
        tutti_tensor_data(whole) != tutti_tensor_data(bucket->grad)) {
        return TT_FAIL(TUTTI_ERR_STATE, "watch: another bucket than was expected");
    }
    return bucket->index == 0 ? TUTTI_OK
                              : tutti_all_reduce(bucket->group, bucket->grad, TUTTI_SUM, work);
}

static tutti_status_t finish_watch(void *state, tutti_bucket_t *bucket)
{
    note(state, "finish", bucket);
    return strcmp(*bucket->data, "kept") == 0 ? TUTTI_OK : TUTTI_ERR_STATE;
}

static void drop_watch(void *state, void *data)
{
    ((watch_t *)state)->diary->dropped++;
    tt_free(data);
}

static const tutti_ddp_hook_ops_t watch_hook = {.name = "watch",
                                                .about = "for the test",
                                                .state_bytes = sizeof(watch_t),
                                                .init = init_watch,
                                                .start = start_watch,
                                                .finish = finish_watch,
                                                .drop = drop_watch};

static void watch_two_steps(tt_member_t *m)
{
    setting_t set = {0};
    diary_t diary = {0};
    const tutti_ddp_options_t options = {
        .shards = 2, .bucket_bytes = 64, .first_bucket_bytes = 64, .no_rebuild = true};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &watch_hook, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strcmp(tutti_ddp_hook_name(set.ddp), "contributions") == 0);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &watch_hook, &diary) == TUTTI_OK);
    for (int step = 0; step < 2; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, NULL, NULL) == TUTTI_ERR_STATE);
            TT_EXPECT(m, backward_of(&set, 6) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    }
    static const char *const want[] = {"start 0/2", "start 1/2", "finish 0/2", "finish 1/2"};
    TT_EXPECT(m, diary.count == 8);
    for (int i = 0; i < diary.count && i < 8; i++) {
        TT_EXPECT(m, strcmp(diary.calls[i], want[i % 4]) == 0);
    }
    TT_EXPECT(m, gradient(&set, "bias") == 6.0 * 2 / m->size / 2);
    TT_EXPECT(m, gradient(&set, "weight") == 6.0 * 2 / 2);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, diary.dropped == 2);
    close_setting(&set);
}

static void a_hook_of_ones_own_sees_its_buckets_in_order(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, watch_two_steps, NULL);
    tt_team_expect_quietly(2, 20000, watch_two_steps, NULL);
}

static void fail_in_a_hook(tt_member_t *m)
{
    const job_t *job = m->user;
    setting_t set = {0};
    diary_t diary = {.fails = m->rank == job->failing_rank};
    const tutti_ddp_options_t options = {.bucket_bytes = 64, .first_bucket_bytes = 64};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &watch_hook, &diary) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
    (void)backward_of(&set, 1);
    TT_EXPECT(m, tutti_ddp_finish(set.ddp) < 0);
    TT_EXPECT(m, strstr(tutti_last_error(), diary.fails ? "this one fails" : "rank 1") != NULL);
    close_setting(&set);
}

static void a_hook_that_fails_ends_the_step_everywhere(void **state)
{
    (void)state;
    job_t job = {.failing_rank = 1};
    tt_team_expect_quietly(3, 20000, fail_in_a_hook, &job);
}

static void ask_for_weights(tt_member_t *m)
{
    setting_t set = {0};
    const tutti_ddp_options_t options = {.uneven = TUTTI_DDP_WEIGHTED};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &tutti_bf16_hook, NULL) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "bf16") != NULL);
    close_setting(&set);
}

static void hooks_know_no_weights(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, ask_for_weights, NULL);
}

static void hooks_are_found_by_name(void **state)
{
    (void)state;
    for (int i = 0; tutti_ddp_hooks()[i] != NULL; i++) {
        const tutti_ddp_hook_ops_t *hook = tutti_ddp_hooks()[i];
        assert_ptr_equal(tutti_ddp_hook_find(hook->name), hook);
        assert_non_null(hook->start);
        assert_true(strlen(hook->about) > 0);
    }
    assert_ptr_equal(tutti_ddp_hook_find("fp16"), &tutti_fp16_hook);
    assert_null(tutti_ddp_hook_find("none of them"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_those_of_all_shards),
        cmocka_unit_test(gradients_of_every_dtype_are_averaged),
        cmocka_unit_test(without_a_group_averages_are_those_of_what_is_here),
        cmocka_unit_test(what_is_not_f32_is_never_compressed),
        cmocka_unit_test(options_of_hooks_are_checked),
        cmocka_unit_test(local_sgd_averages_in_its_subgroup),
        cmocka_unit_test(who_gives_up_ends_those_who_wait_in_a_subgroup),
        cmocka_unit_test(parameters_are_averaged_by_levels),
        cmocka_unit_test(a_hook_of_ones_own_sees_its_buckets_in_order),
        cmocka_unit_test(a_hook_that_fails_ends_the_step_everywhere),
        cmocka_unit_test(hooks_know_no_weights),
        cmocka_unit_test(hooks_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
