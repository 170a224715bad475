/* One verdict out of the dumps of many ranks.
 *
 * In every group the first call that a rank entered and has not finished is looked at. Ranks that
 * never entered it are guilty, and so are those that passed something else under its number; a rank
 * that is in another group's call meanwhile is named with that call, which is the next to look
 * at. A rank without a file speaks through those of its host, who have seen its recorder.
 *
 * Cost: linear in the bytes of the files, however many ranks and groups they tell of.
 *
 * Files are other people's: every field is checked for its type, numbers for their range, and texts
 * lose what would move a terminal's cursor.
 */
#include "comm/diagnose/dump_verdict.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <tutti/diagnose.h>

#include "comm/plan/plan_text.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/file.h"
#include "core/base/fnv.h"
#include "core/base/printable.h"

enum { NAME_BYTES = 120, FILE_BYTES_MAX = 16 << 20 };

struct tt_dump_verdict {
    json_t *groups; /* {key: [what each file tells of the group]}, in the order of the files */
    json_t *ranks;  /* {rank of the world: [the groups of its files]} */
    int count;      /* of files */
};

typedef struct {
    char text[NAME_BYTES];
} name_t;

typedef struct {
    char text[3 * NAME_BYTES];
} phrase_t;

/* What is known of a rank in a group. */
typedef struct {
    json_t *last;    /* its last call; NULL: none */
    json_t *group;   /* its own words; NULL: only others speak of it */
    json_t *witness; /* what a local rank has seen */
} seat_t;

typedef struct {
    const tt_dump_verdict_t *verdict;
    tt_plan_text_t *out;
    const json_t *told;  /* what each file tells of the group */
    const json_t *group; /* as the first file tells it */
    seat_t *seats;       /* [size] */
    int size;
    bool is_guilty;
} court_t;

/* ---- fields ------------------------------------------------------------------------------- */

static int64_t number_of(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

static name_t text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    name_t out;
    snprintf(out.text, sizeof out.text, "%.*s", NAME_BYTES - 1, text != NULL ? text : "");
    tt_make_printable(out.text);
    return out;
}

static bool is_text(const json_t *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && strcmp(text, wanted) == 0;
}

static bool is_open(const json_t *call)
{
    return is_text(call, "state", "started") || is_text(call, "state", "posted") ||
           is_text(call, "state", "running") || is_text(call, "state", "failed");
}

static int64_t sequence_of(const json_t *call)
{
    return call != NULL ? number_of(call, "sequence", 0) : 0;
}

/* "all_reduce #812 f32[1024]" */
static phrase_t describe(const json_t *call)
{
    phrase_t out;
    const name_t dtype = text_of(call, "dtype");
    const long long count = (long long)number_of(call, "count", 0);
    if (!is_text(call, "kind", "call")) {
        snprintf(out.text, sizeof out.text, "%.16s of %.16s[%lld] with rank %lld",
                 text_of(call, "kind").text, dtype.text, count,
                 (long long)number_of(call, "peer", -1));
        return out;
    }
    const int n = snprintf(out.text, sizeof out.text, "%.40s #%lld", text_of(call, "call").text,
                           (long long)sequence_of(call));
    if (!is_text(call, "call", "barrier")) {
        snprintf(out.text + n, sizeof out.text - (size_t)n, " %.16s[%lld]", dtype.text, count);
    }
    return out;
}

/* " (train.c:88)" */
static phrase_t site_of(const json_t *call)
{
    phrase_t out = {""};
    const name_t site = text_of(call, "site");
    if (site.text[0] != 0) {
        snprintf(out.text, sizeof out.text, " (%s)", site.text);
    }
    return out;
}

/* ---- who sits where ----------------------------------------------------------------------- */

static json_t *last_call(const json_t *group)
{
    const json_t *calls = json_object_get(group, "calls");
    for (size_t i = json_array_size(calls); i > 0; i--) {
        json_t *call = json_array_get(calls, i - 1);
        if (is_text(call, "kind", "call")) {
            return call;
        }
    }
    return NULL;
}

