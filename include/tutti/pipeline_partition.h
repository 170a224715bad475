/**
 * @file pipeline_partition.h
 * Where to cut a model into the stages of a pipeline: the cut whose slowest stage or message is
 * fastest, from measured layers and the speed of links.
 *
 * Example:
 *
 *     const tutti_pipeline_layer_t layers[] = {
 *         {"embed", 0.010, 1 << 20, 40e6}, {"block.0", 0.020, 1 << 20, 10e6},
 *         {"block.1", 0.020, 1 << 20, 10e6}, {"head", 0.030, 1 << 16, 40e6}};
 *     tutti_pipeline_partition_t cut;
 *     TUTTI_CHECK(tutti_pipeline_partition(layers, 4,
 *                                          &(tutti_pipeline_partition_options_t){
 *                                              .ranks = 2, .bytes_per_second = 1e9},
 *                                          &cut));
 *     for (int i = 0; i < cut.count; i++) {
 *         printf("stage %d: %d layers from %s\n", i, cut.stages[i].layers,
 *                layers[cut.stages[i].first].name);
 *     }
 *     tutti_pipeline_partition_release(&cut);
 */
#ifndef TUTTI_PIPELINE_PARTITION_H
#define TUTTI_PIPELINE_PARTITION_H

#include <stdbool.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A layer, measured; layers are a chain. */
typedef struct tutti_pipeline_layer {
    const char *name;    /**< may be NULL; not looked at */
    double seconds;      /**< forward and backward of a micro-batch */
    double output_bytes; /**< of a micro-batch, to the next layer */
    double weight_bytes; /**< of its parameters */
} tutti_pipeline_layer_t;

/** A level of the machine: `count` of what is below it (ranks on the innermost level), and the
 *  speed between two of them. */
typedef struct tutti_pipeline_link {
    int count;
    double bytes_per_second; /**< where it is 0, messages take no time */
} tutti_pipeline_link_t;

/** Zero means default. */
typedef struct tutti_pipeline_partition_options {
    int ranks;               /**< 0: 1 */
    int stages;              /**< each on one rank, stage s on rank s % ranks; 0: `ranks` */
    bool replicate;          /**< stages may be on several ranks, which take turns; `stages` 0 */
    double bytes_per_second; /**< of all links; where it is 0, messages take no time */
    const tutti_pipeline_link_t *links; /**< [link_count], innermost first; their counts multiply to
                                         *   `ranks`; NULL: bytes_per_second */
    int link_count;
} tutti_pipeline_partition_options_t;

/** Some layers, next to each other. */
typedef struct tutti_pipeline_stage {
    int first, layers;   /**< the first layer's index, how many */
    int replicas;        /**< ranks that take its micro-batches in turns; 1: none but one */
    double seconds;      /**< of its layers, over its replicas */
    double send_seconds; /**< the output to the next stage, and its gradient back; over the replicas
                          *   of a level that has both stages */
} tutti_pipeline_stage_t;

/** Where a model is cut. */
typedef struct tutti_pipeline_stages_found {
    int count;
    tutti_pipeline_stage_t *stages; /**< [count] */
    double seconds; /**< of a micro-batch, in a full pipeline: of the slowest stage, message, or
                     *   exchange of replicas' gradients */
} tutti_pipeline_partition_t;

/**
 * Find the best cut. All ranks are used.
 *
 * A stage of m replicas takes max(seconds of its layers / m, 4 (m - 1) weight_bytes / (m speed)), a
 * boundary 2 output_bytes / speed. With several links, a level's stages are whole pipelines of the
 * level below.
 *
 * @param layers   borrowed, [count], in the order of the forward
 * @param options  borrowed
 * @param out      owned by the caller: tutti_pipeline_partition_release()
 * @thread any
 * @cost   layers² × stages without replicas; layers² × ranks² with them, times layers for each
 *         link but the last
 * @errors ARG: more stages than layers (says how many), a number out of range (names it); NOMEM
 * @source Narayanan et al., "PipeDream", 2019, section 3.1
 */
TUTTI_API tutti_status_t tutti_pipeline_partition(const tutti_pipeline_layer_t *layers, int count,
                                                  const tutti_pipeline_partition_options_t *options,
                                                  tutti_pipeline_partition_t *out);

/** Give it back. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_pipeline_partition_release(tutti_pipeline_partition_t *partition);

#ifdef __cplusplus
}
#endif

#endif
