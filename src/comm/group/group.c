/* Groups as objects: a backend's state behind a reference count, a name, a store. */
#include "comm/group/group_impl.h"

#include "core/base/alloc.h"

tutti_status_t tt_group_create(const tt_group_options_t *options, tutti_group_t **out)
{
    const tt_backend_ops_t *backend;
    TT_TRY(tt_backend_choose(&backend));
    tutti_group_t *group = tt_alloc(sizeof *group + backend->state_bytes, "group");
    TT_TRY_ALLOC(group);
    tt_ref_init(&group->ref);
    group->rank = options->rank;
    group->size = options->size;
    group->name = tt_strdup(options->name, "group name");
    tutti_status_t status = TUTTI_ERR_NOMEM;
    if (group->name == NULL) {
        goto free_group;
    }
    TT_TRY_GOTO(status,
                backend->open(group->state,
                              &(tt_backend_options_t){
                                  .name = options->name,
                                  .rank = options->rank,
                                  .size = options->size,
                                  .store = options->store,
                                  .epoch = options->epoch,
                                  .timeout_ms = options->timeout_ms,
                                  .address = options->address,
                              }),
                free_group);
    group->backend = backend;
    if (options->store != NULL) {
        group->store = tutti_store_retain(options->store);
    }
    *out = group;
    return TUTTI_OK;
free_group:
    tt_free(group->name);
    tt_free(group);
    return status;
}

tutti_group_t *tutti_group_retain(tutti_group_t *group)
{
    tt_ref_retain(&group->ref);
    return group;
}

static void free_works(tutti_group_t *group)
{
    while (group->free_works != NULL) {
        tutti_work_t *work = group->free_works;
        group->free_works = work->next;
        tt_free(work);
    }
}

void tutti_group_release(tutti_group_t *group)
{
    if (group == NULL || !tt_ref_release(&group->ref)) {
        return;
    }
    if (group->first != NULL) {
        tutti_group_abort(group); /* calls that their callers have forgotten */
    }
    group->backend->close(group->state);
    free_works(group);
    tutti_store_release(group->store);
    tt_free(group->name);
    tt_free(group);
}

int tutti_group_rank(const tutti_group_t *group)
{
    return group->rank;
}

int tutti_group_size(const tutti_group_t *group)
{
    return group->size;
}

const char *tutti_group_name(const tutti_group_t *group)
{
    return group->name;
}

tutti_store_t *tutti_group_store(const tutti_group_t *group)
{
    return group->store;
}

void tutti_group_abort(tutti_group_t *group)
{
    group->backend->abort(group->state);
    group->backend->progress(group->state);
    tt_group_reap(group);
}

void tutti_group_set_tag(tutti_group_t *group, uint64_t tag)
{
    group->tag = tag;
}

void tutti_group_progress(tutti_group_t *group)
{
    group->backend->progress(group->state);
    tt_group_reap(group);
}

void tt_group_idle(void *group)
{
    tutti_group_progress(group);
}
