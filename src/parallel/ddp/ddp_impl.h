/* The inside of DDP: what makes shards of a training step out of a reducer (reducer.h). A step goes
 * through these files:
 *
 *     ddp_step.c    shards begin and end; hooks say which gradient is there; buckets leave
 *     ddp_buffers.c running statistics and other buffers: the first shard's win
 *     ddp_control.c what all ranks must know of each other: weights of shards, gradients that came
 *     ddp_hook.c    which hooks there are
 *     ddp_optim.c   parameters are stepped as soon as their bucket's average is there
 *     ddp_slices.c  each rank steps slices of its own, and parameters are gathered
 *     ddp_units.h   parameters are there only while they are used
 *     ddp_consolidate.c  state of slices is collected, on one rank or all
 *     ddp_mixed.c   parameters are 16-bit copies of themselves while a step lasts
 *     ddp_driver.c  somebody else runs a shard's backward, in parts
 *     ddp_fail.c    the first failure, which is for good
 *     ddp_stats.c   times, and events for a timeline
 *
 * and is prepared in these:
 *
 *     ddp.c         construction and release
 *     ddp_options.c options and their defaults; how large buckets are, if nobody says
 *     ddp_ignored.c what it leaves alone
 *     ddp_meta.c    a module on meta leaves it
 *     ddp_borders.c modules that compute in f32 under mixed precision
 *     ddp_check.c   is the model the same on every rank; copies rank 0's
 *     ddp_layout.c  buckets are filled, and again in the order in which gradients come
 *
 * Each part of tutti_ddp_t is changed by the file that is named beside it, and read by all. What is
 * there from the beginning to the end is ddp.c's.
 */
#ifndef TT_DDP_IMPL_H
#define TT_DDP_IMPL_H

#include <tutti/ddp.h>
#include <tutti/prepared.h>

#include "core/base/fail.h"
#include "core/base/pointer_set.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"
#include "parallel/ddp/ddp_driver.h"
#include "parallel/ddp/ddp_units.h"
#include "parallel/reduce/reducer.h"

typedef struct {
    tutti_ddp_t *ddp;
    int index;        /* of its slot */
    const char *name; /* as tensor, of the list */
    tutti_tensor_t *tensor;
    bool is_gathered; /* the driver adds up its gradients elsewhere, and says when they are here */
} tt_ddp_param_t;

typedef enum {
    TT_DDP_BETWEEN_STEPS,
    TT_DDP_IN_SHARDS, /* until all of this rank's have ended */
    TT_DDP_ALL_SENT,  /* until all buckets have come back */
} tt_ddp_phase_t;

/* Of the step under way. */
typedef struct {
    tt_ddp_phase_t phase;
    uint64_t number; /* from 1 on */
    int64_t finished;
    int next_shard;  /* shards begun */
    int64_t outside; /* the context's shard between steps */
    int next_bucket; /* the next one to leave, in this round */
    int round;       /* buckets leave in each round (reducer.h); mostly there is one */
    int64_t weight;  /* of the shard under way, as has_backward: a gradient came */
    bool has_backward;
    bool end_is_queued; /* of the backward under way */
    bool no_sync;
    tutti_status_t status; /* the first failure, and its text: for good */
    char error[TT_ERROR_TEXT_BYTES];
} tt_ddp_step_t;

/* Whether a parameter got a gradient in the first step in which the shard had data. */
typedef enum { TT_DDP_NO_STEP_YET, TT_DDP_NO_GRADIENT, TT_DDP_GRADIENT } tt_ddp_use_t;

/* What is summed over all ranks: weights of all shards, then how many shards gave each parameter a
 * gradient. */
typedef struct {
    tutti_tensor_t *tensor; /* [shards + param_count], i64, shared */
    tutti_work_t *work;
    int64_t *weights;     /* [shards] of the last finished step */
    bool *is_unused;      /* [param_count] it got no gradient in any shard of any rank */
    tt_ddp_use_t *uses;   /* [shards of this rank][param_count] of a static graph */
    char *unused;         /* names */
    bool has_told_unused; /* the log has them */
} tt_ddp_control_t;

/* Of options.optimizer. */
typedef struct {
    int *slots;              /* [param_count]; -1: it has none. NULL: there is no optimizer */
    tt_storage_t **storages; /* [param_count], room */
    int early_steps, last_early_steps;
} tt_ddp_optimizer_t;

/* Of a parameter, if options.stage is not 0. */
typedef struct {
    tt_tensor_slice_t seen; /* by the parameter's optimizer; its gradient is `grad` between steps */
    tutti_tensor_t *grad;   /* a part of the bucket's result */
    tutti_tensor_t *stored_grad; /* the same on a disk, where it is read; NULL: it is `grad` */
} tt_ddp_slice_t;

