/* Diagnosing what waits: the report while it still waits, and the verdict at the deadline, name the
 * rank that keeps others waiting, where it is instead, and the lines of both calls: ranks that
 * never enter a call, wait in another group, wait for a message, pass another count, are stopped.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/messages.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/log.h"

enum { LINES = 64, LINE_BYTES = 1200, REPORT_MS = 300, TIMEOUT_MS = 1200 };

/* What was logged, by whatever thread. */
typedef struct {
    _Atomic int count;
    char lines[LINES][LINE_BYTES];
} lines_t;

static void keep_line(tt_log_level_t level, const char *line, void *user)
{
    lines_t *kept = user;
    const int at = atomic_fetch_add(&kept->count, level == TT_LOG_WARN);
    if (level == TT_LOG_WARN && at < LINES) {
        snprintf(kept->lines[at], LINE_BYTES, "%s", line);
    }
}

static int count_lines(const lines_t *kept, const char *a, const char *b)
{
    int found = 0;
    for (int i = 0; i < kept->count && i < LINES; i++) {
        found += strstr(kept->lines[i], a) != NULL && strstr(kept->lines[i], b) != NULL;
    }
    return found;
}

static void print_lines(const lines_t *kept)
{
    for (int i = 0; i < kept->count && i < LINES; i++) {
        print_message("%s\n", kept->lines[i]);
    }
}

static void expect_lines(const lines_t *kept, int least, int most, const char *a, const char *b)
{
    const int found = count_lines(kept, a, b);
    if (found < least || found > most) {
        print_lines(kept);
        fail_msg("%d lines with \"%s\" and \"%s\" instead of %d to %d", found, a, b, least, most);
    }
}

/* Lines hold what other ranks wrote; no character of it moves a terminal's cursor. */
static void expect_plain(const lines_t *kept)
{
    for (int i = 0; i < kept->count && i < LINES; i++) {
        for (const char *at = kept->lines[i]; *at != 0; at++) {
            assert_true((unsigned char)*at >= ' ' || *at == '\n');
        }
    }
}

static void run_team(int size, void (*body)(tt_member_t *), lines_t *kept)
{
    memset(kept, 0, sizeof *kept);
    tt_log_set_sink(keep_line, kept);
    const tt_team_result_t result = tt_team_run(size, TIMEOUT_MS, body, NULL);
    tt_log_set_sink(NULL, NULL);
    if (result.text[0] != 0) {
        print_lines(kept);
        fail_msg("%s", result.text);
    }
    expect_plain(kept);
    char report[1024];
    if (tt_alloc_stats().blocks != 0 || tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
}

static tutti_tensor_t *make(tt_member_t *m, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

/* Only one of those that wait gives up by itself; the others may hear of it. */
static bool says_verdict(const char *verdict)
{
    return says(verdict) || says("gave up waiting for rank") || says("gave the group up");
}

static lines_t kept;

/* ---- never entered --------------------------------------------------------------------------- */

static _Atomic int verdicts;

static void stay_away(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 1024);
    if (m->rank == 2) {
        tt_member_await(m, 2);
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says("all_reduce #2 f32[1024] of group world (group_hang_test.c:"));
        TT_EXPECT(m, says_verdict("rank 2 never entered it: it "));
        atomic_fetch_add(&verdicts, says("rank 2 never entered it: it "));
        tt_member_tell(m);
    }
    tutti_tensor_release(x);
}

static void a_rank_that_never_enters_is_reported_once_and_named(void **state)
{
    (void)state;
    atomic_store(&verdicts, 0);
    run_team(3, stay_away, &kept);
    assert_true(verdicts >= 1);
    for (int rank = 0; rank < 2; rank++) {
        char who[40];
        snprintf(who, sizeof who, "rank %d has been waiting for 0.", rank);
        expect_lines(&kept, 1, 1, who,
                     "all_reduce #2 f32[1024] of group world (group_hang_test.c:");
    }
    expect_lines(&kept, 1, LINES, "has been waiting", "rank 2 never entered it");
}

/* As above, of rank 0: it is on this host. */
static void be_first_and_stay_away(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 1024);
    if (m->rank == 0) {
        tt_member_await(m, 2);
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says_verdict("rank 0 never entered it: it "));
        tt_member_tell(m);
    }
    tutti_tensor_release(x);
}

static void what_rank_0_does_on_this_host_is_known(void **state)
{
    (void)state;
    run_team(3, be_first_and_stay_away, &kept);
    if (strcmp(tt_config_text(TT_CONFIG_WIRES), "tcp") != 0) {
        expect_lines(&kept, 2, 2, "rank 0 never entered it: it is in no call that waits",
                     "its last here is");
    }
}

/* ---- in another group ------------------------------------------------------------------------ */

static void wait_elsewhere(tt_member_t *m)
{
    const int ranks[] = {1, 2};
    tutti_group_t *pair = NULL;
    tutti_tensor_t *x = make(m, 1024);
    if (m->rank > 0) {
        TT_EXPECT(m, tutti_group_new(
                         m->group, ranks, 2,
                         &(tutti_group_options_t){.name = "tp", .timeout_ms = TIMEOUT_MS + 1500},
                         &pair) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 2) { /* branches wrong */
        TT_EXPECT(m, tutti_barrier(pair, NULL) < 0);
        tt_member_await(m, 2); /* it ends as soon as rank 1 leaves; rank 0 has its verdict then */
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says_verdict("rank 2 never entered it: it waits in barrier #"));
        if (says("rank 2 never entered it: it waits in")) {
            TT_EXPECT(m, says(" of group world/tp[1,2] (group_hang_test.c:"));
            atomic_fetch_add(&verdicts, 1);
        }
        tt_member_tell(m);
    }
    tutti_group_release(pair);
    tutti_tensor_release(x);
}

