/* Who kept others waiting: of each call that no rank ends before all have begun, the rank that
 * began last. */
#include <stdlib.h>

#include "core/base/alloc.h"
#include "runtime/profile/profile_parts.h"

static tt_late_rank_t *rank_of(tt_late_t *late, int rank)
{
    int i = 0;
    while (i < late->count && late->ranks[i].rank != rank) {
        i++;
    }
    late->ranks[i].rank = rank;
    late->count += i == late->count;
    return &late->ranks[i];
}

static void judge(tt_late_t *late, const tt_joint_t *joints, size_t count)
{
    const tt_joint_t *last = &joints[0];
    int64_t kept_ns = 0;
    for (size_t i = 1; i < count; i++) {
        last = joints[i].begin_ns > last->begin_ns ? &joints[i] : last;
    }
    for (size_t i = 0; i < count; i++) {
        kept_ns += last->begin_ns - joints[i].begin_ns;
    }
    tt_late_rank_t *rank = rank_of(late, last->lane->rank);
    rank->last++;
    rank->kept_ns += kept_ns;
}

static int compare_kept(const void *a, const void *b)
{
    const tt_late_rank_t *x = a, *y = b;
    const int kept = (x->kept_ns < y->kept_ns) - (x->kept_ns > y->kept_ns);
    return kept != 0 ? kept : (x->rank > y->rank) - (x->rank < y->rank);
}

static size_t count_lanes(const tutti_profile_t *profile)
{
    size_t count = 0;
    for (int p = 0; p < profile->count; p++) {
        count += profile->processes[p].lane_count;
    }
    return count;
}

tutti_status_t tt_late_find(const tutti_profile_t *profile, tt_late_t *out)
{
    tt_joints_t joints;
    *out = (tt_late_t){tt_alloc_array(count_lanes(profile) + 1, sizeof *out->ranks, "profile"), 0};
    TT_TRY_ALLOC(out->ranks);
    const tutti_status_t status = tt_joints_find(profile, &joints);
    if (status < 0) {
        tt_late_free(out);
        return status;
    }
    for (size_t begin = 0, end; begin < joints.count; begin = end) {
        end = tt_joints_end(&joints, begin);
        if (end - begin > 1 && joints.joints[begin].call->is_symmetric) {
            judge(out, &joints.joints[begin], end - begin);
        }
    }
    tt_joints_free(&joints);
    qsort(out->ranks, (size_t)out->count, sizeof *out->ranks, compare_kept);
    return TUTTI_OK;
}

void tt_late_free(tt_late_t *late)
{
    tt_free(late->ranks);
    *late = (tt_late_t){0};
}
