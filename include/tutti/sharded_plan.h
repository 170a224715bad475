/**
 * @file sharded_plan.h
 * What a step of sharded training does, as data: which unit is gathered when, what leaves when, and
 * what that costs.
 *
 * A *call* is what a program does: a unit's forward begins, its backward ends, a bucket of
 * gradients leaves. From the calls of a shard and the options a plan has for each rank a *row*: the
 * calls of its shards, and between them what they bring about, units that are gathered and
 * released, the optimizer's step, what is published behind it. Planning is a pure function; what a
 * step of tutti_ddp_t does is decided by the same code, so that tutti_ddp_plan() says what the next
 * step will do. A plan can be checked, simulated, printed and drawn: `tutti explain sharded`.
 *
 * Example:
 *
 *     const tutti_sharded_unit_t units[] = {{.name = "", .bytes = 1 << 20},
 *                                           {.name = "blocks.0", .bytes = 4 << 20},
 *                                           {.name = "blocks.1", .bytes = 4 << 20}};
 *     const tutti_sharded_options_t options = {
 *         .stage = 3, .ranks = 4, .units = units, .unit_count = 3};
 *     tutti_sharded_plan_t plan;
 *     tutti_sharded_simulation_t simulation;
 *     TUTTI_CHECK(tutti_sharded_plan(&options, &plan));
 *     const tutti_sharded_costs_t costs = {.bytes_per_second = 1e9 / 8, .latency = 50e-6};
 *     TUTTI_CHECK(tutti_sharded_simulate(&plan, &costs, &simulation));
 *     printf("%g s, %zu bytes of units\n", simulation.time, simulation.peak_unit_bytes);
 *     tutti_sharded_simulation_release(&simulation);
 *     tutti_sharded_plan_release(&plan);
 */
#ifndef TUTTI_SHARDED_PLAN_H
#define TUTTI_SHARDED_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/ddp.h>
#include <tutti/objects.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Of calls and actions. A unit's own computing is done where its forward ends and where its
 *  backward begins. */
typedef enum tutti_sharded_kind {
    TUTTI_SHARDED_FORWARD,      /**< a unit's forward begins: it must be there until it ends */
    TUTTI_SHARDED_FORWARD_END,  /**< */
    TUTTI_SHARDED_BACKWARD,     /**< a unit's backward begins: as with forward */
    TUTTI_SHARDED_BACKWARD_END, /**< left out where a unit's inputs need no gradient */
    TUTTI_SHARDED_SCATTER,      /**< a bucket leaves: gradients are reduced, and scattered at stage
                                     1 and above */
    TUTTI_SHARDED_END,          /**< the backward as a whole has ended */
    TUTTI_SHARDED_UNSHARD,      /**< tutti_ddp_unshard() */
    TUTTI_SHARDED_RESHARD,      /**< tutti_ddp_reshard() */
    TUTTI_SHARDED_SHARD,        /**< added: the index-th shard of this rank begins */
    TUTTI_SHARDED_GATHER,       /**< added: a unit starts to come; nobody waits */
    TUTTI_SHARDED_RELEASE,      /**< added: its memory goes; that of a part that was kept, too */
    TUTTI_SHARDED_KEEP,         /**< added: its memory goes, but for this rank's part of what
                                     reshard_ranks ranks keep together until its backward */
    TUTTI_SHARDED_FINISH,       /**< added: tutti_ddp_finish(): averages are waited for */
    TUTTI_SHARDED_STEP,         /**< added: the optimizer's */
    TUTTI_SHARDED_PUBLISH,      /**< added: other ranks get what has been stepped */
} tutti_sharded_kind_t;

/** A call, or what it brings about. */
typedef struct tutti_sharded_action {
    tutti_sharded_kind_t kind;
    int index;     /**< the unit, the bucket of SCATTER, the shard of SHARD; else 0 */
    bool is_again; /**< of FORWARD_END: it was computed again, its backward comes next */
    bool is_last;  /**< of FORWARD_END: no backward follows; of END: it has failed */
    bool is_early; /**< of GATHER: it starts before it is wanted */
    bool is_near;  /**< of GATHER: of what reshard_ranks ranks have kept, among them alone */
} tutti_sharded_action_t;

