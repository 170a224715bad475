/* The inside of an open checkpoint. */
#ifndef TT_SAVED_IMPL_H
#define TT_SAVED_IMPL_H

#include <tutti/checkpoint_files.h>

#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/slice_reader.h"
#include "runtime/checkpoint/step_folders.h"

struct tutti_saved {
    tt_path_t path; /* of the step's folder */
    tt_manifest_t *manifest;
    tt_slice_reader_t reader; /* of it */
    uint64_t bytes;           /* of all tensors */
};

tutti_saved_tensor_t tt_saved_describe(const tt_saved_tensor_t *tensor);

/* The checkpoint's own tensor. Errors: NOT_FOUND (names the nearest). */
tutti_status_t tt_saved_find(const tutti_saved_t *saved, const char *name,
                             const tt_saved_tensor_t **out);

/* Elements [first, first + count), in row-major order, to the begin of a tensor of its dtype that
 * lies contiguous in the host's memory. Errors: those of tt_slice_reader_read(). */
tutti_status_t tt_saved_read_interval(tutti_saved_t *saved, const tt_saved_tensor_t *tensor,
                                      int64_t first, int64_t count, tutti_tensor_t *to);

#endif
