/* Pictures of files: which format, reading, writing. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "compute/data/picture_codec.h"

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/tensor/tensor_impl.h"

static const tt_picture_codec_t *const codecs[] = {&tt_png_codec, &tt_jpeg_codec};

enum { CODECS = sizeof codecs / sizeof codecs[0] };

/* NULL, with the error recorded. */
static const tt_picture_codec_t *codec_of_bytes(const char *name, tutti_bytes_t data)
{
    char text[3 * 4 + 1] = "";
    const unsigned char *bytes = data.data;
    for (size_t i = 0; i < CODECS; i++) {
        if (data.bytes >= codecs[i]->magic_bytes &&
            memcmp(bytes, codecs[i]->magic, codecs[i]->magic_bytes) == 0) {
            return codecs[i];
        }
    }
    for (size_t i = 0; i < 4 && i < data.bytes; i++) {
        snprintf(text + 3 * i, 4, " %02x", bytes[i]);
    }
    (void)tt_fail(
        TUTTI_ERR_FORMAT,
        "%s: %zu bytes that begin with%s: expected a PNG (89 50 4e 47) or JPEG (ff d8 ff)", name,
        data.bytes, data.bytes == 0 ? " none" : text);
    return NULL;
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t bytes = strlen(name), length = strlen(ending);
    return bytes >= length && strcasecmp(name + bytes - length, ending) == 0;
}

const tt_picture_codec_t *tt_picture_codec_of_name(const char *name)
{
    for (size_t i = 0; i < CODECS; i++) {
        for (const char *const *ending = codecs[i]->endings; *ending != NULL; ending++) {
            if (ends_with(name, *ending)) {
                return codecs[i];
            }
        }
    }
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t decode(const char *name, tutti_bytes_t data, tt_planes_t *to)
{
    if (to->channels != 1 && to->channels != 3) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a picture of %d channels: 3 or 1 can be", name,
                       to->channels);
    }
    const tt_picture_codec_t *codec = codec_of_bytes(name, data);
    return codec == NULL ? TUTTI_ERR_FORMAT : codec->decode(name, data, to);
}

tutti_status_t tt_picture_decode_file(const char *path, tt_planes_t *to)
{
    tutti_buffer_t file;
    TT_TRY(tt_file_bytes(path, "picture file", &file));
    const tutti_status_t status = decode(path, tutti_bytes_of(file.data, file.bytes), to);
    tt_free(file.data);
    return status;
}

static tutti_status_t make_tensor(tt_planes_t *planes)
{
    tutti_tensor_t **x = planes->user;
    TT_TRY(tt_tensor_new(NULL, TUTTI_U8,
                         TUTTI_SHAPE(planes->channels, planes->height, planes->width), false, x));
    planes->data = tutti_tensor_data(*x);
    return TUTTI_OK;
}

static tutti_status_t give(tutti_status_t status, tutti_tensor_t *x, tutti_tensor_t **out)
{
    if (status < 0) {
        tutti_tensor_release(x);
        return status;
    }
    *out = x;
    return TUTTI_OK;
}

tutti_status_t tutti_picture_parse(const char *name, tutti_bytes_t data, int channels,
                                   tutti_tensor_t **out)
{
    tutti_tensor_t *x = NULL;
    tt_planes_t planes = {.channels = channels, .make = make_tensor, .user = &x};
    const tutti_status_t status = decode(name, data, &planes);
    return give(status, x, out);
}

tutti_status_t tutti_picture_read(const char *path, int channels, tutti_tensor_t **out)
{
    tutti_tensor_t *x = NULL;
    tt_planes_t planes = {.channels = channels, .make = make_tensor, .user = &x};
    const tutti_status_t status = tt_picture_decode_file(path, &planes);
    return give(status, x, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

static tutti_status_t check_written(const char *path, const tutti_tensor_t *x, int quality)
{
    char text[200];
    TT_TRY(tutti_tensor_status(x));
    TT_TRY(tt_want_host(path, x));
    if (tutti_tensor_dtype(x) != TUTTI_U8 || tutti_tensor_rank(x) != 3 ||
        (tutti_tensor_dim(x, 0) != 3 && tutti_tensor_dim(x, 0) != 1) ||
        !tutti_tensor_is_contiguous(x) || tutti_tensor_numel(x) == 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: a picture is contiguous u8[3 or 1, height, width], not %s", path,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (quality < 0 || quality > 100 || tutti_tensor_dim(x, 1) > UINT16_MAX ||
        tutti_tensor_dim(x, 2) > UINT16_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: quality %d, size %s: expected a quality of 1 to 100, or 0, and sizes "
                       "of at most 65535",
                       path, quality, tutti_tensor_describe(x, text, sizeof text));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_picture_write(const char *path, const tutti_tensor_t *x, int quality)
{
    const tt_picture_codec_t *codec = tt_picture_codec_of_name(path);
    if (codec == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a picture's name ends in .png, .jpg or .jpeg", path);
    }
    TT_TRY(check_written(path, x, quality));
    const tt_planes_t planes = {.channels = (int)tutti_tensor_dim(x, 0),
                                .height = tutti_tensor_dim(x, 1),
                                .width = tutti_tensor_dim(x, 2),
                                .data = tutti_tensor_data(x)};
    tutti_buffer_t bytes = {0};
    tt_new_file_t file;
    tutti_status_t status = codec->encode(path, &planes, quality == 0 ? 75 : quality, &bytes);
    if (status >= 0) {
        status = tt_new_file_begin(path, &file);
        if (status >= 0) {
            status = tt_new_file_write(&file, bytes.data, bytes.bytes);
            status = tt_new_file_end(&file, status);
        }
    }
    tt_free(bytes.data);
    return status;
}
