/* Manifests as JSON (manifest_format.h). */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "core/base/alloc.h"
#include "core/base/dtype_names.h"
#include "core/base/file.h"
#include "core/base/reals.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/manifest_format.h"

enum { PRINTED_BYTES = 160, PRINTED_FLAGS = JSON_COMPACT | JSON_ENCODE_ANY };

/* A text that grows: objects of jansson for 10,000 tensors took most of the time of a save. */
typedef struct {
    char *text;
    size_t bytes, room;
    tutti_status_t status;
} printer_t;

static char *make_room(printer_t *p, size_t bytes)
{
    if (p->status >= 0 && bytes >= p->room - p->bytes) {
        const size_t room = 2 * (p->bytes + bytes) + PRINTED_BYTES;
        char *text = tt_realloc(p->text, room, "manifest");
        p->text = text == NULL ? p->text : text;
        p->room = text == NULL ? p->room : room;
        p->status = text == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    }
    return p->status < 0 ? NULL : p->text + p->bytes;
}

__attribute__((format(printf, 2, 3))) static void print(printer_t *p, const char *format, ...)
{
    char *to = make_room(p, PRINTED_BYTES);
    if (to != NULL) {
        va_list args;
        va_start(args, format);
        p->bytes += (size_t)tt_format_list(to, PRINTED_BYTES, format, args);
        va_end(args);
    }
}

/* Takes the value over. */
static void print_json(printer_t *p, json_t *value)
{
    const size_t bytes = value == NULL ? 0 : json_dumpb(value, NULL, 0, PRINTED_FLAGS);
    char *to = make_room(p, bytes);
    if (to != NULL && (bytes == 0 || json_dumpb(value, to, bytes, PRINTED_FLAGS) != bytes)) {
        p->status =
            TT_FAIL(TUTTI_ERR_NOMEM, "out of memory, or a name that is not UTF-8: manifest");
    }
    json_decref(value);
    p->bytes += p->status < 0 ? 0 : bytes;
}

static void print_numbers(printer_t *p, const int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        print(p, "%s%" PRId64, i > 0 ? "," : "", numbers[i]);
    }
}

/* Its place, if it has one, and its digest, if its file has digests. */
static void print_slice(printer_t *p, const tt_manifest_t *manifest, const tt_saved_slice_t *slice)
{
    char digest[TT_DIGEST_TEXT_BYTES];
    print(p, "{\"offset\":[");
    print_numbers(p, slice->box.offset, slice->box.rank);
    print(p, "],\"size\":[");
    print_numbers(p, slice->box.size, slice->box.rank);
    print(p, "],\"rank\":%d", slice->rank);
    if (slice->file != TT_NO_FILE) {
        print(p, ",\"file\":%d,\"at\":%" PRIu64, slice->file, slice->at);
    }
    if (slice->file != TT_NO_FILE && manifest->files[slice->file].digests != NULL) {
        print(p, ",\"first_block\":%" PRIu64 ",\"digest\":\"%s\"", slice->first_block,
              tt_digest_format(slice->digest, digest));
    }
    print(p, "}");
}

static void print_tensor(printer_t *p, const tt_manifest_t *manifest,
                         const tt_saved_tensor_t *tensor)
{
    print_json(p, json_string(tensor->name));
    print(p, ":{\"dtype\":\"%s\",\"shape\":[", tt_dtype_safetensors_name(tensor->dtype));
    print_numbers(p, tensor->shape.dims, tensor->shape.rank);
    print(p, "]%s,\"slices\":[", tensor->is_model ? ",\"model\":true" : "");
    for (size_t i = 0; i < tensor->slice_count; i++) {
        print(p, "%s", i > 0 ? "," : "");
        print_slice(p, manifest, &tensor->slices[i]);
    }
    print(p, "]}");
}