static void a_rank_that_waits_in_another_group_is_found_there(void **state)
{
    (void)state;
    atomic_store(&verdicts, 0);
    run_team(3, wait_elsewhere, &kept);
    assert_true(verdicts >= 1);
}

/* ---- in a message ---------------------------------------------------------------------------- */

static void wait_for_a_message(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 8);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_recv(m->group, x, 0, 7, NULL) < 0);
        TT_EXPECT(m, says("recv of f32[8] from rank 0 (tag 7)") || says("gave up"));
    } else {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) < 0);
        TT_EXPECT(m, says("recv of f32[8] from rank 0 (tag 7)") || says("gave up"));
    }
    tt_member_tell(m); /* who leaves first changes what the other hears */
    tt_member_await(m, 2);
    tutti_tensor_release(x);
}

static void a_rank_that_waits_for_a_message_is_found_there(void **state)
{
    (void)state;
    run_team(2, wait_for_a_message, &kept);
    expect_lines(&kept, 1, 1, "rank 1 never entered it: it waits in recv of f32[8] from rank 0",
                 "of group world (group_hang_test.c:");
    expect_lines(&kept, 1, 1, " s in recv of f32[8] from rank 0 (tag 7)",
                 "; rank 0 waits in all_reduce #2 f32[8] of group world");
}

/* ---- a chain, and other counts --------------------------------------------------------------- */

static void pass_other_roots(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 1 << 16);
    /* each believes that the other sends: over tcp no frame ever says so */
    const tutti_status_t status = tutti_broadcast(m->group, x, 1 - m->rank, NULL);
    TT_EXPECT(m, status == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, (says("with root 0") && says("with root 1")) || says("gave the group up"));
    TT_EXPECT(m, says("rank 0 at group_hang_test.c:") || says("gave the group up"));
    TT_EXPECT(m, says("rank 1 at group_hang_test.c:") || says("gave the group up"));
    tutti_tensor_release(x);
}

static void ranks_that_never_exchange_a_frame_find_their_mismatch_at_the_deadline(void **state)
{
    (void)state;
    run_team(2, pass_other_roots, &kept);
}

/* ---- a stopped process ----------------------------------------------------------------------- */

typedef struct {
    _Atomic int steps[2];
    char error[1024];
    _Atomic int status;
} report_t;

static void step(int rank, const char *path, report_t *report)
{
    char url[256];
    snprintf(url, sizeof url, "file://%s?rank=%d&world_size=2", path, rank);
    tutti_group_t *world = NULL;
    tutti_tensor_t *x = NULL;
    tutti_status_t status =
        tutti_init(&(tutti_init_options_t){.url = url, .timeout_ms = TIMEOUT_MS}, &world);
    if (status == TUTTI_OK) {
        status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(100), &x);
    }
    while (status == TUTTI_OK) {
        status = tutti_all_reduce(world, x, TUTTI_AVG, NULL);
        atomic_fetch_add(&report->steps[rank], 1);
        if (rank == 1 && atomic_load(&report->steps[rank]) == 20) {
            raise(SIGSTOP);
        }
    }
    if (rank == 0) {
        snprintf(report->error, sizeof report->error, "%s", tutti_last_error());
        atomic_store(&report->status, status);
    }
    _exit(0);
}

static void a_stopped_process_is_named_with_its_last_call(void **state)
{
    (void)state;
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    char path[] = "/tmp/tutti-hang-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    pid_t children[2];
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            step(rank, path, report);
        }
    }
    assert_int_equal(waitpid(children[0], NULL, 0), children[0]);
    kill(children[1], SIGKILL);
    waitpid(children[1], NULL, 0);
    unlink(path);
    assert_int_equal(report->status, TUTTI_ERR_TIMEOUT);
    const bool is_named =
        strstr(report->error, "rank 1 never entered it: it is in no call that waits; its last "
                              "here is all_reduce #21 f32[100] (group_hang_test.c:") != NULL ||
        strstr(report->error, "rank 1 never entered it: it has made no call that is known of "
                              "since all_reduce #21 f32[100]") != NULL;
    if (!is_named) {
        fail_msg("%s", report->error);
    }
    munmap(report, sizeof *report);
}

int main(void)
{
    char report_ms[16];
    snprintf(report_ms, sizeof report_ms, "%d", REPORT_MS);
    setenv("TUTTI_REPORT_MS", report_ms, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_process_is_named_with_its_last_call),
        cmocka_unit_test(a_rank_that_never_enters_is_reported_once_and_named),
        cmocka_unit_test(what_rank_0_does_on_this_host_is_known),
        cmocka_unit_test(a_rank_that_waits_in_another_group_is_found_there),
        cmocka_unit_test(a_rank_that_waits_for_a_message_is_found_there),
        cmocka_unit_test(ranks_that_never_exchange_a_frame_find_their_mismatch_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
