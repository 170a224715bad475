/* Pieces that move between ranks. Both manifests say the same on all ranks, so each knows without
 * being told what it sends to another one and what it gets: a stream for each pair, of parts in the
 * order of the manifests.
 *
 *     rank 0 to rank 2   | rows 0-1 of a | row 0 of b |     parts: views of pieces here, and there
 *     rank 1 to rank 2   | rows 2-3 of a | …                of what is received
 *
 * They are cut into rounds, each an all_to_all of bytes: a stream gives as many in each as it is
 * allowed, but in its last one. So a round needs no more memory, however large the parts.
 */
#include "runtime/checkpoint/pieces_exchange.h"

#include <inttypes.h>
#include <stdio.h>

#include <tutti/collectives.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

/* Parts begin at multiples of the largest element, so that tensors may lie over them. */
enum { PAIR_BYTES_MIN = 64 << 10, ALIGN = 8, ROOM_FIRST = 16 };

/* What goes from one rank to another. */
typedef struct {
    tutti_tensor_t **parts; /* [count] */
    size_t count, room, next;
    int64_t done;  /* elements of the next one */
    int64_t bytes; /* of all, each a multiple of ALIGN */
} stream_t;

typedef struct {
    tutti_group_t *group;
    int rank, ranks;
    const tt_manifest_t *has, *wanted;
    const tt_piece_t *
        *own;      /* [slices of `has`] the piece that is this slice; NULL: another rank's */
    size_t *first; /* [tensors of `has`] number of a tensor's first slice */
    stream_t *sent, *received; /* [ranks] */
    int64_t pair_bytes;        /* in a round */
    int64_t *sizes;            /* [2 · ranks] of a round's streams: sent, received */
    tutti_tensor_t *staged[2]; /* u8: what is sent, and received */
    tt_pieces_t out;
} exchange_t;

/* ---- parts ----------------------------------------------------------------------------------- */

/* A box of a tensor that is itself a box; both are boxes of the same whole. */
static tutti_status_t view_box(tutti_tensor_t *x, const tt_box_t *of, const tt_box_t *box,
                               tutti_tensor_t **out)
{
    int64_t at = x->offset;
    for (int d = 0; d < box->rank; d++) {
        at += (box->offset[d] - of->offset[d]) * x->strides[d];
    }
    return tt_tensor_over(x->storage, x->dtype, tt_box_shape(box), x->strides, at, out);
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static tutti_status_t add_part(stream_t *stream, const tt_piece_t *piece, const tt_box_t *box)
{
    if (stream->count == stream->room) {
        const size_t room = stream->room == 0 ? ROOM_FIRST : 2 * stream->room;
        tutti_tensor_t **parts = tt_realloc(stream->parts, room * sizeof *parts, "exchange");
        TT_TRY_ALLOC(parts);
        stream->parts = parts;
        stream->room = room;
    }
    tutti_tensor_t **part = &stream->parts[stream->count];
    TT_TRY(view_box(piece->tensor, &piece->box, box, part));
    stream->count++;
    stream->bytes += aligned((int64_t)tutti_tensor_bytes(*part));
    return TUTTI_OK;
}

/* The part's elements [first, first + count), and as many bytes. */
static tutti_status_t copy_interval(tutti_tensor_t *part, int64_t first, int64_t count,
                                    tutti_tensor_t *bytes, int64_t at, bool is_sent)
{
    tt_box_t boxes[TT_INTERVAL_BOXES_MAX];
    const tt_box_t whole = tt_box_of(part->shape);
    const int box_count = tt_box_of_interval(part->shape, first, count, boxes);
    int64_t element = at / (int64_t)tutti_dtype_bytes(part->dtype);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < box_count && status >= 0; i++) {
        tutti_tensor_t *view = NULL, *flat = NULL;
        status = view_box(part, &whole, &boxes[i], &view);
        if (status >= 0) {
            status = tt_tensor_over(bytes->storage, part->dtype, tt_box_shape(&boxes[i]), NULL,
                                    element, &flat);
        }
        if (status >= 0) {
            status = is_sent ? tutti_tensor_copy(flat, view) : tutti_tensor_copy(view, flat);
        }
        tutti_tensor_release(view);
        tutti_tensor_release(flat);
        element += tt_box_numel(&boxes[i]);
    }
    return status;
}

/* The next `room` bytes of a stream, at a place of a round's bytes; returns how many it has. The
 * stream goes on where copying fails: the other side does, too. */
