/* Margins of one row's labels. Counts stand in the slope, and are negative where a class is a
 * target, so that it marks the targets, too. */
#include "core/kernel/loss/multilabel.h"
#include "core/kernel/vector.h"

enum { WIDTH = 16 };

/* The margins of one target, and how many there are. */
typedef struct {
    tt_v16_t margins, hits;
} found_t;

/* Up to TT_LANES classes; where there are fewer, the others count as targets. */
TT_INLINE tt_vf compare(found_t *found, int part, tt_vf lead, tt_vf x, tt_vf counts)
{
    const tt_vf margin = lead + x, one = tt_vone_if((counts >= 0.0f) & (margin > 0.0f));
    found->margins.part[part] += tt_vsel(one != 0.0f, margin, tt_vsplat(0.0f));
    found->hits.part[part] += one;
    return counts + one;
}

static found_t compare_all(const tt_real_t *x, tt_real_t *counts, size_t n, tt_real_t target)
{
    const tt_vf lead = tt_vsplat(1.0f - target);
    found_t found = {tt_v16_splat(0.0f), tt_v16_splat(0.0f)};
    for (size_t at = 0; at < n; at += TT_LANES) {
        const int part = (int)(at / TT_LANES % TT_PARTS);
        if (at + TT_LANES <= n) {
            tt_vstore(counts + at,
                      compare(&found, part, lead, tt_vload(x + at), tt_vload(counts + at)));
        } else {
            const tt_vf old = tt_vpad(tt_vload_n(counts + at, n - at), n - at, -1.0f);
            tt_vstore_n(counts + at, compare(&found, part, lead, tt_vload_n(x + at, n - at), old),
                        n - at);
        }
    }
    return found;
}

static size_t count_targets(const int64_t *targets, size_t n)
{
    size_t count = 0;
    while (count < n && targets[count] >= 0) {
        count++;
    }
    return count;
}

/* Counts become slopes; a target's count is one too low, by its mark. */
static void finish(tt_real_t *counts, size_t n)
{
    const tt_real_t size = (tt_real_t)n;
    for (size_t i = 0; i < n; i++) {
        counts[i] = (counts[i] < 0.0f ? counts[i] + 1.0f : counts[i]) / size;
    }
}

static void row(const tt_multilabel_t *job, size_t at)
{
    const size_t n = job->n;
    const tt_real_t *x = (const tt_real_t *)job->x + at * n;
    const int64_t *targets = job->targets + at * n;
    tt_real_t *counts = (tt_real_t *)job->slope + at * n, sum = 0.0f;
    const size_t count = count_targets(targets, n);
    memset(counts, 0, n * sizeof *counts);
    for (size_t k = 0; k < count; k++) {
        counts[targets[k]] = -1.0f;
    }
    for (size_t k = 0; k < count; k++) {
        const found_t found = compare_all(x, counts, n, x[targets[k]]);
        sum += tt_v16_sum(found.margins);
        counts[targets[k]] -= tt_v16_sum(found.hits);
    }
    finish(counts, n);
    ((tt_real_t *)job->loss)[at] = n == 0 ? 0.0f : sum / (tt_real_t)n;
}

extern const tt_multilabel_ops_t TT_ISA_NAME(tt_multilabel_ops);

const tt_multilabel_ops_t TT_ISA_NAME(tt_multilabel_ops) = {row};
