/* Manifests as JSON. The digest is that of all bytes before its own member, which is the last one:
 *
 *     {…all the rest…,"digest":"0123456789abcdef0123456789abcdef"}\n
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/dtype_names.h"
#include "core/base/file.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/manifest.h"

enum { VERSION = 1, PRINTED_BYTES = 160 };

static const char format_name[] = "tutti checkpoint", end_begin[] = ",\"digest\":\"",
                  end_end[] = "\"}\n";

enum { END_BYTES = sizeof end_begin - 1 + TT_DIGEST_TEXT_BYTES - 1 + sizeof end_end - 1 };

/* ---- printing -------------------------------------------------------------------------------- */

static json_t *pack_numbers(const int64_t *numbers, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        if (json_array_append_new(list, json_integer(numbers[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Takes the value over, also when it fails. */
static bool put(json_t *object, const char *name, json_t *value)
{
    return value != NULL && json_object_set_new(object, name, value) == 0;
}

/* Its place, if it has one, and its digest, if its file has digests. */
static json_t *pack_slice(const tt_manifest_t *manifest, const tt_saved_slice_t *slice)
{
    char digest[TT_DIGEST_TEXT_BYTES];
    json_t *object =
        json_pack("{s:o, s:o, s:i}", "offset", pack_numbers(slice->box.offset, slice->box.rank),
                  "size", pack_numbers(slice->box.size, slice->box.rank), "rank", slice->rank);
    bool is_whole = object != NULL;
    if (slice->file != TT_NO_FILE) {
        is_whole = is_whole && put(object, "file", json_integer(slice->file)) &&
                   put(object, "at", json_integer((json_int_t)slice->at));
    }
    if (slice->file != TT_NO_FILE && manifest->files[slice->file].digests != NULL) {
        is_whole = is_whole &&
                   put(object, "first_block", json_integer((json_int_t)slice->first_block)) &&
                   put(object, "digest", json_string(tt_digest_format(slice->digest, digest)));
    }
    if (!is_whole) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool put_tensor(json_t *tensors, const tt_manifest_t *manifest,
                       const tt_saved_tensor_t *tensor)
{
    json_t *slices = json_array();
    bool is_whole = slices != NULL;
    for (size_t i = 0; i < tensor->slice_count && is_whole; i++) {
        is_whole = json_array_append_new(slices, pack_slice(manifest, &tensor->slices[i])) == 0;
    }
    if (!is_whole) {
        json_decref(slices);
        return false;
    }
    return put(tensors, tensor->name,
               json_pack("{s:s, s:o, s:o}", "dtype", tt_dtype_safetensors_name(tensor->dtype),
                         "shape", pack_numbers(tensor->shape.dims, tensor->shape.rank), "slices",
                         slices));
}

static json_t *pack_files(const tt_manifest_t *manifest)
{
    json_t *list = json_array();
    for (size_t i = 0; i < manifest->file_count; i++) {
        const tt_saved_file_t *file = &manifest->files[i];
        json_t *object = json_pack("{s:s, s:s*}", "name", file->name, "digests", file->digests);
        if (json_array_append_new(list, object) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *pack_tensors(const tt_manifest_t *manifest)
{
    json_t *tensors = json_object();
    bool is_whole = tensors != NULL;
    for (size_t i = 0; i < manifest->tensor_count && is_whole; i++) {
        is_whole = put_tensor(tensors, manifest, &manifest->tensors[i]);
    }
    if (!is_whole) {
        json_decref(tensors);
        return NULL;
    }
    return tensors;
}

static json_t *pack(const tt_manifest_t *manifest)
{
    return json_pack("{s:s, s:i, s:I, s:i, s:o, s:o}", "format", format_name, "version", VERSION,
                     "step", (json_int_t)manifest->step, "ranks", manifest->ranks, "files",
                     pack_files(manifest), "tensors", pack_tensors(manifest));
}

/* The text without its last brace is what the digest is of. */
static tutti_status_t print(const json_t *json, tutti_buffer_t *out)
{
    const size_t bytes = json_dumpb(json, NULL, 0, JSON_COMPACT);
    char *text = tt_alloc_raw(bytes + END_BYTES, "manifest"), digest[TT_DIGEST_TEXT_BYTES];
    TT_TRY_ALLOC(text);
    if (bytes == 0 || json_dumpb(json, text, bytes, JSON_COMPACT) != bytes) {
        tt_free(text);
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: manifest");
    }
    tt_digest_format(tt_digest_of(text, bytes - 1), digest);
    snprintf(text + bytes - 1, END_BYTES + 1, "%s%s%s", end_begin, digest, end_end);
    *out = (tutti_buffer_t){text, bytes - 1 + END_BYTES};
    return TUTTI_OK;
}

tutti_status_t tt_manifest_print(const tt_manifest_t *manifest, tutti_buffer_t *out)
{
    json_t *json = pack(manifest);
    if (json == NULL) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory, or a name that is not UTF-8: manifest");
    }
    const tutti_status_t status = print(json, out);
    json_decref(json);
    return status;
}

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct {
    const char *what, *tensor; /* for failures; NULL: none */
    tt_manifest_t *manifest;
} parser_t;

__attribute__((format(printf, 3, 4))) static tutti_status_t
fail_parse(const parser_t *parser, tutti_status_t status, const char *format, ...)
{
    char name[PRINTED_BYTES], text[512];
    tt_bytes_print(tutti_text(parser->tensor == NULL ? "" : parser->tensor), name, sizeof name);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return parser->tensor == NULL
               ? TT_FAIL(status, "%s: %s", parser->what, text)
               : TT_FAIL(status, "%s: tensor \"%s\": %s", parser->what, name, text);
}

/* An integer from `least` to `most`. */
static tutti_status_t read_number(const parser_t *parser, const json_t *object, const char *name,
                                  int64_t least, int64_t most, int64_t *out)
{
    const json_t *number = json_object_get(object, name);
    *out = json_integer_value(number);
    return json_is_integer(number) && *out >= least && *out <= most
               ? TUTTI_OK
               : fail_parse(parser, TUTTI_ERR_FORMAT,
                            "\"%s\": expected an integer of %" PRId64 " to %" PRId64, name, least,
                            most);
}

static tutti_status_t read_numbers(const parser_t *parser, const json_t *object, const char *name,
                                   int64_t *numbers, int *count)
{
    const json_t *list = json_object_get(object, name);
    if (!json_is_array(list) || json_array_size(list) > TUTTI_RANK_MAX) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"%s\": expected a list of at most %d numbers",
                          name, TUTTI_RANK_MAX);
    }
    *count = (int)json_array_size(list);
    for (int i = 0; i < *count; i++) {
        const json_t *number = json_array_get(list, (size_t)i);
        if (!json_is_integer(number) || json_integer_value(number) < 0) {
            return fail_parse(parser, TUTTI_ERR_FORMAT,
                              "\"%s\"[%d]: expected an integer, not negative", name, i);
        }
        numbers[i] = json_integer_value(number);
    }
    return TUTTI_OK;
}

static tutti_status_t read_box(const parser_t *parser, const json_t *object, tutti_shape_t whole,
                               tt_box_t *box)
{
    int sizes;
    TT_TRY(read_numbers(parser, object, "offset", box->offset, &box->rank));
    TT_TRY(read_numbers(parser, object, "size", box->size, &sizes));
    if (sizes != box->rank || !tt_box_is_inside(box, whole)) {
        char shape[PRINTED_BYTES];
        return fail_parse(parser, TUTTI_ERR_FORMAT, "a slice that is no part of %s",
                          tutti_shape_format(whole, shape, sizeof shape));
    }
    return TUTTI_OK;
}

static tutti_status_t read_digest(const parser_t *parser, const json_t *object,
                                  tt_saved_slice_t *slice)
{
    int64_t first_block;
    const char *digest = json_string_value(json_object_get(object, "digest"));
    TT_TRY(read_number(parser, object, "first_block", 0, INT64_MAX / TT_BLOCK_BYTES, &first_block));
    slice->first_block = (uint64_t)first_block;
    return digest != NULL && tt_digest_parse(digest, &slice->digest)
               ? TUTTI_OK
               : fail_parse(parser, TUTTI_ERR_FORMAT, "\"digest\": expected 32 hexadecimal digits");
}

/* One that nobody has written yet has none. */
static tutti_status_t read_place(const parser_t *parser, const json_t *object,
                                 tt_saved_slice_t *slice)
{
    const tt_manifest_t *manifest = parser->manifest;
    int64_t file, at;
    if (json_object_get(object, "file") == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(read_number(parser, object, "file", 0, (int64_t)manifest->file_count - 1, &file));
    TT_TRY(read_number(parser, object, "at", 0, INT64_MAX, &at));
    slice->file = (int)file;
    slice->at = (uint64_t)at;
    return manifest->files[file].digests == NULL ? TUTTI_OK : read_digest(parser, object, slice);
}

static tutti_status_t read_slice(const parser_t *parser, const json_t *object,
                                 tt_saved_tensor_t *tensor)
{
    tt_saved_slice_t slice = {.file = TT_NO_FILE};
    int64_t rank;
    TT_TRY(read_box(parser, object, tensor->shape, &slice.box));
    TT_TRY(read_number(parser, object, "rank", 0, parser->manifest->ranks - 1, &rank));
    slice.rank = (int)rank;
    TT_TRY(read_place(parser, object, &slice));
    return tt_manifest_add_slice(tensor, &slice);
}

static tutti_status_t read_dtype(const parser_t *parser, const json_t *object, tutti_dtype_t *out)
{
    const char *name = json_string_value(json_object_get(object, "dtype"));
    if (name == NULL || tt_dtype_parse_safetensors(name, out) < 0) {
        return fail_parse(parser, name == NULL ? TUTTI_ERR_FORMAT : TUTTI_ERR_UNSUPPORTED,
                          "\"dtype\": expected F32, F64, BF16, F16, I64, I32, I8, U8 or BOOL");
    }
    return TUTTI_OK;
}

static tutti_status_t read_tensor(const parser_t *parser, const json_t *object)
{
    tutti_dtype_t dtype;
    tutti_shape_t shape = {0};
    tt_saved_tensor_t *tensor;
    const json_t *slices = json_object_get(object, "slices");
    TT_TRY(read_dtype(parser, object, &dtype));
    TT_TRY(read_numbers(parser, object, "shape", shape.dims, &shape.rank));
    if (tt_shape_check(dtype, shape) < 0) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "more elements than memory can address");
    }
    if (!json_is_array(slices)) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"slices\": expected a list");
    }
    TT_TRY(tt_manifest_add(parser->manifest, parser->tensor, dtype, shape, &tensor));
    for (size_t i = 0; i < json_array_size(slices); i++) {
        TT_TRY(read_slice(parser, json_array_get(slices, i), tensor));
    }
    return TUTTI_OK;
}

static tutti_status_t read_files(const parser_t *parser, const json_t *json)
{
    const json_t *files = json_object_get(json, "files");
    if (!json_is_array(files)) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"files\": expected a list");
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i), *digests = json_object_get(file, "digests");
        const char *name = json_string_value(json_object_get(file, "name"));
        if (name == NULL || (digests != NULL && !json_is_string(digests))) {
            return fail_parse(parser, TUTTI_ERR_FORMAT,
                              "\"files\"[%zu]: expected names of a file and of its digests", i);
        }
        const tutti_status_t status =
            tt_manifest_add_file(parser->manifest, name, json_string_value(digests));
        if (status < 0) {
            return status == TUTTI_ERR_FORMAT
                       ? fail_parse(parser, status, "\"files\"[%zu]: %s", i, tutti_last_error())
                       : status;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t read_tensors(parser_t *parser, json_t *json)
{
    json_t *tensors = json_object_get(json, "tensors"), *object;
    if (!json_is_object(tensors)) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"tensors\": expected an object");
    }
    json_object_foreach(tensors, parser->tensor, object)
    {
        TT_TRY(read_tensor(parser, object));
    }
    return TUTTI_OK;
}

static tutti_status_t read_head(const parser_t *parser, const json_t *json, int64_t *step,
                                int64_t *ranks)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    int64_t version;
    if (format == NULL || strcmp(format, format_name) != 0) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"format\": expected \"%s\"", format_name);
    }
    TT_TRY(read_number(parser, json, "version", 1, INT32_MAX, &version));
    if (version > VERSION) {
        return fail_parse(parser, TUTTI_ERR_UNSUPPORTED,
                          "version %" PRId64 ": this library reads up to %d", version, VERSION);
    }
    TT_TRY(read_number(parser, json, "step", 0, INT64_MAX, step));
    return read_number(parser, json, "ranks", 1, INT32_MAX, ranks);
}

