/* Calls that belong together, and clocks. A collective is the same call on all ranks where group,
 * size and number are alike, and name and bytes do not speak against it; a message is the n-th one
 * from one rank to another with a tag, on either side.
 *
 * Clocks. The processes of a host have one clock. Two hosts are brought together by the clock of
 * the wall, which may be off by milliseconds, and then by calls that no rank ends before all have
 * begun: with the first host's rank a and the other one's rank b, and d what has to be added to the
 * other clock,
 *
 *     begin(b) + d <= end(a)   and   begin(a) <= end(b) + d
 *
 * so that d lies between the largest begin(a) - end(b) and the smallest end(a) - begin(b) of all
 * calls. It is set to the nearest point of the middle half; what is left is half the length of the
 * fastest call between the two. Cost: calls × log calls.
 *
 * Source: the happened-before relation, Lamport, "Time, Clocks, and the Ordering of Events in a
 * Distributed System" (1978).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/fnv.h"
#include "runtime/profile/profile_parts.h"

/* ---- calls that belong together -------------------------------------------------------------- */

static uint64_t hash_of(const char *name, const char *group, const uint64_t *numbers, size_t count)
{
    uint64_t hash = tt_fnv(TT_FNV_BEGIN, name, strlen(name) + 1);
    hash = tt_fnv(hash, group, strlen(group) + 1);
    hash = tt_fnv(hash, numbers, count * sizeof *numbers);
    return hash == 0 ? 1 : hash;
}

static bool is_message(const char *name)
{
    return strcmp(name, "send") == 0 || strcmp(name, "recv") == 0;
}