typedef struct {
    tt_slicer_t slicer;
    tutti_tensor_t **values;    /* [bucket_count] parameters, at the places of their gradients */
    tutti_prepared_t **gathers; /* [bucket_count] of values */
    tutti_work_t **works;       /* [bucket_count] of gathers that a step has started */
    int next;                   /* bucket whose gather starts next in the step */
    tutti_group_t *group;   /* of the gathers, whose order is their own; NULL: ddp's (one rank, or
                               they are made behind the step alone) */
    tt_ddp_slice_t *slices; /* [count] of the list, at stage 3 then of frozen parameters; NULL:
                               every rank steps all */
    int count;
} tt_ddp_slices_t;

/* Of a floating parameter, if options.param_dtype is not f32. */
typedef struct {
    const char *name;
    tutti_tensor_t *tensor;
    tutti_tensor_t *other; /* the memory that it has not now: 16-bit between steps, f32 in one */
    uint32_t version;      /* of the f32 memory when it was copied last */
    uint32_t low_version;  /* of the 16-bit memory then */
    bool is_low;
} tt_ddp_copy_t;

typedef struct {
    tt_ddp_copy_t *copies; /* [count] of the parameters, then of the frozen ones */
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

/* Of the step under way, in ns; then of the last finished one. */
typedef struct {
    int64_t shard_begin, backward_begin, backward_end; /* of the newest shard */
    int64_t forward, backward, comm, overlap, wait;
    int64_t arrived; /* when the last bucket was seen to have come back */
    int next_arrival;
} tt_ddp_times_t;

/* Of options.ignored. */
typedef struct {
    tt_pointer_set_t set;    /* tensors */
    tt_tensor_list_t params; /* those of them that are parameters */
} tt_ddp_ignored_t;

/* Of a parameter that lay on meta. */
typedef struct {
    tutti_tensor_t *tensor; /* of the lists */
    tutti_device_t *meta;   /* retained */
} tt_ddp_unmade_t;

typedef struct {
    tt_ddp_unmade_t *unmade; /* [count], until all ranks have made all */
    int count;
} tt_ddp_meta_t;

/* Of a module: what goes in and out is cast. */
typedef struct {
    tutti_ddp_t *ddp;
    tutti_module_t *module; /* borrowed from the ddp's */
    bool casts_inputs;      /* to f32 */
    bool is_always;         /* also between steps */
    tutti_dtype_t outside;  /* of outputs */
} tt_ddp_border_t;

/* Of options.f32_kinds and f32_output. */
typedef struct {
    tt_pointer_set_t inside, outside; /* tensors of modules that compute in f32, and of others;
                                         empty where there are no such kinds */
    tt_ddp_border_t *borders;         /* [count] */
    int count;
} tt_ddp_borders_t;

/* Of tutti_ddp_summon(). */
typedef struct {
    bool is_on, writes;
    int first, end; /* units; where it writes, the one of small parameters, too */
} tt_ddp_summons_t;

struct tutti_ddp {
    tutti_context_t *ctx;
    tutti_module_t *module;
    tutti_group_t *group;
    tutti_ddp_options_t options; /* ddp_options.c, as the next two */
    bool is_exact;
    tt_hosted_t hosted;       /* shards of this rank */
    tutti_idle_t idle;        /* moves the group's calls forward */
    int64_t sent_before;      /* by the group, when DDP began */
    int64_t uncanonical_sums; /* of the group, when DDP began */
    tt_ddp_ignored_t ignored; /* ddp_ignored.c; in none of the lists below */
    tt_ddp_borders_t borders; /* ddp_borders.c */
    tt_ddp_meta_t meta;       /* ddp_meta.c */
    tt_tensor_list_t list;    /* parameters that need a gradient */
    tt_tensor_list_t frozen;  /* floating ones that need none */
    tt_ddp_param_t *params;   /* [param_count] of the list */
    int param_count;
    bool has_others; /* some parameters are another stage's, perhaps all that need a gradient */

    tt_ddp_driver_t *driver;          /* ddp_driver.c; NULL: the user runs backward */
    bool looks_away;                  /* ddp_driver.c: gradients that come are not its shard's */
    tt_reducer_t *reducer;            /* ddp_layout.c */
    bool is_rebuilt;                  /* ddp_layout.c */
    tt_ddp_step_t step;               /* ddp_step.c */
    tt_ddp_control_t control;         /* ddp_control.c */
    tt_ddp_optimizer_t optimizer;     /* ddp_optim.c */
    tt_ddp_slices_t slices;           /* ddp_slices.c */
    tt_ddp_units_t units;             /* ddp_units.c, ddp_unit_policy.c */
    tt_ddp_order_t order;             /* ddp_unit_order.c */
    tt_ddp_summons_t summons;         /* ddp_sharded.c */
    bool leaves_units;                /* ddp_unit_hooks.c: behind the backward under way */
    tt_ddp_mixed_t mixed;             /* ddp_mixed.c */
    tt_ddp_buffers_t buffers;         /* ddp_buffers.c */
    tt_ddp_times_t times, last_times; /* ddp_stats.c */
};

/* ddp_step.c: a gradient has come into its slot. */
tutti_status_t tt_ddp_take_gradient(tutti_ddp_t *ddp, const tt_ddp_param_t *param);

/* ddp_options.c: options with defaults put in, checked. If AUTO is asked for, bucket_bytes is
 * measured, by all ranks together. */
tutti_status_t tt_ddp_take_options(tutti_ddp_t *ddp, const tutti_ddp_options_t *options);
tutti_status_t tt_ddp_choose_bucket_bytes(tutti_ddp_t *ddp);
size_t tt_ddp_auto_bytes(int64_t small_ns, int64_t large_ns);

/* ddp_ignored.c: which tensors it leaves alone. Errors: ARG (a name of nothing), NOMEM. A step
 * begins: their gradients are forgotten. */
tutti_status_t tt_ddp_choose_ignored(tutti_ddp_t *ddp);
bool tt_ddp_is_ignored(const tutti_ddp_t *ddp, const tutti_tensor_t *x);
void tt_ddp_ignored_begin_step(tutti_ddp_t *ddp);
void tt_ddp_forget_ignored(tutti_ddp_t *ddp);

/* ddp_meta.c: whether a parameter may lie on meta; then they leave it. */
bool tt_ddp_is_on_meta(const tutti_tensor_t *x);
tutti_status_t tt_ddp_check_meta(const tutti_ddp_t *ddp, const char *name, const tutti_tensor_t *x);
tutti_status_t tt_ddp_open_meta(tutti_ddp_t *ddp);
void tt_ddp_close_meta(tutti_ddp_t *ddp);

/* Whether it has left meta, and has no values yet. These, owned by the caller; NULL: it is not so.
 * All are made, on all ranks: meta has them no more. */
bool tt_ddp_is_unmade(const tutti_ddp_t *ddp, const tutti_tensor_t *x);
tutti_status_t tt_ddp_make_values(tutti_ddp_t *ddp, const tutti_tensor_t *x, tutti_tensor_t **out);
void tt_ddp_note_made(tutti_ddp_t *ddp);

/* Parameters have been written as a whole, or a unit's; STATE until all are, with options.no_init.
 * Small ones of a unit (is_kept) are with the last unit. */
void tt_ddp_note_loaded(tutti_ddp_t *ddp);
void tt_ddp_note_written(tutti_ddp_t *ddp, int unit);
tutti_status_t tt_ddp_check_loaded(const tutti_ddp_t *ddp);

/* ddp_borders.c: which modules compute in f32. Errors: ARG (no such kind; a parameter that is in
 * both), NOMEM. Then their hooks. user: a ddp; whether a tensor of it is f32 in steps, too. */
tutti_status_t tt_ddp_choose_borders(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_hook_borders(tutti_ddp_t *ddp);
void tt_ddp_close_borders(tutti_ddp_t *ddp);
bool tt_ddp_stays_f32(const void *user, const tutti_tensor_t *x);

/* ddp_check.c: `status` is how this rank has fared so far; the same failure on every rank. */
tutti_status_t tt_ddp_check_model(tutti_ddp_t *ddp, tutti_status_t status);
tutti_status_t tt_ddp_broadcast_model(tutti_ddp_t *ddp);

/* Before a step: dtypes are what they were, and who needs a gradient. */
tutti_status_t tt_ddp_check_unchanged(const tutti_ddp_t *ddp);

/* ddp_layout.c: before the second step buckets are rebuilt. */
tutti_status_t tt_ddp_open_layout(tutti_ddp_t *ddp);
void tt_ddp_close_layout(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_rebuild(tutti_ddp_t *ddp);

/* ddp_control.c */
tutti_status_t tt_ddp_open_control(tutti_ddp_t *ddp);
void tt_ddp_close_control(tutti_ddp_t *ddp);

/* A step begins; a shard ends, whose weight is known; the last backward has ended, and parameters
 * without a gradient are named. */
void tt_ddp_reset_control(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_note_shard(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_report_unused(tutti_ddp_t *ddp);

/* Start to travel, behind the buckets; then what came back. END: the epoch is over. */
tutti_status_t tt_ddp_send_control(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_take_control(tutti_ddp_t *ddp);

/* ddp_slices.c: behind the layout; at stage 3, behind the flats. A step begins; averages have come
 * back, and are told of. Where a parameter may be cut, for tt_reducer_options_t. */
tutti_status_t tt_ddp_open_slices(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_open_unit_slices(tutti_ddp_t *ddp);
void tt_ddp_close_slices(tutti_ddp_t *ddp);

/* Parameters are where they were put. */
tutti_status_t tt_ddp_check_slices(const tutti_ddp_t *ddp);
void tt_ddp_slices_begin_step(tutti_ddp_t *ddp);
void tt_ddp_slices_arrive(tutti_ddp_t *ddp);

/* Where buckets of parameters are gathered as soon as they have been stepped: a group for that;
 * collective. A bucket's averages are final: what is stepped; then it starts, in the order of
 * buckets; at the end of the step all others do, and all have come back. */
tutti_status_t tt_ddp_open_gathers(tutti_ddp_t *ddp);
void tt_ddp_slices_show(const tutti_ddp_t *ddp, int bucket);
tutti_status_t tt_ddp_start_gather(tutti_ddp_t *ddp, int bucket);
tutti_status_t tt_ddp_end_gathers(tutti_ddp_t *ddp);
int64_t tt_ddp_grain(const void *ddp, const tutti_tensor_t *param);

/* ddp_mixed.c */
tutti_status_t tt_ddp_open_mixed(tutti_ddp_t *ddp);
void tt_ddp_close_mixed(tutti_ddp_t *ddp);

/* A step begins: parameters become 16-bit copies. A bucket's, or all, become f32 again. */
tutti_status_t tt_ddp_swap_to_low(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_swap_bucket_to_f32(tutti_ddp_t *ddp, int bucket);
tutti_status_t tt_ddp_swap_to_f32(tutti_ddp_t *ddp);

/* ddp_optim.c: the optimizer is ours until it is given back; then what has arrived and is read by
 * nobody any more is stepped, and at the end all the rest. */
tutti_status_t tt_ddp_attach_optimizer(tutti_ddp_t *ddp);
void tt_ddp_detach_optimizer(tutti_ddp_t *ddp);
bool tt_ddp_steps_buckets(const tutti_ddp_t *ddp); /* one after the other, not all at once */
tutti_status_t tt_ddp_step_arrived(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_step_rest(tutti_ddp_t *ddp);

/* ddp_stats.c: something happens now. */
void tt_ddp_time_shard(tutti_ddp_t *ddp);
void tt_ddp_time_gradient(tutti_ddp_t *ddp);
void tt_ddp_time_backward_end(tutti_ddp_t *ddp);
void tt_ddp_time_arrivals(tutti_ddp_t *ddp); /* looks which buckets have come back */
void tt_ddp_time_finish(tutti_ddp_t *ddp, int64_t begin_ns);

/* ddp_buffers.c */
tutti_status_t tt_ddp_open_buffers(tutti_ddp_t *ddp);
void tt_ddp_close_buffers(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_check_buffers(const tutti_ddp_t *ddp); /* they have the size they had */

/* Each shard begins with the buffers as the step found them; the first one's that has data are
 * kept when it ends. */
tutti_status_t tt_ddp_buffers_begin_step(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_buffers_begin_shard(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_buffers_end_shard(tutti_ddp_t *ddp);

/* They travel to all ranks, and become the module's; those of the step's begin, if it was the end
 * of the epoch. */
tutti_status_t tt_ddp_buffers_leave(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_buffers_arrive(tutti_ddp_t *ddp, bool is_end);

tutti_tensor_t *tt_ddp_on_grad(tutti_scope_t *s, tutti_tensor_t *grad, void *user);
void tt_ddp_on_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, void *user);
void tt_ddp_move(void *user);     /* bytes and their sums: also inside a kernel */
void tt_ddp_progress(void *user); /* and what comes of them */

static inline int tt_ddp_shard_count(const tutti_ddp_t *ddp)
{
    return ddp->hosted.count;
}

static inline bool tt_ddp_is_sharded_sum(const tutti_ddp_t *ddp)
{
    return ddp->options.accumulate == TUTTI_DDP_SHARDED;
}

/* Whether ranks come to units together in each round, of which one may have less to compute. With a
 * driver all units are there anyway. */
static inline bool tt_ddp_rounds_are_told(const tutti_ddp_t *ddp)
{
    return tt_ddp_has_units(ddp) && ddp->order.announces && ddp->driver == NULL;
}

/* One of its units; who changes what of it, says ddp_units.h. */
static inline tt_unit_t *tt_ddp_unit(const tutti_ddp_t *ddp, int index)
{
    return &ddp->units.units[index];
}

/* The shard under way. */
static inline int tt_ddp_shard(const tutti_ddp_t *ddp)
{
    return ddp->hosted.first + (ddp->step.next_shard - 1) * ddp->hosted.stride;
}

#endif
