/* Walking over operands of one shape and different strides: dims of size 1 are dropped, dims that
 * all operands step through evenly are joined, so most walks become one contiguous run. */
#ifndef TT_WALK_H
#define TT_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/kernel/elementwise/strided.h"

enum { TT_WALK_OPERANDS_MAX = 4 };

typedef struct {
    int rank, operands;
    int64_t total; /* elements */
    int64_t shape[TT_RANK_MAX];
    int64_t strides[TT_WALK_OPERANDS_MAX][TT_RANK_MAX];
    bool is_dense[TT_WALK_OPERANDS_MAX];  /* element i is at offset i */
    bool is_single[TT_WALK_OPERANDS_MAX]; /* all elements are one, repeated */
} tt_walk_t;

/* Where an operand's elements [first, …) lie. */
typedef struct {
    const tt_walk_t *walk;
    int operand;
    int64_t offset; /* of the run, in elements */
    int64_t coordinate[TT_RANK_MAX];
} tt_cursor_t;

/* Shapes are those of operands[0]. Reordering puts the dims in the order of operand 0's strides,
 * for walks whose order does not matter. */
void tt_walk_init(tt_walk_t *walk, const tt_strided_t *const *operands, int count, bool reorder);

tt_cursor_t tt_cursor_at(const tt_walk_t *walk, int operand, int64_t first);

/* Elements from here to the end of the innermost dim, at most `most`; steps over them. *offset is
 * where they begin; they are tt_walk_inner_stride apart. */
int64_t tt_cursor_next(tt_cursor_t *cursor, int64_t most, int64_t *offset);

int64_t tt_walk_inner_stride(const tt_walk_t *walk, int operand);

#endif
