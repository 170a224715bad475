/* The reducer alone, without modules and graphs: averages are compared bit by bit with a sum by the
 * canonical tree that is written down here, and its calls are counted in the group's dump. */
#include "parallel/reduce/reducer.h"

#include <jansson.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/diagnose.h>

#include "comm/group/group_team.h"
#include "core/kernel/elementwise/combine.h"

enum {
    PARAMS = 3,
    NUMEL_MAX = 40,
    SHARDS_MAX = 9,
    STEPS = 2,
    MISSING_SHARD = 1,
    MISSING_PARAM = 1
};

static const tutti_shape_t shapes[PARAMS] = {{1, {5}}, {2, {3, 7}}, {1, {NUMEL_MAX}}};

typedef struct {
    tutti_dtype_t dtype; /* of the parameters */
    tt_reducer_options_t options;
    int buckets;    /* wanted */
    bool is_spread; /* parameters 0 and 2 lie on a device, parameter 1 on another one */
} job_t;

/* Sums depend on the order of their terms. */
static float gradient(int shard, int param, int64_t i, int step)
{
    return 1.0f / (float)(3 + shard * shard + 5 * param + i) + (float)(shard % 3) * 1000 +
           (float)step;
}

static float rounded(float x, tutti_dtype_t dtype)
{
    unsigned char half[2];
    if (dtype == TUTTI_F32) {
        return x;
    }
    tt_combine_kernels()->narrow(half, &x, dtype, 1);
    tt_combine_kernels()->widen(&x, half, dtype, 1);
    return x;
}

/* What a shard of this job gives, as it is added up. */
static float term(const job_t *job, int shard, int param, int64_t i, int step)
{
    const tt_reducer_options_t *o = &job->options;
    const tutti_dtype_t grad = job->dtype == TUTTI_F32 ? o->grad_dtype : job->dtype;
    const float weight = o->is_weighted ? (float)(shard % 4) : 1;
    if (shard == MISSING_SHARD && param == MISSING_PARAM) {
        return 0;
    }
    const float x = rounded(gradient(shard, param, i, step), grad);
    return rounded(x, job->dtype == TUTTI_F32 ? o->reduce_dtype : job->dtype) * weight;
}

static float sum_of(const job_t *job, int lo, int hi, int param, int64_t i, int step)
{
    if (hi - lo == 1) {
        return term(job, lo, param, i, step);
    }
    const int mid = tt_tree_mid(lo, hi);
    return sum_of(job, lo, mid, param, i, step) + sum_of(job, mid, hi, param, i, step);
}

static int64_t divisor_of(const job_t *job)
{
    int64_t sum = 0;
    for (int shard = 0; shard < job->options.shards; shard++) {
        sum += job->options.is_weighted ? shard % 4 : 1;
    }
    return sum;
}

