/* Layouts of some tensors over some ranks, for the tests of checkpoints: who has which slice, and
 * the value of each element. */
#ifndef TT_LAYOUT_TESTING_H
#define TT_LAYOUT_TESTING_H

#include <tutti/checkpoint.h>

#include "core/base/testing.h"
#include "core/kernel/elementwise/convert.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/pieces.h"

typedef struct {
    const char *name;
    tutti_dtype_t dtype;
    tutti_shape_t shape;
} tt_layout_tensor_t;

enum { TT_LAYOUT_TENSORS = 6, TT_LAYOUT_SLICES = 64 };

static const tt_layout_tensor_t tt_layout_tensors[TT_LAYOUT_TENSORS] = {
    {"embedding", TUTTI_F32, {2, {311, 70}}}, /* blocks */
    {"cube", TUTTI_BF16, {3, {3, 4, 6}}},
    {"row", TUTTI_F32, {2, {1, 5}}},
    {"scalar", TUTTI_F64, {0}},
    {"counts", TUTTI_I64, {1, {101}}},
    {"empty", TUTTI_F32, {2, {0, 3}}},
};

#define TT_LAYOUTS(X) X(replicated) X(rows) X(columns) X(intervals) X(grid) X(last_rank) X(in_turn)

typedef enum {
#define X(name) TT_LAYOUT_##name,
    TT_LAYOUTS(X)
#undef X
        TT_LAYOUT_COUNT
} tt_layout_t;

static const char *const tt_layout_names[] = {
#define X(name) #name,
    TT_LAYOUTS(X)
#undef X
};

typedef struct {
    tutti_slice_t slices[TT_LAYOUT_SLICES];
    size_t count;
} tt_laid_t;

/* The rank's part of `count` things, as evenly as it goes. */
static inline int64_t tt_layout_begin(int64_t count, int rank, int ranks)
{
    return count * rank / ranks;
}

static inline void tt_lay_box(tt_laid_t *laid, const tt_layout_tensor_t *t, tt_box_t box)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(t->dtype, tt_box_shape(&box), &x), TUTTI_OK);
    laid->slices[laid->count++] = tutti_slice_box(t->name, x, t->shape, box.offset);
}

static inline void tt_lay_whole(tt_laid_t *laid, const tt_layout_tensor_t *t)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(t->dtype, t->shape, &x), TUTTI_OK);
    laid->slices[laid->count++] = tutti_slice_whole(t->name, x);
}

static inline void tt_lay_interval(tt_laid_t *laid, const tt_layout_tensor_t *t, int rank,
                                   int ranks)
{
    tutti_tensor_t *x;
    const int64_t numel = tutti_shape_numel(t->shape);
    const int64_t first = tt_layout_begin(numel, rank, ranks);
    const int64_t count = tt_layout_begin(numel, rank + 1, ranks) - first;
    assert_int_equal(tutti_tensor_create(t->dtype, TUTTI_SHAPE(count), &x), TUTTI_OK);
    laid->slices[laid->count++] = tutti_slice_interval(t->name, x, t->shape, first);
}

/* A box cut in one dimension, and perhaps in another one. */
static inline void tt_lay_cut(tt_laid_t *laid, const tt_layout_tensor_t *t, int rows, int row,
                              int columns, int column)
{
    tt_box_t box = tt_box_of(t->shape);
    const int last = box.rank - 1;
    box.offset[0] = tt_layout_begin(t->shape.dims[0], row, rows);
    box.size[0] = tt_layout_begin(t->shape.dims[0], row + 1, rows) - box.offset[0];
    if (last > 0) {
        box.offset[last] = tt_layout_begin(t->shape.dims[last], column, columns);
        box.size[last] =
            tt_layout_begin(t->shape.dims[last], column + 1, columns) - box.offset[last];
    }
    tt_lay_box(laid, t, box);
}

