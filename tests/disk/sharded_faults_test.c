/* Disks under ranks whose slices lie there (stage 3, options.offload): each system call on one of
 * their files fails, once or from then on. Either all ranks end with the bits that they would have
 * had, or all of them fail, at once, and say whose disk it was.
 *
 * TUTTI_TEST_SHARE=16 lets one of 16 calls fail; TUTTI_SEED says which. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"

/* ---- disks that fail ------------------------------------------------------------------------- */

ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
int __real_posix_fallocate(int fd, off_t at, off_t bytes);

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);

static char folder[TT_PLACE_BYTES];
static _Atomic long calls, fail_at; /* 0: none */
static _Atomic bool is_lasting;

static bool is_ours(int fd)
{
    char link[64], path[256];
    const int code = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    errno = code;
    return folder[0] != 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static bool fails_of(int fd)
{
    if (!is_ours(fd)) {
        return false;
    }
    const long call = ++calls, at = fail_at;
    return at > 0 && (call == at || (is_lasting && call > at));
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at)
{
    if (!fails_of(fd)) {
        return __real_pread(fd, data, bytes, at);
    }
    errno = EIO;
    return -1;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (!fails_of(fd)) {
        return __real_pwrite(fd, data, bytes, at);
    }
    errno = EIO;
    return -1;
}

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
    return fails_of(fd) ? ENOSPC : __real_posix_fallocate(fd, at, bytes);
}

/* ---- a training ------------------------------------------------------------------------------ */

enum { RANKS = 2, LAYERS = 3, SIDE = 256, STEPS = 2, TIMEOUT_MS = 60000 };

typedef struct {
    tutti_status_t statuses[RANKS];
    char texts[RANKS][512], digests[RANKS][TUTTI_DIGEST_BYTES];
} outcome_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} job_t;

static tutti_status_t run_step(job_t *job)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(job->ddp));
    TUTTI_CHECK(tutti_clip_grad_norm(job->opt, 0.001, 2, NULL));
    return tutti_optim_step(job->opt);
}

static tutti_status_t train(tt_member_t *m, job_t *job, char *digest)
{
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .offload = folder};
    TUTTI_CHECK(tutti_ddp_create(job->ctx, job->net, m->group, &options, &job->ddp));
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(job->ctx, step);
        TUTTI_CHECK(run_step(job));
    }
    return tutti_ddp_digest(job->ddp, digest);
}

static void run(tt_member_t *m)
{
    outcome_t *outcome = m->user;
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {.in = SIDE, .out = SIDE, .no_bias = true};
    job_t job = {0};
    TT_EXPECT(m, tutti_context_create(&context, &job.ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job.ctx, &tutti_sequential_layer, NULL, &job.net) == 0);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tutti_sequential_add(job.net, &tutti_linear_layer, &layer, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_optim_create(job.ctx, &tutti_adamw, NULL, &job.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job.opt, job.net, NULL, NULL) == TUTTI_OK);
    outcome->statuses[m->rank] = train(m, &job, outcome->digests[m->rank]);
    snprintf(outcome->texts[m->rank], sizeof outcome->texts[0], "%s",
             outcome->statuses[m->rank] < 0 ? tutti_last_error() : "");
    tutti_ddp_release(job.ddp);
    tutti_optim_release(job.opt);
    tutti_module_release(job.net);
    tutti_context_release(job.ctx);
}

static long run_with(long at, bool lasts, outcome_t *outcome)
{
    *outcome = (outcome_t){0};
    calls = 0;
    is_lasting = lasts;
    fail_at = at;
    tt_team_expect_quietly(RANKS, TIMEOUT_MS, run, outcome);
    fail_at = 0;
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return calls;
}

static bool names_disk(const outcome_t *outcome)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (strstr(outcome->texts[rank], "offload: ") != NULL &&
            strstr(outcome->texts[rank], folder) != NULL) {
            return true;
        }
    }
    return false;
}

static void check(long at, bool lasts, const char *digest)
{
    outcome_t outcome;
    (void)run_with(at, lasts, &outcome);
    int failed = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        failed += outcome.statuses[rank] < 0;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        if (failed == 0 && strcmp(outcome.digests[rank], digest) != 0) {
            fail_msg("call %ld: rank %d has %s, want %s", at, rank, outcome.digests[rank], digest);
        }
    }
    if ((failed != 0 && failed != RANKS) || (failed > 0 && !names_disk(&outcome))) {
        fail_msg("call %ld, %s: %d ranks failed: \"%s\", \"%s\"", at, lasts ? "lasting" : "once",
                 failed, outcome.texts[0], outcome.texts[1]);
    }
}

static void a_disk_that_fails_stops_all_or_changes_nothing(void **state)
{
    (void)state;
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    const long share = (long)tt_test_number("TUTTI_TEST_SHARE", 1);
    outcome_t whole;
    unsetenv("TUTTI_TEST_SHARE"); /* which the library does not know */
    const long all = run_with(0, false, &whole);
    print_message("TUTTI_SEED=%llu, %ld calls\n", (unsigned long long)seed, all);
    assert_int_equal(whole.statuses[0], TUTTI_OK);
    assert_true(all > 30);
    for (long at = 1 + (long)(seed % (uint64_t)share); at <= all; at += share) {
        check(at, (at + (long)seed) % 2 == 0, whole.digests[0]);
    }
}

int main(void)
{
    tt_place_make_quick(folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_fails_stops_all_or_changes_nothing),
    };
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tt_place_remove(folder);
    return failures;
}
