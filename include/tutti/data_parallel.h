/**
 * @file data_parallel.h
 * Data parallelism inside one process: replicas of a module, each with threads of its own, share a
 * batch. For several processes or hosts, and for most things, take ddp.h.
 *
 * Example:
 *
 *     static tutti_status_t build(tutti_context_t *of, void *user, tutti_module_t **out)
 *     {
 *         return tutti_module_create(of, &tutti_mlp_layer, user, out);
 *     }
 *
 *     tutti_mlp_options_t options = {.width = 16, .hidden = 64};
 *     tutti_module_t *mlp, *model;
 *     TUTTI_CHECK(build(ctx, &options, &mlp));
 *     TUTTI_CHECK(tutti_data_parallel_create(mlp,
 *         &(tutti_data_parallel_options_t){.replicas = 2, .build = build, .user = &options},
 *         &model));
 *     tutti_tensor_t *rows = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(32, 16), -1, 1);
 *     tutti_backward(s, tutti_mean(s, tutti_forward(s, model, rows))); // gradients are in mlp's
 *
 * The wrapper is a module like any other, with the parameters and names of the one that it wraps.
 * Its forward cuts the inputs as torch.chunk does (scatter), brings the replicas up to date
 * (replicate), runs each on its chunk in its own thread (apply), and puts the results together
 * (gather). Parameters lie in one place: replicas read the original's memory, so to replicate them
 * costs nothing, but where they are computed on devices (options.devices): there each device gets a
 * copy of what has changed, chunks and results travel, and results and gradients are on the first
 * one. Backward runs all replicas at once, too.
 *
 * What depends on what:
 *
 * - Gradients of the replicas are added up in the canonical order, that of DDP's shards, and then
 *   given to the original: no bit depends on which thread was first, nor on options.threads. It
 *   does depend on the number of replicas.
 * - Replica i has the random numbers of shard r * replicas + i where the context's shard is r, so
 *   that with r = 0 they are those of DDP's shard i.
 * - With equal chunks the gradients of tutti_sum() over losses that each replica computed from its
 *   chunk, divided by the number of replicas, have the same bits as DDP's with as many shards. If
 *   that number is a power of two, so have those of a mean loss of the gathered results.
 * - Buffers (running statistics) are the original's when a forward begins; what replica 0 writes
 *   stays, what others write is lost. Everything else that modules keep stays in their replica.
 * - Hooks on saved tensors (autograd.h) see what the caller's thread saves, not what replicas do.
 *
 * Unlike torch.nn.DataParallel: the number of replicas is given, for results depend on it; where no
 * devices are given, sets of cores take their place; replicas are built by a function of yours;
 * inputs and outputs are tensors.
 */
#ifndef TUTTI_DATA_PARALLEL_H
#define TUTTI_DATA_PARALLEL_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_DATA_PARALLEL_MAX = 63 }; /**< replicas */

/**
 * Makes a module like the wrapped one, for a replica. Called by the thread that wraps, once for
 * each replica; what the values are does not matter.
 *
 * @param ctx   the replica's
 * @param out   owned by the caller
 * @return      a status; a failure fails the wrapping
 */
typedef tutti_status_t (*tutti_replica_build_t)(tutti_context_t *ctx, void *user,
                                                tutti_module_t **out);

typedef struct tutti_data_parallel_options {
    int replicas; /**< 1 to 63; there is no default, for gradients depend on it */
    int threads;  /**< compute threads of each; 0: its share of the allowed cores, at least 1 */
    int dim;      /**< along which batches are cut and results put together; may be negative */
    tutti_replica_build_t build;    /**< not needed for one replica, which is the module itself */
    void *user;                     /**< of build; must live until create returns */
    tutti_device_t *const *devices; /**< [replicas], borrowed: where each replica is computed; the
                                         module lies on the first one. NULL: on the host */
} tutti_data_parallel_options_t;

