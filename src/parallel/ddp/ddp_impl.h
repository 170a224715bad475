/* The inside of DDP. A step goes through these files:
 *
 *     ddp_step.c    shards begin and end; hooks say which gradient is there
 *     ddp_buffers.c running statistics and other buffers: the first shard's win
 *     ddp_bucket.c  a shard's bucket joins the sums of earlier shards; the last one leaves
 *     ddp_control.c what all ranks must know of each other: weights of shards, gradients that came
 *     ddp_order.c   buckets are filled anew, in the order in which gradients come
 *     ddp_hook.c    other ways for a bucket to become an average
 *     ddp_optim.c   parameters are stepped as soon as their bucket's average is there
 *     ddp_mixed.c   parameters are 16-bit copies of themselves while a step lasts
 *     ddp_exact.c   what is done where bits need not be alike
 *     ddp_auto.c    how large buckets are, if nobody says
 *     ddp_stats.c   times, and events for a timeline
 *     ddp.c         construction and release
 *     ddp_check.c   is the model alike everywhere; copies rank 0's
 */
#ifndef TT_DDP_IMPL_H
#define TT_DDP_IMPL_H

#include <tutti/ddp.h>
#include <tutti/ddp_hooks.h>
#include <tutti/leaves.h>
#include <tutti/prepared.h>

#include "core/base/fail.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"
#include "parallel/ddp/bucket_plan.h"

/* What a bucket's all_reduce is made of. */
typedef struct {
    int leaves; /* 0: an all_reduce of one piece of each rank, in place */
    int piece_count;
    tutti_tensor_t *pieces[TT_TREE_DEPTH_MAX]; /* borrowed, as out */
    tutti_tensor_t *out;
    tutti_reduction_t op;
    tutti_dtype_t dtype; /* of the pieces */
} tt_bucket_sum_t;

/* Gradients that travel together. `sums` holds, level by level, the pieces of the canonical tree
 * that earlier shards of this step have filled; the newest shard's piece is `grad` itself until
 * the next shard needs it. */
typedef struct {
    tutti_tensor_t *grad;                      /* [numel], shared; gradients are views of it */
    tutti_tensor_t *sums[TT_TREE_DEPTH_MAX];   /* [numel], shared, f32 for 16-bit gradients */
    tutti_tensor_t *pieces[TT_TREE_DEPTH_MAX]; /* borrowed: a sum, grad, or travel */
    tutti_tensor_t *result; /* borrowed: grad, or sums[0] where parameters are f32 between steps */
    tutti_tensor_t *travel; /* [numel], shared, of reduce_dtype: grad itself, or for rounding; NULL:
                               nothing is rounded */
    tt_tree_stack_t stack;
    int pending;                 /* parameters that the last shard still owes a gradient */
    bool has_left, is_whole;     /* it left with gradients of this shard for all its parameters */
    bool is_stepped, is_settled; /* the average is in result */
    bool is_narrow;              /* travel is what left */
    int64_t left_ns;
    tutti_work_t *work;         /* NULL also when a hook has nothing under way */
    tutti_prepared_t *prepared; /* the all_reduce of the last step, to be made again; or NULL */
    tt_bucket_sum_t prepared_sum;

    tutti_tensor_t **tensors; /* for a hook: parameters, then their gradients; borrowed */
    double divisor;
    void *hook_data;
} tt_bucket_t;

/* Of the step under way, in ns; then of the last finished one. */
typedef struct {
    int64_t shard_begin, backward_begin, backward_end; /* of the newest shard */
    int64_t forward, backward, comm, overlap, wait;
    int64_t arrived; /* when the last bucket was seen to have come back */
    int next_arrival;
} tt_ddp_times_t;

typedef struct {
    tutti_ddp_t *ddp;
    const char *name; /* as tensor, of all_params */
    tutti_tensor_t *tensor;
    tutti_tensor_t *view;   /* of its bucket */
    tutti_tensor_t *result; /* of its bucket's result: the gradient between steps */
    bool has_grad;          /* in this shard */
    bool is_owed;           /* the last shard's gradient, as long as its bucket waits for it */
    bool was_used;          /* in this step */
    bool is_static;         /* got a gradient in the first step of a static graph, on this rank */
    bool is_unused;         /* in all shards of all ranks */
} tt_ddp_param_t;

