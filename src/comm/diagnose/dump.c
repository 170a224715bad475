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
    const bool is_known = (size_t)record->kind < sizeof kinds / sizeof *kinds;
    const bool is_reduction = record->reduction >= 0 && record->reduction < TUTTI_REDUCTION_COUNT;
    const char *reduction =
        is_reduction ? tutti_reduction_name((tutti_reduction_t)record->reduction) : "?";
    /* a star leaves out what is NULL */
    return json_pack("{s:I, s:s, s:s*, s:o*, s:s*, s:s, s:I, s:i, s:I, s:o, s:s, s:i}", "number",
                     (json_int_t)record->number, "kind", is_known ? kinds[record->kind] : "?",
                     "call", is_call ? tt_collective_text(record->collective) : NULL, "sequence",
                     is_call ? json_integer((json_int_t)record->sequence) : NULL, "reduction",
                     is_call ? reduction : NULL, "dtype", tt_dtype_text(record->dtype), "count",
                     (json_int_t)record->count, is_call ? "root" : "peer", (int)record->root, "tag",
                     (json_int_t)record->tag, "site",
                     text_of(tt_sites_name(sites, record->site).text), "state",
                     tt_record_state_name(record->state), "round", (int)record->round);
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
        json_array_append_new(seen,
                              json_pack("{s:i, s:o*, s:o}", "rank", rank, "last",
                                        last.number != 0 ? call_of(&last, sites) : NULL, "where",
                                        text_of(tt_coll_wait_state(coll, rank).text)));
        tt_sites_close(sites);
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
    return json_pack("{s:o, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                     text_of(coll->options.name), "rank", coll->rank, "size", coll->size, "epoch",
                     (json_int_t)coll->options.epoch, "ranks", ranks, "error", text_of(coll->error),
                     "awaited", awaited_of(coll), "calls", calls_of(&coll->block->records, sites),
                     "seen", node_peers_of(coll));
}

static json_t *dump_of(tt_coll_t *world)
{
    json_t *groups = json_array();
    tt_sites_t *sites = tt_sites_open(0);
    json_array_append_new(groups, group_of(world, sites));
    tt_coll_t *each;
    LIST_FOREACH(each, &world->parts, of_world)
    {
        json_array_append_new(groups, group_of(each, sites));
    }
    tt_sites_close(sites);
    return json_pack("{s:s, s:i, s:i, s:i, s:o}", "format", "tutti-dump", "version", 1, "rank",
                     world->rank, "pid", (int)getpid(), "groups", groups);
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
    json_t *dump = dump_of(tt_coll_world(coll));
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
    const tt_coll_t *world = tt_coll_world(coll);
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
