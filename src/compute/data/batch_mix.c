/* Batches whose inputs are mixed, each with the one before it. The share is drawn once a batch,
 * from Beta(alpha, alpha), which is a / (a + b) of two numbers of Gamma(alpha).
 *
 * Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
 */
#include <math.h>
#include <string.h>

#include <tutti/transforms.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

static double draw_gamma(tutti_random_t *random, double alpha)
{
    const double raised = alpha < 1 ? alpha + 1 : alpha, d = raised - 1.0 / 3;
    const double c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = tutti_random_normal(random), root = 1 + c * x;
        const double v = root * root * root, u = 1 - tutti_random_uniform(random);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v)) {
            const double gamma = d * v;
            return alpha < 1 ? gamma * pow(1 - tutti_random_uniform(random), 1 / alpha) : gamma;
        }
    }
}

static double draw_share(tutti_random_t *random, double alpha)
{
    const double a = draw_gamma(random, alpha), b = draw_gamma(random, alpha);
    if (a + b > 0) {
        return a / (a + b);
    }
    return tutti_random_uniform(random) < 0.5 ? 0 : 1; /* both are too small for a double */
}

static tutti_status_t check(const char *call, const tutti_mix_options_t *o,
                            const tutti_batch_t *batch, int rank)
{
    const tutti_tensor_t *x = batch->fields[TUTTI_INPUT], *y = batch->fields[TUTTI_TARGET];
    if (o == NULL || !(o->alpha > 0) || !isfinite(o->alpha) || o->classes < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: an alpha above 0 and at least one class are required",
                       call);
    }
    if (y == NULL || tutti_tensor_dtype(x) != TUTTI_F32 || tutti_tensor_rank(x) < rank ||
        tutti_dtype_is_float(tutti_tensor_dtype(y)) || tutti_tensor_rank(y) != 1) {
        char input[200], target[200] = "none";
        if (y != NULL) {
            (void)tutti_tensor_describe(y, target, sizeof target);
        }
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: inputs are %s, targets %s: f32 with at least %d dimensions and one "
                       "integer each are expected",
                       call, tutti_tensor_describe(x, input, sizeof input), target, rank);
    }
    return TUTTI_OK;
}

/* f32 [size, classes]: share of the sample's class, the rest of that of the one before. */
static tutti_status_t mix_targets(const char *call, const tutti_mix_options_t *o, double share,
                                  tutti_batch_t *batch)
{
    tutti_tensor_t **y = &batch->fields[TUTTI_TARGET], *made;
    const int64_t size = tutti_tensor_dim(*y, 0);
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(size, o->classes), &made));
    float *to = tutti_tensor_data(made);
    for (int64_t i = 0; i < size; i++) {
        const double own = tutti_tensor_at(*y, i);
        const double before = tutti_tensor_at(*y, i == 0 ? size - 1 : i - 1);
        if (!(own >= 0 && own < (double)o->classes)) {
            tutti_tensor_release(made);
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: target %g of sample %lld: there are %lld classes",
                           call, own, (long long)i, (long long)o->classes);
        }
        if (before >= 0 && before < (double)o->classes) { /* else it is said above */
            to[i * o->classes + (int64_t)before] += (float)(1 - share);
        }
        to[i * o->classes + (int64_t)own] += (float)share;
    }
    tutti_tensor_release(*y);
    *y = made;
    return TUTTI_OK;
}

/* Rows of samples, of which each takes a part of the one before. */
typedef struct {
    float *data;
    int64_t size, numel; /* samples; elements of one */
    float share;
    int64_t height, width; /* of a plane; cutmix only */
    int64_t top, left, bottom, right;
} mix_t;

static void mix_sample(const mix_t *mix, float *to, const float *before)
{
    for (int64_t i = 0; i < mix->numel; i++) {
        to[i] = mix->share * to[i] + (1 - mix->share) * before[i];
    }
}

static void cut_sample(const mix_t *mix, float *to, const float *before)
{
    const int64_t area = mix->height * mix->width;
    for (int64_t plane = 0; plane < mix->numel; plane += area) {
        for (int64_t y = mix->top; y < mix->bottom && mix->right > mix->left; y++) {
            const int64_t at = plane + y * mix->width + mix->left;
            memcpy(to + at, before + at, (size_t)(mix->right - mix->left) * sizeof *to);
        }
    }
}

/* From the last sample to the first, so that each finds the one before as it was. */
static tutti_status_t mix_all(const mix_t *mix,
                              void (*one)(const mix_t *mix, float *to, const float *before))
{
    if (mix->size == 0 || mix->numel == 0) {
        return TUTTI_OK;
    }
    const size_t bytes = (size_t)mix->numel * sizeof(float);
    float *last = tt_alloc_raw(bytes, "mixed sample");
    TT_TRY_ALLOC(last);
    memcpy(last, mix->data + (mix->size - 1) * mix->numel, bytes);
    for (int64_t i = mix->size - 1; i >= 0; i--) {
        one(mix, mix->data + i * mix->numel, i == 0 ? last : mix->data + (i - 1) * mix->numel);
    }
    tt_free(last);
    return TUTTI_OK;
}

static mix_t mix_of(const tutti_batch_t *batch)
{
    const tutti_tensor_t *x = batch->fields[TUTTI_INPUT];
    const int64_t size = tutti_tensor_dim(x, 0);
    return (mix_t){.data = tutti_tensor_data(x),
                   .size = size,
                   .numel = size == 0 ? 0 : tutti_tensor_numel(x) / size,
                   .height = tutti_tensor_dim(x, -2),
                   .width = tutti_tensor_dim(x, -1)};
}

tutti_status_t tutti_mixup(const void *options, tutti_random_t *random, tutti_batch_t *batch)
{
    const tutti_mix_options_t *o = options;
    TT_TRY(check("mixup", o, batch, 1));
    const double share = draw_share(random, o->alpha);
    mix_t mix = mix_of(batch);
    mix.share = (float)share;
    TT_TRY(mix_targets("mixup", o, share, batch));
    return mix_all(&mix, mix_sample);
}

static int64_t within(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

tutti_status_t tutti_cutmix(const void *options, tutti_random_t *random, tutti_batch_t *batch)
{
    const tutti_mix_options_t *o = options;
    TT_TRY(check("cutmix", o, batch, 3));
    const double half = 0.5 * sqrt(1 - draw_share(random, o->alpha));
    mix_t mix = mix_of(batch);
    if (mix.height < 1 || mix.width < 1) {
        return mix_targets("cutmix", o, 1, batch);
    }
    const int64_t x = tutti_random_below(random, mix.width);
    const int64_t y = tutti_random_below(random, mix.height);
    const int64_t across = (int64_t)(half * (double)mix.width);
    const int64_t down = (int64_t)(half * (double)mix.height);
    mix.left = within(x - across, mix.width);
    mix.right = within(x + across, mix.width);
    mix.top = within(y - down, mix.height);
    mix.bottom = within(y + down, mix.height);
    const double cut = (double)((mix.right - mix.left) * (mix.bottom - mix.top));
    TT_TRY(mix_targets("cutmix", o, 1 - cut / (double)(mix.height * mix.width), batch));
    return mix_all(&mix, cut_sample);
}
