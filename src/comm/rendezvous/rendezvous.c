/* From what a rank knows to a store that all ranks share: one function for each kind of place. */
#include "comm/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/net/address.h"
#include "comm/store/store_tcp.h"
#include "core/base/config.h"

enum { TRY_MS = 2000 };

/* Before anything else: a name that cannot be resolved is an error at once, on every host. */
static tutti_status_t find_host(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                                tt_store_endpoint_t *out)
{
    const tutti_status_t status =
        tt_store_endpoint_find(rendezvous->host, rendezvous->port, deadline, out);
    return status >= 0 ? status
                       : TT_FAIL(status, "rank %d of %d: %s: %s", rendezvous->rank,
                                 rendezvous->size, rendezvous->host_source, tutti_last_error());
}

/* At one of several ports there may be no listener yet, or a stranger: it is no store of ours, or
 * it does not have our key. */
static tutti_status_t connect_to(int port_count, tt_store_endpoint_t *endpoint,
                                 tt_credentials_t *credentials, tt_deadline_t deadline,
                                 tutti_store_t **out)
{
    const int first = endpoint->port;
    if (port_count <= 1) {
        return tt_store_tcp_connect_to(endpoint, credentials, deadline, out);
    }
    for (int i = 0;; i = (i + 1) % port_count) {
        const tt_deadline_t left = tt_deadline_in_ms(tt_deadline_timeout_ms(deadline));
        const tt_deadline_t one_try = tt_deadline_in_ms(TRY_MS / 10);
        endpoint->port = first + i;
        tt_addresses_set_port(&endpoint->addresses, endpoint->port);
        const tutti_status_t status = tt_store_tcp_connect_to(
            endpoint, credentials, tt_deadline_timeout_ms(deadline) < TRY_MS ? left : one_try, out);
        if (status >= 0 || tt_deadline_is_past(deadline) || status == TUTTI_ERR_ARG ||
            status == TUTTI_ERR_NOMEM) {
            return status;
        }
    }
}

static tutti_status_t listen_at_master(const tt_rendezvous_t *rendezvous,
                                       const tt_store_endpoint_t *endpoint,
                                       tt_credentials_t *credentials, tt_meeting_t *out)
{
    tutti_status_t status = TUTTI_ERR_IO;
    TT_TRY(tt_address_own(endpoint->host, &endpoint->addresses, out->address));
    for (int i = 0; i < rendezvous->port_count && status == TUTTI_ERR_IO; i++) {
        status = tt_store_tcp_listen(out->address, rendezvous->port + i, credentials, &out->store);
    }
    return status;
}

/* A host that cannot be resolved, or a key that is missing here, is an error at once on every host:
 * waiting for the others would not help. */
static tutti_status_t open_tcp(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                               tt_meeting_t *out)
{
    tt_store_endpoint_t endpoint;
    tt_credentials_t *credentials;
    tutti_status_t status;
    TT_TRY(find_host(rendezvous, deadline, &endpoint));
    TT_TRY(tt_credentials_find(endpoint.host, 0, &credentials));
    if (rendezvous->kind == TT_PLACE_MASTER && rendezvous->rank == 0) {
        status = listen_at_master(rendezvous, &endpoint, credentials, out);
    } else {
        status = connect_to(rendezvous->port_count, &endpoint, credentials, deadline, &out->store);
        status = status < 0 ? status : tt_store_local_address(out->store, out->address);
    }
    tt_credentials_release(credentials);
    return status;
}

/* After a restart the launcher's store still has the keys of the attempt before. */
static tutti_status_t open_served(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                                  tt_meeting_t *out)
{
    int64_t attempt;
    TT_TRY(tt_config_int(TT_CONFIG_RESTART_COUNT, 0, INT32_MAX, &attempt));
    if (attempt > 0) {
        snprintf(out->world, sizeof out->world, "attempt_%d", (int)attempt);
    }
    return open_tcp(rendezvous, deadline, out);
}

static tutti_status_t open_file(const tt_rendezvous_t *rendezvous, const char *name,
                                tt_deadline_t deadline, tt_meeting_t *out)
{
    TT_TRY(tutti_store_file_open(rendezvous->path, &out->store));
    return tt_rendezvous_agree(out->store, name, rendezvous->rank, rendezvous->size, deadline,
                               out->world);
}

tutti_status_t tt_rendezvous_open(const tt_rendezvous_t *rendezvous, const char *name,
                                  int64_t timeout_ms, tt_meeting_t *out)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(timeout_ms);
    tutti_status_t status = TUTTI_OK;
    tt_meeting_t meeting = {.rank = rendezvous->rank,
                            .size = rendezvous->size,
                            .local_rank = rendezvous->local_rank,
                            .local_size = rendezvous->local_size};
    switch (rendezvous->kind) {
    case TT_PLACE_ALONE:
        break;
    case TT_PLACE_SERVED:
        status = open_served(rendezvous, deadline, &meeting);
        break;
    case TT_PLACE_HOST:
        status = tt_rendezvous_hand_over(rendezvous, name, deadline, &meeting.store);
        break;
    case TT_PLACE_MASTER:
        status = open_tcp(rendezvous, deadline, &meeting);
        break;
    case TT_PLACE_FILE:
        status = open_file(rendezvous, name, deadline, &meeting);
        break;
    }
    if (status < 0) {
        tutti_store_release(meeting.store);
        return status;
    }
    *out = meeting;
    return TUTTI_OK;
}
