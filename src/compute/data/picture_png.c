/* PNG by libpng, row by row where it can be: only interlaced files are read whole. Failures come
 * back by a jump, so what lives behind it is in one struct. The library's memory is ours, and
 * counted. Its warnings (odd text, wrong profiles) say nothing about pixels.
 *
 * Source: libpng-manual.txt.
 */
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "compute/data/picture_codec.h"
#include "core/base/alloc.h"

typedef struct {
    png_structp png;
    png_infop info;
    const char *name;
    tutti_status_t status;
    tutti_bytes_t from; /* what is left to read */
    tt_sink_t to;
    unsigned char *rows; /* one, or all */
    unsigned char **pointers;
} png_t;

static void fail(png_structp png, png_const_charp text)
{
    png_t *p = png_get_error_ptr(png);
    if (p->status >= 0) { /* else it is said already */
        p->status = TT_FAIL(TUTTI_ERR_FORMAT, "%s: PNG: %s", p->name, text);
    }
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static png_voidp take(png_structp png, png_alloc_size_t bytes)
{
    png_t *p = png_get_mem_ptr(png);
    void *memory = tt_alloc_raw(bytes, "PNG");
    p->status = memory == NULL ? TUTTI_ERR_NOMEM : p->status;
    return memory;
}

static void give(png_structp png, png_voidp memory)
{
    (void)png;
    tt_free(memory);
}

static void read_bytes(png_structp png, png_bytep to, size_t bytes)
{
    png_t *p = png_get_io_ptr(png);
    if (bytes > p->from.bytes) {
        png_error(png, "the file is cut");
    }
    memcpy(to, p->from.data, bytes);
    p->from = tutti_bytes_of((const char *)p->from.data + bytes, p->from.bytes - bytes);
}

static void write_bytes(png_structp png, png_bytep data, size_t bytes)
{
    png_t *p = png_get_io_ptr(png);
    p->status = tt_sink_append(&p->to, data, bytes);
    if (p->status < 0) {
        png_error(png, "no memory");
    }
}

static void flush(png_structp png)
{
    (void)png;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* All becomes 8 bits of red, green and blue. */
static void ask_for_rgb(png_t *p)
{
    png_set_expand(p->png);
    png_set_strip_16(p->png);
    png_set_strip_alpha(p->png);
    png_set_gray_to_rgb(p->png);
}

static tutti_status_t make_rows(png_t *p, size_t rows, size_t row_bytes)
{
    p->rows = tt_alloc_array(rows, row_bytes, "picture");
    TT_TRY_ALLOC(p->rows);
    p->pointers = tt_alloc_array(rows, sizeof *p->pointers, "picture");
    TT_TRY_ALLOC(p->pointers);
    for (size_t i = 0; i < rows; i++) {
        p->pointers[i] = p->rows + i * row_bytes;
    }
    return TUTTI_OK;
}

static tutti_status_t read_rows(png_t *p, tt_planes_t *to)
{
    const bool is_whole = png_set_interlace_handling(p->png) > 1;
    png_read_update_info(p->png, p->info);
    const size_t row_bytes = png_get_rowbytes(p->png, p->info);
    if (row_bytes != 3 * (size_t)to->width) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: PNG: %zu bytes a row: expected %zu", p->name,
                       row_bytes, 3 * (size_t)to->width);
    }
    TT_TRY(make_rows(p, is_whole ? (size_t)to->height : 1, row_bytes));
    if (is_whole) {
        png_read_image(p->png, p->pointers);
    }
    for (int64_t row = 0; row < to->height; row++) {
        if (!is_whole) {
            png_read_row(p->png, p->rows, NULL);
        }
        tt_planes_put_rgb(to, row, p->pointers[is_whole ? row : 0]);
    }
    png_read_end(p->png, NULL);
    return TUTTI_OK;
}

static tutti_status_t read_all(png_t *p, tt_planes_t *to)
{
    if (setjmp(png_jmpbuf(p->png)) != 0) {
        return p->status;
    }
    p->info = png_create_info_struct(p->png);
    TT_TRY_ALLOC(p->info);
    png_set_read_fn(p->png, p, read_bytes);
    png_set_user_limits(p->png, 0x7fffffff, 0x7fffffff);
    png_set_chunk_cache_max(p->png, 1); /* no texts, which unpack to a thousand times their size */
    png_read_info(p->png, p->info);
    TT_TRY(tt_planes_make(p->name, to, png_get_image_height(p->png, p->info),
                          png_get_image_width(p->png, p->info)));
    ask_for_rgb(p);
    return read_rows(p, to);
}

static tutti_status_t decode(const char *name, tutti_bytes_t data, tt_planes_t *to)
{
    png_t p = {.name = name, .from = data};
    p.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &p, fail, ignore, &p, take, give);
    if (p.png == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    const tutti_status_t status = read_all(&p, to);
    png_destroy_read_struct(&p.png, &p.info, NULL);
    tt_free(p.rows);
    tt_free(p.pointers);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static tutti_status_t write_all(png_t *p, const tt_planes_t *from)
{
    if (setjmp(png_jmpbuf(p->png)) != 0) {
        return p->status;
    }
    p->info = png_create_info_struct(p->png);
    TT_TRY_ALLOC(p->info);
    png_set_write_fn(p->png, p, write_bytes, flush);
    png_set_IHDR(p->png, p->info, (png_uint_32)from->width, (png_uint_32)from->height, 8,
                 from->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    TT_TRY(make_rows(p, 1, (size_t)from->channels * (size_t)from->width));
    png_write_info(p->png, p->info);
    for (int64_t row = 0; row < from->height; row++) {
        tt_planes_get_rgb(from, row, p->rows);
        png_write_row(p->png, p->rows);
    }
    png_write_end(p->png, NULL);
    return TUTTI_OK;
}

static tutti_status_t encode(const char *name, const tt_planes_t *from, int quality,
                             tutti_buffer_t *out)
{
    (void)quality;
    png_t p = {.name = name};
    p.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &p, fail, ignore, &p, take, give);
    if (p.png == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    const tutti_status_t status = write_all(&p, from);
    png_destroy_write_struct(&p.png, &p.info);
    tt_free(p.rows);
    tt_free(p.pointers);
    *out = p.to.bytes;
    return status;
}

static const char *const endings[] = {".png", NULL};

const tt_picture_codec_t tt_png_codec = {.name = "PNG",
                                         .magic = "\x89PNG\r\n\x1a\n",
                                         .magic_bytes = 8,
                                         .endings = endings,
                                         .decode = decode,
                                         .encode = encode};
