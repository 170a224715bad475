/**
 * @file sharded.h
 * Parameters that no rank has as a whole: DDP at stage 3 (tutti_ddp_options_t.stage).
 *
 * Example:
 *
 *     const tutti_ddp_options_t options = {.stage = 3, .units = {.kind = "block"}};
 *     tutti_ddp_t *ddp;
 *     char digest[TUTTI_DIGEST_BYTES];
 *     TUTTI_CHECK(tutti_ddp_create(ctx, net, world, &options, &ddp));
 *     TUTTI_CHECK(tutti_ddp_digest(ddp, digest)); // of all parameters, a unit at a time
 *     TUTTI_CHECK(tutti_ddp_summon(ddp, "", true));
 *     TUTTI_CHECK(tutti_tensor_fill(x, 0)); // a parameter of the root unit, on every rank
 *     TUTTI_CHECK(tutti_ddp_dismiss(ddp));
 *     tutti_ddp_release(ddp);
 *
 * The module is cut into units: the root, and the modules that options.units names. A rank has a
 * slice of each unit's parameters, which is what its optimizer steps. Around a unit's forward and
 * backward the whole comes, and goes. Elsewhere its parameters have names, shapes, gradients and
 * hooks as ever, but no values: what would read them fails with STATE, and says what helps.
 *
 * Ranks that share a host have one copy of the parameters, and read it where it lies; others
 * gather, once for each host where several ranks share it (tutti_ddp_stats_t.unit_source says
 * which). Where ranks gather, calls that bring units are made by all of them, in one order: forward
 * of a unit, tutti_ddp_unshard(), tutti_ddp_summon(), tutti_ddp_digest(). Between
 * tutti_ddp_next_shard() and tutti_ddp_finish() ranks with fewer shards, or without data, take part
 * in what the others do; so an evaluation on one rank alone is no part of a step, and is an error
 * outside of one: the others do not come. Where ranks share, one may evaluate alone.
 *
 * Who writes parameters summons them for writing. Otherwise whole ones are to be read alone. What
 * is written to gathered ones is lost, and the next tutti_ddp_reshard(), or the step, says so
 * (STATE). Of shared ones, pages that hold only other ranks' slices are read-only, and a write ends
 * the program (SIGSEGV); pages with this rank's slice can be written, and that changes everybody's
 * weights at once.
 *
 * At the other stages every rank has all parameters, and these calls bring nothing.
 */
#ifndef TUTTI_SHARDED_H
#define TUTTI_SHARDED_H

#include <tutti/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A unit's parameters are whole from now on, until tutti_ddp_reshard(), the end of a step in which
 * it was called under mixed precision, or the optimizer's step: to read them.
 *
 * @param unit  a full name, "" is the root; NULL: all units
 * @thread      the context's; all ranks call it, in the same place of their order
 * @cost        a gathering, and the unit's memory
 * @errors      NOT_FOUND (no such unit); NOMEM; as the group's calls
 * @source      torch's FSDPModule.unshard
 */
TUTTI_API tutti_status_t tutti_ddp_unshard(tutti_ddp_t *ddp, const char *unit);

/** This rank does not need them any more. @param unit as above @thread the context's
 *  @errors NOT_FOUND; STATE (a parameter was written meanwhile; or it is summoned for writing)
 *  @source torch's FSDPModule.reshard */
TUTTI_API tutti_status_t tutti_ddp_reshard(tutti_ddp_t *ddp, const char *unit);

/**
 * A unit's parameters are whole until tutti_ddp_dismiss(), to be read or changed outside of a step.
 *
 * @param unit    as above
 * @param writes  every rank writes the same values, and they stay
 * @thread        the context's; all ranks call it
 * @cost          as tutti_ddp_unshard
 * @errors        NOT_FOUND; STATE (in a step; another summons is not dismissed); NOMEM; as the
 *                group's calls
 * @source        torch's FSDP.summon_full_params
 */
TUTTI_API tutti_status_t tutti_ddp_summon(tutti_ddp_t *ddp, const char *unit, bool writes);

