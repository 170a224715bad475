/* What a checkpoint holds: tensors, of each the slices, of each where it is. The same text says
 * what a rank has before anything is written, and what it has written (docs/formats/checkpoint.md).
 *
 *     {"format": "tutti checkpoint", "version": 1, "step": 300, "ranks": 2,
 *      "files": [{"name": "rank-00000-0.safetensors", "digests": "rank-00000-0.digests"}, …],
 *      "tensors": {"up.weight": {"dtype": "F32", "shape": [4, 6], "slices": [
 *          {"offset": [0, 0], "size": [2, 6], "rank": 0, "file": 0,
 *           "at": 320, "first_block": 0, "digest": "…32 digits"}, …]}},
 *      "texts": {"tutti.shards": "6", "tokenizer": "bytes"},
 *      "digest": "…of all bytes before this member"}
 *
 * Files of others are described in the same way, without digests (source.h). Where each host has
 * its own disk, "hosts" are their names, and a file's "host" is the number of its own; "copies": so
 * many have it.
 */
#ifndef TT_MANIFEST_H
#define TT_MANIFEST_H

#include <tutti/objects.h>
#include <tutti/tensor.h>

#include "core/base/fail.h"
#include "runtime/checkpoint/block_digest.h"
#include "runtime/checkpoint/box.h"

/* A slice that nobody has written is in none. */
enum { TT_NO_FILE = -1 };

/* In the checkpoint's folder. */
typedef struct {
    const char *name;
    const char *digests; /* the file of its blocks' digests; NULL: it has none */

    /* Of a file of others, by which it is known when it is opened again, by any rank: so many bytes
     * that it begins with, and that say what is where, and their digest. 0: nothing is known. */
    uint64_t head_bytes;
    tt_digest_t head;

    int host; /* of the manifest's hosts: whose rank has written it; without hosts 0 */
} tt_saved_file_t;

typedef struct {
    tt_box_t box;
    int rank;             /* who writes it, or has written it */
    int file;             /* the number of its file, or TT_NO_FILE */
    uint64_t at;          /* bytes from the file's begin */
    uint64_t first_block; /* in the file's list of digests; of a file that has one */
    tt_digest_t digest;
} tt_saved_slice_t;

typedef struct {
    const char *name;
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    tt_saved_slice_t *slices;
    size_t slice_count, slice_room;
    bool is_model; /* of a module; of a save of whole tensors */
} tt_saved_tensor_t;

typedef struct {
    const char *name;
    tutti_buffer_t text;
} tt_saved_text_t;

/* Names, found by a hash: numbers of things, from 1 on; a power of two of places. */
typedef struct {
    size_t *places;
    size_t size;
} tt_name_table_t;

typedef struct tt_manifest tt_manifest_t;

struct tt_manifest {
    int64_t step;
    int ranks;
    bool is_whole; /* each tensor is in one file, those of the model in files that an index names */
    tt_saved_file_t *files;
    size_t file_count, file_room;
    char **hosts; /* [host_count] names, where each host has a disk of its own; none: one disk */
    int host_count, host_room;
    int copies; /* a file is on so many hosts: its own and the next ones, counted around; 0: 1 */
    tt_saved_tensor_t *tensors; /* in the order in which they were added */
    size_t tensor_count, tensor_room;
    tt_saved_text_t *texts;
    size_t text_count, text_room;
    tt_name_table_t tensor_names, text_names;
    uint64_t seed; /* of the hash: strangers must not choose names that collide */
};

/* Empty. */
tutti_status_t tt_manifest_create(int64_t step, int ranks, tt_manifest_t **out);
void tt_manifest_release(tt_manifest_t *manifest);

/* NULL: there is none of that name. */
tt_saved_tensor_t *tt_manifest_find(const tt_manifest_t *manifest, const char *name);

/* The tensor of that name, made without slices if there is none; until the next one is added.
 * Errors: MISMATCH (it has another dtype or shape), NOMEM. */
tutti_status_t tt_manifest_add(tt_manifest_t *manifest, const char *name, tutti_dtype_t dtype,
                               tutti_shape_t shape, tt_saved_tensor_t **out);
tutti_status_t tt_manifest_add_slice(tt_saved_tensor_t *tensor, const tt_saved_slice_t *slice);

/* Whether the slices of each tensor are in files, share nothing, and are all of it together, as in
 * a checkpoint that is written. `what` names it. Cost: a sort. Errors: FORMAT (names the tensor),
 * NOMEM. */
tutti_status_t tt_manifest_check_slices(const char *what, const tt_manifest_t *manifest);

/* One more file, with the next number; `digests` may be NULL. Errors: FORMAT (a name that leads out
 * of a folder, or none), NOMEM. */
tutti_status_t tt_manifest_add_file(tt_manifest_t *manifest, const char *name, const char *digests);

/* The files of another one. */
tutti_status_t tt_manifest_copy_files(tt_manifest_t *manifest, const tt_manifest_t *from);

/* One more host, with the next number. Errors: NOMEM. */
tutti_status_t tt_manifest_add_host(tt_manifest_t *manifest, const char *name);

/* Whether a host is to have a file. */
bool tt_manifest_has_on(const tt_manifest_t *manifest, const tt_saved_file_t *file, int host);

/* One of a name; NULL: there is none. Errors of adding: MISMATCH (there is another one of that
 * name), NOMEM. */
const tutti_buffer_t *tt_manifest_text(const tt_manifest_t *manifest, const char *name);
tutti_status_t tt_manifest_add_text(tt_manifest_t *manifest, const char *name, tutti_bytes_t text);

/* As text, with its digest. Errors: NOMEM, ARG (a name is not UTF-8). */
tutti_status_t tt_manifest_print(const tt_manifest_t *manifest, tutti_buffer_t *out);

/* `what` names it in failures: a path, "rank 3". Errors: FORMAT (with what was found, and where),
 * UNSUPPORTED (a later version, a dtype that Tutti does not have), NOMEM. */
tutti_status_t tt_manifest_parse(const char *what, tutti_bytes_t text, tt_manifest_t **out);

/* Into a file, flushed. Errors: IO and those of tt_manifest_print(). */
tutti_status_t tt_manifest_write(const char *path, const tt_manifest_t *manifest);

/* That of a file. Errors: IO and those of tt_manifest_parse(). */
tutti_status_t tt_manifest_read(const char *path, tt_manifest_t **out);

#endif
