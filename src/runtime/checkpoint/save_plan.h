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

/* A plan in which each tensor is one slice, made of one in which slices are assigned: what one rank
 * has whole is that rank's, any other tensor the rank's that has the fewest bytes to write, the
 * largest first. The same on all ranks that make it of the same plan. A rank's tensors of the model
 * are in one file, "model-00002-of-00003.safetensors", what else it writes in another one,
 * "rank-00003-0.safetensors". Errors: NOMEM. */
tutti_status_t tt_save_plan_whole(const tt_manifest_t *assigned, tt_manifest_t **out);

#endif
