/* A process that is a rank of a job on this host, as a launcher starts it. For *_test.c only. */
#ifndef TT_RANK_TESTING_H
#define TT_RANK_TESTING_H

#include <stdlib.h>

#include "core/base/testing.h"

static inline void tt_set_number(const char *variable, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(variable, text, 1);
}

/* Before tutti_init(NULL, …); to be reached at `port` of 127.0.0.1. */
static inline void tt_be_rank(int rank, int size, int port)
{
    tt_set_number("RANK", rank);
    tt_set_number("WORLD_SIZE", size);
    tt_set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
}

#endif
