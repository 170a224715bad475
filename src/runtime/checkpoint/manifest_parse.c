/* Manifests from JSON (manifest_format.h), which may be a stranger's. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/dtype_names.h"
#include "core/base/file.h"
#include "core/base/json_walk.h"
#include "core/base/reals.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/manifest_format.h"
#include "runtime/checkpoint/step_folders.h"

enum { PRINTED_BYTES = 160 };

/* With the length in front of it. */
enum { HEAD_BYTES_MAX = TUTTI_SAFETENSORS_HEADER_BYTES_MAX + 8 };

typedef struct {
    const char *what, *tensor, *list; /* for failures; NULL: none */
    size_t number;                    /* in the list */
    tt_manifest_t *manifest;
    tt_saved_tensor_t *saved; /* whose slices are read */
} parser_t;

/* Members that may be long; only one element of each is in memory as objects. */
enum { HOSTS, FILES, TENSORS, TEXTS, PLACE_COUNT };

static const char *const place_names[] = {"hosts", "files", "tensors", "texts", NULL};
static const char *const tensor_place_names[] = {"slices", NULL};

__attribute__((format(printf, 3, 4))) static tutti_status_t
fail_parse(const parser_t *parser, tutti_status_t status, const char *format, ...)
{
    char name[PRINTED_BYTES], text[512], entry[40] = "";
    tt_bytes_print(tutti_text(parser->tensor == NULL ? "" : parser->tensor), name, sizeof name);
    if (parser->list != NULL) {
        snprintf(entry, sizeof entry, "\"%s\"[%zu]: ", parser->list, parser->number);
    }
    va_list args;
    va_start(args, format);
    tt_format_list(text, sizeof text, format, args);
    va_end(args);
    return parser->tensor == NULL
               ? TT_FAIL(status, "%s: %s%s", parser->what, entry, text)
               : TT_FAIL(status, "%s: tensor \"%s\": %s%s", parser->what, name, entry, text);
}

/* An element of parser->list. */
typedef tutti_status_t element_read_t(parser_t *parser, const json_t *element);
typedef tutti_status_t member_read_t(parser_t *parser, const char *name, tt_json_walk_t *walk);

static tutti_status_t read_list(parser_t *parser, const char *name, tt_json_walk_t walk,
                                element_read_t *read)
{
    if (tt_json_kind(&walk) != '[') {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"%s\": expected a list", name);
    }
    tutti_status_t status = tt_json_enter(&walk, '[');
    for (size_t i = 0; status >= 0 && (status = tt_json_next(&walk, ']')) == TUTTI_OK; i++) {
        json_t *element;
        TT_TRY(tt_json_leaf(&walk, &element));
        parser->list = name;
        parser->number = i;
        status = read(parser, element);
        parser->list = NULL;
        json_decref(element);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

static tutti_status_t read_object(parser_t *parser, const char *name, tt_json_walk_t walk,
                                  member_read_t *read)
{
    if (tt_json_kind(&walk) != '{') {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"%s\": expected an object", name);
    }
    tutti_status_t status = tt_json_enter(&walk, '{');
    while (status >= 0 && (status = tt_json_next(&walk, '}')) == TUTTI_OK) {
        json_t *member;
        TT_TRY(tt_json_name(&walk, &member));
        status = read(parser, json_string_value(member), &walk);
        json_decref(member);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
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

static tutti_status_t read_slice(parser_t *parser, const json_t *object)
{
    tt_saved_slice_t slice = {.file = TT_NO_FILE};
    int64_t rank;
    TT_TRY(read_box(parser, object, parser->saved->shape, &slice.box));
    TT_TRY(read_number(parser, object, "rank", 0, parser->manifest->ranks - 1, &rank));
    slice.rank = (int)rank;
    TT_TRY(read_place(parser, object, &slice));
    return tt_manifest_add_slice(parser->saved, &slice);
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

static tutti_status_t read_tensor_head(parser_t *parser, const json_t *object)
{
    tutti_dtype_t dtype;
    tutti_shape_t shape = {0};
    TT_TRY(read_dtype(parser, object, &dtype));
    TT_TRY(read_numbers(parser, object, "shape", shape.dims, &shape.rank));
    if (tt_shape_check(dtype, shape) < 0) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "more elements than memory can address");
    }
    TT_TRY(tt_manifest_add(parser->manifest, parser->tensor, dtype, shape, &parser->saved));
    parser->saved->is_model = json_is_true(json_object_get(object, "model"));
    return TUTTI_OK;
}

static tutti_status_t read_tensor(parser_t *parser, const char *name, tt_json_walk_t *walk)
{
    tt_json_walk_t slices = {0};
    parser->tensor = name;
    if (tt_manifest_find(parser->manifest, name) != NULL) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "it is there twice");
    }
    json_t *head = json_object();
    tutti_status_t status = tt_json_split(walk, tensor_place_names, &slices, head);
    status = status < 0 ? status : read_tensor_head(parser, head);
    status = status < 0 ? status : read_list(parser, "slices", slices, read_slice);
    json_decref(head);
    parser->tensor = NULL;
    return status;
}

