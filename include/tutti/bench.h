/**
 * @file bench.h
 * Measuring the calls of a group, in the units of nccl-tests: what `tutti bench` prints.
 *
 * Example:
 *
 *     tutti_bench_t *bench;
 *     TUTTI_CHECK(tutti_bench_open(world, &(tutti_bench_options_t){.op = "all_reduce"}, &bench));
 *     tutti_bench_row_t row;
 *     TUTTI_CHECK(tutti_bench_measure(bench, 1 << 20, &row));
 *     if (rank == 0) {
 *         printf("%zu bytes: %.1f us, %.1f GB/s\n", row.bytes, row.time_us, row.busbw);
 *     }
 *     tutti_bench_close(bench);
 *
 * Every size is verified before it is timed: each rank fills its buffers with numbers that name the
 * rank and the place, makes one call, and compares every element with a serial reference.
 */
#ifndef TUTTI_BENCH_H
#define TUTTI_BENCH_H

#include <stdbool.h>

#include <tutti/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What can be measured. */
typedef struct tutti_bench_op {
    const char *name, *about;
    bool reduces, has_root, has_bytes; /**< a barrier has none */
} tutti_bench_op_t;

/** Zero means default. */
typedef struct tutti_bench_options {
    const char *op;      /**< a name of tutti_bench_op_at(); the same on every rank, as all else */
    tutti_dtype_t dtype; /**< f32 is 0 */
    tutti_reduction_t reduction; /**< of ops that reduce; the sum is 0 */
    int root;                    /**< of ops that have one */
    bool is_foreign;             /**< memory of this process alone, not of the shared heap */
    bool is_rotating; /**< calls walk over at least 256 MiB, and 4 times the last cache, per rank */
    bool is_out_of_place; /**< input and output are two buffers wherever that is possible */
    bool has_barrier;     /**< a barrier before each call, whose time counts: calls of which some
                               ranks would run ahead of the others */
    int batches;          /**< timed ones; 0: 5 */
    int calls;            /**< per batch; 0: 20,000 below 4 KiB to 20 from 8 MiB on */
    int64_t spoil; /**< elements of rank 0's result to damage before they are compared: shows that a
                        wrong result is found */
} tutti_bench_options_t;

/** One size, measured; the same on every rank. */
typedef struct tutti_bench_row {
    size_t bytes;      /**< of the whole array: where each rank has a part, of all parts */
    size_t count;      /**< elements of a part */
    int ranks;         /**< of the group */
    char wire[16];     /**< "shm", "tcp", "shm+tcp", "self", or the engine's name */
    char algo[32];     /**< the algorithm that was used, or the engine's name */
    bool is_canonical; /**< whether the result has the same bits with every canonical algorithm */
    double
        time_us; /**< of a call: the slowest rank's mean over a batch, in the best of the batches */
    double p50_us, p99_us; /**< of single calls, timed apart; the slowest rank's */
    double algbw, busbw;   /**< GB/s: bytes / time, and what a link carries of it */
    int64_t wrong;         /**< elements that are not what they should be, over all ranks */
} tutti_bench_row_t;

/** A group being measured; the thread of its group. */
typedef struct tutti_bench tutti_bench_t;

/** The index-th op; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_bench_op_at(size_t index, tutti_bench_op_t *out);

/** What is wrong with options for a group of so many ranks: for a command line, before anything is
 *  started. @thread any @errors ARG (names the option), DTYPE */
TUTTI_API tutti_status_t tutti_bench_check(const tutti_bench_options_t *options, int ranks);

/**
 * Get ready to measure.
 *
 * @param group    retained until it is closed
 * @param options  borrowed until it is closed
 * @param out      owned by the caller, to be closed with tutti_bench_close
 * @thread         one at a time per group
 * @errors         ARG, DTYPE, NOMEM
 */
TUTTI_API tutti_status_t tutti_bench_open(tutti_group_t *group,
                                          const tutti_bench_options_t *options,
                                          tutti_bench_t **out);

/** Give it back; NULL does nothing. @thread one at a time per group @errors none */
TUTTI_API void tutti_bench_close(tutti_bench_t *bench);

/**
 * Verify and time one size. Every rank calls it with the same one.
 *
 * @param bytes  rounded down to whole elements, and to as many for each rank; at least one
 * @param row    out
 * @thread       one at a time per group; blocks for (batches + 2) × calls calls
 * @cost         allocates the buffers, which are given back
 * @errors       NOMEM; those of the call
 * @source       nccl-tests, doc/PERFORMANCE.md, for what is a size and a bandwidth
 */
TUTTI_API tutti_status_t tutti_bench_measure(tutti_bench_t *bench, size_t bytes,
                                             tutti_bench_row_t *row);

/**
 * Measure every canonical algorithm that the op can use at one size, the native engine's. The row
 * is the fastest one's.
 *
 * @param row  out; its algo goes to tutti_tuning_save
 * @thread     as tutti_bench_measure
 * @errors     UNSUPPORTED (another engine, an op without algorithms); as tutti_bench_measure
 */
TUTTI_API tutti_status_t tutti_bench_fastest(tutti_bench_t *bench, size_t bytes,
                                             tutti_bench_row_t *row);

/**
 * Put what was found into a tuning file, which groups read when they are made (TUTTI_TUNE). What
 * the file says about other ops, numbers of ranks and wires stays.
 *
 * @param path   NULL: TUTTI_TUNE, or tutti/tune where the user's settings are
 * @param op     whose rows these are
 * @param rows   [count], borrowed, in order of bytes
 * @param used   out, the file's path, cut to used_bytes; NULL: not wanted
 * @thread       any
 * @errors       ARG (no path, an algorithm there is none of), IO, NOMEM
 */
TUTTI_API tutti_status_t tutti_tuning_save(const char *path, const char *op,
                                           const tutti_bench_row_t *rows, size_t count, char *used,
                                           size_t used_bytes);

#ifdef __cplusplus
}
#endif

#endif
