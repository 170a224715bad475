/* The inside of a pipeline.
 *
 *     chain    part 0 │ part 1 │ part 2 │ part 3 │ part 4        pipeline_chain.c
 *     stages   ──── stage 0 ───┼───── stage 1 ───┼─ stage 2      pipeline_cut.c
 *     cells    of this rank's stages, [stage][micro-batch]:      pipeline_cell.c
 *              the graph of one forward, until its backward
 *     mail     tensors that come from and go to other ranks      pipeline_mail.c
 *     ties     parameters that several parts have                pipeline_ties.c
 *     slices   who steps which parameter                         pipeline_slices.c
 *     step     the row of actions, and what ends it              pipeline_step.c
 *     evaluate forwards alone, of batches that are not cut, too  pipeline_evaluate.c
 *     versions older weights, where stages step inside a batch   pipeline_versions.c
 *     norms    running statistics that move once for a batch     pipeline_norms.c
 *     shards   several in one row: what waits for DDP            pipeline_shards.c
 *     validate steps before all gradients are known              pipeline_validate.c
 *     ahead    forwards before the verdict on the step before    pipeline_ahead.c
 *     undo     what they change, as it was before                pipeline_undo.c
 *     ddp      replicas whose gradients are averaged             pipeline_ddp.c
 */
#ifndef TT_PIPELINE_IMPL_H
#define TT_PIPELINE_IMPL_H

#include <tutti/pipeline_run.h>

#include "core/base/fail.h"
#include "core/tensor/slice.h"
#include "parallel/ddp/ddp_driver.h"

enum { TT_WIDTH = TUTTI_PIPELINE_TENSORS_MAX };

/* ---- parts ----------------------------------------------------------------------------------- */

typedef struct {
    char *name;
    tutti_module_t *module; /* borrowed from the chain */
    int outputs;
    bool is_recomputed;
    int parent; /* the chain that it is a link of */
    int stage;
    bool begins_segment; /* its inputs are leaves of a graph of their own */
} tt_part_t;

typedef struct {
    tt_part_t *parts; /* [count] */
    int count, capacity;
    int parents; /* chains that were taken apart */
} tt_chain_t;

/* Errors: ARG (a chain without links, too many outputs, a tensor that no part has), NOMEM. */
tutti_status_t tt_chain_open(tutti_module_t *module, tt_chain_t *chain);
void tt_chain_close(tt_chain_t *chain);

/* Writes the parts' stages. Errors: ARG. */
tutti_status_t tt_chain_cut(tt_chain_t *chain, int stages, const char *const *names, int count);

/* ---- cells ----------------------------------------------------------------------------------- */

/* A part of a stage between two cuts of the graph: parts [first, end). */
typedef struct {
    int first, end;
    int input_count, output_count;    /* in the forward under way */
    tutti_tensor_t *inputs[TT_WIDTH]; /* in the cell's scope; leaves */
    tutti_tensor_t *outputs[TT_WIDTH];
    tutti_tensor_t *grads[TT_WIDTH];       /* of the outputs, in the scope; NULL: none */
    tutti_tensor_t *input_grads[TT_WIDTH]; /* the same of the inputs */
    tutti_backward_run_t *run;             /* between I and W */
    bool has_backward;                     /* some output needs a gradient, and has one */
} tt_segment_t;

typedef struct {
    tutti_scope_t *scope;   /* NULL: nothing is there */
    tt_segment_t *segments; /* [segment_count of the stage] */
    double loss;
    int64_t rows, total; /* of the micro-batch, and of the batch */
} tt_cell_t;

typedef struct tt_stage_known tt_stage_known_t; /* stage_outputs.c */

typedef struct {
    int index, first, end; /* parts */
    int segment_count;
    tt_cell_t *cells;       /* [slots] */
    int *left;              /* [shards] B or W until the stage's gradients of it are whole */
    int *weights, *buffers; /* [weight_count], [buffer_count] of params: what it has; no ties */
    int weight_count, buffer_count;
    tt_stage_known_t *known; /* which outputs followed from which inputs */
} tt_stage_t;

/* ---- mail ------------------------------------------------------------------------------------ */

/* In which call a row of actions runs. */
typedef enum { TT_CALL_STEP, TT_CALL_EVALUATE, TT_CALL_EVALUATE_BATCHES } tt_pipeline_call_t;

