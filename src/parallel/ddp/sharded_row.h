/* Lists of calls and actions that grow. */
#ifndef TT_SHARDED_ROW_H
#define TT_SHARDED_ROW_H

#include <tutti/sharded_plan.h>

#include "core/base/fail.h"

typedef struct {
    tutti_sharded_action_t *actions; /* [count] */
    int count, capacity;
} tt_sharded_list_t;

/* Whether a unit's whole, as computed with, is there between steps. */
static inline bool tt_sharded_is_resident(const tutti_sharded_unit_t *unit)
{
    return unit->is_kept && unit->kept_bytes == 0;
}

/* Whether units stay near, on some ranks of a row and not on each. */
static inline bool tt_sharded_keeps_near(const tutti_sharded_options_t *o)
{
    return o->stage == 3 && !o->is_shared && o->reshard_ranks > 1 &&
           o->reshard_ranks < o->ranks / o->rows;
}

/* Behind the others. Errors: NOMEM. */
tutti_status_t tt_sharded_put(tt_sharded_list_t *list, const tutti_sharded_action_t *action);
void tt_sharded_list_release(tt_sharded_list_t *list);

/* sharded_plan.c: as tutti_sharded_plan(), with the starts of the step before; NULL: those of a
 * step in which nothing starts early. */
tutti_status_t tt_sharded_plan(const tutti_sharded_options_t *options,
                               const tt_sharded_list_t *foreseen, tutti_sharded_plan_t *out);

#endif
