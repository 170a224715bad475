/* Pieces go from the ranks that have them to the ranks that write them, before files are written.
 *
 *     // every rank's slices in a second file, which the next rank writes
 *     …copies: a manifest like `plan`, in which slice.rank is the next rank…
 *     TT_TRY(tt_pieces_exchange(group, plan, copies, &pieces, &received));
 *     TT_TRY(tt_rank_files_write(folder, held, copies, rank, &received));
 *     tt_pieces_release(&received);
 *
 * The boxes of the two manifests need not be the same: a slice is put together from all that it
 * shares with others, such as a whole tensor from the rows that ranks have.
 */
#ifndef TT_PIECES_EXCHANGE_H
#define TT_PIECES_EXCHANGE_H

#include <tutti/group.h>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/pieces.h"

/* What a rank sends to all others at a time, and what it receives; but 64 KiB to each at least. */
enum { TT_EXCHANGE_BYTES = 4 << 20 };

/* A collective call on the context's thread; a group of one, or none, only copies. Both manifests
 * are the same on all ranks. In `has` slice.rank has the slice, as one of its `pieces`; slices of a
 * tensor share nothing. In `wanted` slice.rank is to have it: several ranks may want a slice, or
 * none, and one without elements is in no rank's pieces.
 *
 * *received becomes what of `wanted` is this rank's, in its order; to be released. A piece that the
 * rank has itself is that one still; others are in new memory of the host (is_copy), with names of
 * `has`.
 *
 * Cost: two small calls, and one for each TT_EXCHANGE_BYTES of the rank that sends or receives
 * most; memory for `received`, and for what is sent and received at a time.
 *
 * Errors, on all ranks: STATE (a slice is wanted of which no rank has all), NOMEM, those of the
 * tensors' devices; PEER, TIMEOUT. */
tutti_status_t tt_pieces_exchange(tutti_group_t *group, const tt_manifest_t *has,
                                  const tt_manifest_t *wanted, const tt_pieces_t *pieces,
                                  tt_pieces_t *received);

#endif