/* What goes ahead of the tensors of a message. */
typedef struct {
    int64_t stage, micro_batch, is_backward; /* whose inputs, or whose outputs' gradients */
    int64_t rows, total, count;
    int64_t call, batches; /* of the sender; how many batches the call has */
    int64_t runs_ahead;    /* whose step has begun before the verdict on the one before */
    struct {
        int64_t dtype, flags, rank;
        int64_t dims[TUTTI_RANK_MAX];
    } tensors[TT_WIDTH];
} tt_mail_head_t;

/* Something that is on its way from another rank. */
typedef struct {
    int stage, micro_batch; /* of the action that needs it */
    bool is_backward;
    int peer;
    tutti_tensor_t *head; /* bytes of a tt_mail_head_t; NULL: nothing is posted */
    tutti_work_t *head_work;
    tutti_work_t *work; /* of the tensors */
    tutti_tensor_t *tensors[TT_WIDTH];
    bool is_posted; /* the head has come, and there is room for the tensors, if there are any */
    bool is_taken;
    bool is_ahead; /* it is sent before its sender has the verdict on the step before */
} tt_letter_t;

typedef struct {
    tutti_work_t *work;
} tt_sent_t;

typedef struct {
    tt_letter_t *letters; /* [letter_count] all that come in a step, in the row's order */
    int letter_count;
    int next; /* the first that has not been taken */
    tt_sent_t *sent;
    int sent_count, sent_capacity;
} tt_mail_t;

/* ---- ties ------------------------------------------------------------------------------------ */

typedef struct {
    int part;
    tutti_tensor_t **grads; /* [shards] of this step, owned; NULL: none yet, or another rank's */
} tt_use_t;

typedef struct {
    const char *name; /* borrowed */
    tutti_tensor_t *tensor;
    tt_use_t *uses; /* [use_count], in forward order */
    int use_count;
    tutti_tensor_t *before; /* its gradient before the step, owned; NULL: none */
    tutti_tensor_t *home;   /* DDP's place for the sum, owned, of a stale one; NULL: anywhere */
} tt_tie_t;

/* ---- parameters ------------------------------------------------------------------------------ */

typedef struct {
    char *name;
    tutti_tensor_t *tensor; /* retained */
    int owner;              /* the rank that steps it */
    int first_part;
    bool is_mine;   /* this rank has its values */
    bool is_sliced; /* seen hangs on it */
    tt_tensor_slice_t seen;
    tutti_tensor_t *grad; /* what seen.grad points to */
    bool is_optimized;    /* by the optimizer that steps inside a batch */

    /* pipeline_shards.c */
    tutti_tensor_t **waiting; /* [shards] gradients, or values of a buffer, of shards whose turn it
                                 is not; owned. NULL: it is tied, or another rank's */
    tutti_tensor_t *home;     /* the gradient meanwhile, owned */
    bool is_away, home_is_stale;
    int at, *left; /* of a buffer: whose values it has, -1: none yet; [shards] F that move it */
} tt_pipeline_param_t;

/* Where a step is, for texts of failures. */
typedef struct {
    tutti_pipeline_action_t action;
    int peer; /* whose message is awaited; -1: none */
    bool is_begun;
    bool is_behind; /* the row is done: it was the last action */
} tt_pipeline_place_t;

