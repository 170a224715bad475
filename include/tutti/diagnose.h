/**
 * @file diagnose.h
 * Finding out why ranks wait: the last calls of every group as a file, and what the files of all
 * ranks say together. What `tutti verdict` reads.
 *
 * Example:
 *
 *     if (tutti_barrier(world, NULL) < 0) {
 *         TUTTI_CHECK(tutti_group_dump(world, "rank0.json"));
 *     }
 *     const char *const paths[] = {"rank0.json", "rank1.json"};
 *     tutti_buffer_t text;
 *     bool is_guilty;
 *     TUTTI_CHECK(tutti_verdict(paths, 2, &text, &is_guilty));
 *     tutti_buffer_release(&text);
 *
 * TUTTI_DUMP=FOLDER writes such a file whenever a group fails with PEER, MISMATCH or TIMEOUT;
 * docs/guide/hangs.md tells how to read the verdict.
 */
#ifndef TUTTI_DIAGNOSE_H
#define TUTTI_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>
#include <tutti/group.h>
#include <tutti/objects.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Write the last calls of this rank as JSON: of the group's world and of all groups made of it, and
 * what can be seen of the other ranks of this host; over MPI, that is nothing.
 * docs/formats/dump.md has the fields.
 *
 * @param path  of the file, replaced as a whole
 * @thread      one at a time per world; does not wait for others
 * @cost        milliseconds: call sites are looked up in the debug information
 * @errors      IO (names the path), NOMEM, STATE (a forked child)
 * @source      NCCL flight recorder of PyTorch
 */
TUTTI_API tutti_status_t tutti_group_dump(tutti_group_t *group, const char *path);

/**
 * What the files of several ranks say together: who never entered which call, and where it is
 * instead.
 *
 * @param paths      [count] files of tutti_group_dump(), in any order; some may be missing
 * @param text       out, owned by the caller; lines
 * @param is_guilty  out; whether something is wrong
 * @thread           any
 * @errors           ARG (no file), IO, FORMAT (names the file), NOMEM
 */
TUTTI_API tutti_status_t tutti_verdict(const char *const *paths, int count, tutti_buffer_t *text,
                                       bool *is_guilty);

/* ---- plans ----------------------------------------------------------------------------------- */

/* How a collective is carried out: algorithms, and their plans as text. What `tutti explain`
 * prints. Nothing runs and no ranks are needed: plans are data.
 *
 * Example:
 *
 *     tutti_buffer_t text;
 *     TUTTI_CHECK(tutti_explain(&(tutti_explain_options_t){.collective = "all_reduce",
 *                                                          .algorithm = "pairwise", .ranks = 4,
 *                                                          .count = 1024},
 *                               &text));
 *     fputs(text.data, stdout);
 *     tutti_buffer_release(&text);
 */

/** A way to carry out a collective. */
typedef struct tutti_algorithm {
    const char *name, *about, *source;
    bool is_canonical;     /**< sums have the same bits as with every other canonical one */
    char collectives[160]; /**< those it can do for four ranks of one host or of two */
} tutti_algorithm_t;

/** Zero means default. */
typedef struct tutti_explain_options {
    const char *collective; /**< "all_reduce", … */
    const char *algorithm;  /**< NULL: what would be chosen, by TUTTI_ALGO, tuning, or the table */
    int ranks;              /**< at most 4096; 0: 2 */
    bool is_one_rank;       /**< only the plan of `rank`; otherwise of all */
    int rank, root;
    int64_t count;       /**< elements of a part; 0: 16 for each rank */
    tutti_dtype_t dtype; /**< of the elements, for the choice; f32 is 0 */
    int leaves;          /**< of a reduction; 0: one for each rank */
    int hosts, per_host; /**< 2 × 4: ranks 0 to 3 on one host, 4 to 7 on another; 0: one host */
    bool is_foreign;     /**< buffers outside the shared heap */
} tutti_explain_options_t;

/** The index-th algorithm; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_explain_algorithm(size_t index, tutti_algorithm_t *out);

/**
 * The choice and why, the declared cost, and the plan.
 *
 * @param options  borrowed
 * @param text     out, owned by the caller
 * @thread         any
 * @cost           makes the plans of all ranks
 * @errors         ARG (names the option), UNSUPPORTED (the algorithm cannot do it), NOMEM
 */
TUTTI_API tutti_status_t tutti_explain(const tutti_explain_options_t *options,
                                       tutti_buffer_t *text);

/**
 * The plans of all ranks as a picture (SVG): ranks side by side, rounds from top to bottom.
 *
 * @param options  borrowed; is_one_rank is not looked at
 * @param picture  out, owned by the caller
 * @thread         any
 * @cost           makes the plans of all ranks; shows 64 ranks and 64 rounds at most
 * @errors         as tutti_explain
 */
TUTTI_API tutti_status_t tutti_explain_draw(const tutti_explain_options_t *options,
                                            tutti_buffer_t *picture);

/** What is wrong with rules such as those of TUTTI_ALGO. @thread any @errors ARG (names the word)
 */
TUTTI_API tutti_status_t tutti_explain_rules(const char *rules);

/* ---- build and machine ----------------------------------------------------------------------- */

