/* Pictures on their way, and what several steps draw and check. */
#include <math.h>
#include <string.h>

#include "compute/data/transform_impl.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

#define PIXELS_MAX (INT64_C(1) << 28) /* as many as a file may have */

/* ---- pictures -------------------------------------------------------------------------------- */

static tutti_status_t resize_own(tutti_picture_t *picture, tutti_shape_t shape)
{
    const size_t bytes = (size_t)tutti_shape_numel(shape) * tutti_dtype_bytes(picture->dtype);
    if (picture->own.data == NULL || picture->own.bytes < bytes) {
        void *data = tt_alloc_raw(bytes, "picture");
        TT_TRY_ALLOC(data);
        tt_free(picture->own.data);
        picture->own = (tutti_buffer_t){data, bytes};
    }
    picture->data = picture->own.data;
    return TUTTI_OK;
}

tutti_status_t tutti_picture_resize(tutti_picture_t *picture, tutti_dtype_t dtype, int64_t channels,
                                    int64_t height, int64_t width)
{
    const tutti_shape_t shape = TUTTI_SHAPE(channels, height, width);
    if (width > 0 && height > PIXELS_MAX / width) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "transform: a picture becomes %lld x %lld pixels: at most 2^28 can be: crop "
                       "it before",
                       (long long)width, (long long)height);
    }
    TT_TRY(tt_shape_check(dtype, shape));
    tutti_sample_t *sample = picture->sample;
    picture->dtype = dtype;
    picture->channels = channels;
    picture->height = height;
    picture->width = width;
    if (sample == NULL) {
        return resize_own(picture, shape);
    }
    if (sample->dtypes[picture->field] != dtype) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform: a step gives %s: it planned %s",
                       tutti_dtype_name(dtype), tutti_dtype_name(sample->dtypes[picture->field]));
    }
    TT_TRY(tutti_sample_resize(sample, picture->field, shape));
    picture->data = sample->data[picture->field];
    return TUTTI_OK;
}

/* A value of 0 … 1 as one of a dtype. */
static void write_value(tutti_dtype_t dtype, double value, void *element)
{
    if (dtype == TUTTI_U8) {
        const double byte = rint(255 * value);
        *(unsigned char *)element = (unsigned char)(byte < 0 ? 0 : byte > 255 ? 255 : byte);
    } else {
        *(float *)element = (float)value;
    }
}

void tt_picture_outside(const tutti_picture_t *picture, double value, void *element)
{
    if (picture->is_mask) {
        *(unsigned char *)element = picture->mask_fill;
    } else {
        write_value(picture->dtype, value, element);
    }
}

tutti_status_t tt_picture_like(const tutti_picture_t *from, tutti_dtype_t dtype,
                               tutti_picture_t *to)
{
    return tutti_picture_resize(to, dtype, from->channels, from->height, from->width);
}

tutti_status_t tt_picture_floats(const tutti_picture_t *from, tutti_picture_t *to)
{
    TT_TRY(tt_picture_like(from, TUTTI_F32, to));
    const int64_t count = from->channels * from->height * from->width;
    float *x = to->data;
    for (int64_t i = 0; i < count; i++) {
        x[i] = tt_picture_at(from, i);
    }
    return TUTTI_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

tutti_status_t tt_check_share(const char *step, const char *option, double value, double most)
{
    return value >= 0 && value <= most
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "transform %s: %s is %g: it must be from 0 to %g", step,
                         option, value, most);
}

tutti_status_t tt_check_range(const char *step, const char *option, const double value[2],
                              double least)
{
    return value[0] >= least && value[1] >= value[0] && isfinite(value[0]) && isfinite(value[1])
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "transform %s: %s is from %g to %g: the second must not be below the "
                         "first, and the first be at least %g",
                         step, option, value[0], value[1], least);
}

tutti_status_t tt_check_size(const char *step, const char *option, int64_t value)
{
    return value <= PIXELS_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "transform %s: %s is %lld: it must be at most 2^28", step,
                         option, (long long)value);
}

tutti_status_t tt_check_resample(const char *step, tutti_resample_t how, bool has_cubic)
{
    const bool is_one = how == TUTTI_RESAMPLE_BILINEAR || how == TUTTI_RESAMPLE_NEAREST ||
                        (has_cubic && how == TUTTI_RESAMPLE_BICUBIC);
    return is_one ? TUTTI_OK
                  : TT_FAIL(TUTTI_ERR_ARG, "transform %s: resample %d: it is none of its kinds",
                            step, (int)how);
}

/* ---- draws ----------------------------------------------------------------------------------- */

const double *tt_range_or(const double value[2], const double usual[2])
{
    return value[0] == 0 && value[1] == 0 ? usual : value;
}

double tt_random_between(tutti_random_t *random, const double range[2])
{
    return range[0] + (range[1] - range[0]) * tutti_random_uniform(random);
}

bool tt_random_happens(tutti_random_t *random, double probability)
{
    return tutti_random_uniform(random) < probability;
}

bool tt_random_rectangle(tutti_random_t *random, const double scale[2], const double ratio[2],
                         const int64_t size[2], int64_t sides[2])
{
    enum { TRIES = 10 };
    const double logs[2] = {log(ratio[0]), log(ratio[1])};
    for (int i = 0; i < TRIES; i++) {
        const double area = (double)(size[0] * size[1]) * tt_random_between(random, scale);
        const double aspect = exp(tt_random_between(random, logs));
        sides[0] = (int64_t)rint(sqrt(area * aspect));
        sides[1] = (int64_t)rint(sqrt(area / aspect));
        if (sides[0] > 0 && sides[1] > 0 && sides[0] <= size[0] && sides[1] <= size[1]) {
            return true;
        }
    }
    return false;
}