struct tutti_pipeline {
    tutti_context_t *ctx;
    tutti_module_t *module;
    tutti_group_t *group; /* NULL: one rank */
    tutti_device_t *meta;
    int rank, ranks, stages;
    int micro_batches, shards; /* of a shard; of the row */
    int slots;                 /* numbers of the row: shards × micro_batches */
    int cut_into;              /* numbers of a batch: micro_batches; 1 where none is cut */
    int world_rank;            /* of this rank */
    tutti_pipeline_run_options_t options;
    tt_chain_t chain;
    int *rank_of_stage; /* [stages] */
    tt_stage_t *own;    /* [own_count] */
    int own_count;
    tutti_pipeline_row_t row;
    tt_mail_t mail;
    tt_tie_t *ties; /* [tie_count] */
    int tie_count;
    tt_pipeline_param_t *params; /* [tensor_count] in the order of registration: parameters, of
                                    which there are param_count, then buffers */
    int param_count, tensor_count, tensor_capacity;
    tt_slicer_t slicer;
    struct tt_versions *versions;     /* NULL: steps are the caller's, behind a batch */
    struct tt_validation *validation; /* NULL: a step's end is the caller's */
    int64_t ahead;   /* actions of the row that may come before the verdict: forwards */
    bool runs_ahead; /* they do, in the step under way */
    /* Gives numbers their sums, in the place of the other ranks. NULL: they are asked. */
    tutti_status_t (*answer)(tutti_pipeline_t *p, double *numbers, size_t count);
    struct tt_deferred_norm *norms; /* a list; NULL: running statistics move in forward */
    bool is_undecided;              /* the last step may be undone yet, and nobody else steps */
    bool steps_alone;               /* this stage steps now, with no others */
    tutti_idle_t idle;
    bool has_idle;
    tutti_ddp_t *ddp; /* averages over replicas, borrowed; NULL: there is one */
    tt_ddp_driver_t driver;
    /* of a step */
    const tutti_pipeline_shard_t
        *batches; /* [batch_count] of its shards; NULL: none is under way */
    int batch_count;
    int first_batch, call_batches; /* the row's first batch, of so many in the call */
    tt_pipeline_call_t call;
    bool trains;
    bool has_turns;      /* shards are in one row, and it begins them at DDP */
    int turn;            /* the shard whose gradients DDP takes */
    int64_t first_shard; /* number of the row's first one */
    int open;            /* (stage, shard) pairs with gradients that DDP has not taken in */
    int64_t waiting_bytes;
    int64_t step, shard; /* that is under way, or was last */
    bool is_held;        /* DDP's user adds more to the shard's gradients */
    tt_pipeline_place_t place;
    tutti_status_t status; /* the first failure */
    char error[TT_ERROR_TEXT_BYTES];
    int live;
    tutti_pipeline_stats_t stats;
};

/* Numbers of a row: micro-batch b % cut_into of batch b / cut_into, which is a shard's in a step.
 */
static inline int tt_shard_of(const tutti_pipeline_t *p, int slot)
{
    return slot / p->cut_into;
}

static inline const tutti_pipeline_batch_t *tt_batch_of(const tutti_pipeline_t *p, int slot)
{
    return &p->batches[tt_shard_of(p, slot)].batch;
}

/* Of a batch's rows: the first micro-batches have one more. */
static inline int64_t tt_micro_batch_rows(const tutti_pipeline_t *p, int64_t total, int slot)
{
    return total / p->cut_into + (slot % p->cut_into < total % p->cut_into);
}

/* Whether a number of the row is left out: of an empty shard, or of one that there is not. */
static inline bool tt_is_left_out(const tutti_pipeline_t *p, int slot)
{
    const int shard = tt_shard_of(p, slot);
    return shard >= p->batch_count || p->batches[shard].is_empty;
}

static inline int tt_rank_of_stage(const tutti_pipeline_t *p, int stage)
{
    return p->rank_of_stage[stage];
}

/* This rank's stage of a number; NULL: another rank's. */
static inline tt_stage_t *tt_pipeline_stage(tutti_pipeline_t *p, int stage)
{
    for (int i = 0; i < p->own_count; i++) {
        if (p->own[i].index == stage) {
            return &p->own[i];
        }
    }
    return NULL;
}

/* ---- pipeline_cell.c ------------------------------------------------------------------------- */

tutti_status_t tt_cell_forward(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch);

/* Turns of a backward: whole, inputs alone, weights alone. */
typedef enum { TT_TURN_WHOLE, TT_TURN_INPUTS, TT_TURN_WEIGHTS } tt_turn_t;
tutti_status_t tt_cell_backward(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch,
                                tt_turn_t turn);

/* Gives back all that it holds; status: how the step fares. Returns the scope's failure, if any. */
tutti_status_t tt_cell_close(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch);

/* ---- stage_outputs.c ----------------------------------------------------------------------- */

/* Outputs of a stage as they followed from its inputs. Errors: SHAPE (others than before), NOMEM.
 */
tutti_status_t tt_stage_check_outputs(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch);
void tt_stage_forget(tt_stage_t *stage);

/* ---- pipeline_mail.c ------------------------------------------------------------------------- */

