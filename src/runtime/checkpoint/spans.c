/* A sweep over the slices of a tensor. */
#include "runtime/checkpoint/spans.h"

#include <math.h>
#include <stdlib.h>

static int by_begin(const void *a, const void *b)
{
    const tt_span_t *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->slice > y->slice) - (x->slice < y->slice);
}

static int find_cut(const tt_span_t *spans, size_t count, tutti_shape_t whole)
{
    int cut = 0;
    double least = INFINITY;
    for (int d = 0; d < whole.rank; d++) {
        double share = 0;
        for (size_t i = 0; i < count; i++) {
            share += (double)spans[i].slice->box.size[d] / (double)whole.dims[d];
        }
        cut = share < least ? d : cut;
        least = share < least ? share : least;
    }
    return cut;
}

bool tt_spans_overlap(tt_span_t *spans, size_t count, tutti_shape_t whole,
                      const tt_saved_slice_t *pair[2])
{
    const int cut = find_cut(spans, count, whole);
    for (size_t i = 0; i < count; i++) {
        const tt_box_t *box = &spans[i].slice->box;
        spans[i].begin = box->offset[cut];
        spans[i].end = box->offset[cut] + box->size[cut];
    }
    qsort(spans, count, sizeof *spans, by_begin);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count && spans[k].begin < spans[i].end; k++) {
            tt_box_t both;
            if (tt_box_intersect(&spans[i].slice->box, &spans[k].slice->box, &both)) {
                pair[0] = spans[i].slice;
                pair[1] = spans[k].slice;
                return true;
            }
        }
    }
    return false;
}
