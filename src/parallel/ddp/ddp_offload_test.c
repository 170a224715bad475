/* Stage 3 with slices on a disk (options.offload): the bits of stage 0, what is read and written,
 * what is in memory, what is refused, and a disk that fails. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tutti/sharded.h>
#include <tutti/offload.h>

#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "core/device/disk_device.h"
#include "parallel/ddp/ddp_even_testing.h"
#include "parallel/ddp/ddp_impl.h"

enum { TIMEOUT_MS = 60000, SHARDS = 4, STEPS = 4, RANKS_MAX = 4 };

static char folder[TT_PLACE_BYTES];

static void run_team(int ranks, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect_quietly(ranks, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct {
    const tutti_optim_ops_t *optimizer;
    const void *optim_options;
    tutti_ddp_options_t options;
    bool is_frozen, recomputes, clips, scales;
} mathematics_t;

static const tutti_sgd_options_t plain = {.lr = 0.05};

static const mathematics_t mathematics[] = {
    {&tutti_adamw, NULL, {.shards = SHARDS}, false, true, true, false},
    {&tutti_sgd, &plain, {.shards = SHARDS, .keep_after_forward = true}, true, false, false, true},
    {&tutti_lamb,
     NULL,
     {.shards = SHARDS,
      .uneven = TUTTI_DDP_WEIGHTED,
      .param_dtype = TUTTI_BF16,
      .reduce_dtype = TUTTI_BF16,
      .persistence_bytes = 100},
     true,
     false,
     true,
     false},
    {&tutti_adafactor,
     NULL,
     {.shards = SHARDS, .whole_slices = true, .bucket_bytes = 3000},
     false,
     false,
     false,
     false},
    {&tutti_lion, NULL, {.shards = SHARDS, .param_dtype = TUTTI_F16}, false, true, false, true},
};

typedef struct {
    mathematics_t mathematics;
    bool is_offloaded, summons;
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} training_t;

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, int step,
                                const tutti_scaler_t *scaler)
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
    tutti_tensor_t *loss = tutti_mean(s, tutti_square(s, y));
    (void)tutti_backward(s, scaler != NULL ? tutti_scaler_scale(scaler, s, loss) : loss);
    return tutti_scope_close(s);
}

static tutti_status_t update(const training_t *training, tutti_optim_t *opt, tutti_scaler_t *scaler)
{
    TUTTI_CHECK(scaler != NULL ? tutti_scaler_unscale(scaler, opt) : TUTTI_OK);
    if (training->mathematics.clips) {
        TUTTI_CHECK(tutti_clip_grad_value(opt, 0.01));
        TUTTI_CHECK(tutti_clip_grad_norm(opt, 0.005, 2, NULL));
    }
    if (scaler != NULL) {
        TUTTI_CHECK(tutti_scaler_step(scaler, opt, NULL));
        return tutti_scaler_update(scaler);
    }
    return tutti_optim_step(opt);
}

/* Of one unit, in the middle of the training. */
static tutti_status_t write_unit(tutti_ddp_t *ddp, tutti_module_t *net)
{
    TUTTI_CHECK(tutti_ddp_summon(ddp, NULL, true));
    TUTTI_CHECK(tutti_tensor_fill(tutti_module_find(net, "up.weight"), 0.01));
    return tutti_ddp_dismiss(ddp);
}

static tutti_status_t train_ddp(tt_member_t *m, tutti_ddp_t *ddp, tutti_optim_t *opt,
                                training_t *training)
{
    tutti_context_t *ctx = ddp->ctx;
    tutti_scaler_t *scaler = NULL;
    const tutti_scaler_options_t scaling = {.init_scale = 1e38, .group = m->group};
    TUTTI_CHECK(training->mathematics.scales ? tutti_scaler_create(&scaling, &scaler) : TUTTI_OK);
    tutti_status_t status = TUTTI_OK;
    for (int step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        while (status >= 0 && tutti_ddp_next_shard(ddp, ctx)) {
            status = run_shard(ddp, ctx, step, scaler);
        }
        status = status < 0 ? status : tutti_ddp_finish(ddp);
        status = status < 0 ? status : update(training, opt, scaler);
        status = status < 0 || step != 1 ? status : write_unit(ddp, tutti_ddp_module(ddp));
    }
    tutti_scaler_release(scaler);
    return status < 0 ? status : tutti_ddp_digest(ddp, training->digests[m->rank]);
}

