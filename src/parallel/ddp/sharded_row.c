/* Lists of calls and actions: they double. */
#include "parallel/ddp/sharded_row.h"

#include "core/base/alloc.h"

enum { FIRST_CAPACITY = 32 };

tutti_status_t tt_sharded_put(tt_sharded_list_t *list, const tutti_sharded_action_t *action)
{
    if (list->count == list->capacity) {
        const int capacity = list->capacity == 0 ? FIRST_CAPACITY : 2 * list->capacity;
        tutti_sharded_action_t *grown =
            tt_realloc(list->actions, (size_t)capacity * sizeof *grown, "sharded row");
        TT_TRY_ALLOC(grown);
        list->actions = grown;
        list->capacity = capacity;
    }
    list->actions[list->count++] = *action;
    return TUTTI_OK;
}

void tt_sharded_list_release(tt_sharded_list_t *list)
{
    tt_free(list->actions);
    *list = (tt_sharded_list_t){0};
}