/* Of a message without its turn; a receive from anybody stands alone. */
static uint64_t key_of(const tt_told_call_t *call, const char *name)
{
    if (!is_message(name)) {
        return hash_of(name, call->group, (uint64_t[]){(uint64_t)call->size, call->number}, 2);
    }
    const bool sends = strcmp(name, "send") == 0;
    const uint64_t from = (uint64_t)(int64_t)(sends ? call->rank : call->peer);
    const uint64_t to = (uint64_t)(int64_t)(sends ? call->peer : call->rank);
    return call->peer < 0 ? 0
                          : hash_of("message", call->group,
                                    (uint64_t[]){(uint64_t)call->size, from, to, call->number}, 4);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* By key, side and time: so messages of one key are in turn. */
static int compare_turns(const void *a, const void *b)
{
    const tt_joint_t *x = a, *y = b;
    const int keys = (x->key > y->key) - (x->key < y->key);
    const int sides = keys != 0 ? keys : strcmp(x->name, y->name);
    return sides != 0 ? sides : compare_numbers(x->begin_ns, y->begin_ns);
}

static int compare_keys(const void *a, const void *b)
{
    const tt_joint_t *x = a, *y = b;
    const int keys = (x->key > y->key) - (x->key < y->key);
    const int ranks = keys != 0 ? keys : compare_numbers(x->call->rank, y->call->rank);
    return ranks != 0 ? ranks : strcmp(x->name, y->name);
}

/* The n-th of a key and a side gets a key of its own. */
static void number_messages(tt_joints_t *all)
{
    uint64_t turn = 0, last = 0;
    const char *side = "";
    for (size_t i = 0; i < all->count; i++) {
        tt_joint_t *joint = &all->joints[i];
        if (joint->key == 0 || !is_message(joint->name)) {
            continue;
        }
        turn = joint->key == last && strcmp(joint->name, side) == 0 ? turn + 1 : 0;
        last = joint->key;
        side = joint->name;
        joint->key = hash_of("turn", "", (uint64_t[]){joint->key, turn}, 2);
    }
}

static size_t count_calls(const tutti_profile_t *profile)
{
    size_t count = 0;
    for (int p = 0; p < profile->count; p++) {
        for (size_t i = 0; i < profile->processes[p].lane_count; i++) {
            count += profile->processes[p].lanes[i].call_count;
        }
    }
    return count;
}

static void add_lane(const tt_told_process_t *process, const tt_told_lane_t *lane, tt_joints_t *out)
{
    for (size_t i = 0; i < lane->call_count; i++) {
        const tt_told_call_t *call = &lane->calls[i];
        const char *name = lane->rows[call->row].name;
        const int64_t zero = process->begin_ns + process->offset_ns;
        out->joints[out->count++] = (tt_joint_t){call,
                                                 process,
                                                 lane,
                                                 name,
                                                 zero + call->begin_ns,
                                                 zero + call->end_ns,
                                                 key_of(call, name)};
    }
}

tutti_status_t tt_joints_find(const tutti_profile_t *profile, tt_joints_t *out)
{
    *out = (tt_joints_t){tt_alloc_array(count_calls(profile), sizeof *out->joints, "profile"), 0};
    TT_TRY_ALLOC(out->joints);
    for (int p = 0; p < profile->count; p++) {
        const tt_told_process_t *process = &profile->processes[p];
        for (size_t i = 0; i < process->lane_count; i++) {
            add_lane(process, &process->lanes[i], out);
        }
    }
    qsort(out->joints, out->count, sizeof *out->joints, compare_turns);
    number_messages(out);
    qsort(out->joints, out->count, sizeof *out->joints, compare_keys);
    return TUTTI_OK;
}

void tt_joints_free(tt_joints_t *joints)
{
    tt_free(joints->joints);
    *joints = (tt_joints_t){0};
}

size_t tt_joints_end(const tt_joints_t *joints, size_t begin)
{
    size_t end = begin + 1;
    while (end < joints->count && joints->joints[begin].key != 0 &&
           joints->joints[end].key == joints->joints[begin].key) {
        end++;
    }
    return end;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* What may be added to a host's clock. */
typedef struct {
    int64_t least, most;
} limits_t;

static void find_hosts(tutti_profile_t *profile)
{
    profile->host_count = 0;
    for (int p = 0; p < profile->count; p++) {
        tt_told_process_t *process = &profile->processes[p];
        process->host_index = -1;
        for (int q = 0; q < p && process->host_index < 0; q++) {
            const tt_told_process_t *other = &profile->processes[q];
            const bool is_same = process->boot[0] != 0 ? strcmp(process->boot, other->boot) == 0
                                                       : strcmp(process->host, other->host) == 0;
            process->host_index = is_same ? other->host_index : -1;
        }
        process->host_index = process->host_index < 0 ? profile->host_count++ : process->host_index;
    }
}

/* Clock of the wall less own clock: of the first process of each host, for all of it. */
static void set_by_wall(tutti_profile_t *profile, int host)
{
    const tt_told_process_t *first = &profile->processes[0], *of_host = NULL;
    for (int p = 0; p < profile->count; p++) {
        tt_told_process_t *process = &profile->processes[p];
        if (process->host_index != host) {
            continue;
        }
        of_host = of_host == NULL ? process : of_host;
        process->offset_ns =
            (of_host->wall_ns - of_host->begin_ns) - (first->wall_ns - first->begin_ns);
    }
}

/* Of a host's ranks in one call. */
typedef struct {
    int64_t last_begin_ns, first_end_ns;
} span_t;

static void add_to(span_t *span, const tt_joint_t *joint)
{
    span->last_begin_ns =
        joint->begin_ns > span->last_begin_ns ? joint->begin_ns : span->last_begin_ns;
    span->first_end_ns = joint->end_ns < span->first_end_ns ? joint->end_ns : span->first_end_ns;
}

/* By the ranks of one call that waited for the others. */
static void limit(limits_t *limits, const tt_joint_t *joints, size_t count, int host)
{
    span_t a = {INT64_MIN, INT64_MAX}, b = a;
    for (size_t i = 0; i < count; i++) {
        const int of = joints[i].process->host_index;
        if (joints[i].call->is_symmetric && (of == 0 || of == host)) {
            add_to(of == 0 ? &a : &b, &joints[i]);
        }
    }
    if (a.last_begin_ns == INT64_MIN || b.last_begin_ns == INT64_MIN) {
        return;
    }
    const int64_t least = a.last_begin_ns - b.first_end_ns, most = a.first_end_ns - b.last_begin_ns;
    limits->least = least > limits->least ? least : limits->least;
    limits->most = most < limits->most ? most : limits->most;
}

static limits_t find_limits(const tt_joints_t *joints, int host)
{
    limits_t limits = {INT64_MIN, INT64_MAX};
    for (size_t begin = 0, end; begin < joints->count; begin = end) {
        end = tt_joints_end(joints, begin);
        limit(&limits, &joints->joints[begin], joints->joints[begin].key == 0 ? 0 : end - begin,
              host);
    }
    return limits;
}

/* 0 if it lies in the middle half, which the way there and back of a call makes likely; else to
 * there. */
static int64_t nearest(limits_t limits)
{
    const int64_t quarter = (limits.most - limits.least) / 4;
    const int64_t low = limits.least + quarter, high = limits.most - quarter;
    return low > 0 ? low : high < 0 ? high : 0;
}

static void move_host(tutti_profile_t *profile, int host, int64_t by_ns)
{
    for (int p = 0; p < profile->count; p++) {
        if (profile->processes[p].host_index == host) {
            profile->processes[p].offset_ns += by_ns;
        }
    }
}

tutti_status_t tt_told_align(tutti_profile_t *profile)
{
    tt_joints_t joints;
    find_hosts(profile);
    for (int host = 1; host < profile->host_count; host++) {
        set_by_wall(profile, host);
    }
    TT_TRY(tt_joints_find(profile, &joints));
    profile->doubt_ns = 0;
    for (int host = 1; host < profile->host_count; host++) {
        const limits_t limits = find_limits(&joints, host);
        const bool is_known = limits.least != INT64_MIN && limits.least <= limits.most;
        if (is_known) {
            move_host(profile, host, nearest(limits));
        }
        const int64_t doubt = is_known ? limits.most - limits.least : -1;
        profile->doubt_ns = doubt < 0 || profile->doubt_ns < 0 ? -1
                            : doubt > profile->doubt_ns        ? doubt
                                                               : profile->doubt_ns;
    }
    tt_joints_free(&joints);
    return TUTTI_OK;
}
