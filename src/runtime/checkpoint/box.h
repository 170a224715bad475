/* Boxes: parts of a tensor that ranks have, and how they overlap.
 *
 *     offset {1, 2}, size {2, 3} of [4, 6]     the same elements in runs: each is contiguous
 *     . . . . . .                              in both of two boxes, from the first to the last
 *     . . x x x .
 *     . . x x x .
 *     . . . . . .
 */
#ifndef TT_BOX_H
#define TT_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/tensor.h>

typedef struct {
    int rank;
    int64_t offset[TUTTI_RANK_MAX], size[TUTTI_RANK_MAX];
} tt_box_t;

/* A row-major interval of a tensor is so many boxes at most. */
enum { TT_INTERVAL_BOXES_MAX = 2 * TUTTI_RANK_MAX };

tt_box_t tt_box_of(tutti_shape_t whole);
tutti_shape_t tt_box_shape(const tt_box_t *box);
int64_t tt_box_numel(const tt_box_t *box);
bool tt_box_equal(const tt_box_t *a, const tt_box_t *b);
bool tt_box_is_inside(const tt_box_t *box, tutti_shape_t whole);

/* "[1:3, 2:5]" into text; returns text. */
char *tt_box_format(const tt_box_t *box, char *text, size_t bytes);

/* What two boxes of one tensor share; false: nothing. */
bool tt_box_intersect(const tt_box_t *a, const tt_box_t *b, tt_box_t *out);

/* The boxes that `count` elements from `first` on are, in their order. Returns how many. */
int tt_box_of_interval(tutti_shape_t whole, int64_t first, int64_t count,
                       tt_box_t boxes[TT_INTERVAL_BOXES_MAX]);

/* The elements that two boxes share, in the order of the first one's memory (and so of the second
 * one's): runs that are contiguous in both. */
typedef struct {
    int outer;                    /* dimensions that are stepped through */
    int64_t size[TUTTI_RANK_MAX]; /* of these, and where they are */
    int64_t index[TUTTI_RANK_MAX];
    int64_t step_a[TUTTI_RANK_MAX], step_b[TUTTI_RANK_MAX]; /* elements of each box's memory */
    int64_t a, b, count; /* where the run begins in each, and its length; 0: the end */
    int64_t left;        /* runs behind it */
} tt_runs_t;

/* At the first run. */
tt_runs_t tt_runs_of(const tt_box_t *a, const tt_box_t *b);
void tt_runs_next(tt_runs_t *runs);

#endif
