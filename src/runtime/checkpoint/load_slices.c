/* Slices and what they are read from. Each rank compares its own, and marks the tensors that it
 * knows; the root gets all marks and problems, and adds the tensors that nobody knows.
 *
 *     rank 1 -> root   | a bit for each tensor of the manifest | lines |
 */
#include "runtime/checkpoint/load_slices.h"

#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/slice_reader.h"

enum { NAME_BYTES = 160 };

/* ---- this rank's ----------------------------------------------------------------------------- */

static const char *print_name(const char *name, char text[NAME_BYTES])
{
    tt_bytes_print(tutti_text(name), text, NAME_BYTES);
    return text;
}

static tutti_shape_t transpose_shape(tutti_shape_t shape)
{
    return TUTTI_SHAPE(shape.dims[1], shape.dims[0]);
}

static void compare_missing(const tt_slices_load_t *load, const char *name, tt_problems_t *problems)
{
    char here[NAME_BYTES], stored[NAME_BYTES], there[NAME_BYTES];
    for (size_t i = 0; i < load->options.rule_count; i++) {
        if (tt_load_rename(&load->options.rules[i], name, stored, sizeof stored)) {
            tt_problems_add(problems, "\"%s\", there \"%s\", is not in it", print_name(name, here),
                            print_name(stored, there));
            return;
        }
    }
    tt_problems_add(problems, "\"%s\" is not in it", print_name(name, here));
}

static void compare(const tt_slices_load_t *load, const tutti_slice_t *slice, const tt_fit_t *fit,
                    tt_problems_t *problems)
{
    const tt_saved_tensor_t *saved = fit->saved;
    const tutti_shape_t whole = tt_slice_whole_shape(slice);
    const tutti_dtype_t dtype = tutti_tensor_dtype(slice->tensor);
    char name[NAME_BYTES], has[160], want[160];
    if (fit->is_transposed && (saved->shape.rank != 2 || whole.rank != 2)) {
        tt_problems_add(problems, "\"%s\" is %s there, %s here: only matrices are transposed",
                        print_name(slice->name, name),
                        tutti_shape_format(saved->shape, has, sizeof has),
                        tutti_shape_format(whole, want, sizeof want));
        return;
    }
    const tutti_shape_t shape = fit->is_transposed ? transpose_shape(saved->shape) : saved->shape;
    if ((saved->dtype != dtype && !load->options.cast) || !tutti_shape_equal(shape, whole)) {
        tt_problems_add(problems, "\"%s\" is %s%s%s, not %s%s", print_name(slice->name, name),
                        tutti_dtype_name(saved->dtype), tutti_shape_format(shape, has, sizeof has),
                        fit->is_transposed ? " transposed" : "", tutti_dtype_name(dtype),
                        tutti_shape_format(whole, want, sizeof want));
    }
}

static void mark(uint8_t *marks, const tt_slices_load_t *load, const tt_saved_tensor_t *tensor)
{
    const size_t number = (size_t)(tensor - load->manifest->tensors);
    marks[number / 8] |= (uint8_t)(1u << number % 8);
}

static bool is_marked(const uint8_t *marks, size_t number)
{
    return (marks[number / 8] >> number % 8 & 1) != 0;
}

/* A name that is not taken is known all the same: its tensor is no surplus. */
static void compare_all(tt_slices_load_t *load, uint8_t *marks, tt_problems_t *problems)
{
    for (size_t i = 0; i < load->slice_count; i++) {
        const tutti_slice_t *slice = &load->slices[i];
        tt_fit_t fit = tt_load_find(&load->options, load->manifest, slice->name);
        if (fit.saved != NULL) {
            mark(marks, load, fit.saved);
        }
        if (!tt_load_takes(&load->options, slice->name)) {
            fit = (tt_fit_t){0};
        } else if (fit.saved != NULL) {
            compare(load, slice, &fit, problems);
        } else if (!load->options.allow_missing) {
            compare_missing(load, slice->name, problems);
        }
        load->fits[i] = fit;
    }
}

/* ---- all ranks' ------------------------------------------------------------------------------ */

static void take_message(const tutti_buffer_t *message, uint8_t *marks, size_t mark_bytes,
                         tt_problems_t *problems)
{
    const uint8_t *data = message->data;
    for (size_t i = 0; i < mark_bytes && i < message->bytes; i++) {
        marks[i] |= data[i];
    }
    if (message->bytes > mark_bytes) {
        tt_problems_take(problems, (const char *)data + mark_bytes, message->bytes - mark_bytes);
    }
}

