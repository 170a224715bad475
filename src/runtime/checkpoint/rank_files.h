/* The files of a rank: safetensors, and the digests of their blocks.
 *
 *     rank-00003-0.safetensors   | header | slice | slice | …
 *     rank-00003-0.digests       16 bytes for each block of 16 KiB, slice after slice
 */
#ifndef TT_RANK_FILES_H
#define TT_RANK_FILES_H

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/step_folders.h"

/* Write a rank's slices of the plan into a folder, flushed; the plan's slices get their place and
 * digest. Errors: IO, NOMEM, ARG (a name is not UTF-8), those of the tensors' device. */
tutti_status_t tt_rank_files_write(const char *folder, tt_manifest_t *plan, int rank,
                                   const tt_pieces_t *pieces);

/* Read the parts of a saved tensor that a piece has into it, comparing digests. Errors: IO and
 * FORMAT, with file and offset, NOMEM, those of the tensor's device. */
tutti_status_t tt_rank_files_read(const char *folder, const tt_saved_tensor_t *saved,
                                  const tt_piece_t *piece);

#endif
