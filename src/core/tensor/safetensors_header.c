/* What a safetensors header may say. Every tensor: known dtype, sizes that do not overflow, as many
 * bytes as its shape needs. All tensors together: in the order of their offsets they fill the
 * file's data exactly. Cost: a sort. Source: the format's own rules.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/dtype_names.h"
#include "core/base/json_walk.h"
#include "core/base/reals.h"
#include "core/tensor/safetensors_impl.h"
#include "core/tensor/tensor_impl.h"

enum { PRINTED_NAME_BYTES = 160, ROOM_FIRST = 64 };

/* FORMAT or UNSUPPORTED with the file and the tensor in front. */
__attribute__((format(printf, 4, 5))) static tutti_status_t
fail_tensor(const tutti_safetensors_t *st, const char *name, tutti_status_t status,
            const char *format, ...)
{
    char printed[PRINTED_NAME_BYTES], text[512];
    tt_bytes_print(tutti_text(name), printed, sizeof printed);
    va_list args;
    va_start(args, format);
    tt_format_list(text, sizeof text, format, args);
    va_end(args);
    return TT_FAIL(status, "%s: tensor \"%s\": %s", st->file.path, printed, text);
}

static tutti_status_t read_dtype(const tutti_safetensors_t *st, const char *name,
                                 const json_t *tensor, tutti_dtype_t *out)
{
    const char *text = json_string_value(json_object_get(tensor, "dtype"));
    if (text == NULL) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT, "\"dtype\" is missing or not a text");
    }
    if (tt_dtype_parse_safetensors(text, out) < 0) {
        char printed[32];
        tt_bytes_print(tutti_text(text), printed, sizeof printed);
        return fail_tensor(st, name, TUTTI_ERR_UNSUPPORTED,
                           "dtype \"%s\": expected F32, F64, BF16, F16, I64, I32, I8, U8 or BOOL",
                           printed);
    }
    return TUTTI_OK;
}

static tutti_status_t read_shape(const tutti_safetensors_t *st, const char *name,
                                 const json_t *tensor, tutti_safetensors_entry_t *entry)
{
    const json_t *dims = json_object_get(tensor, "shape");
    if (!json_is_array(dims)) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT, "\"shape\" is missing or not an array");
    }
    if (json_array_size(dims) > TUTTI_RANK_MAX) {
        return fail_tensor(st, name, TUTTI_ERR_UNSUPPORTED, "%zu dimensions: expected at most %d",
                           json_array_size(dims), TUTTI_RANK_MAX);
    }
    entry->shape.rank = (int)json_array_size(dims);
    for (int i = 0; i < entry->shape.rank; i++) {
        const json_t *dim = json_array_get(dims, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return fail_tensor(st, name, TUTTI_ERR_FORMAT,
                               "dimension %d: expected an integer, not negative", i);
        }
        entry->shape.dims[i] = json_integer_value(dim);
    }
    if (tt_shape_check(entry->dtype, entry->shape) < 0) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT, "more elements than memory can address");
    }
    return TUTTI_OK;
}

static tutti_status_t read_offsets(const tutti_safetensors_t *st, const char *name,
                                   const json_t *tensor, tutti_safetensors_entry_t *entry)
{
    const json_t *offsets = json_object_get(tensor, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT,
                           "\"data_offsets\": expected [first byte, end]");
    }
    const int64_t begin = json_integer_value(first), end = json_integer_value(last);
    const uint64_t data_bytes = st->file.bytes - st->data_start;
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT,
                           "data_offsets [%" PRId64 ", %" PRId64 "] are outside the file, which "
                           "has %" PRIu64 " bytes of data from offset %" PRIu64
                           " (truncated, or not the file it was)",
                           begin, end, data_bytes, st->data_start);
    }
    entry->offset = st->data_start + (uint64_t)begin;
    entry->bytes = (uint64_t)(end - begin);
    return TUTTI_OK;
}