/* Of all floating parameters, if options.param_dtype is not f32. */
typedef struct {
    tutti_tensor_t *tensor; /* of all_params */
    tutti_tensor_t *other;  /* the memory that it has not now: 16-bit between steps, f32 in one */
    uint32_t version;       /* of the f32 memory when it was copied last */
    bool is_low;
} tt_ddp_copy_t;

typedef struct {
    tt_ddp_copy_t *copies; /* [count] */
    int count;
} tt_ddp_mixed_t;

/* Buffers of the module, one after the other. */
typedef struct {
    tt_tensor_list_t list; /* contiguous */
    size_t bytes;
    char *start;            /* [bytes] as the step found them */
    tutti_tensor_t *result; /* [bytes], shared: as the first shard leaves them */
    bool is_kept;           /* result is what a shard of this rank left */
    tutti_work_t *work;
} tt_ddp_buffers_t;

struct tutti_ddp {
    tutti_context_t *ctx;
    tutti_module_t *module;
    tutti_group_t *group;
    tt_context_idle_t idle; /* moves the group's calls forward */
    tutti_ddp_options_t options;
    const tutti_ddp_hook_ops_t *hook; /* NULL: an all_reduce of leaves */
    void *hook_state;
    tt_bucket_plan_t plan;
    tt_bucket_t *buckets;
    tt_tensor_list_t all_params; /* of the module; params are those that need a gradient */
    tt_ddp_param_t *params;
    int param_count;
    tt_ddp_buffers_t module_buffers;
    tt_ddp_mixed_t mixed;
    int first_shard, shard_count; /* of this rank */
    int *slots;                   /* [param_count] of options.optimizer; -1: it has none */
    int early_steps, last_early_steps;
    tt_storage_t **storages; /* [param_count], room */
    bool is_exact;
    int64_t uncanonical_sums; /* of the group, when DDP began */
    bool adds_locally;        /* a rank's pieces become one sum before they leave */

    /* Of the step under way. */
    int next;        /* shards begun */
    int next_bucket; /* the next one to leave */
    bool is_in_step, is_last, no_sync, end_is_queued;
    bool is_weight_settled, has_sent_control;
    int64_t weight; /* of the shard under way */
    uint64_t step;
    tt_ddp_times_t times, last_times;

    int *order; /* [param_count] in which the first step's gradients came; NULL afterwards */
    int order_count;
    bool is_rebuilt;

    /* What is summed over all ranks: weights of all shards, then how many shards gave each
     * parameter a gradient. */
    tutti_tensor_t *control; /* [shards + param_count], i64, shared */
    tutti_work_t *control_work;
    int64_t *weights; /* [shards] of the last finished step */
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    char *unused;     /* names */
    bool told_unused; /* the log has them */
};

