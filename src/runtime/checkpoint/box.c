/* Boxes, by their first and last elements in each dimension. */
#include "runtime/checkpoint/box.h"

#include <stdio.h>
#include <string.h>

tt_box_t tt_box_of(tutti_shape_t whole)
{
    tt_box_t box = {.rank = whole.rank};
    memcpy(box.size, whole.dims, (size_t)whole.rank * sizeof *box.size);
    return box;
}

tutti_shape_t tt_box_shape(const tt_box_t *box)
{
    tutti_shape_t shape = {.rank = box->rank};
    memcpy(shape.dims, box->size, (size_t)box->rank * sizeof *shape.dims);
    return shape;
}

int64_t tt_box_numel(const tt_box_t *box)
{
    return tutti_shape_numel(tt_box_shape(box));
}

bool tt_box_equal(const tt_box_t *a, const tt_box_t *b)
{
    const size_t bytes = (size_t)a->rank * sizeof *a->size;
    return a->rank == b->rank && memcmp(a->offset, b->offset, bytes) == 0 &&
           memcmp(a->size, b->size, bytes) == 0;
}

bool tt_box_is_inside(const tt_box_t *box, tutti_shape_t whole)
{
    bool is_inside = box->rank == whole.rank;
    for (int d = 0; d < whole.rank && is_inside; d++) {
        is_inside = box->offset[d] >= 0 && box->size[d] >= 0 && box->offset[d] <= whole.dims[d] &&
                    box->size[d] <= whole.dims[d] - box->offset[d];
    }
    return is_inside;
}

char *tt_box_format(const tt_box_t *box, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < box->rank && used < bytes; d++) {
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%lld:%lld", d > 0 ? ", " : "",
                             (long long)box->offset[d], (long long)(box->offset[d] + box->size[d]));
    }
    if (used < bytes) {
        snprintf(text + used, bytes - used, "]");
    }
    return text;
}

bool tt_box_intersect(const tt_box_t *a, const tt_box_t *b, tt_box_t *out)
{
    *out = (tt_box_t){.rank = a->rank};
    bool is_empty = false;
    for (int d = 0; d < a->rank; d++) {
        const int64_t end_a = a->offset[d] + a->size[d], end_b = b->offset[d] + b->size[d];
        const int64_t begin = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        const int64_t end = end_a < end_b ? end_a : end_b;
        out->offset[d] = begin;
        out->size[d] = end - begin;
        is_empty = is_empty || end <= begin;
    }
    return !is_empty;
}

/* ---- intervals ------------------------------------------------------------------------------- */

typedef struct {
    tutti_shape_t whole;
    int64_t row[TUTTI_RANK_MAX]; /* elements of one step of a dimension */
    tt_box_t box;                /* of which the dimensions before d are one element wide */
    tt_box_t *boxes;
    int count;
} cut_t;

/* Rows [first, end) of dimension d, whole behind it. */
static void put_rows(cut_t *cut, int d, int64_t first, int64_t end)
{
    if (end > first) {
        tt_box_t *box = &cut->boxes[cut->count++];
        *box = cut->box;
        box->offset[d] = first;
        box->size[d] = end - first;
        for (int inner = d + 1; inner < cut->whole.rank; inner++) {
            box->offset[inner] = 0;
            box->size[inner] = cut->whole.dims[inner];
        }
    }
}

/* Elements [first, end) of what lies below one row of the dimensions before d: a part of a row,
 * whole rows, a part of a row. */
static void cut_interval(cut_t *cut, int d, int64_t first, int64_t end)
{
    const int64_t row = cut->row[d];
    int64_t begin = first / row;
    if (first % row != 0) {
        const int64_t stop = end < (begin + 1) * row ? end : (begin + 1) * row;
        cut->box.offset[d] = begin;
        cut->box.size[d] = 1;
        cut_interval(cut, d + 1, first - begin * row, stop - begin * row);
        begin++;
    }
    put_rows(cut, d, begin, end / row);
    if (end % row != 0 && end / row >= begin) {
        cut->box.offset[d] = end / row;
        cut->box.size[d] = 1;
        cut_interval(cut, d + 1, 0, end % row);
    }
}

int tt_box_of_interval(tutti_shape_t whole, int64_t first, int64_t count,
                       tt_box_t boxes[TT_INTERVAL_BOXES_MAX])
{
    cut_t cut = {.whole = whole, .box.rank = whole.rank, .boxes = boxes};
    if (count == 0) {
        return 0;
    }
    if (whole.rank == 0) {
        boxes[0] = cut.box;
        return 1;
    }
    int64_t row = 1;
    for (int d = whole.rank - 1; d >= 0; d--) {
        cut.row[d] = row;
        row *= whole.dims[d];
    }
    cut_interval(&cut, 0, first, first + count);
    return cut.count;
}

/* ---- runs ------------------------------------------------------------------------------------ */

tt_runs_t tt_runs_of(const tt_box_t *a, const tt_box_t *b)
{
    tt_runs_t runs = {0};
    tt_box_t both;
    if (!tt_box_intersect(a, b, &both)) {
        return runs;
    }
    int64_t step_a = 1, step_b = 1;
    bool is_run = true; /* dimensions behind d are whole in both boxes */
    runs.count = runs.left = 1;
    for (int d = a->rank - 1; d >= 0; d--) {
        runs.a += (both.offset[d] - a->offset[d]) * step_a;
        runs.b += (both.offset[d] - b->offset[d]) * step_b;
        if (is_run) {
            runs.count *= both.size[d];
        } else {
            const int at = runs.outer++; /* the innermost first */
            runs.size[at] = both.size[d];
            runs.step_a[at] = step_a;
            runs.step_b[at] = step_b;
            runs.left *= both.size[d];
        }
        is_run = is_run && both.size[d] == a->size[d] && both.size[d] == b->size[d];
        step_a *= a->size[d];
        step_b *= b->size[d];
    }
    runs.left--;
    return runs;
}

void tt_runs_next(tt_runs_t *runs)
{
    if (runs->left == 0) {
        runs->count = 0;
        return;
    }
    runs->left--;
    for (int d = 0;; d++) {
        runs->a += runs->step_a[d];
        runs->b += runs->step_b[d];
        if (++runs->index[d] < runs->size[d]) {
            return;
        }
        runs->a -= runs->step_a[d] * runs->size[d];
        runs->b -= runs->step_b[d] * runs->size[d];
        runs->index[d] = 0;
    }
}