static tutti_status_t read_entry(const tutti_safetensors_t *st, const char *name,
                                 const json_t *tensor, tutti_safetensors_entry_t *entry)
{
    if (!json_is_object(tensor) || json_object_size(tensor) != 3) {
        return fail_tensor(st, name, TUTTI_ERR_FORMAT,
                           "expected an object of dtype, shape and data_offsets");
    }
    entry->name = name;
    TT_TRY(read_dtype(st, name, tensor, &entry->dtype));
    TT_TRY(read_shape(st, name, tensor, entry));
    TT_TRY(read_offsets(st, name, tensor, entry));
    const uint64_t needed =
        (uint64_t)tutti_shape_numel(entry->shape) * tutti_dtype_bytes(entry->dtype);
    if (needed != entry->bytes) {
        char shape[160];
        return fail_tensor(st, name, TUTTI_ERR_FORMAT,
                           "%" PRIu64 " bytes at offset %" PRIu64 ": expected %" PRIu64 " for %s%s",
                           entry->bytes, entry->offset, needed, tutti_dtype_name(entry->dtype),
                           tutti_shape_format(entry->shape, shape, sizeof shape));
    }
    return TUTTI_OK;
}

/* The list with room for one more; NULL: there is no memory. */
static void *grow(void *list, size_t element_bytes, size_t count, size_t *room)
{
    if (count < *room) {
        return list;
    }
    const size_t wanted = *room == 0 ? ROOM_FIRST : 2 * *room;
    void *grown = tt_realloc(list, wanted * element_bytes, "safetensors");
    *room = grown == NULL ? *room : wanted;
    return grown;
}

static tutti_status_t grow_metadata(tutti_safetensors_t *st)
{
    void *list = grow(st->metadata, sizeof *st->metadata, st->metadata_count, &st->metadata_room);
    TT_TRY_ALLOC(list);
    st->metadata = list;
    return TUTTI_OK;
}

static tutti_status_t grow_entries(tutti_safetensors_t *st)
{
    void *list = grow(st->entries, sizeof *st->entries, st->count, &st->room);
    TT_TRY_ALLOC(list);
    st->entries = list;
    return TUTTI_OK;
}

/* What was read up to the walk's place, decoded into the place where it ends: it is shorter than it
 * was with its quotes. Takes the text over. */
static const char *keep_text(tutti_safetensors_t *st, size_t end, json_t *text)
{
    const size_t bytes = json_string_length(text) + 1;
    char *place = st->header + end - bytes;
    memcpy(place, json_string_value(text), bytes);
    json_decref(text);
    return place;
}

static tutti_status_t fail_metadata(const tutti_safetensors_t *st)
{
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "%s: \"" TT_SAFETENSORS_METADATA "\": expected an object of texts",
                   st->file.path);
}

static tutti_status_t read_metadata_text(tutti_safetensors_t *st, tt_json_walk_t *walk)
{
    json_t *name, *text;
    TT_TRY(grow_metadata(st));
    TT_TRY(tt_json_name(walk, &name));
    tutti_named_text_t *entry = &st->metadata[st->metadata_count];
    entry->name = keep_text(st, walk->at, name);
    if (tt_json_kind(walk) != '"') {
        return fail_metadata(st);
    }
    TT_TRY(tt_json_leaf(walk, &text));
    entry->text = keep_text(st, walk->at, text);
    st->metadata_count++;
    return TUTTI_OK;
}

