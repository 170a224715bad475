/* The inside of an open checkpoint. */
#ifndef TT_SAVED_IMPL_H
#define TT_SAVED_IMPL_H

#include <tutti/checkpoint_files.h>

#include "runtime/checkpoint/load_names.h"
#include "runtime/checkpoint/slice_reader.h"
#include "runtime/checkpoint/source.h"

struct tutti_saved {
    tt_source_t source;
    tt_path_t path;           /* of the step's folder; of another format, as it was given */
    tt_slice_reader_t reader; /* of it */
    tt_manifest_t *names;     /* that its tensors were given; NULL: they have their own */
    tt_fit_t *fits;           /* [names->tensor_count] what each of them is in the source */
    uint64_t bytes;           /* of all tensors */
};

/* What the tensors are called: `names`, or the source's manifest. */
const tt_manifest_t *tt_saved_names(const tutti_saved_t *saved);

void tt_saved_count_bytes(tutti_saved_t *saved);

tutti_saved_tensor_t tt_saved_describe(const tt_saved_tensor_t *tensor);

/* The checkpoint's own tensor. Errors: NOT_FOUND (names the nearest). */
tutti_status_t tt_saved_find(const tutti_saved_t *saved, const char *name,
                             const tt_saved_tensor_t **out);

/* Elements [first, first + count), in row-major order, to the begin of a tensor of its dtype that
 * lies contiguous in the host's memory. Errors: those of tt_slice_reader_read(). */
tutti_status_t tt_saved_read_interval(tutti_saved_t *saved, const tt_saved_tensor_t *tensor,
                                      int64_t first, int64_t count, tutti_tensor_t *to);

/* A box of a tensor, as a new one in the host's memory; owned by the caller. `offset`: NULL: 0. */
tutti_status_t tt_saved_fetch(tutti_saved_t *saved, const char *name, const int64_t *offset,
                              tutti_shape_t shape, tutti_tensor_t **out);

#endif