/* A group's epoch, size, ranks, of which a hash will do, and name. */
static phrase_t key_of(const json_t *group)
{
    phrase_t out;
    size_t i;
    json_t *item;
    uint64_t hash = TT_FNV_BEGIN;
    json_array_foreach(json_object_get(group, "ranks"), i, item)
    {
        const json_int_t rank = json_integer_value(item);
        hash = tt_fnv(hash, &rank, sizeof rank);
    }
    snprintf(out.text, sizeof out.text, "%lld %lld %016llx %s",
             (long long)number_of(group, "epoch", 0), (long long)number_of(group, "size", 0),
             (unsigned long long)hash, text_of(group, "name").text);
    return out;
}

static int64_t world_rank(const json_t *group, int64_t rank)
{
    const json_t *value = json_array_get(json_object_get(group, "ranks"), (size_t)rank);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : rank;
}

static phrase_t rank_key(const json_t *group, int64_t rank)
{
    phrase_t out;
    snprintf(out.text, sizeof out.text, "%lld", (long long)world_rank(group, rank));
    return out;
}

static void seat_witnesses(const court_t *court, const json_t *group)
{
    size_t i;
    json_t *node_peer;
    json_array_foreach(json_object_get(group, "seen"), i, node_peer)
    {
        const int64_t rank = number_of(node_peer, "rank", -1);
        json_t *last = json_object_get(node_peer, "last");
        if (rank < 0 || rank >= court->size) {
            continue;
        }
        seat_t *seat = &court->seats[rank];
        seat->witness = node_peer;
        if (seat->group == NULL && sequence_of(last) > sequence_of(seat->last)) {
            seat->last = last;
        }
    }
}

/* Of two files of one rank the first counts. */
static void take_seats(const court_t *court)
{
    size_t i;
    json_t *group;
    json_array_foreach(court->told, i, group)
    {
        seat_t *seat = &court->seats[number_of(group, "rank", 0)];
        if (seat->group == NULL) {
            *seat = (seat_t){.last = last_call(group), .group = group};
        }
    }
    json_array_foreach(court->told, i, group)
    {
        seat_witnesses(court, group);
    }
}

/* ---- the verdict -------------------------------------------------------------------------- */

/* The newest call or message in which a rank is, in another group; "" if there is none. */
static phrase_t find_elsewhere(const court_t *court, int rank)
{
    phrase_t out = {""};
    size_t i;
    json_t *group;
    json_array_foreach(json_object_get(court->verdict->ranks, rank_key(court->group, rank).text), i,
                       group)
    {
        const json_t *calls = json_object_get(group, "calls");
        const json_t *call = json_array_get(calls, json_array_size(calls) - 1);
        if (call != NULL && is_open(call) &&
            (!is_text(call, "kind", "call") ||
             json_object_get(court->verdict->groups, key_of(group).text) != court->told)) {
            snprintf(out.text, sizeof out.text, "it is in %.120s of group %.60s%.130s",
                     describe(call).text, text_of(group, "name").text, site_of(call).text);
        }
    }
    return out;
}

static phrase_t tell_where(const court_t *court, int rank)
{
    const seat_t *seat = &court->seats[rank];
    phrase_t out = find_elsewhere(court, rank);
    if (out.text[0] != 0) {
        return out;
    }
    const name_t seen = text_of(seat->witness, "where");
    if (seen.text[0] != 0) {
        snprintf(out.text, sizeof out.text, "it was seen waiting in %s", seen.text);
    } else if (seat->last != NULL) {
        snprintf(out.text, sizeof out.text, "its last call is %.120s%.130s",
                 describe(seat->last).text, site_of(seat->last).text);
    } else if (seat->group == NULL && seat->witness == NULL) {
        snprintf(out.text, sizeof out.text, "it left no file, so it died or was ended first");
    } else {
        snprintf(out.text, sizeof out.text, "it has made no call");
    }
    return out;
}

static bool is_alike(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"call", "dtype", "count", "root", "tag", "reduction"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) {
            return false;
        }
    }
    return true;
}

/* "root 1, tag 3, sum": in what two calls differ, of the first one. */
static phrase_t describe_difference(const json_t *a, const json_t *b)
{
    phrase_t out = {""};
    static const char *const keys[] = {"root", "tag"};
    size_t length = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (number_of(a, keys[i], 0) != number_of(b, keys[i], 0)) {
            length += (size_t)snprintf(out.text + length, sizeof out.text - length, " with %s %lld",
                                       keys[i], (long long)number_of(a, keys[i], 0));
        }
    }
    if (!json_equal(json_object_get(a, "reduction"), json_object_get(b, "reduction"))) {
        snprintf(out.text + length, sizeof out.text - length, " %.40s",
                 text_of(a, "reduction").text);
    }
    return out;
}

