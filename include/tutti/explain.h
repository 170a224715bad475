/**
 * @file explain.h
 * How a collective is carried out: algorithms, and their plans as text. What `tutti explain`
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
#ifndef TUTTI_EXPLAIN_H
#define TUTTI_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/bytes.h>
#include <tutti/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif
