/* A profile as JSON: docs/formats/profile.md. */
#include <inttypes.h>
#include <stdio.h>

#include "runtime/profile/profile_parts.h"
#include "runtime/profile/profile_text.h"

static const char *const parts[TT_LINES_KINDS] = {
    [TT_LINES_OPERATIONS] = "operations",
    [TT_LINES_MODULES] = "modules",
    [TT_LINES_REGIONS] = "regions",
    [TT_LINES_CALLS] = "calls",
};

/* Without the point of the thread's locale. */
static void print_thousandths(tt_byte_row_t *out, double value)
{
    const int64_t thousandths = (int64_t)(value * 1000 + 0.5);
    tt_row_print(out, "%" PRId64 ".%03d", thousandths / 1000, (int)(thousandths % 1000));
}

static void print_line(tt_byte_row_t *out, const tt_line_t *line)
{
    const tt_amount_t *a = &line->amount;
    tt_row_print(out, "{\"name\":");
    tt_row_json(out, line->name);
    tt_row_print(out, ",\"kind\":\"%s\",\"calls\":%" PRIu64 ",\"total_ns\":%" PRId64,
                 tt_profile_kind_name(line->kind), a->calls, a->total_ns);
    tt_row_print(out, ",\"own_ns\":%" PRId64 ",\"longest_ns\":%" PRId64, a->own_ns, a->longest_ns);
    tt_row_print(out, ",\"flops\":%.0f,\"own_flops\":%.0f,\"bytes\":%" PRIu64, a->flops,
                 a->own_flops, a->bytes);
    if (line->kind == TT_PROFILE_CALL) {
        tt_row_print(out, ",\"waits\":%" PRIu64 ",\"waited_ns\":%" PRId64, line->waits.calls,
                     line->waits.own_ns);
    }
    tt_row_print(out, "}");
}

static void print_lines(tt_byte_row_t *out, const char *name, const tt_lines_t *lines)
{
    tt_row_print(out, ",\n\"%s\":[", name);
    for (size_t i = 0; i < lines->count; i++) {
        tt_row_print(out, i > 0 ? ",\n" : "\n");
        print_line(out, &lines->lines[i]);
    }
    tt_row_print(out, "]");
}

static void print_memory(tt_byte_row_t *out, const tt_told_process_t *p)
{
    tt_row_print(out, "\"peak_bytes\":%" PRIu64 ",\"alive\":[", p->peak_bytes);
    for (size_t i = 0; i < p->alive_count; i++) {
        tt_row_print(out, "%s{\"name\":", i > 0 ? "," : "");
        tt_row_json(out, p->alive[i].name);
        tt_row_print(out, ",\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", p->alive[i].blocks,
                     p->alive[i].bytes);
    }
    tt_row_print(out, "]");
}

static void print_process(tt_byte_row_t *out, const tt_told_process_t *p)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < p->lane_count; i++) {
        lost += p->lanes[i].lost;
    }
    tt_row_print(out, "{\"rank\":%d,\"threads\":%d,\"core_gflops\":", p->rank, p->threads);
    print_thousandths(out, p->peak_gflops);
    tt_row_print(out, ",\"host\":");
    tt_row_json(out, p->host);
    tt_row_print(out, ",\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64 ",\"lost_events\":%" PRIu64,
                 p->begin_ns + p->offset_ns, p->end_ns + p->offset_ns, lost);
    tt_row_print(out, ",");
    print_memory(out, p);
    tt_row_print(out, "}");
}

static tutti_status_t print_late(tt_byte_row_t *out, const tutti_profile_t *profile)
{
    tt_late_t late;
    TT_TRY(tt_late_find(profile, &late));
    tt_row_print(out, ",\n\"late\":[");
    for (int i = 0; i < late.count; i++) {
        tt_row_print(out, "%s{\"rank\":%d,\"last\":%" PRIu64 ",\"kept_others_ns\":%" PRId64 "}",
                     i > 0 ? "," : "", late.ranks[i].rank, late.ranks[i].last,
                     late.ranks[i].kept_ns);
    }
    tt_row_print(out, "]");
    tt_late_free(&late);
    return TUTTI_OK;
}

static tutti_status_t print_all(tt_byte_row_t *out, const tutti_profile_t *profile,
                                const tt_lines_t lines[TT_LINES_KINDS])
{
    tt_row_print(out, "{\"program\":");
    tt_row_json(out, profile->processes[0].program);
    tt_row_print(out, ",\"ranks\":%d,\"hosts\":%d,\"clock_doubt_ns\":%" PRId64,
                 tt_profile_ranks(profile), profile->host_count, profile->doubt_ns);
    tt_row_print(out, ",\"length_ns\":%" PRId64 ",\"measured_ns\":%" PRId64 ",\"peak_gflops\":",
                 tt_profile_length(profile), tt_lines_measured(lines));
    print_thousandths(out, tt_profile_peak(profile));
    for (int by = 0; by < TT_LINES_KINDS; by++) {
        print_lines(out, parts[by], &lines[by]);
    }
    TT_TRY(print_late(out, profile));
    tt_row_print(out, ",\n\"processes\":[");
    for (int p = 0; p < profile->count; p++) {
        tt_row_print(out, p > 0 ? ",\n" : "\n");
        print_process(out, &profile->processes[p]);
    }
    tt_row_print(out, "]}\n");
    return TUTTI_OK;
}

tutti_status_t tutti_profile_json(const tutti_profile_t *profile, tutti_buffer_t *text)
{
    TT_WANT("profile_json", profile);
    TT_WANT("profile_json", text);
    return tt_lines_print(profile, print_all, text);
}