/* The lowest call that a rank is in; NULL: there is none. */
static const json_t *find_open(const court_t *court, int *rank)
{
    const json_t *found = NULL;
    for (int i = 0; i < court->size; i++) {
        const json_t *last = court->seats[i].last;
        if (last != NULL && is_open(last) &&
            (found == NULL || sequence_of(last) < sequence_of(found))) {
            found = last;
            *rank = i;
        }
    }
    return found;
}

static void judge_seat(court_t *court, int rank, int first, const json_t *open)
{
    const json_t *last = court->seats[rank].last;
    const name_t name = text_of(court->group, "name");
    if (sequence_of(last) < sequence_of(open)) {
        court->is_guilty = true;
        tt_plan_put(court->out, "group %s: rank %d never entered %s%s; %s\n", name.text, rank,
                    describe(open).text, site_of(open).text, tell_where(court, rank).text);
    } else if (sequence_of(last) == sequence_of(open) && !is_alike(last, open)) {
        court->is_guilty = true;
        tt_plan_put(court->out, "group %s: rank %d called %s%s%s, rank %d called %s%s%s\n",
                    name.text, rank, describe(last).text, describe_difference(last, open).text,
                    site_of(last).text, first, describe(open).text,
                    describe_difference(open, last).text, site_of(open).text);
    }
}

/* What the ranks said themselves: the only trace of one that died. */
static void quote_errors(court_t *court)
{
    for (int rank = 0; rank < court->size; rank++) {
        const json_t *group = court->seats[rank].group;
        const char *error = json_string_value(json_object_get(group, "error"));
        char said[TT_ERROR_TEXT_BYTES];
        if (error == NULL || error[0] == 0) {
            continue;
        }
        court->is_guilty = true;
        snprintf(said, sizeof said, "%s", error);
        tt_make_printable(said);
        tt_plan_put(court->out, "  rank %d says: %s\n", rank, said);
    }
}

static void judge(court_t *court)
{
    int first = 0;
    take_seats(court);
    const json_t *open = find_open(court, &first);
    for (int rank = 0; rank < court->size && open != NULL; rank++) {
        judge_seat(court, rank, first, open);
    }
    if (open != NULL && !court->is_guilty) {
        tt_plan_put(court->out, "group %s: all ranks entered %s%s\n",
                    text_of(court->group, "name").text, describe(open).text, site_of(open).text);
    }
    quote_errors(court);
}

static tutti_status_t hold_court(const tt_dump_verdict_t *verdict, tt_plan_text_t *out,
                                 const json_t *told, bool *is_guilty)
{
    const json_t *group = json_array_get(told, 0);
    const int size = (int)number_of(group, "size", 0);
    court_t court = {.verdict = verdict, .out = out, .told = told, .group = group, .size = size};
    court.seats = tt_alloc_array((size_t)size, sizeof *court.seats, "verdict");
    TT_TRY_ALLOC(court.seats);
    judge(&court);
    *is_guilty = *is_guilty || court.is_guilty;
    tt_free(court.seats);
    return TUTTI_OK;
}

static tutti_status_t judge_all(const tt_dump_verdict_t *verdict, tt_plan_text_t *out,
                                bool *is_guilty)
{
    const char *key;
    json_t *told;
    json_object_foreach(verdict->groups, key, told)
    {
        TT_TRY(hold_court(verdict, out, told, is_guilty));
    }
    if (!*is_guilty) {
        tt_plan_put(out, "no rank keeps another waiting, as far as %d files tell\n",
                    verdict->count);
    }
    return TUTTI_OK;
}