static int64_t copy_next(stream_t *stream, int64_t room, tutti_tensor_t *bytes, int64_t at,
                         bool is_sent, tutti_status_t *status)
{
    int64_t used = 0;
    while (used < room && stream->next < stream->count) {
        tutti_tensor_t *part = stream->parts[stream->next];
        const int64_t width = (int64_t)tutti_dtype_bytes(part->dtype);
        const int64_t left = part->numel - stream->done, fit = (room - used) / width;
        const int64_t count = left < fit ? left : fit;
        if (*status >= 0) {
            *status = copy_interval(part, stream->done, count, bytes, at + used, is_sent);
        }
        used += aligned(count * width);
        stream->next += count == left;
        stream->done = count == left ? 0 : stream->done + count;
    }
    return used;
}

static int64_t left_of(const stream_t *stream, int64_t round, int64_t pair_bytes)
{
    const int64_t left = stream->bytes - round * pair_bytes;
    return left < 0 ? 0 : left < pair_bytes ? left : pair_bytes;
}

/* ---- what this rank has, and gets ------------------------------------------------------------ */

static tutti_status_t find_own(exchange_t *e, const tt_pieces_t *pieces)
{
    size_t slices = 0;
    e->first = tt_alloc_array(e->has->tensor_count + 1, sizeof *e->first, "exchange");
    TT_TRY_ALLOC(e->first);
    for (size_t i = 0; i < e->has->tensor_count; i++) {
        e->first[i] = slices;
        slices += e->has->tensors[i].slice_count;
    }
    e->own = tt_alloc_array(slices + 1, sizeof *e->own, "exchange");
    TT_TRY_ALLOC(e->own);
    for (size_t i = 0; i < pieces->count; i++) {
        const tt_piece_t *piece = &pieces->pieces[i];
        const tt_saved_tensor_t *tensor = tt_manifest_find(e->has, piece->name);
        for (size_t k = 0; tensor != NULL && k < tensor->slice_count; k++) {
            const tt_saved_slice_t *slice = &tensor->slices[k];
            if (slice->rank == e->rank && tt_box_equal(&slice->box, &piece->box)) {
                e->own[e->first[tensor - e->has->tensors] + k] = piece;
            }
        }
    }
    return TUTTI_OK;
}

static const tt_piece_t *own_piece(const exchange_t *e, const tt_saved_tensor_t *tensor, size_t k)
{
    return e->own[e->first[tensor - e->has->tensors] + k];
}

/* The number of the slice of this box that the rank has; slice_count: there is none. */
static size_t find_equal(const tt_saved_tensor_t *tensor, const tt_saved_slice_t *wanted)
{
    size_t k = 0;
    while (k < tensor->slice_count && (tensor->slices[k].rank != wanted->rank ||
                                       !tt_box_equal(&tensor->slices[k].box, &wanted->box))) {
        k++;
    }
    return k;
}

static tutti_status_t add_received(exchange_t *e, const tt_saved_tensor_t *tensor,
                                   const tt_saved_slice_t *wanted, tt_piece_t **out)
{
    tt_piece_t *piece = &e->out.pieces[e->out.count];
    *piece = (tt_piece_t){
        .name = tensor->name, .whole = tensor->shape, .box = wanted->box, .is_copy = true};
    TT_TRY(tt_tensor_new(NULL, tensor->dtype, tt_box_shape(&wanted->box), false, &piece->tensor));
    e->out.count++;
    *out = piece;
    return TUTTI_OK;
}

static tutti_status_t copy_own(const tt_piece_t *from, const tt_piece_t *to, const tt_box_t *box)
{
    tutti_tensor_t *a, *b = NULL;
    TT_TRY(view_box(from->tensor, &from->box, box, &a));
    tutti_status_t status = view_box(to->tensor, &to->box, box, &b);
    status = status < 0 ? status : tutti_tensor_copy(b, a);
    tutti_tensor_release(a);
    tutti_tensor_release(b);
    return status;
}

/* A slice from all that have a part of it. */
static tutti_status_t put_together(exchange_t *e, const tt_saved_tensor_t *tensor,
                                   const tt_saved_slice_t *wanted)
{
    const bool is_mine = wanted->rank == e->rank;
    tt_piece_t *into = NULL;
    int64_t left = tt_box_numel(&wanted->box);
    TT_TRY(is_mine ? add_received(e, tensor, wanted, &into) : TUTTI_OK);
    for (size_t k = 0; k < tensor->slice_count; k++) {
        const tt_saved_slice_t *slice = &tensor->slices[k];
        tt_box_t both;
        if (!tt_box_intersect(&slice->box, &wanted->box, &both)) {
            continue;
        }
        left -= tt_box_numel(&both);
        const tt_piece_t *from = own_piece(e, tensor, k);
        if (from != NULL) {
            TT_TRY(is_mine ? copy_own(from, into, &both)
                           : add_part(&e->sent[wanted->rank], from, &both));
        } else if (is_mine) {
            TT_TRY(add_part(&e->received[slice->rank], into, &both));
        }
    }
    return left == 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_STATE,
                               "checkpoint: tensor \"%s\": %" PRId64 " elements are with no rank",
                               tensor->name, left);
}

