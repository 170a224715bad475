/* The best cut with replicas: PipeDream's dynamic program over the levels of the machine.
 *
 *     A(i, j, m)   the fastest slowest stage of layers i … j - 1 on m of what is below the level
 *     T(i, j, m)   one stage on all m: max(A' (i, j) / m, exchange of gradients among m)
 *     A'(i, j)     of the level below with all that it has; of a rank, its layers' seconds
 *
 *     A(i, j, m) = min of T(i, j, m) and, over all s and k < m,
 *                  max(A(i, s, m - k), boundary in front of s, T(s, j, k))
 *
 * The outermost level wants i = 0 alone.
 *
 * Cost: layers³ × m² for each level but the outermost, layers² × m² there; 16 bytes for each (i, j,
 * m).
 */
#include <math.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/partition_cost.h"

/* How the best is reached. */
typedef struct {
    double seconds;
    int cut;  /* the last stage's first layer */
    int last; /* what the last stage has */
} best_t;

typedef struct {
    const tt_partition_chain_t *chain;
    const tutti_pipeline_partition_options_t *options;
    best_t **levels; /* [link_count], each [firsts][layers + 1][m + 1] */
    tutti_pipeline_partition_t *out;
    double send; /* of the next stage that is put: to the one put before */
} search_t;

static bool is_outermost(const search_t *search, int level)
{
    return level + 1 == search->options->link_count;
}

static best_t *best_of(const search_t *search, int level, int first, int end, int m)
{
    const size_t ends = (size_t)search->chain->count + 1;
    const size_t counts = (size_t)search->options->links[level].count + 1;
    return &search->levels[level][((size_t)first * ends + (size_t)end) * counts + (size_t)m];
}

static double seconds_below(const search_t *search, int level, int first, int end)
{
    return level == 0
               ? tt_partition_seconds(search->chain, first, end)
               : best_of(search, level - 1, first, end, search->options->links[level - 1].count)
                     ->seconds;
}

/* T: one stage on m. */
static double one_stage(const search_t *search, int level, int first, int end, int m)
{
    const double speed = search->options->links[level].bytes_per_second;
    return fmax(seconds_below(search, level, first, end) / m,
                tt_partition_exchange(search->chain, first, end, m, speed));
}

static void search_last(search_t *search, int level, int first, int end, int m)
{
    const double speed = search->options->links[level].bytes_per_second;
    best_t best = {one_stage(search, level, first, end, m), first, m};
    for (int cut = first + 1; cut < end; cut++) {
        const double send = tt_partition_send(search->chain, cut, speed);
        for (int last = 1; last < m && send < best.seconds; last++) {
            const double before = best_of(search, level, first, cut, m - last)->seconds;
            const double slowest =
                fmax(fmax(before, send), one_stage(search, level, cut, end, last));
            if (slowest < best.seconds) {
                best = (best_t){slowest, cut, last};
            }
        }
    }
    *best_of(search, level, first, end, m) = best;
}

static void search_level(search_t *search, int level)
{
    const int firsts = is_outermost(search, level) ? 1 : search->chain->count;
    for (int first = 0; first < firsts; first++) {
        for (int end = first + 1; end <= search->chain->count; end++) {
            for (int m = 1; m <= search->options->links[level].count; m++) {
                search_last(search, level, first, end, m);
            }
        }
    }
}

/* ---- stages ---- */

typedef struct {
    int level, first, end, m;
    int replicas; /* of all this */
} part_t;

static void put_stage(search_t *search, const part_t *part)
{
    const int replicas = part->replicas * part->m;
    search->out->stages[search->out->count++] = (tutti_pipeline_stage_t){
        .first = part->first,
        .layers = part->end - part->first,
        .replicas = replicas,
        .seconds = tt_partition_seconds(search->chain, part->first, part->end) / replicas,
        .send_seconds = search->send};
    search->send = 0;
}

/* The stages of a part, from the last to the first. Levels are few, so that this may recur. */
static void trace(search_t *search, part_t part)
{
    const double speed = search->options->links[part.level].bytes_per_second;
    while (part.m > 0) {
        const best_t *best = best_of(search, part.level, part.first, part.end, part.m);
        part_t last = {part.level, best->cut, part.end, best->last, part.replicas};
        if (part.level == 0) {
            put_stage(search, &last);
        } else {
            last.level--;
            last.m = search->options->links[last.level].count;
            last.replicas *= best->last;
            trace(search, last);
        }
        part.end = best->cut;
        part.m -= best->last;
        if (part.m > 0) {
            search->send = tt_partition_send(search->chain, part.end, speed) / part.replicas;
        }
    }
}

static void reverse(tutti_pipeline_partition_t *out)
{
    for (int i = 0; i < out->count / 2; i++) {
        const tutti_pipeline_stage_t stage = out->stages[i];
        out->stages[i] = out->stages[out->count - 1 - i];
        out->stages[out->count - 1 - i] = stage;
    }
}

/* ---- all of it ---- */

static tutti_status_t make_levels(search_t *search)
{
    const size_t layers = (size_t)search->chain->count;
    search->levels = tt_alloc_array((size_t)search->options->link_count, sizeof *search->levels,
                                    "levels of a cut");
    TT_TRY_ALLOC(search->levels);
    for (int level = 0; level < search->options->link_count; level++) {
        const size_t firsts = is_outermost(search, level) ? 1 : layers;
        const size_t counts = (size_t)search->options->links[level].count + 1;
        search->levels[level] =
            tt_alloc_array(firsts * (layers + 1) * counts, sizeof(best_t), "cuts of a level");
        TT_TRY_ALLOC(search->levels[level]);
    }
    return TUTTI_OK;
}

static tutti_status_t run(search_t *search)
{
    TT_TRY(make_levels(search));
    tutti_pipeline_partition_t *out = search->out;
    const int ranks = search->options->ranks, layers = search->chain->count;
    out->stages = tt_alloc_array((size_t)(ranks < layers ? ranks : layers) + 1, sizeof *out->stages,
                                 "stages");
    TT_TRY_ALLOC(out->stages);
    for (int level = 0; level < search->options->link_count; level++) {
        search_level(search, level);
    }
    const int outermost = search->options->link_count - 1;
    const int m = search->options->links[outermost].count;
    out->seconds = best_of(search, outermost, 0, layers, m)->seconds;
    trace(search, (part_t){outermost, 0, layers, m, 1});
    reverse(out);
    return TUTTI_OK;
}

tutti_status_t tt_partition_replicated(const tt_partition_chain_t *chain,
                                       const tutti_pipeline_partition_options_t *options,
                                       tutti_pipeline_partition_t *out)
{
    tutti_pipeline_partition_t made = {0};
    search_t search = {.chain = chain, .options = options, .out = &made};
    const tutti_status_t status = run(&search);
    for (int level = 0; search.levels != NULL && level < options->link_count; level++) {
        tt_free(search.levels[level]);
    }
    tt_free(search.levels);
    if (status < 0) {
        tt_free(made.stages);
        return status;
    }
    *out = made;
    return TUTTI_OK;
}
