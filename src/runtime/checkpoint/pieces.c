/* Slices cut into boxes. */
#include "runtime/checkpoint/pieces.h"

#include <inttypes.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/checkpoint_texts.h"

tutti_shape_t tt_slice_whole_shape(const tutti_slice_t *slice)
{
    return slice->kind == TUTTI_SLICE_WHOLE ? tutti_tensor_shape(slice->tensor) : slice->whole;
}

static tutti_status_t fail_slice(const tutti_slice_t *slice, const char *problem)
{
    char tensor[160], whole[160];
    return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: slice of \"%s\": %s %s %s", slice->name,
                   tutti_tensor_describe(slice->tensor, tensor, sizeof tensor), problem,
                   tutti_shape_format(slice->whole, whole, sizeof whole));
}

static tutti_status_t check_name(const char *name)
{
    char text[160];
    if (tt_bytes_are_utf8(tutti_text(name))) {
        return TUTTI_OK;
    }
    tt_bytes_print(tutti_text(name), text, sizeof text);
    return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: the name of a slice is not UTF-8: %s", text);
}

static tutti_status_t check_slice(const tutti_slice_t *slice)
{
    if (slice->name == NULL || slice->name[0] == 0 || slice->tensor == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: a slice has no %s",
                       slice->tensor == NULL ? "tensor" : "name");
    }
    TT_TRY(check_name(slice->name));
    TT_TRY(tt_tensor_check_named(slice->tensor, slice->name));
    if (!tt_device_has_values(slice->tensor->storage->device)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "checkpoint: slice of \"%s\" lies on meta, which has no memory: "
                       "tutti_module_materialize() gives a module's tensors some",
                       slice->name);
    }
    if (slice->kind == TUTTI_SLICE_WHOLE) {
        return TUTTI_OK;
    }
    return tt_shape_check(tutti_tensor_dtype(slice->tensor), slice->whole) < 0
               ? fail_slice(slice, "is no part of")
               : TUTTI_OK;
}

static tutti_status_t add_piece(tt_pieces_t *pieces, const tutti_slice_t *slice, tt_box_t box,
                                tutti_tensor_t *tensor)
{
    if (tt_box_numel(&box) > 0) {
        pieces->pieces[pieces->count++] = (tt_piece_t){.name = slice->name,
                                                       .whole = tt_slice_whole_shape(slice),
                                                       .box = box,
                                                       .tensor = tutti_tensor_retain(tensor)};
    }
    return TUTTI_OK;
}

static tutti_status_t add_box(tt_pieces_t *pieces, const tutti_slice_t *slice)
{
    const tutti_shape_t shape = tutti_tensor_shape(slice->tensor);
    tt_box_t box = tt_box_of(shape);
    if (slice->kind == TUTTI_SLICE_BOX) {
        for (int d = 0; d < shape.rank; d++) {
            box.offset[d] = slice->offset[d];
        }
        if (!tt_box_is_inside(&box, slice->whole)) {
            return fail_slice(slice, "is no part, at its offset, of");
        }
    }
    return add_piece(pieces, slice, box, slice->tensor);
}

static tutti_status_t add_interval(tt_pieces_t *pieces, const tutti_slice_t *slice)
{
    const int64_t count = tutti_tensor_numel(slice->tensor);
    const int64_t numel = tutti_shape_numel(slice->whole);
    if (slice->first < 0 || slice->first > numel || count > numel - slice->first) {
        return fail_slice(slice, "is no part, from its first element on, of");
    }
    if (!tutti_tensor_is_contiguous(slice->tensor)) {
        return fail_slice(slice, "is not contiguous, as an interval must be, of");
    }
    tt_box_t boxes[TT_INTERVAL_BOXES_MAX];
    const int box_count = tt_box_of_interval(slice->whole, slice->first, count, boxes);
    int64_t at = slice->tensor->offset;
    for (int i = 0; i < box_count; i++) {
        tutti_tensor_t *view;
        TT_TRY(tt_tensor_over(slice->tensor->storage, slice->tensor->dtype, tt_box_shape(&boxes[i]),
                              NULL, at, &view));
        const tutti_status_t status = add_piece(pieces, slice, boxes[i], view);
        tutti_tensor_release(view);
        TT_TRY(status);
        at += tt_box_numel(&boxes[i]);
    }
    return TUTTI_OK;
}

tutti_status_t tt_pieces_of(const tutti_slice_t *slices, size_t count, tt_pieces_t *out)
{
    *out = (tt_pieces_t){0};
    size_t room = 1;
    for (size_t i = 0; i < count; i++) {
        TT_TRY(check_slice(&slices[i]));
        room += slices[i].kind == TUTTI_SLICE_INTERVAL ? TT_INTERVAL_BOXES_MAX : 1;
    }
    out->pieces = tt_alloc_array(room, sizeof *out->pieces, "checkpoint");
    TT_TRY_ALLOC(out->pieces);
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < count && status >= 0; i++) {
        const size_t before = out->count;
        status = slices[i].kind == TUTTI_SLICE_INTERVAL ? add_interval(out, &slices[i])
                                                        : add_box(out, &slices[i]);
        for (size_t k = before; k < out->count; k++) {
            out->pieces[k].slice = i;
        }
    }
    if (status < 0) {
        tt_pieces_release(out);
    }
    return status;
}

void tt_pieces_release(tt_pieces_t *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        tutti_tensor_release(pieces->pieces[i].tensor);
    }
    tt_free(pieces->pieces);
    *pieces = (tt_pieces_t){0};
}

tutti_status_t tt_pieces_describe(const tutti_slice_t *slices, size_t count,
                                  const tt_pieces_t *pieces, tt_manifest_t *manifest, int rank)
{
    tt_saved_tensor_t *tensor;
    for (size_t i = 0; i < count; i++) {
        TT_TRY(tt_manifest_add(manifest, slices[i].name, tutti_tensor_dtype(slices[i].tensor),
                               tt_slice_whole_shape(&slices[i]), &tensor));
    }
    for (size_t i = 0; i < pieces->count; i++) {
        const tt_saved_slice_t slice = {
            .box = pieces->pieces[i].box, .rank = rank, .file = TT_NO_FILE};
        tensor = tt_manifest_find(manifest, pieces->pieces[i].name);
        TT_TRY(tt_manifest_add_slice(tensor, &slice));
    }
    return TUTTI_OK;
}
