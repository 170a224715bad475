/* The key of a job, and of each of its attempts. */
#ifndef TT_LAUNCH_KEY_H
#define TT_LAUNCH_KEY_H

#include <stdbool.h>

#include "comm/net/channel.h"
#include "comm/net/job_key.h"

/* What all attempts of a job share. */
typedef struct {
    bool has_key;  /* not where TUTTI_PROTECT is off */
    bool is_given; /* the settings name it: ranks find it themselves */
    tt_job_key_t key;
} tt_launch_key_t;

/* The user's key if the settings name one, else a new one. Errors: AUTH, FORMAT, IO. */
tutti_status_t tt_launch_key_find(tt_launch_key_t *out);

/* Credentials of an attempt's store at an address (NULL: loopback). *fd (out) is a descriptor of
 * the attempt's key, which every process that is started inherits; -1 when the ranks need none.
 * Errors: AUTH, IO, NOMEM. */
tutti_status_t tt_launch_key_open(const tt_launch_key_t *key, int attempt, const char *address,
                                  int *fd, tt_credentials_t **out);

#endif
