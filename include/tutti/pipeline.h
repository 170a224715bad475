/**
 * @file pipeline.h
 * Pipeline schedules as data: which rank computes, sends and receives what, in which order.
 *
 * A model is cut into stages 0 … S - 1, and a batch into micro-batches. A *row* is what one rank
 * does, in order; a *schedule* is the rows of all ranks. Planning is a pure function of the
 * options, a rank plans its own row alone, and what is planned can be checked, simulated, drawn,
 * written and read. docs/guide/pipelines.md says which schedule is for what.
 *
 * Example:
 *
 *     const tutti_pipeline_options_t options = {
 *         .schedule = "zb-h1", .ranks = 4, .micro_batches = 8};
 *     tutti_pipeline_row_t row;
 *     TUTTI_CHECK(tutti_pipeline_plan_row(&options, 1, &row));
 *     for (int64_t i = 0; i < row.count; i++) {
 *         char text[TUTTI_PIPELINE_TEXT_MAX];
 *         tutti_pipeline_action_text(&row.actions[i], text, sizeof text);
 *         printf("%s ", text); // 1RECV_F0 1F0 1SEND_F0 …
 *     }
 *     tutti_pipeline_row_release(&row);
 */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/objects.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an action does. Messages carry what they are about, and match by it, not by their order:
 *  a send begins and does not wait, a receive is what the next computation waits for. */
typedef enum tutti_pipeline_kind {
    TUTTI_PIPELINE_F,       /**< forward */
    TUTTI_PIPELINE_B,       /**< backward, whole: gradients of the inputs and of the weights */
    TUTTI_PIPELINE_I,       /**< backward, the gradients of the inputs alone */
    TUTTI_PIPELINE_W,       /**< backward, the gradients of the weights, some time after I */
    TUTTI_PIPELINE_SEND_F,  /**< the stage's outputs, to the rank of stage + 1 */
    TUTTI_PIPELINE_RECV_F,  /**< the stage's inputs, from the rank of stage - 1 */
    TUTTI_PIPELINE_SEND_B,  /**< the gradients of the stage's inputs, to the rank of stage - 1 */
    TUTTI_PIPELINE_RECV_B,  /**< the gradients of the stage's outputs, from that of stage + 1 */
    TUTTI_PIPELINE_UNSHARD, /**< gather the stage's parameters (sharded training) */
    TUTTI_PIPELINE_RESHARD, /**< let the gathered parameters go */
    TUTTI_PIPELINE_REDUCE,  /**< the shard's gradients of the stage are complete: hand them over */
    TUTTI_PIPELINE_STEP,    /**< the optimizer steps the stage */
} tutti_pipeline_kind_t;

/**
 * One action of a row.
 *
 * Shards and micro-batches are one line of numbers: with M micro-batches a shard, number b is
 * micro-batch b % M of shard b / M. So a schedule of V shards is that of V × M micro-batches, and
 * an executor has an accumulator for each shard from its first B or W of a stage to its REDUCE.
 */
typedef struct tutti_pipeline_action {
    tutti_pipeline_kind_t kind;
    int stage;
    int micro_batch; /**< -1 for UNSHARD and RESHARD; of REDUCE and STEP: the last they take in */
    int version;     /**< weights that F, B, I and W use: how many STEPs of the row they have seen,
                      *   B, I and W those of their F; of a STEP: how many with it. Synchronous
                      *   schedules have 0 everywhere, and STEP 1 */
} tutti_pipeline_action_t;

/** What one rank does, in order. */
typedef struct tutti_pipeline_row {
    tutti_pipeline_action_t *actions; /**< [count] */
    int64_t count;
} tutti_pipeline_row_t;

/** The rows of all ranks. */
typedef struct tutti_pipeline_schedule {
    int ranks, stages;
    int micro_batches, shards;  /**< the numbers of actions end before micro_batches × shards */
    int *rank_of_stage;         /**< [stages] */
    tutti_pipeline_row_t *rows; /**< [ranks] */
} tutti_pipeline_schedule_t;

/** What actions of a stage cost, in any unit of time and of memory. F, I and W all 0: 1 each. */
typedef struct tutti_pipeline_costs {
    double forward;    /**< F */
    double input;      /**< I */
    double weight;     /**< W */
    double backward;   /**< B; 0: input + weight */
    double message;    /**< from the end of what sends to the begin of what receives */
    double step;       /**< STEP */
    double activation; /**< held from F to B or I; 0: 1 */
    double pending;    /**< held from I to W; 0: as activation */
} tutti_pipeline_costs_t;

