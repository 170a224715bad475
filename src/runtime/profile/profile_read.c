/* Reading the file of a process. Files are other people's: each line is checked for its form, each
 * number for its range; events name rows that there are. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "runtime/profile/profile_parts.h"

static const char what[] = "profile";

/* Sums and differences of these are numbers, too: nine years since a host began, and the clock of
 * the wall until 2116; more than any core does, times all threads. */
enum { THREADS_MAX = 1 << 20 };
static const int64_t NS_MAX = INT64_C(1) << 58, WALL_NS_MAX = INT64_C(1) << 62;
static const int64_t MFLOPS_MAX = INT64_MAX / 1000 / THREADS_MAX;

typedef struct {
    const char *path;
    char *text, *at; /* the line that is next; ends with 0 where its line's end was */
    int line;        /* that is looked at, from 1 */
} reader_t;

static tutti_status_t refuse(const reader_t *r, const char *wanted)
{
    return TT_FAIL(TUTTI_ERR_FORMAT, "profile %s, line %d: %s", r->path, r->line, wanted);
}

/* NULL: there is none. A line without an end is what a crash left. */
static char *next_line(reader_t *r)
{
    char *line = r->at, *end = strchr(line, '\n');
    if (end == NULL) {
        return NULL;
    }
    *end = 0;
    r->at = end + 1;
    r->line++;
    return line;
}

static tutti_status_t next_object(reader_t *r, json_t **out)
{
    const char *line = next_line(r);
    json_t *object = line == NULL ? NULL : json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        r->line += line == NULL;
        return refuse(r, line == NULL ? "the file ends here" : "want an object of JSON");
    }
    *out = object;
    return TUTTI_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* An integer in [0, max]. */
static tutti_status_t take_int(const reader_t *r, const json_t *value, int64_t max, int64_t *out)
{
    const int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    *out = number;
    return number >= 0 && number <= max ? TUTTI_OK : refuse(r, "want an integer in its range");
}

static tutti_status_t take_real(const reader_t *r, const json_t *value, double *out)
{
    *out = json_number_value(value);
    return json_is_number(value) && *out >= 0 && *out < 1e300
               ? TUTTI_OK
               : refuse(r, "want a number of at least 0");
}

static tutti_status_t take_text(const reader_t *r, const json_t *value, char **out)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        return refuse(r, "want a text");
    }
    *out = tt_strdup(text, what);
    TT_TRY_ALLOC(*out);
    return TUTTI_OK;
}

static tutti_status_t take_list(const reader_t *r, const json_t *value, size_t size, void **out)
{
    if (!json_is_array(value)) {
        return refuse(r, "want a list");
    }
    *out = tt_alloc_array(json_array_size(value), size, what);
    TT_TRY_ALLOC(*out);
    return TUTTI_OK;
}

static tutti_status_t take_field(const reader_t *r, const json_t *object, const char *key,
                                 int64_t max, int64_t *out)
{
    return take_int(r, json_object_get(object, key), max, out);
}

/* ---- the process ----------------------------------------------------------------------------- */

static tutti_status_t take_process(const reader_t *r, const json_t *o, tt_told_process_t *p)
{
    int64_t rank, size, threads, mflops;
    TT_TRY(take_field(r, o, "rank", 65535, &rank));
    TT_TRY(take_field(r, o, "world_size", 65536, &size));
    TT_TRY(take_field(r, o, "threads", THREADS_MAX, &threads));
    TT_TRY(take_field(r, o, "peak_mflops", MFLOPS_MAX, &mflops));
    TT_TRY(take_field(r, o, "begin_ns", NS_MAX, &p->begin_ns));
    TT_TRY(take_field(r, o, "end_ns", NS_MAX, &p->end_ns));
    TT_TRY(take_field(r, o, "wall_ns", WALL_NS_MAX, &p->wall_ns));
    TT_TRY(take_text(r, json_object_get(o, "host"), &p->host));
    TT_TRY(take_text(r, json_object_get(o, "boot"), &p->boot));
    TT_TRY(take_text(r, json_object_get(o, "program"), &p->program));
    p->rank = (int)rank;
    p->world_size = (int)size;
    p->threads = (int)threads;
    p->peak_gflops = (double)mflops / 1000;
    return p->end_ns >= p->begin_ns ? TUTTI_OK : refuse(r, "it ends before it begins");
}

