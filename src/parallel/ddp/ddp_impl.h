/* The inside of DDP. A step goes through these files:
 *
 *     ddp_step.c    shards begin and end; hooks say which gradient is there
 *     ddp_bucket.c  a shard's bucket joins the sums of earlier shards; the last one leaves
 *     ddp.c         construction and release
 *     ddp_check.c   is the model alike everywhere; copies rank 0's
 */
#ifndef TT_DDP_IMPL_H
#define TT_DDP_IMPL_H

#include <tutti/ddp.h>
#include <tutti/leaves.h>

#include "core/base/fail.h"
#include "core/kernel/tree.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/ddp/bucket_plan.h"

/* Gradients that travel together. `sums` holds, level by level, the pieces of the canonical tree
 * that earlier shards of this step have filled; the newest shard's piece is `grad` itself until
 * the next shard needs it. */
typedef struct {
    tutti_tensor_t *grad;                      /* [numel], shared; gradients are views of it */
    tutti_tensor_t *sums[TT_TREE_DEPTH_MAX];   /* [numel], shared, f32 for 16-bit gradients */
    tutti_tensor_t *pieces[TT_TREE_DEPTH_MAX]; /* borrowed: a sum, or grad */
    tt_tree_stack_t stack;
    int pending; /* gradients that the last shard still owes */
    bool has_left;
    tutti_work_t *work;
} tt_bucket_t;

typedef struct {
    tutti_ddp_t *ddp;
    char *name;
    tutti_tensor_t *tensor; /* retained */
    tutti_tensor_t *view;   /* of its bucket */
    bool has_grad;          /* in this shard */
    bool was_used;          /* in this step */
} tt_ddp_param_t;

struct tutti_ddp {
    tutti_context_t *ctx;
    tutti_module_t *module;
    tutti_group_t *group;
    tt_context_idle_t idle; /* moves the group's calls forward */
    tutti_ddp_options_t options;
    tt_bucket_plan_t plan;
    tt_bucket_t *buckets;
    tt_ddp_param_t *params;
    int param_count;
    int first_shard, shard_count; /* of this rank */

    /* Of the step under way. */
    int next;        /* shards begun */
    int next_bucket; /* the next one to leave */
    bool is_in_step, is_last, no_sync, has_backward, end_is_queued;
    uint64_t step;
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    char *unused;     /* names */
    bool told_unused; /* the log has them */
};

/* Keep the first failure, whose text is tutti_last_error(), and abort the group. */
tutti_status_t tt_ddp_fail(tutti_ddp_t *ddp, tutti_status_t status);

/* ddp_check.c */
tutti_status_t tt_ddp_check_model(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_broadcast_model(tutti_ddp_t *ddp);

/* ddp_bucket.c */
tutti_status_t tt_bucket_open(tutti_ddp_t *ddp, int index);
void tt_bucket_close(tt_bucket_t *bucket);

/* The shard's gradients are complete in `grad`: join the sums. */
tutti_status_t tt_bucket_push(tutti_ddp_t *ddp, tt_bucket_t *bucket, int shard);

/* Before `grad` is written again: what is in it moves to a sum of its own. */
tutti_status_t tt_bucket_vacate(tt_bucket_t *bucket);

/* Start to travel; the average over all shards comes back into `grad`. */
tutti_status_t tt_bucket_leave(tutti_ddp_t *ddp, tt_bucket_t *bucket);

/* ddp_step.c */
void tt_ddp_on_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, void *user);
void tt_ddp_progress(void *user);

#endif
