/* Convolutions over volumes as convolutions over planes.
 *
 *     seen[n, i, (c, a), :]  = x[n, c, i s - p + a d, :]    the planes that window i of depth sees
 *     y[n, :, i, :]          = what planes of channels (c, a) give: the weight [O, C, KD, KH, KW]
 *                              lies as [O, (C, KD), KH, KW] already
 *     dx[n, c, e, :]         = the sum of dseen[n, i, (c, a), :] over i s - p + a d = e
 *     dw                     = that of the planes
 *
 * Some images go together, as many as fit 16 MB of scratch, or one: by the shape alone, so threads
 * change no bit. What is summed beyond the planes is f32, or f64. Cost: that of the planes, and
 * KD + 1 copies of x and y in the cache or memory. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/half.h"

enum { SCRATCH_BYTES = 16 << 20, FEW = 64 };

typedef struct {
    const tt_conv_t *conv;
    tt_conv_t planes;               /* of the images that go together */
    int64_t x_channels, y_channels; /* of all groups */
    int64_t plane, out_plane;       /* elements */
    int64_t images;                 /* that go together */
    size_t bytes, wide_bytes;       /* of an element that is read, and that is summed */
    tutti_dtype_t wide;
    const char *bias;
    tt_convert_fn_t narrow;             /* to what is written */
    char *block, *seen, *turned, *rest; /* scratch: planes of windows; y or dy, depth in front */
    const char *from;
    char *to;
    int64_t count; /* of images now */
} volume_t;

typedef struct {
    const char *from;
    char *to;
    int64_t rows, columns;
    size_t bytes; /* of a plane */
} turn_t;

static volume_t plan(const tt_conv_t *conv)
{
    const tt_conv_depth_t *depth = &conv->depth;
    volume_t v = {.conv = conv,
                  .planes = *conv,
                  .x_channels = conv->groups * conv->in,
                  .y_channels = conv->groups * conv->out,
                  .plane = conv->size[0] * conv->size[1],
                  .out_plane = conv->out_size[0] * conv->out_size[1],
                  .bytes = tutti_dtype_bytes(conv->dtype),
                  .wide = conv->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32};
    v.wide_bytes = tutti_dtype_bytes(v.wide);
    v.narrow = tt_convert_from(tt_class_of(v.wide), conv->out_dtype);
    v.planes.in = conv->in * depth->kernel;
    v.planes.depth = (tt_conv_depth_t){.size = 0};
    const int64_t seen = depth->out_size * v.x_channels * depth->kernel * v.plane;
    const int64_t turned = v.y_channels * depth->out_size * v.out_plane;
    const int64_t each = (seen + turned) * (int64_t)v.wide_bytes;
    v.images = each < 1 ? 1 : tt_max(1, SCRATCH_BYTES / each);
    return v;
}

/* Scratch for the images that go together, and some bytes more behind it. */
static tutti_status_t open_scratch(tt_threads_t *threads, volume_t *v, size_t more)
{
    const int64_t windows = tt_min(v->images, v->conv->batch) * v->conv->depth.out_size;
    const int64_t seen = windows * v->x_channels * v->conv->depth.kernel * v->plane;
    const int64_t turned = windows * v->y_channels * v->out_plane;
    size_t bytes = 0;
    (void)tt_conv_reserve(&bytes, seen * (int64_t)v->wide_bytes);
    const size_t turned_at = tt_conv_reserve(&bytes, turned * (int64_t)v->wide_bytes);
    v->block = tt_threads_borrow(threads, bytes + more + 1);
    TT_TRY_ALLOC(v->block);
    v->seen = v->block;
    v->turned = v->block + turned_at;
    v->rest = v->block + bytes;
    return TUTTI_OK;
}

/* The next images; whether there are any. */
static bool take_images(volume_t *v, int64_t done)
{
    v->count = tt_min(v->images, v->conv->batch - done);
    v->planes.batch = v->count * v->conv->depth.out_size;
    return v->count > 0;
}

/* ---- planes of x that windows see ------------------------------------------------------------ */

