/* Groups as objects: a backend's state behind a reference count, a name, a store, a place in the
 * family of all groups made of one world.
 *
 * A group of some ranks keeps its world alive, for it uses the world's wires. The family is a list
 * that all of them stand in; a call that waits walks it.
 */
#include "comm/group/coalesced.h"
#include "comm/group/root_rank.h"
#include "comm/store/store_ops.h"

#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/log.h"

enum { LOOK_MS = 10 };

static tutti_status_t join_family(tutti_group_t *group, const tutti_group_t *parent)
{
    if (parent != NULL) {
        group->family = parent->family;
        tt_ref_retain(&group->family->ref);
    } else {
        group->family = tt_alloc(sizeof *group->family, "family of groups");
        TT_TRY_ALLOC(group->family);
        tt_ref_init(&group->family->ref);
    }
    LIST_INSERT_HEAD(&group->family->groups, group, of_family);
    return TUTTI_OK;
}

static void leave_family(tutti_group_t *group)
{
    if (group->family == NULL) {
        return;
    }
    LIST_REMOVE(group, of_family);
    if (tt_ref_release(&group->family->ref)) {
        tt_group_stream_free(group->family->stream);
        tt_free(group->family);
    }
}

/* Ranks of the parent become ranks of the world. */
static tutti_status_t find_root(tutti_group_t *group, const tt_group_options_t *options)
{
    tutti_group_t *parent = options->parent;
    if (parent == NULL) {
        return TUTTI_OK;
    }
    group->root_ranks = tt_alloc_array((size_t)options->size, sizeof *group->root_ranks, "group");
    TT_TRY_ALLOC(group->root_ranks);
    for (int i = 0; i < options->size; i++) {
        const int rank = options->ranks[i];
        group->root_ranks[i] = parent->root != NULL ? parent->root_ranks[rank] : rank;
    }
    group->root = tutti_group_retain(parent->root != NULL ? parent->root : parent);
    return TUTTI_OK;
}

static void free_parts(tutti_group_t *group)
{
    leave_family(group);
    tt_group_free_works(group);
    tutti_group_release(group->root);
    tutti_store_release(group->store);
    tt_free(group->root_ranks);
    tt_free(group->turns);
    tt_free(group->counts);
    tt_free(group->name);
    tt_free(group);
}

/* What a rank looks at that waits for others to make the group. */
typedef struct {
    const tt_group_options_t *options;
    int64_t asked_ns; /* the store, which takes time */
} look_t;

/* The others meet when they have made it: no verdict is there before this rank has come, unless one
 * has failed. */
static tutti_status_t check_stand(look_t *look)
{
    const int64_t now = tt_clock_ns();
    const tutti_bytes_t key = tutti_text(TT_MEET_STAND "/" TT_MEET_VERDICT);
    bool is_over = false;
    if (look->options->store == NULL || now - look->asked_ns < LOOK_MS * TT_NS_PER_MS) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_store_check(look->options->store, &key, 1, &is_over));
    look->asked_ns = tt_clock_ns();
    return is_over ? TT_FAIL(TUTTI_ERR_ABORTED, "group %s: a rank could not make it",
                             look->options->name)
                   : TUTTI_OK;
}

static tutti_status_t look_around(void *user)
{
    look_t *look = user;
    tutti_group_t *parent = look->options->parent;
    tutti_group_progress(parent);
    if (!look->options->outlives && parent->backend->status != NULL) {
        TT_TRY(parent->backend->status(parent->state));
    }
    return check_stand(look);
}

static tutti_status_t open_backend(tutti_group_t *group, const tt_group_options_t *options)
{
    look_t look = {.options = options, .asked_ns = tt_clock_ns()};
    const tt_backend_options_t backend_options = {
        .name = options->name,
        .rank = options->rank,
        .size = options->size,
        .store = options->store,
        .epoch = options->epoch,
        .timeout_ms = options->timeout_ms,
        .address = options->address,
        .parent = group->root != NULL ? group->root->state : NULL,
        .parent_ranks = group->root_ranks,
        .look = options->parent != NULL ? look_around : NULL,
        .look_user = &look,
        .peers = options->peers,
    };
    if (options->store == NULL) {
        return group->backend->open(group->state, &backend_options);
    }
    const int64_t before_ms = tt_store_bound(options->store, options->timeout_ms);
    const tutti_status_t status = group->backend->open(group->state, &backend_options);
    (void)tutti_store_set_timeout(options->store, before_ms);
    return status;
}

tutti_status_t tt_group_create(const tt_group_options_t *options, tutti_group_t **out)
{
    const tt_backend_ops_t *backend;
    if (options->parent != NULL) {
        backend = options->parent->backend;
    } else {
        TT_TRY(tt_backend_choose(&backend));
    }
    tutti_group_t *group = tt_alloc(sizeof *group + backend->state_bytes, "group");
    TT_TRY_ALLOC(group);
    tt_ref_init(&group->ref);
    tt_forks_count();
    group->owner = getpid();
    group->forks = tt_forks;
    group->rank = options->rank;
    group->size = options->size;
    group->epoch = options->epoch;
    group->timeout_ms = options->timeout_ms;
    group->backend = backend;
    tutti_status_t status = TUTTI_ERR_NOMEM;
    group->name = tt_strdup(options->name, "group name");
    if (group->name == NULL) {
        goto free_group;
    }
    TT_TRY_GOTO(status, find_root(group, options), free_group);
    TT_TRY_GOTO(status, open_backend(group, options), free_group);
    TT_TRY_GOTO(status, join_family(group, options->parent), close_backend);
    if (options->store != NULL) {
        group->store = tutti_store_retain(options->store);
    }
    *out = group;
    return TUTTI_OK;
close_backend:
    backend->close(group->state);
free_group:
    free_parts(group);
    return status;
}