static tutti_status_t want_slice(exchange_t *e, const tt_saved_tensor_t *tensor,
                                 const tt_saved_slice_t *wanted)
{
    const size_t equal = find_equal(tensor, wanted);
    if (equal == tensor->slice_count) {
        return put_together(e, tensor, wanted);
    }
    if (wanted->rank == e->rank) {
        tt_piece_t *piece = &e->out.pieces[e->out.count++];
        *piece = *own_piece(e, tensor, equal);
        tutti_tensor_retain(piece->tensor);
    }
    return TUTTI_OK;
}

static tutti_status_t make_out(exchange_t *e)
{
    size_t count = 0;
    for (size_t i = 0; i < e->wanted->tensor_count; i++) {
        for (size_t k = 0; k < e->wanted->tensors[i].slice_count; k++) {
            count += e->wanted->tensors[i].slices[k].rank == e->rank;
        }
    }
    e->out.pieces = tt_alloc_array(count + 1, sizeof *e->out.pieces, "exchange");
    TT_TRY_ALLOC(e->out.pieces);
    return TUTTI_OK;
}

/* What streams have, and what does not travel. */
static tutti_status_t list_parts(exchange_t *e, const tt_pieces_t *pieces)
{
    TT_TRY(find_own(e, pieces));
    TT_TRY(make_out(e));
    for (size_t i = 0; i < e->wanted->tensor_count; i++) {
        const tt_saved_tensor_t *wanted = &e->wanted->tensors[i];
        const tt_saved_tensor_t *tensor = tt_manifest_find(e->has, wanted->name);
        if (tensor == NULL) {
            return TT_FAIL(TUTTI_ERR_STATE, "checkpoint: tensor \"%s\" is with no rank",
                           wanted->name);
        }
        for (size_t k = 0; k < wanted->slice_count; k++) {
            TT_TRY(want_slice(e, tensor, &wanted->slices[k]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t make_room(exchange_t *e)
{
    const size_t ranks = (size_t)e->ranks;
    const int64_t share = TT_EXCHANGE_BYTES / e->ranks / ALIGN * ALIGN;
    e->pair_bytes = share < PAIR_BYTES_MIN ? PAIR_BYTES_MIN : share;
    e->sent = tt_alloc_array(ranks, sizeof *e->sent, "exchange");
    TT_TRY_ALLOC(e->sent);
    e->received = tt_alloc_array(ranks, sizeof *e->received, "exchange");
    TT_TRY_ALLOC(e->received);
    e->sizes = tt_alloc_array(2 * ranks, sizeof *e->sizes, "exchange");
    TT_TRY_ALLOC(e->sizes);
    return TUTTI_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int64_t rounds_of(const exchange_t *e)
{
    int64_t bytes = 0;
    for (int r = 0; r < e->ranks; r++) {
        bytes = e->sent[r].bytes > bytes ? e->sent[r].bytes : bytes;
        bytes = e->received[r].bytes > bytes ? e->received[r].bytes : bytes;
    }
    return (bytes + e->pair_bytes - 1) / e->pair_bytes;
}

/* Memory for the largest round, which is the first. */
static tutti_status_t make_staged(exchange_t *e)
{
    int64_t sums[2] = {0, 0};
    for (int r = 0; r < e->ranks; r++) {
        sums[0] += left_of(&e->sent[r], 0, e->pair_bytes);
        sums[1] += left_of(&e->received[r], 0, e->pair_bytes);
    }
    for (int i = 0; i < 2; i++) {
        TT_TRY(tt_tensor_new(NULL, TUTTI_U8, TUTTI_SHAPE(sums[i]), false, &e->staged[i]));
    }
    return TUTTI_OK;
}

/* The sizes of the streams' bytes in a round, and a tensor of as many. */
static tutti_status_t view_round(exchange_t *e, int64_t round, const stream_t *streams,
                                 tutti_tensor_t *staged, int64_t *sizes, tutti_tensor_t **out)
{
    int64_t sum = 0;
    for (int r = 0; r < e->ranks; r++) {
        sizes[r] = left_of(&streams[r], round, e->pair_bytes);
        sum += sizes[r];
    }
    return tt_tensor_over(staged->storage, TUTTI_U8, TUTTI_SHAPE(sum), NULL, 0, out);
}

static void copy_round(exchange_t *e, stream_t *streams, tutti_tensor_t *staged, bool is_sent,
                       tutti_status_t *status)
{
    int64_t at = 0;
    for (int r = 0; r < e->ranks; r++) {
        at += copy_next(&streams[r], e->pair_bytes, staged, at, is_sent, status);
    }
}

/* A rank that fails alone goes on, so that nobody waits for it; `status` is its failure. */
static tutti_status_t run_round(exchange_t *e, int64_t round, tutti_status_t *status)
{
    tutti_tensor_t *sent = NULL, *received = NULL;
    int64_t *const from = e->sizes + e->ranks;
    copy_round(e, e->sent, e->staged[0], true, status);
    tutti_status_t made = view_round(e, round, e->sent, e->staged[0], e->sizes, &sent);
    if (made >= 0) {
        made = view_round(e, round, e->received, e->staged[1], from, &received);
    }
    if (made >= 0) {
        made = tutti_all_to_all_uneven(e->group, received, from, sent, e->sizes, NULL);
    }
    tutti_tensor_release(sent);
    tutti_tensor_release(received);
    if (made >= 0) {
        copy_round(e, e->received, e->staged[1], false, status);
    }
    return made;
}

static tutti_status_t run_rounds(exchange_t *e, int64_t rounds)
{
    tutti_status_t status = TUTTI_OK, failure = TUTTI_OK;
    char text[TT_ERROR_TEXT_BYTES] = "";
    for (int64_t i = 0; i < rounds; i++) {
        const tutti_status_t made = run_round(e, i, &status);
        if (made < 0) {
            return tt_group_give_up(e->group, made);
        }
        if (status < 0 && failure >= 0) {
            failure = status;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
    return tt_group_agree(e->group, failure < 0 ? tt_fail_again(failure, text) : TUTTI_OK);
}

/* As many on all ranks: those of the longest stream. */
static tutti_status_t agree_rounds(const exchange_t *e, tutti_tensor_t *longest, int64_t *rounds)
{
    int64_t *value = tutti_tensor_data(longest);
    *value = rounds_of(e);
    const tutti_status_t status = tutti_all_reduce(e->group, longest, TUTTI_MAX, NULL);
    *rounds = *value;
    return status < 0 ? tt_group_give_up(e->group, status) : status;
}

static tutti_status_t exchange(exchange_t *e, const tt_pieces_t *pieces)
{
    tutti_tensor_t *longest = NULL;
    int64_t rounds = 0;
    tutti_status_t status = make_room(e);
    status = status < 0 ? status : list_parts(e, pieces);
    status = status < 0 ? status : make_staged(e);
    status = status < 0 ? status : tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &longest);
    status = tt_group_agree(e->group, status);
    if (status >= 0 && e->ranks > 1) {
        status = agree_rounds(e, longest, &rounds);
    }
    tutti_tensor_release(longest);
    return status < 0 || rounds == 0 ? status : run_rounds(e, rounds);
}

static void free_streams(stream_t *streams, int ranks)
{
    for (int r = 0; streams != NULL && r < ranks; r++) {
        for (size_t i = 0; i < streams[r].count; i++) {
            tutti_tensor_release(streams[r].parts[i]);
        }
        tt_free(streams[r].parts);
    }
    tt_free(streams);
}

static void end_exchange(exchange_t *e)
{
    free_streams(e->sent, e->ranks);
    free_streams(e->received, e->ranks);
    tutti_tensor_release(e->staged[0]);
    tutti_tensor_release(e->staged[1]);
    tt_free(e->own);
    tt_free(e->first);
    tt_free(e->sizes);
}

tutti_status_t tt_pieces_exchange(tutti_group_t *group, const tt_manifest_t *has,
                                  const tt_manifest_t *wanted, const tt_pieces_t *pieces,
                                  tt_pieces_t *received)
{
    exchange_t e = {.group = group,
                    .rank = group == NULL ? 0 : tutti_group_rank(group),
                    .ranks = group == NULL ? 1 : tutti_group_size(group),
                    .has = has,
                    .wanted = wanted};
    const tutti_status_t status = exchange(&e, pieces);
    end_exchange(&e);
    if (status < 0) {
        tt_pieces_release(&e.out);
        return status;
    }
    *received = e.out;
    return TUTTI_OK;
}
