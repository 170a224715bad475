/* The public calls of the recorders. */
#include <tutti/diagnose.h>

#include "comm/group/group_impl.h"

tutti_status_t tutti_group_dump(tutti_group_t *group, const char *path)
{
    TT_WANT("group_dump", group);
    TT_TRY(tt_group_check_forked("group_dump", group));
    if (path == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "group_dump: path is NULL");
    }
    return group->backend->dump(group->state, path);
}
