/**
 * @file pipeline_measure.h
 * What the layers of a model cost: times and bytes of each, measured, as a cut
 * (pipeline_partition.h) and a simulation (pipeline.h) take them.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_gpt_layer, NULL, &net));
 *     tutti_layers_t layers; // of a micro-batch x; rank 0 measures, and all are told
 *     TUTTI_CHECK(tutti_measure_layers(ctx, net, world,
 *                                      &(tutti_measure_options_t){.inputs = &x, .input_count = 1},
 *                                      &layers));
 *     tutti_pipeline_partition_t cut;
 *     const tutti_pipeline_partition_options_t two = {.ranks = 2};
 *     TUTTI_CHECK(tutti_pipeline_partition(layers.layers, layers.count, &two, &cut));
 *     printf("stage 1 begins with %s\n", layers.layers[cut.stages[1].first].name);
 *     tutti_pipeline_costs_t costs[2]; // of the two stages, for tutti_pipeline_simulate()
 *     TUTTI_CHECK(tutti_layers_stage_costs(&layers, &cut, costs));
 *     tutti_pipeline_partition_release(&cut);
 *     tutti_layers_release(&layers);
 *     tutti_module_release(net);
 */
#ifndef TUTTI_PIPELINE_MEASURE_H
#define TUTTI_PIPELINE_MEASURE_H

#include <tutti/pipeline_partition.h>
#include <tutti/pipeline_run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Of a micro-batch; zero means default. The same on every rank. */
typedef struct tutti_measure_options {
    tutti_tensor_t *const *inputs; /**< [input_count], on the rank that measures */
    int input_count;
    tutti_tensor_t *const *targets; /**< [target_count], if there is a loss */
    int target_count;
    tutti_pipeline_loss_t loss; /**< its cost is the last layer's; NULL: none is computed */
    void *loss_user;
    bool recompute; /**< as tutti_pipeline_run_options_t */
    int repeats;    /**< passes that count, behind one that does not; the least times do. 0: 5 */
} tutti_measure_options_t;

/** The layers of a module, in the order of the forward. */
typedef struct tutti_layers {
    int count;
    tutti_pipeline_layer_t *layers; /**< [count], with names: those of the parts of a pipeline */
    tutti_pipeline_costs_t *costs;  /**< [count], of each alone: seconds of F, I, W and B, and bytes
                                     *   from F to B (activation) and from I to W (pending). message
                                     *   and step are 0 */
} tutti_layers_t;

/**
 * Measure each part of a module: its forward, its backward whole and in two turns.
 *
 * What a pipeline would cut is measured (pipeline_run.h), in passes forward and backward over the
 * whole module, as in a step. Nothing of a training changes: gradients, buffers and random numbers
 * are as before.
 *
 * @param ctx      of the module
 * @param module   of which this rank has all values
 * @param group    whose rank 0 measures, and tells the others, so that all find the same cut; NULL:
 *                 this rank alone
 * @param options  borrowed
 * @param out      owned by the caller: tutti_layers_release()
 * @thread         the context's; blocks until rank 0 is done
 * @cost           2 (repeats + 1) steps of the module, its activations and gradients, and a copy
 *                 of its buffers; a broadcast of 72 bytes for each layer
 * @errors         on all ranks: ARG (no inputs, repeats, a tensor that no part has), STATE (a
 *                 parameter is dealt out by DDP or a pipeline, or its gradients are averaged by
 *                 DDP, or heard of by tutti_tensor_on_accumulate(): measure before), UNSUPPORTED (a
 *                 part by tensor parallelism, or on meta), NOMEM; those of the modules and of the
 *                 loss; PEER, TIMEOUT, ABORTED
 * @source         Narayanan et al., "PipeDream", 2019, section 3.1
 */
TUTTI_API tutti_status_t tutti_measure_layers(tutti_context_t *ctx, tutti_module_t *module,
                                              tutti_group_t *group,
                                              const tutti_measure_options_t *options,
                                              tutti_layers_t *out);

/** What the stages of a cut cost, sums over their layers, to simulate a schedule of them. @param
 *  cut of these layers @param costs out, [cut->count] @thread any @errors ARG (a cut of other
 *  layers) */
TUTTI_API tutti_status_t tutti_layers_stage_costs(const tutti_layers_t *layers,
                                                  const tutti_pipeline_partition_t *cut,
                                                  tutti_pipeline_costs_t *costs);

/** Give it back. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_layers_release(tutti_layers_t *layers);

#ifdef __cplusplus
}
#endif

#endif
