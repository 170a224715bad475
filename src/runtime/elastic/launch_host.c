/* Looking up the host of a job's store, and listening there. */
#include "runtime/elastic/launch_host.h"

enum { STEP_MS = 500, LOOKUP_MS = 30000 };

tutti_status_t tt_launch_host_fail(tutti_status_t status)
{
    return TT_FAIL(status, "node 0's store, of --rdzv-endpoint or --master-addr: %s",
                   tutti_last_error());
}

/* In steps, so that a stop is seen. */
static tutti_status_t wait_for(tt_lookup_t *lookup, tt_store_endpoint_t *endpoint,
                               tt_deadline_t deadline, bool (*is_closing)(const void *user),
                               const void *user)
{
    while (!is_closing(user)) {
        const tutti_status_t status =
            tt_lookup_wait(lookup, tt_deadline_in_ms(STEP_MS), &endpoint->addresses);
        if (status != TUTTI_PENDING) {
            return status;
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "host %s: the resolver has not answered in time",
                           endpoint->host);
        }
    }
    return TT_FAIL(TUTTI_ERR_ABORTED, "stopped while host %s is looked up", endpoint->host);
}

tutti_status_t tt_launch_host_find(tt_store_endpoint_t *endpoint, tt_deadline_t deadline,
                                   bool (*is_closing)(const void *user), const void *user)
{
    tt_lookup_t lookup;
    tutti_status_t status = tt_lookup_start(endpoint->host, endpoint->port, &lookup);
    if (status >= 0) {
        status = wait_for(&lookup, endpoint, deadline, is_closing, user);
        tt_lookup_close(&lookup);
    }
    return status < 0 ? tt_launch_host_fail(status) : status;
}

static tutti_status_t check_host(const char *host, int port)
{
    tt_addresses_t list;
    char own[TT_ADDRESS_TEXT_BYTES];
    TT_TRY(tt_addresses_find(host, port, tt_deadline_in_ms(LOOKUP_MS), &list));
    return tt_address_is_loopback(host) ? TUTTI_OK : tt_address_own(host, &list, own);
}

tutti_status_t tt_launch_host_listen(const char *host, int port, tutti_store_t **out)
{
    const tutti_status_t status = check_host(host, port);
    return status < 0 ? tt_launch_host_fail(status) : tutti_store_tcp_listen(host, port, out);
}
