/* A rank's slices as boxes, each with a tensor of its own over the same memory. */
#ifndef TT_PIECES_H
#define TT_PIECES_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/manifest.h"

typedef struct {
    const char *name; /* the slice's */
    size_t slice;     /* its number */
    tutti_shape_t whole;
    tt_box_t box;
    tutti_tensor_t *tensor;  /* of the box's shape */
    bool is_copy;            /* nobody else has the tensor, and nobody changes it */
    tt_saved_slice_t *place; /* in the plan of who writes it; NULL: to be looked for */
} tt_piece_t;

typedef struct {
    tt_piece_t *pieces; /* [count] none is empty */
    size_t count;
    /* Values of one, when they are written: those from `first` on, in row-major order, as many as
     * the window has, which is [n]. NULL: its tensor has them. */
    tutti_status_t (*fetch)(void *user, const tt_piece_t *piece, int64_t first,
                            tutti_tensor_t *window);
    void *user;
    _Atomic uint64_t *written; /* counts their bytes as they go into files; NULL: nobody asks */
    bool is_direct;            /* their files are written past the page cache */
} tt_pieces_t;

/* Errors: ARG (a slice is no part of its tensor, or has no name), NOMEM, those of a tensor that is
 * not there. */
tutti_status_t tt_pieces_of(const tutti_slice_t *slices, size_t count, tt_pieces_t *out);
void tt_pieces_release(tt_pieces_t *pieces);

/* What this rank has, as a manifest. Also of slices that are empty, without any. */
tutti_status_t tt_pieces_describe(const tutti_slice_t *slices, size_t count,
                                  const tt_pieces_t *pieces, tt_manifest_t *manifest, int rank);

/* The shape of a slice's tensor as a whole. */
tutti_shape_t tt_slice_whole_shape(const tutti_slice_t *slice);

#endif
