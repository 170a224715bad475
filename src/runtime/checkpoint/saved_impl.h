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
    int host;                 /* of the manifest's, whose folder it seems to be; -1: nobody's */
};

/* What the tensors are called: `names`, or the source's manifest. */
const tt_manifest_t *tt_saved_names(const tutti_saved_t *saved);

/* Names, and what each of them is in the source, in place of those before; both are taken over. */
void tt_saved_set_names(tutti_saved_t *saved, tt_manifest_t *names, tt_fit_t *fits);

/* What one of tt_saved_names() is in the source. */
tt_fit_t tt_saved_fit(const tutti_saved_t *saved, const tt_saved_tensor_t *tensor);

/* Whether a file is on another host, and not here. */
bool tt_saved_is_elsewhere(const tutti_saved_t *saved, const tt_saved_file_t *file);

/* So many bytes of all are written. Errors: ABORTED (who watches has stopped it). */
tutti_status_t tt_saved_advance(const tutti_saved_watch_t *watch, uint64_t done, uint64_t all);

tutti_saved_tensor_t tt_saved_describe(const tt_saved_tensor_t *tensor);

/* Elements of a box of a tensor (NULL: of all of it) from `first` on, in row-major order, as many
 * as `to` has, which is contiguous. Errors: NOT_FOUND; those of tt_slice_reader_read(). */
tutti_status_t tt_saved_read_window(tutti_saved_t *saved, const char *name, const tt_box_t *box,
                                    int64_t first, tutti_tensor_t *to);

#endif
