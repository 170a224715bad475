/* The recorders of a world's groups as JSON, for `tutti verdict` and for people.
 * docs/formats/dump.md has the fields.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/diagnose/diagnosis.h"
#include "comm/diagnose/stragglers.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/log.h"

enum { PATH_BYTES = 1024 };

static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    return value != NULL ? value : json_string("?"); /* not UTF-8 */
}

static json_t *call_of(const tt_record_t *record, tt_sites_t *sites)
{
    static const char *const kinds[] = {"call", "send", "recv", "probe"};
    const bool is_call = record->kind == TT_RECORD_CALL;
    json_t *call = json_object();
    json_object_set_new(call, "number", json_integer((json_int_t)record->number));
    json_object_set_new(call, "kind",
                        json_string((size_t)record->kind < sizeof kinds / sizeof *kinds
                                        ? kinds[record->kind]
                                        : "?"));
    if (is_call) {
        json_object_set_new(call, "call", json_string(tt_collective_text(record->collective)));
        json_object_set_new(call, "sequence", json_integer((json_int_t)record->sequence));
        json_object_set_new(
            call, "reduction",
            json_string(record->reduction >= 0 && record->reduction < TUTTI_REDUCTION_COUNT
                            ? tutti_reduction_name((tutti_reduction_t)record->reduction)
                            : "?"));
    }
    json_object_set_new(call, "dtype", json_string(tt_dtype_text(record->dtype)));
    json_object_set_new(call, "count", json_integer((json_int_t)record->count));
    json_object_set_new(call, is_call ? "root" : "peer", json_integer(record->root));
    json_object_set_new(call, "tag", json_integer((json_int_t)record->tag));
    json_object_set_new(call, "site", text_of(tt_sites_name(sites, record->site).text));
    json_object_set_new(call, "state", json_string(tt_record_state_name(record->state)));
    json_object_set_new(call, "round", json_integer(record->round));
    return call;
}

static json_t *calls_of(const tt_records_t *records, tt_sites_t *sites)
{
    json_t *calls = json_array();
    const uint64_t newest = atomic_load_explicit(&records->count, memory_order_acquire);
    uint64_t number = newest > TT_RECORDS ? newest - TT_RECORDS + 1 : 1;
    for (; number <= newest; number++) {
        tt_record_t record;
        if (tt_records_at(records, number, &record)) {
            json_array_append_new(calls, call_of(&record, sites));
        }
    }
    return calls;
}

/* What this rank sees of its local ranks, which may be unable to speak for themselves. */
static json_t *node_peers_of(tt_coll_t *coll)
{
    json_t *seen = json_array();
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        if (rank == coll->rank || coll->blocks[rank] == NULL) {
            continue;
        }
        tt_sites_t *sites =
            tt_sites_open(tt_node_peers_pid(coll->node_peers, coll->node_peer_ranks[rank]));
        const tt_record_t last = tt_records_last_call(&coll->blocks[rank]->records);
        json_t *node_peer = json_object();
        json_object_set_new(node_peer, "rank", json_integer(rank));
        if (last.number != 0) {
            json_object_set_new(node_peer, "last", call_of(&last, sites));
        }
        json_object_set_new(node_peer, "where", text_of(tt_coll_wait_state(coll, rank).text));
        json_array_append_new(seen, node_peer);
        if (sites != NULL) {
            tt_sites_close(sites);
        }
    }
    return seen;
}

static json_t *awaited_of(const tt_coll_t *coll)
{
    json_t *ranks = json_array();
    for (int rank = 0; rank < coll->size && coll->queue.head != NULL; rank++) {
        if (tt_coll_waits_for(coll, coll->queue.head, rank)) {
            json_array_append_new(ranks, json_integer(rank));
        }
    }
    return ranks;
}

static json_t *group_of(tt_coll_t *coll, tt_sites_t *sites)
{
    json_t *ranks = json_array();
    for (int i = 0; i < coll->size; i++) {
        json_array_append_new(ranks, json_integer(coll->peer_ranks[i]));
    }
    json_t *group = json_object();
    json_object_set_new(group, "name", text_of(coll->options.name));
    json_object_set_new(group, "rank", json_integer(coll->rank));
    json_object_set_new(group, "size", json_integer(coll->size));
    json_object_set_new(group, "epoch", json_integer(coll->options.epoch));
    json_object_set_new(group, "ranks", ranks);
    json_object_set_new(group, "error", text_of(coll->error));
    json_object_set_new(group, "awaited", awaited_of(coll));
    json_object_set_new(group, "calls", calls_of(&coll->block->records, sites));
    json_object_set_new(group, "seen", node_peers_of(coll));
    return group;
}

static json_t *dump_of(tt_coll_t *world)
{
    json_t *groups = json_array();
    tt_sites_t *sites = tt_sites_open(0);
    json_array_append_new(groups, group_of(world, sites));
    for (tt_coll_t *each = world->first_part; each != NULL; each = each->next_part) {
        json_array_append_new(groups, group_of(each, sites));
    }
    if (sites != NULL) {
        tt_sites_close(sites);
    }
    json_t *dump = json_object();
    json_object_set_new(dump, "format", json_string("tutti-dump"));
    json_object_set_new(dump, "version", json_integer(1));
    json_object_set_new(dump, "rank", json_integer(world->rank));
    json_object_set_new(dump, "pid", json_integer((json_int_t)getpid()));
    json_object_set_new(dump, "groups", groups);
    return dump;
}

static tutti_status_t write_json(const json_t *dump, const char *path)
{
    const size_t bytes = json_dumpb(dump, NULL, 0, JSON_INDENT(1));
    char *text = bytes > 0 ? tt_alloc_raw(bytes, "dump") : NULL;
    TT_TRY_ALLOC(text);
    tt_new_file_t file;
    tutti_status_t status = tt_new_file_begin(path, &file);
    if (status >= 0) {
        (void)json_dumpb(dump, text, bytes, JSON_INDENT(1));
        status = tt_new_file_end(&file, tt_new_file_write(&file, text, bytes));
    }
    tt_free(text);
    return status;
}

tutti_status_t tt_coll_dump(tt_coll_t *coll, const char *path)
{
    json_t *dump = dump_of(coll->options.world != NULL ? coll->options.world : coll);
    const tutti_status_t status = write_json(dump, path);
    json_decref(dump);
    return status;
}

/* The folder's file of this rank; a later failure of another group replaces it by a fuller one. */
void tt_coll_dump_failure(tt_coll_t *coll)
{
    const char *folder = tt_config_text(TT_CONFIG_DUMP);
    const bool is_wanted = coll->status == TUTTI_ERR_PEER || coll->status == TUTTI_ERR_TIMEOUT ||
                           coll->status == TUTTI_ERR_MISMATCH;
    if (folder[0] == 0 || !is_wanted) {
        return;
    }
    const tt_coll_t *world = coll->options.world != NULL ? coll->options.world : coll;
    char path[PATH_BYTES], name[64];
    snprintf(name, sizeof name, "%.60s", world->options.name);
    for (char *at = name; *at != 0; at++) {
        *at = *at == '/' || (unsigned char)*at <= ' ' ? '_' : *at;
    }
    const int n = snprintf(path, sizeof path, "%s/%s-rank%d.json", folder, name, world->rank);
    if (n >= (int)sizeof path || tt_coll_dump(coll, path) < 0) {
        tt_log(TT_LOG_WARN, "TUTTI_DUMP=%s: %s", folder,
               n >= (int)sizeof path ? "the path is too long" : tutti_last_error());
        (void)tt_fail_again(coll->status, coll->error); /* which is what the caller hears */
    }
}
