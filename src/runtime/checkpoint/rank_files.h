/* Writing the files of a rank: safetensors, and the digests of their blocks. (slice_reader.h reads
 * them.)
 *
 *     rank-00003-0.safetensors   | header | slice | slice | …
 *     rank-00003-0.digests       16 bytes for each block of 16 KiB, slice after slice
 */
#ifndef TT_RANK_FILES_H
#define TT_RANK_FILES_H

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/step_folders.h"

/* Write a rank's slices of the plan into a folder that is held (tt_steps_hold(); -1: it is not),
 * flushed; the plan's slices get their place and digest. Errors: IO, NOMEM, ARG (a name is not
 * UTF-8), STATE (it is another folder by now), those of the tensors' device. */
tutti_status_t tt_rank_files_write(const char *folder, int held, tt_manifest_t *plan, int rank,
                                   const tt_pieces_t *pieces);

/* Whether a piece is what the rank writes of the plan. */
bool tt_rank_files_has(const tt_manifest_t *plan, int rank, const tt_piece_t *piece);

#endif
