/* Values of a tensor: how they are spread, and as a picture.
 *
 * Source: TensorFlow's histogram.cc for the limits; Welford, "Note on a Method for Calculating
 * Corrected Sums of Squares and Products", 1962; "Portable Network Graphics (PNG) Specification"
 * (W3C, 2003): signature, IHDR, IDAT with a filter byte before each row, IEND.
 */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/metrics/metrics_impl.h"

/* ---- how they are spread --------------------------------------------------------------------- */

static void set_limits(double limits[TT_SPREAD_BUCKETS])
{
    double limit = 1e-12;
    limits[TT_SPREAD_SIDE] = 0;
    for (int i = 1; i <= TT_SPREAD_SIDE; i++, limit *= 1.1) {
        limits[TT_SPREAD_SIDE + i] = limit;
        limits[TT_SPREAD_SIDE - i] = -limit;
    }
    limits[TT_SPREAD_BUCKETS - 1] = 1.7976931348623157e308; /* all that is larger */
}

/* The first limit that is not below the value. */
static size_t bucket_of(const double limits[TT_SPREAD_BUCKETS], double value)
{
    size_t begin = 0, end = TT_SPREAD_BUCKETS - 1;
    while (begin < end) {
        const size_t middle = (begin + end) / 2;
        if (limits[middle] < value) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

/* The deviation is not taken from the squares: of numbers that are large and near each other
 * nothing would be left of it. */
static void add_value(tt_metric_spread_t *spread, double value)
{
    if (!isfinite(value)) {
        spread->not_finite++;
        return;
    }
    spread->smallest = spread->count == 0 ? value : fmin(spread->smallest, value);
    spread->largest = spread->count == 0 ? value : fmax(spread->largest, value);
    spread->count++;
    spread->sum += value;
    spread->squares += value * value;
    const double before = value - spread->mean;
    spread->mean += before / (double)spread->count;
    spread->deviations += before * (value - spread->mean);
    spread->counts[bucket_of(spread->limits, value)]++;
}

tutti_status_t tt_metric_spread_take(const tutti_tensor_t *x, tt_metric_spread_t *out)
{
    tutti_tensor_t *host;
    TT_TRY(tt_tensor_on_host(x, &host));
    memset(out, 0, sizeof *out);
    set_limits(out->limits);
    for (int64_t i = 0; i < host->numel; i++) {
        add_value(out, tutti_tensor_at(host, i));
    }
    tutti_tensor_release(host);
    return TUTTI_OK;
}

/* ---- as a picture ---------------------------------------------------------------------------- */

static void put_big_endian(unsigned char at[4], uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (24 - 8 * i));
    }
}

static void add_chunk(tt_byte_row_t *png, const char kind[4], const unsigned char *data,
                      size_t bytes)
{
    unsigned char number[4];
    put_big_endian(number, (uint32_t)bytes);
    tt_row_add(png, number, sizeof number);
    tt_row_add(png, kind, 4);
    tt_row_add(png, data, bytes);
    uLong crc = crc32(0, (const Bytef *)kind, 4);
    crc = bytes > 0 ? crc32(crc, data, (uInt)bytes) : crc;
    put_big_endian(number, (uint32_t)crc);
    tt_row_add(png, number, sizeof number);
}

/* rows: [height][1 + width × channels], each with its filter, which is none. */
static tutti_status_t add_rows(tt_byte_row_t *png, const unsigned char *rows, size_t bytes)
{
    uLongf packed_bytes = compressBound((uLong)bytes);
    unsigned char *packed = tt_alloc_raw(packed_bytes, "metrics");
    TT_TRY_ALLOC(packed);
    const int said = compress2(packed, &packed_bytes, rows, (uLong)bytes, Z_DEFAULT_COMPRESSION);
    if (said == Z_OK) {
        add_chunk(png, "IDAT", packed, packed_bytes);
    }
    tt_free(packed);
    return said == Z_OK ? TUTTI_OK : TT_FAIL(TUTTI_ERR_NOMEM, "metrics: zlib has no memory");
}

static tutti_status_t add_png(tt_picture_t *picture, const unsigned char *rows, size_t bytes)
{
    static const unsigned char kinds[] = {0, 0, 0, 2, 6}; /* by channels */
    unsigned char head[13] = {0};
    put_big_endian(head, (uint32_t)picture->width);
    put_big_endian(head + 4, (uint32_t)picture->height);
    head[8] = 8; /* bits of a channel */
    head[9] = kinds[picture->channels];
    tt_row_add(&picture->png, "\x89PNG\r\n\x1a\n", 8);
    add_chunk(&picture->png, "IHDR", head, sizeof head);
    TT_TRY(add_rows(&picture->png, rows, bytes));
    add_chunk(&picture->png, "IEND", NULL, 0);
    return picture->png.is_broken ? TT_FAIL(TUTTI_ERR_NOMEM, "metrics: no memory for a picture")
                                  : TUTTI_OK;
}

static unsigned char channel_of(const tutti_tensor_t *host, int64_t index)
{
    const double value = tutti_tensor_at(host, index);
    if (host->dtype == TUTTI_U8) {
        return (unsigned char)value;
    }
    return (unsigned char)(value >= 1 ? 255 : value > 0 ? value * 255 + 0.5 : 0); /* NaN is 0 */
}

static tutti_status_t check_picture(const tutti_tensor_t *x)
{
    const tutti_shape_t shape = x->shape;
    const bool is_one = shape.rank == 3 && x->numel > 0 && x->numel < INT_MAX / 2 &&
                        (shape.dims[2] == 1 || shape.dims[2] == 3 || shape.dims[2] == 4);
    if (!is_one) {
        char text[96];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "metrics: a picture is [H, W, C] with 1, 3 or 4 channels, not %s",
                       tutti_shape_format(shape, text, sizeof text));
    }
    return x->dtype == TUTTI_U8 || tutti_dtype_is_float(x->dtype)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_DTYPE, "metrics: a picture is u8, or floating in [0, 1], not %s",
                         tutti_dtype_name(x->dtype));
}

tutti_status_t tt_picture_take(const tutti_tensor_t *x, tt_picture_t *out)
{
    TT_TRY(check_picture(x));
    *out = (tt_picture_t){
        .height = x->shape.dims[0], .width = x->shape.dims[1], .channels = x->shape.dims[2]};
    tutti_tensor_t *host;
    TT_TRY(tt_tensor_on_host(x, &host));
    const int64_t row = out->width * out->channels;
    const size_t bytes = (size_t)(out->height * (row + 1));
    unsigned char *rows = tt_alloc(bytes, "metrics");
    tutti_status_t status = rows == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (int64_t i = 0; rows != NULL && i < host->numel; i++) {
        rows[i / row * (row + 1) + 1 + i % row] = channel_of(host, i);
    }
    status = status < 0 ? status : add_png(out, rows, bytes);
    tt_free(rows);
    tutti_tensor_release(host);
    if (status < 0) {
        tt_row_free(&out->png);
    }
    return status;
}
