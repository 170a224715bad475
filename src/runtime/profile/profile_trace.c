/* A profile as a timeline in Chrome's trace format.
 *
 *     process   a rank
 *     thread    a lane: a thread of the rank's, or a stream; behind them lanes of calls, as many as
 *               are under way at once, for bars of one thread must not overlap
 *     counter   memory, where it has moved by a hundredth of the peak
 *     arrow     from a call to the same call of the next rank; from a send to its receive
 *
 * Times are in us since the first rank began, on the clocks that tt_told_align() brought together.
 *
 * Source: "Trace Event Format", the Chromium project: ph X, M, C, s, t, f.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile_parts.h"
#include "runtime/profile/profile_text.h"

enum { CALL_LANES = 16, FIRST_CALL_LANE = 1000 };

typedef struct {
    tt_byte_row_t *out;
    int64_t zero_ns;
} timeline_t;

static int64_t begin_of(const tutti_profile_t *profile)
{
    int64_t begin = INT64_MAX;
    for (int p = 0; p < profile->count; p++) {
        const int64_t ns = profile->processes[p].begin_ns + profile->processes[p].offset_ns;
        begin = ns < begin ? ns : begin;
    }
    return begin;
}

/* "ts":12.345 */
static void print_time(tt_byte_row_t *out, const char *key, int64_t ns)
{
    const int64_t whole = ns < 0 ? 0 : ns;
    tt_row_print(out, ",\"%s\":%" PRId64 ".%03d", key, whole / 1000, (int)(whole % 1000));
}

static void print_meta(tt_byte_row_t *out, const char *kind, int rank, int lane, const char *name)
{
    tt_row_print(out,
                 ",\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", kind,
                 rank, lane);
    tt_row_json(out, name);
    tt_row_print(out, "}}");
}

