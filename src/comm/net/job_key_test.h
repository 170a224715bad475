/* A job key for tests of what needs one. For *_test.c only. */
#ifndef TT_JOB_KEY_TEST_H
#define TT_JOB_KEY_TEST_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/net/job_key.h"
#include "core/base/testing.h"

/* Group setup: from now on this process, and those it starts, have a new key (TUTTI_KEY_FD). */
static inline int tt_take_key(void **state)
{
    (void)state;
    tt_job_key_t key;
    int fd;
    char text[16];
    assert_int_equal(tt_job_key_make(&key), TUTTI_OK);
    assert_int_equal(tt_job_key_to_fd(&key, &fd), TUTTI_OK);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
    snprintf(text, sizeof text, "%d", fd);
    return setenv("TUTTI_KEY_FD", text, 1);
}

#endif
