/* Training on a stream whose shards end at different times: the same bits on any number of ranks
 * and workers, and every sample counts once.
 */
#include <tutti/dataloader.h>
#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/optim.h>

#include "comm/group/group_team.h"
#include "core/base/testing.h"

enum { SAMPLES = 37, SHARDS = 4, BATCH = 3, IN = 2 };

typedef struct {
    int workers;
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
    int64_t samples[TT_TEAM_MAX], steps[TT_TEAM_MAX];
} job_t;

/* ---- a stream of points; part 0 ends early --------------------------------------------------- */

typedef struct {
    int64_t next, parts, end;
} cursor_t;

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    (void)d;
    (void)options;
    *info = (tutti_dataset_info_t){
        .count = TUTTI_ANY,
        .field_count = 2,
        .fields = {{TUTTI_F32, TUTTI_SHAPE(IN)}, {TUTTI_F32, TUTTI_SHAPE(1)}}};
    return TUTTI_OK;
}

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **out)
{
    cursor_t *cursor = tt_alloc(sizeof *cursor, "test");
    (void)d;
    (void)epoch;
    TT_TRY_ALLOC(cursor);
    *cursor = (cursor_t){part, parts, part == 0 ? SAMPLES / 2 : SAMPLES};
    *out = cursor;
    return TUTTI_OK;
}

static tutti_status_t next_point(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    cursor_t *cursor = user;
    (void)d;
    if (cursor->next >= cursor->end) {
        return TUTTI_END;
    }
    float *x = to->data[TUTTI_INPUT];
    x[0] = (float)(cursor->next % 7) - 3;
    x[1] = (float)(cursor->next % 5) / 3;
    *(float *)to->data[TUTTI_TARGET] = x[0] - 2 * x[1];
    cursor->next += cursor->parts;
    return TUTTI_OK;
}

static void close_part(tutti_dataset_t *d, void *cursor)
{
    (void)d;
    tt_free(cursor);
}

static const tutti_dataset_ops_t points = {.name = "points",
                                           .about = "for this test",
                                           .init = init,
                                           .open = open_part,
                                           .next = next_point,
                                           .close = close_part};

/* ---- training -------------------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_dataset_t *data;
    tutti_dataloader_t *loader;
} setting_t;

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
    TUTTI_CHECK(tutti_dataset_create(&points, &(int){0}, &set->data));
    const tutti_dataloader_options_t loader = {.batch = BATCH,
                                               .shards = SHARDS,
                                               .ranks = tutti_group_size(world),
                                               .rank = tutti_group_rank(world),
                                               .workers = job->workers};
    return tutti_dataloader_create(set->data, &loader, &set->loader);
}

static void close_setting(setting_t *set)
{
    tutti_dataloader_release(set->loader);
    tutti_dataset_release(set->data);
    tutti_optim_release(set->opt);
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

static tutti_status_t run_shard(setting_t *set)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    (void)tutti_dataloader_next(set->loader, s, &batch);
    if (tutti_scope_status(s) == TUTTI_OK) {
        (void)tutti_ddp_set_weight(set->ddp, batch.size);
    }
    if (batch.size > 0) {
        tutti_tensor_t *y = tutti_forward(s, set->model, batch.input);
        (void)tutti_backward(s, tutti_mse_loss(s, y, batch.target, TUTTI_LOSS_MEAN));
    }
    return tutti_scope_close(s);
}

/* END: no shard of any rank had samples. */
static tutti_status_t run_step(setting_t *set, int64_t *samples)
{
    while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
        TUTTI_CHECK(run_shard(set));
    }
    const tutti_status_t status = tutti_ddp_finish(set->ddp);
    *samples += status == TUTTI_OK ? tutti_ddp_weight(set->ddp, -1) : 0;
    return status == TUTTI_OK ? tutti_optim_step(set->opt) : status;
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, job, &set) == TUTTI_OK);
    job->samples[m->rank] = job->steps[m->rank] = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        TT_EXPECT(m, tutti_dataloader_set_epoch(set.loader, epoch) == TUTTI_OK);
        tutti_status_t status = TUTTI_OK;
        while ((status = run_step(&set, &job->samples[m->rank])) == TUTTI_OK) {
            job->steps[m->rank]++;
        }
        TT_EXPECT(m, status == TUTTI_END);
    }
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    close_setting(&set);
}

static void a_stream_trains_to_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    job_t one = {.workers = 0};
    for (int ranks = 1; ranks <= 5; ranks++) {
        job_t job = {.workers = ranks % 3};
        const tt_team_result_t result = tt_team_run(ranks, 20000, train_member, &job);
        if (result.text[0] != 0) {
            fail_msg("%s", result.text);
        }
        one = ranks == 1 ? job : one;
        for (int rank = 0; rank < ranks; rank++) {
            assert_string_equal(job.digests[rank], one.digests[0]);
            assert_int_equal(job.samples[rank], 2 * (5 + 9 + 9 + 9)); /* part 0 has 5 of its 10 */
            assert_int_equal(job.steps[rank], 2 * 3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_trains_to_the_same_bits_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
