/* Reading llm.c's GPT-2: the parts of the file (llmc_layout.h), as tensors of our names. */
#include <stdio.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/file.h"
#include "core/base/little_endian.h"
#include "runtime/checkpoint/llmc_layout.h"
#include "runtime/checkpoint/source.h"

typedef struct {
    const char *path;
    uint64_t bytes; /* of the file */
    tutti_dtype_t dtype;
    int64_t sizes[TT_LLMC_SIZES];
} header_t;

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
    *is_llmc = tt_get_u32(magic) == TT_LLMC_MAGIC;
    return status;
}

/* ---- the header ------------------------------------------------------------------------------ */

static tutti_status_t read_sizes(header_t *h, const uint8_t *numbers)
{
    static const char *const names[] = {[TT_LLMC_T] = "the context",
                                        [TT_LLMC_V] = "the vocabulary",
                                        [TT_LLMC_L] = "the number of layers",
                                        [TT_LLMC_HEADS] = "heads",
                                        [TT_LLMC_C] = "the width",
                                        [TT_LLMC_PADDED] = "the padded vocabulary"};
    for (int i = TT_LLMC_T; i <= TT_LLMC_PADDED; i++) {
        const int at = 4 * (2 + i);
        h->sizes[i] = (int32_t)tt_get_u32(numbers + at);
        if (h->sizes[i] < 1) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: %s is %lld at offset %d: expected at least 1",
                           h->path, names[i], (long long)h->sizes[i], at);
        }
    }
    if (h->sizes[TT_LLMC_PADDED] < h->sizes[TT_LLMC_V]) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: the padded vocabulary is %lld at offset 28: expected at least %lld, "
                       "the vocabulary",
                       h->path, (long long)h->sizes[TT_LLMC_PADDED],
                       (long long)h->sizes[TT_LLMC_V]);
    }
    h->sizes[TT_LLMC_C3] = 3 * h->sizes[TT_LLMC_C];
    h->sizes[TT_LLMC_C4] = 4 * h->sizes[TT_LLMC_C];
    h->sizes[TT_LLMC_ONE] = 1;
    return TUTTI_OK;
}

static tutti_status_t read_header(const tt_file_t *file, header_t *h)
{
    uint8_t numbers[TT_LLMC_HEADER_BYTES];
    TT_TRY(tt_file_read_at(file, 0, numbers, sizeof numbers));
    const int version = (int32_t)tt_get_u32(numbers + 4);
    if (version != TT_LLMC_F32 && version != TT_LLMC_BF16) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: llm.c's version %d at offset 4: expected %d (f32) or %d (bf16)",
                       h->path, version, TT_LLMC_F32, TT_LLMC_BF16);
    }
    h->bytes = file->bytes;
    h->dtype = version == TT_LLMC_F32 ? TUTTI_F32 : TUTTI_BF16;
    return read_sizes(h, numbers);
}

/* ---- the tensors ----------------------------------------------------------------------------- */

/* Bytes of a part in all layers. False: more than `left`. */
static bool measure(const header_t *h, int part, uint64_t left, uint64_t *bytes)
{
    const int64_t sizes[] = {h->sizes[tt_llmc_parts[part].rows],
                             h->sizes[tt_llmc_parts[part].columns],
                             tt_llmc_parts[part].is_of_layer ? h->sizes[TT_LLMC_L] : 1};
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
    uint64_t at = TT_LLMC_HEADER_BYTES, bytes;
    for (int i = 0; i < TT_LLMC_PARTS; i++) {
        if (!measure(h, i, h->bytes - at, &bytes)) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: tensor \"%s\" begins at offset %llu, and is longer than the file, "
                           "which ends at %llu (truncated?)",
                           h->path, tt_llmc_parts[i].name, (unsigned long long)at,
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
    return h->sizes[TT_LLMC_L] <= TT_LLMC_LAYERS_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: %lld layers at offset 16: expected at most %d",
                         h->path, (long long)h->sizes[TT_LLMC_L], TT_LLMC_LAYERS_MAX);
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
    const int64_t rows = h->sizes[tt_llmc_parts[part].rows],
                  columns = h->sizes[tt_llmc_parts[part].columns];
    const int64_t values = part == TT_LLMC_EMBEDDING ? h->sizes[TT_LLMC_V] : rows;
    const bool is_vector = tt_llmc_parts[part].columns == TT_LLMC_ONE;
    const tutti_shape_t shape = is_vector ? TUTTI_SHAPE(values) : TUTTI_SHAPE(values, columns);
    const int64_t layers = tt_llmc_parts[part].is_of_layer ? h->sizes[TT_LLMC_L] : 1;
    for (int64_t i = 0; i < layers; i++) {
        char name[TT_LLMC_NAME_BYTES];
        tt_llmc_name(&tt_llmc_parts[part], (int)i, name);
        TT_TRY(add_tensor(manifest, h, name, shape, *at));
        *at += (uint64_t)rows * (uint64_t)columns * tutti_dtype_bytes(h->dtype);
    }
    return TUTTI_OK;
}

/* No tensor tells, and who writes such a file again needs it. */
static tutti_status_t add_heads(tt_manifest_t *manifest, const header_t *h)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)h->sizes[TT_LLMC_HEADS]);
    return tt_manifest_add_text(manifest, TT_LLMC_HEADS_TEXT, tutti_text(text));
}

static tutti_status_t add_all(tt_manifest_t *manifest, const header_t *h)
{
    uint64_t at = TT_LLMC_HEADER_BYTES;
    TT_TRY(check_filled(h));
    TT_TRY(check_layers(h));
    TT_TRY(add_heads(manifest, h));
    TT_TRY(add_tensor(manifest, h, "head.weight",
                      TUTTI_SHAPE(h->sizes[TT_LLMC_V], h->sizes[TT_LLMC_C]), at));
    for (int i = 0; i < TT_LLMC_PARTS; i++) {
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
        status = tt_source_know(source, &opened, TT_LLMC_HEADER_BYTES);
    }
    if (status >= 0) {
        status = add_all(source->manifest, &header);
    }
    tt_file_close(&opened);
    return status;
}
