/* Other sizes. Each new pixel is a weighted sum of those beneath it, first along rows, then along
 * columns; the filter is as wide as a new pixel where the picture shrinks. Weights are computed in
 * f64, sums are f32 in a fixed order, so that the bits are the same everywhere.
 *
 * Cost: height × new width × taps + new height × new width × taps.
 * Source: torch's upsample_bilinear2d with antialias, which is Pillow's Resample.c.
 */
#include <math.h>

#include "compute/data/transform_impl.h"
#include "core/base/alloc.h"

/* A part of a picture, from (top, left) on, that lies inside it. */
typedef struct {
    int64_t top, left, height, width;
} box_t;

/* For each new pixel the first one beneath it, how many, and their weights. */
typedef struct {
    int64_t *first, *count;
    float *weights; /* [size, taps] */
    int64_t taps;
} filter_t;

static double triangle(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static double cubic(double x)
{
    const double a = -0.5, t = fabs(x);
    if (t < 1) {
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    }
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

static void release_filter(filter_t *f)
{
    tt_free(f->first);
    tt_free(f->count);
    tt_free(f->weights);
}

static void fill_pixel(filter_t *f, int64_t i, int64_t from, double scale, bool is_cubic)
{
    double sum = 0;
    const double width = scale > 1 ? scale : 1, support = (is_cubic ? 2 : 1) * width;
    const double center = ((double)i + 0.5) * scale;
    const double low = floor(center - support + 0.5), high = floor(center + support + 0.5);
    const int64_t begin = low < 0 ? 0 : (int64_t)low;
    const int64_t end = high > (double)from ? from : (int64_t)high;
    float *weights = f->weights + i * f->taps;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k = begin; k < end; k++) {
            const double at = ((double)k - center + 0.5) / width;
            const double weight = is_cubic ? cubic(at) : triangle(at);
            sum += pass == 0 ? weight : 0;
            weights[k - begin] = (float)(weight / (pass == 0 ? 1 : sum));
        }
    }
    f->first[i] = begin;
    f->count[i] = end - begin;
}

static tutti_status_t make_filter(int64_t from, int64_t to, bool is_cubic, filter_t *f)
{
    const double scale = (double)from / (double)to;
    const double support = (is_cubic ? 2 : 1) * (scale > 1 ? scale : 1);
    f->taps = 2 * (int64_t)ceil(support) + 1;
    f->first = tt_alloc_array((size_t)to, sizeof *f->first, "resize");
    TT_TRY_ALLOC(f->first);
    f->count = tt_alloc_array((size_t)to, sizeof *f->count, "resize");
    TT_TRY_ALLOC(f->count);
    f->weights = tt_alloc_array((size_t)(to * f->taps), sizeof *f->weights, "resize");
    TT_TRY_ALLOC(f->weights);
    for (int64_t i = 0; i < to; i++) {
        fill_pixel(f, i, from, scale, is_cubic);
    }
    return TUTTI_OK;
}

/* A row of the source: `width` new pixels. */
static void pass_row(const filter_t *f, const tutti_picture_t *from, int64_t at, int64_t width,
                     float *to)
{
    const unsigned char *bytes = from->data;
    const float *floats = from->data;
    for (int64_t x = 0; x < width; x++) {
        const float *weights = f->weights + x * f->taps;
        const int64_t first = at + f->first[x];
        float sum = 0;
        if (from->dtype == TUTTI_U8) {
            for (int64_t k = 0; k < f->count[x]; k++) {
                sum += weights[k] * (float)bytes[first + k];
            }
            sum /= 255.0F;
        } else {
            for (int64_t k = 0; k < f->count[x]; k++) {
                sum += weights[k] * floats[first + k];
            }
        }
        to[x] = sum;
    }
}

