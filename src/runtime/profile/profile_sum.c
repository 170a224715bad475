/* Reading several files, and adding up their rows: by operation, module, region and call. */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/fnv.h"
#include "runtime/profile/profile_parts.h"
#include "runtime/profile/profile_text.h"

/* ---- all files ------------------------------------------------------------------------------- */

static int compare_ranks(const void *a, const void *b)
{
    const tt_told_process_t *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static tutti_status_t check_ranks(const tutti_profile_t *profile)
{
    for (int p = 1; p < profile->count; p++) {
        const tt_told_process_t *a = &profile->processes[p - 1], *b = &profile->processes[p];
        if (a->rank == b->rank) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "profiles %s and %s are both of rank %d: want those of "
                           "one run",
                           a->path, b->path, a->rank);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t read_all(const char *const *paths, int count, tutti_profile_t *profile)
{
    for (int i = 0; i < count; i++) {
        profile->count++;
        TT_TRY(tt_told_read(paths[i], &profile->processes[i]));
    }
    qsort(profile->processes, (size_t)count, sizeof *profile->processes, compare_ranks);
    TT_TRY(check_ranks(profile));
    return tt_told_align(profile);
}

tutti_status_t tutti_profile_load(const char *const *paths, int count, tutti_profile_t **out)
{
    TT_WANT("profile_load", paths);
    TT_WANT("profile_load", out);
    if (count <= 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "profile_load: %d files", count);
    }
    tutti_profile_t *profile = tt_alloc(sizeof *profile, "profile");
    TT_TRY_ALLOC(profile);
    profile->processes = tt_alloc_array((size_t)count, sizeof *profile->processes, "profile");
    const tutti_status_t status =
        profile->processes == NULL ? TUTTI_ERR_NOMEM : read_all(paths, count, profile);
    if (status < 0) {
        tutti_profile_release(profile);
        return status;
    }
    *out = profile;
    return TUTTI_OK;
}

void tutti_profile_release(tutti_profile_t *profile)
{
    if (profile != NULL) {
        for (int p = 0; p < profile->count; p++) {
            tt_told_free(&profile->processes[p]);
        }
        tt_free(profile->processes);
        tt_free(profile);
    }
}

int tt_profile_ranks(const tutti_profile_t *profile)
{
    int ranks = profile->count;
    for (int p = 0; p < profile->count; p++) {
        const int size = profile->processes[p].world_size;
        ranks = profile->count == 1 && size > ranks ? size : ranks;
    }
    return ranks;
}

static bool is_first_of_rank(const tt_told_process_t *process, size_t lane)
{
    size_t i = 0;
    while (process->lanes[i].rank != process->lanes[lane].rank) {
        i++;
    }
    return i == lane;
}

int tt_profile_ranks_shown(const tutti_profile_t *profile)
{
    int ranks = 0;
    for (int p = 0; p < profile->count; p++) {
        const tt_told_process_t *process = &profile->processes[p];
        int own = 0;
        for (size_t i = 0; i < process->lane_count; i++) {
            own += is_first_of_rank(process, i);
        }
        ranks += own > 1 ? own : 1;
    }
    return ranks;
}

int64_t tt_profile_length(const tutti_profile_t *profile)
{
    int64_t longest = 0;
    for (int p = 0; p < profile->count; p++) {
        const int64_t ns = profile->processes[p].end_ns - profile->processes[p].begin_ns;
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

double tt_profile_peak(const tutti_profile_t *profile)
{
    double most = 0;
    for (int p = 0; p < profile->count; p++) {
        const tt_told_process_t *process = &profile->processes[p];
        const double peak = process->peak_gflops * process->threads;
        most = peak > most ? peak : most;
    }
    return most;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Of numbers of files, which are at least 0; a sum ends where numbers do. */
static int64_t sum_of(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static void add(tt_amount_t *to, const tt_amount_t *from)
{
    to->calls = (uint64_t)sum_of((int64_t)to->calls, (int64_t)from->calls);
    to->bytes = (uint64_t)sum_of((int64_t)to->bytes, (int64_t)from->bytes);
    to->total_ns = sum_of(to->total_ns, from->total_ns);
    to->own_ns = sum_of(to->own_ns, from->own_ns);
    to->longest_ns = from->longest_ns > to->longest_ns ? from->longest_ns : to->longest_ns;
    to->flops += from->flops;
    to->own_flops += from->own_flops;
}

static bool is_wanted(tt_lines_by_t by, tt_profile_kind_t kind)
{
    switch (by) {
    case TT_LINES_OPERATIONS:
        return kind == TT_PROFILE_FORWARD || kind == TT_PROFILE_BACKWARD ||
               kind == TT_PROFILE_KERNEL;
    case TT_LINES_MODULES:
        return kind == TT_PROFILE_FORWARD || kind == TT_PROFILE_BACKWARD ||
               kind == TT_PROFILE_MODULE;
    case TT_LINES_REGIONS:
        return kind == TT_PROFILE_REGION;
    default:
        return kind == TT_PROFILE_CALL || kind == TT_PROFILE_WAIT;
    }
}

/* Lines by name and kind; of modules by path alone, of calls with what was waited for them. */
static tt_line_t key_of(const tt_told_process_t *process, const tt_told_row_t *row,
                        tt_lines_by_t by)
{
    tt_line_t line = {.name = row->name, .kind = row->kind, .module = ""};
    if (by == TT_LINES_MODULES) {
        line.name = line.module = tt_told_module(process, row->module);
        line.kind = TT_PROFILE_MODULE;
    } else if (by == TT_LINES_CALLS) {
        line.kind = TT_PROFILE_CALL;
    }
    return line;
}

typedef struct {
    tt_lines_t *lines;
    size_t capacity;
    uint32_t *places; /* of lines, + 1 */
    size_t place_count;
} adder_t;

static uint64_t hash_of(const tt_line_t *line)
{
    return tt_fnv(TT_FNV_BEGIN ^ (uint64_t)line->kind, line->name, strlen(line->name));
}

static void place(adder_t *adder, uint32_t line)
{
    uint64_t at = hash_of(&adder->lines->lines[line]);
    while (adder->places[at % adder->place_count] != 0) {
        at++;
    }
    adder->places[at % adder->place_count] = line + 1;
}

static tutti_status_t grow(adder_t *adder)
{
    enum { FIRST = 64 };
    if (adder->lines->count < adder->capacity) {
        return TUTTI_OK;
    }
    const size_t capacity = adder->capacity == 0 ? FIRST : 2 * adder->capacity;
    tt_line_t *lines = tt_realloc(adder->lines->lines, capacity * sizeof *lines, "profile");
    TT_TRY_ALLOC(lines);
    adder->lines->lines = lines;
    uint32_t *places = tt_alloc_array(2 * capacity, sizeof *places, "profile");
    TT_TRY_ALLOC(places);
    tt_free(adder->places);
    adder->places = places;
    adder->place_count = 2 * capacity;
    adder->capacity = capacity;
    for (size_t i = 0; i < adder->lines->count; i++) {
        place(adder, (uint32_t)i);
    }
    return TUTTI_OK;
}

static tutti_status_t line_of(adder_t *adder, tt_line_t key, tt_line_t **out)
{
    for (uint64_t at = hash_of(&key); adder->place_count > 0; at++) {
        const uint32_t found = adder->places[at % adder->place_count];
        if (found == 0) {
            break;
        }
        tt_line_t *line = &adder->lines->lines[found - 1];
        if (line->kind == key.kind && strcmp(line->name, key.name) == 0) {
            *out = line;
            return TUTTI_OK;
        }
    }
    TT_TRY(grow(adder));
    adder->lines->lines[adder->lines->count] = key;
    place(adder, (uint32_t)adder->lines->count);
    *out = &adder->lines->lines[adder->lines->count++];
    return TUTTI_OK;
}

static tutti_status_t add_row(adder_t *adder, const tt_told_process_t *process,
                              const tt_told_row_t *row, tt_lines_by_t by)
{
    tt_line_t *line;
    if (!is_wanted(by, row->kind) || (by == TT_LINES_MODULES && row->module == 0)) {
        return TUTTI_OK;
    }
    TT_TRY(line_of(adder, key_of(process, row, by), &line));
    line->module_ns =
        sum_of(line->module_ns, row->kind == TT_PROFILE_MODULE ? row->amount.own_ns : 0);
    add(by == TT_LINES_CALLS && row->kind == TT_PROFILE_WAIT ? &line->waits : &line->amount,
        &row->amount);
    return TUTTI_OK;
}

static tutti_status_t add_process(adder_t *adder, const tt_told_process_t *process,
                                  tt_lines_by_t by)
{
    for (size_t i = 0; i < process->lane_count; i++) {
        const tt_told_lane_t *lane = &process->lanes[i];
        for (size_t k = 0; k < lane->row_count; k++) {
            TT_TRY(add_row(adder, process, &lane->rows[k], by));
        }
    }
    return TUTTI_OK;
}

static int compare_lines(const void *a, const void *b)
{
    const tt_line_t *x = a, *y = b;
    const int by_time =
        (x->amount.own_ns < y->amount.own_ns) - (x->amount.own_ns > y->amount.own_ns);
    const int by_name = by_time != 0 ? by_time : strcmp(x->name, y->name);
    return by_name != 0 ? by_name : (int)x->kind - (int)y->kind;
}

static void free_lines(tt_lines_t *lines)
{
    tt_free(lines->lines);
    *lines = (tt_lines_t){0};
}

static tutti_status_t add_up(const tutti_profile_t *profile, tt_lines_by_t by, tt_lines_t *out)
{
    *out = (tt_lines_t){0};
    adder_t adder = {.lines = out};
    tutti_status_t status = TUTTI_OK;
    for (int p = 0; p < profile->count && status >= 0; p++) {
        status = add_process(&adder, &profile->processes[p], by);
    }
    tt_free(adder.places);
    if (status < 0) {
        free_lines(out);
        return status;
    }
    for (size_t i = 0; i < out->count; i++) {
        out->own_ns = sum_of(out->own_ns, out->lines[i].amount.own_ns);
    }
    if (out->count > 0) {
        qsort(out->lines, out->count, sizeof *out->lines, compare_lines);
    }
    return TUTTI_OK;
}

static void free_all(tt_lines_t lines[TT_LINES_KINDS])
{
    for (int by = 0; by < TT_LINES_KINDS; by++) {
        free_lines(&lines[by]);
    }
}

static tutti_status_t add_up_all(const tutti_profile_t *profile, tt_lines_t lines[TT_LINES_KINDS])
{
    tutti_status_t status = TUTTI_OK;
    for (int by = 0; by < TT_LINES_KINDS; by++) {
        lines[by] = (tt_lines_t){0};
        status = status < 0 ? status : add_up(profile, (tt_lines_by_t)by, &lines[by]);
    }
    if (status < 0) {
        free_all(lines);
    }
    return status;
}

tutti_status_t tt_lines_print(const tutti_profile_t *profile, tt_lines_print_fn_t print,
                              tutti_buffer_t *text)
{
    tt_byte_row_t out = {0};
    tt_lines_t lines[TT_LINES_KINDS];
    TT_TRY(add_up_all(profile, lines));
    const tutti_status_t status = print(&out, profile, lines);
    free_all(lines);
    return tt_row_hand_over(&out, status, text);
}

int64_t tt_lines_measured(const tt_lines_t lines[TT_LINES_KINDS])
{
    int64_t ns = sum_of(lines[TT_LINES_OPERATIONS].own_ns, lines[TT_LINES_REGIONS].own_ns);
    for (size_t i = 0; i < lines[TT_LINES_MODULES].count; i++) {
        ns = sum_of(ns, lines[TT_LINES_MODULES].lines[i].module_ns);
    }
    for (size_t i = 0; i < lines[TT_LINES_CALLS].count; i++) {
        ns = sum_of(ns, lines[TT_LINES_CALLS].lines[i].waits.own_ns);
    }
    return ns;
}
