/* The definition, written down: every product x w that belongs to an element of y is visited once.
 * It shares no loop with the tiles, whose elements have four bytes throughout (conv_ops.h) and
 * which conv_test.c compares with it. Cost: one multiplication at a time, in the caller. */
#include "core/kernel/conv/conv_f64.h"

/* Of three arrays, or of the elements that a product has in them. */
enum { X, W, Y };

/* to += one · other, each an element of its own array; which is whose, the caller says. */
typedef struct {
    double *to;
    const double *one, *other;
    int to_of, one_of, other_of; /* X, W, Y */
} product_t;

/* The taps of one channel at position (i, j) of y; `at` has the planes' first elements. */
static void add_taps(const tt_conv_t *c, const product_t *p, const int64_t at[3], int64_t i,
                     int64_t j)
{
    for (int64_t a = 0; a < c->kernel[0]; a++) {
        const int64_t h = i * c->stride[0] - c->padding[0] + a * c->dilation[0];
        for (int64_t b = 0; b < c->kernel[1]; b++) {
            const int64_t v = j * c->stride[1] - c->padding[1] + b * c->dilation[1];
            if (h >= 0 && h < c->size[0] && v >= 0 && v < c->size[1]) {
                const int64_t of[] = {[X] = at[X] + h * c->size[1] + v,
                                      [W] = at[W] + a * c->kernel[1] + b,
                                      [Y] = at[Y] + i * c->out_size[1] + j};
                p->to[of[p->to_of]] += p->one[of[p->one_of]] * p->other[of[p->other_of]];
            }
        }
    }
}

static void add_all(const tt_conv_t *c, product_t p)
{
    const int64_t x_plane = c->size[0] * c->size[1], y_plane = c->out_size[0] * c->out_size[1];
    const int64_t taps = c->kernel[0] * c->kernel[1];
    for (int64_t o = 0; o < c->batch * c->groups * c->out; o++) {
        const int64_t group = o / c->out; /* over batch and groups */
        const int64_t row = group % c->groups * c->out + o % c->out;
        for (int64_t in = 0; in < c->in; in++) {
            const int64_t at[] = {[X] = (group * c->in + in) * x_plane,
                                  [W] = (row * c->in + in) * taps,
                                  [Y] = o * y_plane};
            for (int64_t i = 0; i < y_plane; i++) {
                add_taps(c, &p, at, i / c->out_size[1], i % c->out_size[1]);
            }
        }
    }
}

/* [batch, channels, plane], each channel full of its bias. */
static void fill(double *out, int64_t planes, int64_t channels, int64_t plane, const double *bias)
{
    for (int64_t i = 0; i < planes * plane; i++) {
        out[i] = bias == NULL ? 0 : bias[i / plane % channels];
    }
}

void tt_conv_forward_f64(const tt_conv_t *c, const double *x, const double *weight,
                         const double *bias, double *y)
{
    const int64_t channels = c->groups * c->out;
    fill(y, c->batch * channels, channels, c->out_size[0] * c->out_size[1], bias);
    add_all(c, (product_t){y, x, weight, Y, X, W});
}

void tt_conv_to_x_f64(const tt_conv_t *c, const double *dy, const double *weight,
                      const double *bias, double *dx)
{
    const int64_t channels = c->groups * c->in;
    fill(dx, c->batch * channels, channels, c->size[0] * c->size[1], bias);
    add_all(c, (product_t){dx, dy, weight, X, Y, W});
}

void tt_conv_to_weight_f64(const tt_conv_t *c, const double *x, const double *dy, double *dw)
{
    fill(dw, c->groups * c->out * c->in, 1, c->kernel[0] * c->kernel[1], NULL);
    add_all(c, (product_t){dw, x, dy, W, X, Y});
}
