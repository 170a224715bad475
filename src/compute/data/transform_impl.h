/* What steps of transforms share. */
#ifndef TT_TRANSFORM_IMPL_H
#define TT_TRANSFORM_IMPL_H

#include <tutti/transforms.h>

#include "core/base/fail.h"

extern const tutti_transform_ops_t *const tt_transforms[];
extern const size_t tt_transform_count;

static inline size_t tt_picture_element(const tutti_picture_t *picture)
{
    return tutti_dtype_bytes(picture->dtype);
}

/* The element of what comes from outside: a value of 0 … 1 as the dtype has it, of a mask its
 * class. */
void tt_picture_outside(const tutti_picture_t *picture, double value, void *element);

/* Element i as f32: a byte b is b / 255. */
static inline float tt_picture_at(const tutti_picture_t *picture, int64_t i)
{
    return picture->dtype == TUTTI_F32 ? ((const float *)picture->data)[i]
                                       : (float)((const unsigned char *)picture->data)[i] / 255.0F;
}

/* A picture of the same sizes. */
tutti_status_t tt_picture_like(const tutti_picture_t *from, tutti_dtype_t dtype,
                               tutti_picture_t *to);

/* A copy, as f32. */
tutti_status_t tt_picture_floats(const tutti_picture_t *from, tutti_picture_t *to);

/* ARG unless 0 <= value <= most. */
tutti_status_t tt_check_share(const char *step, const char *option, double value, double most);

/* ARG unless both are finite, least <= value[0] <= value[1]. */
tutti_status_t tt_check_range(const char *step, const char *option, const double value[2],
                              double least);

/* ARG: more pixels than a picture may have. */
tutti_status_t tt_check_size(const char *step, const char *option, int64_t value);

/* A pair, or `usual` where both are 0. */
const double *tt_range_or(const double value[2], const double usual[2]);

/* In [range[0], range[1]]. */
double tt_random_between(tutti_random_t *random, const double range[2]);

/* Whether what happens with a probability does. */
bool tt_random_happens(tutti_random_t *random, double probability);

/* A rectangle of a share of height × width and a ratio of the first to the second side, drawn as
 * torchvision does it: up to ten times, until it fits; `sides` are it. False: none did. */
bool tt_random_rectangle(tutti_random_t *random, const double scale[2], const double ratio[2],
                         const int64_t size[2], int64_t sides[2]);

/* ARG: no such value. */
tutti_status_t tt_check_resample(const char *step, tutti_resample_t how, bool has_cubic);

#endif