/**
 * Wrap a module. Its parameters and buffers are from now on those it has now; their values, dtypes
 * and requires_grad may change at any time.
 *
 * Each replica gets `threads` cores for itself where there are enough of them.
 *
 * @param module   retained; it stays usable by itself
 * @param options  borrowed
 * @param out      owned by the caller, to be released with tutti_module_release
 * @thread         the context's
 * @cost           starts replicas * threads threads; later memory: each replica has activations,
 *                 gradients and buffers of its own
 * @errors         ARG; MISMATCH (build makes another module: names the tensor), UNSUPPORTED (a
 *                 sync_batch_norm, an embedding with max_norm), NOMEM, those of build
 * @source         torch.nn.DataParallel
 */
TUTTI_API tutti_status_t tutti_data_parallel_create(tutti_module_t *module,
                                                    const tutti_data_parallel_options_t *options,
                                                    tutti_module_t **out);

/*
 * tutti_forward(s, model, x) and tutti_forward_many(s, model, …) run a wrapper: inputs of one
 * size along dim, of which each replica gets its chunks, and any number of outputs. With fewer
 * samples than replicas fewer replicas run; without samples the first one alone runs, on none.
 * Outputs that are scalars, such as losses, come back as a vector with an element for each replica
 * that ran. A failure in a replica is returned when all replicas have ended: "replica 1: …".
 */

/** Number of replicas. @thread any @errors none (0: it is no wrapper) */
TUTTI_API int tutti_data_parallel_replicas(tutti_module_t *model);

/** The wrapped module, borrowed. @thread any @errors none (NULL: model is no wrapper) */
TUTTI_API tutti_module_t *tutti_data_parallel_module(tutti_module_t *model);

/** Replica `index`, borrowed, for looking; NULL if there is none. @thread the context's
 *  @errors none */
TUTTI_API tutti_module_t *tutti_data_parallel_replica(tutti_module_t *model, int index);

/* ---- the four parts of a forward ------------------------------------------------------------ */

/**
 * Cut x into at most `count` views along a dimension: of ⌈size / count⌉ indices each, the last one
 * of what is left. Gradients pass.
 *
 * @param parts   out, [count], of which as many as returned are set; in scope s
 * @return        number of parts, 1 for no samples; 0 after a failure
 * @thread        the scope's
 * @errors        through the scope: ARG, NOMEM
 * @source        torch.nn.parallel.scatter, torch.chunk
 */
TUTTI_API int tutti_data_parallel_scatter(tutti_scope_t *s, tutti_tensor_t *x, int dim, int count,
                                          tutti_tensor_t **parts);

/**
 * Bring the replicas up to date: parameters become the original's own memory (nothing is copied),
 * buffers are copied (not the first replica's, which are the original's). Forward and apply do so.
 *
 * @thread  the context's
 * @cost    O(number of tensors), and the bytes of the buffers
 * @errors  ARG (no wrapper), NOMEM
 * @source  torch.nn.parallel.replicate
 */
TUTTI_API tutti_status_t tutti_data_parallel_replicate(tutti_module_t *model);

/**
 * Run replica i on parts[i] for all i < count, at once, each in its thread. Gradients pass, and
 * those of parameters are summed into the original's.
 *
 * @param parts    [count], of any sizes; count is at most the number of replicas
 * @param outputs  out, [count], in scope s; null tensors after a failure
 * @thread         the context's; returns when all have ended
 * @errors         through the scope: ARG, SHAPE, those of the module with the replica's number
 * @source         torch.nn.parallel.parallel_apply
 */
TUTTI_API void tutti_data_parallel_apply(tutti_scope_t *s, tutti_module_t *model,
                                         tutti_tensor_t *const *parts, int count,
                                         tutti_tensor_t **outputs);

/** Put tensors together along a dimension; scalars become a vector. @thread the scope's
 *  @errors through the scope: ARG, SHAPE, NOMEM @source torch.nn.parallel.gather */
TUTTI_API tutti_tensor_t *tutti_data_parallel_gather(tutti_scope_t *s, tutti_tensor_t *const *parts,
                                                     int count, int dim);

#ifdef __cplusplus
}
#endif

#endif