static inline void tt_lay_tensor(tt_laid_t *laid, int number, tt_layout_t layout, int rank,
                                 int ranks)
{
    const tt_layout_tensor_t *t = &tt_layout_tensors[number];
    const int columns = ranks % 2 == 0 ? 2 : 1; /* of a grid */
    const bool is_cut = t->shape.rank > 0;
    if (layout == TT_LAYOUT_intervals) {
        tt_lay_interval(laid, t, rank, ranks);
    } else if (layout == TT_LAYOUT_replicated || (!is_cut && layout < TT_LAYOUT_last_rank)) {
        tt_lay_whole(laid, t);
    } else if (layout == TT_LAYOUT_rows) {
        tt_lay_cut(laid, t, ranks, rank, 1, 0);
    } else if (layout == TT_LAYOUT_columns) {
        tt_lay_cut(laid, t, 1, 0, ranks, rank);
    } else if (layout == TT_LAYOUT_grid) {
        tt_lay_cut(laid, t, ranks / columns, rank / columns, columns, rank % columns);
    } else if (layout == TT_LAYOUT_last_rank ? rank == ranks - 1 : number % ranks == rank) {
        tt_lay_whole(laid, t);
    }
}

/* Slices over new memory, of zeros; released by tt_lay_end(). */
static inline void tt_lay(tt_laid_t *laid, tt_layout_t layout, int rank, int ranks)
{
    laid->count = 0;
    for (int i = 0; i < TT_LAYOUT_TENSORS; i++) {
        tt_lay_tensor(laid, i, layout, rank, ranks);
    }
}

static inline void tt_lay_end(tt_laid_t *laid)
{
    for (size_t i = 0; i < laid->count; i++) {
        tutti_tensor_release(laid->slices[i].tensor);
    }
}

/* Of an element, by its number in the whole: exact in each dtype. */
static inline double tt_layout_value(const char *name, int64_t element)
{
    return (double)((element * 7 + name[0]) % 251);
}

/* The elements of a slice, in its order, to `visit` with their numbers in the whole. */
static inline tutti_status_t tt_lay_each(const tutti_slice_t *slice,
                                         tutti_status_t (*visit)(const tutti_slice_t *slice,
                                                                 int64_t at, int64_t element))
{
    const int64_t numel = tutti_tensor_numel(slice->tensor);
    const tutti_shape_t shape = tutti_tensor_shape(slice->tensor);
    for (int64_t i = 0; i < numel; i++) {
        int64_t rest = i, element = slice->first, step = 1;
        for (int d = shape.rank - 1; d >= 0; d--) {
            element += (slice->offset[d] + rest % shape.dims[d]) * step;
            rest /= shape.dims[d];
            step *= slice->kind == TUTTI_SLICE_BOX ? slice->whole.dims[d] : shape.dims[d];
        }
        TT_TRY(visit(slice, i, element));
    }
    return TUTTI_OK;
}

static inline tutti_status_t tt_layout_set(const tutti_slice_t *slice, int64_t at, int64_t element)
{
    const double value = tt_layout_value(slice->name, element);
    const tutti_dtype_t dtype = tutti_tensor_dtype(slice->tensor);
    char *data = tutti_tensor_data(slice->tensor);
    tt_convert_from(TT_CLASS_F64, dtype)(data + at * (int64_t)tutti_dtype_bytes(dtype), &value, 1);
    return TUTTI_OK;
}

static inline tutti_status_t tt_layout_expect(const tutti_slice_t *slice, int64_t at,
                                              int64_t element)
{
    const double has = tutti_tensor_at(slice->tensor, at);
    const double want = tt_layout_value(slice->name, element);
    return has == want ? TUTTI_OK
                       : TT_FAIL(TUTTI_ERR_STATE, "\"%s\"[%lld] is %g, not %g", slice->name,
                                 (long long)element, has, want);
}

/* Every slice: tt_layout_set or tt_layout_expect. */
static inline tutti_status_t tt_lay_all(const tt_laid_t *laid,
                                        tutti_status_t (*visit)(const tutti_slice_t *slice,
                                                                int64_t at, int64_t element))
{
    for (size_t i = 0; i < laid->count; i++) {
        TT_TRY(tt_lay_each(&laid->slices[i], visit));
    }
    return TUTTI_OK;
}

#endif
