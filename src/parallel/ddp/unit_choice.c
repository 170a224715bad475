/* Which source units have: the first of the list that every rank can use. */
#include <tutti/collectives.h>

#include "comm/group/agree.h"
#include "parallel/ddp/unit_source.h"

const tt_unit_source_ops_t *const tt_unit_sources[] = {
#define X(source) &(source),
#include "parallel/ddp/unit_sources.def"
#undef X
    NULL,
};

static int64_t first_possible(const tutti_group_t *group, int near_ranks)
{
    int64_t index = 0;
    while (tt_unit_sources[index]->is_possible != NULL &&
           !tt_unit_sources[index]->is_possible(group, near_ranks)) {
        index++;
    }
    return index;
}

/* In a tensor of its own: a failed call may write into it later. */
tutti_status_t tt_unit_source_choose(tutti_group_t *group, int near_ranks,
                                     const tt_unit_source_ops_t **out)
{
    tutti_tensor_t *x = NULL;
    tutti_status_t status =
        tt_group_agree(group, tutti_group_tensor(group, TUTTI_I64, TUTTI_SHAPE(1), &x));
    if (status >= 0) {
        int64_t *index = tutti_tensor_data(x);
        *index = first_possible(group, near_ranks);
        status = tutti_all_reduce(group, x, TUTTI_MAX, NULL);
        *out = status >= 0 ? tt_unit_sources[*index] : *out;
        status = status < 0 ? tt_group_give_up(group, status) : TUTTI_OK;
    }
    tutti_tensor_release(x);
    return status;
}