/** Zero means default. */
typedef struct tutti_pipeline_options {
    const char *schedule; /**< "1f1b", …: tutti_pipeline_describe() has all; NULL: `own`, or 1f1b */
    const tutti_pipeline_schedule_t *own; /**< a schedule of one's own, borrowed; `schedule` NULL */
    int ranks;                            /**< of the pipeline; 0: 1 */
    int stages_per_rank;                  /**< 0: the least that the schedule wants, 1 or 2 */
    int micro_batches;                    /**< of a shard; 0: 1 */
    int shards;                           /**< of this pipeline, one after the other; 0: 1 */
    int accumulate; /**< "2bw" alone: micro-batches of an update, at least `ranks`, its default */
    bool vertical_sync; /**< "pipedream" alone: all stages use the version that stage 0 used */
    bool compute_only;  /**< only F, B, I, W, and those STEPs that others follow */
    bool sharded;       /**< UNSHARD before a stage's first action, RESHARD behind its last */
    tutti_pipeline_costs_t costs; /**< "zb-h2" fills by them; otherwise not looked at */
} tutti_pipeline_options_t;

/** A schedule that comes with Tutti. */
typedef struct tutti_pipeline_about {
    const char *name, *about, *source;
    int stages_per_rank_min, stages_per_rank_max; /**< max 0: any number */
    bool is_v;            /**< stages s and 2 ranks - 1 - s are one rank's; otherwise s % ranks */
    bool is_split;        /**< has I and W */
    bool is_asynchronous; /**< steps while other micro-batches are under way */
} tutti_pipeline_about_t;

/** The index-th schedule; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_pipeline_describe(size_t index, tutti_pipeline_about_t *out);

/**
 * How many stages a pipeline has: ranks × stages per rank, or those of its own schedule.
 *
 * @param options  borrowed
 * @param stages   out
 * @thread any
 * @errors as tutti_pipeline_plan_row
 */
TUTTI_API tutti_status_t tutti_pipeline_stages(const tutti_pipeline_options_t *options,
                                               int *stages);

/**
 * The rank that has a stage.
 *
 * @param options  borrowed; as tutti_pipeline_plan_row takes them
 * @param stage    of 0 … stages - 1
 * @return -1 where there is no such stage, or the options are refused
 * @thread any
 * @errors none
 */
TUTTI_API int tutti_pipeline_rank_of(const tutti_pipeline_options_t *options, int stage);

/**
 * Plan what one rank does: the same actions as its row of tutti_pipeline_plan().
 *
 * A receive stands before the action that needs it, a send behind the one that makes it; between
 * two stages of one rank there are none. REDUCE stands behind a stage's last B or W of a shard, and
 * STEPs at the row's end, in synchronous schedules; in asynchronous ones a STEP stands behind the
 * last B that it takes in.
 *
 * @param options  borrowed
 * @param rank     of 0 … ranks - 1
 * @param row      out, owned by the caller: tutti_pipeline_row_release()
 * @thread any
 * @cost   time and memory linear in the row
 * @errors ARG: unknown schedule (the nearest name), a value out of range, micro-batches that do not
 *         satisfy the schedule (says which number would); NOMEM
 * @source torch.distributed.pipelining
 */
TUTTI_API tutti_status_t tutti_pipeline_plan_row(const tutti_pipeline_options_t *options, int rank,
                                                 tutti_pipeline_row_t *row);

/**
 * Plan what all ranks do.
 *
 * @param options  borrowed
 * @param out      owned by the caller: tutti_pipeline_schedule_release()
 * @thread any
 * @errors as tutti_pipeline_plan_row
 */
TUTTI_API tutti_status_t tutti_pipeline_plan(const tutti_pipeline_options_t *options,
                                             tutti_pipeline_schedule_t *out);

/** Give the actions back; the row is empty then. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_pipeline_row_release(tutti_pipeline_row_t *row);

/** Give all rows back; the schedule is empty then. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_pipeline_schedule_release(tutti_pipeline_schedule_t *schedule);

/* ---- text ------------------------------------------------------------------------------------ */

enum { TUTTI_PIPELINE_TEXT_MAX = 64 };

/**
 * An action as PyTorch writes it: stage, kind, micro-batch: "2F0", "1SEND_B3", "0UNSHARD",
 * "0REDUCE_GRAD7"; and "0STEP7".
 *
 * @param text  out, at most TUTTI_PIPELINE_TEXT_MAX bytes with its 0
 * @return length of the whole text without the final 0, as snprintf does
 * @thread any
 * @errors none
 */
TUTTI_API size_t tutti_pipeline_action_text(const tutti_pipeline_action_t *action, char *text,
                                            size_t text_bytes);

/**
 * A schedule as CSV: a line for each rank, a cell for each action. "0F3@1" is a version that is not
 * the newest of F, or not F's of B, I and W.
 *
 * @param text  out, owned by the caller
 * @thread any
 * @errors NOMEM
 * @source torch.distributed.pipelining, _PipelineScheduleRuntime
 */
TUTTI_API tutti_status_t tutti_pipeline_write(const tutti_pipeline_schedule_t *schedule,
                                              tutti_buffer_t *text);