tutti_status_t tt_dump_verdict_say(const tt_dump_verdict_t *verdict, tutti_buffer_t *text,
                                   bool *is_guilty)
{
    char *memory = tt_alloc(TT_VERDICT_TEXT_BYTES, "verdict");
    TT_TRY_ALLOC(memory);
    tt_plan_text_t out = {memory, TT_VERDICT_TEXT_BYTES, 0};
    bool found = false;
    tutti_status_t status = judge_all(verdict, &out, &found);
    if (status >= 0) {
        status = tt_buffer_copy(tutti_text(memory), text);
        *is_guilty = found;
    }
    tt_free(memory);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------ */

tutti_status_t tt_dump_verdict_create(tt_dump_verdict_t **out)
{
    *out = tt_alloc(sizeof **out, "verdict");
    TT_TRY_ALLOC(*out);
    (*out)->groups = json_object();
    (*out)->ranks = json_object();
    return TUTTI_OK;
}

void tt_dump_verdict_release(tt_dump_verdict_t *verdict)
{
    if (verdict != NULL) {
        json_decref(verdict->groups);
        json_decref(verdict->ranks);
    }
    tt_free(verdict);
}

static tutti_status_t check(const char *name, const json_t *dump)
{
    const json_t *groups = json_object_get(dump, "groups");
    if (!is_text(dump, "format", "tutti-dump") || number_of(dump, "version", 0) != 1 ||
        number_of(dump, "rank", -1) < 0 || !json_is_array(groups)) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: no dump of a group, version 1", name);
    }
    size_t i;
    const json_t *group;
    json_array_foreach(groups, i, group)
    {
        const int64_t size = number_of(group, "size", 0);
        if (size < 1 || size > TT_VERDICT_RANKS || number_of(group, "rank", -1) < 0 ||
            number_of(group, "rank", -1) >= size ||
            json_array_size(json_object_get(group, "ranks")) != (size_t)size) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: group %zu is not one of 1 to %d ranks", name, i,
                           TT_VERDICT_RANKS);
        }
    }
    return TUTTI_OK;
}

/* To the list with this key, which is made for its first item. */
static bool append(json_t *index, phrase_t key, json_t *item)
{
    json_t *list = json_object_get(index, key.text);
    if (list == NULL) {
        list = json_array();
        if (json_object_set_new_nocheck(index, key.text, list) < 0) {
            return false;
        }
    }
    return json_array_append(list, item) == 0;
}

static tutti_status_t add_groups(tt_dump_verdict_t *verdict, const char *name, const json_t *groups)
{
    size_t i;
    json_t *group;
    json_array_foreach(groups, i, group)
    {
        if (!append(verdict->groups, key_of(group), group) ||
            !append(verdict->ranks, rank_key(group, number_of(group, "rank", 0)), group)) {
            return TT_FAIL(TUTTI_ERR_NOMEM, "%s: no memory for its groups", name);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_dump_verdict_add(tt_dump_verdict_t *verdict, const char *name, const void *data,
                                   size_t bytes)
{
    if (verdict->count == TT_VERDICT_DUMPS) {
        return TT_FAIL(TUTTI_ERR_ARG, "verdict: more than %d files", TT_VERDICT_DUMPS);
    }
    json_error_t error;
    json_t *dump = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    if (dump == NULL) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: line %d: %.120s", name, error.line, error.text);
    }
    tutti_status_t status = check(name, dump);
    status = status < 0 ? status : add_groups(verdict, name, json_object_get(dump, "groups"));
    verdict->count += status >= 0;
    json_decref(dump);
    return status;
}

static tutti_status_t add_file(tt_dump_verdict_t *verdict, const char *path)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    void *data = NULL;
    tutti_status_t status = TUTTI_OK;
    if (file.bytes > FILE_BYTES_MAX) {
        status = TT_FAIL(TUTTI_ERR_FORMAT, "%s: %llu bytes are too many for a dump", path,
                         (unsigned long long)file.bytes);
    } else {
        data = tt_alloc_raw((size_t)file.bytes + 1, "dump");
        status =
            data == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, data, (size_t)file.bytes);
    }
    if (status >= 0) {
        status = tt_dump_verdict_add(verdict, path, data, (size_t)file.bytes);
    }
    tt_free(data);
    tt_file_close(&file);
    return status;
}

tutti_status_t tutti_verdict(const char *const *paths, int count, tutti_buffer_t *text,
                             bool *is_guilty)
{
    TT_WANT("verdict", paths);
    TT_WANT("verdict", text);
    if (count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "verdict: want the files of at least one rank");
    }
    tt_dump_verdict_t *verdict;
    TT_TRY(tt_dump_verdict_create(&verdict));
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < count && status >= 0; i++) {
        status = add_file(verdict, paths[i]);
    }
    if (status >= 0) {
        status = tt_dump_verdict_say(verdict, text, is_guilty);
    }
    tt_dump_verdict_release(verdict);
    return status;
}
