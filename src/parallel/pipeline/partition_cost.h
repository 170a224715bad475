/* What a cut costs: stages, boundaries, links. */
#ifndef TT_PARTITION_COST_H
#define TT_PARTITION_COST_H

#include <tutti/pipeline_partition.h>

/* A chain of layers, with sums from the first one. */
typedef struct {
    const tutti_pipeline_layer_t *layers;
    int count;
    double *seconds, *weights; /* [count + 1] of all layers before */
} tt_partition_chain_t;

/* ARG: a layer's number is negative or not finite. */
tutti_status_t tt_partition_chain_init(tt_partition_chain_t *chain,
                                       const tutti_pipeline_layer_t *layers, int count);
void tt_partition_chain_fini(tt_partition_chain_t *chain);

/* Of layers [first, end). */
double tt_partition_seconds(const tt_partition_chain_t *chain, int first, int end);

/* Of the boundary in front of layer `end`. */
double tt_partition_send(const tt_partition_chain_t *chain, int end, double bytes_per_second);

/* Of m that exchange the gradients of layers [first, end). */
double tt_partition_exchange(const tt_partition_chain_t *chain, int first, int end, int m,
                             double bytes_per_second);

/* The best cut into stages of one rank each, and with replicas. `links` are never NULL. */
tutti_status_t tt_partition_single(const tt_partition_chain_t *chain,
                                   const tutti_pipeline_partition_options_t *options,
                                   tutti_pipeline_partition_t *out);
tutti_status_t tt_partition_replicated(const tt_partition_chain_t *chain,
                                       const tutti_pipeline_partition_options_t *options,
                                       tutti_pipeline_partition_t *out);

#endif
