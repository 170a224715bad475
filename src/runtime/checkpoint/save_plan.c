/* The plan of a save. Cost: a sort of all slices, and a sweep over those that differ. */
#include "runtime/checkpoint/save_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "runtime/checkpoint/spans.h"

tutti_status_t tt_save_plan_add(tt_manifest_t *plan, const tt_manifest_t *of_rank)
{
    for (size_t i = 0; i < of_rank->tensor_count; i++) {
        const tt_saved_tensor_t *from = &of_rank->tensors[i];
        tt_saved_tensor_t *to;
        TT_TRY(tt_manifest_add(plan, from->name, from->dtype, from->shape, &to));
        to->is_model = to->is_model || from->is_model;
        for (size_t k = 0; k < from->slice_count; k++) {
            TT_TRY(tt_manifest_add_slice(to, &from->slices[k]));
        }
    }
    for (size_t i = 0; i < of_rank->text_count; i++) {
        const tt_saved_text_t *text = &of_rank->texts[i];
        TT_TRY(tt_manifest_add_text(plan, text->name, tt_buffer_view(&text->text)));
    }
    return TUTTI_OK;
}

static int order_of(const int64_t *a, const int64_t *b, int count)
{
    for (int i = 0; i < count; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int by_box_and_rank(const void *a, const void *b)
{
    const tt_saved_slice_t *x = a, *y = b;
    int order = order_of(x->box.offset, y->box.offset, x->box.rank);
    order = order != 0 ? order : order_of(x->box.size, y->box.size, x->box.rank);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static tutti_status_t fail_overlap(const tt_saved_tensor_t *tensor, const tt_saved_slice_t *a,
                                   const tt_saved_slice_t *b)
{
    char one[160], other[160];
    return TT_FAIL(TUTTI_ERR_ARG,
                   "checkpoint: tensor \"%s\": %s of rank %d and %s of rank %d overlap",
                   tensor->name, tt_box_format(&a->box, one, sizeof one), a->rank,
                   tt_box_format(&b->box, other, sizeof other), b->rank);
}

/* Of slices in order: each that is not like the one before it. Equal ones are of several ranks. */
static tutti_status_t list_different(const tt_saved_tensor_t *tensor, tt_span_t *spans,
                                     size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < tensor->slice_count; i++) {
        const tt_saved_slice_t *slice = &tensor->slices[i];
        if (i == 0 || !tt_box_equal(&slice->box, &slice[-1].box)) {
            spans[(*count)++].slice = slice;
        } else if (slice->rank == slice[-1].rank) {
            return fail_overlap(tensor, &slice[-1], slice);
        }
    }
    return TUTTI_OK;
}

/* Different slices share nothing, and are all of it together. `spans` [slice_count] */
static tutti_status_t check_cover(const tt_saved_tensor_t *tensor, tt_span_t *spans)
{
    const tt_saved_slice_t *pair[2];
    size_t count;
    TT_TRY(list_different(tensor, spans, &count));
    if (tt_spans_overlap(spans, count, tensor->shape, pair)) {
        const bool is_swapped = pair[0]->rank > pair[1]->rank;
        return fail_overlap(tensor, pair[is_swapped], pair[!is_swapped]);
    }
    int64_t left = tutti_shape_numel(tensor->shape);
    const int64_t numel = left;
    for (size_t i = 0; i < count; i++) {
        left -= tt_box_numel(&spans[i].slice->box);
    }
    return left == 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_ARG,
                               "checkpoint: tensor \"%s\": %" PRId64 " of %" PRId64
                               " elements are in no rank's slice",
                               tensor->name, left, numel);
}

static tutti_status_t sort_and_check(tt_saved_tensor_t *tensor)
{
    if (tensor->slice_count > 1) {
        qsort(tensor->slices, tensor->slice_count, sizeof *tensor->slices, by_box_and_rank);
    }
    tt_span_t *spans = tt_alloc_array(tensor->slice_count + 1, sizeof *spans, "checkpoint");
    TT_TRY_ALLOC(spans);
    const tutti_status_t status = check_cover(tensor, spans);
    tt_free(spans);
    return status;
}

/* ---- writers --------------------------------------------------------------------------------- */

/* Equal slices of several ranks. */
typedef struct {
    tt_saved_slice_t *slices;
    size_t count, bytes, number;
} copies_t;

static int larger_first(const void *a, const void *b)
{
    const copies_t *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->number > y->number) - (x->number < y->number);
}