/** What a rank does, in order. */
typedef struct tutti_sharded_row {
    tutti_sharded_action_t *actions; /**< [count] */
    int count;
} tutti_sharded_row_t;

/** A part of the module whose parameters come and go together. */
typedef struct tutti_sharded_unit {
    const char *name;  /**< borrowed; "" is the root, "kept" one that stays. NULL: "unit 3" */
    size_t bytes;      /**< of the whole, as it is computed with */
    bool is_kept;      /**< away only while it is stepped; the last one alone */
    size_t kept_bytes; /**< what is kept, where it is of another dtype than what is computed with,
                            which then comes with each step; 0: it is computed with as kept */
    double forward;    /**< seconds of its own in a shard, without units inside it */
    double backward;
} tutti_sharded_unit_t;

/** Gradients that travel together. */
typedef struct tutti_sharded_bucket {
    int unit;
    size_t bytes;
} tutti_sharded_bucket_t;

/** Zero means default; names as in tutti_ddp_options_t. */
typedef struct tutti_sharded_options {
    int stage;
    int ranks;  /**< 0: 1 */
    int shards; /**< V; 0: one for each rank. Ranks with fewer of them take part in the gathers of
                     those with more, unless these share parameters */
    int rows;   /**< of ranks, each of which has all parameters; 0: 1. Stage 3 */
    int prefetch;
    bool keep_after_forward, keep_after_backward;
    int reshard_ranks; /**< that keep a unit together from its forward to its backward; 0 and all of
                            a row: nobody does; 1: as keep_after_forward. Without effect where
                            ranks share parameters */
    bool holds_all; /**< all units are there from the step's begin to its end, as in a pipeline */
    bool is_first;  /**< the first step: no order is known, so nothing is started early */
    bool is_shared; /**< ranks of a row share a host, and parameters: nothing is gathered */
    const tutti_sharded_unit_t *units; /**< [unit_count], borrowed; the root is the first */
    int unit_count;
    const tutti_sharded_bucket_t *buckets; /**< [bucket_count], borrowed, in the order in which they
                                                leave; NULL: one of each unit, as backward goes */
    int bucket_count;
    const tutti_sharded_action_t *calls; /**< [call_count], borrowed, of one shard, with the
                                            SCATTERs of a rank's last one. NULL: within the root's
                                            forward the other units one after the other, and back */
    int call_count;
} tutti_sharded_options_t;

/** The rows of all ranks; units and buckets are the plan's own. */
typedef struct tutti_sharded_rows {
    tutti_sharded_options_t options; /**< with defaults put in, without calls */
    tutti_sharded_row_t *rows;       /**< [options.ranks] */
    void *memory;                    /**< of what options point to */
} tutti_sharded_plan_t;

/**
 * Plan a step that goes as the one before.
 *
 * @param options  borrowed
 * @param out      owned by the caller: tutti_sharded_plan_release()
 * @thread any
 * @cost   linear in the actions
 * @errors ARG: a value out of range; a call of a unit that is not there, or that does not end;
 * NOMEM
 */
TUTTI_API tutti_status_t tutti_sharded_plan(const tutti_sharded_options_t *options,
                                            tutti_sharded_plan_t *out);

/** Give it back; it is empty then. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_sharded_plan_release(tutti_sharded_plan_t *plan);

/**
 * What the next step of this rank will do, if it calls units as the last one did. Costs of units
 * are 0. Of the other ranks: if they do in a shard what this one does. Ranks that gather once for
 * their host (tutti_ddp_stats_t.unit_source is "host") start the same units; a simulation counts
 * bytes and memory as if each gathered for itself, which is more.
 *
 * @param ddp  behind a step at stage 3
 * @param out  owned by the caller: tutti_sharded_plan_release()
 * @thread the context's
 * @errors STATE: not stage 3; no step yet, or this rank computed nothing in it; UNSUPPORTED:
 * buckets leave in each shard (options.accumulate, and more shards than ranks); as
 * tutti_sharded_plan()
 */
