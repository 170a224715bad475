/* What the taps of a kernel see: of x by padding and stride, of dy the other way round. Cost: the
 * window of dy asks for each tap of a dimension. */
#include "core/kernel/conv/conv_impl.h"

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