/* Files of others may be called as they like: what is no UTF-8 is no text of JSON. */
static json_t *hex_of(const char *name)
{
    char digits[2 * NAME_MAX + 1] = "";
    for (size_t i = 0; name[i] != 0 && i < NAME_MAX; i++) {
        snprintf(digits + 2 * i, 3, "%02x", (unsigned char)name[i]);
    }
    return json_string(digits);
}

static void print_files(printer_t *p, const tt_manifest_t *manifest)
{
    char head[TT_DIGEST_TEXT_BYTES];
    for (size_t i = 0; i < manifest->file_count; i++) {
        const tt_saved_file_t *file = &manifest->files[i];
        print(p, "%s", i > 0 ? "," : "");
        const bool has_head = file->head_bytes > 0;
        json_t *name = json_string(file->name);
        const char *member = name != NULL ? "name" : TT_MANIFEST_NAME_HEX;
        print_json(
            p, json_pack("{s:o, s:s*, s:s*, s:o*, s:o*}", member,
                         name != NULL ? name : hex_of(file->name), "digests", file->digests, "head",
                         has_head ? tt_digest_format(file->head, head) : NULL, "head_bytes",
                         has_head ? json_integer((json_int_t)file->head_bytes) : NULL, "host",
                         manifest->host_count > 0 ? json_integer(file->host) : NULL));
    }
}

/* Missing where there is one disk. */
static void print_hosts(printer_t *p, const tt_manifest_t *manifest)
{
    for (int i = 0; i < manifest->host_count; i++) {
        print(p, i == 0 ? ",\"hosts\":[" : ",");
        print_json(p, json_string(manifest->hosts[i]));
    }
    print(p, manifest->host_count > 0 ? "]" : "");
    if (manifest->copies > 1) {
        print(p, ",\"copies\":%d", manifest->copies);
    }
}

static void print_texts(printer_t *p, const tt_manifest_t *manifest)
{
    for (size_t i = 0; i < manifest->text_count; i++) {
        const tt_saved_text_t *text = &manifest->texts[i];
        print(p, "%s", i > 0 ? "," : "");
        print_json(p, json_string(text->name));
        print(p, ":");
        print_json(p, json_stringn(text->text.data, text->text.bytes));
    }
}

static void print_all(printer_t *p, const tt_manifest_t *manifest)
{
    print(p, "{\"format\":\"%s\",\"version\":%d,\"step\":%" PRId64 ",\"ranks\":%d",
          TT_MANIFEST_FORMAT, TT_MANIFEST_VERSION, manifest->step, manifest->ranks);
    print_hosts(p, manifest);
    print(p, "%s,\"files\":[", manifest->is_whole ? ",\"whole\":true" : "");
    print_files(p, manifest);
    print(p, "],\"tensors\":{");
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        print(p, "%s", i > 0 ? "," : "");
        print_tensor(p, manifest, &manifest->tensors[i]);
    }
    print(p, "},\"texts\":{");
    print_texts(p, manifest);
    print(p, "}");
}

tutti_status_t tt_manifest_print(const tt_manifest_t *manifest, tutti_buffer_t *out)
{
    char digest[TT_DIGEST_TEXT_BYTES];
    printer_t printer = {0};
    print_all(&printer, manifest);
    if (printer.status >= 0) {
        tt_digest_format(tt_digest_of(printer.text, printer.bytes), digest);
        print(&printer, "%s%s%s", TT_MANIFEST_END_BEGIN, digest, TT_MANIFEST_END_END);
    }
    if (printer.status < 0) {
        tt_free(printer.text);
        return printer.status;
    }
    *out = (tutti_buffer_t){printer.text, printer.bytes};
    return TUTTI_OK;
}

tutti_status_t tt_manifest_write(const char *path, const tt_manifest_t *manifest)
{
    tutti_buffer_t text;
    tt_new_file_t file;
    TT_TRY(tt_manifest_print(manifest, &text));
    tutti_status_t status = tt_new_file_begin(path, &file);
    if (status >= 0) {
        status = tt_new_file_end(&file, tt_new_file_write(&file, text.data, text.bytes));
    }
    tutti_buffer_release(&text);
    return status;
}
