/* GPT-2 as llm.c writes it (train_gpt2.py, write_model()):
 *
 *     | 256 × i32: magic, version, T, V, L, heads, C, V padded, 0 … | tensors, without gaps |
 *
 *     version 3   all in f32
 *     version 5   all in bf16
 *
 * Each tensor stands for all layers: qkvw is [L, 3C, C]. Matrices are [out, in], as ours are. So
 * tensors get the names of our module (layer_gpt.c), a slice of the file for each layer. The head
 * is the embedding, which is there once: both are read from it. Of the padded vocabulary the first
 * V rows are values.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/little_endian.h"
#include "runtime/checkpoint/source.h"

enum { MAGIC = 20240326, HEADER_NUMBERS = 256, HEADER_BYTES = 4 * HEADER_NUMBERS };
/* Each has 12 tensors: a small file may say that there are millions. */
enum { LAYERS_MAX = 10000 };

enum { VERSION_F32 = 3, VERSION_BF16 = 5 };

/* Sizes of the header; those of tensors are products of them. */
typedef enum { T, V, L, HEADS, C, PADDED, C3, C4, ONE, SIZE_COUNT } size_name_t;

typedef struct {
    const char *path;
    uint64_t bytes; /* of the file */
    tutti_dtype_t dtype;
    int64_t sizes[SIZE_COUNT];
} header_t;

/* In the order of the file: names of ours, "%d" for the layer. Shapes: rows, columns; ONE: none. */
static const struct {
    const char *name;
    size_name_t rows, columns;
    bool is_of_layer;
} parts[] = {
    {"tok.weight", PADDED, C, false}, {"pos.weight", T, C, false}, {"ln1.weight", C, ONE, true},
    {"ln1.bias", C, ONE, true},       {"qkv.weight", C3, C, true}, {"qkv.bias", C3, ONE, true},
    {"proj.weight", C, C, true},      {"proj.bias", C, ONE, true}, {"ln2.weight", C, ONE, true},
    {"ln2.bias", C, ONE, true},       {"up.weight", C4, C, true},  {"up.bias", C4, ONE, true},
    {"down.weight", C, C4, true},     {"down.bias", C, ONE, true}, {"ln.weight", C, ONE, false},
    {"ln.bias", C, ONE, false},
};

enum { PART_COUNT = sizeof parts / sizeof parts[0], EMBEDDING = 0 };

tutti_status_t tt_source_is_llmc(const char *path, bool *is_llmc)
{
    tt_file_t file;
    uint8_t magic[4] = {0};
    TT_TRY(tt_file_open(path, &file));
    tutti_status_t status = TUTTI_OK;
    if (file.bytes >= sizeof magic) {
        status = tt_file_read_at(&file, 0, magic, sizeof magic);
    }
    tt_file_close(&file);
    *is_llmc = tt_get_u32(magic) == MAGIC;
    return status;
}

/* ---- the header ------------------------------------------------------------------------------ */

static tutti_status_t read_sizes(header_t *h, const uint8_t *numbers)
{
    static const char *const names[] = {
        [T] = "the context", [V] = "the vocabulary", [L] = "the number of layers",
        [HEADS] = "heads",   [C] = "the width",      [PADDED] = "the padded vocabulary"};
    for (int i = T; i <= PADDED; i++) {
        const int at = 4 * (2 + i);
        h->sizes[i] = (int32_t)tt_get_u32(numbers + at);
        if (h->sizes[i] < 1) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: %s is %lld at offset %d: expected at least 1",
                           h->path, names[i], (long long)h->sizes[i], at);
        }
    }
    if (h->sizes[PADDED] < h->sizes[V]) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: the padded vocabulary is %lld at offset 28: expected at least %lld, "
                       "the vocabulary",
                       h->path, (long long)h->sizes[PADDED], (long long)h->sizes[V]);
    }
    h->sizes[C3] = 3 * h->sizes[C];
    h->sizes[C4] = 4 * h->sizes[C];
    h->sizes[ONE] = 1;
    return TUTTI_OK;
}

static tutti_status_t read_header(const tt_file_t *file, header_t *h)
{
    uint8_t numbers[HEADER_BYTES];
    TT_TRY(tt_file_read_at(file, 0, numbers, sizeof numbers));
    const int version = (int32_t)tt_get_u32(numbers + 4);
    if (version != VERSION_F32 && version != VERSION_BF16) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: llm.c's version %d at offset 4: expected %d (f32) or %d (bf16)",
                       h->path, version, VERSION_F32, VERSION_BF16);
    }
    h->bytes = file->bytes;
    h->dtype = version == VERSION_F32 ? TUTTI_F32 : TUTTI_BF16;
    return read_sizes(h, numbers);
}

