/* Manifests in memory: tensors in a list, found by a hash of their names. */
#include "runtime/checkpoint/manifest.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "runtime/checkpoint/spans.h"

enum { ROOM_FIRST = 16 };

tutti_status_t tt_manifest_create(int64_t step, int ranks, tt_manifest_t **out)
{
    tt_manifest_t *manifest = tt_alloc(sizeof *manifest, "manifest");
    TT_TRY_ALLOC(manifest);
    manifest->step = step;
    manifest->ranks = ranks;
    if (getrandom(&manifest->seed, sizeof manifest->seed, GRND_NONBLOCK) != sizeof manifest->seed) {
        manifest->seed = (uint64_t)tt_clock_ns();
    }
    *out = manifest;
    return TUTTI_OK;
}

void tt_manifest_release(tt_manifest_t *manifest)
{
    if (manifest == NULL) {
        return;
    }
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        tt_free((char *)(uintptr_t)manifest->tensors[i].name);
        tt_free(manifest->tensors[i].slices);
    }
    for (size_t i = 0; i < manifest->file_count; i++) {
        tt_free((char *)(uintptr_t)manifest->files[i].name);
        tt_free((char *)(uintptr_t)manifest->files[i].digests);
    }
    tt_free(manifest->files);
    for (int i = 0; i < manifest->host_count; i++) {
        tt_free(manifest->hosts[i]);
    }
    tt_free(manifest->hosts);
    for (size_t i = 0; i < manifest->text_count; i++) {
        tt_free((char *)(uintptr_t)manifest->texts[i].name);
        tutti_buffer_release(&manifest->texts[i].text);
    }
    tt_free(manifest->tensors);
    tt_free(manifest->tensor_names.places);
    tt_free(manifest->text_names.places);
    tt_free(manifest->texts);
    tt_free(manifest);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *tensor_name(const tt_manifest_t *manifest, size_t number)
{
    return manifest->tensors[number].name;
}

static const char *text_name(const tt_manifest_t *manifest, size_t number)
{
    return manifest->texts[number].name;
}

typedef const char *name_of_t(const tt_manifest_t *manifest, size_t number);

/* Where the name is, or would be. */
static size_t *place_of(const tt_manifest_t *manifest, const tt_name_table_t *table,
                        name_of_t *name_of, const char *name)
{
    const size_t mask = table->size - 1;
    size_t at = (size_t)XXH3_64bits_withSeed(name, strlen(name), manifest->seed) & mask;
    while (table->places[at] != 0 && strcmp(name_of(manifest, table->places[at] - 1), name) != 0) {
        at = (at + 1) & mask;
    }
    return &table->places[at];
}

/* 0: there is none; else its number, from 1 on. */
static size_t find_name(const tt_manifest_t *manifest, const tt_name_table_t *table,
                        name_of_t *name_of, const char *name)
{
    return table->size == 0 ? 0 : *place_of(manifest, table, name_of, name);
}

