/**
 * @file sync_batch_norm.h
 * Batch norm whose statistics are over the samples of all ranks, for batches that are small on
 * each.
 *
 * Example:
 *
 *     tutti_module_t *norm;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_sync_batch_norm_layer,
 *         &(tutti_sync_batch_norm_options_t){.norm = {.width = 3}, .group = world}, &norm));
 *     tutti_tensor_t *y = tutti_forward(s, norm, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 3)));
 *
 * A model that has batch norms already is converted by one call:
 *
 *     TUTTI_CHECK(tutti_convert_sync_batchnorm(net, world));
 *
 * While the context trains, forward is a call that all ranks of the group make together, and so is
 * backward: all ranks run the same modules in the same order. Ranks may have unlike numbers of
 * samples, also none. In evaluation no rank waits for another.
 *
 * Under DDP every rank must host exactly one shard: the statistics of a step are needed in the
 * middle of its forward, when a rank that hosts several has computed one. tutti_ddp_create() says
 * UNSUPPORTED otherwise. With as many shards, results do not depend on anything else.
 */
#ifndef TUTTI_SYNC_BATCH_NORM_H
#define TUTTI_SYNC_BATCH_NORM_H

#include <tutti/group.h>
#include <tutti/nn_layers.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_sync_batch_norm_options {
    tutti_batch_norm_layer_options_t norm;
    tutti_group_t *group; /**< retained; must not be used by another thread meanwhile */
} tutti_sync_batch_norm_options_t;

/** As tutti_batch_norm_layer, but mean and variance are those of all ranks' samples together,
 *  weighted by their count; gradients of x through them too. Those of weight and bias are of this
 *  rank's samples, as DDP wants them. @source torch.nn.SyncBatchNorm */
TUTTI_API extern const tutti_module_ops_t tutti_sync_batch_norm_layer;

/**
 * Turn every batch_norm in a module, itself too, into a sync_batch_norm, in place: parameters,
 * buffers, options and names stay. Those that are one already get the group. Call it before DDP
 * wraps the module.
 *
 * @param group  retained by each of them
 * @thread       the context's
 * @errors       ARG (no group), NOMEM; nothing is changed then
 * @source       torch.nn.SyncBatchNorm.convert_sync_batchnorm
 */
TUTTI_API tutti_status_t tutti_convert_sync_batchnorm(tutti_module_t *m, tutti_group_t *group);

#ifdef __cplusplus
}
#endif

#endif