/* Of the other ranks, on the root. `message` holds this rank's marks. */
static tutti_status_t gather(tutti_group_t *group, tt_problems_t *message, size_t mark_bytes,
                             uint8_t *marks, tt_problems_t *problems)
{
    const int ranks = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_buffer_t *all = tt_alloc_array((size_t)ranks, sizeof *all, "checkpoint");
    tt_problems_take(message, (const char *)marks, mark_bytes);
    tt_problems_take(message, problems->bytes == 0 ? "" : problems->text, problems->bytes);
    tutti_status_t status = all == NULL            ? TUTTI_ERR_NOMEM
                            : problems->status < 0 ? problems->status
                                                   : message->status;
    status = tt_group_agree(group, status);
    if (status >= 0) {
        status = tutti_gather_bytes(group, tutti_bytes_of(message->text, message->bytes), 0,
                                    rank == 0 ? all : NULL);
        status = status < 0 ? tt_group_give_up(group, status) : status;
    }
    for (int i = 0; i < ranks && all != NULL; i++) {
        if (status >= 0 && i > 0) {
            take_message(&all[i], marks, mark_bytes, problems);
        }
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
    return status;
}

static void find_surplus(const tt_slices_load_t *load, const uint8_t *marks,
                         tt_problems_t *problems)
{
    char name[NAME_BYTES];
    for (size_t i = 0; i < load->manifest->tensor_count && !load->options.allow_surplus; i++) {
        const tt_saved_tensor_t *saved = &load->manifest->tensors[i];
        if (!is_marked(marks, i) && tt_load_takes(&load->options, saved->name)) {
            tt_problems_add(problems, "\"%s\" is in it, but not here",
                            print_name(saved->name, name));
        }
    }
}

static tutti_status_t fit_together(tt_slices_load_t *load, uint8_t *marks, size_t mark_bytes,
                                   tt_problems_t *problems)
{
    tutti_group_t *group = load->group;
    tutti_status_t status = TUTTI_OK;
    compare_all(load, marks, problems);
    if (tutti_group_size(group) > 1) {
        tt_problems_t message = {0};
        status = gather(group, &message, mark_bytes, marks, problems);
        tt_problems_release(&message);
    }
    TT_TRY(status);
    if (tutti_group_size(group) <= 1 || tutti_group_rank(group) == 0) {
        find_surplus(load, marks, problems);
        status = tt_problems_fail(problems, load->what);
    }
    return tt_group_agree(group, status);
}

tutti_status_t tt_slices_fit(tt_slices_load_t *load, tt_problems_t *problems)
{
    const size_t mark_bytes = load->manifest->tensor_count / 8 + 1;
    uint8_t *marks = tt_alloc(mark_bytes, "checkpoint");
    load->fits = tt_alloc_array(load->slice_count + 1, sizeof *load->fits, "checkpoint");
    tutti_status_t status = tt_group_agree(
        load->group, marks == NULL || load->fits == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (status >= 0) {
        status = fit_together(load, marks, mark_bytes, problems);
    }
    tt_free(marks);
    tt_problems_release(problems);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The same memory as the matrix that it is there. */
static tutti_status_t read_transposed(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                      const tt_piece_t *piece)
{
    tutti_tensor_t *x = piece->tensor, *view;
    const tt_box_t *box = &piece->box;
    const tt_box_t there = {2, {box->offset[1], box->offset[0]}, {box->size[1], box->size[0]}};
    TT_TRY(tt_tensor_over(x->storage, x->dtype, tt_box_shape(&there),
                          (int64_t[]){x->strides[1], x->strides[0]}, x->offset, &view));
    const tutti_status_t status = tt_slice_reader_read(reader, saved, &there, view);
    tutti_tensor_release(view);
    return status;
}

static tutti_status_t read_pieces(const tt_slices_load_t *load, const tt_pieces_t *pieces)
{
    tt_slice_reader_t reader;
    tutti_status_t status = tt_slice_reader_open(&reader, load->folder, load->manifest);
    for (size_t i = 0; i < pieces->count && status >= 0; i++) {
        const tt_piece_t *piece = &pieces->pieces[i];
        const tt_fit_t *fit = &load->fits[piece->slice];
        if (fit->saved != NULL) {
            status = fit->is_transposed
                         ? read_transposed(&reader, fit->saved, piece)
                         : tt_slice_reader_read(&reader, fit->saved, &piece->box, piece->tensor);
        }
    }
    tt_slice_reader_close(&reader);
    return status;
}

tutti_status_t tt_slices_read(const tt_slices_load_t *load)
{
    tt_pieces_t pieces;
    TT_TRY(tt_pieces_of(load->slices, load->slice_count, &pieces));
    const tutti_status_t status = read_pieces(load, &pieces);
    tt_pieces_release(&pieces);
    return status;
}

void tt_slices_end(tt_slices_load_t *load)
{
    tt_free(load->fits);
    load->fits = NULL;
}
