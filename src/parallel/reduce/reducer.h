/* The reducer: gradients of shards become their average over all shards of all ranks, with the same
 * bits for any spread of shards over ranks (docs/decisions/0005, 0023).
 *
 * Gradients lie in flat buffers ("buckets") in the memory that ranks share. The view in a slot
 * takes the gradient of one parameter; slots are numbered as the parameters that were given. Sums
 * of a rank's shards are the pieces of the canonical tree (tree.h), held level by level:
 *
 *     shard 4   grad ──┐push             pieces: [4,5) = grad
 *     shard 5   grad moves to sums[0]; grad = shard 5; push merges: sums[0] += grad   [4,6)
 *     shard 6   push                     pieces: [4,6) = sums[0], [6,7) = grad
 *     start     all_reduce of the pieces of all ranks
 *
 * A rank that hosts one shard copies nothing: its piece is the gradient memory itself. Gradients of
 * 16 bits become f32 sums; but where every rank hosts one shard, nothing but those of a shard
 * travels, and they do so as they are (or rounded to reduce_dtype).
 *
 * A bucket goes through its states once in each step; its user makes the calls:
 *
 *     FILLING   begin_step   for each shard: begin_shard, gradients are written, note, push
 *     SENT      start        on every rank in the same order of buckets; also without any shard
 *     BACK      wait, or is_back
 *     FINAL     finalize     the average is in `result`, and in the slots' results
 *     TAKEN     take         if its user wants to remember that it has used it
 *
 * Where ranks step slices (slice_plan.h), a bucket is reduced and scattered: each rank gets the
 * averages of its own row of elements, at their places in `result`; what is there else is not
 * defined.
 *
 * Buckets can come and go (is_transient): their memory is there from the first gradient of a step,
 * or push, until they are back; what comes back is in tensors of its own, of the slice.
 *
 * Sums can stay sharded (keeps_sums_sharded): a bucket leaves in each round, that is, with one
 * shard of every rank, and each rank adds up what comes for its slice (reducer_rounds.c). Then
 *
 *     FILLING ── start ──> SENT ── back ──> FILLING     in all rounds but the last one
 *
 * Gradients of parameters on a device lie there, and go through the host's memory: what ranks share
 * is that.
 *
 * It knows no modules, no optimizers and no graph: what a gradient belongs to, when a bucket leaves
 * and what becomes of the average is its user's business. Any number of reducers can be under way
 * in a group, if all ranks start their buckets in one order.
 *
 * Cost: as much memory as the gradients; for n shards of a rank up to log2(n) + 1 times as much
 * again. An all_reduce of each bucket, prepared once.
 */
#ifndef TT_REDUCER_H
#define TT_REDUCER_H

#include <tutti/collectives.h>
#include <tutti/ddp.h>
#include <tutti/prepared.h>

#include "core/base/threads.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"
#include "parallel/reduce/slice_plan.h"

typedef enum {
    TT_BUCKET_FILLING,
    TT_BUCKET_SENT,
    TT_BUCKET_BACK,
    TT_BUCKET_FINAL,
    TT_BUCKET_TAKEN,
} tt_bucket_state_t;

/* In the shard under way. */
typedef enum {
    TT_SLOT_EMPTY, /* no gradient has come: it counts as zero */
    TT_SLOT_SOME,  /* one has come, and more may be added to it */
    TT_SLOT_WHOLE,
} tt_slot_state_t;

/* Leaves of so many ranks, from one on, which are a node of the tree. */
typedef struct {
    int first_rank, count;
    tutti_prepared_t *prepared;
} tt_round_call_t;

/* Of a bucket whose sums stay sharded: reducer_rounds.c's. */
typedef struct {
    int started, returned;                   /* rounds of the step under way */
    tutti_tensor_t *sums[TT_TREE_DEPTH_MAX]; /* [sum_count] of this rank's slice; the first is
                                                own_total, the others are there within steps */
    int sum_count;
    tutti_tensor_t *coming[TT_TREE_DEPTH_MAX]; /* borrowed from those: of the round under way */
    tutti_tensor_t *leaf;   /* [numel] borrowed: what leaves; NULL: nothing of this rank */
    tt_round_call_t *calls; /* [call_count] those that rounds of a step have */
    int call_count;
} tt_bucket_rounds_t;