/* A new row out of rows that are as wide as it already. */
static void pass_column(const filter_t *f, const float *rows, int64_t y, int64_t width, float *to)
{
    for (int64_t k = 0; k < f->count[y]; k++) {
        const float *row = rows + (f->first[y] + k) * width;
        const float weight = f->weights[y * f->taps + k];
        for (int64_t x = 0; x < width; x++) {
            to[x] = (k == 0 ? 0 : to[x]) + weight * row[x];
        }
    }
}

static void filter_plane(const tutti_picture_t *from, box_t box, int64_t channel,
                         const filter_t f[2], float *rows, tutti_picture_t *to)
{
    for (int64_t y = 0; y < box.height; y++) {
        const int64_t at = (channel * from->height + box.top + y) * from->width + box.left;
        pass_row(&f[1], from, at, to->width, rows + y * to->width);
    }
    float *plane = (float *)to->data + channel * to->height * to->width;
    for (int64_t y = 0; y < to->height; y++) {
        pass_column(&f[0], rows, y, to->width, plane + y * to->width);
    }
}

static tutti_status_t filter_all(const tutti_picture_t *from, box_t box, bool is_cubic,
                                 filter_t f[2], tutti_picture_t *to)
{
    TT_TRY(make_filter(box.height, to->height, is_cubic, &f[0]));
    TT_TRY(make_filter(box.width, to->width, is_cubic, &f[1]));
    float *rows = tt_alloc_raw((size_t)(box.height * to->width) * sizeof *rows, "resize");
    TT_TRY_ALLOC(rows);
    for (int64_t c = 0; c < from->channels; c++) {
        filter_plane(from, box, c, f, rows, to);
    }
    tt_free(rows);
    return TUTTI_OK;
}

static void take_nearest(const tutti_picture_t *from, box_t box, tutti_picture_t *to)
{
    const size_t element = tt_picture_element(from);
    char *place = to->data;
    for (int64_t i = 0; i < to->channels * to->height; i++) {
        const int64_t row = (2 * (i % to->height) + 1) * box.height / (2 * to->height);
        const int64_t at = (i / to->height * from->height + box.top + row) * from->width + box.left;
        for (int64_t x = 0; x < to->width; x++, place += element) {
            const int64_t column = (2 * x + 1) * box.width / (2 * to->width);
            const char *source = (const char *)from->data + (size_t)(at + column) * element;
            for (size_t b = 0; b < element; b++) {
                place[b] = source[b];
            }
        }
    }
}

static tutti_status_t resample(const tutti_picture_t *from, box_t box, const int64_t size[2],
                               tutti_resample_t how, tutti_picture_t *to)
{
    const bool is_nearest = how == TUTTI_RESAMPLE_NEAREST || from->is_mask;
    TT_TRY(tutti_picture_resize(to, is_nearest ? from->dtype : TUTTI_F32, from->channels, size[0],
                                size[1]));
    if (is_nearest) {
        take_nearest(from, box, to);
        return TUTTI_OK;
    }
    filter_t filters[2] = {{.first = NULL}};
    const tutti_status_t status = filter_all(from, box, how == TUTTI_RESAMPLE_BICUBIC, filters, to);
    release_filter(&filters[0]);
    release_filter(&filters[1]);
    return status;
}

/* ---- resize ---------------------------------------------------------------------------------- */