static tutti_status_t read_manifest(parser_t *parser, json_t *json)
{
    int64_t step, ranks;
    TT_TRY(read_head(parser, json, &step, &ranks));
    TT_TRY(tt_manifest_create(step, (int)ranks, &parser->manifest));
    tutti_status_t status = read_files(parser, json);
    if (status >= 0) {
        status = read_tensors(parser, json);
    }
    if (status < 0) {
        tt_manifest_release(parser->manifest);
    }
    return status;
}

static tutti_status_t check_digest(const parser_t *parser, tutti_bytes_t text)
{
    const char *all = text.data;
    if (text.bytes <= END_BYTES) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "%zu bytes are no manifest", text.bytes);
    }
    const size_t covered = text.bytes - END_BYTES;
    char expected[END_BYTES + 1], digest[TT_DIGEST_TEXT_BYTES];
    tt_digest_format(tt_digest_of(all, covered), digest);
    snprintf(expected, sizeof expected, "%s%s%s", end_begin, digest, end_end);
    return memcmp(all + covered, expected, END_BYTES) == 0
               ? TUTTI_OK
               : fail_parse(parser, TUTTI_ERR_FORMAT,
                            "damaged: its digest is not that of its %zu bytes", text.bytes);
}

tutti_status_t tt_manifest_parse(const char *what, tutti_bytes_t text, tt_manifest_t **out)
{
    parser_t parser = {.what = what};
    json_error_t error;
    TT_TRY(check_digest(&parser, text));
    json_t *json = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL) {
        return fail_parse(&parser, TUTTI_ERR_FORMAT, "%s, at byte %d", error.text, error.position);
    }
    const tutti_status_t status = read_manifest(&parser, json);
    json_decref(json);
    if (status >= 0) {
        *out = parser.manifest;
    }
    return status;
}

tutti_status_t tt_manifest_read(const char *path, tt_manifest_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    char *text = tt_alloc_raw((size_t)file.bytes + 1, "manifest");
    tutti_status_t status =
        text == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, text, (size_t)file.bytes);
    if (status >= 0) {
        status = tt_manifest_parse(path, tutti_bytes_of(text, (size_t)file.bytes), out);
    }
    tt_free(text);
    tt_file_close(&file);
    return status;
}