static tutti_status_t train_net(tt_member_t *m, tutti_context_t *ctx, tutti_module_t *net,
                                training_t *training)
{
    const mathematics_t *what = &training->mathematics;
    tutti_ddp_options_t options = what->options;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    options.stage = training->is_offloaded ? 3 : 0;
    options.offload = training->is_offloaded ? folder : NULL;
    options.units.kind = training->is_offloaded ? "block" : NULL;
    TUTTI_CHECK(tutti_ddp_create(ctx, net, m->group, &options, &ddp));
    TT_EXPECT(m,
              !training->is_offloaded || strcmp(tutti_ddp_stats(ddp).unit_source, "gather") == 0);
    TUTTI_CHECK(tutti_optim_create(ctx, what->optimizer, what->optim_options, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    const tutti_status_t status = train_ddp(m, ddp, opt, training);
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

static void slices_on_a_disk_have_the_bits_of_stage_0(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 4, 3, 2};
    for (size_t i = 0; i < sizeof mathematics / sizeof mathematics[0]; i++) {
        training_t whole = {.mathematics = mathematics[i]};
        training_t stored = {.mathematics = mathematics[i], .is_offloaded = true};
        run_team(1, train, &whole);
        run_team(ranks[i], train, &stored);
        for (int rank = 0; rank < ranks[i]; rank++) {
            if (strcmp(stored.digests[rank], whole.digests[0]) != 0) {
                fail_msg("mathematics %zu: rank %d of %d has %s, stage 0 on one rank has %s", i,
                         rank, ranks[i], stored.digests[rank], whole.digests[0]);
            }
        }
    }
}

/* ---- a model that is cut evenly -------------------------------------------------------------- */

/* ---- what is read and written ---------------------------------------------------------------- */

enum { FEW = 4, SMALL = FEW * TT_EVEN_SIDE * TT_EVEN_SIDE * (int)sizeof(float) };

static void count_bytes(tt_member_t *m)
{
    tt_even_job_t job;
    const uint64_t slice = (uint64_t)(SMALL / m->size);
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .offload = folder, .bucket_bytes = 1};
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    for (int i = 0; i < 3; i++) {
        TT_EXPECT(m, tt_even_step(&job, i) == TUTTI_OK);
    }
    const tutti_ddp_memory_t memory = tutti_ddp_memory(job.ddp, job.opt);
    tutti_offload_stats_t stats;
    tutti_optim_offload_stats(job.opt, &stats);
    TT_EXPECT(m, tt_disk_ring_settle(tt_disk_ring_of(job.ddp->units.store.disk)) == TUTTI_OK);
    tutti_optim_offload_stats(job.opt, &stats);
    /* weights, gradients, moments */
    TT_EXPECT(m, stats.file_bytes == 4 * slice);
    TT_EXPECT(m, stats.read_bytes >= 3 * 4 * slice && stats.written_bytes == 3 * 3 * slice);
    TT_EXPECT(m, memory.parameter_bytes == 0 && memory.gradient_bytes == 0);
    TT_EXPECT(m, memory.unit_bytes == 0 && memory.peak_unit_bytes <= 2 * SMALL / FEW);
    const tt_disk_ring_stats_t reads = tt_disk_ring_stats(job.ddp->units.store.ring);
    /* four units fit into the ring, so that a backward finds those of its forward there */
    TT_EXPECT(m, reads.written_bytes == 0);
    TT_EXPECT(m, reads.read_bytes >= 3 * slice && reads.read_bytes <= 3 * 2 * slice);
    tt_even_close(&job);
}

static void a_file_has_weights_gradients_and_moments(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
        run_team(ranks, count_bytes, NULL);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(tt_member_t *m, tt_even_job_t *job, const tutti_ddp_options_t *options,
                           tutti_status_t want, const char *text)
{
    tutti_ddp_t *ddp;
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, options, &ddp) == want);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
}

static void take_what_does_not_fit(tt_member_t *m)
{
    tt_even_job_t job;
    tutti_mesh_t *mesh;
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 2, .offload = folder}, TUTTI_ERR_ARG,
                   "options.offload at stage 2, where every rank has all parameters: it is for "
                   "stage 3; tutti_optim_offload()");
    TT_EXPECT(m, tutti_mesh_create(m->group, 2, (int[]){2, 1},
                                   (const char *[]){"replicate", "shard"}, &mesh) == TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 3, .mesh = mesh, .offload = folder},
                   TUTTI_ERR_UNSUPPORTED, "options.offload with a mesh of 2 rows");
    tutti_mesh_release(mesh);
    expect_refused(m, &job,
                   &(tutti_ddp_options_t){.stage = 3, .offload = m->rank == 0 ? folder : NULL},
                   TUTTI_ERR_MISMATCH, "parameters on disks");
    char file[TT_PLACE_BYTES + 8];
    snprintf(file, sizeof file, "/proc/none");
    expect_refused(m, &job,
                   &(tutti_ddp_options_t){.stage = 3, .offload = m->rank == 1 ? file : folder},
                   TUTTI_ERR_IO, "/proc/none");
    TT_EXPECT(m, m->rank == 1 || strstr(tutti_last_error(), "rank 1: ") != NULL);
    TT_EXPECT(m, tutti_module_cast(job.net, TUTTI_BF16) == TUTTI_OK);
    expect_refused(m, &job, &(tutti_ddp_options_t){.stage = 3, .offload = folder},
                   TUTTI_ERR_UNSUPPORTED,
                   "options.offload wants parameters in f32, and 0.weight is bf16");
    tt_even_close(&job);
}

