/* From what a rank knows to a store that all ranks share: one function for each kind of place. */
#include "comm/group/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/net/address.h"
#include "comm/store/store_tcp.h"
#include "core/base/config.h"

enum { TRY_MS = 2000 };

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
