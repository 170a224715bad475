/* The inside of an open safetensors file, and the check of its header.
 *
 *     | u64 header_bytes, little-endian | header, JSON | tensors, without gaps |
 *     {"__metadata__": {"k": "text"},
 *      "name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
 *
 * Offsets in the header count from the first byte behind it.
 */
#ifndef TT_SAFETENSORS_IMPL_H
#define TT_SAFETENSORS_IMPL_H

#include <tutti/safetensors.h>

#include "core/base/file.h"

enum { TT_SAFETENSORS_PREFIX_BYTES = 8 };

#define TT_SAFETENSORS_METADATA "__metadata__"

struct tutti_safetensors {
    tt_file_t file;
    char *header; /* [data_start - TT_SAFETENSORS_PREFIX_BYTES] names and metadata live in here */
    uint64_t data_start;
    size_t count, room;
    tutti_safetensors_entry_t *entries;              /* [count] by offset */
    const tutti_safetensors_entry_t **entries_named; /* [count] by name */
    tutti_named_text_t *metadata;                    /* [metadata_count] by name */
    size_t metadata_count, metadata_room;
};

/* Fill entries and metadata from the header, then order and check them. Texts of the header are
 * decoded where they stand: of a header of N bytes no more than a few N are in memory. */
tutti_status_t tt_safetensors_check(tutti_safetensors_t *st);

/* Sees each tensor right before it is written, its parts in their order: where in the file, and the
 * bytes, which are the host's. All parts but a tensor's last have TT_SAFETENSORS_PART_BYTES, which
 * stay in a cache from who sees them to the write. */
typedef struct {
    tutti_status_t (*writes)(void *user, const tutti_named_tensor_t *tensor, uint64_t at,
                             const void *data, size_t bytes);
    void *user;
    /* Its elements from `first` on, in row-major order, as many as the window has: [n], of its
     * dtype, contiguous in the host's memory. NULL: the tensor has its values. Otherwise tensors
     * may lie on meta, and of them TT_SAFETENSORS_WINDOW_BYTES at a time are in memory. */
    tutti_status_t (*fetch)(void *user, const tutti_named_tensor_t *tensor, int64_t first,
                            tutti_tensor_t *window);
    bool is_direct; /* the file is written past the page cache */
} tt_safetensors_watch_t;

enum { TT_SAFETENSORS_PART_BYTES = 1 << 20, TT_SAFETENSORS_WINDOW_BYTES = 16 << 20 };

/* tutti_safetensors_save(), watched; NULL: by nobody. A failure of its functions, either of which
 * may be NULL, ends it. */
tutti_status_t tt_safetensors_save(const char *path, const tutti_named_tensor_t *tensors,
                                   size_t count, const tutti_named_text_t *metadata,
                                   size_t metadata_count, const tt_safetensors_watch_t *watch);

#endif
