/* Who writes what: of the slices that all ranks have, those that are written, once each. */
#ifndef TT_SAVE_PLAN_H
#define TT_SAVE_PLAN_H

#include "runtime/checkpoint/manifest.h"

/* Adds what one rank has. Errors: MISMATCH (another dtype or shape than another rank's), NOMEM. */
tutti_status_t tt_save_plan_add(tt_manifest_t *plan, const tt_manifest_t *of_rank);

/* Of equal slices one stays: of the rank that has the fewest bytes to write yet, the largest slices
 * first. A rank's second slice of a tensor goes into its second file, for safetensors have one
 * tensor of a name: "rank-00003-1.safetensors". Errors: ARG (slices that overlap, or a gap), NOMEM.
 */
tutti_status_t tt_save_plan_assign(tt_manifest_t *plan);

#endif
