/* Loading what a checkpoint is of, out of a source. */
#ifndef TT_LOAD_STATE_H
#define TT_LOAD_STATE_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/host_steps.h"
#include "runtime/checkpoint/manifest.h"

/* What is loaded, and how. */
typedef struct {
    const char *what;   /* for failures: a path, "checkpoint of step 3" */
    const char *folder; /* of the manifest's files */
    const tt_manifest_t *manifest;
    const tt_holders_t *holders; /* of its files; NULL: every rank has all */
    tutti_load_options_t options;
} tt_loaded_t;

/* Its texts and tensors on this rank. Collective; OK on every rank, or the same failure on every
 * one. Errors: those of tutti_checkpoint_load_from(). */
tutti_status_t tt_load_state(const tutti_checkpoint_t *checkpoint, const tt_loaded_t *from);

#endif