typedef struct {
    tt_bucket_state_t state;
    int pending;        /* slots that are not whole in the shard under way */
    int64_t started_ns; /* when it was started last */

    tutti_tensor_t *grad;                    /* [numel], shared: slots are views of it */
    tutti_tensor_t *sums[TT_TREE_DEPTH_MAX]; /* [numel], shared, f32 for 16-bit gradients */
    tutti_tensor_t *travel; /* [numel], shared, of reduce_dtype: grad itself, or for rounding; NULL:
                               nothing is rounded */
    /* Where parameters lie on a device, [numel] there: what slots are views of, copied to grad when
     * a shard is pushed, and from result when the average is there. NULL: slots are views of those.
     */
    tutti_tensor_t *near_grad, *near_result;
    /* Borrowed from those: */
    tutti_tensor_t *total;  /* where a sum comes back that is not rounded before it is divided */
    tutti_tensor_t *result; /* where the average ends */
    /* This rank's slices of them; the same tensors where nothing is scattered. Of a bucket that
     * comes and goes, tensors of their own; own_total is NULL where no sum comes back. */
    tutti_tensor_t *own_total, *own_result, *own_travel;
    int64_t *cuts, *counts; /* [ranks + 1], [ranks] elements of each slice; NULL: it is not cut */
    tutti_tensor_t *out;    /* what comes back now, and is a sum to be divided by divisor */
    tutti_tensor_t *pieces[TT_TREE_DEPTH_MAX];
    tt_tree_stack_t stack;
    double divisor;

    tt_bucket_rounds_t rounds;  /* pieces and stack are those of this rank's slice then */
    void *hook_data;            /* what a hook keeps of it */
    tutti_work_t *work;         /* NULL also when a hook has nothing under way */
    tutti_prepared_t *prepared; /* the all_reduce of every step, once it has been made; or NULL */
} tt_bucket_t;

/* Of a parameter; where it lies is plan.slots[i]. */
typedef struct {
    tt_slot_state_t state;
    int turn;             /* in which it became whole, from 0 on */
    tutti_tensor_t *grad; /* [its shape], of the bucket's grad, or of near_grad */
    tutti_tensor_t
        *shared; /* of the bucket's grad: what hooks see; the same tensor if that is it */
    tutti_tensor_t *result; /* of the bucket's result; the same tensor if that is its grad */
} tt_reducer_slot_t;

typedef struct {
    tutti_group_t *group; /* borrowed, as all below */
    tt_threads_t *threads;
    int shards; /* V, over all ranks */
    size_t first_bucket_bytes, bucket_bytes;
    tutti_dtype_t grad_dtype; /* of gradients of f32 parameters (but see is_wide). f32, or else all
                                 are f32, and so are the averages of their 16-bit gradients */
    tutti_dtype_t reduce_dtype; /* what a shard's gradient of a f32 parameter is rounded to, and the
                                   average */
    bool is_weighted;           /* shards may weigh other than 1 */
    bool divides_late;          /* what to divide by is known when all buckets are back */
    bool adds_locally;          /* not exact: one piece of each rank, whatever it hosts; without
                                   rounds */

    bool is_transient;       /* buckets come and go; they are scattered */
    bool keeps_sums_sharded; /* of those: where there are more shards than ranks, which host them in
                                turn */
    bool gives_results; /* of those what comes back goes, too, when its user lets it (let_go) */
    const int *units;   /* [parameters] a bucket has parameters of one unit; NULL: of any */

    /* Whether a f32 parameter's gradient is f32, though grad_dtype is not. NULL: none is. */
    bool (*is_wide)(const void *user, const tutti_tensor_t *param);

    /* Every how many elements of a parameter a slice may begin; 0: it is not cut. NULL: every rank
     * gets all averages. Not under a hook, nor for parameters on a device. */
    int64_t (*grain)(const void *user, const tutti_tensor_t *param);
    const void *user;
} tt_reducer_options_t;

typedef struct {
    tt_reducer_options_t options;
    tt_leaves_t share;  /* shards of this rank */
    int64_t step;       /* from 1 on */
    int shard, turn;    /* under way; slots that have become whole in it */
    int64_t impatient;  /* the step in which nothing is waited for any more (reducer_memory.c) */
    int64_t kept_bytes; /* of the group's memory, for buckets that come and go */
    tt_bucket_plan_t plan;
    tt_bucket_t *buckets;     /* [plan.bucket_count] */
    int64_t *totals;          /* [ranks] elements of slices of all buckets; more that is cut goes on
                                 from there */
    int *first_leaves;        /* [ranks + 1] room, for rounds */
    tt_reducer_slot_t *slots; /* [plan.param_count] */
    tutti_tensor_t **tensors; /* [2][plan.param_count] parameters, then gradients, as plan.members;
                                 borrowed */
    const tutti_ddp_hook_ops_t *hook; /* what buckets do instead; NULL: contributions go */
    void *hook_state;
} tt_reducer_t;

/* Without buckets. */
tutti_status_t tt_reducer_open(const tt_reducer_options_t *options, tt_reducer_t **out);
void tt_reducer_close(tt_reducer_t *reducer);

/* Buckets for gradients of these parameters, in the order in which they come (NULL: from the last
 * one to the first); in the place of those that it has, which go first, unless they are the same.
 * After a failure it has none. */
tutti_status_t tt_reducer_fill(tt_reducer_t *reducer, const tt_tensor_list_t *params,
                               const int *order, bool *is_new);

/* reducer_hook.c: between steps; NULL for none. Then what the reducer asks of it. */
tutti_status_t tt_reducer_set_hook(tt_reducer_t *reducer, const tutti_ddp_hook_ops_t *hook,
                                   const void *options);