static float average(const job_t *job, int param, int64_t i, int step)
{
    const float mean = sum_of(job, 0, job->options.shards, param, i, step) / (float)divisor_of(job);
    return rounded(mean, job->dtype == TUTTI_F32 ? job->options.reduce_dtype : job->dtype);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static tutti_status_t make_param(const job_t *job, int rank, int i, tutti_tensor_t **out)
{
    tutti_device_t *device;
    char name[32];
    if (!job->is_spread) {
        return tutti_tensor_create(job->dtype, shapes[i], out);
    }
    snprintf(name, sizeof name, "strict:%d", 2 * rank + i % 2);
    TT_TRY(tutti_device_open(name, &(tutti_device_options_t){.threads = 1}, &device));
    const tutti_status_t status = tt_tensor_new(device, job->dtype, shapes[i], true, out);
    tutti_device_release(device);
    return status;
}

static bool list_params(const job_t *job, int rank, tt_tensor_list_t *list)
{
    for (int i = 0; i < PARAMS; i++) {
        tutti_tensor_t *x;
        if (make_param(job, rank, i, &x) < 0 || tt_tensor_list_add(list, "parameter", x) < 0) {
            return false;
        }
        tutti_tensor_release(x);
    }
    return true;
}

static void fill_slot(tt_reducer_t *reducer, int param, int step)
{
    float values[NUMEL_MAX];
    tutti_tensor_t *grad = reducer->slots[param].grad, *x;
    for (int64_t i = 0; i < grad->numel; i++) {
        values[i] = gradient(reducer->shard, param, i, step);
    }
    assert_int_equal(tutti_tensor_create(TUTTI_F32, grad->shape, &x), TUTTI_OK);
    assert_int_equal(tutti_tensor_copy_from(x, values), TUTTI_OK);
    assert_int_equal(tutti_tensor_copy(grad, x), TUTTI_OK);
    tutti_tensor_release(x);
}

static void run_shard(tt_member_t *m, const job_t *job, tt_reducer_t *reducer, int shard, int step)
{
    tt_reducer_begin_shard(reducer, shard);
    for (int i = 0; i < PARAMS; i++) {
        const tt_bucket_t *bucket = &reducer->buckets[reducer->plan.slots[i].bucket];
        const int pending = bucket->pending;
        fill_slot(reducer, i, step); /* also what is not noted: it counts as zero */
        if (shard == MISSING_SHARD && i == MISSING_PARAM) {
            continue;
        }
        TT_EXPECT(m, !tt_reducer_note(reducer, i, false) && bucket->pending == pending);
        TT_EXPECT(m, tt_reducer_note(reducer, i, true) && bucket->pending == pending - 1);
        TT_EXPECT(m, !tt_reducer_note(reducer, i, true) && !tt_reducer_note(reducer, i, false));
        TT_EXPECT(m, bucket->pending == pending - 1);
    }
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        TT_EXPECT(m, tt_reducer_push(reducer, b, job->options.is_weighted ? shard % 4 : 1) == 0);
    }
}

static void start_all(tt_member_t *m, tt_reducer_t *reducer)
{
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        TT_EXPECT(m, reducer->buckets[b].state == TT_BUCKET_FILLING);
        TT_EXPECT(m, tt_reducer_start(reducer, b) == TUTTI_OK);
        TT_EXPECT(m, reducer->buckets[b].state == TT_BUCKET_SENT);
    }
}

static void finalize_all(tt_member_t *m, const job_t *job, tt_reducer_t *reducer)
{
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        TT_EXPECT(m, tt_reducer_wait(reducer, b) == TUTTI_OK);
        TT_EXPECT(m, reducer->buckets[b].state == TT_BUCKET_BACK);
        TT_EXPECT(m, tt_reducer_is_back(reducer, b));
        for (int i = 0; i < 2; i++) { /* the second time nothing happens */
            TT_EXPECT(m, tt_reducer_finalize(reducer, b, (double)divisor_of(job)) == TUTTI_OK);
            TT_EXPECT(m, reducer->buckets[b].state == TT_BUCKET_FINAL);
        }
    }
}

static void expect_averages(tt_member_t *m, const job_t *job, const tt_reducer_t *reducer, int step)
{
    for (int param = 0; param < PARAMS; param++) {
        const tutti_tensor_t *result = reducer->slots[param].result;
        TT_EXPECT(m, result->dtype == job->dtype);
        TT_EXPECT(m, tutti_shape_equal(result->shape, shapes[param]));
        for (int64_t i = 0; i < result->numel; i++) {
            TT_EXPECT(m, (float)tutti_tensor_at(result, i) == average(job, param, i, step));
        }
    }
}

static void run_step(tt_member_t *m, const job_t *job, tt_reducer_t *reducer, int step)
{
    tt_reducer_begin_step(reducer);
    for (int shard = reducer->share.begin; shard < reducer->share.end; shard++) {
        run_shard(m, job, reducer, shard, step);
    }
    start_all(m, reducer);
    finalize_all(m, job, reducer);
    expect_averages(m, job, reducer, step);
}

static tt_reducer_t *open_reducer(tt_member_t *m, const job_t *job)
{
    tt_tensor_list_t list = {0};
    tt_reducer_t *reducer = NULL;
    tt_reducer_options_t options = job->options;
    bool is_new = false;
    options.group = m->group;
    options.first_bucket_bytes = options.bucket_bytes = 130;
    TT_EXPECT(m, list_params(job, m->rank, &list));
    TT_EXPECT(m, tt_reducer_open(&options, &reducer) == TUTTI_OK);
    TT_EXPECT(m, tt_reducer_fill(reducer, &list, NULL, &is_new) == TUTTI_OK && is_new);
    TT_EXPECT(m, reducer->plan.bucket_count == job->buckets);
    const tt_bucket_t *buckets = reducer->buckets;
    TT_EXPECT(m, tt_reducer_fill(reducer, &list, (int[]){2, 1, 0}, &is_new) == 0 && !is_new);
    TT_EXPECT(m, reducer->buckets == buckets);
    tt_tensor_list_release(&list); /* not needed any more */
    return reducer;
}

