/* A profile as a table for people. Shares are of all that was measured: own times of
 * operations, modules, regions and waits are the time of the threads that ran them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reals.h"
#include "core/base/units.h"
#include "runtime/profile/profile_parts.h"
#include "runtime/profile/profile_text.h"

enum { LINES_SHOWN = 30, NAME_COLUMNS = 34 };

/* ---- cells ----------------------------------------------------------------------------------- */

typedef struct {
    char text[TT_UNITS_TEXT_BYTES];
} cell_t;

static cell_t time_cell(int64_t ns)
{
    cell_t cell;
    tt_units_seconds((double)ns * 1e-9, cell.text);
    return cell;
}

static cell_t bytes_cell(uint64_t bytes)
{
    cell_t cell;
    tt_units_bytes(bytes, cell.text);
    return cell;
}

static cell_t share_cell(double part, double whole)
{
    cell_t cell = {"-"};
    if (whole > 0) {
        tt_units_percent(part / whole, cell.text);
    }
    return cell;
}

/* GFLOP/s, which flops per ns are. */
static double rate_of(double flops, int64_t ns)
{
    return ns > 0 ? flops / (double)ns : 0;
}

static cell_t rate_cell(double rate)
{
    cell_t cell = {"-"};
    if (rate > 0) {
        tt_format(cell.text, sizeof cell.text, rate < 10 ? "%.2f" : "%.1f", rate);
    }
    return cell;
}

/* What stands for a line that did more: "matmul backward". */
static void print_name(tt_byte_row_t *out, const tt_line_t *line)
{
    char name[2 * NAME_COLUMNS];
    const bool is_plain = line->kind == TT_PROFILE_FORWARD || line->kind == TT_PROFILE_REGION ||
                          line->kind == TT_PROFILE_CALL || line->kind == TT_PROFILE_MODULE;
    const int n = snprintf(name, sizeof name, "%s%s%s", line->name, is_plain ? "" : " ",
                           is_plain ? "" : tt_profile_kind_name(line->kind));
    /* The end of a path says more than its begin. */
    const bool is_long = n > NAME_COLUMNS;
    const int cut = is_long ? (n < (int)sizeof name ? n : (int)sizeof name - 1) - NAME_COLUMNS : 0;
    tt_row_print(out, "  %-*s", NAME_COLUMNS, name + (line->kind == TT_PROFILE_MODULE ? cut : 0));
}

/* ---- operations and regions ------------------------------------------------------------------ */

static void print_operations(tt_byte_row_t *out, const tutti_profile_t *profile,
                             const tt_lines_t *lines, int64_t all_ns)
{
    const double peak = tt_profile_peak(profile);
    tt_row_print(out, "\n  %-*s %9s %9s %7s %9s %7s %7s %10s\n", NAME_COLUMNS, "operation", "calls",
                 "time", "share", "a call", "GFLOP/s", "of peak", "bytes");
    for (size_t i = 0; i < lines->count && i < LINES_SHOWN; i++) {
        const tt_line_t *line = &lines->lines[i];
        const tt_amount_t *a = &line->amount;
        const double rate = rate_of(a->own_flops, a->own_ns);
        print_name(out, line);
        tt_row_print(out, " %9" PRIu64 " %9s %7s %9s %7s %7s %10s\n", a->calls,
                     time_cell(a->own_ns).text, share_cell((double)a->own_ns, (double)all_ns).text,
                     time_cell(a->total_ns / (int64_t)(a->calls > 0 ? a->calls : 1)).text,
                     rate_cell(rate).text, share_cell(rate, peak).text, bytes_cell(a->bytes).text);
    }
    if (lines->count > LINES_SHOWN) {
        tt_row_print(out, "  … and %zu more, which --json FILE has\n", lines->count - LINES_SHOWN);
    }
}

static void print_regions(tt_byte_row_t *out, const tt_lines_t *lines, int64_t all_ns)
{
    if (lines->count == 0) {
        return;
    }
    tt_row_print(out, "\n  %-*s %9s %9s %7s %9s %9s\n", NAME_COLUMNS, "region", "calls", "own time",
                 "share", "a call", "in all");
    for (size_t i = 0; i < lines->count && i < LINES_SHOWN; i++) {
        const tt_amount_t *a = &lines->lines[i].amount;
        print_name(out, &lines->lines[i]);
        tt_row_print(out, " %9" PRIu64 " %9s %7s %9s %9s\n", a->calls, time_cell(a->own_ns).text,
                     share_cell((double)a->own_ns, (double)all_ns).text,
                     time_cell(a->total_ns / (int64_t)(a->calls > 0 ? a->calls : 1)).text,
                     time_cell(a->total_ns).text);
    }
}