/* The first of them stays, and is the chosen rank's. */
static void choose(const copies_t *copies, uint64_t *written)
{
    tt_saved_slice_t *best = copies->slices;
    for (size_t i = 1; i < copies->count; i++) {
        if (written[copies->slices[i].rank] < written[best->rank]) {
            best = &copies->slices[i];
        }
    }
    copies->slices[0] = *best;
    written[best->rank] += copies->bytes;
}

/* Groups of equal slices; returns how many. */
static size_t list_copies(tt_manifest_t *plan, copies_t *list)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        tt_saved_tensor_t *tensor = &plan->tensors[i];
        for (size_t k = 0; k < tensor->slice_count; k++) {
            tt_saved_slice_t *slice = &tensor->slices[k];
            if (k > 0 && tt_box_equal(&slice->box, &slice[-1].box)) {
                list[count - 1].count++;
                continue;
            }
            const size_t bytes =
                (size_t)tt_box_numel(&slice->box) * tutti_dtype_bytes(tensor->dtype);
            list[count] = (copies_t){slice, 1, bytes, count};
            count++;
        }
    }
    return count;
}

/* What nobody else has comes first: it is written where it is. */
static void choose_all(copies_t *list, size_t count, uint64_t *written)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].count == 1) {
            choose(&list[i], written);
        }
    }
    qsort(list, count, sizeof *list, larger_first);
    for (size_t i = 0; i < count; i++) {
        if (list[i].count > 1) {
            choose(&list[i], written);
        }
    }
}

/* The first of equal slices, with the number of the rank's file, counted from 0. */
static void keep_chosen(tt_saved_tensor_t *tensor)
{
    size_t kept = 0;
    for (size_t k = 0; k < tensor->slice_count; k++) {
        tt_saved_slice_t *slice = &tensor->slices[k];
        if (kept > 0 && tt_box_equal(&slice->box, &tensor->slices[kept - 1].box)) {
            continue;
        }
        slice->file = 0;
        for (size_t j = 0; j < kept; j++) {
            slice->file += tensor->slices[j].rank == slice->rank;
        }
        tensor->slices[kept++] = *slice;
    }
    tensor->slice_count = kept;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A rank's files follow each other in the table, behind those of the ranks before it. */
static tutti_status_t add_files(tt_manifest_t *plan, int rank, int count)
{
    char name[64], digests[64];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "rank-%05d-%d.safetensors", rank, i);
        snprintf(digests, sizeof digests, "rank-%05d-%d.digests", rank, i);
        TT_TRY(tt_manifest_add_file(plan, name, digests));
    }
    return TUTTI_OK;
}

/* Numbers of a rank's files become those of the table. `files` [ranks]: zeros. */
static tutti_status_t number_files(tt_manifest_t *plan, int *files)
{
    for (size_t i = 0; i < plan->tensor_count; i++) {
        for (size_t k = 0; k < plan->tensors[i].slice_count; k++) {
            const tt_saved_slice_t *slice = &plan->tensors[i].slices[k];
            int *count = &files[slice->rank];
            *count = slice->file >= *count ? slice->file + 1 : *count;
        }
    }
    for (int rank = 0; rank < plan->ranks; rank++) {
        const int first = (int)plan->file_count;
        TT_TRY(add_files(plan, rank, files[rank]));
        files[rank] = first;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        for (size_t k = 0; k < plan->tensors[i].slice_count; k++) {
            tt_saved_slice_t *slice = &plan->tensors[i].slices[k];
            slice->file += files[slice->rank];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t assign(tt_manifest_t *plan, copies_t *list, uint64_t *written, int *files)
{
    if (list == NULL || written == NULL || files == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    choose_all(list, list_copies(plan, list), written);
    for (size_t i = 0; i < plan->tensor_count; i++) {
        keep_chosen(&plan->tensors[i]);
    }
    return number_files(plan, files);
}

tutti_status_t tt_save_plan_assign(tt_manifest_t *plan)
{
    size_t slices = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        TT_TRY(sort_and_check(&plan->tensors[i]));
        slices += plan->tensors[i].slice_count;
    }
    copies_t *list = tt_alloc_array(slices + 1, sizeof *list, "checkpoint");
    uint64_t *written = tt_alloc_array((size_t)plan->ranks, sizeof *written, "checkpoint");
    int *files = tt_alloc_array((size_t)plan->ranks, sizeof *files, "checkpoint");
    const tutti_status_t status = assign(plan, list, written, files);
    tt_free(list);
    tt_free(written);
    tt_free(files);
    return status;
}