/* Most bytes first. */
static int compare_memory(const void *a, const void *b)
{
    const tt_told_memory_t *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static tutti_status_t take_memory(const reader_t *r, const json_t *o, tt_told_process_t *p)
{
    const json_t *list = json_object_get(o, "alive");
    int64_t peak;
    TT_TRY(take_field(r, o, "peak_bytes", INT64_MAX, &peak));
    TT_TRY(take_list(r, list, sizeof *p->alive, (void **)&p->alive));
    p->peak_bytes = (uint64_t)peak;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        int64_t blocks, bytes;
        TT_TRY(take_int(r, json_array_get(one, 1), INT64_MAX, &blocks));
        TT_TRY(take_int(r, json_array_get(one, 2), INT64_MAX, &bytes));
        TT_TRY(take_text(r, json_array_get(one, 0), &p->alive[i].name));
        p->alive[i].blocks = (uint64_t)blocks;
        p->alive[i].bytes = (uint64_t)bytes;
        p->alive_count++;
    }
    qsort(p->alive, p->alive_count, sizeof *p->alive, compare_memory);
    return TUTTI_OK;
}

static tutti_status_t take_modules(const reader_t *r, const json_t *o, tt_told_process_t *p)
{
    const json_t *list = json_object_get(o, "modules");
    TT_TRY(take_list(r, list, sizeof *p->modules, (void **)&p->modules));
    for (size_t i = 0; i < json_array_size(list); i++) {
        TT_TRY(take_text(r, json_array_get(list, i), &p->modules[i]));
        p->module_count++;
    }
    return TUTTI_OK;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static tutti_status_t take_kind(const reader_t *r, const json_t *value, tt_profile_kind_t *out)
{
    const char *text = json_string_value(value);
    for (int kind = 0; kind < TT_PROFILE_KINDS && text != NULL; kind++) {
        if (strcmp(text, tt_profile_kind_name((tt_profile_kind_t)kind)) == 0) {
            *out = (tt_profile_kind_t)kind;
            return TUTTI_OK;
        }
    }
    return refuse(r, "want the kind of a row");
}

/* ["forward", "matmul", module, calls, total, own, longest, flops, own_flops, bytes] */
static tutti_status_t take_row(const reader_t *r, const json_t *list, size_t modules,
                               tt_told_row_t *row)
{
    tt_amount_t *a = &row->amount;
    int64_t module, calls, bytes;
    TT_TRY(take_kind(r, json_array_get(list, 0), &row->kind));
    TT_TRY(take_int(r, json_array_get(list, 2), (int64_t)modules, &module));
    TT_TRY(take_int(r, json_array_get(list, 3), INT64_MAX, &calls));
    TT_TRY(take_int(r, json_array_get(list, 4), INT64_MAX, &a->total_ns));
    TT_TRY(take_int(r, json_array_get(list, 5), INT64_MAX, &a->own_ns));
    TT_TRY(take_int(r, json_array_get(list, 6), INT64_MAX, &a->longest_ns));
    TT_TRY(take_real(r, json_array_get(list, 7), &a->flops));
    TT_TRY(take_real(r, json_array_get(list, 8), &a->own_flops));
    TT_TRY(take_int(r, json_array_get(list, 9), INT64_MAX, &bytes));
    row->module = (uint32_t)module;
    a->calls = (uint64_t)calls;
    a->bytes = (uint64_t)bytes;
    return take_text(r, json_array_get(list, 1), &row->name);
}

static tutti_status_t take_lane(const reader_t *r, const json_t *o, size_t modules,
                                tt_told_lane_t *lane)
{
    enum { MOST = 1 << 24 };
    int64_t rank, lost, events, calls;
    const json_t *rows = json_object_get(o, "rows");
    TT_TRY(take_text(r, json_object_get(o, "lane"), &lane->name));
    TT_TRY(take_field(r, o, "rank", 65535, &rank));
    TT_TRY(take_field(r, o, "lost", INT64_MAX, &lost));
    TT_TRY(take_field(r, o, "events", MOST, &events));
    TT_TRY(take_field(r, o, "calls", MOST, &calls));
    TT_TRY(take_list(r, rows, sizeof *lane->rows, (void **)&lane->rows));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        lane->row_count++;
        TT_TRY(take_row(r, json_array_get(rows, i), modules, &lane->rows[i]));
    }
    lane->rank = (int)rank;
    lane->lost = (uint64_t)lost;
    /* As many as there are lines for: a count alone must not take memory. */
    const size_t most = strlen(r->at) / 8 + 1;
    if ((size_t)events > most || (size_t)calls > most) {
        return refuse(r, "more events and calls are announced than the file has");
    }
    lane->events = tt_alloc_array((size_t)events, sizeof *lane->events, what);
    lane->calls = tt_alloc_array((size_t)calls, sizeof *lane->calls, what);
    lane->event_count = (size_t)events;
    lane->call_count = (size_t)calls;
    return lane->events == NULL || lane->calls == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
}

