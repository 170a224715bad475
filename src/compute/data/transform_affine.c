/* Pictures rotated, moved, scaled and sheared around their middle: each new pixel looks where it
 * came from, by the inverse of
 *
 *     M = T R S H    moved, rotated, scaled, sheared along x
 *
 * Source: torchvision.transforms.functional._get_inverse_affine_matrix.
 */
#include <math.h>

#include "compute/data/transform_impl.h"

static const double no_scale[2] = {1, 1};

static tutti_status_t plan(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_affine_options_t *o = options;
    (void)from;
    if (o == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform affine: options are required");
    }
    TT_TRY(tt_check_range("affine", "degrees", o->degrees, -1e6));
    TT_TRY(tt_check_range("affine", "scale", tt_range_or(o->scale, no_scale), 1e-6));
    TT_TRY(tt_check_range("affine", "shear", o->shear, -89));
    TT_TRY(tt_check_share("affine", "shear", o->shear[1] < 0 ? 0 : o->shear[1], 89));
    TT_TRY(tt_check_share("affine", "translate", o->translate[0], 1));
    TT_TRY(tt_check_share("affine", "translate", o->translate[1], 1));
    TT_TRY(tt_check_share("affine", "fill", o->fill, 1));
    to->dtype = o->resample == TUTTI_RESAMPLE_NEAREST ? to->dtype : TUTTI_F32;
    return tt_check_resample("affine", o->resample, false);
}

/* (x, y) of the source from (x, y) of the result, both from the middle: m[0..2], m[3..5]. */
static void draw_inverse(const tutti_affine_options_t *o, tutti_random_t *random,
                         const tutti_picture_t *from, double m[6])
{
    const double pi = 3.141592653589793, radian = pi / 180;
    const double angle = tt_random_between(random, o->degrees) * radian;
    double by[2];
    for (int i = 0; i < 2; i++) {
        const double most = o->translate[i] * (double)(i == 0 ? from->width : from->height);
        by[i] = rint(tt_random_between(random, (const double[2]){-most, most}));
    }
    const double scale = tt_random_between(random, tt_range_or(o->scale, no_scale));
    const double shear = tan(tt_random_between(random, o->shear) * radian);
    const double c = cos(angle), s = sin(angle);
    m[0] = (c - shear * s) / scale; /* H' R' / scale: what is turned back is no longer sheared */
    m[1] = (s + shear * c) / scale;
    m[3] = -s / scale;
    m[4] = c / scale;
    m[2] = -m[0] * by[0] - m[1] * by[1];
    m[5] = -m[3] * by[0] - m[4] * by[1];
}

static float pixel_at(const tutti_picture_t *from, int64_t channel, int64_t y, int64_t x,
                      float outside)
{
    return x < 0 || y < 0 || x >= from->width || y >= from->height
               ? outside
               : tt_picture_at(from, (channel * from->height + y) * from->width + x);
}

static float blend_four(const tutti_picture_t *from, int64_t channel, double y, double x,
                        float outside)
{
    const int64_t row = (int64_t)floor(y), column = (int64_t)floor(x);
    const float down = (float)(y - (double)row), right = (float)(x - (double)column);
    const float upper = (1 - right) * pixel_at(from, channel, row, column, outside) +
                        right * pixel_at(from, channel, row, column + 1, outside);
    const float lower = (1 - right) * pixel_at(from, channel, row + 1, column, outside) +
                        right * pixel_at(from, channel, row + 1, column + 1, outside);
    return (1 - down) * upper + down * lower;
}

/* Nearest of the picture's own dtype. */
static void take_nearest(const tutti_picture_t *from, int64_t channel, double y, double x,
                         double fill, void *to)
{
    const int64_t row = (int64_t)floor(y + 0.5), column = (int64_t)floor(x + 0.5);
    const int64_t at = (channel * from->height + row) * from->width + column;
    if (column < 0 || row < 0 || column >= from->width || row >= from->height) {
        tt_picture_outside(from, fill, to);
    } else if (from->dtype == TUTTI_U8) {
        *(unsigned char *)to = ((const unsigned char *)from->data)[at];
    } else {
        *(float *)to = ((const float *)from->data)[at];
    }
}

static bool is_nearest(const tutti_affine_options_t *o, const tutti_picture_t *from)
{
    return o->resample == TUTTI_RESAMPLE_NEAREST || from->is_mask;
}

static void turn_row(const tutti_affine_options_t *o, const double m[6],
                     const tutti_picture_t *from, int64_t row, tutti_picture_t *to)
{
    const int64_t channel = row / from->height;
    const double middle[2] = {(double)(from->width - 1) / 2, (double)(from->height - 1) / 2};
    const double v = (double)(row % from->height) - middle[1];
    char *place = (char *)to->data + (size_t)(row * from->width) * tt_picture_element(to);
    for (int64_t i = 0; i < from->width; i++, place += tt_picture_element(to)) {
        const double u = (double)i - middle[0];
        const double x = m[0] * u + m[1] * v + m[2] + middle[0];
        const double y = m[3] * u + m[4] * v + m[5] + middle[1];
        if (is_nearest(o, from)) {
            take_nearest(from, channel, y, x, o->fill, place);
        } else {
            *(float *)(void *)place = blend_four(from, channel, y, x, (float)o->fill);
        }
    }
}

static tutti_status_t run(const void *options, tutti_random_t *random, const tutti_picture_t *from,
                          tutti_picture_t *to)
{
    const tutti_affine_options_t *o = options;
    double m[6];
    TT_TRY(tt_picture_like(from, is_nearest(o, from) ? from->dtype : TUTTI_F32, to));
    draw_inverse(o, random, from, m);
    for (int64_t row = 0; row < from->channels * from->height; row++) {
        turn_row(o, m, from, row, to);
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_affine_transform = {.name = "affine",
                                                      .about = "rotated, moved, scaled and sheared",
                                                      .plan = plan,
                                                      .run = run,
                                                      .moves_pixels = true};
