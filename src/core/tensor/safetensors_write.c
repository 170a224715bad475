/* Writing safetensors: header first, then the tensors, largest element size first so that each is
 * aligned without gaps, otherwise in the order given. The header is padded with blanks to a
 * multiple of 64 bytes, so that the data are aligned for those who map the file.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/base/alloc.h"
#include "core/base/dtype_names.h"
#include "core/tensor/safetensors_impl.h"
#include "core/tensor/tensor_impl.h"

enum { HEADER_ALIGN = 64 };

static const size_t element_sizes[] = {8, 4, 2, 1};

typedef struct {
    const tutti_named_tensor_t *tensors;
    size_t count;
    json_t *header;
    uint64_t offset; /* of the next tensor */
} layout_t;

/* Visits the tensors in the order of the file; ends at the first failure. */
static tutti_status_t for_each(const tutti_named_tensor_t *tensors, size_t count,
                               tutti_status_t (*visit)(void *, const tutti_named_tensor_t *),
                               void *user)
{
    for (size_t k = 0; k < sizeof element_sizes / sizeof element_sizes[0]; k++) {
        for (size_t i = 0; i < count; i++) {
            const tutti_dtype_t dtype = tutti_tensor_dtype(tensors[i].tensor);
            if (tutti_dtype_bytes(dtype) == element_sizes[k]) {
                TT_TRY(visit(user, &tensors[i]));
            }
        }
    }
    return TUTTI_OK;
}

static json_t *pack_shape(tutti_shape_t shape)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape.rank; i++) {
        if (json_array_append_new(dims, json_integer(shape.dims[i])) != 0) {
            json_decref(dims);
            return NULL;
        }
    }
    return dims;
}

/* As JSON wants it (RFC 3629). */
static bool is_utf8(const char *text)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    for (const unsigned char *p = (const unsigned char *)text; *p != 0; p++) {
        const int more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
        uint32_t code = more == 0 ? *p : *p & 0x3fu >> more;
        if ((*p & 0xc0) == 0x80 || *p >= 0xf8) {
            return false;
        }
        for (int i = 0; i < more; i++) {
            p++;
            if ((*p & 0xc0) != 0x80) {
                return false;
            }
            code = code << 6 | (*p & 0x3fu);
        }
        if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            return false;
        }
    }
    return true;
}

/* Before it is added: the text, and the name, which is new in the object. */
static tutti_status_t check_named(const json_t *object, const char *name, const char *text,
                                  const char *what)
{
    if (name == NULL || text == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "saving tensors: a %s has no %s", what,
                       name == NULL ? "name" : "text");
    }
    if (json_object_get(object, name) != NULL || strcmp(name, TT_SAFETENSORS_METADATA) == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "saving tensors: the %s name \"%s\" is %s", what, name,
                       json_object_get(object, name) != NULL ? "there twice" : "reserved");
    }
    return is_utf8(name) && is_utf8(text)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "saving tensors: the %s \"%s\" is not UTF-8", what, name);
}

/* Adds a value (taken over) under a name that has been checked. */
static tutti_status_t add_named(json_t *object, const char *name, json_t *value)
{
    return value != NULL && json_object_set_new(object, name, value) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: saving \"%s\"", name);
}

static tutti_status_t describe(void *user, const tutti_named_tensor_t *named)
{
    layout_t *layout = user;
    const tutti_tensor_t *x = named->tensor;
    const uint64_t end = layout->offset + tutti_tensor_bytes(x);
    TT_TRY(check_named(layout->header, named->name, "", "tensor"));
    json_t *entry =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", tt_dtype_safetensors_name(tutti_tensor_dtype(x)),
                  "shape", pack_shape(tutti_tensor_shape(x)), "data_offsets",
                  (json_int_t)layout->offset, (json_int_t)end);
    layout->offset = end;
    return add_named(layout->header, named->name, entry);
}

static tutti_status_t pack_metadata(json_t *header, const tutti_named_text_t *metadata,
                                    size_t count)
{
    if (count == 0) {
        return TUTTI_OK;
    }
    json_t *object = json_object();
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < count && status >= 0; i++) {
        status = check_named(object, metadata[i].name, metadata[i].text, "metadata");
        if (status >= 0) {
            status = add_named(object, metadata[i].name, json_string(metadata[i].text));
        }
    }
    if (status < 0 || json_object_set(header, TT_SAFETENSORS_METADATA, object) != 0) {
        status = status < 0 ? status : TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: metadata");
    }
    json_decref(object);
    return status;
}

typedef struct {
    tt_new_file_t file;
    uint64_t at; /* bytes written */
    const tt_safetensors_watch_t *watch;
} writer_t;

static tutti_status_t write_bytes(writer_t *writer, const void *data, size_t bytes)
{
    writer->at += bytes;
    return tt_new_file_write(&writer->file, data, bytes);
}

