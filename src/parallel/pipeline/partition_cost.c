/* What stages, boundaries and exchanges of a cut cost; see partition_cost.h. */
#include "parallel/pipeline/partition_cost.h"

#include <math.h>

#include "core/base/alloc.h"

static tutti_status_t check_layer(const tutti_pipeline_layer_t *layer, int index)
{
    const struct {
        const char *name;
        double value;
    } all[] = {{"seconds", layer->seconds},
               {"output_bytes", layer->output_bytes},
               {"weight_bytes", layer->weight_bytes}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!isfinite(all[i].value) || all[i].value < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "pipeline: layer %d, %s: %s is %g; want 0 or more", index,
                           layer->name != NULL ? layer->name : "", all[i].name, all[i].value);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_partition_chain_init(tt_partition_chain_t *chain,
                                       const tutti_pipeline_layer_t *layers, int count)
{
    *chain = (tt_partition_chain_t){.layers = layers, .count = count};
    const size_t sums = (size_t)count + 1;
    chain->seconds = tt_alloc_array(sums, sizeof(double), "sums of layers");
    chain->weights = tt_alloc_array(sums, sizeof(double), "sums of layers");
    TT_TRY_ALLOC(chain->seconds);
    TT_TRY_ALLOC(chain->weights);
    for (int i = 0; i < count; i++) {
        TT_TRY(check_layer(&layers[i], i));
        chain->seconds[i + 1] = chain->seconds[i] + layers[i].seconds;
        chain->weights[i + 1] = chain->weights[i] + layers[i].weight_bytes;
    }
    return TUTTI_OK;
}

void tt_partition_chain_fini(tt_partition_chain_t *chain)
{
    tt_free(chain->seconds);
    tt_free(chain->weights);
}

double tt_partition_seconds(const tt_partition_chain_t *chain, int first, int end)
{
    return chain->seconds[end] - chain->seconds[first];
}

double tt_partition_send(const tt_partition_chain_t *chain, int end, double bytes_per_second)
{
    return bytes_per_second > 0 ? 2 * chain->layers[end - 1].output_bytes / bytes_per_second : 0;
}

double tt_partition_exchange(const tt_partition_chain_t *chain, int first, int end, int m,
                             double bytes_per_second)
{
    const double bytes = chain->weights[end] - chain->weights[first];
    return bytes_per_second > 0 ? 4.0 * (m - 1) * bytes / (m * bytes_per_second) : 0;
}
