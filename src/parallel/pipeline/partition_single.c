/* The best cut into stages of one rank each: best(k, j), the fastest slowest of k stages of the
 * first j layers, is the least over i of
 *
 *     max(best(k - 1, i), boundary in front of layer i, seconds of layers i … j - 1)
 *
 * A boundary travels over the innermost link that its two ranks share.
 *
 * Cost: layers² × stages.
 */
#include <math.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/partition_cost.h"

typedef struct {
    const tt_partition_chain_t *chain;
    const tutti_pipeline_partition_options_t *options;
    int stages;
    double *best; /* [stages + 1][layers + 1] */
    int *cut;     /* [stages + 1][layers + 1] the last stage's first layer */
} search_t;

static size_t index_of(const search_t *search, int stages, int layers)
{
    return (size_t)stages * ((size_t)search->chain->count + 1) + (size_t)layers;
}

/* Between stage - 1 and stage. */
static double speed_before(const search_t *search, int stage)
{
    const tutti_pipeline_partition_options_t *options = search->options;
    int from = (stage - 1) % options->ranks, to = stage % options->ranks;
    for (int i = 0; i + 1 < options->link_count; i++) {
        from /= options->links[i].count;
        to /= options->links[i].count;
        if (from == to) {
            return options->links[i].bytes_per_second;
        }
    }
    return options->links[options->link_count - 1].bytes_per_second;
}

/* Stages of one rank need no message between them. */
static double send_before(const search_t *search, int stage, int layer)
{
    return search->options->ranks > 1
               ? tt_partition_send(search->chain, layer, speed_before(search, stage))
               : 0;
}

static void search_last(search_t *search, int stages, int layers)
{
    const size_t here = index_of(search, stages, layers);
    search->best[here] = INFINITY;
    for (int first = stages - 1; first < layers; first++) {
        double slowest = tt_partition_seconds(search->chain, first, layers);
        if (stages > 1) {
            slowest = fmax(slowest, search->best[index_of(search, stages - 1, first)]);
            slowest = fmax(slowest, send_before(search, stages - 1, first));
        }
        if (slowest < search->best[here]) {
            search->best[here] = slowest;
            search->cut[here] = first;
        }
        if (stages == 1) {
            break;
        }
    }
}

static void trace(const search_t *search, tutti_pipeline_partition_t *out)
{
    int end = search->chain->count;
    for (int k = search->stages; k >= 1; k--) {
        const int first = search->cut[index_of(search, k, end)];
        out->stages[k - 1] = (tutti_pipeline_stage_t){
            .first = first,
            .layers = end - first,
            .replicas = 1,
            .seconds = tt_partition_seconds(search->chain, first, end),
            .send_seconds = k < search->stages ? send_before(search, k, end) : 0};
        end = first;
    }
}

static tutti_status_t run(search_t *search, tutti_pipeline_partition_t *out)
{
    const size_t size = index_of(search, search->stages + 1, 0);
    search->best = tt_alloc_array(size, sizeof *search->best, "cuts");
    search->cut = tt_alloc_array(size, sizeof *search->cut, "cuts");
    TT_TRY_ALLOC(search->best);
    TT_TRY_ALLOC(search->cut);
    tutti_pipeline_stage_t *stages =
        tt_alloc_array((size_t)search->stages, sizeof *stages, "stages");
    TT_TRY_ALLOC(stages);
    for (int k = 1; k <= search->stages; k++) {
        for (int layers = k; layers <= search->chain->count; layers++) {
            search_last(search, k, layers);
        }
    }
    *out = (tutti_pipeline_partition_t){
        .count = search->stages,
        .stages = stages,
        .seconds = search->best[index_of(search, search->stages, search->chain->count)]};
    trace(search, out);
    return TUTTI_OK;
}

tutti_status_t tt_partition_single(const tt_partition_chain_t *chain,
                                   const tutti_pipeline_partition_options_t *options,
                                   tutti_pipeline_partition_t *out)
{
    search_t search = {.chain = chain,
                       .options = options,
                       .stages = options->stages != 0 ? options->stages : options->ranks};
    const tutti_status_t status = run(&search, out);
    tt_free(search.best);
    tt_free(search.cut);
    return status;
}