/* This rank's calls, and the bytes that they were over. */
static size_t count_calls(tt_member_t *m, int64_t *bytes)
{
    char path[64];
    snprintf(path, sizeof path, "reducer_test.%d.%d.json", (int)getpid(), m->rank);
    TT_EXPECT(m, tutti_group_dump(m->group, path) == TUTTI_OK);
    json_t *dump = json_load_file(path, 0, NULL);
    const json_t *calls =
        json_object_get(json_array_get(json_object_get(dump, "groups"), 0), "calls");
    const size_t count = json_array_size(calls);
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *call = json_array_get(calls, i);
        tutti_dtype_t dtype;
        const char *name = json_string_value(json_object_get(call, "dtype"));
        TT_EXPECT(m, tutti_dtype_parse(name, &dtype) == TUTTI_OK);
        *bytes +=
            json_integer_value(json_object_get(call, "count")) * (int64_t)tutti_dtype_bytes(dtype);
    }
    json_decref(dump);
    (void)unlink(path);
    return count;
}

/* Where each rank has one shard, gradients that are rounded to 16 bits travel in 16 bits. */
static int64_t bytes_of_a_number(const tt_member_t *m, const job_t *job)
{
    const tt_reducer_options_t *o = &job->options;
    const bool is_rounded = job->dtype == TUTTI_F32 ? o->reduce_dtype != TUTTI_F32 : true;
    return is_rounded && o->shards == m->size ? 2 : 4;
}

static void expect_calls(tt_member_t *m, const job_t *job, const tt_reducer_t *reducer,
                         size_t before, int64_t bytes_before)
{
    int64_t bytes, wanted = 0;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        wanted += STEPS * reducer->plan.buckets[b].numel * bytes_of_a_number(m, job);
    }
    const size_t calls = (size_t)(STEPS * reducer->plan.bucket_count);
    TT_EXPECT(m, count_calls(m, &bytes) == before + calls);
    TT_EXPECT(m, bytes == bytes_before + wanted);
}

static void run_member(tt_member_t *m)
{
    const job_t *job = m->user;
    int64_t bytes;
    const size_t before = count_calls(m, &bytes);
    tt_reducer_t *reducer = open_reducer(m, job);
    for (int step = 0; step < STEPS && reducer != NULL; step++) {
        run_step(m, job, reducer, step);
    }
    expect_calls(m, job, reducer, before, bytes);
    tt_reducer_close(reducer);
}

static void run_everywhere(job_t job)
{
    const int shards[] = {1, 3, SHARDS_MAX}; /* fewer than ranks, as many, several pieces of each */
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int k = job.options.is_weighted; k < 3; k++) { /* shard 0 alone weighs nothing */
            job.options.shards = shards[k];
            tt_team_expect(ranks, 60000, run_member, &job);
        }
    }
}

/* ---- averages -------------------------------------------------------------------------------- */

static void any_spread_of_shards_gives_the_bits_of_the_tree(void **state)
{
    (void)state;
    run_everywhere((job_t){.dtype = TUTTI_F32, .buckets = 2});
    run_everywhere((job_t){.dtype = TUTTI_BF16, .buckets = 2});
}

static void buckets_hold_gradients_of_one_device(void **state)
{
    (void)state;
    run_everywhere((job_t){.dtype = TUTTI_F32, .buckets = 3, .is_spread = true});
}

static void gradients_are_rounded_before_they_are_added(void **state)
{
    (void)state;
    run_everywhere(
        (job_t){.dtype = TUTTI_F32, .buckets = 2, .options = {.reduce_dtype = TUTTI_BF16}});
}

