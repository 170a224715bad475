/* Slices from other hosts. What a rank lacks are boxes of tensors, in files that its disk has not.
 * All ranks hear of all of these, and put them in one order; some at a time are read by a rank that
 * has them, and go to those that lack them.
 *
 *     rank 0 (host a)   has file 0; lacks box A of file 1
 *     rank 1 (host b)   has file 1; lacks box B of file 0       the list: B, A
 *     batch             rank 0 reads B, rank 1 reads A; exchange; each puts its own in place
 *
 * Cost: besides what is loaded BATCH_BYTES of what goes at a time, once with each rank that reads
 * it and once with each that gets it. What several ranks lack is read once.
 */
#include "runtime/checkpoint/host_slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/pieces_exchange.h"
#include "runtime/checkpoint/slice_reader.h"

enum { BATCH_BYTES = 32 << 20, BOX_BYTES = 4 << 20, NAME_BYTES = 24 };

/* A box that a rank lacks, of a slice in one file. */
typedef struct {
    int64_t tensor, slice; /* numbers in the manifest */
    tt_box_t box;
    int64_t rank;  /* who lacks it */
    int64_t piece; /* there: of the rank's pieces, for which it is */
} lack_t;

typedef struct {
    const tt_slices_load_t *load;
    const tt_pieces_t *pieces;
    int rank;
    tt_slice_reader_t reader;
    lack_t *own; /* [own_count] */
    size_t own_count, own_room;
    lack_t *all; /* [all_count] of all ranks, in an order that all know */
    size_t all_count;
    int bad; /* the file that could not be read here; -1: none */
} reading_t;

/* ---- places ---------------------------------------------------------------------------------- */

static const tt_saved_tensor_t *tensor_of(const reading_t *r, const lack_t *lack)
{
    return &r->load->manifest->tensors[lack->tensor];
}

static int file_of(const reading_t *r, const lack_t *lack)
{
    return tensor_of(r, lack)->slices[lack->slice].file;
}

static size_t bytes_of(const reading_t *r, const lack_t *lack)
{
    return (size_t)tt_box_numel(&lack->box) * tutti_dtype_bytes(tensor_of(r, lack)->dtype);
}

static void swap(int64_t numbers[2])
{
    const int64_t first = numbers[0];
    numbers[0] = numbers[1];
    numbers[1] = first;
}

/* The piece's box in the saved tensor, which may be transposed. */
static tt_box_t box_there(const reading_t *r, size_t number)
{
    tt_box_t box = r->pieces->pieces[number].box;
    if (r->load->fits[r->pieces->pieces[number].slice].is_transposed) {
        swap(box.offset);
        swap(box.size);
    }
    return box;
}

/* What of a piece's tensor is a box of the saved one. */
static tutti_status_t view_there(const reading_t *r, size_t number, const tt_box_t *box,
                                 tutti_tensor_t **out)
{
    const tt_piece_t *piece = &r->pieces->pieces[number];
    const tt_box_t all = box_there(r, number);
    tutti_tensor_t *x = piece->tensor;
    int64_t strides[TUTTI_RANK_MAX], at = x->offset;
    memcpy(strides, x->strides, sizeof strides);
    if (r->load->fits[piece->slice].is_transposed) {
        swap(strides);
    }
    for (int d = 0; d < box->rank; d++) {
        at += (box->offset[d] - all.offset[d]) * strides[d];
    }
    return tt_tensor_over(x->storage, x->dtype, tt_box_shape(box), strides, at, out);
}

/* ---- what is here, and what is not ----------------------------------------------------------- */

/* Errors of files are noted: what they hold may be elsewhere. */
static tutti_status_t read_from(reading_t *r, const tt_saved_tensor_t *saved, int file,
                                const tt_box_t *box, tutti_tensor_t *x)
{
    const tutti_status_t status = tt_slice_reader_read(&r->reader, saved, box, x);
    r->bad = status < 0 ? file : r->bad;
    return status;
}

static tutti_status_t read_here(reading_t *r, size_t number, const tt_saved_tensor_t *saved,
                                int file, const tt_box_t *box)
{
    tutti_tensor_t *view;
    TT_TRY(view_there(r, number, box, &view));
    const tutti_status_t status = read_from(r, saved, file, box, view);
    tutti_tensor_release(view);
    return status;
}