/* Between ranks only: a file of others. */
static tutti_status_t read_head_of(const parser_t *parser, const json_t *file)
{
    tt_saved_file_t *saved = &parser->manifest->files[parser->number];
    const char *head = json_string_value(json_object_get(file, "head"));
    int64_t bytes;
    if (head == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(read_number(parser, file, "head_bytes", 1, HEAD_BYTES_MAX, &bytes));
    saved->head_bytes = (uint64_t)bytes;
    return tt_digest_parse(head, &saved->head)
               ? TUTTI_OK
               : fail_parse(parser, TUTTI_ERR_FORMAT, "\"head\": expected 32 hexadecimal digits");
}

/* Where each host has its own disk. */
static tutti_status_t read_host(parser_t *parser, const json_t *host)
{
    return json_is_string(host) ? tt_manifest_add_host(parser->manifest, json_string_value(host))
                                : fail_parse(parser, TUTTI_ERR_FORMAT, "expected a name");
}

static tutti_status_t read_copies(const parser_t *parser, const json_t *json)
{
    int64_t copies = 0;
    if (json_object_get(json, "copies") != NULL) {
        TT_TRY(read_number(parser, json, "copies", 1, INT32_MAX, &copies));
    }
    parser->manifest->copies = (int)copies;
    return TUTTI_OK;
}

static tutti_status_t read_host_of(const parser_t *parser, const json_t *file)
{
    const tt_manifest_t *manifest = parser->manifest;
    int64_t host;
    if (manifest->host_count == 0) {
        return TUTTI_OK;
    }
    TT_TRY(read_number(parser, file, "host", 0, manifest->host_count - 1, &host));
    manifest->files[parser->number].host = (int)host;
    return TUTTI_OK;
}

/* Of a name that is no UTF-8; NULL: these are no digits of one. */
static const char *name_of_hex(const char *digits, char name[NAME_MAX + 1])
{
    const size_t bytes = digits == NULL ? 0 : strlen(digits) / 2;
    if (bytes == 0 || bytes > NAME_MAX || strlen(digits) % 2 != 0 ||
        strspn(digits, "0123456789abcdef") != 2 * bytes) {
        return NULL;
    }
    for (size_t i = 0; i < bytes; i++) {
        const char pair[] = {digits[2 * i], digits[2 * i + 1], 0};
        name[i] = (char)strtoul(pair, NULL, 16);
    }
    name[bytes] = 0;
    return name;
}

static tutti_status_t read_file(parser_t *parser, const json_t *file)
{
    char of_hex[NAME_MAX + 1];
    const json_t *digests = json_object_get(file, "digests");
    const char *name = json_string_value(json_object_get(file, "name"));
    name =
        name != NULL
            ? name
            : name_of_hex(json_string_value(json_object_get(file, TT_MANIFEST_NAME_HEX)), of_hex);
    if (name == NULL || (digests != NULL && !json_is_string(digests))) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "expected names of a file and of its digests");
    }
    const tutti_status_t status =
        tt_manifest_add_file(parser->manifest, name, json_string_value(digests));
    if (status < 0) {
        return status == TUTTI_ERR_FORMAT ? fail_parse(parser, status, "%s", tutti_last_error())
                                          : status;
    }
    TT_TRY(read_head_of(parser, file));
    return read_host_of(parser, file);
}

static tutti_status_t read_text(parser_t *parser, const char *name, tt_json_walk_t *walk)
{
    json_t *text;
    char printed[PRINTED_BYTES];
    tt_bytes_print(tutti_text(name), printed, sizeof printed);
    if (tt_json_kind(walk) != '"') {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "text \"%s\": expected a text", printed);
    }
    if (tt_manifest_text(parser->manifest, name) != NULL) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "text \"%s\": it is there twice", printed);
    }
    TT_TRY(tt_json_leaf(walk, &text));
    const tutti_bytes_t bytes = tutti_bytes_of(json_string_value(text), json_string_length(text));
    const tutti_status_t status = tt_manifest_add_text(parser->manifest, name, bytes);
    json_decref(text);
    return status;
}

