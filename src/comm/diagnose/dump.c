/* The recorders of a world's groups as JSON, for `tutti verdict` and for people.
 * docs/formats/dump.md has the fields.
 */
#include "comm/diagnose/dump.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/log.h"

enum { PATH_BYTES = 1024 };

static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    return value != NULL ? value : json_string("?"); /* not UTF-8 */
}

static json_t *call_of(const tt_record_t *record, int64_t waited_since_ns, tt_sites_t *sites)
{
    static const char *const kinds[] = {"call", "send", "recv", "probe"};
    const bool is_call = record->kind == TT_RECORD_CALL;
    const bool is_known = (size_t)record->kind < sizeof kinds / sizeof *kinds;
    const bool is_reduction = record->reduction >= 0 && record->reduction < TUTTI_REDUCTION_COUNT;
    const char *reduction =
        is_reduction ? tutti_reduction_name((tutti_reduction_t)record->reduction) : "?";
    const int64_t waited_ns = waited_since_ns != 0 ? tt_clock_ns() - waited_since_ns : 0;
    /* a star leaves out what is NULL */
    return json_pack(
        "{s:I, s:s, s:s*, s:o*, s:s*, s:s, s:I, s:i, s:I, s:o, s:s, s:i, s:I}", "number",
        (json_int_t)record->number, "kind", is_known ? kinds[record->kind] : "?", "call",
        is_call ? tt_collective_text(record->collective) : NULL, "sequence",
        is_call ? json_integer((json_int_t)record->sequence) : NULL, "reduction",
        is_call ? reduction : NULL, "dtype", tt_dtype_text(record->dtype), "count",
        (json_int_t)record->count, is_call ? "root" : "peer", (int)record->root, "tag",
        (json_int_t)record->tag, "site", text_of(tt_sites_name(sites, record->site).text), "state",
        tt_record_state_name(record->state), "round", (int)record->round, "waited_ms",
        (json_int_t)(waited_ns / TT_NS_PER_MS));
}

static json_t *calls_of(const tt_dump_group_t *group, tt_sites_t *sites)
{
    json_t *calls = json_array();
    const uint64_t newest = atomic_load_explicit(&group->records->count, memory_order_acquire);
    uint64_t number = newest > TT_RECORDS ? newest - TT_RECORDS + 1 : 1;
    for (; number <= newest; number++) {
        tt_record_t record;
        if (tt_records_at(group->records, number, &record)) {
            json_array_append_new(
                calls, call_of(&record, group->waited_since_ns(group->user, number), sites));
        }
    }
    return calls;
}

/* What this rank sees of others, which may be unable to speak for themselves. */
static json_t *seen_of(const tt_dump_group_t *group)
{
    json_t *all = json_array();
    for (int rank = 0; rank < group->size && group->see != NULL; rank++) {
        tt_dump_seen_t seen;
        if (rank == group->rank || !group->see(group->user, rank, &seen)) {
            continue;
        }
        tt_sites_t *sites = tt_sites_open(seen.pid);
        json_array_append_new(
            all, json_pack("{s:i, s:o*, s:o}", "rank", rank, "last",
                           seen.last.number != 0 ? call_of(&seen.last, 0, sites) : NULL, "where",
                           text_of(seen.where.text)));
        tt_sites_close(sites);
    }
    return all;
}

static json_t *awaited_of(const tt_dump_group_t *group)
{
    json_t *ranks = json_array();
    for (int rank = 0; rank < group->size; rank++) {
        if (group->awaits(group->user, rank)) {
            json_array_append_new(ranks, json_integer(rank));
        }
    }
    return ranks;
}

tt_dump_t tt_dump_begin(int rank)
{
    return (tt_dump_t){json_array(), tt_sites_open(0), rank};
}

void tt_dump_add(const tt_dump_t *dump, const tt_dump_group_t *group)
{
    json_t *ranks = json_array();
    for (int i = 0; i < group->size; i++) {
        json_array_append_new(ranks, json_integer(group->ranks[i]));
    }
    json_array_append_new(dump->groups,
                          json_pack("{s:o, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                                    text_of(group->name), "rank", group->rank, "size", group->size,
                                    "epoch", (json_int_t)group->epoch, "ranks", ranks, "error",
                                    text_of(group->error), "awaited", awaited_of(group), "calls",
                                    calls_of(group, dump->sites), "seen", seen_of(group)));
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

tutti_status_t tt_dump_end(const tt_dump_t *dump, const char *path)
{
    json_t *all = json_pack("{s:s, s:i, s:i, s:i, s:o}", "format", "tutti-dump", "version", 1,
                            "rank", dump->rank, "pid", (int)getpid(), "groups", dump->groups);
    const tutti_status_t status = write_json(all, path);
    json_decref(all);
    tt_sites_close(dump->sites);
    return status;
}

/* A later failure of another group replaces the file by a fuller one. */
void tt_dump_failure(const tt_dump_failure_t *failure)
{
    const char *folder = tt_config_text(TT_CONFIG_DUMP);
    if (folder[0] == 0) {
        return;
    }
    char path[PATH_BYTES], name[64];
    snprintf(name, sizeof name, "%.60s", failure->world);
    for (char *at = name; *at != 0; at++) {
        *at = *at == '/' || (unsigned char)*at <= ' ' ? '_' : *at;
    }
    const int n = snprintf(path, sizeof path, "%s/%s-rank%d.json", folder, name, failure->rank);
    if (n >= (int)sizeof path || failure->write(failure->group, path) < 0) {
        tt_log(TT_LOG_WARN, "TUTTI_DUMP=%s: %s", folder,
               n >= (int)sizeof path ? "the path is too long" : tutti_last_error());
        (void)tt_fail_again(failure->status, failure->error); /* which is what the caller hears */
    }
}
