/* Joining the world: finding the others (rendezvous.h), or taking the store that the caller has
 * found, and making a group of them.
 *
 * The nth tutti_init of a rank in a store meets the nth of the others: the keys of each world have
 * a prefix of their own, "<name>.<n>", below what a meeting adds.
 */
#include <stdio.h>
#include <unistd.h>

#include "comm/group/group_impl.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/base/config.h"
#include "core/base/folder.h"
#include "core/base/log.h"
#include "core/base/profiler.h"

enum { NAME_BYTES = 128 };

static tutti_status_t take_store(const tutti_init_options_t *options, tt_meeting_t *at)
{
    const int size = options->world_size > 0 ? options->world_size : 1;
    if (options->rank < 0 || options->rank >= size || size > TT_WORLD_SIZE_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "init: rank %d of a world of %d", options->rank, size);
    }
    if (options->url != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "init: both a store and the URL %s; give one of them",
                       options->url);
    }
    *at = (tt_meeting_t){.rank = options->rank,
                         .size = size,
                         .local_rank = -1,
                         .store = tutti_store_retain(options->store)};
    return TUTTI_OK;
}

static tutti_status_t find_others(const tutti_init_options_t *options, tt_meeting_t *at)
{
    tt_rendezvous_t rendezvous;
    const tt_backend_ops_t *backend;
    TT_TRY(tt_backend_choose(&backend));
    if (options->store != NULL) {
        return take_store(options, at);
    }
    if (options->url == NULL && backend->world != NULL) {
        TT_TRY(backend->world(&at->rank, &at->size));
        return tt_rendezvous_find_local(at->size, &at->local_rank, &at->local_size);
    }
    if (options->url != NULL) {
        TT_TRY(
            tt_rendezvous_from_url(options->url, options->rank, options->world_size, &rendezvous));
    } else {
        TT_TRY(tt_rendezvous_from_environment(-1, -1, &rendezvous));
    }
    return tt_rendezvous_open(&rendezvous, options->name, options->timeout_ms, at);
}

/* What the caller leaves open. */
static tutti_status_t complete(tutti_init_options_t *options)
{
    int64_t timeout_ms;
    TT_TRY(tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &timeout_ms));
    TT_TRY(tt_group_check_timeout("init", options->timeout_ms, "0 means TUTTI_TIMEOUT_MS"));
    options->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : timeout_ms;
    options->name = options->name != NULL ? options->name : "world";
    return TUTTI_OK;
}

static tutti_status_t add_prefix(tutti_store_t **store, const char *prefix)
{
    tutti_store_t *view;
    TT_TRY(tutti_store_prefix(*store, tutti_text(prefix), &view));
    tutti_store_release(*store);
    *store = view;
    return TUTTI_OK;
}

/* The store with this world's prefix instead of the whole one. */
static tutti_status_t take_prefix(const char *name, tt_meeting_t *at)
{
    if (at->world[0] != 0) {
        TT_TRY(add_prefix(&at->store, at->world));
    }
    char text[NAME_BYTES + 32];
    int64_t turn;
    snprintf(text, sizeof text, "init/%.*s/%d", NAME_BYTES, name, at->rank);
    TT_TRY(tutti_store_add(at->store, tutti_text(text), 1, &turn));
    snprintf(text, sizeof text, "%.*s.%lld", NAME_BYTES, name, (long long)turn);
    return add_prefix(&at->store, text);
}

static tutti_status_t join(const tutti_init_options_t *options, const tt_meeting_t *at,
                           tutti_group_t **out)
{
    tutti_group_t *group;
    TT_TRY(
        tt_group_create(&(tt_group_options_t){.name = options->name,
                                              .rank = at->rank,
                                              .size = at->size,
                                              .store = at->store,
                                              .timeout_ms = options->timeout_ms,
                                              .address = at->address[0] != 0 ? at->address : NULL},
                        &group));
    /* The launcher may give each rank a part of a machine, and call it a host: it has the first
     * word. */
    group->local_rank = at->local_rank;
    group->local_size = at->local_size;
    if ((at->local_rank < 0 || at->local_size == 0) && group->backend->locate != NULL) {
        group->backend->locate(group->state, &group->local_rank, &group->local_size);
    }
    /* No rank goes on, and takes the store away, before all have found each other. */
    const tutti_status_t status = tutti_barrier(group, NULL);
    if (status < 0) {
        tutti_group_release(group);
        return status;
    }
    *out = group;
    return TUTTI_OK;
}

/* When a group has failed it is too late to say that its recorders have no place. */
static tutti_status_t open_dump_folder(void)
{
    const char *folder = tt_config_text(TT_CONFIG_DUMP);
    if (folder[0] == 0) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_folder_make(folder);
    if (status < 0) {
        return TT_FAIL(status, "TUTTI_DUMP=%s: %s", folder, tutti_last_error());
    }
    return access(folder, W_OK | X_OK) == 0
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "TUTTI_DUMP=%s: nothing can be written there", folder);
}

/* A name that is spelled wrong would be without effect, and not be seen. */
static void warn_of_unknown_settings(void)
{
    char text[256];
    for (size_t at = 0; tt_config_next_unknown(&at, text, sizeof text);) {
        tt_log(TT_LOG_WARN, "%s", text);
    }
}

tutti_status_t tutti_init(const tutti_init_options_t *options, tutti_group_t **out)
{
    TT_WANT("init", out);
    tutti_init_options_t chosen = options != NULL ? *options : (tutti_init_options_t){0};
    tt_meeting_t at = {0};
    TT_TRY(tt_config_check());
    TT_TRY(tt_profile_follow_environment());
    TT_TRY(open_dump_folder());
    TT_TRY(complete(&chosen));
    tutti_status_t status = find_others(&chosen, &at);
    if (status >= 0 && at.store != NULL) {
        status = take_prefix(chosen.name, &at);
    }
    status = status < 0 ? status : join(&chosen, &at, out);
    if (status >= 0) {
        tt_profile_set_rank(at.rank, at.size);
    }
    if (status >= 0 && tutti_group_rank(*out) == 0) {
        warn_of_unknown_settings();
    }
    tutti_store_release(at.store);
    return status;
}
