/* The environment of a rank. */
#ifndef TT_LAUNCH_ENVIRONMENT_H
#define TT_LAUNCH_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef struct {
    int rank, world_size, local_rank, local_count, node_rank, node_count;
    int cores, master_port;
    const char *master_host;
    const char *run_id;
    int attempt, max_restarts;
    int64_t begin_s;         /* when the first attempt began, since 1970 */
    const char *const *more; /* "NAME=value", ended by NULL, over all others; may be NULL */
    int key_fd;      /* of the job's key, which the rank inherits; -1: the environment names it */
    bool is_watched; /* its output is shown on a terminal */
} tt_rank_facts_t;

/* A copy of our environment with a rank's variables, in one block that is freed with tt_free(). */
tutti_status_t tt_environment_create(const tt_rank_facts_t *facts, char ***out);

/* A copy of our environment with `more` ("NAME=value", ended by NULL) over it; freed in the same
 * way; the texts are borrowed. */
tutti_status_t tt_environment_with(const char *const *more, char ***out);

#endif
