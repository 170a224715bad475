/* The definition, written down: every product x w that belongs to an element of y is visited once.
 * Cost: one multiplication at a time, in the caller. */
#include "core/kernel/conv/conv_f64.h"

/* Where a product is: element indices of x, w and y. */
typedef struct {
    int64_t x, w, y;
} place_t;

typedef void (*visit_t)(void *arg, place_t at);

/* The taps of one channel at position (i, j) of y; `at` has the planes' first elements. */
static void visit_taps(const tt_conv_t *c, place_t at, const int64_t position[2], visit_t visit,
                       void *arg)
{
    for (int64_t a = 0; a < c->kernel[0]; a++) {
        const int64_t h = position[0] * c->stride[0] - c->padding[0] + a * c->dilation[0];
        for (int64_t b = 0; b < c->kernel[1]; b++) {
            const int64_t v = position[1] * c->stride[1] - c->padding[1] + b * c->dilation[1];
            if (h >= 0 && h < c->size[0] && v >= 0 && v < c->size[1]) {
                visit(arg, (place_t){at.x + h * c->size[1] + v, at.w + a * c->kernel[1] + b, at.y});
            }
        }
    }
}

static void visit_plane(const tt_conv_t *c, place_t at, visit_t visit, void *arg)
{
    for (int64_t i = 0; i < c->out_size[0]; i++) {
        for (int64_t j = 0; j < c->out_size[1]; j++, at.y++) {
            visit_taps(c, at, (const int64_t[]){i, j}, visit, arg);
        }
    }
}

static void visit_all(const tt_conv_t *c, visit_t visit, void *arg)
{
    const int64_t x_plane = c->size[0] * c->size[1], y_plane = c->out_size[0] * c->out_size[1];
    const int64_t taps = c->kernel[0] * c->kernel[1];
    for (int64_t o = 0; o < c->batch * c->groups * c->out; o++) {
        const int64_t group = o / c->out; /* over batch and groups */
        const int64_t row = group % c->groups * c->out + o % c->out;
        for (int64_t in = 0; in < c->in; in++) {
            visit_plane(
                c,
                (place_t){(group * c->in + in) * x_plane, (row * c->in + in) * taps, o * y_plane},
                visit, arg);
        }
    }
}

typedef struct {
    const double *a, *b;
    double *out;
} product_t;

static void add_to_y(void *arg, place_t at)
{
    const product_t *p = arg;
    p->out[at.y] += p->a[at.x] * p->b[at.w];
}

static void add_to_x(void *arg, place_t at)
{
    const product_t *p = arg;
    p->out[at.x] += p->a[at.y] * p->b[at.w];
}

static void add_to_w(void *arg, place_t at)
{
    const product_t *p = arg;
    p->out[at.w] += p->a[at.x] * p->b[at.y];
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
    visit_all(c, add_to_y, &(product_t){x, weight, y});
}

void tt_conv_to_x_f64(const tt_conv_t *c, const double *dy, const double *weight,
                      const double *bias, double *dx)
{
    const int64_t channels = c->groups * c->in;
    fill(dx, c->batch * channels, channels, c->size[0] * c->size[1], bias);
    visit_all(c, add_to_x, &(product_t){dy, weight, dx});
}

void tt_conv_to_weight_f64(const tt_conv_t *c, const double *x, const double *dy, double *dw)
{
    fill(dw, c->groups * c->out * c->in, 1, c->kernel[0] * c->kernel[1], NULL);
    visit_all(c, add_to_w, &(product_t){x, dy, dw});
}