TUTTI_API tutti_status_t tutti_ddp_plan(const tutti_ddp_t *ddp, tutti_sharded_plan_t *out);

/** An action as text: "gather blocks.0", "scatter 3". @param text out, with its 0
 *  @return length of the whole text without the final 0, as snprintf does @thread any @errors none
 */
TUTTI_API size_t tutti_sharded_action_text(const tutti_sharded_plan_t *plan,
                                           const tutti_sharded_action_t *action, char *text,
                                           size_t text_bytes);

/**
 * Check a plan, also one that was changed: units are there while they compute and go once, no more
 * than prefetch are early, what is gathered near has been kept, all ranks start buckets in one
 * order, and the same gathers, unless they share parameters, no bucket is left behind, and no rank
 * waits for ever.
 *
 * @param plan  borrowed
 * @thread any
 * @errors ARG names rank, place and action; NOMEM
 */
TUTTI_API tutti_status_t tutti_sharded_check(const tutti_sharded_plan_t *plan);

/* ---- in time --------------------------------------------------------------------------------- */

/** Seconds, as those of units. */
typedef struct tutti_sharded_costs {
    double bytes_per_second;      /**< that a rank can send, and receive; any number if it is 0 */
    double latency;               /**< of a collective */
    double near_bytes_per_second; /**< the same of gathers among reshard_ranks ranks, which have a
                                       wire of their own: the memory of a host, as a rule */
    double near_latency;
    double step; /**< the optimizer's */
} tutti_sharded_costs_t;

/** When something runs: of GATHER, SCATTER and PUBLISH, on the wire. */
typedef struct tutti_sharded_span {
    double begin, end;
} tutti_sharded_span_t;

/** How a plan would run. */
typedef struct tutti_sharded_simulation {
    double time;                /**< until the last rank is done */
    double compute;             /**< of the busiest rank, with its step */
    double exposed;             /**< time without compute: communication that nothing hides */
    double wire;                /**< seconds in which the wire of a rank is busy */
    int64_t sent_bytes;         /**< by a rank, on average, but for near_bytes */
    int64_t near_bytes;         /**< the same, to ranks that have kept a unit with it */
    size_t peak_unit_bytes;     /**< of a rank: wholes that come or are there, without those that
                                     are kept, and parts that stay near; as
                                     tutti_ddp_memory_t has it */
    size_t peak_gradient_bytes; /**< of a rank: buckets from the first gradient to their return */
    int ranks;
    tutti_sharded_span_t **spans; /**< [ranks][actions of the rank] */
} tutti_sharded_simulation_t;

/**
 * Run a plan with a clock alone. A rank's wire carries one collective after the other, each from
 * when all ranks have come to it, and another one gathers of what stays near. As in a step, no more
 * than two buckets are under way: who fills another one waits.
 *
 * @param plan   borrowed; as planned, or checked since
 * @param costs  borrowed; NULL: communication and the step take no time
 * @param out    owned by the caller: tutti_sharded_simulation_release()
 * @thread any
 * @cost   linear in the actions of all ranks, times the logarithm of the ranks
 * @errors ARG: a cost that is negative or not finite; ranks that wait for each other; NOMEM
 */
TUTTI_API tutti_status_t tutti_sharded_simulate(const tutti_sharded_plan_t *plan,
                                                const tutti_sharded_costs_t *costs,
                                                tutti_sharded_simulation_t *out);

/** Give it back. NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_sharded_simulation_release(tutti_sharded_simulation_t *simulation);

/**
 * A plan in time, as text or as a picture (SVG): for each rank a line of what it computes, and one
 * of what its wire carries.
 *
 * @param plan        borrowed
 * @param simulation  borrowed; of this plan
 * @param is_svg      a picture; otherwise text
 * @param out         owned by the caller
 * @thread any
 * @errors ARG: a simulation of another plan; NOMEM
 */
TUTTI_API tutti_status_t tutti_sharded_draw(const tutti_sharded_plan_t *plan,
                                            const tutti_sharded_simulation_t *simulation,
                                            bool is_svg, tutti_buffer_t *out);

#ifdef __cplusplus
}
#endif

#endif
