/* The plan of a save in which each tensor lies in one file. Cost: a sort of all tensors. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "runtime/checkpoint/save_plan.h"

enum { NAME_BYTES = 64 };

/* A tensor that ranks have parts of. */
typedef struct {
    tt_saved_tensor_t *tensor;
    uint64_t bytes;
    size_t number;
} parted_t;

/* What a rank writes: its bytes, and the numbers of its files; TT_NO_FILE: it has none. */
typedef struct {
    uint64_t bytes;
    int model, others;
} writer_t;

static uint64_t bytes_of(const tt_saved_tensor_t *tensor)
{
    return (uint64_t)tutti_shape_numel(tensor->shape) * tutti_dtype_bytes(tensor->dtype);
}

static tutti_status_t copy_names(const tt_manifest_t *from, tt_manifest_t *to)
{
    to->is_whole = true;
    for (size_t i = 0; i < from->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &from->tensors[i];
        const tt_saved_slice_t slice = {.box = tt_box_of(tensor->shape), .file = TT_NO_FILE};
        tt_saved_tensor_t *copy;
        TT_TRY(tt_manifest_add(to, tensor->name, tensor->dtype, tensor->shape, &copy));
        TT_TRY(tt_manifest_add_slice(copy, &slice));
        copy->is_model = tensor->is_model;
    }
    for (size_t i = 0; i < from->text_count; i++) {
        const tt_saved_text_t *text = &from->texts[i];
        TT_TRY(tt_manifest_add_text(to, text->name, tt_buffer_view(&text->text)));
    }
    return TUTTI_OK;
}

/* ---- writers --------------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b)
{
    const parted_t *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->number > y->number) - (x->number < y->number);
}

/* What one rank has whole does not travel. Returns how many others there are. */
static size_t keep_whole(const tt_manifest_t *assigned, tt_manifest_t *plan, writer_t *writers,
                         parted_t *parted)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        tt_saved_tensor_t *tensor = &plan->tensors[i];
        const tt_saved_tensor_t *from = &assigned->tensors[i];
        if (from->slice_count == 1) {
            tensor->slices[0].rank = from->slices[0].rank;
            writers[from->slices[0].rank].bytes += bytes_of(tensor);
        } else {
            parted[count++] = (parted_t){tensor, bytes_of(tensor), i};
        }
    }
    return count;
}

static void deal(parted_t *parted, size_t count, writer_t *writers, int ranks)
{
    qsort(parted, count, sizeof *parted, larger_first);
    for (size_t i = 0; i < count; i++) {
        int best = 0;
        for (int rank = 1; rank < ranks; rank++) {
            best = writers[rank].bytes < writers[best].bytes ? rank : best;
        }
        parted[i].tensor->slices[0].rank = best;
        writers[best].bytes += parted[i].bytes;
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static int *file_of(writer_t *writers, const tt_saved_tensor_t *tensor)
{
    writer_t *writer = &writers[tensor->slices[0].rank];
    return tensor->is_model ? &writer->model : &writer->others;
}

static tutti_status_t add_file(tt_manifest_t *plan, const char *name, int *number)
{
    char file[NAME_BYTES + 16], digests[NAME_BYTES + 16];
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(digests, sizeof digests, "%s.digests", name);
    *number = (int)plan->file_count;
    return tt_manifest_add_file(plan, file, digests);
}

/* As Hugging Face numbers them: from 1 on, and of how many. */
static tutti_status_t add_files(tt_manifest_t *plan, writer_t *writers)
{
    int models = 0, model = 0;
    char name[NAME_BYTES];
    for (int rank = 0; rank < plan->ranks; rank++) {
        models += writers[rank].model != TT_NO_FILE;
    }
    for (int rank = 0; rank < plan->ranks; rank++) {
        if (writers[rank].model != TT_NO_FILE) {
            snprintf(name, sizeof name, "model-%05d-of-%05d", ++model, models);
            TT_TRY(add_file(plan, name, &writers[rank].model));
        }
        if (writers[rank].others != TT_NO_FILE) {
            snprintf(name, sizeof name, "rank-%05d-0", rank);
            TT_TRY(add_file(plan, name, &writers[rank].others));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t number_files(tt_manifest_t *plan, writer_t *writers)
{
    for (int rank = 0; rank < plan->ranks; rank++) {
        writers[rank].model = writers[rank].others = TT_NO_FILE;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        *file_of(writers, &plan->tensors[i]) = 0;
    }
    TT_TRY(add_files(plan, writers));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        plan->tensors[i].slices[0].file = *file_of(writers, &plan->tensors[i]);
    }
    return TUTTI_OK;
}

static tutti_status_t plan_whole(const tt_manifest_t *assigned, tt_manifest_t *plan,
                                 writer_t *writers, parted_t *parted)
{
    if (writers == NULL || parted == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    TT_TRY(copy_names(assigned, plan));
    deal(parted, keep_whole(assigned, plan, writers, parted), writers, plan->ranks);
    return number_files(plan, writers);
}

tutti_status_t tt_save_plan_whole(const tt_manifest_t *assigned, tt_manifest_t **out)
{
    tt_manifest_t *plan;
    TT_TRY(tt_manifest_create(assigned->step, assigned->ranks, &plan));
    writer_t *writers = tt_alloc_array((size_t)plan->ranks, sizeof *writers, "checkpoint");
    parted_t *parted = tt_alloc_array(assigned->tensor_count + 1, sizeof *parted, "checkpoint");
    const tutti_status_t status = plan_whole(assigned, plan, writers, parted);
    tt_free(writers);
    tt_free(parted);
    if (status < 0) {
        tt_manifest_release(plan);
        return status;
    }
    *out = plan;
    return TUTTI_OK;
}