/* ---- modules --------------------------------------------------------------------------------- */

static bool is_below(const char *path, const char *parent)
{
    const size_t length = strlen(parent);
    return strncmp(path, parent, length) == 0 && (path[length] == 0 || path[length] == '.');
}

static int compare_paths(const void *a, const void *b)
{
    const tt_line_t *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int depth_of(const char *path)
{
    int depth = 0;
    for (; *path != 0; path++) {
        depth += *path == '.';
    }
    return depth;
}

/* With what ran in modules below it. */
static tt_amount_t sum_below(const tt_lines_t *lines, const char *path)
{
    tt_amount_t sum = {0};
    for (size_t i = 0; i < lines->count; i++) {
        if (is_below(lines->lines[i].name, path)) {
            sum.own_ns += lines->lines[i].amount.own_ns;
            sum.own_flops += lines->lines[i].amount.own_flops;
        }
    }
    return sum;
}

static void print_module(tt_byte_row_t *out, const tt_lines_t *lines, const char *path,
                         int64_t all_ns, double peak)
{
    const tt_amount_t sum = sum_below(lines, path);
    const char *last = strrchr(path, '.');
    const int depth = depth_of(path);
    const double rate = rate_of(sum.own_flops, sum.own_ns);
    char name[NAME_COLUMNS + 1];
    snprintf(name, sizeof name, "%*s%s", 2 * (depth < 8 ? depth : 8), "",
             last == NULL ? path : last + 1);
    tt_row_print(out, "  %-*s %9s %7s %7s %7s\n", NAME_COLUMNS, name, time_cell(sum.own_ns).text,
                 share_cell((double)sum.own_ns, (double)all_ns).text, rate_cell(rate).text,
                 share_cell(rate, peak).text);
}

static tutti_status_t print_modules(tt_byte_row_t *out, const tutti_profile_t *profile,
                                    const tt_lines_t *lines, int64_t all_ns)
{
    enum { DEPTH_SHOWN = 4 };
    if (lines->count == 0) {
        return TUTTI_OK;
    }
    const tt_line_t **sorted = tt_alloc_array(lines->count, sizeof *sorted, "profile");
    TT_TRY_ALLOC(sorted);
    for (size_t i = 0; i < lines->count; i++) {
        sorted[i] = &lines->lines[i];
    }
    qsort(sorted, lines->count, sizeof *sorted, compare_paths);
    tt_row_print(out, "\n  %-*s %9s %7s %7s %7s\n", NAME_COLUMNS, "module, with those in it",
                 "time", "share", "GFLOP/s", "of peak");
    for (size_t i = 0; i < lines->count; i++) {
        if (depth_of(sorted[i]->name) < DEPTH_SHOWN) {
            print_module(out, lines, sorted[i]->name, all_ns, tt_profile_peak(profile));
        }
    }
    tt_free(sorted);
    return TUTTI_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void print_calls(tt_byte_row_t *out, const tt_lines_t *lines)
{
    if (lines->count == 0) {
        return;
    }
    tt_row_print(out, "\n  %-*s %9s %10s %9s %9s %9s\n", NAME_COLUMNS, "call of a group", "calls",
                 "bytes", "under way", "waited", "GB/s");
    for (size_t i = 0; i < lines->count; i++) {
        const tt_line_t *line = &lines->lines[i];
        const tt_amount_t *a = &line->amount;
        print_name(out, line);
        tt_row_print(out, " %9" PRIu64 " %10s %9s %9s %9s\n", a->calls, bytes_cell(a->bytes).text,
                     time_cell(a->total_ns).text, time_cell(line->waits.own_ns).text,
                     rate_cell(rate_of((double)a->bytes, a->total_ns)).text);
    }
}

/* How long the others waited in calls for each rank, which came last. */
static tutti_status_t print_late(tt_byte_row_t *out, const tutti_profile_t *profile)
{
    tt_late_t late;
    TT_TRY(tt_late_find(profile, &late));
    for (int i = 0; i < late.count && late.ranks[i].last > 0; i++) {
        if (i == 0) {
            tt_row_print(out, "\n  %-*s %9s %9s\n", NAME_COLUMNS, "came last into calls", "calls",
                         "kept others");
        }
        tt_row_print(out, "  rank %-*d %9" PRIu64 " %9s\n", NAME_COLUMNS - 5, late.ranks[i].rank,
                     late.ranks[i].last, time_cell(late.ranks[i].kept_ns).text);
    }
    tt_late_free(&late);
    return TUTTI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const tt_told_process_t *largest(const tutti_profile_t *profile)
{
    const tt_told_process_t *most = &profile->processes[0];
    for (int p = 1; p < profile->count; p++) {
        most = profile->processes[p].peak_bytes > most->peak_bytes ? &profile->processes[p] : most;
    }
    return most;
}

static void print_memory(tt_byte_row_t *out, const tutti_profile_t *profile)
{
    enum { SHOWN = 8 };
    const tt_told_process_t *p = largest(profile);
    tt_row_print(out, "\n  %-*s %9s %9s\n", NAME_COLUMNS, "memory", "blocks", "bytes");
    tt_row_print(out, "  %-*s %9s %9s\n", NAME_COLUMNS, "at the peak", "",
                 bytes_cell(p->peak_bytes).text);
    for (size_t i = 0; i < p->alive_count && i < SHOWN; i++) {
        tt_row_print(out, "    %-*s %9" PRIu64 " %9s\n", NAME_COLUMNS - 2, p->alive[i].name,
                     p->alive[i].blocks, bytes_cell(p->alive[i].bytes).text);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void print_head(tt_byte_row_t *out, const tutti_profile_t *profile)
{
    const tt_told_process_t *first = &profile->processes[0];
    const int shown = tt_profile_ranks_shown(profile);
    tt_row_print(out, "%s: %d rank%s of %d, %s; %d thread%s each, one core at best %.1f GFLOP/s\n",
                 first->program, shown, shown == 1 ? "" : "s", tt_profile_ranks(profile),
                 time_cell(tt_profile_length(profile)).text, first->threads,
                 first->threads == 1 ? "" : "s", first->peak_gflops);
    if (profile->host_count > 1 && profile->doubt_ns >= 0) {
        tt_row_print(out, "%d hosts, whose clocks agree to %s\n", profile->host_count,
                     time_cell(profile->doubt_ns).text);
    } else if (profile->host_count > 1) {
        tt_row_print(out,
                     "%d hosts, whose clocks are set by the wall's alone: no call that all "
                     "their ranks wait in says more\n",
                     profile->host_count);
    }
}

static void print_lost(tt_byte_row_t *out, const tutti_profile_t *profile)
{
    uint64_t lost = 0;
    for (int p = 0; p < profile->count; p++) {
        for (size_t i = 0; i < profile->processes[p].lane_count; i++) {
            lost += profile->processes[p].lanes[i].lost;
        }
    }
    if (lost > 0) {
        tt_row_print(out,
                     "\n  the timeline ends before the run does: %" PRIu64
                     " events had no room there; the sums above hold all\n",
                     lost);
    }
}

static tutti_status_t print_all(tt_byte_row_t *out, const tutti_profile_t *profile,
                                const tt_lines_t lines[TT_LINES_KINDS])
{
    const int64_t all_ns = tt_lines_measured(lines);
    print_head(out, profile);
    print_operations(out, profile, &lines[TT_LINES_OPERATIONS], all_ns);
    print_regions(out, &lines[TT_LINES_REGIONS], all_ns);
    TT_TRY(print_modules(out, profile, &lines[TT_LINES_MODULES], all_ns));
    print_calls(out, &lines[TT_LINES_CALLS]);
    TT_TRY(print_late(out, profile));
    print_memory(out, profile);
    print_lost(out, profile);
    return TUTTI_OK;
}

tutti_status_t tutti_profile_table(const tutti_profile_t *profile, tutti_buffer_t *text)
{
    TT_WANT("profile_table", profile);
    TT_WANT("profile_table", text);
    return tt_lines_print(profile, print_all, text);
}
