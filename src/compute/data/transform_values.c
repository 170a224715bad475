/* Values: normalising, which of bytes is a table of 256 numbers for each channel, and erasing. */
#include <math.h>
#include <string.h>

#include "compute/data/transform_impl.h"

enum { CHANNELS_MAX = 4 };

static bool is_plain(const tutti_normalize_options_t *o)
{
    bool is_plain = true;
    for (int i = 0; i < CHANNELS_MAX && o != NULL; i++) {
        is_plain = is_plain && o->mean[i] == 0 && o->std[i] == 0;
    }
    return is_plain;
}

static tutti_status_t plan_normalize(const void *options, const tutti_field_t *from,
                                     tutti_field_t *to)
{
    const tutti_normalize_options_t *o = options;
    const int64_t channels = from->shape.dims[0];
    to->dtype = TUTTI_F32;
    if (is_plain(o)) {
        return TUTTI_OK;
    }
    if (channels > CHANNELS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform normalize: %lld channels: at most %d can be",
                       (long long)channels, CHANNELS_MAX);
    }
    for (int i = 0; i < channels; i++) {
        if (!isfinite(o->mean[i]) || !(o->std[i] > 0)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "transform normalize: mean %g and std %g of channel %d: a std must be "
                           "above 0",
                           o->mean[i], o->std[i], i);
        }
    }
    return TUTTI_OK;
}

static void normalize_bytes(const unsigned char *from, int64_t count, double mean, double std,
                            float *to)
{
    float table[256];
    for (int i = 0; i < 256; i++) {
        table[i] = (float)((i / 255.0 - mean) / std);
    }
    for (int64_t i = 0; i < count; i++) {
        to[i] = table[from[i]];
    }
}

static tutti_status_t run_normalize(const void *options, tutti_random_t *random,
                                    const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_normalize_options_t *o = options;
    const int64_t area = from->height * from->width;
    (void)random;
    if (is_plain(o)) {
        return from->dtype == TUTTI_F32 ? TUTTI_END : tt_picture_floats(from, to);
    }
    TT_TRY(tt_picture_like(from, TUTTI_F32, to));
    for (int64_t c = 0; c < from->channels; c++) {
        float *place = (float *)to->data + c * area;
        if (from->dtype == TUTTI_U8) {
            normalize_bytes((const unsigned char *)from->data + c * area, area, o->mean[c],
                            o->std[c], place);
            continue;
        }
        const float *x = (const float *)from->data + c * area;
        const float mean = (float)o->mean[c], std = (float)o->std[c];
        for (int64_t i = 0; i < area; i++) {
            place[i] = (x[i] - mean) / std;
        }
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_normalize_transform = {.name = "normalize",
                                                         .about = "less the mean, by the deviation",
                                                         .plan = plan_normalize,
                                                         .run = run_normalize};

/* ---- erasing --------------------------------------------------------------------------------- */

static const double usual_scale[2] = {0.02, 0.33}, usual_ratio[2] = {0.3, 3.3};

static tutti_status_t plan_erase(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_erase_options_t *o = options;
    (void)from;
    if (o == NULL || !isfinite(o->value)) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform erase: options with a finite value are required");
    }
    TT_TRY(tt_check_range("erase", "scale", tt_range_or(o->scale, usual_scale), 0));
    TT_TRY(tt_check_range("erase", "ratio", tt_range_or(o->ratio, usual_ratio), 1e-9));
    to->dtype = TUTTI_F32;
    return tt_check_share("erase", "probability", o->probability, 1);
}

static void erase_rows(const tutti_erase_options_t *o, tutti_random_t *random, const int64_t at[2],
                       const int64_t sides[2], tutti_picture_t *x)
{
    for (int64_t i = 0; i < x->channels * sides[0]; i++) {
        const int64_t channel = i / sides[0], y = at[0] + i % sides[0];
        float *row = (float *)x->data + (channel * x->height + y) * x->width + at[1];
        for (int64_t k = 0; k < sides[1]; k++) {
            row[k] = (float)(o->is_random ? tutti_random_normal(random) : o->value);
        }
    }
}

static tutti_status_t run_erase(const void *options, tutti_random_t *random,
                                const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_erase_options_t *o = options;
    const int64_t size[2] = {from->height, from->width};
    int64_t sides[2];
    const bool happens = tt_random_happens(random, o->probability) &&
                         tt_random_rectangle(random, tt_range_or(o->scale, usual_scale),
                                             tt_range_or(o->ratio, usual_ratio), size, sides);
    TT_TRY(tt_picture_floats(from, to));
    if (happens) {
        const int64_t at[2] = {tutti_random_below(random, size[0] - sides[0] + 1),
                               tutti_random_below(random, size[1] - sides[1] + 1)};
        erase_rows(o, random, at, sides, to);
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_erase_transform = {
    .name = "erase", .about = "a rectangle erased", .plan = plan_erase, .run = run_erase};
