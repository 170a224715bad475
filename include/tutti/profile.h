/**
 * @file profile.h
 * Where the time goes: what operations, modules, calls of groups and a program's own regions take,
 * and what memory was alive at its peak. What `tutti profile` and TUTTI_PROFILE write and show.
 *
 * Example:
 *
 *     TUTTI_CHECK(tutti_profile_start("step.profile"));
 *     tutti_profile_begin("augment"); // a row of its own
 *     tutti_profile_end();
 *     TUTTI_CHECK(tutti_profile_stop()); // writes the file
 *
 *     const char *const files[] = {"step.profile"};
 *     tutti_profile_t *profile;
 *     tutti_buffer_t text;
 *     TUTTI_CHECK(tutti_profile_load(files, 1, &profile));
 *     TUTTI_CHECK(tutti_profile_table(profile, &text));
 *     fputs(text.data, stdout);
 *     tutti_buffer_release(&text);
 *     tutti_profile_release(profile);
 *
 * TUTTI_PROFILE=FILE does the same for a process from its first context or group to its end: rank 0
 * writes FILE, rank r FILE.r. A process that is killed writes none. docs/guide/looking.md shows how
 * to read the table.
 */
#ifndef TUTTI_PROFILE_H
#define TUTTI_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/nn.h>
#include <tutti/objects.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- recording ------------------------------------------------------------------------------- */

/**
 * Record what this process does from now on, in all its threads.
 *
 * @param path  of the file that tutti_profile_stop() writes, on rank r > 0 with .r behind it;
 *              borrowed
 * @thread      any
 * @cost        while it is on: about 0.2 us for each operation, module, region and call; 32 bytes
 *              for each of the first 262144 of a thread, which timelines show
 * @errors      STATE (it is on), IO (nothing can be written there), NOMEM
 * @source      torch.profiler.profile
 */
TUTTI_API tutti_status_t tutti_profile_start(const char *path);

/** Stop, and write the file, which then is there as a whole. @thread while no other thread computes
 *  or communicates @errors STATE (it is off, or a forked process's parent has it), IO, NOMEM */
TUTTI_API tutti_status_t tutti_profile_stop(void);

/** Whether this process records now. @thread any @errors none */
TUTTI_API bool tutti_profile_is_on(void);

/**
 * A region of this thread begins: a row of the table, and a bar of the timeline. Regions may be
 * inside each other, and are ended in the thread that began them. What is off costs a branch.
 *
 * @param name  copied; 47 bytes are kept
 * @thread      any
 * @errors      none
 * @source      torch.profiler.record_function
 */
TUTTI_API void tutti_profile_begin(const char *name);

/** The region that this thread began last ends. @thread any @errors none */
TUTTI_API void tutti_profile_end(void);

/** What is under way in this thread, such as the forward of an operation of your own (op.h), makes
 *  so many floating-point operations. Where nothing is counted, each element that an operation
 *  makes is one. What is not above 0, or no finite number, is not counted. @thread any @errors none
 */
TUTTI_API void tutti_profile_count(double flops);

/* ---- reading --------------------------------------------------------------------------------- */

/** What the files of several ranks say together. */
typedef struct tutti_profile tutti_profile_t;

/**
 * Read the files of ranks, in any order, and bring their clocks together: those of one host are one
 * clock. Between hosts they are set by the clock of the wall, and then by the calls of groups: no
 * rank ends an all_reduce before all have begun it.
 *
 * @param paths  [count]
 * @param out    owned by the caller, to be released with tutti_profile_release
 * @thread       any
 * @errors       ARG (no file; two of one rank), IO, FORMAT (names the file and the line), NOMEM
 */
TUTTI_API tutti_status_t tutti_profile_load(const char *const *paths, int count,
                                            tutti_profile_t **out);

/** Release what was read; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_profile_release(tutti_profile_t *profile);

/** As a table for people: operations, modules, calls, memory. @param text out, owned by the caller
 *  @thread any @errors NOMEM */
TUTTI_API tutti_status_t tutti_profile_table(const tutti_profile_t *profile, tutti_buffer_t *text);

/** The same numbers as JSON (docs/formats/profile.md). @param text out, owned by the caller
 *  @thread any @errors NOMEM */
TUTTI_API tutti_status_t tutti_profile_json(const tutti_profile_t *profile, tutti_buffer_t *text);

/** A timeline of all ranks for https://ui.perfetto.dev or chrome://tracing: ranks are processes,
 *  with their threads, streams, and calls, and arrows between calls that belong together.
 *  @param text out, owned by the caller @thread any @errors NOMEM
 *  @source "Trace Event Format", the Chromium project */
TUTTI_API tutti_status_t tutti_profile_trace(const tutti_profile_t *profile, tutti_buffer_t *text);

/**
 * One page of HTML out of a folder: curves of the numbers in its files *.jsonl (metrics.h), and the
 * profiles of ranks: timeline, memory, and the table. It fetches nothing and has no script; what
 * files say is text there. What `tutti report` writes.
 *
 * @param page  out, owned by the caller
 * @thread      any
 * @errors      IO, NOT_FOUND (there is neither), NOMEM; as tutti_profile_load()
 */
TUTTI_API tutti_status_t tutti_report(const char *folder, tutti_buffer_t *page);

/* ---- modules --------------------------------------------------------------------------------- */

/* What a module is made of, and what a forward of it takes, before anything is trained.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_linear_layer,
 *         &(tutti_linear_options_t){.in = 784, .out = 10}, &net));
 *     tutti_tensor_t *batch = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(64, 784));
 *     tutti_buffer_t text;
 *     TUTTI_CHECK(tutti_module_summary(
 *         net, &(tutti_summary_options_t){.inputs = &batch, .input_count = 1}, &text));
 *     fputs(text.data, stdout);
 *     tutti_buffer_release(&text);
 *
 * A module on meta (devices.h) with inputs on meta takes no memory and computes nothing.
 */

/** Of a forward. Zero means default. */
typedef struct tutti_summary_options {
    tutti_tensor_t *const *inputs; /**< [input_count] borrowed, where the module lies */
    int input_count;               /**< 0: no forward, and so no outputs and FLOPs */
    int output_count;              /**< 0: 1 */
} tutti_summary_options_t;

/**
 * A line for m and for each module below it: its first output, its parameters, its floating-point
 * operations and the bytes of its outputs, with those below it; and sums. Hooks of the module run;
 * nothing is dropped, and no graph is made.
 *
 * @param options  borrowed; NULL: no forward
 * @param text     out, owned by the caller
 * @thread         the context's
 * @cost           a forward; on meta microseconds for each module
 * @errors         those of the forward; NOMEM
 * @source         torchinfo
 */
TUTTI_API tutti_status_t tutti_module_summary(tutti_module_t *m,
                                              const tutti_summary_options_t *options,
                                              tutti_buffer_t *text);

#ifdef __cplusplus
}
#endif

#endif
