/* Planes of a picture, which codecs fill and empty row by row. */
#include "compute/data/picture_codec.h"

#define PIXELS_MAX (UINT64_C(1) << 28)

tutti_status_t tt_planes_make(const char *name, tt_planes_t *planes, uint64_t height,
                              uint64_t width)
{
    if (height == 0 || width == 0 || width > PIXELS_MAX || height > PIXELS_MAX / width) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: %llu x %llu pixels: there must be some, and at most 2^28", name,
                       (unsigned long long)width, (unsigned long long)height);
    }
    planes->height = (int64_t)height;
    planes->width = (int64_t)width;
    return planes->make(planes);
}

void tt_planes_put_rgb(const tt_planes_t *planes, int64_t row, const unsigned char *pixels)
{
    const int64_t width = planes->width, area = planes->height * width;
    unsigned char *to = planes->data + row * width;
    for (int64_t x = 0; x < width && planes->channels == 1; x++, pixels += 3) {
        to[x] = (unsigned char)((19595U * pixels[0] + 38470U * pixels[1] + 7471U * pixels[2] +
                                 0x8000U) >>
                                16);
    }
    for (int64_t x = 0; x < width && planes->channels == 3; x++, pixels += 3) {
        to[x] = pixels[0];
        to[x + area] = pixels[1];
        to[x + 2 * area] = pixels[2];
    }
}

void tt_planes_get_rgb(const tt_planes_t *planes, int64_t row, unsigned char *pixels)
{
    const int64_t width = planes->width, area = planes->height * width;
    const unsigned char *from = planes->data + row * width;
    for (int64_t x = 0; x < width; x++) {
        for (int64_t k = 0; k < planes->channels; k++) {
            *pixels++ = from[x + k * area];
        }
    }
}