/* Numbers with a blank between them behind "e " or "c ", at least 0 but for the `signed_at`-th;
 * what follows them. NULL: it is no such line. */
static char *take_numbers(char *line, char kind, int64_t *out, int count, int signed_at)
{
    if (line == NULL || line[0] != kind || line[1] != ' ') {
        return NULL;
    }
    char *at = line + 2;
    for (int i = 0; i < count; i++) {
        char *end;
        errno = 0;
        out[i] = (int64_t)strtoll(at, &end, 10);
        const bool is_number =
            isdigit((unsigned char)*at) || (*at == '-' && isdigit((unsigned char)at[1]));
        if (!is_number || errno != 0 || (out[i] < 0 && i != signed_at) ||
            (*end != ' ' && *end != 0)) {
            return NULL;
        }
        at = end + (*end == ' ');
    }
    return at;
}

static tutti_status_t take_event(reader_t *r, const tt_told_lane_t *lane, tt_told_event_t *out)
{
    int64_t n[4];
    if (take_numbers(next_line(r), 'e', n, 4, -1) == NULL || n[0] >= (int64_t)lane->row_count ||
        n[2] < n[1] || n[2] > NS_MAX) {
        return refuse(r, "want an event: e ROW BEGIN END LIVE");
    }
    *out = (tt_told_event_t){(uint32_t)n[0], n[1], n[2], (uint64_t)n[3]};
    return TUTTI_OK;
}

static tutti_status_t take_call(reader_t *r, const tt_told_lane_t *lane, tt_told_call_t *out)
{
    enum { ROW, BEGIN, END, NUMBER, BYTES, RANK, SIZE, PEER, SYMMETRIC, COUNT };
    int64_t n[COUNT];
    const char *group = take_numbers(next_line(r), 'c', n, COUNT, PEER);
    if (group == NULL || n[ROW] >= (int64_t)lane->row_count || n[END] < n[BEGIN] ||
        n[END] > NS_MAX || n[SIZE] > 65536 || n[RANK] >= n[SIZE] || n[PEER] < -2 ||
        n[PEER] >= n[SIZE]) {
        return refuse(r,
                      "want a call: c ROW BEGIN END NUMBER BYTES RANK SIZE PEER SYMMETRIC GROUP");
    }
    *out = (tt_told_call_t){.row = (uint32_t)n[ROW],
                            .begin_ns = n[BEGIN],
                            .end_ns = n[END],
                            .number = (uint64_t)n[NUMBER],
                            .bytes = (uint64_t)n[BYTES],
                            .rank = (int)n[RANK],
                            .size = (int)n[SIZE],
                            .peer = (int)n[PEER],
                            .is_symmetric = n[SYMMETRIC] != 0};
    json_t *name = json_loads(group, JSON_DECODE_ANY, NULL);
    const tutti_status_t status = take_text(r, name, &out->group);
    json_decref(name);
    return status;
}