/* Piece: image and window. */
static void see_piece(void *arg, size_t piece)
{
    const volume_t *v = arg;
    const tt_conv_depth_t *d = &v->conv->depth;
    const size_t bytes = (size_t)v->plane * v->bytes;
    const int64_t image = (int64_t)piece / d->out_size, i = (int64_t)piece % d->out_size;
    const char *from = v->from + (size_t)(image * v->x_channels * d->size) * bytes;
    char *to = v->seen + (size_t)((int64_t)piece * v->x_channels * d->kernel) * bytes;
    for (int64_t c = 0; c < v->x_channels; c++, from += (size_t)d->size * bytes) {
        for (int64_t a = 0; a < d->kernel; a++, to += bytes) {
            const int64_t at = i * d->stride - d->padding + a * d->dilation;
            if (at >= 0 && at < d->size) {
                memcpy(to, from + (size_t)at * bytes, bytes);
            } else {
                memset(to, 0, bytes);
            }
        }
    }
}

static void see(tt_threads_t *threads, volume_t *v, const char *x)
{
    v->from = x;
    tt_threads_run(threads, (size_t)v->planes.batch, see_piece, v);
}

static void add_f32(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void add_f64(double *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void add(const volume_t *v, void *to, const void *from, int64_t n)
{
    if (v->wide == TUTTI_F64) {
        add_f64(to, from, n);
    } else {
        add_f32(to, from, n);
    }
}

static double bias_of(const volume_t *v, int64_t channel)
{
    if (v->bias == NULL) {
        return 0;
    }
    const char *at = v->bias + (size_t)channel * v->bytes;
    return v->conv->dtype == TUTTI_F64 ? *(const double *)(const void *)at
           : v->conv->dtype == TUTTI_BF16
               ? (double)tt_bf16_to_f32(*(const uint16_t *)(const void *)at)
               : (double)*(const float *)(const void *)at;
}

static void add_number(const volume_t *v, void *to, double number, int64_t n)
{
    for (int64_t i = 0; i < n && v->wide == TUTTI_F64; i++) {
        ((double *)to)[i] += number;
    }
    for (int64_t i = 0; i < n && v->wide == TUTTI_F32; i++) {
        ((float *)to)[i] += (float)number;
    }
}

/* The sum of all that saw plane e, where the first of them lies; NULL: none did. */
static char *sum_seen(const volume_t *v, int64_t image, int64_t channel, int64_t e)
{
    const tt_conv_depth_t *d = &v->conv->depth;
    char *sum = NULL;
    for (int64_t a = 0; a < d->kernel; a++) {
        const int64_t at = e + d->padding - a * d->dilation, i = at / d->stride;
        if (at < 0 || at % d->stride != 0 || i >= d->out_size) {
            continue;
        }
        const int64_t plane = ((image * d->out_size + i) * v->x_channels + channel) * d->kernel + a;
        char *part = v->seen + (size_t)(plane * v->plane) * v->wide_bytes;
        if (sum == NULL) {
            sum = part;
        } else {
            add(v, sum, part, v->plane);
        }
    }
    return sum;
}

/* A plane that nobody saw. */
static void put_number(const volume_t *v, char *to, double number)
{
    const size_t bytes = tutti_dtype_bytes(v->conv->out_dtype);
    for (int64_t first = 0; first < v->plane; first += FEW) {
        double few[FEW] = {0}; /* zeros of f32, too */
        const int64_t n = tt_min(v->plane - first, FEW);
        add_number(v, few, number, n);
        v->narrow(to + (size_t)first * bytes, few, (size_t)n);
    }
}

/* Piece: image and channel of dx. */
static void add_seen_piece(void *arg, size_t piece)
{
    const volume_t *v = arg;
    const int64_t depth = v->conv->depth.size;
    const int64_t image = (int64_t)piece / v->x_channels, channel = (int64_t)piece % v->x_channels;
    const size_t bytes = (size_t)v->plane * tutti_dtype_bytes(v->conv->out_dtype);
    const double bias = bias_of(v, channel);
    char *to = v->to + piece * (size_t)depth * bytes;
    for (int64_t e = 0; e < depth; e++, to += bytes) {
        char *sum = sum_seen(v, image, channel, e);
        if (sum == NULL) {
            put_number(v, to, bias);
            continue;
        }
        if (v->bias != NULL) {
            add_number(v, sum, bias, v->plane);
        }
        v->narrow(to, sum, (size_t)v->plane);
    }
}

/* ---- y and dy: depth before channels, and back ----------------------------------------------- */

/* Piece: image and row; to[image, column, row, :] = from[image, row, column, :]. */
static void turn_piece(void *arg, size_t piece)
{
    const turn_t *t = arg;
    const int64_t image = (int64_t)piece / t->rows, row = (int64_t)piece % t->rows;
    const char *from = t->from + piece * (size_t)t->columns * t->bytes;
    char *to = t->to + (size_t)(image * t->columns * t->rows + row) * t->bytes;
    for (int64_t i = 0; i < t->columns; i++) {
        memcpy(to, from, t->bytes);
        from += t->bytes;
        to += (size_t)t->rows * t->bytes;
    }
}

static void turn(tt_threads_t *threads, const volume_t *v, turn_t t)
{
    t.bytes *= (size_t)v->out_plane;
    tt_threads_run(threads, (size_t)(v->count * t.rows), turn_piece, &t);
}

static size_t x_bytes(const volume_t *v, size_t each)
{
    return (size_t)(v->x_channels * v->conv->depth.size * v->plane) * each;
}

static size_t y_bytes(const volume_t *v, size_t each)
{
    return (size_t)(v->y_channels * v->conv->depth.out_size * v->out_plane) * each;
}

/* ---- the three ------------------------------------------------------------------------------- */

tutti_status_t tt_volume_forward(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                 const void *weight, const void *bias, void *y)
{
    volume_t v = plan(conv);
    const size_t out = tutti_dtype_bytes(conv->out_dtype);
    TT_TRY(open_scratch(threads, &v, 0));
    tutti_status_t status = TUTTI_OK;
    for (int64_t done = 0; status >= 0 && take_images(&v, done); done += v.count) {
        see(threads, &v, (const char *)x + (size_t)done * x_bytes(&v, v.bytes));
        status = tt_planes_forward(threads, &v.planes, v.seen, weight, bias, v.turned);
        turn(threads, &v,
             (turn_t){.from = v.turned,
                      .to = (char *)y + (size_t)done * y_bytes(&v, out),
                      .rows = conv->depth.out_size,
                      .columns = v.y_channels,
                      .bytes = out});
    }
    tt_threads_give_back(threads, v.block);
    return status;
}

/* dy of the images now, with depth in front. */
static void take_dy(tt_threads_t *threads, const volume_t *v, const void *dy, int64_t done)
{
    turn(threads, v,
         (turn_t){.from = (const char *)dy + (size_t)done * y_bytes(v, v->bytes),
                  .to = v->turned,
                  .rows = v->y_channels,
                  .columns = v->conv->depth.out_size,
                  .bytes = v->bytes});
}

tutti_status_t tt_volume_to_x(tt_threads_t *threads, const tt_conv_t *conv, const void *dy,
                              const void *weight, const void *bias, void *dx)
{
    volume_t v = plan(conv);
    const size_t out = tutti_dtype_bytes(conv->out_dtype);
    TT_TRY(open_scratch(threads, &v, 0));
    tutti_status_t status = TUTTI_OK;
    v.bias = bias;
    v.planes.out_dtype = v.wide;
    for (int64_t done = 0; status >= 0 && take_images(&v, done); done += v.count) {
        take_dy(threads, &v, dy, done);
        status = tt_planes_to_x(threads, &v.planes, v.turned, weight, NULL, v.seen);
        v.to = (char *)dx + (size_t)done * x_bytes(&v, out);
        if (status >= 0) {
            tt_threads_run(threads, (size_t)(v.count * v.x_channels), add_seen_piece, &v);
        }
    }
    tt_threads_give_back(threads, v.block);
    return status;
}

/* dw of the images now is added to the sum of those before. */
static tutti_status_t add_weights(tt_threads_t *threads, const volume_t *v, int64_t done, char *sum,
                                  int64_t n)
{
    char *part = done == 0 ? sum : sum + (size_t)n * v->wide_bytes;
    TT_TRY(tt_planes_to_weight(threads, &v->planes, v->seen, v->turned, part));
    if (done > 0) {
        add(v, sum, part, n);
    }
    return TUTTI_OK;
}

tutti_status_t tt_volume_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                   const void *dy, void *dw)
{
    volume_t v = plan(conv);
    const int64_t n = v.y_channels * v.planes.in * conv->kernel[0] * conv->kernel[1];
    TT_TRY(open_scratch(threads, &v, 2 * (size_t)n * v.wide_bytes));
    tutti_status_t status = TUTTI_OK;
    char *sum = v.rest;
    memset(sum, 0, (size_t)n * v.wide_bytes);
    v.planes.out_dtype = v.wide;
    for (int64_t done = 0; status >= 0 && take_images(&v, done); done += v.count) {
        see(threads, &v, (const char *)x + (size_t)done * x_bytes(&v, v.bytes));
        take_dy(threads, &v, dy, done);
        status = add_weights(threads, &v, done, sum, n);
    }
    v.narrow(dw, sum, (size_t)n);
    tt_threads_give_back(threads, v.block);
    return status;
}