static tutti_status_t read_head(const parser_t *parser, const json_t *json, int64_t *step,
                                int64_t *ranks)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    int64_t version;
    if (format == NULL || strcmp(format, TT_MANIFEST_FORMAT) != 0) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "\"format\": expected \"%s\"",
                          TT_MANIFEST_FORMAT);
    }
    TT_TRY(read_number(parser, json, "version", 1, INT32_MAX, &version));
    if (version > TT_MANIFEST_VERSION) {
        return fail_parse(parser, TUTTI_ERR_UNSUPPORTED,
                          "version %" PRId64 ": this library reads up to %d", version,
                          TT_MANIFEST_VERSION);
    }
    TT_TRY(read_number(parser, json, "step", 0, TT_STEP_MAX, step));
    return read_number(parser, json, "ranks", 1, INT32_MAX, ranks);
}

static tutti_status_t read_places(parser_t *parser, const tt_json_walk_t *places)
{
    TT_TRY(places[HOSTS].text == NULL ? TUTTI_OK
                                      : read_list(parser, "hosts", places[HOSTS], read_host));
    TT_TRY(read_list(parser, "files", places[FILES], read_file));
    TT_TRY(read_object(parser, "tensors", places[TENSORS], read_tensor));
    return read_object(parser, "texts", places[TEXTS], read_text);
}

static tutti_status_t read_manifest(parser_t *parser, tt_json_walk_t walk, json_t *head)
{
    int64_t step, ranks;
    tt_json_walk_t places[PLACE_COUNT] = {0};
    TT_TRY(tt_json_split(&walk, place_names, places, head));
    TT_TRY(tt_json_end(&walk));
    TT_TRY(read_head(parser, head, &step, &ranks));
    TT_TRY(tt_manifest_create(step, (int)ranks, &parser->manifest));
    parser->manifest->is_whole = json_is_true(json_object_get(head, "whole"));
    tutti_status_t status = read_copies(parser, head);
    status = status < 0 ? status : read_places(parser, places);
    if (status < 0) {
        tt_manifest_release(parser->manifest);
    }
    return status;
}

static tutti_status_t check_digest(const parser_t *parser, tutti_bytes_t text)
{
    const char *all = text.data;
    if (text.bytes <= TT_MANIFEST_END_BYTES) {
        return fail_parse(parser, TUTTI_ERR_FORMAT, "%zu bytes are no manifest", text.bytes);
    }
    const size_t covered = text.bytes - TT_MANIFEST_END_BYTES;
    char expected[TT_MANIFEST_END_BYTES + 1], digest[TT_DIGEST_TEXT_BYTES];
    tt_digest_format(tt_digest_of(all, covered), digest);
    snprintf(expected, sizeof expected, "%s%s%s", TT_MANIFEST_END_BEGIN, digest,
             TT_MANIFEST_END_END);
    return memcmp(all + covered, expected, TT_MANIFEST_END_BYTES) == 0
               ? TUTTI_OK
               : fail_parse(parser, TUTTI_ERR_FORMAT,
                            "damaged: its digest is not that of its %zu bytes", text.bytes);
}

tutti_status_t tt_manifest_parse(const char *what, tutti_bytes_t text, tt_manifest_t **out)
{
    parser_t parser = {.what = what};
    TT_TRY(check_digest(&parser, text));
    json_t *head = json_object();
    const tutti_status_t status =
        read_manifest(&parser, tt_json_walk(what, 0, text.data, text.bytes), head);
    json_decref(head);
    if (status >= 0) {
        *out = parser.manifest;
    }
    return status;
}

/* Before there is memory for all of it: one with a wrong length would be asked for too much. */
static tutti_status_t check_end(const tt_file_t *file)
{
    static const char begin[] = TT_MANIFEST_END_BEGIN, stop[] = TT_MANIFEST_END_END;
    char end[TT_MANIFEST_END_BYTES];
    if (file->bytes <= sizeof end) {
        return TUTTI_OK;
    }
    TT_TRY(tt_file_read_at(file, file->bytes - sizeof end, end, sizeof end));
    return memcmp(end, begin, sizeof begin - 1) == 0 &&
                   memcmp(end + sizeof end - (sizeof stop - 1), stop, sizeof stop - 1) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: damaged: its %" PRIu64 " bytes do not end with a digest", file->path,
                         file->bytes);
}

static tutti_status_t read_all(const tt_file_t *file, tt_manifest_t **out)
{
    TT_TRY(check_end(file));
    char *text = tt_alloc_raw((size_t)file->bytes + 1, "manifest");
    TT_TRY_ALLOC(text);
    tutti_status_t status = tt_file_read_at(file, 0, text, (size_t)file->bytes);
    if (status >= 0) {
        status = tt_manifest_parse(file->path, tutti_bytes_of(text, (size_t)file->bytes), out);
    }
    tt_free(text);
    return status;
}

tutti_status_t tt_manifest_read(const char *path, tt_manifest_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const tutti_status_t status = read_all(&file, out);
    tt_file_close(&file);
    return status;
}
