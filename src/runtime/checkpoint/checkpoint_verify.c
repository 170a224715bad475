/* Reading all of a checkpoint: file after file, from its begin to its end, a window at a time. What
 * is damaged is told, and what lies behind it is read as well.
 *
 *     header    is what other programs read: it says the same as the manifest
 *     digests   of a slice are those of the manifest
 *     blocks    are those of the digests; neighbours that are not are told of together
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/reals.h"
#include "runtime/checkpoint/hf_index.h"
#include "runtime/checkpoint/saved_impl.h"

enum { WINDOW_BLOCKS = 64, PROBLEM_BYTES = 512 };

typedef struct {
    const tt_saved_tensor_t *tensor;
    const tt_saved_slice_t *slice;
} part_t;

/* ---- files ----------------------------------------------------------------------------------- */

static uint64_t bytes_of(const part_t *part)
{
    return (uint64_t)tt_box_numel(&part->slice->box) * tutti_dtype_bytes(part->tensor->dtype);
}

static const tt_saved_file_t *file_of(const tutti_saved_t *saved, const part_t *part)
{
    return &saved->source.manifest->files[part->slice->file];
}

static int by_place(const void *a, const void *b)
{
    const tt_saved_slice_t *x = ((const part_t *)a)->slice, *y = ((const part_t *)b)->slice;
    return x->file != y->file ? x->file - y->file : (x->at > y->at) - (x->at < y->at);
}

static size_t list_parts(const tt_manifest_t *manifest, part_t *parts)
{
    size_t count = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &manifest->tensors[i];
        for (size_t k = 0; k < tensor->slice_count; k++, count++) {
            if (parts != NULL) {
                parts[count] = (part_t){tensor, &tensor->slices[k]};
            }
        }
    }
    return count;
}

/* What is in each file, in the order in which it is there. */
static tutti_status_t
for_each_file(const tutti_saved_t *saved,
              tutti_status_t (*visit)(void *user, const part_t *parts, size_t count), void *user)
{
    const size_t count = list_parts(saved->source.manifest, NULL);
    part_t *parts = tt_alloc_array(count + 1, sizeof *parts, "checkpoint");
    TT_TRY_ALLOC(parts);
    qsort(parts, list_parts(saved->source.manifest, parts), sizeof *parts, by_place);
    tutti_status_t status = TUTTI_OK;
    for (size_t first = 0, end; first < count && status >= 0; first = end) {
        for (end = first + 1; end < count && parts[end].slice->file == parts[first].slice->file;) {
            end++;
        }
        status = visit(user, &parts[first], end - first);
    }
    tt_free(parts);
    return status;
}

/* ---- telling --------------------------------------------------------------------------------- */

typedef struct {
    const tutti_saved_t *saved;
    const tutti_saved_watch_t *watch;
    uint64_t done;
    size_t damage;
    unsigned char *window;
    bool has_digests; /* the file that is read has some */
    tt_path_t data_path, digests_path;
    tt_file_t data, digests;
} verify_t;

static void advance(verify_t *v, uint64_t bytes)
{
    v->done += bytes;
    if (v->watch->progress != NULL) {
        v->watch->progress(v->watch->user, v->done, v->saved->bytes);
    }
}

__attribute__((format(printf, 3, 4))) static void tell(verify_t *v, tutti_saved_damage_t damage,
                                                       const char *format, ...)
{
    char problem[PROBLEM_BYTES];
    va_list args;
    va_start(args, format);
    tt_format_list(problem, sizeof problem, format, args);
    va_end(args);
    damage.problem = problem;
    v->damage++;
    if (v->watch->damage != NULL) {
        v->watch->damage(v->watch->user, &damage);
    }
}

/* ---- the header ------------------------------------------------------------------------------ */

/* The offsets that PyTorch reads. */
static bool has_offsets(const json_t *offsets, const part_t *part)
{
    const tt_box_t *box = &part->slice->box;
    const json_t *list =
        json_object_get(json_object_get(offsets, part->tensor->name), "saved_offsets");
    bool is_same = json_is_array(list) && json_array_size(list) == (size_t)box->rank;
    for (int d = 0; d < box->rank && is_same; d++) {
        is_same = json_integer_value(json_array_get(list, (size_t)d)) == box->offset[d];
    }
    return is_same;
}