tutti_status_t tt_reducer_start_hook(const tt_reducer_t *reducer, int bucket);
tutti_status_t tt_reducer_finish_hook(const tt_reducer_t *reducer, int bucket);
void tt_reducer_drop_hook_data(const tt_reducer_t *reducer);

/* reducer_slices.c: of a bucket whose tensors are there. */
tutti_status_t tt_reducer_open_slices(const tt_reducer_t *reducer, int bucket,
                                      const tt_tensor_list_t *params);
void tt_reducer_close_slices(tt_bucket_t *bucket);

/* So many of those that come and go are under way at once; and how long one more waits where ranks
 * may have less to compute than others. */
enum { TT_REDUCER_UNDER_WAY_MAX = 2, TT_REDUCER_PATIENCE_MS = 100 };

/* reducer_memory.c: a bucket that comes and goes is wanted from now on. Waits for a moment for
 * those that are under way, so that not all of them are there at once. Errors: NOMEM; as the
 * group's. */
tutti_status_t tt_reducer_want(tt_reducer_t *reducer, int bucket);

/* Memory of as many buckets as are there at once stays with the process while they are away; no
 * longer. */
void tt_reducer_keep_memory(tt_reducer_t *reducer);
void tt_reducer_give_memory(tt_reducer_t *reducer);

/* Of the first `count` buckets, those that have come back let go. */
void tt_reducer_collect(tt_reducer_t *reducer, int count);

/* What came back has been copied elsewhere: its memory is there again when the bucket leaves next.
 */
void tt_reducer_let_result_go(const tt_reducer_t *reducer, int bucket);
tutti_status_t tt_reducer_want_result(const tt_reducer_t *reducer, int bucket);

/* A tensor for what comes back. */
tutti_status_t tt_reducer_new_result(const tt_reducer_t *reducer, tutti_dtype_t dtype,
                                     int64_t numel, tutti_tensor_t **out);

/* A flat tensor of a bucket: of memory that ranks share, or, if buckets come and go, without. */
tutti_status_t tt_reducer_new_flat(const tt_reducer_t *reducer, tutti_dtype_t dtype, int64_t numel,
                                   tutti_tensor_t **out);

void tt_reducer_begin_step(tt_reducer_t *reducer);

/* The next shard of this rank, in order. What earlier ones left in the slots moves away. */
void tt_reducer_begin_shard(tt_reducer_t *reducer, int shard);

/* A gradient is in its slot. is_last: nothing more is added to it in this shard. True: it has just
 * become whole. */
bool tt_reducer_note(tt_reducer_t *reducer, int slot, bool is_last);

/* The shard's gradients of a bucket join the sums: each counts `weight` times, and as zero where
 * none came. Not to be written any more until the next shard begins. */
tutti_status_t tt_reducer_push(tt_reducer_t *reducer, int bucket, int64_t weight);

/* It leaves with what has been pushed. */
tutti_status_t tt_reducer_start(tt_reducer_t *reducer, int bucket);

/* How often a bucket leaves in a step: 1 unless sums stay sharded. */
static inline bool tt_reducer_has_rounds(const tt_reducer_t *reducer)
{
    const tt_reducer_options_t *o = &reducer->options;
    return o->keeps_sums_sharded && o->shards > tutti_group_size(o->group);
}

static inline int tt_reducer_rounds(const tt_reducer_t *reducer)
{
    const int shards = reducer->options.shards, size = tutti_group_size(reducer->options.group);
    return tt_reducer_has_rounds(reducer) ? (shards + size - 1) / size : 1;
}

/* reducer_rounds.c: of a bucket whose own tensors are there; then a round of it leaves, and has
 * come back. */
tutti_status_t tt_reducer_open_rounds(const tt_reducer_t *reducer, int bucket);
void tt_reducer_close_rounds(tt_bucket_t *bucket);
tutti_status_t tt_reducer_start_round(tt_reducer_t *reducer, int bucket);
void tt_reducer_end_round(const tt_reducer_t *reducer, tt_bucket_t *bucket);

/* Bytes that this rank sends in a step, if no other one is on its host: with and without sums that
 * stay sharded. 0 where buckets are not cut. */
int64_t tt_reducer_traffic(const tt_reducer_t *reducer, bool keeps_sums_sharded);

/* Whether the ranks' 16-bit gradients, one from each, are what travels. */
static inline bool tt_reducer_is_narrow(const tt_reducer_t *reducer, const tt_bucket_t *bucket)
{
    const tt_reducer_options_t *o = &reducer->options;
    return bucket->travel != NULL && reducer->hook == NULL && !o->divides_late && !o->is_weighted &&
           o->shards == tutti_group_size(o->group);
}

/* Whether it has come back: looks, or waits for it. */
bool tt_reducer_is_back(tt_reducer_t *reducer, int bucket);
tutti_status_t tt_reducer_wait(tt_reducer_t *reducer, int bucket);

/* What came back becomes the average; a second time nothing happens. `divisor` counts only if it
 * divides late. */
tutti_status_t tt_reducer_finalize(tt_reducer_t *reducer, int bucket, double divisor);
void tt_reducer_take(tt_reducer_t *reducer, int bucket);

#endif