static tutti_status_t take_lines(reader_t *r, tt_told_lane_t *lane)
{
    for (size_t i = 0; i < lane->event_count; i++) {
        TT_TRY(take_event(r, lane, &lane->events[i]));
    }
    for (size_t i = 0; i < lane->call_count; i++) {
        TT_TRY(take_call(r, lane, &lane->calls[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t take_lanes(reader_t *r, tt_told_process_t *p)
{
    while (*r->at != 0) {
        json_t *object;
        TT_TRY(next_object(r, &object));
        tt_told_lane_t *grown = tt_realloc(p->lanes, (p->lane_count + 1) * sizeof *p->lanes, what);
        tutti_status_t status = grown == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
        if (grown != NULL) {
            p->lanes = grown;
            status = take_lane(r, object, p->module_count, &p->lanes[p->lane_count++]);
        }
        json_decref(object);
        TT_TRY(status);
        TT_TRY(take_lines(r, &p->lanes[p->lane_count - 1]));
    }
    return TUTTI_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static tutti_status_t take_all(reader_t *r, tt_told_process_t *p)
{
    static tutti_status_t (*const takes[])(const reader_t *, const json_t *,
                                           tt_told_process_t *) = {take_process, take_memory,
                                                                   take_modules};
    const char *first = next_line(r);
    if (first == NULL || strcmp(first, "tutti profile 1") != 0) {
        r->line = 1;
        return refuse(r, "want \"tutti profile 1\": it is no profile, or one of another version");
    }
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++) {
        json_t *object;
        TT_TRY(next_object(r, &object));
        const tutti_status_t status = takes[i](r, object, p);
        json_decref(object);
        TT_TRY(status);
    }
    return take_lanes(r, p);
}

tutti_status_t tt_told_read(const char *path, tt_told_process_t *out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    reader_t r = {.path = path, .text = tt_alloc_raw((size_t)file.bytes + 1, what)};
    tutti_status_t status =
        r.text == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, r.text, (size_t)file.bytes);
    if (status >= 0) {
        r.text[file.bytes] = 0;
        r.at = r.text;
        out->path = tt_strdup(path, what);
        status = out->path == NULL ? TUTTI_ERR_NOMEM : take_all(&r, out);
    }
    tt_free(r.text);
    tt_file_close(&file);
    return status;
}

static void free_lane(tt_told_lane_t *lane)
{
    for (size_t i = 0; i < lane->row_count; i++) {
        tt_free(lane->rows[i].name);
    }
    for (size_t i = 0; lane->calls != NULL && i < lane->call_count; i++) {
        tt_free(lane->calls[i].group);
    }
    tt_free(lane->name);
    tt_free(lane->rows);
    tt_free(lane->events);
    tt_free(lane->calls);
}

void tt_told_free(tt_told_process_t *process)
{
    for (size_t i = 0; i < process->lane_count; i++) {
        free_lane(&process->lanes[i]);
    }
    for (size_t i = 0; i < process->alive_count; i++) {
        tt_free(process->alive[i].name);
    }
    for (size_t i = 0; i < process->module_count; i++) {
        tt_free(process->modules[i]);
    }
    tt_free(process->path);
    tt_free(process->host);
    tt_free(process->boot);
    tt_free(process->program);
    tt_free(process->alive);
    tt_free(process->modules);
    tt_free(process->lanes);
    *process = (tt_told_process_t){0};
}

const char *tt_told_module(const tt_told_process_t *process, uint32_t module)
{
    return module == 0 ? "" : process->modules[module - 1];
}
