/* What the taps of a kernel see: of x by padding and stride, of dy the other way round. Cost: the
 * window of dy asks for each tap of a dimension. */
#include "core/kernel/conv/conv_impl.h"

#include "core/base/fail.h"

/* So that scratch for some hundred images and threads can be counted. */
#define BYTES_MAX 0x1p42

bool tt_conv_sees(const tt_conv_t *c, int dim, int64_t start, int64_t tap, int64_t *place)
{
    const int64_t at = start + c->padding[dim] - tap * c->dilation[dim];
    *place = at / c->stride[dim];
    return at % c->stride[dim] == 0;
}

tt_window_t tt_conv_window(const tt_conv_t *conv)
{
    tt_window_t w = {.channels = conv->in, .element_bytes = tutti_dtype_bytes(conv->dtype)};
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (conv->kernel[i] - 1) * conv->dilation[i];
        w.size[i] = conv->size[i];
        w.before[i] = conv->padding[i];
        w.stride[i] = conv->stride[i];
        w.phases[i] = tt_min(reach + 1, conv->stride[i]);
        w.plane_size[i] = conv->out_size[i] + reach / conv->stride[i];
    }
    return w;
}

/* x / per, rounded down. */
static int64_t floor_of(int64_t x, int64_t per)
{
    return x / per - (x % per < 0);
}

tt_window_t tt_conv_window_of_dy(const tt_conv_t *conv)
{
    tt_window_t w = {.channels = conv->out, .element_bytes = tutti_dtype_bytes(conv->dtype)};
    for (int i = 0; i < 2; i++) {
        int64_t least = 0, most = 0;
        for (int64_t tap = 0; tap < conv->kernel[i]; tap++) {
            const int64_t at = conv->padding[i] - tap * conv->dilation[i];
            const int64_t first = -floor_of(-at, conv->stride[i]); /* of the first position */
            const int64_t last = floor_of(at + conv->size[i] - 1, conv->stride[i]);
            least = first <= last ? tt_min(least, first) : least;
            most = first <= last ? tt_max(most, last) : most;
        }
        w.size[i] = conv->out_size[i];
        w.before[i] = -least;
        w.stride[i] = w.phases[i] = 1;
        w.plane_size[i] = most - least + 1;
    }
    return w;
}

static double floats_of(tt_window_t w)
{
    return (double)w.phases[0] * (double)w.phases[1] * (double)w.plane_size[0] *
           (double)w.plane_size[1];
}

tutti_status_t tt_conv_check_room(const tt_conv_t *c)
{
    const tt_conv_depth_t *d = &c->depth;
    const double x = floats_of(tt_conv_window(c)), dy = floats_of(tt_conv_window_of_dy(c));
    const double channels = (double)tt_max(c->in * tt_max(d->kernel, 1), c->out);
    const double planes = c->dtype == TUTTI_F64 ? 0 : channels * (x > dy ? x : dy) * 4;
    const double windows = (double)(c->groups * c->in) * (double)(c->size[0] * c->size[1]) *
                           (double)d->out_size * (double)d->kernel * 8;
    const double bytes = planes > windows ? planes : windows;
    if (bytes > BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM,
                       "convolution: no memory for %.3g bytes, an image with padding %lld × %lld "
                       "and dilation %lld × %lld",
                       bytes, (long long)c->padding[0], (long long)c->padding[1],
                       (long long)c->dilation[0], (long long)c->dilation[1]);
    }
    return TUTTI_OK;
}
