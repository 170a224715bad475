/* llm.c's token files as windows:
 *
 *     | magic 20240520 | version 1 | tokens n | … 253 more i32 | n × u16 |
 *
 * all little-endian. Source: https://github.com/karpathy/llm.c, dev/data/data_common.py.
 */
#include <inttypes.h>
#include <limits.h>

#include <tutti/data_files.h>

#include "compute/data/dataset.h"
#include "compute/data/windows.h"
#include "core/base/alloc.h"

enum { MAGIC = 20240520, VERSION = 1, HEADER_BYTES = 1024, TOKEN_BYTES = 2 };

typedef struct {
    tt_windows_t windows; /* first, so that the state is windows too */
    int64_t vocab;
} tokens_t;

static uint32_t load_u32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static tutti_status_t check_header(const tt_file_t *file, int64_t *count)
{
    unsigned char header[HEADER_BYTES];
    TT_TRY(tt_file_read_at(file, 0, header, sizeof header));
    const uint32_t magic = load_u32(header), version = load_u32(header + 4);
    const uint32_t tokens = load_u32(header + 8);
    if (magic != MAGIC) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: magic number %" PRIu32 " at offset 0: expected %d, a token file of "
                       "llm.c",
                       file->path, magic, MAGIC);
    }
    if (version != VERSION) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: version %" PRIu32 " at offset 4: expected %d",
                       file->path, version, VERSION);
    }
    const uint64_t end = HEADER_BYTES + (uint64_t)tokens * TOKEN_BYTES;
    if (end != file->bytes) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: %s: expected %" PRIu32 " tokens (offset 8) from offset %d to %" PRIu64
                       ", the file ends at %" PRIu64,
                       file->path, file->bytes < end ? "truncated" : "too long", tokens,
                       HEADER_BYTES, end, file->bytes);
    }
    *count = tokens;
    return TUTTI_OK;
}

static tutti_status_t add_file(tokens_t *tokens, const char *path)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    int64_t count = 0;
    const tutti_status_t status = check_header(&file, &count);
    if (status < 0) {
        tt_file_close(&file);
        return status;
    }
    return tt_windows_add(&tokens->windows, &file, HEADER_BYTES, count);
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_token_options_t *o = options;
    tokens_t *tokens = tutti_dataset_state(d);
    TT_TRY(tt_windows_begin(&tokens->windows, "token", o->length, o->stride));
    tokens->windows.element_bytes = TOKEN_BYTES;
    if (o->vocab < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set token: vocab is %lld: it must be positive, 0: any",
                       (long long)o->vocab);
    }
    tokens->vocab = o->vocab;
    TT_TRY(tt_want_paths("token", o->paths, o->path_count, INT_MAX));
    for (int i = 0; i < o->path_count; i++) {
        TT_TRY(add_file(tokens, o->paths[i]));
    }
    const tutti_field_t field = {TUTTI_I32, TUTTI_SHAPE(o->length)};
    *info = tt_pair_info(field, field);
    return tt_windows_count(&tokens->windows, "token", &info->count);
}

static void fini(tutti_dataset_t *d)
{
    tokens_t *tokens = tutti_dataset_state(d);
    tt_windows_end(&tokens->windows);
}

static tutti_status_t unpack(const tokens_t *tokens, const unsigned char *bytes, int32_t *input,
                             int32_t *target)
{
    for (int64_t i = 0; i <= tokens->windows.length; i++) {
        const int32_t token = bytes[2 * i] | bytes[2 * i + 1] << 8;
        if (tokens->vocab > 0 && token >= tokens->vocab) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "data set token: token %d: expected below %lld, the "
                           "vocabulary",
                           token, (long long)tokens->vocab);
        }
        if (i < tokens->windows.length) {
            input[i] = token;
        }
        if (i > 0) {
            target[i - 1] = token;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t read_window(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const tokens_t *tokens = d->state;
    unsigned char *bytes =
        tt_alloc_raw(((size_t)tokens->windows.length + 1) * TOKEN_BYTES, "token window");
    TT_TRY_ALLOC(bytes);
    tutti_status_t status = tt_windows_read(&tokens->windows, index, bytes);
    if (status >= 0) {
        status = unpack(tokens, bytes, to->data[TUTTI_INPUT], to->data[TUTTI_TARGET]);
    }
    tt_free(bytes);
    return status;
}

const tutti_dataset_ops_t tutti_token_dataset = {
    .name = "token",
    .about = "windows of llm.c's token files",
    .state_bytes = sizeof(tokens_t),
    .init = init,
    .fini = fini,
    .read = read_window,
};
