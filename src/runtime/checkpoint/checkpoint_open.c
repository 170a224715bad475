/* Checkpoints that are open for reading: a manifest, and where its files are. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/nearest.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/saved_impl.h"

/* ---- opening --------------------------------------------------------------------------------- */

const tt_manifest_t *tt_saved_names(const tutti_saved_t *saved)
{
    return saved->names != NULL ? saved->names : saved->source.manifest;
}

static void count_bytes(tutti_saved_t *saved)
{
    const tt_manifest_t *names = tt_saved_names(saved);
    saved->bytes = 0;
    for (size_t i = 0; i < names->tensor_count; i++) {
        saved->bytes += tt_saved_describe(&names->tensors[i]).bytes;
    }
}

void tt_saved_set_names(tutti_saved_t *saved, tt_manifest_t *names, tt_fit_t *fits)
{
    tt_manifest_release(saved->names);
    tt_free(saved->fits);
    saved->names = names;
    saved->fits = fits;
    count_bytes(saved);
}

tt_fit_t tt_saved_fit(const tutti_saved_t *saved, const tt_saved_tensor_t *tensor)
{
    return saved->names == NULL ? (tt_fit_t){tensor, false}
                                : saved->fits[tensor - saved->names->tensors];
}

static bool has_any(const tutti_saved_t *saved, const tt_saved_file_t *file)
{
    tt_path_t data, digests;
    tt_steps_file(saved->source.folder, file->name, data);
    tt_steps_file(saved->source.folder, file->digests == NULL ? file->name : file->digests,
                  digests);
    return access(data, F_OK) == 0 || access(digests, F_OK) == 0;
}

bool tt_saved_is_elsewhere(const tutti_saved_t *saved, const tt_saved_file_t *file)
{
    return !tt_manifest_has_on(saved->source.manifest, file, saved->host) && !has_any(saved, file);
}

/* Files that are here, on the hosts that have them: each has them on the hosts from its own on,
 * counted around. `changes` [host_count + 1]: by how many a host has more than the one before it.
 */
static void count_files(const tutti_saved_t *saved, int64_t *changes)
{
    const tt_manifest_t *manifest = saved->source.manifest;
    const int hosts = manifest->host_count, wanted = manifest->copies > 1 ? manifest->copies : 1;
    const int copies = wanted < hosts ? wanted : hosts;
    for (size_t i = 0; i < manifest->file_count; i++) {
        const tt_saved_file_t *file = &manifest->files[i];
        if (has_any(saved, file)) {
            const int end = file->host + copies;
            changes[file->host]++;
            changes[end < hosts ? end : hosts]--;
            changes[0] += end > hosts;
            changes[end > hosts ? end - hosts : hosts] -= end > hosts;
        }
    }
}

/* That of which most files are here, or -1; the manifest is the same on all. Of strangers' there
 * may be millions of files and hosts. */
static tutti_status_t find_host(const tutti_saved_t *saved, int *host)
{
    const int hosts = saved->source.manifest->host_count;
    int64_t count = 0, most = 0;
    *host = -1;
    if (hosts == 0) {
        return TUTTI_OK;
    }
    int64_t *changes = tt_alloc_array((size_t)hosts + 1, sizeof *changes, "checkpoint");
    TT_TRY_ALLOC(changes);
    count_files(saved, changes);
    for (int i = 0; i < hosts; i++) {
        count += changes[i];
        *host = count > most ? i : *host;
        most = count > most ? count : most;
    }
    tt_free(changes);
    return TUTTI_OK;
}

static tutti_status_t open_saved(const char *path, tutti_saved_t *saved)
{
    TT_TRY(tt_source_open(path, &saved->source));
    const bool is_ours = strcmp(saved->source.format, "checkpoint") == 0;
    snprintf(saved->path, sizeof saved->path, "%s", is_ours ? saved->source.folder : path);
    count_bytes(saved);
    TT_TRY(find_host(saved, &saved->host));
    return tt_slice_reader_open(&saved->reader, saved->source.folder, saved->source.manifest);
}

tutti_status_t tutti_saved_open(const char *path, tutti_saved_t **out)
{
    tutti_saved_t *saved = tt_alloc(sizeof *saved, "checkpoint");
    TT_TRY_ALLOC(saved);
    const tutti_status_t status = open_saved(path, saved);
    if (status < 0) {
        tutti_saved_close(saved);
        return status;
    }
    *out = saved;
    return TUTTI_OK;
}

