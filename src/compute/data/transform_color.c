/* Colors: brightness, contrast, saturation and hue, and gray. Each is a mix of the picture with
 * another (black, its mean gray, itself in gray), cut to 0 … 1; hue turns in the space of hue,
 * saturation and value.
 *
 * Source: torchvision.transforms._functional_tensor.
 */
#include <math.h>

#include "compute/data/transform_impl.h"

static float cut(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static float gray_of(const float *x, int64_t area)
{
    return 0.2989F * x[0] + 0.587F * x[area] + 0.114F * x[2 * area];
}

static void scale_brightness(float *x, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++) {
        x[i] = cut(factor * x[i]);
    }
}

static void mix_contrast(float *x, int64_t channels, int64_t area, float factor)
{
    double sum = 0;
    for (int64_t i = 0; i < area; i++) {
        sum += (double)(channels == 3 ? gray_of(x + i, area) : x[i]);
    }
    const float mean = (float)(sum / (double)area);
    for (int64_t i = 0; i < channels * area; i++) {
        x[i] = cut(factor * x[i] + (1 - factor) * mean);
    }
}

static void mix_saturation(float *x, int64_t area, float factor)
{
    for (int64_t i = 0; i < area; i++) {
        const float gray = gray_of(x + i, area);
        for (int c = 0; c < 3; c++) {
            float *value = x + i + c * area;
            *value = cut(factor * *value + (1 - factor) * gray);
        }
    }
}

/* The hue of a color, in 0 … 1; `range` is largest - least, above 0. */
static float hue_of(float r, float g, float b, float most, float range)
{
    float hue = (r - g) / range + 4;
    if (most == r) {
        hue = (g - b) / range;
    } else if (most == g) {
        hue = (b - r) / range + 2;
    }
    hue /= 6;
    return hue - floorf(hue);
}

static void turn_pixel(float *x, int64_t area, float by)
{
    const float r = x[0], g = x[area], b = x[2 * area];
    const float most = fmaxf(r, fmaxf(g, b)), range = most - fminf(r, fminf(g, b));
    if (range <= 0) {
        return;
    }
    float hue = hue_of(r, g, b, most, range) + by;
    if (!isfinite(hue)) { /* of NaN, which has no color */
        return;
    }
    hue = 6 * (hue - floorf(hue));
    const int sector = (int)hue % 6;
    const float f = hue - floorf(hue), s = range / most;
    const float p = cut(most * (1 - s)), q = cut(most * (1 - s * f));
    const float t = cut(most * (1 - s * (1 - f)));
    const float colors[6][3] = {{most, t, p}, {q, most, p}, {p, most, t},
                                {p, q, most}, {t, p, most}, {most, p, q}};
    for (int c = 0; c < 3; c++) {
        x[c * area] = colors[sector][c];
    }
}

/* ---- jitter ---------------------------------------------------------------------------------- */

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES };

static tutti_status_t plan_jitter(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_jitter_options_t *o = options;
    if (o == NULL || (from->shape.dims[0] != 3 && from->shape.dims[0] != 1)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "transform jitter: options are required, and pictures of 3 or "
                       "1 channels, not %lld",
                       (long long)from->shape.dims[0]);
    }
    TT_TRY(tt_check_share("jitter", "brightness", o->brightness, 1e6));
    TT_TRY(tt_check_share("jitter", "contrast", o->contrast, 1e6));
    TT_TRY(tt_check_share("jitter", "saturation", o->saturation, 1e6));
    TT_TRY(tt_check_share("jitter", "hue", o->hue, 0.5));
    to->dtype = TUTTI_F32;
    return TUTTI_OK;
}

static void change(int what, float factor, tutti_picture_t *x)
{
    const int64_t area = x->height * x->width;
    switch (what) {
    case BRIGHTNESS:
        scale_brightness(x->data, x->channels * area, factor);
        return;
    case CONTRAST:
        mix_contrast(x->data, x->channels, area, factor);
        return;
    case SATURATION:
        mix_saturation(x->data, area, factor);
        return;
    default:
        for (int64_t i = 0; i < area; i++) {
            turn_pixel((float *)x->data + i, area, factor);
        }
    }
}

static tutti_status_t run_jitter(const void *options, tutti_random_t *random,
                                 const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_jitter_options_t *o = options;
    const double ranges[CHANGES] = {o->brightness, o->contrast, o->saturation, o->hue};
    int order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    float factors[CHANGES];
    TT_TRY(tt_picture_floats(from, to));
    for (int i = CHANGES - 1; i > 0; i--) {
        const int64_t k = tutti_random_below(random, i + 1);
        const int last = order[i];
        order[i] = order[k];
        order[k] = last;
    }
    for (int i = 0; i < CHANGES; i++) {
        const double low = i == HUE ? -ranges[i] : ranges[i] < 1 ? 1 - ranges[i] : 0;
        const double high = i == HUE ? ranges[i] : 1 + ranges[i];
        factors[i] = (float)tt_random_between(random, (const double[2]){low, high});
    }
    for (int i = 0; i < CHANGES; i++) {
        const int what = order[i];
        if (ranges[what] > 0 && (what < SATURATION || from->channels == 3)) {
            change(what, factors[what], to);
        }
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_jitter_transform = {
    .name = "jitter",
    .about = "other brightness, contrast, saturation, hue",
    .plan = plan_jitter,
    .run = run_jitter};

/* ---- gray ------------------------------------------------------------------------------------ */

static tutti_status_t plan_gray(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_grayscale_options_t *o = options;
    if (o == NULL || from->shape.dims[0] != 3) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "transform grayscale: options are required, and pictures of 3 "
                       "channels, not %lld",
                       (long long)from->shape.dims[0]);
    }
    to->dtype = TUTTI_F32;
    return tt_check_share("grayscale", "probability", o->probability, 1);
}

static tutti_status_t run_gray(const void *options, tutti_random_t *random,
                               const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_grayscale_options_t *o = options;
    const int64_t area = from->height * from->width;
    const bool is_gray = tt_random_happens(random, o->probability);
    TT_TRY(tt_picture_floats(from, to));
    float *x = to->data;
    for (int64_t i = 0; i < area && is_gray; i++) {
        x[i] = x[i + area] = x[i + 2 * area] = gray_of(x + i, area);
    }
    return TUTTI_OK;
}

const tutti_transform_ops_t tutti_grayscale_transform = {
    .name = "grayscale", .about = "gray in all channels", .plan = plan_gray, .run = run_gray};
