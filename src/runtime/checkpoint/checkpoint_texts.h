/* The texts of a checkpoint: those of the library, each a row of a table, and the caller's.
 */
#ifndef TT_CHECKPOINT_TEXTS_H
#define TT_CHECKPOINT_TEXTS_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/manifest.h"

/* UTF-8, without a 0. */
bool tt_bytes_are_utf8(tutti_bytes_t text);

/* Before a load. Errors: ARG (a text has no name). */
tutti_status_t tt_checkpoint_texts_check_names(const tutti_checkpoint_t *checkpoint);

/* Those that this rank has, into its description. Errors: ARG (a name or a text that cannot be),
 * STATE (of the data loader), NOMEM. */
tutti_status_t tt_checkpoint_texts_add(const tutti_checkpoint_t *checkpoint,
                                       tt_manifest_t *manifest);

/* The kind of an optimizer of which nothing else is known. */
tutti_status_t tt_checkpoint_texts_add_kind(tt_manifest_t *manifest, const char *kind);

/* Calls `missing` for each that is wanted and not there. */
void tt_checkpoint_texts_check(const tutti_checkpoint_t *checkpoint, const tt_manifest_t *manifest,
                               void (*missing)(void *user, const char *name), void *user);

/* Scaler and loader go on from theirs, and the caller gets those that it named; all are there.
 * Errors: MISMATCH (another kind of optimizer; a loader of other samples), FORMAT, NOMEM. */
tutti_status_t tt_checkpoint_texts_load(const tutti_checkpoint_t *checkpoint,
                                        const tt_manifest_t *manifest);

#endif
