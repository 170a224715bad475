/**
 * @file context.h
 * What would otherwise be global (threads, seed, step), and scopes, which own the tensors that
 * operations make. Its modes: modes.h.
 *
 * Example:
 *
 *     tutti_context_t *ctx;
 *     TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx));
 *     tutti_scope_t *s;
 *     TUTTI_CHECK(tutti_scope_open(ctx, &s));
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
 *     printf("%g\n", tutti_tensor_item(tutti_sum(s, x)));
 *     TUTTI_CHECK(tutti_scope_close(s));
 *     tutti_context_release(ctx);
 */
#ifndef TUTTI_CONTEXT_H
#define TUTTI_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What one model computes with: threads, seed, step, shard, modes. One thread at a time. */
typedef struct tutti_context tutti_context_t;

/** Owns the tensors made in it, and keeps the first failure. Belongs to the thread using it. */
typedef struct tutti_scope tutti_scope_t;

/** A tensor; see tensor.h. */
typedef struct tutti_tensor tutti_tensor_t;

/** Where tensors lie and are computed; see devices.h. */
typedef struct tutti_device tutti_device_t;

typedef struct tutti_context_options {
    int threads;   /**< compute threads, with the caller; 0: TUTTI_THREADS, or the allowed cores */
    uint64_t seed; /**< of initial weights, dropout and everything else that is random */
    tutti_device_t *device; /**< of parameters and other tensors that are made without inputs; it is
                                 retained; NULL: the host */
} tutti_context_options_t;

/**
 * Make a context.
 *
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller, to be released with tutti_context_release
 * @thread         any
 * @cost           starts threads - 1 threads
 * @errors         ARG, NOMEM, IO (a thread cannot be started)
 */
TUTTI_API tutti_status_t tutti_context_create(const tutti_context_options_t *options,
                                              tutti_context_t **out);

/** Share a context. @thread any @errors none */
TUTTI_API tutti_context_t *tutti_context_retain(tutti_context_t *ctx);

/** Give a context back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_context_release(tutti_context_t *ctx);

/** Number of compute threads, with the caller. @thread any @errors none */
TUTTI_API int tutti_context_threads(const tutti_context_t *ctx);

/**
 * Call `piece` for each index below count, on all compute threads of the context, and return when
 * all calls have ended: for the forward of an operation of your own (op.h).
 *
 * Which thread makes which call is open, so that the same bits come out for any number of threads
 * if the count depends on shapes alone, each call writes what no other reads or writes, and sums
 * over pieces are added up in the order of the pieces afterwards. Calls must use no scope, so no
 * operations either; a call in which another loop is begun runs that one by itself.
 *
 * @param arg  handed on to `piece`
 * @thread     the context's
 * @cost       about 1 µs beside the calls; a thousand operations are worth a piece
 * @errors     ARG
 * @source     at::parallel_for
 */
TUTTI_API tutti_status_t tutti_parallel_for(tutti_context_t *ctx, size_t count,
                                            void (*piece)(void *arg, size_t index), void *arg);

/** The seed given at creation. @thread any @errors none */
TUTTI_API uint64_t tutti_context_seed(const tutti_context_t *ctx);

/** The optimizer step, part of every random stream's name; 0 at first. @thread owner @errors none
 */
TUTTI_API int64_t tutti_context_step(const tutti_context_t *ctx);
/** Set the step. @thread owner @errors none */
TUTTI_API void tutti_context_set_step(tutti_context_t *ctx, int64_t step);

/** The shard being computed, part of every random stream's name. @thread owner @errors none */
TUTTI_API int64_t tutti_context_shard(const tutti_context_t *ctx);
/** Set the shard. @thread owner @errors none */
TUTTI_API void tutti_context_set_shard(tutti_context_t *ctx, int64_t shard);

/** Somebody whose work goes on while a context computes, such as communication; a part of its
 *  owner. */
typedef struct tutti_idle {
    void (*call)(
        void *user); /**< between nodes of a backward, and while tutti_backward_wait() waits */
    void (*move)(void *user); /**< NULL, or also within operations: must not use the context */
    void *user;
    struct tutti_idle *next; /**< the context's */
} tutti_idle_t;

/** Let functions be called, in no order to rely on, until they are removed; those that were added
 *  already stay. @param idle borrowed until then; its call is not NULL @thread the context's, but
 *  not from one of them @errors none */
TUTTI_API void tutti_context_add_idle(tutti_context_t *ctx, tutti_idle_t *idle);

/** Remove functions; those that were not added, too. @thread the context's, but not from one of
 * them
 *  @errors none */
TUTTI_API void tutti_context_remove_idle(tutti_context_t *ctx, tutti_idle_t *idle);

/**
 * Open a scope. Tensors made in it live until it closes, unless they are retained.
 *
 * @param ctx  borrowed; must outlive the scope
 * @param out  owned by the caller, to be given to tutti_scope_close
 * @thread     the context's
 * @errors     NOMEM
 */
TUTTI_API tutti_status_t tutti_scope_open(tutti_context_t *ctx, tutti_scope_t **out);

/**
 * Open a scope inside another. A failure inside it is handed to the parent when it closes.
 *
 * @param parent  borrowed; to be closed after the new one
 * @thread        the context's
 * @errors        NOMEM
 */
TUTTI_API tutti_status_t tutti_scope_open_inside(tutti_scope_t *parent, tutti_scope_t **out);

/**
 * Close a scope: release its tensors and return the first failure inside it, whose text is then
 * tutti_last_error(). The scope is gone afterwards, whatever is returned.
 *
 * @thread  the context's
 * @errors  whatever failed inside; STATE if a scope opened inside this one is still open
 */
TUTTI_API tutti_status_t tutti_scope_close(tutti_scope_t *scope);

/**
 * Hand a tensor of this scope to its parent, so that it outlives this scope.
 *
 * @return  x; the parent's null tensor if this scope has failed or x is the result of a failure,
 *          this scope's if there is no parent
 * @thread  the context's
 * @errors  in the scope: STATE (it is not inside another)
 */
TUTTI_API tutti_tensor_t *tutti_scope_keep(tutti_scope_t *scope, tutti_tensor_t *x);

/** The first failure inside, TUTTI_OK so far. @thread the context's @errors none */
TUTTI_API tutti_status_t tutti_scope_status(const tutti_scope_t *scope);

/** The text of the first failure inside, "" so far. @thread the context's @errors none */
TUTTI_API const char *tutti_scope_error(const tutti_scope_t *scope);

/**
 * Record a failure, unless there is one already. Use it when code of yours inside a scope fails.
 *
 * @param status  negative; its text is taken from tutti_last_error()
 * @return        the scope's null tensor, so that `return tutti_scope_fail(s, status);` reads well
 * @thread        the context's
 * @errors        none
 */
TUTTI_API tutti_tensor_t *tutti_scope_fail(tutti_scope_t *scope, tutti_status_t status);

/** The context the scope was opened from. @thread any @errors none */
TUTTI_API tutti_context_t *tutti_scope_context(const tutti_scope_t *scope);

#ifdef __cplusplus
}
#endif

#endif
