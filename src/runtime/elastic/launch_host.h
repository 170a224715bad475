/* The host of a job's store, as --rdzv-endpoint or --master-addr names it. */
#ifndef TT_LAUNCH_HOST_H
#define TT_LAUNCH_HOST_H

#include <stdbool.h>

#include "comm/store/store_tcp.h"

/* The last failure again, with the flags that name the host in front. */
tutti_status_t tt_launch_host_fail(tutti_status_t status);

/* The addresses of endpoint->host; gives up once is_closing() says so. A name that is not known is
 * an error at once. Errors: ARG, ABORTED, TIMEOUT, IO. */
tutti_status_t tt_launch_host_find(tt_store_endpoint_t *endpoint, tt_deadline_t deadline,
                                   bool (*is_closing)(const void *user), const void *user);

/* On node 0 of several. A name must not stand for a loopback here, where other hosts would look for
 * it elsewhere; a number is taken as it is. Errors: ARG, AUTH, IO, TIMEOUT. */
tutti_status_t tt_launch_host_listen(const char *host, int port, tutti_store_t **out);

#endif
