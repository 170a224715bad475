/* For tests of sources of units: ranks of one host, or of made-up ones, that each have their slices
 * of three flats.
 */
#ifndef TT_UNIT_SOURCE_TESTING_H
#define TT_UNIT_SOURCE_TESTING_H

#include "core/base/testing.h"

#include <string.h>

#include "parallel/ddp/on_hosts_testing.h"
#include "parallel/ddp/unit_source.h"

enum {
    TT_SOURCE_TIMEOUT_MS = 60000,
    TT_SOURCE_FLATS = 3,
    TT_SOURCE_STEPS = 3,
    TT_SOURCE_RANKS_MAX = 5
};

static const tt_unit_source_ops_t *const tt_sources_of_one_host[] = {&tt_unit_gather,
                                                                     &tt_unit_share};

/* The last rank has nothing of the last flat. */
static const int64_t tt_source_numels[TT_SOURCE_FLATS] = {4096, 33000, 300};

typedef struct {
    const tt_unit_source_ops_t *ops;
    uint64_t seed;
    tutti_dtype_t compute;
    double sums[TT_SOURCE_STEPS]; /* out, of everything that was read in a step */
    size_t heap_bytes[TT_SOURCE_RANKS_MAX];
    int64_t gathered[TT_SOURCE_RANKS_MAX],
        sent[TT_SOURCE_RANKS_MAX]; /* out, and the most that a rank held */
    size_t peaks[TT_SOURCE_RANKS_MAX];
} tt_source_job_t;

typedef struct {
    tt_member_t *m;
    tt_source_job_t *job;
    tt_unit_source_t source;
    tt_unit_flat_t flats[TT_SOURCE_FLATS];
    int64_t cuts[TT_SOURCE_FLATS][TT_SOURCE_RANKS_MAX + 1],
        counts[TT_SOURCE_FLATS][TT_SOURCE_RANKS_MAX];
} tt_source_rank_t;

static inline void tt_source_cut(tt_source_rank_t *r, int flat)
{
    const int ranks = flat == TT_SOURCE_FLATS - 1 && r->m->size > 1 ? r->m->size - 1 : r->m->size;
    for (int rank = 0; rank < r->m->size; rank++) {
        r->cuts[flat][rank + 1] = rank + 1 >= ranks
                                      ? tt_source_numels[flat]
                                      : tt_source_numels[flat] * (rank + 1) / ranks / 50 * 50;
        r->counts[flat][rank] = r->cuts[flat][rank + 1] - r->cuts[flat][rank];
    }
}

static inline void tt_source_open(tt_source_rank_t *r, tutti_context_t *ctx)
{
    for (int i = 0; i < TT_SOURCE_FLATS; i++) {
        tt_source_cut(r, i);
        r->flats[i] = (tt_unit_flat_t){.dtypes = {TUTTI_F32, i == 1 ? r->job->compute : TUTTI_F32},
                                       .numel = tt_source_numels[i],
                                       .cuts = r->cuts[i],
                                       .counts = r->counts[i]};
    }
    r->source = (tt_unit_source_t){
        .group = r->m->group, .ctx = ctx, .flats = r->flats, .flat_count = TT_SOURCE_FLATS};
    TT_EXPECT(r->m, tt_unit_source_open(r->job->ops, &r->source) == TUTTI_OK);
}

static inline float tt_source_value(int step, int flat, int64_t i)
{
    return (float)step + 0.001F * (float)(i % 1013) + 100 * (float)flat;
}

static inline void tt_source_write_own(tt_source_rank_t *r, int step)
{
    TT_EXPECT(r->m, r->source.ops->claim == NULL || r->source.ops->claim(&r->source) == TUTTI_OK);
    for (int f = 0; f < TT_SOURCE_FLATS; f++) {
        float *own = tutti_tensor_data(r->flats[f].own);
        for (int64_t i = 0; i < r->counts[f][r->m->rank]; i++) {
            own[i] = tt_source_value(step, f, r->cuts[f][r->m->rank] + i);
        }
        tt_tensor_touch(r->flats[f].own);
    }
    TT_EXPECT(r->m,
              r->source.ops->publish == NULL || r->source.ops->publish(&r->source) == TUTTI_OK);
}

#endif