static tutti_status_t read_metadata(tutti_safetensors_t *st, tt_json_walk_t *walk)
{
    if (tt_json_kind(walk) != '{') {
        return fail_metadata(st);
    }
    TT_TRY(grow_metadata(st)); /* not NULL: it was there */
    tutti_status_t status = tt_json_enter(walk, '{');
    while (status >= 0 && (status = tt_json_next(walk, '}')) == TUTTI_OK) {
        status = read_metadata_text(st, walk);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

static tutti_status_t read_tensor(tutti_safetensors_t *st, const char *name, tt_json_walk_t *walk)
{
    json_t *tensor = NULL;
    TT_TRY(grow_entries(st));
    TT_TRY(tt_json_leaf(walk, &tensor));
    const tutti_status_t status = read_entry(st, name, tensor, &st->entries[st->count]);
    json_decref(tensor);
    st->count += status >= 0;
    return status;
}

static tutti_status_t read_member(tutti_safetensors_t *st, tt_json_walk_t *walk)
{
    json_t *text;
    TT_TRY(tt_json_name(walk, &text));
    const char *name = keep_text(st, walk->at, text);
    if (strcmp(name, TT_SAFETENSORS_METADATA) != 0) {
        return read_tensor(st, name, walk);
    }
    return st->metadata == NULL
               ? read_metadata(st, walk)
               : TT_FAIL(TUTTI_ERR_FORMAT, "%s: duplicate \"" TT_SAFETENSORS_METADATA "\"",
                         st->file.path);
}

static tutti_status_t read_header(tutti_safetensors_t *st)
{
    const size_t bytes = st->data_start - TT_SAFETENSORS_PREFIX_BYTES;
    tt_json_walk_t walk =
        tt_json_walk(st->file.path, TT_SAFETENSORS_PREFIX_BYTES, st->header, bytes);
    if (bytes == 0 || st->header[0] != '{') {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: expected a JSON object at offset %d", st->file.path,
                       TT_SAFETENSORS_PREFIX_BYTES);
    }
    tutti_status_t status = tt_json_enter(&walk, '{');
    while (status >= 0 && (status = tt_json_next(&walk, '}')) == TUTTI_OK) {
        status = read_member(st, &walk);
    }
    return status == TUTTI_END ? tt_json_end(&walk) : status;
}

static int by_offset(const void *a, const void *b)
{
    const tutti_safetensors_entry_t *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    const tutti_safetensors_entry_t *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_text_name(const void *a, const void *b)
{
    const tutti_named_text_t *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static tutti_status_t fail_duplicate(const tutti_safetensors_t *st, const char *name)
{
    char printed[PRINTED_NAME_BYTES];
    tt_bytes_print(tutti_text(name), printed, sizeof printed);
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: duplicate \"%s\"", st->file.path, printed);
}

static tutti_status_t check_names(const tutti_safetensors_t *st)
{
    for (size_t i = 1; i < st->count; i++) {
        if (strcmp(st->entries_named[i - 1]->name, st->entries_named[i]->name) == 0) {
            return fail_duplicate(st, st->entries_named[i]->name);
        }
    }
    for (size_t i = 1; i < st->metadata_count; i++) {
        if (strcmp(st->metadata[i - 1].name, st->metadata[i].name) == 0) {
            return fail_duplicate(st, st->metadata[i].name);
        }
    }
    return TUTTI_OK;
}

/* Ordered by offset, each entry must begin where the one before ends. */
static tutti_status_t check_filled(const tutti_safetensors_t *st)
{
    uint64_t end = st->data_start;
    for (size_t i = 0; i < st->count; i++) {
        const tutti_safetensors_entry_t *entry = &st->entries[i];
        if (entry->offset != end) {
            return fail_tensor(st, entry->name, TUTTI_ERR_FORMAT,
                               "begins at offset %" PRIu64 ": expected %" PRIu64 " (%s)",
                               entry->offset, end,
                               entry->offset < end ? "it overlaps another tensor" : "a gap");
        }
        end += entry->bytes;
    }
    if (end != st->file.bytes) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: the tensors end at offset %" PRIu64 ", the file at %" PRIu64
                       ": expected no bytes between",
                       st->file.path, end, st->file.bytes);
    }
    return TUTTI_OK;
}

static void sort(tutti_safetensors_t *st)
{
    for (size_t i = 0; i < st->count; i++) {
        st->entries_named[i] = &st->entries[i];
    }
    if (st->count > 0) {
        qsort(st->entries, st->count, sizeof *st->entries, by_offset);
        qsort(st->entries_named, st->count, sizeof *st->entries_named, by_name);
    }
    if (st->metadata_count > 0) {
        qsort(st->metadata, st->metadata_count, sizeof *st->metadata, by_text_name);
    }
}

tutti_status_t tt_safetensors_check(tutti_safetensors_t *st)
{
    TT_TRY(read_header(st));
    st->entries_named = tt_alloc_array(st->count, sizeof *st->entries_named, "safetensors");
    TT_TRY_ALLOC(st->entries_named);
    sort(st);
    TT_TRY(check_names(st));
    return check_filled(st);
}
