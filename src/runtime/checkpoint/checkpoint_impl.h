/* What saving and loading share. */
#ifndef TT_CHECKPOINT_IMPL_H
#define TT_CHECKPOINT_IMPL_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/pieces.h"

#define TT_MANIFEST_NAME "manifest.json"

/* The folder, the number of those that stay. Errors: ARG. */
tutti_status_t tt_checkpoint_check(const tutti_checkpoint_t *checkpoint);

/* The manifest of the group's root, on every rank. `mine` is how the root fared with it. Errors:
 * `mine`, with the root's text; those of the group. */
tutti_status_t tt_manifest_share(tutti_group_t *group, tutti_status_t mine, const char *what,
                                 tt_manifest_t **manifest);

#endif
