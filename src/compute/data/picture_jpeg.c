/* JPEG by libjpeg-turbo. The library reports failures by calling error_exit, which must not return:
 * it jumps back to where decoding began. So what lives behind the jump is in one struct. What the
 * library merely warns of is a damaged file where data end too early or make no sense; other
 * warnings (bytes between markers) are let pass, as everywhere.
 *
 * The slow integer transform and smooth upsampling, which are the same to the bit with and without
 * vectors. Source: libjpeg.txt of libjpeg-turbo.
 */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include "compute/data/picture_codec.h"
#include "core/base/alloc.h"

/* Of pictures there are about ten scans. Each is a walk over all blocks, for which a few bytes of
 * the file will do. */
enum { BLOCK_BYTES = 16384, SCANS_MAX = 100 };

typedef struct {
    struct jpeg_error_mgr base; /* first, as the library hands it back */
    const char *name;
    jmp_buf jump;
    tutti_status_t status;
} errors_t;

typedef struct {
    struct jpeg_decompress_struct in;
    struct jpeg_compress_struct out;
    errors_t errors;
    struct jpeg_progress_mgr progress; /* of what is read */
    unsigned char *row;
    struct jpeg_destination_mgr to;
    unsigned char block[BLOCK_BYTES]; /* of what is written */
    tt_sink_t sink;
} jpeg_t;

static void fail(j_common_ptr info)
{
    errors_t *errors = (errors_t *)info->err;
    char text[JMSG_LENGTH_MAX];
    errors->base.format_message(info, text);
    errors->status =
        errors->base.msg_code == JERR_OUT_OF_MEMORY ? TUTTI_ERR_NOMEM : TUTTI_ERR_FORMAT;
    (void)tt_fail(errors->status, "%s: JPEG: %s", errors->name, text);
    longjmp(errors->jump, 1);
}

static void hear(j_common_ptr info, int level)
{
    errors_t *errors = (errors_t *)info->err;
    const int code = errors->base.msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
        code != JWRN_JFIF_MAJOR) {
        fail(info);
    }
}

static struct jpeg_error_mgr *begin(jpeg_t *j, const char *name)
{
    j->errors.name = name;
    struct jpeg_error_mgr *manager = jpeg_std_error(&j->errors.base);
    manager->error_exit = fail;
    manager->emit_message = hear;
    return manager;
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t check_colors(const jpeg_t *j)
{
    if (j->in.num_components != 1 && j->in.num_components != 3) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: a JPEG of %d components, such as CMYK: convert it to RGB or gray",
                       j->errors.name, j->in.num_components);
    }
    return TUTTI_OK;
}

/* Called between rows of blocks. */
static void count_scans(j_common_ptr info)
{
    const struct jpeg_decompress_struct *in = (const struct jpeg_decompress_struct *)info;
    errors_t *errors = (errors_t *)info->err;
    if (in->input_scan_number > SCANS_MAX) {
        errors->status = TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: a JPEG of more than %d scans",
                                 errors->name, SCANS_MAX);
        longjmp(errors->jump, 1);
    }
}

static tutti_status_t read_rows(jpeg_t *j, tt_planes_t *to)
{
    while (j->in.output_scanline < j->in.output_height) {
        const int64_t row = j->in.output_scanline;
        jpeg_read_scanlines(&j->in, &j->row, 1);
        tt_planes_put_rgb(to, row, j->row);
    }
    jpeg_finish_decompress(&j->in);
    return TUTTI_OK;
}

static tutti_status_t read_all(jpeg_t *j, tutti_bytes_t data, tt_planes_t *to)
{
    if (setjmp(j->errors.jump) != 0) {
        return j->errors.status;
    }
    jpeg_create_decompress(&j->in);
    j->progress.progress_monitor = count_scans;
    j->in.progress = &j->progress;
    jpeg_mem_src(&j->in, data.data, (unsigned long)data.bytes);
    jpeg_read_header(&j->in, TRUE);
    TT_TRY(check_colors(j));
    j->in.out_color_space = JCS_RGB;
    j->in.dct_method = JDCT_ISLOW;
    TT_TRY(tt_planes_make(j->errors.name, to, j->in.image_height, j->in.image_width));
    j->row = tt_alloc_raw(3 * (size_t)to->width, "picture");
    TT_TRY_ALLOC(j->row);
    jpeg_start_decompress(&j->in);
    return read_rows(j, to);
}

static tutti_status_t decode(const char *name, tutti_bytes_t data, tt_planes_t *to)
{
    jpeg_t j = {.row = NULL};
    j.in.err = begin(&j, name);
    const tutti_status_t status = read_all(&j, data, to);
    jpeg_destroy_decompress(&j.in);
    tt_free(j.row);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void renew_block(j_compress_ptr out)
{
    jpeg_t *j = out->client_data;
    j->to.next_output_byte = j->block;
    j->to.free_in_buffer = sizeof j->block;
}

static void drain(jpeg_t *j, size_t bytes)
{
    j->errors.status = tt_sink_append(&j->sink, j->block, bytes);
    if (j->errors.status < 0) {
        longjmp(j->errors.jump, 1);
    }
}

static boolean empty_block(j_compress_ptr out)
{
    drain(out->client_data, BLOCK_BYTES); /* the whole of it, whatever is said to be free */
    renew_block(out);
    return TRUE;
}

static void end_block(j_compress_ptr out)
{
    jpeg_t *j = out->client_data;
    drain(j, BLOCK_BYTES - j->to.free_in_buffer);
}

static void set_up(jpeg_t *j, const tt_planes_t *from, int quality)
{
    j->out.image_width = (JDIMENSION)from->width;
    j->out.image_height = (JDIMENSION)from->height;
    j->out.input_components = from->channels;
    j->out.in_color_space = from->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&j->out);
    jpeg_set_quality(&j->out, quality, TRUE);
    j->out.dct_method = JDCT_ISLOW;
}

static tutti_status_t write_all(jpeg_t *j, const tt_planes_t *from, int quality)
{
    if (setjmp(j->errors.jump) != 0) {
        return j->errors.status;
    }
    jpeg_create_compress(&j->out);
    j->out.client_data = j;
    j->to.init_destination = renew_block;
    j->to.empty_output_buffer = empty_block;
    j->to.term_destination = end_block;
    j->out.dest = &j->to;
    set_up(j, from, quality);
    j->row = tt_alloc_raw(3 * (size_t)from->width, "picture");
    TT_TRY_ALLOC(j->row);
    jpeg_start_compress(&j->out, TRUE);
    while (j->out.next_scanline < j->out.image_height) {
        tt_planes_get_rgb(from, j->out.next_scanline, j->row);
        jpeg_write_scanlines(&j->out, &j->row, 1);
    }
    jpeg_finish_compress(&j->out);
    return TUTTI_OK;
}

static tutti_status_t encode(const char *name, const tt_planes_t *from, int quality,
                             tutti_buffer_t *out)
{
    jpeg_t j = {.row = NULL};
    j.out.err = begin(&j, name);
    const tutti_status_t status = write_all(&j, from, quality);
    jpeg_destroy_compress(&j.out);
    *out = j.sink.bytes;
    tt_free(j.row);
    return status;
}

static const char *const endings[] = {".jpg", ".jpeg", NULL};

const tt_picture_codec_t tt_jpeg_codec = {.name = "JPEG",
                                          .magic = "\xff\xd8\xff",
                                          .magic_bytes = 3,
                                          .endings = endings,
                                          .decode = decode,
                                          .encode = encode};
