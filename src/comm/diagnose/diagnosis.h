/* What diagnosis tells those above the engine: who is gone, and what was recorded. */
#ifndef TT_DIAGNOSIS_H
#define TT_DIAGNOSIS_H

#include "comm/exec/call.h"

/* Whether a rank is known to have died, or to have left the group or the job. Connects to a rank of
 * another host, so that it is known soon. */
bool tt_coll_is_gone(tt_coll_t *coll, int rank);

/* Write the recorders of all groups of the world as JSON. Errors: IO, NOMEM. */
tutti_status_t tt_coll_dump(tt_coll_t *coll, const char *path);

#endif