static tutti_status_t add_lack(reading_t *r, const lack_t *lack)
{
    if (r->own_count == r->own_room) {
        const size_t room = 2 * r->own_room + 16;
        lack_t *own = tt_realloc(r->own, room * sizeof *own, "checkpoint");
        TT_TRY_ALLOC(own);
        r->own = own;
        r->own_room = room;
    }
    r->own[r->own_count++] = *lack;
    return TUTTI_OK;
}

/* In parts of its rows, or of those of the next dimension, that are not too much memory. */
static tutti_status_t add_lacks(reading_t *r, const lack_t *lack, int d)
{
    const int64_t bytes = (int64_t)bytes_of(r, lack);
    if (bytes <= BOX_BYTES || d == lack->box.rank) {
        return add_lack(r, lack);
    }
    const int64_t rows = lack->box.size[d], fit = BOX_BYTES / (bytes / rows);
    const int64_t step = fit > 0 ? fit : 1;
    for (int64_t first = 0; first < rows; first += step) {
        lack_t part = *lack;
        part.box.offset[d] += first;
        part.box.size[d] = rows - first < step ? rows - first : step;
        TT_TRY(add_lacks(r, &part, d + 1));
    }
    return TUTTI_OK;
}

static tutti_status_t take_piece(reading_t *r, size_t number)
{
    const tt_holders_t *holders = r->load->holders;
    const tt_saved_tensor_t *saved = r->load->fits[r->pieces->pieces[number].slice].saved;
    const tt_box_t box = box_there(r, number);
    for (size_t k = 0; saved != NULL && k < saved->slice_count; k++) {
        const int file = saved->slices[k].file;
        lack_t lack = {.tensor = saved - r->load->manifest->tensors,
                       .slice = (int64_t)k,
                       .rank = r->rank,
                       .piece = (int64_t)number};
        if (!tt_box_intersect(&saved->slices[k].box, &box, &lack.box)) {
            continue;
        }
        TT_TRY(*tt_holders_of(holders, holders->disks->mine, file)
                   ? read_here(r, number, saved, file, &lack.box)
                   : add_lacks(r, &lack, 0));
    }
    return TUTTI_OK;
}

static tutti_status_t take_pieces(reading_t *r)
{
    TT_TRY(tt_slice_reader_open(&r->reader, r->load->folder, r->load->manifest));
    for (size_t i = 0; i < r->pieces->count; i++) {
        TT_TRY(take_piece(r, i));
    }
    return TUTTI_OK;
}

/* ---- what all lack --------------------------------------------------------------------------- */

static int order_boxes(const tt_box_t *a, const tt_box_t *b)
{
    for (int d = 0; d < a->rank; d++) {
        if (a->offset[d] != b->offset[d]) {
            return a->offset[d] < b->offset[d] ? -1 : 1;
        }
        if (a->size[d] != b->size[d]) {
            return a->size[d] < b->size[d] ? -1 : 1;
        }
    }
    return 0;
}

static int order_content(const lack_t *a, const lack_t *b)
{
    return a->tensor != b->tensor ? (a->tensor > b->tensor) - (a->tensor < b->tensor)
           : a->slice != b->slice ? (a->slice > b->slice) - (a->slice < b->slice)
                                  : order_boxes(&a->box, &b->box);
}

static int by_content_and_rank(const void *x, const void *y)
{
    const lack_t *a = x, *b = y;
    const int order = order_content(a, b);
    return order != 0           ? order
           : a->rank != b->rank ? (a->rank > b->rank) - (a->rank < b->rank)
                                : (a->piece > b->piece) - (a->piece < b->piece);
}

static tutti_status_t take_lists(reading_t *r, const tutti_buffer_t *lists, int ranks)
{
    size_t bytes = 0;
    for (int i = 0; i < ranks; i++) {
        bytes += lists[i].bytes;
    }
    r->all = tt_alloc_raw(bytes + 1, "checkpoint");
    TT_TRY_ALLOC(r->all);
    bytes = 0;
    for (int i = 0; i < ranks; i++) {
        memcpy((char *)r->all + bytes, lists[i].data, lists[i].bytes);
        bytes += lists[i].bytes;
    }
    r->all_count = bytes / sizeof *r->all;
    qsort(r->all, r->all_count, sizeof *r->all, by_content_and_rank);
    return TUTTI_OK;
}

