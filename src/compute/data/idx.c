/* IDX, the format of MNIST:
 *
 *     | 0 | 0 | type | rank | size 0, u32 big-endian | … | elements, big-endian, row-major |
 *
 * The sizes are compared with the bytes that are there before memory is taken.
 * Source: http://yann.lecun.com/exdb/mnist, "The IDX file format".
 */
#include <inttypes.h>
#include <string.h>

#include <tutti/data_files.h>

#include "compute/data/dataset.h"
#include "compute/data/inflate.h"
#include "compute/data/swap_elements.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/tensor/tensor_impl.h"

enum { MAGIC_BYTES = 4, SIZE_BYTES = 4 };

static tutti_status_t read_type(const char *name, const unsigned char magic[MAGIC_BYTES],
                                tutti_dtype_t *out)
{
    static const struct {
        unsigned char code;
        tutti_dtype_t dtype;
    } types[] = {{0x08, TUTTI_U8},
                 {0x09, TUTTI_I8},
                 {0x0c, TUTTI_I32},
                 {0x0d, TUTTI_F32},
                 {0x0e, TUTTI_F64}};
    if (magic[0] != 0 || magic[1] != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: bytes %02x %02x at offset 0: expected 00 00 (is it an IDX file?)", name,
                       magic[0], magic[1]);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].code == magic[2]) {
            *out = types[i].dtype;
            return TUTTI_OK;
        }
    }
    return TT_FAIL(magic[2] == 0x0b ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_FORMAT,
                   "%s: element type %02x at offset 2: expected 08 (u8), 09 (i8), 0c (i32), 0d "
                   "(f32) or 0e (f64)",
                   name, magic[2]);
}

static tutti_status_t read_sizes(tt_inflate_t *in, int rank, tutti_shape_t *shape)
{
    if (rank < 1 || rank > TUTTI_RANK_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: rank %d at offset 3: expected 1 to %d", in->name,
                       rank, TUTTI_RANK_MAX);
    }
    shape->rank = rank;
    for (int i = 0; i < rank; i++) {
        unsigned char b[SIZE_BYTES];
        TT_TRY(tt_inflate_read(in, b, sizeof b));
        shape->dims[i] = (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | b[3];
    }
    return TUTTI_OK;
}

static tutti_status_t check_sizes(const tt_inflate_t *in, tutti_dtype_t dtype, tutti_shape_t shape)
{
    char text[200];
    if (tt_shape_check(dtype, shape) < 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: sizes %s at offset %d: more than memory can address",
                       in->name, tutti_shape_format(shape, text, sizeof text), MAGIC_BYTES);
    }
    const uint64_t bytes = (uint64_t)tutti_shape_numel(shape) * tutti_dtype_bytes(dtype);
    const uint64_t most = tt_inflate_bytes_max(in);
    if (bytes > most) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: truncated: expected %" PRIu64 " bytes at offset %" PRIu64
                       " for %s%s, there are at most %" PRIu64,
                       in->name, bytes, in->offset, tutti_dtype_name(dtype),
                       tutti_shape_format(shape, text, sizeof text), most);
    }
    return TUTTI_OK;
}

static tutti_status_t read_elements(tt_inflate_t *in, tutti_tensor_t *x)
{
    TT_TRY(tt_inflate_read(in, tutti_tensor_data(x), tutti_tensor_bytes(x)));
    TT_TRY(tt_inflate_expect_end(in));
    tt_swap_elements(tutti_tensor_data(x), (size_t)tutti_tensor_numel(x),
                     tutti_dtype_bytes(tutti_tensor_dtype(x)));
    return TUTTI_OK;
}

static tutti_status_t read_tensor(tt_inflate_t *in, tutti_tensor_t **out)
{
    unsigned char magic[MAGIC_BYTES];
    tutti_dtype_t dtype = TUTTI_U8;
    tutti_shape_t shape = {0};
    TT_TRY(tt_inflate_read(in, magic, sizeof magic));
    TT_TRY(read_type(in->name, magic, &dtype));
    TT_TRY(read_sizes(in, magic[3], &shape));
    TT_TRY(check_sizes(in, dtype, shape));
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(NULL, dtype, shape, false, &x));
    const tutti_status_t status = read_elements(in, x);
    if (status < 0) {
        tutti_tensor_release(x);
        return status;
    }
    *out = x;
    return TUTTI_OK;
}

tutti_status_t tutti_idx_parse(const char *name, tutti_bytes_t data, tutti_tensor_t **out)
{
    tt_inflate_t in;
    TT_TRY(tt_inflate_begin(name, data, &in));
    const tutti_status_t status = read_tensor(&in, out);
    tt_inflate_end(&in);
    return status;
}

static tutti_status_t read_file(const tt_file_t *file, tutti_tensor_t **out)
{
    char *data = tt_alloc_raw(file->bytes, "IDX file");
    TT_TRY_ALLOC(data);
    tutti_status_t status = tt_file_read_at(file, 0, data, file->bytes);
    if (status >= 0) {
        status = tutti_idx_parse(file->path, tutti_bytes_of(data, file->bytes), out);
    }
    tt_free(data);
    return status;
}

tutti_status_t tutti_idx_read(const char *path, tutti_tensor_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const tutti_status_t status = read_file(&file, out);
    tt_file_close(&file);
    return status;
}