void tutti_saved_close(tutti_saved_t *saved)
{
    if (saved != NULL) {
        tt_slice_reader_close(&saved->reader);
        tt_source_close(&saved->source);
        tt_manifest_release(saved->names);
        tt_free(saved->fits);
        tt_free(saved);
    }
}

/* ---- what is in it --------------------------------------------------------------------------- */

tutti_saved_about_t tutti_saved_describe(const tutti_saved_t *saved)
{
    const tt_manifest_t *manifest = saved->source.manifest;
    tutti_saved_about_t about = {.path = saved->path,
                                 .format = saved->source.format,
                                 .step = manifest->step,
                                 .ranks = manifest->ranks,
                                 .tensors = tt_saved_names(saved)->tensor_count,
                                 .bytes = saved->bytes,
                                 .hosts = manifest->host_count,
                                 .host = saved->host < 0 ? NULL : manifest->hosts[saved->host]};
    for (size_t i = 0; i < manifest->file_count; i++) {
        about.elsewhere += tt_saved_is_elsewhere(saved, &manifest->files[i]);
    }
    return about;
}

tutti_saved_tensor_t tt_saved_describe(const tt_saved_tensor_t *tensor)
{
    return (tutti_saved_tensor_t){.name = tensor->name,
                                  .dtype = tensor->dtype,
                                  .shape = tensor->shape,
                                  .slices = tensor->slice_count,
                                  .bytes = (uint64_t)tutti_shape_numel(tensor->shape) *
                                           tutti_dtype_bytes(tensor->dtype)};
}

static void swap(int64_t numbers[2])
{
    const int64_t first = numbers[0];
    numbers[0] = numbers[1];
    numbers[1] = first;
}

/* Names have no slices of their own. */
static tutti_saved_tensor_t describe(const tutti_saved_t *saved, const tt_saved_tensor_t *tensor)
{
    tutti_saved_tensor_t described = tt_saved_describe(tensor);
    described.slices = tt_saved_fit(saved, tensor).saved->slice_count;
    return described;
}

tutti_status_t tutti_saved_at(const tutti_saved_t *saved, size_t index, tutti_saved_tensor_t *out)
{
    if (index >= tt_saved_names(saved)->tensor_count) {
        return TUTTI_END;
    }
    *out = describe(saved, &tt_saved_names(saved)->tensors[index]);
    return TUTTI_OK;
}

static tutti_status_t fail_missing(const tutti_saved_t *saved, const char *name)
{
    const tt_manifest_t *manifest = tt_saved_names(saved);
    size_t nearest = 0, least = SIZE_MAX;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const size_t distance = tt_name_distance(name, manifest->tensors[i].name);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    return manifest->tensor_count == 0
               ? TT_FAIL(TUTTI_ERR_NOT_FOUND, "%s: no tensor \"%s\", nor any other", saved->path,
                         name)
               : TT_FAIL(TUTTI_ERR_NOT_FOUND, "%s: no tensor \"%s\": the nearest is \"%s\"",
                         saved->path, name, manifest->tensors[nearest].name);
}

static tutti_status_t find(const tutti_saved_t *saved, const char *name,
                           const tt_saved_tensor_t **out)
{
    *out = tt_manifest_find(tt_saved_names(saved), name);
    return *out != NULL ? TUTTI_OK : fail_missing(saved, name);
}

tutti_status_t tutti_saved_find(const tutti_saved_t *saved, const char *name,
                                tutti_saved_tensor_t *out)
{
    const tt_saved_tensor_t *tensor;
    TT_TRY(find(saved, name, &tensor));
    *out = describe(saved, tensor);
    return TUTTI_OK;
}