/* As long as the text for these slices can be at most, every byte of a name escaped: what is longer
 * says something else, and as objects of jansson it may take 80 times as much. NULL: it is none. */
static json_t *parse_offsets(const char *text, const part_t *parts, size_t count)
{
    size_t most = sizeof "{}";
    for (size_t i = 0; i < count; i++) {
        most += 6 * strlen(parts[i].tensor->name) + sizeof "\"\": {\"saved_offsets\": []}, " +
                sizeof "9223372036854775807, " * TUTTI_RANK_MAX;
    }
    return text == NULL || strlen(text) > most ? NULL
                                               : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
}

static void check_entries(verify_t *v, const tutti_safetensors_t *file, const part_t *parts,
                          size_t count)
{
    const char *text = tutti_safetensors_metadata(file, "DCP_SHARDING_INFO");
    json_t *offsets = parse_offsets(text, parts, count);
    for (size_t i = 0; i < count; i++) {
        const tt_saved_tensor_t *tensor = parts[i].tensor;
        const tutti_safetensors_entry_t *entry = tutti_safetensors_find(file, tensor->name);
        if (entry == NULL || entry->dtype != tensor->dtype || entry->offset != parts[i].slice->at ||
            !tutti_shape_equal(entry->shape, tt_box_shape(&parts[i].slice->box)) ||
            !has_offsets(offsets, &parts[i])) {
            tell(v, (tutti_saved_damage_t){.file = v->data_path, .tensor = tensor->name},
                 "the header does not say of it what the manifest says");
        }
    }
    if (tutti_safetensors_count(file) != count || json_object_size(offsets) != count) {
        tell(v, (tutti_saved_damage_t){.file = v->data_path},
             "the header has %zu tensors, the manifest %zu in this file",
             tutti_safetensors_count(file), count);
    }
    json_decref(offsets);
}