/* What this build of Tutti is made of, and what machine it runs on: what `tutti info` prints.
 *
 * Example:
 *
 *     tutti_family_t family;
 *     for (size_t i = 0; tutti_info_family(i, &family) == TUTTI_OK; i++) {
 *         printf("%s: %zu\n", family.name, family.member_count);
 *     }
 */

/** A kind of thing that can be added to Tutti: stores, operations, backends, … */
typedef struct tutti_family {
    const char *name, *about;
    size_t member_count;
} tutti_family_t;

/** One of a family, such as the tcp store. */
typedef struct tutti_member {
    const char *name, *about;
} tutti_member_t;

/** An option of a member that is a number; min <= value < below, an infinite one: any finite. */
typedef struct tutti_member_option {
    const char *name;
    double fallback; /**< what 0 means */
    double min, below;
} tutti_member_option_t;

/** An environment variable that Tutti reads. */
typedef struct tutti_setting {
    const char *variable, *fallback, *about;
    const char *value; /**< what holds now: the environment's, or the fallback */
    char allowed[96];  /**< what it may hold, in words; "" where a launcher decides */
} tutti_setting_t;

/** The machine, as far as this process may use it; 0 and "" for what is unknown. */
typedef struct tutti_machine {
    char cpu[96];
    int packages, numa_nodes, cores, threads; /**< threads: hardware threads */
    int64_t l1_bytes, l2_bytes, l3_bytes;     /**< of one cache of this level */
    int64_t memory_bytes;
    const char *kernel_variant; /**< instruction set that the kernels use: "avx512", "amx" */
} tutti_machine_t;

/** Such as "0.1.0". @thread any @errors none */
TUTTI_API const char *tutti_version(void);

/** The index-th family; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_info_family(size_t index, tutti_family_t *out);

/** The index-th member of a family; END behind the last. @thread any @errors ARG: no such family */
TUTTI_API tutti_status_t tutti_info_member(size_t family, size_t index, tutti_member_t *out);

/** The index-th option of a member, of optimizers alone; END behind the last. @thread any
 *  @errors ARG: no such family */
TUTTI_API tutti_status_t tutti_info_option(size_t family, size_t member, size_t index,
                                           tutti_member_option_t *out);

/** The index-th environment variable; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_info_setting(size_t index, tutti_setting_t *out);

/**
 * Check the values of all TUTTI_ variables. tutti_init() and tutti_context_create() do so, too.
 *
 * @thread any
 * @errors ARG names a variable, its value and what is allowed
 */
TUTTI_API tutti_status_t tutti_info_check_settings(void);

/**
 * Look at the machine.
 *
 * @param out  written on success
 * @thread     any
 * @cost       reads the topology, a few milliseconds
 * @errors     IO; ARG, UNSUPPORTED when TUTTI_ISA asks for what is not there
 */
TUTTI_API tutti_status_t tutti_info_machine(tutti_machine_t *out);

/* ---- timelines ------------------------------------------------------------------------------- */

/* Timelines: what ran when, as a file for chrome://tracing or https://ui.perfetto.dev.
 *
 * Example:
 *
 *     tutti_trace_t *trace;
 *     TUTTI_CHECK(tutti_trace_create("step.json", rank, &trace));
 *     const int64_t begin = tutti_trace_now();
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_trace_event(trace, "compute", "optimizer", begin, tutti_trace_now());
 *     TUTTI_CHECK(tutti_trace_release(trace));
 *
 * Clocks of one host agree, so that the files of its ranks fit together; each rank is a process of
 * the timeline and each lane a thread.
 */

/** A timeline that is being written; any thread. */
typedef struct tutti_trace tutti_trace_t;

/**
 * Begin a file; what was there is replaced.
 *
 * @param path  of the file; borrowed
 * @param rank  shown with its events
 * @param out   owned by the caller, to be released with tutti_trace_release
 * @thread      any
 * @errors      IO (names the file), NOMEM
 * @source      "Trace Event Format", the Chromium project
 */
TUTTI_API tutti_status_t tutti_trace_create(const char *path, int rank, tutti_trace_t **out);

/** Share a trace. @thread any @errors none */
TUTTI_API tutti_trace_t *tutti_trace_retain(tutti_trace_t *trace);

/** Give a trace back; the last one ends the file. NULL does nothing.
 *  @thread any @errors IO: an event could not be written; every owner gets this error */
TUTTI_API tutti_status_t tutti_trace_release(tutti_trace_t *trace);

/** Now, in ns on the clock of events. @thread any @errors none */
TUTTI_API int64_t tutti_trace_now(void);

/**
 * Something ran from begin_ns to end_ns. NULL for a trace does nothing, so that callers need not
 * ask whether there is one.
 *
 * @param lane  a row of the timeline, such as "compute"; borrowed
 * @param name  borrowed
 * @thread      any
 * @cost        a line into a buffer
 * @errors      none here; the release tells
 */
TUTTI_API void tutti_trace_event(tutti_trace_t *trace, const char *lane, const char *name,
                                 int64_t begin_ns, int64_t end_ns);

#ifdef __cplusplus
}
#endif

#endif