/* For twice as many as there are; of `count` things. */
static tutti_status_t grow_table(const tt_manifest_t *manifest, tt_name_table_t *table,
                                 name_of_t *name_of, size_t count, size_t room)
{
    size_t *places = tt_alloc_array(2 * room, sizeof *places, "manifest");
    TT_TRY_ALLOC(places);
    tt_free(table->places);
    *table = (tt_name_table_t){places, 2 * room};
    for (size_t i = 0; i < count; i++) {
        *place_of(manifest, table, name_of, name_of(manifest, i)) = i + 1;
    }
    return TUTTI_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

tt_saved_tensor_t *tt_manifest_find(const tt_manifest_t *manifest, const char *name)
{
    const size_t found = find_name(manifest, &manifest->tensor_names, tensor_name, name);
    return found == 0 ? NULL : &manifest->tensors[found - 1];
}

static tutti_status_t make_room(tt_manifest_t *manifest)
{
    if (manifest->tensor_count < manifest->tensor_room) {
        return TUTTI_OK;
    }
    const size_t room = manifest->tensor_room == 0 ? ROOM_FIRST : 2 * manifest->tensor_room;
    tt_saved_tensor_t *tensors = tt_realloc(manifest->tensors, room * sizeof *tensors, "manifest");
    TT_TRY_ALLOC(tensors);
    manifest->tensors = tensors;
    TT_TRY(
        grow_table(manifest, &manifest->tensor_names, tensor_name, manifest->tensor_count, room));
    manifest->tensor_room = room;
    return TUTTI_OK;
}

static tutti_status_t check_same(const tt_saved_tensor_t *tensor, tutti_dtype_t dtype,
                                 tutti_shape_t shape)
{
    char had[160], has[160];
    if (tensor->dtype == dtype && tutti_shape_equal(tensor->shape, shape)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "tensor \"%s\" is %s%s, and %s%s", tensor->name,
                   tutti_dtype_name(tensor->dtype),
                   tutti_shape_format(tensor->shape, had, sizeof had), tutti_dtype_name(dtype),
                   tutti_shape_format(shape, has, sizeof has));
}

tutti_status_t tt_manifest_add(tt_manifest_t *manifest, const char *name, tutti_dtype_t dtype,
                               tutti_shape_t shape, tt_saved_tensor_t **out)
{
    *out = tt_manifest_find(manifest, name);
    if (*out != NULL) {
        return check_same(*out, dtype, shape);
    }
    TT_TRY(make_room(manifest));
    char *copy = tt_strdup(name, "manifest");
    TT_TRY_ALLOC(copy);
    *out = &manifest->tensors[manifest->tensor_count++];
    **out = (tt_saved_tensor_t){.name = copy, .dtype = dtype, .shape = shape};
    *place_of(manifest, &manifest->tensor_names, tensor_name, name) = manifest->tensor_count;
    return TUTTI_OK;
}

tutti_status_t tt_manifest_add_slice(tt_saved_tensor_t *tensor, const tt_saved_slice_t *slice)
{
    if (tensor->slice_count == tensor->slice_room) {
        const size_t room = tensor->slice_room == 0 ? 1 : 2 * tensor->slice_room;
        tt_saved_slice_t *slices = tt_realloc(tensor->slices, room * sizeof *slices, "manifest");
        TT_TRY_ALLOC(slices);
        tensor->slices = slices;
        tensor->slice_room = room;
    }
    tensor->slices[tensor->slice_count++] = *slice;
    return TUTTI_OK;
}

/* ---- what slices are together ---------------------------------------------------------------- */

static tutti_status_t check_apart(const char *what, const tt_saved_tensor_t *tensor)
{
    const size_t count = tensor->slice_count;
    const tt_saved_slice_t *pair[2];
    tutti_status_t status = TUTTI_OK;
    tt_span_t *spans = tt_alloc_array(count, sizeof *spans, "manifest");
    TT_TRY_ALLOC(spans);
    for (size_t i = 0; i < count; i++) {
        spans[i].slice = &tensor->slices[i];
    }
    if (tt_spans_overlap(spans, count, tensor->shape, pair)) {
        char a[160], b[160];
        status = TT_FAIL(TUTTI_ERR_FORMAT, "%s: tensor \"%s\": slices %s and %s overlap", what,
                         tensor->name, tt_box_format(&pair[0]->box, a, sizeof a),
                         tt_box_format(&pair[1]->box, b, sizeof b));
    }
    tt_free(spans);
    return status;
}

static tutti_status_t check_all_of(const char *what, const tt_saved_tensor_t *tensor)
{
    const int64_t numel = tutti_shape_numel(tensor->shape);
    int64_t left = numel;
    for (size_t i = 0; i < tensor->slice_count; i++) {
        const int64_t count = tt_box_numel(&tensor->slices[i].box);
        if (count > left) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: tensor \"%s\": its slices have more than %" PRId64 " elements",
                           what, tensor->name, numel);
        }
        left -= count;
    }
    return left == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: tensor \"%s\": %" PRId64 " of %" PRId64 " elements are in no slice",
                         what, tensor->name, left, numel);
}

/* What a rank has, before it is written, is described in the same form. */
static tutti_status_t check_written(const char *what, const tt_saved_tensor_t *tensor)
{
    for (size_t i = 0; i < tensor->slice_count; i++) {
        if (tensor->slices[i].file == TT_NO_FILE) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: tensor \"%s\": a slice is in no file", what,
                           tensor->name);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_manifest_check_slices(const char *what, const tt_manifest_t *manifest)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &manifest->tensors[i];
        TT_TRY(check_written(what, tensor));
        TT_TRY(check_all_of(what, tensor));
        TT_TRY(tensor->slice_count < 2 ? TUTTI_OK : check_apart(what, tensor));
    }
    return TUTTI_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A file of the folder itself. */