/* State that is elsewhere already stays there, and is not forgotten; what comes later follows. */
static void have_state_elsewhere(tt_member_t *m)
{
    tt_even_job_t job;
    tutti_ddp_t *whole;
    const tutti_ddp_options_t options = {.stage = 3, .offload = folder};
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, NULL, &whole) == TUTTI_OK);
    job.ddp = whole;
    TT_EXPECT(m, tt_even_step(&job, 0) == TUTTI_OK);
    tutti_ddp_release(whole);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tt_even_step(&job, 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "there is state elsewhere already") != NULL);
    tutti_optim_release(job.opt);
    TT_EXPECT(m, tutti_optim_create(job.ctx, &tutti_adamw, NULL, &job.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job.opt, job.net, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_offload(job.opt, folder) == TUTTI_OK); /* it is there anyway */
    TT_EXPECT(m, tutti_optim_offload(job.opt, NULL) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, tt_even_step(&job, 2) == TUTTI_OK);
    tt_even_close(&job);
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    (void)state;
    run_team(2, take_what_does_not_fit, NULL);
    run_team(2, have_state_elsewhere, NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What is whole when ddp goes stays with the module. */
static void keep_what_is_whole(tt_member_t *m)
{
    tt_even_job_t job;
    const tutti_ddp_options_t options = {.stage = 3, .offload = folder};
    char before[TUTTI_DIGEST_BYTES] = "", after[TUTTI_DIGEST_BYTES] = "";
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tt_even_step(&job, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_digest(job.ddp, before) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_unshard(job.ddp, NULL) == TUTTI_OK);
    tutti_ddp_release(job.ddp);
    job.ddp = NULL;
    TT_EXPECT(m, tutti_module_digest(job.net, after) == TUTTI_OK);
    TT_EXPECT(m, strcmp(after, before) == 0);
    tt_even_close(&job);
}

static void what_is_whole_stays_with_the_module(void **state)
{
    (void)state;
    run_team(1, keep_what_is_whole, NULL);
    run_team(2, keep_what_is_whole, NULL);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* Of a process, so of both ranks. 0: as it was. */
static void limit_files(tt_member_t *m, rlim_t bytes)
{
    static struct rlimit before;
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        TT_EXPECT(m, bytes == 0 || getrlimit(RLIMIT_FSIZE, &before) == 0);
        struct rlimit limit = before;
        limit.rlim_cur = bytes == 0 ? before.rlim_cur : bytes;
        TT_EXPECT(m, setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    pthread_barrier_wait(m->start);
}

/* State finds no room in the first step, which changes nothing: it is tried again. */
static void step_on_a_full_disk(tt_member_t *m)
{
    char(*digests)[2][TUTTI_DIGEST_BYTES] = m->user; /* of each rank */
    for (int is_full = 0; is_full < 2; is_full++) {
        tt_even_job_t job;
        const tutti_ddp_options_t options = {.stage = 3, .offload = folder};
        tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
        TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
        TT_EXPECT(m, tt_even_compute(&job, 0) == TUTTI_OK);
        if (is_full) {
            limit_files(m, tt_disk_file_of(job.ddp->units.store.disk)->bytes);
            TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_ERR_NOMEM);
            TT_EXPECT(m, strstr(tutti_last_error(), "has no room for") != NULL);
            TT_EXPECT(m, strstr(tutti_last_error(), folder) != NULL);
            limit_files(m, 0);
        }
        TT_EXPECT(m, tutti_optim_step(job.opt) == TUTTI_OK);
        TT_EXPECT(m, tt_even_step(&job, 1) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_digest(job.ddp, digests[m->rank][is_full]) == TUTTI_OK);
        tt_even_close(&job);
    }
}

/* Nor do slices themselves. */
static void create_on_a_full_disk(tt_member_t *m)
{
    tt_even_job_t job;
    const tutti_ddp_options_t options = {.stage = 3, .offload = folder};
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    limit_files(m, SMALL / 2);
    expect_refused(m, &job, &options, TUTTI_ERR_NOMEM, "has no room for");
    limit_files(m, 0);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tt_even_step(&job, 0) == TUTTI_OK);
    tt_even_close(&job);
}

static void a_full_disk_is_told_before_anything_changes(void **state)
{
    (void)state;
    char digests[2][2][TUTTI_DIGEST_BYTES];
    (void)signal(SIGXFSZ, SIG_IGN);
    run_team(2, step_on_a_full_disk, digests);
    for (int rank = 0; rank < 2; rank++) {
        assert_string_equal(digests[rank][0], digests[0][0]);
        assert_string_equal(digests[rank][1], digests[0][0]);
    }
    run_team(2, create_on_a_full_disk, NULL);
}

/* ---- a disk that breaks ---------------------------------------------------------------------- */

/* Rank 1's file takes no more. */
static int break_file(tt_member_t *m, const tt_even_job_t *job)
{
    const int fd = tt_disk_file_of(job->ddp->units.store.disk)->fd, kept = dup(fd),
              closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    TT_EXPECT(m, kept >= 0 && closed >= 0 && dup2(closed, fd) == fd);
    close(closed);
    return kept;
}

static void mend_file(tt_member_t *m, const tt_even_job_t *job, int kept)
{
    const int fd = tt_disk_file_of(job->ddp->units.store.disk)->fd;
    TT_EXPECT(m, dup2(kept, fd) == fd);
    close(kept);
}

static void dismiss_on_a_broken_disk(tt_member_t *m)
{
    tt_even_job_t job;
    int kept = -1;
    const tutti_ddp_options_t options = {.stage = 3, .offload = folder};
    tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
    TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
    TT_EXPECT(m, tt_even_step(&job, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_summon(job.ddp, NULL, true) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(job.ddp->units.params[0].tensor, 0.5) == TUTTI_OK);
    kept = m->rank == 1 ? break_file(m, &job) : -1;
    TT_EXPECT(m, tutti_ddp_dismiss(job.ddp) == TUTTI_ERR_IO);
    TT_EXPECT(m, strstr(tutti_last_error(), "on the disk of rank 1") != NULL);
    if (kept >= 0) {
        mend_file(m, &job, kept);
    }
    TT_EXPECT(m, !tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_ERR_IO);
    TT_EXPECT(m, strstr(tutti_last_error(), "on the disk of rank 1") != NULL);
    tt_even_close(&job);
}

/* Slices are those of two times then, on some ranks. */
static void a_disk_that_breaks_in_a_dismissal_ends_the_training(void **state)
{
    (void)state;
    run_team(2, dismiss_on_a_broken_disk, NULL);
}

/* ---- two optimizers -------------------------------------------------------------------------- */

static int is_even(void *user, const char *name, const tutti_tensor_t *x)
{
    const int *parity = user;
    (void)x;
    return (name[0] - '0') % 2 == *parity ? 0 : -1;
}

/* Each has half of the parameters, and its state on the disk that both use in turn. */
static void step_with_two(tt_member_t *m)
{
    char(*digests)[TUTTI_DIGEST_BYTES] = m->user;
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        tt_even_job_t job;
        tutti_optim_t *halves[2];
        const tutti_ddp_options_t options = {.stage = 3, .offload = on_disk ? folder : NULL};
        tt_even_open(m, (tt_even_t){.layers = FEW}, &job);
        TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
        tutti_optim_release(job.opt);
        for (int k = 0; k < 2; k++) {
            TT_EXPECT(m, tutti_optim_create(job.ctx, k == 0 ? &tutti_adamw : &tutti_lion, NULL,
                                            &halves[k]) == TUTTI_OK);
            TT_EXPECT(m, tutti_optim_add_module(halves[k], job.net, is_even, &k) == TUTTI_OK);
        }
        for (int i = 0; i < 3; i++) {
            job.opt = halves[0];
            TT_EXPECT(m, tt_even_step(&job, i) == TUTTI_OK);
            TT_EXPECT(m, tutti_optim_step(halves[1]) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_digest(job.ddp, digests[on_disk]) == TUTTI_OK);
        tutti_optim_release(halves[1]);
        tt_even_close(&job);
    }
}

static void two_optimizers_share_a_disk(void **state)
{
    (void)state;
    char digests[2][TUTTI_DIGEST_BYTES];
    run_team(1, step_with_two, digests);
    assert_string_equal(digests[1], digests[0]);
}

static int make_folder(void **state)
{
    (void)state;
    tt_place_make_quick(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    tt_place_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_on_a_disk_have_the_bits_of_stage_0),
        cmocka_unit_test(a_file_has_weights_gradients_and_moments),
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
        cmocka_unit_test(what_is_whole_stays_with_the_module),
        cmocka_unit_test(a_full_disk_is_told_before_anything_changes),
        cmocka_unit_test(a_disk_that_breaks_in_a_dismissal_ends_the_training),
        cmocka_unit_test(two_optimizers_share_a_disk),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