static void averages_of_16_bit_copies_are_f32(void **state)
{
    (void)state;
    run_everywhere(
        (job_t){.dtype = TUTTI_F32, .buckets = 2, .options = {.grad_dtype = TUTTI_BF16}});
    run_everywhere((job_t){.dtype = TUTTI_F32,
                           .buckets = 2,
                           .options = {.grad_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_F16}});
}

/* Shards 0, 4, 8 weigh nothing, whatever they have. */
static void shards_count_by_their_weight(void **state)
{
    (void)state;
    run_everywhere((job_t){
        .dtype = TUTTI_F32, .buckets = 2, .options = {.is_weighted = true, .divides_late = true}});
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* Either that is said, or the averages are what they are otherwise. */
static void fill_without_memory(tt_member_t *m)
{
    const job_t job = {.dtype = TUTTI_F32,
                       .options = {.group = m->group, .shards = 2, .reduce_dtype = TUTTI_BF16}};
    tt_tensor_list_t list = {0};
    TT_EXPECT(m, list_params(&job, m->rank, &list));
    for (size_t nth = 1, has_failed = 1; has_failed; nth++) {
        tt_reducer_t *reducer = NULL;
        bool is_new;
        TT_EXPECT(m, tt_reducer_open(&job.options, &reducer) == TUTTI_OK);
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tt_reducer_fill(reducer, &list, NULL, &is_new);
        has_failed = (size_t)tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        TT_EXPECT(m, status == TUTTI_OK || (has_failed && status == TUTTI_ERR_NOMEM));
        if (status == TUTTI_OK) {
            run_step(m, &job, reducer, 0);
        }
        tt_reducer_close(reducer);
        TT_EXPECT(m, has_failed || nth > 10);
    }
    tt_tensor_list_release(&list);
}

static void buckets_that_find_no_memory_say_so(void **state)
{
    (void)state;
    tt_team_expect(1, 60000, fill_without_memory, NULL);
}

/* ---- one piece of each rank ------------------------------------------------------------------ */

/* Values whose sums are exact, so that any order gives them. */
static void add_member(tt_member_t *m)
{
    const job_t *job = m->user;
    tt_reducer_t *reducer = open_reducer(m, job);
    for (int step = 0; step < STEPS && reducer != NULL; step++) {
        tt_reducer_begin_step(reducer);
        for (int shard = reducer->share.begin; shard < reducer->share.end; shard++) {
            tt_reducer_begin_shard(reducer, shard);
            for (int i = 0; i < PARAMS; i++) {
                TT_EXPECT(m, tutti_tensor_fill(reducer->slots[i].grad, shard + step) == 0);
                (void)tt_reducer_note(reducer, i, true);
            }
            for (int b = 0; b < reducer->plan.bucket_count; b++) {
                TT_EXPECT(m, tt_reducer_push(reducer, b, 1) == TUTTI_OK);
            }
        }
        start_all(m, reducer);
        finalize_all(m, job, reducer);
        const double mean = (double)(job->options.shards - 1) / 2 + step;
        for (int i = 0; i < PARAMS; i++) {
            TT_EXPECT(m, tutti_tensor_at(reducer->slots[i].result, 4) == mean);
        }
    }
    tt_reducer_close(reducer);
}

static void without_exactness_a_rank_adds_its_shards_up_first(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_BF16};
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int k = 0; k < 3; k++) {
            job_t job = {.dtype = dtypes[k],
                         .buckets = k == 1 ? 3 : 2,
                         .options = {.shards = 7, .adds_locally = true}};
            tt_team_expect(ranks, 60000, add_member, &job);
        }
    }
}

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct {
    int started, finished;
    int64_t step;
} hooked_t;

static tutti_status_t hook_init(void *state, const void *options, tutti_group_t *group)
{
    (void)group;
    *(const void **)state = options;
    return TUTTI_OK;
}

static tutti_status_t start_double(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    hooked_t *hooked = *(hooked_t **)state;
    hooked->started++;
    hooked->step = bucket->step;
    bucket->divisor *= 2; /* of V */
    *bucket->data = hooked;
    return tutti_all_reduce(bucket->group, bucket->grad, TUTTI_SUM, work);
}

static tutti_status_t finish_double(void *state, tutti_bucket_t *bucket)
{
    hooked_t *hooked = *(hooked_t **)state;
    hooked->finished += *bucket->data == hooked;
    bucket->divisor /= 4;
    return TUTTI_OK;
}