static tutti_status_t check_header(verify_t *v, const part_t *parts, size_t count)
{
    tutti_safetensors_t *file;
    const tutti_status_t status = tutti_safetensors_open(v->data_path, &file);
    if (status == TUTTI_ERR_NOMEM) {
        return status;
    }
    if (status < 0) {
        tell(v, (tutti_saved_damage_t){.file = v->data_path}, "%s", tutti_last_error());
        return TUTTI_OK;
    }
    check_entries(v, file, parts, count);
    tutti_safetensors_close(file);
    return TUTTI_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void tell_blocks(verify_t *v, const part_t *part, uint64_t begin, uint64_t end)
{
    if (end > begin) {
        tell(v,
             (tutti_saved_damage_t){.file = v->data_path,
                                    .tensor = part->tensor->name,
                                    .offset = part->slice->at + begin,
                                    .bytes = end - begin},
             "not what was written");
    }
}

/* The window from `begin` on, read: damage that reaches its end is in [*from, *to), to be told with
 * what follows. */
static void check_window(verify_t *v, const part_t *part, const tt_digest_t *digests,
                         uint64_t begin, uint64_t bytes, uint64_t range[2])
{
    for (uint64_t at = 0; at < bytes; at += TT_BLOCK_BYTES) {
        const uint64_t left = bytes - at;
        const size_t size = left < TT_BLOCK_BYTES ? (size_t)left : TT_BLOCK_BYTES;
        const tt_digest_t has = tt_digest_of(v->window + at, size);
        if (tt_digest_equal(has, digests[(begin + at) / TT_BLOCK_BYTES])) {
            continue;
        }
        if (range[1] != begin + at) {
            tell_blocks(v, part, range[0], range[1]);
            range[0] = begin + at;
        }
        range[1] = begin + at + size;
    }
}

/* Without digests it is read all the same: a disk may say that it cannot. */
static void check_blocks(verify_t *v, const part_t *part, const tt_digest_t *digests)
{
    const uint64_t all = bytes_of(part);
    uint64_t range[2] = {0, 0};
    for (uint64_t begin = 0; begin < all;) {
        const uint64_t room = WINDOW_BLOCKS * TT_BLOCK_BYTES, left = all - begin;
        const uint64_t bytes = left < room ? left : room;
        if (tt_file_read_at(&v->data, part->slice->at + begin, v->window, (size_t)bytes) < 0) {
            tell(v,
                 (tutti_saved_damage_t){.file = v->data_path,
                                        .tensor = part->tensor->name,
                                        .offset = part->slice->at + begin,
                                        .bytes = bytes},
                 "%s", tutti_last_error());
        } else if (digests != NULL) {
            check_window(v, part, digests, begin, bytes, range);
        }
        begin += bytes;
        advance(v, bytes);
    }
    tell_blocks(v, part, range[0], range[1]);
}

/* Of the slice, if they are those of the manifest. */
static bool read_digests(verify_t *v, const part_t *part, tt_digest_t *digests, size_t bytes)
{
    const uint64_t at = part->slice->first_block * sizeof *digests;
    const tutti_saved_damage_t damage = {
        .file = v->digests_path, .tensor = part->tensor->name, .offset = at, .bytes = bytes};
    if (tt_file_read_at(&v->digests, at, digests, bytes) < 0) {
        tell(v, damage, "%s", tutti_last_error());
    } else if (!tt_digest_equal(tt_digest_of(digests, bytes), part->slice->digest)) {
        tell(v, damage,
             "digests that are not those of the manifest: %" PRIu64 " bytes cannot be checked",
             bytes_of(part));
    } else {
        return true;
    }
    return false;
}

static tutti_status_t check_slice(verify_t *v, const part_t *part)
{
    if (!v->has_digests) {
        check_blocks(v, part, NULL);
        return TUTTI_OK;
    }
    const size_t bytes = (size_t)tt_block_count(bytes_of(part)) * sizeof(tt_digest_t);
    tt_digest_t *digests = tt_alloc_raw(bytes + 1, "checkpoint");
    TT_TRY_ALLOC(digests);
    if (read_digests(v, part, digests, bytes)) {
        check_blocks(v, part, digests);
    } else {
        advance(v, bytes_of(part));
    }
    tt_free(digests);
    return TUTTI_OK;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static tutti_status_t check_parts(verify_t *v, const part_t *parts, size_t count)
{
    uint64_t blocks = 0;
    for (size_t i = 0; i < count; i++) {
        blocks += tt_block_count(bytes_of(&parts[i]));
        TT_TRY(check_slice(v, &parts[i]));
    }
    if (v->has_digests && v->digests.bytes != blocks * sizeof(tt_digest_t)) {
        tell(v, (tutti_saved_damage_t){.file = v->digests_path},
             "%" PRIu64 " bytes, not %" PRIu64 ": 16 for each block", v->digests.bytes,
             blocks * (uint64_t)sizeof(tt_digest_t));
    }
    return v->has_digests ? check_header(v, parts, count) : TUTTI_OK;
}

/* One that cannot be opened is damage. Errors: NOMEM. */
static tutti_status_t open_file(verify_t *v, const char *path, tt_file_t *file, bool *is_open)
{
    const tutti_status_t status = tt_file_open(path, file);
    *is_open = status >= 0;
    if (status < 0 && status != TUTTI_ERR_NOMEM) {
        tell(v, (tutti_saved_damage_t){.file = path}, "%s", tutti_last_error());
    }
    return status == TUTTI_ERR_NOMEM ? status : TUTTI_OK;
}

static tutti_status_t check_file(void *user, const part_t *parts, size_t count)
{
    verify_t *v = user;
    const tt_saved_file_t *file = file_of(v->saved, parts);
    bool has_data = false;
    v->has_digests = false;
    if (tt_saved_is_elsewhere(v->saved, file)) {
        for (size_t i = 0; i < count; i++) {
            advance(v, bytes_of(&parts[i]));
        }
        return TUTTI_OK;
    }
    tt_steps_file(v->saved->source.folder, file->name, v->data_path);
    tutti_status_t status = open_file(v, v->data_path, &v->data, &has_data);
    if (status >= 0 && file->digests != NULL) {
        tt_steps_file(v->saved->source.folder, file->digests, v->digests_path);
        status = open_file(v, v->digests_path, &v->digests, &v->has_digests);
    }
    if (status >= 0 && has_data && v->has_digests == (file->digests != NULL)) {
        status = check_parts(v, parts, count);
    } else {
        for (size_t i = 0; i < count; i++) {
            advance(v, bytes_of(&parts[i]));
        }
    }
    if (has_data) {
        tt_file_close(&v->data);
    }
    if (v->has_digests) {
        tt_file_close(&v->digests);
    }
    return status;
}

/* A copy under the name of another step, which tutti_checkpoint_load() passes over. */
static bool is_misnamed(const tutti_saved_t *saved)
{
    int64_t step;
    return tt_steps_is_named(saved->path, &step) && step != saved->source.manifest->step;
}

/* For other programs: our own reads the manifest. Errors: NOMEM. */
static tutti_status_t check_index(verify_t *v)
{
    tt_path_t path;
    tt_hf_index_t index;
    tt_hf_index_of(v->saved->source.manifest, &index);
    tt_steps_file(v->saved->source.folder, TT_HF_INDEX_NAME, path);
    const tutti_status_t status = tt_hf_index_check(&index, v->saved->source.folder);
    if (status < 0 && status != TUTTI_ERR_NOMEM) {
        tell(v, (tutti_saved_damage_t){.file = path}, "%s", tutti_last_error());
    }
    return status == TUTTI_ERR_NOMEM ? status : TUTTI_OK;
}

tutti_status_t tutti_saved_verify(const tutti_saved_t *saved, const tutti_saved_watch_t *watch,
                                  size_t *damage)
{
    static const tutti_saved_watch_t nobody;
    verify_t *v = tt_alloc(sizeof *v, "checkpoint");
    unsigned char *window = tt_alloc_raw(WINDOW_BLOCKS * TT_BLOCK_BYTES, "checkpoint");
    tutti_status_t status = TUTTI_ERR_NOMEM;
    if (v != NULL && window != NULL) {
        *v = (verify_t){.saved = saved, .watch = watch == NULL ? &nobody : watch, .window = window};
        if (is_misnamed(saved)) {
            tell(v, (tutti_saved_damage_t){.file = saved->path},
                 "of step %" PRId64 ", under another one's name", saved->source.manifest->step);
        }
        status = for_each_file(saved, check_file, v);
        status = status < 0 ? status : check_index(v);
        *damage = status < 0 ? *damage : v->damage;
    }
    tt_free(window);
    tt_free(v);
    return status;
}

/* ---- at a glance ----------------------------------------------------------------------------- */

/* At least so long. */
static tutti_status_t check_length(const tutti_saved_t *saved, const char *name, uint64_t bytes)
{
    tt_path_t path;
    struct stat about;
    tt_steps_file(saved->source.folder, name, path);
    if (stat(path, &about) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s", path);
    }
    return (uint64_t)about.st_size >= bytes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "%s: truncated: it ends at %lld, not at %" PRIu64, path,
                         (long long)about.st_size, bytes);
}

static tutti_status_t check_lengths(void *user, const part_t *parts, size_t count)
{
    const tutti_saved_t *saved = user;
    const part_t *last = &parts[count - 1];
    const tt_saved_file_t *file = file_of(saved, last);
    uint64_t blocks = 0;
    if (tt_saved_is_elsewhere(saved, file)) {
        return TUTTI_OK;
    }
    for (size_t i = 0; i < count; i++) {
        blocks += tt_block_count(bytes_of(&parts[i]));
    }
    TT_TRY(check_length(saved, file->name, last->slice->at + bytes_of(last)));
    return file->digests == NULL ? TUTTI_OK
                                 : check_length(saved, file->digests, blocks * sizeof(tt_digest_t));
}

tutti_status_t tutti_saved_check(const tutti_saved_t *saved)
{
    tt_hf_index_t index;
    if (is_misnamed(saved)) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: of step %" PRId64 ", under another one's name",
                       saved->path, saved->source.manifest->step);
    }
    tt_hf_index_of(saved->source.manifest, &index);
    TT_TRY(tt_hf_index_check(&index, saved->source.folder));
    return for_each_file(saved, check_lengths, (void *)(uintptr_t)saved);
}
