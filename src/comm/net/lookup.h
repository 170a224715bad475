/* What a host's name stands for, by a deadline.
 *
 * getaddrinfo() has no deadline: it waits as long as the resolver's configuration says. So a thread
 * of its own calls it, and the caller waits for the answer on a descriptor. A caller whose time is
 * up leaves; the thread ends when the resolver lets it.
 */
#ifndef TT_LOOKUP_H
#define TT_LOOKUP_H

#include <stdbool.h>
#include <sys/socket.h>

#include "core/base/clock.h"
#include "core/base/fail.h"

enum { TT_ADDRESSES_MAX = 8, TT_HOST_NAME_BYTES = 256 };

/* In the resolver's order, which is the order in which they are tried. */
typedef struct {
    struct sockaddr_storage address[TT_ADDRESSES_MAX];
    socklen_t bytes[TT_ADDRESSES_MAX];
    int count;
} tt_addresses_t;

/* A lookup under way. */
typedef struct {
    int fd; /* -1: known already */
    tt_addresses_t known;
    char host[TT_HOST_NAME_BYTES];
} tt_lookup_t;

/* A number, or "localhost", is known at once and costs no thread. Errors: ARG, IO. */
tutti_status_t tt_lookup_start(const char *host, int port, tt_lookup_t *lookup);

/* PENDING when the time is up: it may be waited for again. ARG when the host is not known: the text
 * has the name and what the resolver said. */
tutti_status_t tt_lookup_wait(tt_lookup_t *lookup, tt_deadline_t deadline, tt_addresses_t *out);

/* Answered or not. */
void tt_lookup_close(tt_lookup_t *lookup);

/* The three together. Errors: ARG as above, TIMEOUT, IO. */
tutti_status_t tt_addresses_find(const char *host, int port, tt_deadline_t deadline,
                                 tt_addresses_t *out);

/* A host that is given as a number; false: it is none. */
bool tt_addresses_parse(const char *number, int port, tt_addresses_t *out);

/* The same hosts at another port. */
void tt_addresses_set_port(tt_addresses_t *addresses, int port);

#endif