static tutti_status_t plan_resize(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_resize_options_t *o = options;
    (void)from;
    if (o == NULL || o->height < 0 || o->width < 0 || o->shorter < 0 ||
        (o->shorter > 0 ? o->height != 0 || o->width != 0 : o->height == 0 || o->width == 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform resize: give height and width, or shorter");
    }
    TT_TRY(tt_check_size("resize", "height", o->height));
    TT_TRY(tt_check_size("resize", "width", o->width));
    TT_TRY(tt_check_size("resize", "shorter", o->shorter));
    to->dtype = o->resample == TUTTI_RESAMPLE_NEAREST ? to->dtype : TUTTI_F32;
    to->shape.dims[1] = o->shorter > 0 ? TUTTI_ANY : o->height;
    to->shape.dims[2] = o->shorter > 0 ? TUTTI_ANY : o->width;
    return tt_check_resample("resize", o->resample, true);
}

static tutti_status_t run_resize(const void *options, tutti_random_t *random,
                                 const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_resize_options_t *o = options;
    const box_t all = {0, 0, from->height, from->width};
    int64_t size[2] = {o->height, o->width};
    (void)random;
    if (o->shorter > 0) {
        const bool is_tall = from->width <= from->height;
        size[0] = is_tall ? o->shorter * from->height / from->width : o->shorter;
        size[1] = is_tall ? o->shorter : o->shorter * from->width / from->height;
    }
    return resample(from, all, size, o->resample, to);
}

const tutti_transform_ops_t tutti_resize_transform = {.name = "resize",
                                                      .about = "other sizes",
                                                      .plan = plan_resize,
                                                      .run = run_resize,
                                                      .moves_pixels = true};

/* ---- resized crops --------------------------------------------------------------------------- */

static const double usual_scale[2] = {0.08, 1}, usual_ratio[2] = {3.0 / 4, 4.0 / 3};

static tutti_status_t plan_crop(const void *options, const tutti_field_t *from, tutti_field_t *to)
{
    const tutti_resized_crop_options_t *o = options;
    (void)from;
    if (o == NULL || o->height < 1 || o->width < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "transform resized_crop: height and width of at least 1 are "
                                      "required");
    }
    TT_TRY(tt_check_size("resized_crop", "height", o->height));
    TT_TRY(tt_check_size("resized_crop", "width", o->width));
    TT_TRY(tt_check_range("resized_crop", "scale", tt_range_or(o->scale, usual_scale), 1e-9));
    TT_TRY(tt_check_range("resized_crop", "ratio", tt_range_or(o->ratio, usual_ratio), 1e-9));
    to->dtype = o->resample == TUTTI_RESAMPLE_NEAREST ? to->dtype : TUTTI_F32;
    to->shape.dims[1] = o->height;
    to->shape.dims[2] = o->width;
    return tt_check_resample("resized_crop", o->resample, true);
}

/* Where none was found: the middle, of the nearest ratio that is allowed. */
static box_t middle(const tutti_picture_t *from, const double ratio[2])
{
    int64_t height = from->height, width = from->width;
    const double is = (double)width / (double)height;
    if (is < ratio[0]) {
        height = (int64_t)rint((double)width / ratio[0]);
    } else if (is > ratio[1]) {
        width = (int64_t)rint((double)height * ratio[1]);
    }
    height = height < 1 ? 1 : height;
    width = width < 1 ? 1 : width;
    return (box_t){(from->height - height) / 2, (from->width - width) / 2, height, width};
}

static tutti_status_t run_crop(const void *options, tutti_random_t *random,
                               const tutti_picture_t *from, tutti_picture_t *to)
{
    const tutti_resized_crop_options_t *o = options;
    const double *ratio = tt_range_or(o->ratio, usual_ratio);
    const int64_t size[2] = {from->width, from->height}, made[2] = {o->height, o->width};
    int64_t sides[2];
    box_t box = middle(from, ratio);
    if (tt_random_rectangle(random, tt_range_or(o->scale, usual_scale), ratio, size, sides)) {
        const int64_t top = tutti_random_below(random, from->height - sides[1] + 1);
        const int64_t left = tutti_random_below(random, from->width - sides[0] + 1);
        box = (box_t){top, left, sides[1], sides[0]};
    }
    return resample(from, box, made, o->resample, to);
}

const tutti_transform_ops_t tutti_resized_crop_transform = {.name = "resized_crop",
                                                            .about = "a part of any size, resized",
                                                            .plan = plan_crop,
                                                            .run = run_crop,
                                                            .moves_pixels = true};