/**
 * Read a schedule from CSV: PyTorch's and one's own. Empty cells are idle time and are left out;
 * "(0F3;7B1)OVERLAP_F_B" is its actions one after the other. A schedule without messages is a
 * compute-only one: tutti_pipeline_plan() with `own` adds them. Nothing is checked but the form:
 * tutti_pipeline_check() does that.
 *
 * @param text           borrowed, [bytes]
 * @param micro_batches  of a shard; 0: all are of one
 * @param out            owned by the caller: tutti_pipeline_schedule_release()
 * @thread any
 * @errors FORMAT names line and cell; ARG: micro_batches does not divide their number; NOMEM
 */
TUTTI_API tutti_status_t tutti_pipeline_read(const void *text, size_t bytes, int micro_batches,
                                             tutti_pipeline_schedule_t *out);

/* ---- looking at a schedule ------------------------------------------------------------------- */

/** What a check has found. */
typedef struct tutti_pipeline_report {
    bool is_canonical;   /**< per stage and shard, B or W come in ascending order, and F do: so the
                          *   sums have one process's bits, and so have the running statistics of
                          *   batch norm, which F moves */
    int64_t messages;    /**< between ranks, in all */
    int activations_max; /**< micro-batches of stages that a rank holds at once, the most of all */
    int versions_max;    /**< weights that a stage holds at once, from the oldest that it still
                          *   needs to the newest; 1 in synchronous schedules */
    int open_shards_max; /**< accumulators that a stage needs at once */
} tutti_pipeline_report_t;

/**
 * Check a schedule: every stage has one rank, every micro-batch goes through every stage once,
 * forward and backward, every message has its other end, versions exist, and no rank waits for
 * itself.
 *
 * @param schedule  borrowed; compute-only too
 * @param report    out, on TUTTI_OK
 * @param grid      out, owned by the caller; behind an error the ranks' rows side by side with the
 *                  place marked, otherwise empty; NULL: not wanted
 * @thread any
 * @cost   linear in the actions
 * @errors ARG names rank, action and what it waits for or lacks; NOMEM
 */
TUTTI_API tutti_status_t tutti_pipeline_check(const tutti_pipeline_schedule_t *schedule,
                                              tutti_pipeline_report_t *report,
                                              tutti_buffer_t *grid);

/** When an action runs. */
typedef struct tutti_pipeline_span {
    double begin, end;
} tutti_pipeline_span_t;

/** What a rank does with its time and memory. */
typedef struct tutti_pipeline_load {
    double busy;            /**< time in F, B, I, W, STEP */
    double begin, end;      /**< of its first and last such action */
    double idle;            /**< between begin and end */
    double activations_max; /**< memory of activations at its peak, in the unit of the costs */
    int accumulators_max;   /**< gradients held at once at the peak, each of a stage and a shard:
                             *   from its first B or W until all stages of the rank have their last
                             *   of it and of the shards before */
} tutti_pipeline_load_t;

/** How a schedule would run. */
typedef struct tutti_pipeline_simulation {
    double time;   /**< until the last rank is done */
    double work;   /**< busy time of the busiest rank */
    double bubble; /**< the idle share of all ranks' time, of 0 … 1 */
    int ranks;
    tutti_pipeline_load_t *loads;  /**< [ranks] */
    tutti_pipeline_span_t **spans; /**< [ranks][actions of the rank] */
} tutti_pipeline_simulation_t;

/**
 * Run a schedule with a clock alone: an action begins when its rank is free and what it needs is
 * there.
 *
 * @param schedule  borrowed; compute-only too
 * @param costs     [1], or one for each stage: [schedule->stages]; NULL: defaults
 * @param count     of costs: 1 or schedule->stages
 * @param out       owned by the caller: tutti_pipeline_simulation_release()
 * @thread any
 * @cost   linear in the actions
 * @errors ARG: count, a cost that is negative or not finite; as tutti_pipeline_check; NOMEM
 */
TUTTI_API tutti_status_t tutti_pipeline_simulate(const tutti_pipeline_schedule_t *schedule,
                                                 const tutti_pipeline_costs_t *costs, int count,
                                                 tutti_pipeline_simulation_t *out);

/** Give it back. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_pipeline_simulation_release(tutti_pipeline_simulation_t *simulation);

/**
 * A schedule in time, as text (a line for each rank) or as a picture (SVG).
 *
 * @param schedule    borrowed
 * @param simulation  borrowed; of this schedule
 * @param is_svg      a picture; otherwise text
 * @param out         owned by the caller
 * @thread any
 * @errors NOMEM
 */
TUTTI_API tutti_status_t tutti_pipeline_draw(const tutti_pipeline_schedule_t *schedule,
                                             const tutti_pipeline_simulation_t *simulation,
                                             bool is_svg, tutti_buffer_t *out);

#ifdef __cplusplus
}
#endif

#endif