tutti_status_t tutti_saved_part_at(const tutti_saved_t *saved, size_t index, size_t part,
                                   tutti_saved_part_t *out)
{
    const tt_manifest_t *names = tt_saved_names(saved);
    if (index >= names->tensor_count) {
        return TUTTI_END;
    }
    const tt_fit_t fit = tt_saved_fit(saved, &names->tensors[index]);
    if (part >= fit.saved->slice_count) {
        return TUTTI_END;
    }
    const tt_saved_slice_t *slice = &fit.saved->slices[part];
    tt_box_t box = slice->box;
    if (fit.is_transposed) {
        swap(box.offset);
        swap(box.size);
    }
    *out = (tutti_saved_part_t){.shape = tt_box_shape(&box), .rank = slice->rank, .at = slice->at};
    memcpy(out->offset, box.offset, sizeof out->offset);
    out->bytes = (uint64_t)tt_box_numel(&box) * tutti_dtype_bytes(fit.saved->dtype);
    out->file = saved->source.manifest->files[slice->file].name;
    return TUTTI_OK;
}

tutti_status_t tutti_saved_text_at(const tutti_saved_t *saved, size_t index,
                                   tutti_named_text_t *out)
{
    const tt_manifest_t *manifest = saved->source.manifest;
    if (index >= manifest->text_count) {
        return TUTTI_END;
    }
    *out = (tutti_named_text_t){manifest->texts[index].name, manifest->texts[index].text.data};
    return TUTTI_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A box of one of the names. */
static tutti_status_t read_box(tutti_saved_t *saved, const tt_saved_tensor_t *tensor, tt_box_t box,
                               tutti_tensor_t *to)
{
    const tt_fit_t fit = tt_saved_fit(saved, tensor);
    if (!fit.is_transposed) {
        return tt_slice_reader_read(&saved->reader, fit.saved, &box, to);
    }
    int64_t strides[2] = {to->strides[0], to->strides[1]};
    tutti_tensor_t *view;
    swap(strides);
    swap(box.offset);
    swap(box.size);
    TT_TRY(tt_tensor_over(to->storage, to->dtype, tt_box_shape(&box), strides, to->offset, &view));
    const tutti_status_t status = tt_slice_reader_read(&saved->reader, fit.saved, &box, view);
    tutti_tensor_release(view);
    return status;
}

tutti_status_t tutti_saved_read(tutti_saved_t *saved, const char *name, const int64_t *offset,
                                tutti_tensor_t *to)
{
    const tt_saved_tensor_t *tensor;
    char has[160], want[160];
    TT_TRY(find(saved, name, &tensor));
    TT_TRY(tt_tensor_check_named(to, name));
    tt_box_t box = tt_box_of(tutti_tensor_shape(to));
    if (box.rank == tensor->shape.rank) {
        memcpy(box.offset, offset, (size_t)box.rank * sizeof *offset);
    }
    return tt_box_is_inside(&box, tensor->shape)
               ? read_box(saved, tensor, box, to)
               : TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s is no part of tensor \"%s\", which is %s",
                         saved->path, tt_box_format(&box, want, sizeof want), name,
                         tutti_shape_format(tensor->shape, has, sizeof has));
}

tutti_status_t tt_saved_read_window(tutti_saved_t *saved, const char *name, const tt_box_t *box,
                                    int64_t first, tutti_tensor_t *to)
{
    const tt_saved_tensor_t *tensor;
    TT_TRY(find(saved, name, &tensor));
    const tt_box_t all = box != NULL ? *box : tt_box_of(tensor->shape);
    tt_box_t parts[TT_INTERVAL_BOXES_MAX];
    const int count = tt_box_of_interval(tt_box_shape(&all), first, tutti_tensor_numel(to), parts);
    int64_t at = to->offset;
    for (int i = 0; i < count; i++) {
        tutti_tensor_t *view;
        TT_TRY(tt_tensor_over(to->storage, to->dtype, tt_box_shape(&parts[i]), NULL, at, &view));
        for (int d = 0; d < all.rank; d++) {
            parts[i].offset[d] += all.offset[d];
        }
        const tutti_status_t status = read_box(saved, tensor, parts[i], view);
        tutti_tensor_release(view);
        TT_TRY(status);
        at += tt_box_numel(&parts[i]);
    }
    return TUTTI_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

tutti_status_t tt_saved_advance(const tutti_saved_watch_t *watch, uint64_t done, uint64_t all)
{
    if (watch->progress != NULL) {
        watch->progress(watch->user, done, all);
    }
    return watch->is_stopped == NULL || !watch->is_stopped(watch->user)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ABORTED, "stopped by its caller: nothing is written");
}