/* Length and padded text. */
static tutti_status_t write_header(writer_t *writer, const json_t *header)
{
    const char *path = writer->file.path;
    const size_t bytes = json_dumpb(header, NULL, 0, JSON_COMPACT);
    const size_t prefix = TT_SAFETENSORS_PREFIX_BYTES;
    const size_t padded = (prefix + bytes + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    if (padded - prefix > TUTTI_SAFETENSORS_HEADER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: names and metadata take %zu bytes, at most %d can be "
                       "read again",
                       path, bytes, TUTTI_SAFETENSORS_HEADER_BYTES_MAX);
    }
    char *text = tt_alloc_raw(padded, "safetensors header");
    TT_TRY_ALLOC(text);
    memset(text, ' ', padded);
    for (size_t i = 0; i < prefix; i++) {
        text[i] = (char)((uint64_t)(padded - prefix) >> (8 * i));
    }
    const bool is_whole =
        bytes > 0 && json_dumpb(header, text + prefix, bytes, JSON_COMPACT) == bytes;
    const tutti_status_t status = is_whole ? write_bytes(writer, text, padded)
                                           : TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: %s", path);
    tt_free(text);
    return status;
}

static tutti_status_t write_part(writer_t *writer, const tutti_named_tensor_t *named,
                                 const char *data, size_t bytes)
{
    const tt_safetensors_watch_t *watch = writer->watch;
    if (watch->writes != NULL) {
        TT_TRY(watch->writes(watch->user, named, writer->at, data, bytes));
    }
    return write_bytes(writer, data, bytes);
}

static tutti_status_t write_parts(writer_t *writer, const tutti_named_tensor_t *named,
                                  const tutti_tensor_t *host)
{
    const char *data = tutti_tensor_data(host);
    const size_t bytes = tutti_tensor_bytes(host), part = TT_SAFETENSORS_PART_BYTES;
    size_t at = 0;
    do { /* of a tensor without elements one part without bytes */
        TT_TRY(write_part(writer, named, data + at, bytes - at < part ? bytes - at : part));
        at += part;
    } while (at < bytes);
    return TUTTI_OK;
}

static tutti_status_t write_windows(writer_t *writer, const tutti_named_tensor_t *named)
{
    const tt_safetensors_watch_t *watch = writer->watch;
    const tutti_dtype_t dtype = tutti_tensor_dtype(named->tensor);
    const int64_t numel = tutti_tensor_numel(named->tensor);
    const int64_t room = TT_SAFETENSORS_WINDOW_BYTES / (int64_t)tutti_dtype_bytes(dtype);
    int64_t first = 0;
    tutti_status_t status;
    do {
        tutti_tensor_t *window;
        const int64_t count = numel - first < room ? numel - first : room;
        TT_TRY(tt_tensor_new(NULL, dtype, TUTTI_SHAPE(count), false, &window));
        status = count > 0 ? watch->fetch(watch->user, named, first, window) : TUTTI_OK;
        status = status < 0 ? status : write_parts(writer, named, window);
        tutti_tensor_release(window);
        first += room;
    } while (first < numel && status >= 0);
    return status;
}

static tutti_status_t write_tensor(void *user, const tutti_named_tensor_t *named)
{
    writer_t *writer = user;
    tutti_tensor_t *host;
    if (writer->watch->fetch != NULL) {
        return write_windows(writer, named);
    }
    TT_TRY(tt_tensor_on_host(named->tensor, &host));
    const tutti_status_t status = write_parts(writer, named, host);
    tutti_tensor_release(host);
    return status;
}

static tutti_status_t write_all(const char *path, const layout_t *layout,
                                const tt_safetensors_watch_t *watch)
{
    static const tt_safetensors_watch_t nobody;
    writer_t writer = {.watch = watch == NULL ? &nobody : watch};
    TT_TRY((writer.watch->is_direct ? tt_new_file_begin_direct : tt_new_file_begin)(path,
                                                                                    &writer.file));
    tutti_status_t status = write_header(&writer, layout->header);
    if (status >= 0) {
        status = for_each(layout->tensors, layout->count, write_tensor, &writer);
    }
    return tt_new_file_end(&writer.file, status);
}

tutti_status_t tt_safetensors_save(const char *path, const tutti_named_tensor_t *tensors,
                                   size_t count, const tutti_named_text_t *metadata,
                                   size_t metadata_count, const tt_safetensors_watch_t *watch)
{
    for (size_t i = 0; i < count; i++) {
        TT_TRY(tt_tensor_check_named(tensors[i].tensor, tensors[i].name));
    }
    layout_t layout = {.tensors = tensors, .count = count, .header = json_object()};
    tutti_status_t status = layout.header == NULL
                                ? TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: safetensors header")
                                : pack_metadata(layout.header, metadata, metadata_count);
    if (status >= 0) {
        status = for_each(tensors, count, describe, &layout);
    }
    if (status >= 0) {
        status = write_all(path, &layout, watch);
    }
    json_decref(layout.header);
    return status;
}

tutti_status_t tutti_safetensors_save(const char *path, const tutti_named_tensor_t *tensors,
                                      size_t count, const tutti_named_text_t *metadata,
                                      size_t metadata_count)
{
    return tt_safetensors_save(path, tensors, count, metadata, metadata_count, NULL);
}