/* Makes the list of what comes in a step; evaluation has forward alone. */
tutti_status_t tt_mail_open(tutti_pipeline_t *p);
void tt_mail_close(tutti_pipeline_t *p);
void tt_mail_begin_step(tutti_pipeline_t *p);
/* Waits until all that was sent is gone. */
tutti_status_t tt_mail_end_step(tutti_pipeline_t *p);
/* Posts what may be, and gives back what is done. */
tutti_status_t tt_mail_advance(tutti_pipeline_t *p);

/* The tensors that an action needs, owned by the caller, of the host; waits. grads of outputs may
 * be NULL. */
tutti_status_t tt_mail_take(tutti_pipeline_t *p, int stage, int micro_batch, bool is_backward,
                            tt_mail_head_t *head, tutti_tensor_t *tensors[TT_WIDTH]);

/* A letter that was sent ahead, and is sent again: it is received, and forgotten. */
tutti_status_t tt_mail_drop(tutti_pipeline_t *p, tt_letter_t *letter);

/* Sends tensors (of any device; NULL: none) on, in a scope. */
tutti_status_t tt_mail_send(tutti_pipeline_t *p, tutti_scope_t *s, tt_mail_head_t *head,
                            tutti_tensor_t *const *tensors, int peer);

/* ---- pipeline_ties.c ------------------------------------------------------------------------- */

tutti_status_t tt_ties_open(tutti_pipeline_t *p);
void tt_ties_close(tutti_pipeline_t *p);
void tt_ties_begin_step(tutti_pipeline_t *p);
/* Around a backward of parts [first, end): a shard's gradients go to the uses there. */
tutti_status_t tt_ties_enter(tutti_pipeline_t *p, int first, int end, int shard);
void tt_ties_leave(tutti_pipeline_t *p, int first, int end, int shard);
/* Whether several ranks have it. */
bool tt_tie_spans_ranks(const tutti_pipeline_t *p, const tt_tie_t *tie);
/* Adds up what the uses of ties on one rank, or on several, got of a shard, on the rank that steps
 * them. */
tutti_status_t tt_ties_end_shard(tutti_pipeline_t *p, int shard, bool spans_ranks);
/* Whether this rank steps a tied parameter that other ranks have, too. */
bool tt_ties_await_ranks(const tutti_pipeline_t *p);
/* Behind an optimizer's step: other ranks that have a tied parameter get its values. */
tutti_status_t tt_ties_share(tutti_pipeline_t *p);

/* ---- pipeline_slices.c ----------------------------------------------------------------------- */

tutti_status_t tt_params_open(tutti_pipeline_t *p);  /* names, owners */
tutti_status_t tt_params_place(tutti_pipeline_t *p); /* own ones get memory, others lose it */
tutti_status_t tt_slices_open(tutti_pipeline_t *p);
void tt_slices_close(tutti_pipeline_t *p);
void tt_slices_begin_step(tutti_pipeline_t *p);
/* The optimizer sees a gradient of the parameter: this rank's, or another's as an empty slice. */
tutti_status_t tt_slices_show(tutti_pipeline_t *p, tt_pipeline_param_t *param);
/* Whether this rank's stage has a gradient of it, of which this rank may have a slice. */
bool tt_slices_has_grad(const tutti_pipeline_t *p, const tt_pipeline_param_t *param);
/* The same as show, and where there is none the optimizer sees nothing of one, as other ranks do.
 */
tutti_status_t tt_slices_count(tutti_pipeline_t *p, tt_pipeline_param_t *param);
/* How this rank has fared, and its replicas: the same failure on all of them. */
tutti_status_t tt_slices_agree_with_replicas(const tutti_pipeline_t *p, tutti_status_t status);
/* The parameter has another storage: so has its slice. */
tutti_status_t tt_slices_follow(tutti_pipeline_t *p, tt_pipeline_param_t *param);

/* All ranks are told the losses of the step's shards, if they are wanted (not NULL), and which
 * parameters have gradients: optimizers see these from now on. */
tutti_status_t tt_slices_end_step(tutti_pipeline_t *p, bool shows_grads, double *losses);

/* ---- pipeline_shards.c ----------------------------------------------------------------------- */

tutti_status_t tt_shards_open(tutti_pipeline_t *p);
void tt_shards_close(tutti_pipeline_t *p);
tutti_status_t tt_shards_begin_step(tutti_pipeline_t *p);

