/* From what a rank knows to a store that all ranks share: one function for each kind of place. */
#include "comm/group/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/net/address.h"
#include "core/base/config.h"

enum { TRY_MS = 2000 };

static int64_t left_ms(tt_deadline_t deadline)
{
    const int64_t ms = tt_deadline_left_ms(deadline);
    return ms > 0 ? ms : 1;
}

/* After a restart the launcher's store still has the keys of the attempt before. */
static tutti_status_t open_served(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                                  tt_meeting_t *out)
{
    int64_t attempt;
    TT_TRY(tt_config_int(TT_CONFIG_RESTART_COUNT, 0, INT32_MAX, &attempt));
    TT_TRY(tutti_store_tcp_connect(rendezvous->host, rendezvous->port, left_ms(deadline),
                                   &out->store));
    if (attempt > 0) {
        snprintf(out->world, sizeof out->world, "attempt_%d", (int)attempt);
    }
    return tt_address_route(rendezvous->host, rendezvous->port, out->address);
}

static tutti_status_t listen_at_master(const tt_rendezvous_t *rendezvous, tt_meeting_t *out)
{
    tutti_status_t status = TUTTI_ERR_IO;
    TT_TRY(tt_address_own(rendezvous->host, out->address));
    for (int i = 0; i < rendezvous->port_count && status == TUTTI_ERR_IO; i++) {
        status = tutti_store_tcp_listen(out->address, rendezvous->port + i, &out->store);
    }
    return status;
}

/* Behind one of several ports there may be nobody yet, or a stranger: who is no store of ours, or
 * has not our key. */
static tutti_status_t search_master(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                                    tutti_store_t **out)
{
    for (int i = 0;; i = (i + 1) % rendezvous->port_count) {
        const int64_t ms = left_ms(deadline) < TRY_MS ? left_ms(deadline) : TRY_MS / 10;
        const tutti_status_t status =
            tutti_store_tcp_connect(rendezvous->host, rendezvous->port + i, ms, out);
        if (status >= 0 || tt_deadline_is_past(deadline) || status == TUTTI_ERR_ARG ||
            status == TUTTI_ERR_NOMEM) {
            return status;
        }
    }
}

static tutti_status_t open_master(const tt_rendezvous_t *rendezvous, tt_deadline_t deadline,
                                  tt_meeting_t *out)
{
    if (rendezvous->rank == 0) {
        return listen_at_master(rendezvous, out);
    }
    if (rendezvous->port_count == 1) {
        TT_TRY(tutti_store_tcp_connect(rendezvous->host, rendezvous->port, left_ms(deadline),
                                       &out->store));
    } else {
        TT_TRY(search_master(rendezvous, deadline, &out->store));
    }
    return tt_address_route(rendezvous->host, rendezvous->port, out->address);
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
        status = open_master(rendezvous, deadline, &meeting);
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