/** What was summoned goes; what was written stays, of each rank its slice. @thread the context's;
 * all ranks call it @errors STATE (nothing is summoned, or it was written though it was not said);
 * as the group's calls */
TUTTI_API tutti_status_t tutti_ddp_dismiss(tutti_ddp_t *ddp);

/** tutti_module_digest() of a module of which no rank has all: a unit at a time.
 *  @param text  out, [TUTTI_DIGEST_BYTES]; the same on every rank, but for what options.ignored
 *               names: of that it has this rank's values
 *  @thread the context's; all ranks call it, between steps @errors STATE (in a step); as
 *  tutti_ddp_unshard() */
TUTTI_API tutti_status_t tutti_ddp_digest(tutti_ddp_t *ddp, char *text);

/**
 * The optimizer's state as one rank alone would have it, a tensor at a time: names, shapes and bits
 * are those of tutti_optim_each_state() at stage 0. What has been collected is let go behind visit,
 * which retains what it wants to keep. Of what options.ignored names a rank gets its own.
 *
 *     // rank 0 writes what tutti_optim_load() reads; beside a model.safetensors, as
 *     // optim.safetensors, tutti_checkpoint_load_from() reads both on any ranks
 *     const tutti_named_text_t kind = {"optimizer", "adamw"};
 *     TUTTI_CHECK(tutti_ddp_consolidate(ddp, opt, 0, add_to_list, &list));
 *     if (rank == 0) {
 *         TUTTI_CHECK(tutti_safetensors_save(path, list.items, list.count, &kind, 1));
 *     }
 *
 * @param opt    of ddp's parameters, in the same order on every rank
 * @param to     the rank of ddp's group that gets it; -1: every rank
 * @param visit  called there
 * @thread       the context's; all ranks call it, between steps
 * @cost         all state is sent to `to` once; memory of its largest tensor there
 * @errors       ARG (no such rank); STATE (in a step; state that was broken by a disk; slices that
 *               are no longer all of a parameter); NOMEM; those of visit: the same on every rank;
 *               as the group's calls
 * @source       torch's ZeroRedundancyOptimizer.consolidate_state_dict
 */
TUTTI_API tutti_status_t tutti_ddp_consolidate(tutti_ddp_t *ddp, tutti_optim_t *opt, int to,
                                               tutti_tensor_visit_t visit, void *user);

/** What lies on this rank now, and what went over wires. */
typedef struct tutti_ddp_memory_use {
    int stage, units;
    size_t
        parameter_bytes; /**< of values: whole ones and slices, without what units under way have */
    size_t gradient_bytes;  /**< buckets that are there, and slices of averages */
    size_t optimizer_bytes; /**< moments and masters of `opt`, also of those on a disk */
    size_t unit_bytes; /**< memory of this rank alone that units have which come or are whole now,
                            beside parameter_bytes: none where ranks share the parameters, but for
                            what is summoned for writing, nor on one rank. So parameter_bytes and
                            unit_bytes of all ranks together are what their hosts have */
    size_t peak_unit_bytes;    /**< the most that they had at once */
    size_t largest_unit_bytes; /**< what the largest one takes; at stage 3 alone */
    int64_t gathered_bytes;    /**< that other ranks brought so far, over whatever wire */
    int64_t near_bytes;        /**< of these, what ranks that have kept a unit brought each other
                                    (options.reshard_ranks) */
    int64_t local_traffic, sharded_traffic; /**< gradients that this rank sends in a step where each
                                   is a host of its own, in bytes: with options.accumulate LOCAL,
                                   and SHARDED; 0 at stage 0 */
    int64_t sent_bytes;                     /**< values that ddp's calls have sent over wires so far
                                                 (tutti_group_sent_bytes()) */
} tutti_ddp_memory_t;

/** What this rank has now. @param opt whose state counts; NULL: none @thread the context's
 *  @errors none */
TUTTI_API tutti_ddp_memory_t tutti_ddp_memory(const tutti_ddp_t *ddp, tutti_optim_t *opt);

#ifdef __cplusplus
}
#endif

#endif
