/* Loading slices from a source: what each of them is there, whether it fits, and reading it.
 *
 *     tt_slices_load_t load = {.what = "checkpoint", .group = group, .slices = slices, …};
 *     tutti_status_t status = tt_slices_fit(&load, &problems);   // the same on all ranks
 *     if (status >= 0) {
 *         status = tt_slices_read(&load);                        // this rank's own
 *     }
 *     tt_slices_end(&load);
 */
#ifndef TT_LOAD_SLICES_H
#define TT_LOAD_SLICES_H

#include "runtime/checkpoint/host_steps.h"
#include "runtime/checkpoint/load_names.h"
#include "runtime/checkpoint/problems.h"

typedef struct {
    const char *what; /* is loaded: for failures */
    tutti_group_t *group;
    const tutti_slice_t *slices; /* [slice_count] of this rank */
    size_t slice_count;
    const char *folder; /* of the manifest's files */
    const tt_manifest_t *manifest;
    const tt_holders_t *holders; /* of its files; NULL: every rank has all */
    tutti_load_options_t options;
    tt_fit_t *fits; /* [slice_count] made by tt_slices_fit(); without a tensor: it stays as it is */
} tt_slices_load_t;

/* Compare names, shapes and dtypes, and the tensors of all ranks with the source's. `problems` of
 * this rank may be there already; it is released. Collective. Errors: MISMATCH lists what does not
 * fit on any rank; NOMEM, PEER, TIMEOUT. */
tutti_status_t tt_slices_fit(tt_slices_load_t *load, tt_problems_t *problems);

/* Read this rank's slices. Errors: those of tt_pieces_of() and tt_slice_reader_read(). */
tutti_status_t tt_slices_read(const tt_slices_load_t *load);

void tt_slices_end(tt_slices_load_t *load);

#endif
