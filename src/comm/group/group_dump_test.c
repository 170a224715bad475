/* Dumps of a failure: where they go, and what is said if they cannot be written. */
#include "core/base/testing.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/group/group_team.h"

enum { LATE_MS = 100, LINE_BYTES = 1200 };

typedef struct {
    _Atomic int count;
    char first[LINE_BYTES];
} lines_t;

static void keep_dump_lines(tt_log_level_t level, const char *line, void *user)
{
    lines_t *kept = user;
    if (level == TT_LOG_WARN && strstr(line, "TUTTI_DUMP") != NULL &&
        atomic_fetch_add(&kept->count, 1) == 0) {
        snprintf(kept->first, sizeof kept->first, "%s", line);
    }
}

/* Rank 0 waits in vain for rank 1; its error is that, whatever becomes of the dump. The folder is
 * made when the group is; it goes if that is wanted. */
static void wait_in_vain(tt_member_t *m)
{
    const char *unwanted = m->user;
    if (m->rank == 0) {
        TT_EXPECT(m, unwanted == NULL || rmdir(unwanted) == 0);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1") != NULL);
        tt_member_tell(m);
    }
    tt_member_await(m, 1);
}

static void fail_with(const char *folder, bool has_folder, lines_t *kept)
{
    char unwanted[80];
    snprintf(unwanted, sizeof unwanted, "%s", folder);
    memset(kept, 0, sizeof *kept);
    setenv("TUTTI_DUMP", folder, 1);
    tt_log_set_sink(keep_dump_lines, kept);
    tt_team_expect(2, LATE_MS, wait_in_vain, has_folder ? NULL : unwanted);
    tt_log_set_sink(NULL, NULL);
    unsetenv("TUTTI_DUMP");
}

static void a_dump_is_written_into_the_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti_dump_XXXXXX", path[80];
    struct stat file;
    lines_t kept;
    assert_non_null(mkdtemp(folder));
    fail_with(folder, true, &kept);
    snprintf(path, sizeof path, "%s/world-rank0.json", folder);
    assert_int_equal(kept.count, 0);
    assert_int_equal(stat(path, &file), 0);
    assert_true(file.st_size > 100);
    unlink(path);
    snprintf(path, sizeof path, "%s/world-rank1.json", folder);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void a_dump_that_cannot_be_written_is_told(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti_dump_XXXXXX";
    lines_t kept;
    assert_non_null(mkdtemp(folder));
    fail_with(folder, false, &kept);
    assert_true(kept.count > 0);
    assert_non_null(strstr(kept.first, folder));
    assert_non_null(strstr(kept.first, "No such file or directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_is_written_into_the_folder),
        cmocka_unit_test(a_dump_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