static void print_bar(const timeline_t *t, const char *name, const char *kind, int rank, int lane,
                      int64_t begin_ns, int64_t end_ns)
{
    tt_row_print(t->out, ",\n{\"name\":");
    tt_row_json(t->out, name);
    tt_row_print(t->out, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", kind, rank, lane);
    print_time(t->out, "ts", begin_ns - t->zero_ns);
    print_time(t->out, "dur", end_ns - begin_ns);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void print_event(const timeline_t *t, const tt_told_process_t *process,
                        const tt_told_lane_t *lane, int number, const tt_told_event_t *event)
{
    const tt_told_row_t *row = &lane->rows[event->row];
    const int64_t zero = process->begin_ns + process->offset_ns;
    print_bar(t, row->name, tt_profile_kind_name(row->kind), lane->rank, number,
              zero + event->begin_ns, zero + event->end_ns);
    if (row->module != 0) {
        tt_row_print(t->out, ",\"args\":{\"module\":");
        tt_row_json(t->out, tt_told_module(process, row->module));
        tt_row_print(t->out, "}");
    }
    tt_row_print(t->out, "}");
}

static void print_memory(const timeline_t *t, const tt_told_process_t *process,
                         const tt_told_lane_t *lane)
{
    const uint64_t least = process->peak_bytes / 100;
    uint64_t told = UINT64_MAX;
    for (size_t i = 0; i < lane->event_count; i++) {
        const uint64_t live = lane->events[i].live_bytes;
        if (told != UINT64_MAX && (live > told ? live - told : told - live) <= least) {
            continue;
        }
        told = live;
        tt_row_print(t->out, ",\n{\"name\":\"memory\",\"ph\":\"C\",\"pid\":%d", lane->rank);
        print_time(t->out, "ts",
                   process->begin_ns + process->offset_ns + lane->events[i].end_ns - t->zero_ns);
        tt_row_print(t->out, ",\"args\":{\"bytes\":%" PRIu64 "}}", live);
    }
}

static void print_process(const timeline_t *t, const tt_told_process_t *process)
{
    char name[512];
    snprintf(name, sizeof name, "rank %d on %s", process->rank, process->host);
    print_meta(t->out, "process_name", process->rank, 0, name);
    for (size_t i = 0; i < process->lane_count; i++) {
        const tt_told_lane_t *lane = &process->lanes[i];
        const int number = (int)i + 1;
        if (lane->rank != process->rank) {
            snprintf(name, sizeof name, "rank %d on %s", lane->rank, process->host);
            print_meta(t->out, "process_name", lane->rank, 0, name);
        }
        print_meta(t->out, "thread_name", lane->rank, number, lane->name);
        for (size_t k = 0; k < lane->event_count; k++) {
            print_event(t, process, lane, number, &lane->events[k]);
        }
        print_memory(t, process, lane);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* What is known of a call beside its place among those of its key. */
typedef struct {
    const tt_joint_t *joint;
    size_t index; /* among all joints */
    int lane;
} bar_t;

static int compare_bars(const void *a, const void *b)
{
    const tt_joint_t *x = ((const bar_t *)a)->joint, *y = ((const bar_t *)b)->joint;
    const int ranks = (x->lane->rank > y->lane->rank) - (x->lane->rank < y->lane->rank);
    return ranks != 0 ? ranks : (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Each into the first lane of its rank that is free; the last one takes what is left. */
static void find_lanes(bar_t *bars, size_t count)
{
    int64_t free_at[CALL_LANES] = {0};
    for (size_t i = 0; i < count; i++) {
        const tt_joint_t *joint = bars[i].joint;
        if (i == 0 || joint->lane->rank != bars[i - 1].joint->lane->rank) {
            for (int lane = 0; lane < CALL_LANES; lane++) {
                free_at[lane] = INT64_MIN;
            }
        }
        int lane = 0;
        while (lane < CALL_LANES - 1 && free_at[lane] > joint->begin_ns) {
            lane++;
        }
        free_at[lane] = joint->end_ns;
        bars[i].lane = lane;
    }
}

static void print_call(const timeline_t *t, const bar_t *bar)
{
    const tt_joint_t *joint = bar->joint;
    print_bar(t, joint->name, "call", joint->lane->rank, FIRST_CALL_LANE + bar->lane,
              joint->begin_ns, joint->end_ns);
    tt_row_print(t->out, ",\"args\":{\"group\":");
    tt_row_json(t->out, joint->call->group);
    tt_row_print(t->out, ",\"number\":%" PRIu64 ",\"bytes\":%" PRIu64 "}}", joint->call->number,
                 joint->call->bytes);
}

static void print_call_lanes(const timeline_t *t, const bar_t *bars, size_t count)
{
    int most = -1;
    for (size_t i = 0; i < count; i++) {
        const int rank = bars[i].joint->lane->rank;
        most = i > 0 && rank == bars[i - 1].joint->lane->rank ? most : -1;
        for (; most < bars[i].lane; most++) {
            print_meta(t->out, "thread_name", rank, FIRST_CALL_LANE + most + 1, "calls");
        }
    }
}

/* The arrow lies within its bar: at the begin of each, which Perfetto binds to. */
static void print_arrow(const timeline_t *t, const tt_joint_t *joint, int lane, char kind,
                        uint64_t id)
{
    tt_row_print(t->out,
                 ",\n{\"name\":\"call\",\"cat\":\"call\",\"ph\":\"%c\",\"id\":%" PRIu64
                 ",\"pid\":%d,\"tid\":%d",
                 kind, id, joint->lane->rank, FIRST_CALL_LANE + lane);
    print_time(t->out, "ts", joint->begin_ns - t->zero_ns);
    tt_row_print(t->out, kind == 'f' ? ",\"bp\":\"e\"}" : "}");
}

static int compare_begins(const void *a, const void *b)
{
    const bar_t *x = a, *y = b;
    return (x->joint->begin_ns > y->joint->begin_ns) - (x->joint->begin_ns < y->joint->begin_ns);
}

/* An arrow must not go back in time: from who came first to who came last. */
static void print_arrows(const timeline_t *t, const tt_joints_t *joints, const int *lanes,
                         bar_t *room)
{
    uint64_t id = 0;
    for (size_t begin = 0, end; begin < joints->count; begin = end) {
        end = tt_joints_end(joints, begin);
        for (size_t i = begin; i < end; i++) {
            room[i - begin] = (bar_t){&joints->joints[i], i, lanes[i]};
        }
        qsort(room, end - begin, sizeof *room, compare_begins);
        id += end - begin > 1;
        for (size_t i = 0; i < end - begin && end - begin > 1; i++) {
            print_arrow(t, room[i].joint, room[i].lane,
                        i == 0                 ? 's'
                        : i + 1 == end - begin ? 'f'
                                               : 't',
                        id);
        }
    }
}

static void print_bars(const timeline_t *t, const tt_joints_t *joints, bar_t *bars, int *lanes)
{
    for (size_t i = 0; i < joints->count; i++) {
        bars[i] = (bar_t){&joints->joints[i], i, 0};
    }
    qsort(bars, joints->count, sizeof *bars, compare_bars);
    find_lanes(bars, joints->count);
    print_call_lanes(t, bars, joints->count);
    for (size_t i = 0; i < joints->count; i++) {
        lanes[bars[i].index] = bars[i].lane;
        print_call(t, &bars[i]);
    }
    print_arrows(t, joints, lanes, bars);
}

static tutti_status_t print_calls(const timeline_t *t, const tutti_profile_t *profile)
{
    tt_joints_t joints;
    TT_TRY(tt_joints_find(profile, &joints));
    bar_t *bars = tt_alloc_array(joints.count + 1, sizeof *bars, "profile");
    int *lanes = tt_alloc_array(joints.count + 1, sizeof *lanes, "profile");
    const tutti_status_t status = bars == NULL || lanes == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0 && joints.count > 0) {
        print_bars(t, &joints, bars, lanes);
    }
    tt_free(bars);
    tt_free(lanes);
    tt_joints_free(&joints);
    return status;
}

tutti_status_t tutti_profile_trace(const tutti_profile_t *profile, tutti_buffer_t *text)
{
    TT_WANT("profile_trace", profile);
    TT_WANT("profile_trace", text);
    tt_byte_row_t out = {0};
    const timeline_t t = {&out, begin_of(profile)};
    tt_row_print(&out,
                 "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                 "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%d,\"args\":{}}",
                 profile->processes[0].rank);
    for (int p = 0; p < profile->count; p++) {
        print_process(&t, &profile->processes[p]);
    }
    const tutti_status_t status = print_calls(&t, profile);
    tt_row_print(&out, "\n]}\n");
    return tt_row_hand_over(&out, status, text);
}
