/**
 * @file recompute.h
 * Activation recomputation, also called activation checkpointing: what a module's forward saves
 * for its backward is not kept but computed again when backward needs it. A transformer's
 * blocks then cost the memory of one block and of their inputs, and about a third more time.
 *
 * Example:
 *
 *     tutti_module_t *block;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_transformer_block_layer,
 *         &(tutti_transformer_block_options_t){.width = 8, .heads = 2, .dropout = 0.1f}, &block));
 *     x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 8));
 *     tutti_tensor_t *y = tutti_recompute(s, block, x); // instead of tutti_forward(s, block, x)
 *     TUTTI_CHECK(tutti_backward(s, tutti_sum(s, y)));
 *
 * Not to be confused with a training's snapshots (snapshot.h), which are called checkpoints too.
 *
 * The gradients are those of tutti_forward(), bit by bit: the graph, the order of its execution and
 * the hooks are the same, and the second forward gets the first one's step, shard, random numbers
 * (dropout drops the same), autocast and mode. Running statistics move once. So it may be used
 * anywhere: under DDP, with shared parameters, under several backwards (each computes again), and
 * whether x needs a gradient or not. Recomputations nest: n levels keep the inputs of the outermost
 * ones alone, and run forward n times more. tutti_sequential_options_t and tutti_gpt_options_t have
 * an option `recompute` for each of their modules.
 *
 * Forward must do the same each time, and so must not depend on a state that it changes; what it
 * does beside its result it leaves out while tutti_context_is_recomputing(). Backward fails with
 * STATE, and names the module, if the second forward makes other operations, or if an input or a
 * parameter was written between the two.
 */
#ifndef TUTTI_RECOMPUTE_H
#define TUTTI_RECOMPUTE_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Run a module on one tensor, and again in backward.
 *
 * @param m  retained as long as the graph of the result
 * @param x  its values are kept
 * @return   as tutti_forward()
 * @thread   the scope's
 * @cost     in backward, one more forward; keeps x and the graph without its saved tensors
 * @errors   the module's, through the scope; from backward: the module's, and STATE as above
 * @source   torch.utils.checkpoint.checkpoint(use_reentrant=False); Chen et al., "Training Deep
 *           Nets with Sublinear Memory Cost" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_recompute(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

/** Run a module on several tensors, and again in backward. @param outputs out, [output_count], in
 *  scope s; null tensors after a failure @thread the scope's @errors as tutti_recompute */
TUTTI_API void tutti_recompute_many(tutti_scope_t *s, tutti_module_t *m,
                                    tutti_tensor_t *const *inputs, int input_count,
                                    tutti_tensor_t **outputs, int output_count);

#ifdef __cplusplus
}
#endif

#endif
