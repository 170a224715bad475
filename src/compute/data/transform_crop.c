/* Steps that only move pixels: crops and flips, of any dtype. */
#include <math.h>
#include <string.h>

#include "compute/data/transform_impl.h"

/* ---- crops ----------------------------------------------------------------------------------- */

static tutti_status_t plan_crop(const char *step, const tutti_crop_options_t *o, tutti_field_t *to)
{
    if (o == NULL || o->height < 1 || o->width < 1 || o->padding < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "transform %s: height %lld, width %lld, padding %lld: sizes of at least 1 "
                       "are required, and a padding of at least 0",
                       step, o == NULL ? 0 : (long long)o->height,
                       o == NULL ? 0 : (long long)o->width, o == NULL ? 0 : (long long)o->padding);
    }
    TT_TRY(tt_check_size(step, "height", o->height));
    TT_TRY(tt_check_size(step, "width", o->width));
    TT_TRY(tt_check_size(step, "padding", o->padding));
    to->shape.dims[1] = o->height;
    to->shape.dims[2] = o->width;
    return tt_check_share(step, "fill", o->fill, 1);
}

static tutti_status_t plan_center(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    (void)from;
    return plan_crop("center_crop", options, to);
}

static tutti_status_t plan_random(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    (void)from;
    return plan_crop("random_crop", options, to);
}

static void fill(tutti_picture_t *to, double value)
{
    const int64_t count = to->channels * to->height * to->width;
    if (to->dtype == TUTTI_U8) {
        unsigned char byte = 0;
        tt_picture_outside(to, value, &byte);
        memset(to->data, byte, (size_t)count);
        return;
    }
    float *x = to->data;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)value;
    }
}

/* What lies at (top, left) of the source goes to (0, 0); what lies outside is `value`. */
static tutti_status_t cut(const tutti_picture_t *from, int64_t top, int64_t left,
                          const tutti_crop_options_t *o, tutti_picture_t *to)
{
    TT_TRY(tutti_picture_resize(to, from->dtype, from->channels, o->height, o->width));
    const int64_t first_row = top < 0 ? -top : 0, first = left < 0 ? -left : 0;
    const int64_t end_row = from->height - top < o->height ? from->height - top : o->height;
    const int64_t end = from->width - left < o->width ? from->width - left : o->width;
    const size_t element = tt_picture_element(from);
    if (first_row > 0 || first > 0 || end_row < o->height || end < o->width) {
        fill(to, o->fill);
    }
    for (int64_t c = 0; c < from->channels && end > first; c++) {
        for (int64_t y = first_row; y < end_row; y++) {
            const int64_t source = (c * from->height + top + y) * from->width + left + first;
            const int64_t place = (c * o->height + y) * o->width + first;
            memcpy((char *)to->data + (size_t)place * element,
                   (const char *)from->data + (size_t)source * element,
                   (size_t)(end - first) * element);
        }
    }
    return TUTTI_OK;
}

/* Where the middle begins. What is cut off is halved to the nearest even, what is added down: as
 * torchvision does both. */
static int64_t middle_of(int64_t size, int64_t wanted)
{
    return size < wanted ? -((wanted - size) / 2) : (int64_t)rint((double)(size - wanted) / 2);
}

static tutti_status_t run_center(const void *options, tutti_random_t *random,
                                 const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_crop_options_t *o = options;
    (void)random;
    return cut(from, middle_of(from->height, o->height), middle_of(from->width, o->width), o, to);
}

static tutti_status_t run_random(const void *options, tutti_random_t *random,
                                 const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_crop_options_t *o = options;
    const int64_t rows = from->height + 2 * o->padding - o->height;
    const int64_t columns = from->width + 2 * o->padding - o->width;
    if (rows < 0 || columns < 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "transform random_crop: %lld x %lld pixels of %lld x %lld with a padding of "
                       "%lld: pad more, or resize before",
                       (long long)o->width, (long long)o->height, (long long)from->width,
                       (long long)from->height, (long long)o->padding);
    }
    const int64_t top = tutti_random_below(random, rows + 1) - o->padding;
    const int64_t left = tutti_random_below(random, columns + 1) - o->padding;
    return cut(from, top, left, o, to);
}

const tutti_transform_ops_t tutti_center_crop_transform = {.name = "center_crop",
                                                           .about = "the middle",
                                                           .plan = plan_center,
                                                           .run = run_center,
                                                           .moves_pixels = true};

const tutti_transform_ops_t tutti_random_crop_transform = {.name = "random_crop",
                                                           .about = "a part anywhere",
                                                           .plan = plan_random,
                                                           .run = run_random,
                                                           .moves_pixels = true};

/* ---- flips ----------------------------------------------------------------------------------- */

static tutti_status_t plan_flip(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_flip_options_t *o = options;
    (void)from;
    (void)to;
    if (o == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform flip: options are required");
    }
    return tt_check_share("flip", "probability", o->probability, 1);
}

static void mirror_row(const char *from, char *to, int64_t width, size_t element)
{
    if (element == 1) {
        for (int64_t x = 0; x < width; x++) {
            to[x] = from[width - 1 - x];
        }
        return;
    }
    for (int64_t x = 0; x < width; x++) {
        memcpy(to + 4 * x, from + 4 * (width - 1 - x), 4);
    }
}

static tutti_status_t run_flip(const void *options, tutti_random_t *random,
                               const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_flip_options_t *o = options;
    if (!tt_random_happens(random, o->probability)) {
        return TUTTI_END;
    }
    TT_TRY(tt_picture_like(from, from->dtype, to));
    const size_t element = tt_picture_element(from), row = (size_t)from->width * element;
    const char *source = from->data;
    char *place = to->data;
    for (int64_t i = 0; i < from->channels * from->height; i++) {
        const int64_t y = i % from->height, plane = i - y;
        if (o->vertical) {
            memcpy(place + (size_t)i * row, source + (size_t)(plane + from->height - 1 - y) * row,
                   row);
        } else {
            mirror_row(source + (size_t)i * row, place + (size_t)i * row, from->width, element);
        }
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_flip_transform = {
    .name = "flip", .about = "mirrored", .plan = plan_flip, .run = run_flip, .moves_pixels = true};