tutti_status_t tt_group_refuse_forked(const char *call, const tutti_group_t *group)
{
    return TT_FAIL(TUTTI_ERR_STATE,
                   "%s: this process was forked from the one that made group %s; a forked child "
                   "must not use its parent's groups",
                   call, group->name);
}

void tt_group_add_prepared(tutti_group_t *group, tt_prepared_entry_t *entry, tt_prepared_t *found)
{
    entry->group = group;
    entry->found = found;
    LIST_INSERT_HEAD(&group->prepared, entry, of_group);
}

void tt_group_remove_prepared(tt_prepared_entry_t *entry)
{
    (void)tt_group_has_family(entry->group, TT_NEVER); /* what the backend found goes with it */
    LIST_REMOVE(entry, of_group);
    if (entry->group->backend->unprepare != NULL) {
        entry->group->backend->unprepare(entry->found);
    }
    entry->group = NULL;
}

tutti_group_t *tutti_group_retain(tutti_group_t *group)
{
    if (group != NULL) {
        tt_ref_retain(&group->ref);
    }
    return group;
}

void tt_group_let_go(tutti_group_t *group)
{
    if (group == NULL || !tt_ref_release(&group->ref) || group->owner != getpid()) {
        return; /* a forked child leaves all as it is: what it has of the group is shared */
    }
    (void)tt_group_has_family(group, TT_NEVER);
    if (group->coalesce != NULL) {
        TT_ASSERT(group->coalesce->bundle == NULL); /* which would hold the group */
        tt_coalesced_free(group->coalesce, group);
        group->coalesce = NULL;
    }
    if (group->first != NULL) {
        tutti_group_abort(group); /* calls that their callers have forgotten */
    }
    while (!LIST_EMPTY(&group->prepared)) {
        tt_group_remove_prepared(LIST_FIRST(&group->prepared));
    }
    tt_pack_free_all(group);
    group->backend->close(group->state);
    free_parts(group);
}

/* The family's stream holds groups in which it makes calls; it must not be the last to do so. */
void tutti_group_release(tutti_group_t *group)
{
    if (group != NULL && !tt_group_is_forked(group)) {
        (void)tt_group_has_family(group, TT_NEVER);
    }
    tt_group_let_go(group);
}

int tutti_group_rank(const tutti_group_t *group)
{
    return group != NULL ? group->rank : -1;
}

int tutti_group_size(const tutti_group_t *group)
{
    return group != NULL ? group->size : 0;
}

int tutti_group_local_rank(const tutti_group_t *group)
{
    return group == NULL ? -1 : group->root != NULL ? group->root->local_rank : group->local_rank;
}

int tutti_group_local_size(const tutti_group_t *group)
{
    return group == NULL ? 0 : group->root != NULL ? group->root->local_size : group->local_size;
}

const char *tutti_group_name(const tutti_group_t *group)
{
    return group != NULL ? group->name : "";
}

uint32_t tutti_group_epoch(const tutti_group_t *group)
{
    return group != NULL ? group->epoch : 0;
}

tutti_store_t *tutti_group_store(const tutti_group_t *group)
{
    return group != NULL ? group->store : NULL;
}

int64_t tutti_group_uncanonical_sums(const tutti_group_t *group)
{
    return group != NULL && group->backend->uncanonical_sums != NULL
               ? group->backend->uncanonical_sums(group->state)
               : 0;
}

int64_t tutti_group_sent_bytes(const tutti_group_t *group, const char *call)
{
    int64_t bytes = 0;
    for (int i = 0; group != NULL && group->backend->sent_bytes != NULL && i < TT_COLLECTIVE_COUNT;
         i++) {
        const tt_collective_t kind = (tt_collective_t)i;
        if (call == NULL || strcmp(call, tt_collective_name(kind)) == 0) {
            bytes += group->backend->sent_bytes(group->state, kind);
        }
    }
    const bool counts_messages = call == NULL || strcmp(call, "send") == 0;
    return counts_messages && group != NULL && group->backend->sent_message_bytes != NULL
               ? bytes + group->backend->sent_message_bytes(group->state)
               : bytes;
}

void tutti_group_set_tag(tutti_group_t *group, uint64_t tag)
{
    if (group != NULL) {
        group->tag = tag;
    }
}

uint64_t tutti_group_tag(const tutti_group_t *group)
{
    return group == NULL ? 0 : group->tag;
}

int tt_group_root_rank(const tutti_group_t *group, int rank)
{
    return group->root != NULL ? group->root_ranks[rank] : rank;
}

int tutti_group_translate(const tutti_group_t *from, int rank, const tutti_group_t *to)
{
    if (from == NULL || to == NULL || from->family != to->family || rank < 0 ||
        rank >= from->size) {
        return -1;
    }
    const int wanted = tt_group_root_rank(from, rank);
    for (int i = 0; i < to->size; i++) {
        if (tt_group_root_rank(to, i) == wanted) {
            return i;
        }
    }
    return -1;
}