static void hook_drop(void *state, void *data)
{
    (void)state;
    ((hooked_t *)data)->finished--;
}

static const tutti_ddp_hook_ops_t double_hook = {.name = "double",
                                                 .state_bytes = sizeof(void *),
                                                 .init = hook_init,
                                                 .start = start_double,
                                                 .finish = finish_double,
                                                 .drop = hook_drop};

static void hook_member(tt_member_t *m)
{
    job_t job = *(const job_t *)m->user;
    tt_reducer_t *reducer = open_reducer(m, &job);
    hooked_t hooked = {0};
    run_step(m, &job, reducer, 0);
    TT_EXPECT(m, tt_reducer_set_hook(reducer, &double_hook, &hooked) == TUTTI_OK);
    tt_reducer_begin_step(reducer);
    for (int shard = reducer->share.begin; shard < reducer->share.end; shard++) {
        tt_reducer_begin_shard(reducer, shard);
        for (int i = 0; i < PARAMS; i++) {
            TT_EXPECT(m, tutti_tensor_fill(reducer->slots[i].grad, shard) == TUTTI_OK);
            (void)tt_reducer_note(reducer, i, true);
        }
        for (int b = 0; b < reducer->plan.bucket_count; b++) {
            TT_EXPECT(m, tt_reducer_push(reducer, b, 1) == TUTTI_OK);
        }
    }
    start_all(m, reducer);
    finalize_all(m, &job, reducer);
    TT_EXPECT(m, hooked.started == job.buckets && hooked.finished == job.buckets);
    for (int i = 0; i < PARAMS; i++) { /* 0 + 1 + … + 7, by half of 8 */
        TT_EXPECT(m, tutti_tensor_at(reducer->slots[i].result, 4) == 7);
    }
    TT_EXPECT(m, hooked.step == 2 && reducer->step == 2);
    TT_EXPECT(m, tt_reducer_set_hook(reducer, NULL, NULL) == TUTTI_OK && hooked.finished == 0);
    run_step(m, &job, reducer, 1);
    tt_reducer_close(reducer);
}

static void a_hook_takes_the_place_of_the_sum_until_it_is_taken_off(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int k = 0; k < 2; k++) {
            job_t job = {.dtype = dtypes[k], .buckets = 2, .options = {.shards = 8}};
            tt_team_expect(ranks, 60000, hook_member, &job);
        }
    }
}

/* ---- several at a time ----------------------------------------------------------------------- */

static void two_member(tt_member_t *m)
{
    const job_t *job = m->user;
    tt_reducer_t *reducers[2] = {open_reducer(m, job), open_reducer(m, job)};
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < 2; k++) {
            tt_reducer_begin_step(reducers[k]);
        }
        for (int shard = reducers[0]->share.begin; shard < reducers[0]->share.end; shard++) {
            run_shard(m, job, reducers[0], shard, step);
            run_shard(m, job, reducers[1], shard, step + 7);
        }
        start_all(m, reducers[1]);
        start_all(m, reducers[0]);
        finalize_all(m, job, reducers[0]);
        finalize_all(m, job, reducers[1]);
        expect_averages(m, job, reducers[0], step);
        expect_averages(m, job, reducers[1], step + 7);
    }
    tt_reducer_close(reducers[0]);
    tt_reducer_close(reducers[1]);
}

static void several_can_be_under_way_in_a_group(void **state)
{
    (void)state;
    job_t job = {.dtype = TUTTI_F32, .buckets = 2, .options = {.shards = 5}};
    tt_team_expect(3, 60000, two_member, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_spread_of_shards_gives_the_bits_of_the_tree),
        cmocka_unit_test(buckets_hold_gradients_of_one_device),
        cmocka_unit_test(gradients_are_rounded_before_they_are_added),
        cmocka_unit_test(averages_of_16_bit_copies_are_f32),
        cmocka_unit_test(shards_count_by_their_weight),
        cmocka_unit_test(buckets_that_find_no_memory_say_so),
        cmocka_unit_test(without_exactness_a_rank_adds_its_shards_up_first),
        cmocka_unit_test(a_hook_takes_the_place_of_the_sum_until_it_is_taken_off),
        cmocka_unit_test(several_can_be_under_way_in_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