static tutti_status_t share_lacks(reading_t *r)
{
    tutti_group_t *group = r->load->group;
    const int ranks = tutti_group_size(group);
    tutti_buffer_t *lists = tt_alloc_array((size_t)ranks, sizeof *lists, "checkpoint");
    tutti_status_t status = tt_group_agree(group, lists == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (status >= 0) {
        status = tutti_all_gather_bytes(
            group, tutti_bytes_of(r->own, r->own_count * sizeof *r->own), lists);
        status = status < 0 ? tt_group_give_up(group, status)
                            : tt_group_agree(group, take_lists(r, lists, ranks));
    }
    for (int i = 0; i < ranks && lists != NULL; i++) {
        tutti_buffer_release(&lists[i]);
    }
    tt_free(lists);
    return status;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Who reads it: the ranks of a disk that has it take turns. */
static int server_of(const reading_t *r, const lack_t *lack, size_t turn)
{
    const tt_holders_t *h = r->load->holders;
    const int file = file_of(r, lack);
    int disk = 0;
    while (!*tt_holders_of(h, disk, file)) {
        disk++;
    }
    return tt_disks_rank(h->disks, disk, (int)(turn % (size_t)h->disks->ranks));
}

/* What goes at once: all[first, end). */
typedef struct {
    size_t first, end;
    tt_manifest_t *has, *wanted;
    tt_pieces_t served, received;
} batch_t;

static tutti_status_t add_wanted(tt_manifest_t *manifest, const char *name,
                                 const tt_saved_tensor_t *saved, const lack_t *lack, int rank)
{
    const tt_saved_slice_t slice = {.box = lack->box, .rank = rank, .file = TT_NO_FILE};
    tt_saved_tensor_t *tensor;
    TT_TRY(tt_manifest_add(manifest, name, saved->dtype, saved->shape, &tensor));
    return tt_manifest_add_slice(tensor, &slice);
}

static tutti_status_t serve(reading_t *r, batch_t *batch, const char *name, const lack_t *lack)
{
    const tt_saved_tensor_t *saved = tensor_of(r, lack);
    tt_piece_t *piece = &batch->served.pieces[batch->served.count];
    *piece = (tt_piece_t){.name = name, .whole = saved->shape, .box = lack->box};
    TT_TRY(tt_tensor_new(NULL, saved->dtype, tt_box_shape(&lack->box), false, &piece->tensor));
    batch->served.count++;
    return read_from(r, saved, file_of(r, lack), &lack->box, piece->tensor);
}

/* Each box is a tensor of its own, for boxes of two ranks may share elements. */
static tutti_status_t fill_batch(reading_t *r, batch_t *batch)
{
    TT_TRY(tt_manifest_create(0, r->load->holders->disks->ranks, &batch->has));
    TT_TRY(tt_manifest_create(0, r->load->holders->disks->ranks, &batch->wanted));
    batch->served.pieces =
        tt_alloc_array(batch->end - batch->first, sizeof *batch->served.pieces, "checkpoint");
    TT_TRY_ALLOC(batch->served.pieces);
    char name[NAME_BYTES] = "";
    for (size_t i = batch->first; i < batch->end; i++) {
        const lack_t *lack = &r->all[i];
        const tt_saved_tensor_t *saved = tensor_of(r, lack);
        if (i == batch->first || order_content(lack, lack - 1) != 0) {
            const int server = server_of(r, lack, i);
            snprintf(name, sizeof name, "%zu", i);
            TT_TRY(add_wanted(batch->has, name, saved, lack, server));
            const tt_saved_tensor_t *added = tt_manifest_find(batch->has, name);
            TT_TRY(server == r->rank ? serve(r, batch, added->name, lack) : TUTTI_OK);
        }
        TT_TRY(add_wanted(batch->wanted, name, saved, lack, (int)lack->rank));
    }
    return TUTTI_OK;
}

static tutti_status_t put_in_place(const reading_t *r, const batch_t *batch)
{
    size_t next = 0;
    for (size_t i = batch->first; i < batch->end; i++) {
        const lack_t *lack = &r->all[i];
        if (lack->rank == r->rank) {
            tutti_tensor_t *view;
            TT_TRY(view_there(r, (size_t)lack->piece, &lack->box, &view));
            const tutti_status_t status =
                tutti_tensor_copy(view, batch->received.pieces[next++].tensor);
            tutti_tensor_release(view);
            TT_TRY(status);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t move_batch(reading_t *r, batch_t *batch)
{
    tutti_group_t *group = r->load->group;
    TT_TRY(tt_group_agree(group, fill_batch(r, batch)));
    TT_TRY(tt_pieces_exchange(group, batch->has, batch->wanted, &batch->served, &batch->received));
    return tt_group_agree(group, put_in_place(r, batch));
}

/* So many as are not too much memory, and one at least. */
static size_t find_end(const reading_t *r, size_t first)
{
    size_t end = first, bytes = 0;
    while (end < r->all_count &&
           (end == first || bytes + bytes_of(r, &r->all[end]) <= BATCH_BYTES)) {
        bytes += bytes_of(r, &r->all[end++]);
    }
    return end;
}

static tutti_status_t move_all(reading_t *r)
{
    tutti_status_t status = TUTTI_OK;
    for (size_t first = 0, end; first < r->all_count && status >= 0; first = end) {
        batch_t batch = {.first = first, .end = end = find_end(r, first)};
        status = move_batch(r, &batch);
        tt_pieces_release(&batch.served);
        tt_pieces_release(&batch.received);
        tt_manifest_release(batch.has);
        tt_manifest_release(batch.wanted);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static tutti_status_t read_once(const tt_slices_load_t *load, const tt_pieces_t *pieces, int *bad)
{
    reading_t r = {
        .load = load, .pieces = pieces, .rank = tutti_group_rank(load->group), .bad = -1};
    tutti_status_t status = tt_group_agree(load->group, take_pieces(&r));
    status = status < 0 ? status : share_lacks(&r);
    status = status < 0 ? status : move_all(&r);
    *bad = r.bad;
    tt_slice_reader_close(&r.reader);
    tt_free(r.own);
    tt_free(r.all);
    return status;
}

/* What ranks could not read is not there: `is_whole`: there is another one of each. */
static tutti_status_t drop_bad(const tt_slices_load_t *load, int bad, bool *is_whole)
{
    const tt_holders_t *h = load->holders;
    tutti_buffer_t *all = tt_alloc_array((size_t)h->disks->ranks, sizeof *all, "checkpoint");
    tutti_status_t status = tt_group_agree(load->group, all == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (status >= 0) {
        status = tutti_all_gather_bytes(load->group, tutti_bytes_of(&bad, sizeof bad), all);
        status = status < 0 ? tt_group_give_up(load->group, status) : status;
    }
    *is_whole = false;
    for (int i = 0; all != NULL && i < h->disks->ranks; i++) {
        if (status >= 0) {
            memcpy(&bad, all[i].data, sizeof bad);
            if (bad >= 0) {
                *is_whole = true;
                *tt_holders_of(h, h->disks->of_rank[i], bad) = false;
            }
        }
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
    *is_whole = *is_whole && tt_holders_find_missing(h) < 0;
    return status;
}

tutti_status_t tt_host_slices_read(const tt_slices_load_t *load)
{
    tt_pieces_t pieces;
    tutti_status_t status =
        tt_group_agree(load->group, tt_pieces_of(load->slices, load->slice_count, &pieces));
    for (bool is_whole = status >= 0; is_whole;) {
        int bad;
        char text[TT_ERROR_TEXT_BYTES];
        is_whole = false;
        status = read_once(load, &pieces, &bad);
        snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
        if (status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT) {
            const tutti_status_t dropped = drop_bad(load, bad, &is_whole);
            status = dropped < 0 ? dropped : tt_fail_again(status, text);
        }
        if (is_whole) {
            tt_log(TT_LOG_WARN, "%s: taken from another host: %s", load->what, text);
        }
    }
    tt_pieces_release(&pieces);
    return status;
}