/* ---- the tensors ----------------------------------------------------------------------------- */

/* Bytes of a part in all layers. False: more than `left`. */
static bool measure(const header_t *h, int part, uint64_t left, uint64_t *bytes)
{
    const int64_t sizes[] = {h->sizes[parts[part].rows], h->sizes[parts[part].columns],
                             parts[part].is_of_layer ? h->sizes[L] : 1};
    *bytes = tutti_dtype_bytes(h->dtype);
    for (int i = 0; i < 3; i++) {
        if (*bytes > left / (uint64_t)sizes[i]) {
            return false;
        }
        *bytes *= (uint64_t)sizes[i];
    }
    return true;
}

/* Before any of them is believed: they fill the file. */
static tutti_status_t check_filled(const header_t *h)
{
    uint64_t at = HEADER_BYTES, bytes;
    for (int i = 0; i < PART_COUNT; i++) {
        if (!measure(h, i, h->bytes - at, &bytes)) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: tensor \"%s\" begins at offset %llu, and is longer than the file, "
                           "which ends at %llu (truncated?)",
                           h->path, parts[i].name, (unsigned long long)at,
                           (unsigned long long)h->bytes);
        }
        at += bytes;
    }
    return at == h->bytes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "%s: the tensors end at offset %llu, the file at %llu",
                         h->path, (unsigned long long)at, (unsigned long long)h->bytes);
}

static tutti_status_t check_layers(const header_t *h)
{
    return h->sizes[L] <= LAYERS_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: %lld layers at offset 16: expected at most %d",
                         h->path, (long long)h->sizes[L], LAYERS_MAX);
}

static tutti_status_t add_tensor(tt_manifest_t *manifest, const header_t *h, const char *name,
                                 tutti_shape_t shape, uint64_t at)
{
    tt_saved_tensor_t *tensor;
    const tt_saved_slice_t slice = {
        .box = tt_box_of(shape), .file = (int)manifest->file_count - 1, .at = at};
    TT_TRY(tt_manifest_add(manifest, name, h->dtype, shape, &tensor));
    return tt_manifest_add_slice(tensor, &slice);
}

/* One part, in each layer; `at`: of its first byte, and behind it. */
static tutti_status_t add_part(tt_manifest_t *manifest, const header_t *h, int part, uint64_t *at)
{
    const int64_t rows = h->sizes[parts[part].rows], columns = h->sizes[parts[part].columns];
    const int64_t values = part == EMBEDDING ? h->sizes[V] : rows;
    const bool is_vector = parts[part].columns == ONE;
    const tutti_shape_t shape = is_vector ? TUTTI_SHAPE(values) : TUTTI_SHAPE(values, columns);
    const int64_t layers = parts[part].is_of_layer ? h->sizes[L] : 1;
    for (int64_t i = 0; i < layers; i++) {
        char name[64];
        if (parts[part].is_of_layer) {
            snprintf(name, sizeof name, "blocks.%lld.%s", (long long)i, parts[part].name);
        }
        TT_TRY(
            add_tensor(manifest, h, parts[part].is_of_layer ? name : parts[part].name, shape, *at));
        *at += (uint64_t)rows * (uint64_t)columns * tutti_dtype_bytes(h->dtype);
    }
    return TUTTI_OK;
}

static tutti_status_t add_all(tt_manifest_t *manifest, const header_t *h)
{
    uint64_t at = HEADER_BYTES;
    TT_TRY(check_filled(h));
    TT_TRY(check_layers(h));
    TT_TRY(add_tensor(manifest, h, "head.weight", TUTTI_SHAPE(h->sizes[V], h->sizes[C]), at));
    for (int i = 0; i < PART_COUNT; i++) {
        TT_TRY(add_part(manifest, h, i, &at));
    }
    return TUTTI_OK;
}

tutti_status_t tt_source_add_llmc(tt_source_t *source, const char *file)
{
    tt_path_t path;
    tt_file_t opened;
    header_t header = {.path = path};
    tt_steps_file(source->folder, file, path);
    TT_TRY(tt_file_open(path, &opened));
    tutti_status_t status = read_header(&opened, &header);
    if (status >= 0) {
        status = tt_manifest_add_file(source->manifest, file, NULL);
    }
    if (status >= 0) {
        status = tt_source_know(source, &opened, HEADER_BYTES);
    }
    if (status >= 0) {
        status = add_all(source->manifest, &header);
    }
    tt_file_close(&opened);
    return status;
}
