/* Reading, writing and adding by index: embeddings, index_select, gather, scatter, scatter_add.
 *
 * Indices are checked before anything is written: the launch's ARG names the first one outside
 * [0, size), and where it stands. Adding by index runs in the order of the indices for every
 * element, whatever the number of threads.
 */
#ifndef TT_INDEXING_H
#define TT_INDEXING_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"
#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* A table of contiguous rows, and which of them are meant. */
typedef struct {
    tutti_dtype_t dtype;
    size_t table_rows, columns;
    const int64_t *indices; /* [count], each in [0, table_rows), or whole_rows */
    size_t count;
    int rank; /* of the indices' shape, for the text about one that lies outside */
    int64_t shape[TT_RANK_MAX];
    /* Of a table that is a part of one of `whole_rows`, from its row `first` on: rows that are not
     * here are taken as zeros, and not added to. whole_rows 0: it is the whole. */
    size_t first, whole_rows;
} tt_rows_by_index_t;

/* out[i,:] = table[indices[i],:]; any dtype. */
TT_LAUNCHES tutti_status_t tt_take_rows(tt_exec_t *exec, const tt_rows_by_index_t *at, void *out,
                                        const void *table);

/* table[indices[i],:] += rows[i,:]; f32 and f64. */
TT_LAUNCHES tutti_status_t tt_add_rows(tt_exec_t *exec, const tt_rows_by_index_t *at, void *table,
                                       const void *rows);

/* out[.., i, ..] = x[.., indices[i], ..] along dim; out's size there is the number of indices. */
TT_LAUNCHES tutti_status_t tt_index_select(tt_exec_t *exec, const tt_strided_t *out,
                                           const tt_strided_t *x, int dim, const int64_t *indices);

/* out[.., indices[i], ..] += x[.., i, ..] along dim. */
TT_LAUNCHES tutti_status_t tt_index_add(tt_exec_t *exec, const tt_strided_t *out,
                                        const tt_strided_t *x, int dim, const int64_t *indices);

/* out[i,j,k] = x[i, index[i,j,k], k] (dim 1); index is i64 of out's shape. */
TT_LAUNCHES tutti_status_t tt_gather(tt_exec_t *exec, const tt_strided_t *out,
                                     const tt_strided_t *x, int dim, const tt_strided_t *index);

/* out[i, index[i,j,k], k] += x[i,j,k] (dim 1); index is i64 of x's shape. f32, f64, i64; one
 * thread. */
TT_LAUNCHES tutti_status_t tt_scatter_add(tt_exec_t *exec, const tt_strided_t *out,
                                          const tt_strided_t *x, int dim,
                                          const tt_strided_t *index);

/* out[i, index[i,j,k], k] = x[i,j,k] (dim 1), in order: of equal targets the last one counts. index
 * is i64 of x's shape; any dtype. */
TT_LAUNCHES tutti_status_t tt_scatter(tt_exec_t *exec, const tt_strided_t *out,
                                      const tt_strided_t *x, int dim, const tt_strided_t *index);

/* out[i, c] = 1 where c is index[i], else 0; all i64, [count, classes] and [count], contiguous. */
TT_LAUNCHES tutti_status_t tt_one_hot(tt_exec_t *exec, const tt_strided_t *out,
                                      const tt_strided_t *index);

#endif
