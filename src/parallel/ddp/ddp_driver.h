/* What somebody needs to know of DDP who runs the backwards of a shard in parts, such as a
 * pipeline.
 */
#ifndef TT_DDP_DRIVER_H
#define TT_DDP_DRIVER_H

#include <tutti/ddp.h>

#include "core/base/fail.h"

/* It says by tutti_ddp_no_sync() which gradients are the last ones of a shard. */
typedef struct tt_ddp_driver tt_ddp_driver_t;
struct tt_ddp_driver {
    /* A step begins: gradients of the one before are forgotten, and parameters are copied, behind
     * it. */
    tutti_status_t (*begin)(tt_ddp_driver_t *driver);

    /* The step ends here with that, whose text is tutti_last_error(): returns how it ends, on this
     * rank and on those that the driver knows. */
    tutti_status_t (*finish)(tt_ddp_driver_t *driver, tutti_status_t status);

    void (*forget)(tt_ddp_driver_t *driver); /* the ddp is released */

    /* Shards are under way at once: it says which buffers are whose (tt_ddp_restart_buffer()). */
    bool moves_buffers;
};

/* Between steps; NULL: none any more. Errors: STATE, UNSUPPORTED. */
tutti_status_t tt_ddp_set_driver(tutti_ddp_t *ddp, tt_ddp_driver_t *driver);

/* Whether a ddp averages x, whatever its stage. */
bool tt_ddp_has(const tutti_tensor_t *x);

/* Whether other replicas go on, as far as is known; does not wait. */
tutti_status_t tt_ddp_check_ranks(const tutti_ddp_t *ddp);

/* How this rank's step has fared, and those of its replicas: the same failure on all of them. */
tutti_status_t tt_ddp_agree(const tutti_ddp_t *ddp, tutti_status_t status);

/* What the first replica gives, as tt_group_hear_first(). */
tutti_status_t tt_ddp_hear_first(const tutti_ddp_t *ddp, const void *mine, size_t bytes,
                                 void *first);

/* Whether shards compute with a 16-bit copy of x, a parameter of the module. */
bool tt_ddp_rounds(const tutti_ddp_t *ddp, const tutti_tensor_t *x);

/* Whether the user said tutti_ddp_no_sync(): more is added to all gradients of the shard. */
bool tt_ddp_is_held(const tutti_ddp_t *ddp);

/* Whether a step is under way. */
bool tt_ddp_is_in_step(const tutti_ddp_t *ddp);

/* What a shard weighs, as the user says it. Errors: ARG, STATE (shards are even). */
tutti_status_t tt_ddp_check_weight(const tutti_ddp_t *ddp, int64_t weight);

/* The next shard of this rank: gradients of the one before are complete. Weight 0: it has no data.
 * Leaves the context's shard as tutti_ddp_next_shard() does. */
tutti_status_t tt_ddp_begin_shard(tutti_ddp_t *ddp, int64_t weight);

/* Gradients that come meanwhile are none of the shard under way. */
void tt_ddp_look_away(tutti_ddp_t *ddp, bool is_on);

/* A buffer becomes what the step found; it is what the first shard with data leaves; it becomes
 * that again. Buffers that are not this ddp's are passed over. */
tutti_status_t tt_ddp_restart_buffer(tutti_ddp_t *ddp, tutti_tensor_t *x);
tutti_status_t tt_ddp_keep_buffer(tutti_ddp_t *ddp, const tutti_tensor_t *x);
tutti_status_t tt_ddp_put_kept_buffer(tutti_ddp_t *ddp, tutti_tensor_t *x);

/* The shard under way has data, whether or not it gives this rank's parameters gradients. */
void tt_ddp_note_data(tutti_ddp_t *ddp);

/* A parameter whose gradients of a shard come elsewhere: those in its place do not count until it
 * is wanted there, and is there, whole. Others than this ddp's are passed over. */
void tt_ddp_gather_elsewhere(const tutti_ddp_t *ddp, const tutti_tensor_t *x);
tutti_status_t tt_ddp_want_gathered(tutti_ddp_t *ddp, const tutti_tensor_t *x);
tutti_status_t tt_ddp_take_gathered(tutti_ddp_t *ddp, const tutti_tensor_t *x);

/* Between steps: a parameter's values are there, until they go. A call of all ranks at stage 3. */
tutti_status_t tt_ddp_bring(tutti_ddp_t *ddp, const tutti_tensor_t *x);
tutti_status_t tt_ddp_let_go(tutti_ddp_t *ddp, const tutti_tensor_t *x);

/* ddp_fail.c: the first failure, whose text is tutti_last_error(), is kept and aborts the groups.
 * Returns the first: what comes after it, such as calls of an aborted group, is not what went
 * wrong. */
tutti_status_t tt_ddp_fail(tutti_ddp_t *ddp, tutti_status_t status);

#endif