static tutti_status_t check_file_name(const char *name)
{
    char text[160];
    if (name[0] != 0 && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
        strcmp(name, "..") != 0 && strlen(name) <= NAME_MAX) {
        return TUTTI_OK;
    }
    tt_bytes_print(tutti_text(name), text, sizeof text);
    return TT_FAIL(TUTTI_ERR_FORMAT, "\"%s\" is no name of a file in the checkpoint's folder",
                   text);
}

static tutti_status_t copy_name(const char *name, const char **out)
{
    if (name != NULL) {
        TT_TRY(check_file_name(name));
        *out = tt_strdup(name, "manifest");
        TT_TRY_ALLOC(*out);
    }
    return TUTTI_OK;
}

tutti_status_t tt_manifest_add_file(tt_manifest_t *manifest, const char *name, const char *digests)
{
    if (manifest->file_count == manifest->file_room) {
        const size_t room = manifest->file_room == 0 ? ROOM_FIRST : 2 * manifest->file_room;
        tt_saved_file_t *files = tt_realloc(manifest->files, room * sizeof *files, "manifest");
        TT_TRY_ALLOC(files);
        manifest->files = files;
        manifest->file_room = room;
    }
    tt_saved_file_t *file = &manifest->files[manifest->file_count++];
    *file = (tt_saved_file_t){0};
    TT_TRY(copy_name(name, &file->name));
    return copy_name(digests, &file->digests);
}

tutti_status_t tt_manifest_copy_files(tt_manifest_t *manifest, const tt_manifest_t *from)
{
    for (size_t i = 0; i < from->file_count; i++) {
        TT_TRY(tt_manifest_add_file(manifest, from->files[i].name, from->files[i].digests));
    }
    return TUTTI_OK;
}

tutti_status_t tt_manifest_add_host(tt_manifest_t *manifest, const char *name)
{
    if (manifest->host_count == manifest->host_room) {
        const int room = manifest->host_room == 0 ? ROOM_FIRST : 2 * manifest->host_room;
        char **hosts = tt_realloc(manifest->hosts, (size_t)room * sizeof *hosts, "manifest");
        TT_TRY_ALLOC(hosts);
        manifest->hosts = hosts;
        manifest->host_room = room;
    }
    char *copy = tt_strdup(name, "manifest");
    TT_TRY_ALLOC(copy);
    manifest->hosts[manifest->host_count++] = copy;
    return TUTTI_OK;
}

bool tt_manifest_has_on(const tt_manifest_t *manifest, const tt_saved_file_t *file, int host)
{
    const int hosts = manifest->host_count, copies = manifest->copies > 1 ? manifest->copies : 1;
    return hosts == 0 || (host >= 0 && (host - file->host + hosts) % hosts < copies);
}

/* ---- texts ----------------------------------------------------------------------------------- */

const tutti_buffer_t *tt_manifest_text(const tt_manifest_t *manifest, const char *name)
{
    const size_t found = find_name(manifest, &manifest->text_names, text_name, name);
    return found == 0 ? NULL : &manifest->texts[found - 1].text;
}

static tutti_status_t make_room_for_text(tt_manifest_t *manifest)
{
    if (manifest->text_count < manifest->text_room) {
        return TUTTI_OK;
    }
    const size_t room = manifest->text_room == 0 ? ROOM_FIRST : 2 * manifest->text_room;
    tt_saved_text_t *texts = tt_realloc(manifest->texts, room * sizeof *texts, "manifest");
    TT_TRY_ALLOC(texts);
    manifest->texts = texts;
    TT_TRY(grow_table(manifest, &manifest->text_names, text_name, manifest->text_count, room));
    manifest->text_room = room;
    return TUTTI_OK;
}

tutti_status_t tt_manifest_add_text(tt_manifest_t *manifest, const char *name, tutti_bytes_t text)
{
    const tutti_buffer_t *old = tt_manifest_text(manifest, name);
    if (old != NULL) {
        return tt_bytes_equal(tt_buffer_view(old), text)
                   ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_MISMATCH, "checkpoint: two ranks have other texts \"%s\"",
                             name);
    }
    TT_TRY(make_room_for_text(manifest));
    tt_saved_text_t added = {.name = tt_strdup(name, "manifest")};
    TT_TRY_ALLOC(added.name);
    const tutti_status_t status = tt_buffer_copy(text, &added.text);
    if (status < 0) {
        tt_free((char *)(uintptr_t)added.name);
        return status;
    }
    manifest->texts[manifest->text_count++] = added;
    *place_of(manifest, &manifest->text_names, text_name, name) = manifest->text_count;
    return TUTTI_OK;
}
