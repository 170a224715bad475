/* The inside of a group and of a work. */
#ifndef TT_GROUP_IMPL_H
#define TT_GROUP_IMPL_H

#include <tutti/leaves.h>
#include <tutti/messages.h>
#include <tutti/objects.h>

#include "comm/backend/backend.h"
#include "core/base/ref.h"

/* A call under way. Works come from the group's own list and go back to it, so that calling
 * allocates nothing in the steady state. */
struct tutti_work {
    tt_ref_t ref;
    tutti_group_t *group; /* retained until the caller releases the work */
    tutti_work_t *next;   /* in the list of free ones, or of those under way */
    bool is_under_way;    /* in the group's list, with its tensors */
    bool is_released;     /* by its caller, who held the group for it */
    tt_run_t run;
    char *error; /* the text of a failure */
    int tensor_count;
    tutti_tensor_t *tensors[TUTTI_LEAF_PIECES_MAX + 1];
};

struct tutti_group {
    tt_ref_t ref;
    int rank, size;
    char *name;
    tutti_store_t *store; /* with the group's prefix; NULL when alone */
    uint64_t tag;
    tutti_work_t *free_works, *first, *last; /* under way, in order */
    const tt_backend_ops_t *backend;
    _Alignas(16) unsigned char state[];
};

typedef struct {
    const char *name;
    int rank, size;
    tutti_store_t *store; /* retained by the group */
    uint32_t epoch;
    int64_t timeout_ms;
    const char *address; /* of this rank, as others reach it; NULL: loopback */
} tt_group_options_t;

tutti_status_t tt_group_create(const tt_group_options_t *options, tutti_group_t **out);

/* Start a call; waits when work is NULL, else gives out a work that holds the tensors. */
tutti_status_t tt_group_call(tutti_group_t *group, tt_call_t *call, tutti_tensor_t *const *tensors,
                             int tensor_count, tutti_work_t **work);

/* For a context's idle hook: tutti_group_progress with a void pointer. */
void tt_group_idle(void *group);

/* Works that are done let their tensors go. */
void tt_group_reap(tutti_group_t *group);

#endif
