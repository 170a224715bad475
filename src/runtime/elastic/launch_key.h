/* The key of a job on one host. */
#ifndef TT_LAUNCH_KEY_H
#define TT_LAUNCH_KEY_H

#include "comm/net/channel.h"

/* Credentials of the launcher's store at an address (NULL: loopback): with the user's key if the
 * settings name one, without any where TUTTI_PROTECT is off, else with a new key. *fd (out) is a
 * descriptor of the new one, which every process that is started inherits; -1 when there is none.
 * Errors: AUTH, FORMAT, IO, NOMEM. */
tutti_status_t tt_launch_key_open(const char *address, int *fd, tt_credentials_t **out);

#endif
