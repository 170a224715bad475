/* Reading parts of tensors out of the files of a manifest: whole blocks, each compared with its
 * digest, if the file has digests.
 *
 *     tt_slice_reader_t reader;
 *     TT_TRY(tt_slice_reader_open(&reader, folder, manifest));
 *     tutti_status_t status = tt_slice_reader_read(&reader, saved, &box, x);
 *     tt_slice_reader_close(&reader);
 *
 * Memory: a window of 1 MiB and the digests of a slice; 16 MiB more where values cannot be read to
 * where they are to be.
 */
#ifndef TT_SLICE_READER_H
#define TT_SLICE_READER_H

#include <tutti/tensor.h>

#include "runtime/checkpoint/open_files.h"

typedef struct {
    tt_open_files_t files;
    char *window;
    tt_digest_t *blocks;           /* digests of a slice */
    const tt_saved_slice_t *known; /* which one's; NULL: nobody's */
} tt_slice_reader_t;

/* Folder and manifest are borrowed. Errors: NOMEM. */
tutti_status_t tt_slice_reader_open(tt_slice_reader_t *reader, const char *folder,
                                    const tt_manifest_t *manifest);

/* Also of a reader that could not be opened. */
void tt_slice_reader_close(tt_slice_reader_t *reader);

/* A box of a saved tensor into x, which has its shape, and any dtype, strides and device. Errors:
 * IO and FORMAT, with file and offset, NOMEM, those of the tensor's device. */
tutti_status_t tt_slice_reader_read(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                    const tt_box_t *box, tutti_tensor_t *x);

#endif