/* Around a backward of a stage: gradients of a shard whose turn it is not wait. */
tutti_status_t tt_shards_enter(tutti_pipeline_t *p, const tt_stage_t *stage, int shard);
void tt_shards_leave(tutti_pipeline_t *p, const tt_stage_t *stage, int shard);

/* Around a forward of a stage: it moves the shard's values of buffers. */
tutti_status_t tt_shards_enter_forward(tutti_pipeline_t *p, const tt_stage_t *stage, int shard);
tutti_status_t tt_shards_leave_forward(tutti_pipeline_t *p, const tt_stage_t *stage, int shard);

/* Behind a B or W. The turn goes on where all stages are done with a shard. */
tutti_status_t tt_shards_note(tutti_pipeline_t *p, tt_stage_t *stage, int shard);
/* Behind the row: all shards have had their turn. */
tutti_status_t tt_shards_end_step(tutti_pipeline_t *p);
/* Whether a shard's running statistics are those of the step. */
bool tt_shard_is_first(const tutti_pipeline_t *p, int shard);
/* Around what moves buffers at the end of a step: they have the first shard's values. */
tutti_status_t tt_shards_enter_end(tutti_pipeline_t *p);
tutti_status_t tt_shards_leave_end(tutti_pipeline_t *p);
/* The step has failed. */
void tt_shards_forget(tutti_pipeline_t *p);

/* Losses of a shard on this rank. */
double tt_slices_loss(const tutti_pipeline_t *p, int shard);

/* ---- pipeline_validate.c --------------------------------------------------------------------- */

void tt_validation_close(tutti_pipeline_t *p);
/* Behind each row of a step: its losses are told with the verdict; the step is none. */
tutti_status_t tt_validation_note_losses(tutti_pipeline_t *p);
void tt_validation_drop(tutti_pipeline_t *p);
/* Behind all rows, and averages: this rank steps, and tells the others its numbers. */
tutti_status_t tt_validation_step(tutti_pipeline_t *p);
/* The step under way is what it should be from here on; nothing without one. */
tutti_status_t tt_validation_settle(tutti_pipeline_t *p);

/* Whether the last verdict changed what forwards of the next step have seen. */
bool tt_validation_has_changed(const tutti_pipeline_t *p);

/* ---- pipeline_ahead.c ------------------------------------------------------------------------ */

/* Finds the forwards that come before the first backward, here and on the ranks that send to this
 * one. */
tutti_status_t tt_ahead_open(tutti_pipeline_t *p);
/* Whether the next step begins with them: the same on all ranks. */
bool tt_ahead_is_due(const tutti_pipeline_t *p);
/* Before them; and behind them, where they are to be made again: nothing of them is left. */
tutti_status_t tt_ahead_keep(tutti_pipeline_t *p);
tutti_status_t tt_ahead_forget(tutti_pipeline_t *p);

/* ---- pipeline_ddp.c -------------------------------------------------------------------------- */

void tt_pipeline_leave_ddp(tutti_pipeline_t *p);

/* Between steps: at DDP's stage 3 parameters are here when they are called, and go again. All ranks
 * of the row have them, or none does. */
tutti_status_t tt_pipeline_summon(tutti_pipeline_t *p);
/* How it went meanwhile, whose text is tutti_last_error(); returns that, or a failure of its own.
 */
tutti_status_t tt_pipeline_dismiss(tutti_pipeline_t *p, tutti_status_t status);

/* ---- pipeline_collect.c ---------------------------------------------------------------------- */

/* The first `count` of params, whole and of the host, one at a time on every rank. */
tutti_status_t tt_pipeline_each_whole(tutti_pipeline_t *p, int count, tutti_tensor_visit_t visit,
                                      void *user);

/* ---- pipeline_step.c ------------------------------------------------------------------------- */

/* The row, for some batches. losses: NULL, or [count]. */
tutti_status_t tt_pipeline_run(tutti_pipeline_t *p, const tutti_pipeline_shard_t *batches,
                               int count, double *losses);

/* ---- pipeline_fail.c ------------------------------------------------------------------------- */

/* The first failure, whose text is tutti_last_error(), is kept with the place of the step, and ends
 * the step on all ranks. */
tutti_status_t tt_pipeline_fail(tutti_pipeline_t *p, tutti_status_t status);

#endif
