/**
 * @file safetensors.h
 * Named tensors in a file, in the safetensors format that other frameworks read and write too.
 *
 * Example:
 *
 *     tutti_named_tensor_t tensors[] = {{"weight", w}, {"input", x}};
 *     TUTTI_CHECK(tutti_safetensors_save("layer.safetensors", tensors, 2, NULL, 0));
 *
 *     tutti_safetensors_t *file;
 *     TUTTI_CHECK(tutti_safetensors_open("layer.safetensors", &file));
 *     tutti_status_t status = tutti_safetensors_read(file, "weight", w);
 *     tutti_safetensors_close(file);
 *
 * The whole header is checked when a file is opened (sizes, offsets, gaps, overlaps, names), so
 * that a file from a stranger cannot make a reader allocate or read out of bounds. Unlike the
 * Python library, tensors are read when they are asked for; nothing is mapped.
 */
#ifndef TUTTI_SAFETENSORS_H
#define TUTTI_SAFETENSORS_H

#include <stdint.h>

#include <tutti/objects.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tensor and how it is called. */
typedef struct tutti_named_tensor {
    const char *name;
    const tutti_tensor_t *tensor;
} tutti_named_tensor_t;

/** A text and how it is called. */
typedef struct tutti_named_text {
    const char *name, *text;
} tutti_named_text_t;

/** A tensor in a file. */
typedef struct tutti_safetensors_entry {
    const char *name;
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    uint64_t offset, bytes; /**< from the start of the file */
} tutti_safetensors_entry_t;

/** An open file. Any number of threads may read it at once. */
typedef struct tutti_safetensors tutti_safetensors_t;

/** Longest header that is read, as in the reference implementation. */
enum { TUTTI_SAFETENSORS_HEADER_BYTES_MAX = 100000000 };

/**
 * Open a file and check its header.
 *
 * @param path  borrowed
 * @param out   owned by the caller, to be closed with tutti_safetensors_close
 * @thread      any
 * @cost        reads the header only; of N bytes of header at most about 8 N are in memory
 * @errors      IO (cannot be opened), FORMAT (names file, tensor, offset and what was expected),
 *              UNSUPPORTED (a dtype or a rank that Tutti does not have), NOMEM
 * @source      https://github.com/huggingface/safetensors, "Format"
 */
TUTTI_API tutti_status_t tutti_safetensors_open(const char *path, tutti_safetensors_t **out);

/**
 * The same from bytes in memory.
 *
 * @param name  stands for the path in messages
 * @param data  borrowed; must outlive the handle
 * @thread      any
 * @errors      as tutti_safetensors_open
 */
TUTTI_API tutti_status_t tutti_safetensors_open_bytes(const char *name, tutti_bytes_t data,
                                                      tutti_safetensors_t **out);

/** Close a file; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_safetensors_close(tutti_safetensors_t *file);

/** The path, or what stands for it. Valid until the file is closed. @thread any @errors none */
TUTTI_API const char *tutti_safetensors_path(const tutti_safetensors_t *file);

/** Number of tensors. @thread any @errors none */
TUTTI_API size_t tutti_safetensors_count(const tutti_safetensors_t *file);

/** A tensor's description, in the order of the data; NULL outside. Valid until the file is
 *  closed. @thread any @errors none */
TUTTI_API const tutti_safetensors_entry_t *tutti_safetensors_at(const tutti_safetensors_t *file,
                                                                size_t index);

/** The description of the tensor with a name; NULL if there is none. @thread any @errors none */
TUTTI_API const tutti_safetensors_entry_t *tutti_safetensors_find(const tutti_safetensors_t *file,
                                                                  const char *name);

/** A text of the file's metadata; NULL if there is none. @thread any @errors none */
TUTTI_API const char *tutti_safetensors_metadata(const tutti_safetensors_t *file, const char *name);

/**
 * Read a tensor into an existing one, converting to its dtype.
 *
 * @param to  [the shape in the file]; changed only on success, unless the device fails midway
 * @thread    any; one at a time per tensor
 * @cost      no copy when dtypes are equal, not bool, and `to` is contiguous and the host's
 * @errors    NOT_FOUND (names the nearest), SHAPE, IO, FORMAT, NOMEM, STATE (`to` lies on meta,
 *            where nothing has values); of another device those of tutti_tensor_copy()
 */
TUTTI_API tutti_status_t tutti_safetensors_read(const tutti_safetensors_t *file, const char *name,
                                                tutti_tensor_t *to);

/**
 * Read a tensor, of the shape and dtype that it has in the file, into a scope: on its context's
 * device. On meta nothing is read: it has the shape and the dtype.
 *
 * @return  the scope's null tensor on failure
 * @thread  the scope's
 * @errors  NOT_FOUND, IO, FORMAT, NOMEM, through the scope
 */
TUTTI_API tutti_tensor_t *tutti_safetensors_load(tutti_scope_t *s, const tutti_safetensors_t *file,
                                                 const char *name);

/**
 * Write tensors to a file. A reader sees the old file or the whole new one, also after a crash.
 *
 * @param tensors         [count] names differ; any strides
 * @param metadata        [metadata_count] names differ; may be NULL
 * @thread                any
 * @cost                  waits for the disk (fsync)
 * @errors                ARG (a name twice or not UTF-8), IO (names the path), NOMEM
 */
TUTTI_API tutti_status_t tutti_safetensors_save(const char *path,
                                                const tutti_named_tensor_t *tensors, size_t count,
                                                const tutti_named_text_t *metadata,
                                                size_t metadata_count);

#ifdef __cplusplus
}
#endif

#endif
