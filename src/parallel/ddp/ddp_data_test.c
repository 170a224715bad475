/* Training by epochs of a data loader: the same bits on any number of ranks and workers, with last
 * steps in which shards have fewer samples or none, and after a resume in mid-epoch.
 */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/dataloader.h>
#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/testing.h"

enum { SAMPLES = 33, SHARDS = 4, BATCH = 4, IN = 5, STEPS = 3 };

typedef struct {
    int workers;
    int stop;             /* after so many steps of the second epoch, and save */
    const char *weights;  /* path of a file; NULL: no saving */
    tutti_buffer_t place; /* what was saved */
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_dataset_t *rows, *shaken;
    tutti_dataloader_t *loader;
} setting_t;

static tutti_status_t shake(void *user, tutti_random_t *random, const tutti_sample_t *from,
                            tutti_sample_t *to)
{
    const float *x = from->data[TUTTI_INPUT];
    float *y = to->data[TUTTI_INPUT];
    (void)user;
    for (int i = 0; i < IN; i++) {
        y[i] = x[i] + 0.1F * (float)tutti_random_uniform(random);
    }
    return tutti_sample_copy(to, from, TUTTI_TARGET);
}

static tutti_status_t open_data(setting_t *set)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    const tutti_tensor_data_options_t rows = {
        .input = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, IN), 0, 1),
        .target = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(SAMPLES, 1), 0, 1)};
    TUTTI_CHECK(tutti_dataset_create(&tutti_tensor_dataset, &rows, &set->rows));
    TUTTI_CHECK(tutti_scope_close(s));
    const tutti_map_options_t map = {.dataset = set->rows, .transform = shake, .seed = 3};
    return tutti_dataset_create(&tutti_map_dataset, &map, &set->shaken);
}

static tutti_status_t open_setting(tutti_group_t *world, const job_t *job, setting_t *set)
{
    TUTTI_CHECK(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 7}, &set->ctx));
    const tutti_linear_options_t layer = {.in = IN, .out = 1};
    TUTTI_CHECK(tutti_module_create(set->ctx, &tutti_linear_layer, &layer, &set->model));
    const tutti_ddp_options_t options = {.shards = SHARDS, .uneven = TUTTI_DDP_WEIGHTED};
    TUTTI_CHECK(tutti_ddp_create(set->ctx, set->model, world, &options, &set->ddp));
    TUTTI_CHECK(tutti_optim_create(set->ctx, &tutti_sgd, NULL, &set->opt));
    TUTTI_CHECK(tutti_optim_add_module(set->opt, set->model, NULL, NULL));
    TUTTI_CHECK(open_data(set));
    const tutti_dataloader_options_t loader = {.batch = BATCH,
                                               .shuffle = true,
                                               .shards = SHARDS,
                                               .ranks = tutti_group_size(world),
                                               .rank = tutti_group_rank(world),
                                               .workers = job->workers};
    return tutti_dataloader_create(set->shaken, &loader, &set->loader);
}

static void close_setting(setting_t *set)
{
    tutti_dataloader_release(set->loader);
    tutti_dataset_release(set->shaken);
    tutti_dataset_release(set->rows);
    tutti_optim_release(set->opt);
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

static tutti_status_t run_shard(setting_t *set, int64_t *total)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    if (tutti_dataloader_next(set->loader, s, &batch) == TUTTI_OK) {
        *total = batch.total;
        (void)tutti_ddp_set_weight(set->ddp, batch.size);
    }
    if (batch.size > 0) {
        tutti_tensor_t *y = tutti_forward(s, set->model, batch.input);
        (void)tutti_backward(s, tutti_mse_loss(s, y, batch.target, TUTTI_LOSS_MEAN));
    }
    return tutti_scope_close(s);
}

static tutti_status_t run_step(setting_t *set)
{
    int64_t total = -1;
    while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
        TUTTI_CHECK(run_shard(set, &total));
    }
    TUTTI_CHECK(tutti_ddp_finish(set->ddp));
    if (total >= 0 && tutti_ddp_weight(set->ddp, -1) != total) {
        return tutti_fail(TUTTI_ERR_STATE, "the step has %lld samples, %lld were counted",
                          (long long)total, (long long)tutti_ddp_weight(set->ddp, -1));
    }
    return tutti_optim_step(set->opt);
}

/* The rest of the epoch under way, up to a step. */
static tutti_status_t run_epoch(setting_t *set, int64_t first, int64_t end)
{
    for (int64_t step = first; step < end; step++) {
        TUTTI_CHECK(run_step(set));
    }
    return TUTTI_OK;
}

static tutti_status_t train(setting_t *set, const job_t *job)
{
    TUTTI_CHECK(run_epoch(set, 0, STEPS));
    TUTTI_CHECK(tutti_dataloader_set_epoch(set->loader, 1));
    return run_epoch(set, 0, job->weights == NULL ? STEPS : job->stop);
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_dataloader_steps(set.loader) == STEPS);
    TT_EXPECT(m, train(&set, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    if (job->weights != NULL && m->rank == m->size - 1) { /* the last rank always hosts a shard */
        TT_EXPECT(m, tutti_dataloader_save_state(set.loader, &job->place) == TUTTI_OK);
        TT_EXPECT(m, tutti_module_save(set.model, job->weights, NULL, 0) == TUTTI_OK);
    }
    close_setting(&set);
}

static void resume_member(tt_member_t *m)
{
    job_t *job = m->user;
    setting_t set = {0};
    const tutti_bytes_t place = tutti_bytes_of(job->place.data, job->place.bytes);
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_load(set.model, job->weights) == TUTTI_OK);
    TT_EXPECT(m, tutti_dataloader_load_state(set.loader, place) == TUTTI_OK);
    TT_EXPECT(m, tutti_dataloader_epoch(set.loader) == 1);
    TT_EXPECT(m, run_epoch(&set, job->stop, STEPS) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    close_setting(&set);
}

static const char *digest_on(int ranks, void (*body)(tt_member_t *), job_t *job)
{
    const tt_team_result_t result = tt_team_run(ranks, 20000, body, job);
    if (result.text[0] != 0) {
        fail_msg("%s", result.text);
    }
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static void epochs_give_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    job_t one = {.workers = 0};
    const char *wanted = digest_on(1, train_member, &one);
    for (int ranks = 2; ranks <= 6; ranks++) { /* more than shards, too */
        job_t job = {.workers = ranks % 3};
        assert_string_equal(digest_on(ranks, train_member, &job), wanted);
    }
}

static void a_job_goes_on_in_mid_epoch_with_other_ranks(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-resume-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    job_t whole = {.workers = 1};
    const char *wanted = digest_on(1, train_member, &whole);
    for (int stop = 0; stop < STEPS; stop++) {
        job_t job = {.workers = 2, .stop = stop, .weights = path};
        assert_string_not_equal(digest_on(3, train_member, &job), wanted);
        for (int ranks = 1; ranks <= 4; ranks++) {
            assert_string_equal(digest_on(ranks, resume_member, &job), wanted);
        }
        tutti_buffer_release(&job.place);
    }
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_give_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(a_job_goes_on_in_mid_epoch_with_other_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
