/* What unit tests share: cmocka with all that it needs, and two checks of our own. For *_test.c
 * only.
 *
 *     return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
 */
#ifndef TT_TESTING_H
#define TT_TESTING_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

/* The last failure's text must hold this part. */
static inline void tt_expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

/* Open descriptors, and the one that counts them. */
static inline int tt_count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Group teardown: names what was allocated and not freed. It ends the program by itself, for cmocka
 * 1.1.5 prints that a group's teardown failed, and counts the group as passed. */
static inline int tt_nothing_is_left(void **state)
{
    (void)state;
    char report[1024];
    const size_t blocks = tt_alloc_report(report, sizeof report);
    if (blocks > 0) {
        fprintf(stderr, "%zu blocks were not freed:\n%s", blocks, report);
    }
    TT_ASSERT(blocks == 0 && tt_alloc_stats().blocks == 0);
    return 0;
}

#endif