/* ddp_check.c */
tutti_status_t tt_ddp_check_model(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_broadcast_model(tutti_ddp_t *ddp);

/* ddp_bucket.c */
tutti_status_t tt_bucket_open(tutti_ddp_t *ddp, int index);
void tt_bucket_close(tt_bucket_t *bucket);

/* The shard's gradients are complete in `grad`: join the sums. */
tutti_status_t tt_bucket_push(tutti_ddp_t *ddp, tt_bucket_t *bucket, int shard, int64_t weight);

/* Before `grad` is written again: what is in it moves to a sum of its own. */
tutti_status_t tt_bucket_vacate(tt_bucket_t *bucket);

/* Start to travel; the average over all shards comes back into `grad`, or their sum if the
 * divisor is not known yet. */
tutti_status_t tt_bucket_leave(tutti_ddp_t *ddp, tt_bucket_t *bucket);

/* What came back becomes the average, and then what parameters have between steps: after a step's
 * first call for it, nothing happens. */
tutti_status_t tt_bucket_settle(tutti_ddp_t *ddp, tt_bucket_t *bucket);

/* The sum that came back becomes the average. */
tutti_status_t tt_bucket_divide(tt_bucket_t *bucket, int64_t divisor);

/* ddp_control.c */
bool tt_ddp_divides_later(const tutti_ddp_t *ddp);
tutti_status_t tt_ddp_open_control(tutti_ddp_t *ddp);
void tt_ddp_close_control(tutti_ddp_t *ddp);

/* A step begins; a shard of it ends, whose weight is known. */
void tt_ddp_reset_control(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_note_shard(tutti_ddp_t *ddp);

/* Start to travel, behind the buckets; then what came back. END: the epoch is over. */
tutti_status_t tt_ddp_send_control(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_take_control(tutti_ddp_t *ddp);

/* ddp_mixed.c */
tutti_status_t tt_ddp_check_mixed(const tutti_ddp_t *ddp);
tutti_status_t tt_ddp_open_mixed(tutti_ddp_t *ddp);
void tt_ddp_close_mixed(tutti_ddp_t *ddp);

/* The dtype of a parameter's gradients in a step, and of a bucket's on the way. */
tutti_dtype_t tt_ddp_grad_dtype(const tutti_ddp_t *ddp, tutti_dtype_t param);
tutti_dtype_t tt_ddp_reduce_dtype(const tutti_ddp_t *ddp, tutti_dtype_t grad);

/* A step begins: parameters become 16-bit copies. A bucket's, or all, become f32 again. */
tutti_status_t tt_ddp_lower_params(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_raise_bucket(tutti_ddp_t *ddp, int index);
tutti_status_t tt_ddp_raise_params(tutti_ddp_t *ddp);

/* ddp_exact.c: what options.exact means here; then a bucket's sum over this rank's shards, in
 * `sum`, which is grad or (of 16 bits) f32. */
tutti_status_t tt_ddp_settle_exact(tutti_ddp_t *ddp);
tutti_status_t tt_bucket_gather(tt_bucket_t *bucket, tutti_tensor_t *sum);

/* ddp_optim.c: the optimizer is ours until it is given back; then what has arrived and is read by
 * nobody any more is stepped, and at the end all the rest. */
tutti_status_t tt_ddp_take_optimizer(tutti_ddp_t *ddp);
void tt_ddp_give_optimizer(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_step_arrived(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_step_rest(tutti_ddp_t *ddp);

/* ddp_hook.c */
extern const tutti_ddp_hook_ops_t *const tt_ddp_hooks[];
tutti_status_t tt_ddp_start_hook(tutti_ddp_t *ddp, tt_bucket_t *bucket);
tutti_status_t tt_ddp_finish_hook(tutti_ddp_t *ddp, tt_bucket_t *bucket);
void tt_ddp_drop_hook_data(tutti_ddp_t *ddp, tt_bucket_t *bucket);
void tt_ddp_clear_hook(tutti_ddp_t *ddp);

/* ddp_order.c */
tutti_status_t tt_ddp_plan_buckets(tutti_ddp_t *ddp, const int *order, tt_bucket_plan_t *plan);
void tt_ddp_note_order(tutti_ddp_t *ddp, const tt_ddp_param_t *param);
tutti_status_t tt_ddp_rebuild(tutti_ddp_t *ddp);

/* ddp_auto.c: if AUTO is asked for, measures and sets the options. */
size_t tt_ddp_auto_bytes(int64_t small_ns, int64_t large_ns);
tutti_status_t tt_ddp_choose_bucket_bytes(tutti_ddp_t *ddp);

/* ddp.c */
tutti_status_t tt_ddp_open_buckets(tutti_ddp_t *ddp);
void tt_ddp_close_buckets(tutti_ddp_t *ddp);

/* ddp_stats.c: something happens now. */
void tt_ddp_time_shard(tutti_ddp_t *ddp);
void tt_ddp_time_gradient(tutti_ddp_t *ddp);
void tt_ddp_time_backward_end(tutti_ddp_t *ddp);
void tt_ddp_time_arrivals(tutti_ddp_t *ddp); /* looks which buckets have come back */
void tt_ddp_time_finish(tutti_ddp_t *ddp, int64_t begin_ns);

/* ddp_buffers.c */
tutti_status_t tt_ddp_buffers_open(tutti_ddp_t *ddp);
void tt_ddp_buffers_close(tt_ddp_buffers_t *buffers);

/* Each shard begins with the buffers as the step found them; the first one's that has data are
 * kept when it ends. */
void tt_ddp_buffers_begin_step(tutti_ddp_t *ddp);
void tt_ddp_buffers_begin_shard(tutti_ddp_t *ddp);
void tt_ddp_buffers_end_shard(tutti_ddp_t *ddp);

/* They travel to all ranks, and become the module's; those of the step's begin, if it was the end
 * of the epoch. */
tutti_status_t tt_ddp_buffers_leave(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_buffers_arrive(tutti_ddp_t *ddp, bool is_end);

/* ddp_step.c */
void tt_ddp_on_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, void *user);
void tt_ddp_move(void *user);     /* bytes and their sums: also inside a kernel */
void tt_ddp_progress(void *user); /* and what comes of them */

#endif
