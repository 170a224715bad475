/* Formats of picture files: PNG (libpng) and JPEG (libjpeg-turbo). Pixels are planes of bytes. */
#ifndef TT_PICTURE_CODEC_H
#define TT_PICTURE_CODEC_H

#include <tutti/pictures.h>

#include "compute/data/byte_sink.h"
#include "core/base/fail.h"

/* Where a picture's planes go. */
typedef struct tt_planes {
    int channels; /* 1 or 3: those that are wanted */
    int64_t height, width;
    unsigned char *data;                              /* set by make */
    tutti_status_t (*make)(struct tt_planes *planes); /* called once, when the sizes are known */
    void *user;
} tt_planes_t;

typedef struct {
    const char *name;
    const char *magic; /* first bytes of such files */
    size_t magic_bytes;
    const char *const *endings; /* of file names, ended by NULL */
    tutti_status_t (*decode)(const char *name, tutti_bytes_t data, tt_planes_t *to);
    tutti_status_t (*encode)(const char *name, const tt_planes_t *from, int quality,
                             tutti_buffer_t *out);
} tt_picture_codec_t;

extern const tt_picture_codec_t tt_png_codec, tt_jpeg_codec;

/* That of a file's ending, whatever its case; NULL: none. */
const tt_picture_codec_t *tt_picture_codec_of_name(const char *name);

tutti_status_t tt_picture_decode_file(const char *path, tt_planes_t *to);

/* UNSUPPORTED: too many pixels; or what `make` says. */
tutti_status_t tt_planes_make(const char *name, tt_planes_t *planes, uint64_t height,
                              uint64_t width);

/* A row of `width` pixels of red, green and blue into the planes, as gray if those are. */
void tt_planes_put_rgb(const tt_planes_t *planes, int64_t row, const unsigned char *pixels);

/* The same backwards. */
void tt_planes_get_rgb(const tt_planes_t *planes, int64_t row, unsigned char *pixels);

#endif
