/* Where to cut a model: options and costs. The two searches have files of their own. */
#include <math.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/partition_cost.h"

enum { NUMBER_MAX = 1 << 14, LINKS_MAX = 16 };

/* ---- options ---- */

static tutti_status_t check_speed(double speed)
{
    return isfinite(speed) && speed >= 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pipeline: bytes_per_second is %g; want 0 or more", speed);
}

static tutti_status_t check_links(const tutti_pipeline_partition_options_t *options)
{
    int64_t ranks = 1;
    if (options->link_count < 1 || options->link_count > LINKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: link_count is %d; want 1 to %d",
                       options->link_count, LINKS_MAX);
    }
    for (int i = 0; i < options->link_count; i++) {
        TT_TRY(check_speed(options->links[i].bytes_per_second));
        const int count = options->links[i].count;
        if (count < 1 || count > NUMBER_MAX) {
            return TT_FAIL(TUTTI_ERR_ARG, "pipeline: link %d has a count of %d; want 1 to %d", i,
                           count, NUMBER_MAX);
        }
        ranks *= count;
        ranks = ranks <= NUMBER_MAX ? ranks : NUMBER_MAX + 1;
    }
    return ranks == options->ranks
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pipeline: the links are of %lld ranks; there are %d",
                         (long long)ranks, options->ranks);
}

static tutti_status_t check_options(const tutti_pipeline_partition_options_t *options, int count)
{
    if (count < 1 || count > NUMBER_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %d layers; want 1 to %d", count, NUMBER_MAX);
    }
    if (options->ranks < 1 || options->ranks > NUMBER_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %d ranks; want 1 to %d", options->ranks,
                       NUMBER_MAX);
    }
    TT_TRY(check_links(options));
    if (options->replicate && options->stages != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: stages is %d; with replicas the cut finds how many there are",
                       options->stages);
    }
    if (options->stages < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: stages is %d", options->stages);
    }
    const int stages = options->stages != 0 ? options->stages : options->ranks;
    if (!options->replicate && stages > count) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: %d stages of %d layers: a stage has at least one layer, so there "
                       "can be %d stages at most",
                       stages, count, count);
    }
    return TUTTI_OK;
}

static tutti_status_t find(const tt_partition_chain_t *chain,
                           const tutti_pipeline_partition_options_t *options,
                           tutti_pipeline_partition_t *out)
{
    return options->replicate ? tt_partition_replicated(chain, options, out)
                              : tt_partition_single(chain, options, out);
}

tutti_status_t tutti_pipeline_partition(const tutti_pipeline_layer_t *layers, int count,
                                        const tutti_pipeline_partition_options_t *options,
                                        tutti_pipeline_partition_t *out)
{
    TT_WANT("pipeline_partition", layers);
    TT_WANT("pipeline_partition", out);
    tutti_pipeline_partition_options_t all =
        options != NULL ? *options : (tutti_pipeline_partition_options_t){0};
    all.ranks = all.ranks != 0 ? all.ranks : 1;
    const tutti_pipeline_link_t one = {all.ranks, all.bytes_per_second};
    if (all.links == NULL) {
        all.links = &one;
        all.link_count = 1;
    }
    TT_TRY(check_options(&all, count));
    tt_partition_chain_t chain;
    tutti_status_t status = tt_partition_chain_init(&chain, layers, count);
    if (status >= 0) {
        status = find(&chain, &all, out);
    }
    tt_partition_chain_fini(&chain);
    return status;
}

void tutti_pipeline_partition_release(tutti_pipeline_partition_t *partition)
{
    if (partition != NULL) {
        tt_free(partition->stages);
        *partition = (tutti_pipeline_partition_t){0};
    }
}
