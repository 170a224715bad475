/* Depthwise convolutions: what goes where (conv_depthwise.h).
 *
 *     a thread takes as many channels of images as have about 4096 elements in planes:
 *         their planes (conv_window.h), of all at once
 *         for each remainder of the stride that positions of the result have (of y: one):
 *             the sums of their taps
 *
 * For dw a thread takes some channels of all images. Cost: 2 · batch · channels · kernel ·
 * positions operations; scratch: planes a thread. */
#include "core/kernel/conv/conv_depthwise.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/conv/conv_impl.h"
#include "core/kernel/conv/conv_ops.h"

enum { PLANES = 4096, GROUPS_LEAST = 4 };

bool tt_depthwise_suits(const tt_conv_t *conv)
{
    return conv->in == 1 && conv->out == 1 && conv->groups >= GROUPS_LEAST &&
           conv->dtype == TUTTI_F32 && conv->out_dtype == TUTTI_F32 &&
           conv->kernel[0] * conv->kernel[1] <= TT_DEPTHWISE_TAPS_MAX;
}

/* Positions of one remainder of the stride. */
typedef struct {
    int64_t start[2], step[2], count[2];
    int64_t first, taps; /* in the lists */
} view_t;

typedef struct {
    const tt_conv_t *conv;
    const tt_depthwise_ops_t *ops;
    tt_window_t window; /* of one channel */
    int64_t size[2];    /* of the result's planes */
    int64_t views, units, units_per_piece;
    view_t *view;
    int64_t *tap_at, *tap; /* of all views */
    const float *image, *weight, *bias;
    float *out;
    char *slots;
    size_t slot_bytes;
    atomic_size_t next;
} job_t;

static int64_t unit_floats(const tt_window_t *window)
{
    return tt_window_unit_bytes(window) / (int64_t)sizeof(float);
}

/* As many units as have about PLANES floats. */
static int64_t units_in(int64_t floats, int64_t units)
{
    return tt_min(PLANES / floats + 1, units);
}

static void correlate_view(const job_t *j, const view_t *v, int64_t first, int64_t units,
                           const char *planes)
{
    const int64_t plane = j->size[0] * j->size[1];
    j->ops->correlate(&(tt_depthwise_t){
        .units = units,
        .first = first,
        .groups = j->conv->groups,
        .planes = (const float *)(const void *)planes,
        .unit = unit_floats(&j->window),
        .pitch = j->window.plane_size[1],
        .rows = v->count[0],
        .width = v->count[1],
        .taps = v->taps,
        .tap_at = j->tap_at + v->first,
        .tap = j->tap + v->first,
        .weight = j->weight,
        .bias = j->bias,
        .kernel = j->conv->kernel[0] * j->conv->kernel[1],
        .out = j->out + first * plane + v->start[0] * j->size[1] + v->start[1],
        .out_unit = plane,
        .out_row = v->step[0] * j->size[1],
        .out_step = v->step[1],
    });
}

static void correlate_piece(void *arg, size_t piece)
{
    job_t *j = arg;
    char *planes = j->slots + piece * j->slot_bytes;
    tt_window_t window = j->window;
    memset(planes, 0, j->slot_bytes);
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        const int64_t first = next * j->units_per_piece;
        if (first >= j->units) {
            return;
        }
        window.channels = tt_min(j->units_per_piece, j->units - first);
        tt_window_arrange(&window, j->image + first * window.size[0] * window.size[1], planes);
        for (int64_t i = 0; i < j->views; i++) {
            correlate_view(j, &j->view[i], first, window.channels, planes);
        }
    }
}

/* ---- the lists ------------------------------------------------------------------------------- */

/* Where a tap sees the image from the first position of a view: place is of the padded image. */
static bool sees(const job_t *j, bool is_to_x, int dim, int64_t start, int64_t tap, int64_t *place)
{
    *place = tap * j->conv->dilation[dim];
    if (!is_to_x) {
        return true;
    }
    const bool is_seen = tt_conv_sees(j->conv, dim, start, tap, place);
    *place += j->window.before[dim];
    return is_seen;
}

static void list_view(job_t *j, bool is_to_x, view_t *v)
{
    int64_t h, w;
    for (int64_t a = 0; a < j->conv->kernel[0]; a++) {
        for (int64_t b = 0; b < j->conv->kernel[1]; b++) {
            if (sees(j, is_to_x, 0, v->start[0], a, &h) &&
                sees(j, is_to_x, 1, v->start[1], b, &w)) {
                j->tap_at[v->first + v->taps] =
                    tt_window_at(&j->window, h, w) / (int64_t)sizeof(float);
                j->tap[v->first + v->taps++] = a * j->conv->kernel[1] + b;
            }
        }
    }
}

static void list_views(job_t *j, bool is_to_x, const int64_t phases[2])
{
    int64_t first = 0;
    for (int64_t i = 0; i < j->views; i++) {
        view_t *v = &j->view[i];
        *v = (view_t){.start = {i / phases[1], i % phases[1]}, .first = first};
        for (int dim = 0; dim < 2; dim++) {
            v->step[dim] = phases[dim];
            v->count[dim] = tt_pieces_of(j->size[dim] - v->start[dim], phases[dim]);
        }
        list_view(j, is_to_x, v);
        first += v->taps;
    }
}

static void lay_out(job_t *j, int64_t workers, char *block, size_t *bytes)
{
    const int64_t taps = j->conv->kernel[0] * j->conv->kernel[1];
    j->view = tt_conv_part(block, bytes, j->views * (int64_t)sizeof(view_t));
    j->tap_at = tt_conv_part(block, bytes, taps * (int64_t)sizeof(int64_t));
    j->tap = tt_conv_part(block, bytes, taps * (int64_t)sizeof(int64_t));
    j->slots = tt_conv_part(block, bytes, workers * (int64_t)j->slot_bytes);
}

/* Each tap belongs to one view, so that the lists are as long as the kernel has taps. */
static tutti_status_t run(tt_threads_t *threads, job_t *j, bool is_to_x, const int64_t phases[2])
{
    j->ops = tt_kernels()->conv->depthwise;
    j->views = phases[0] * phases[1];
    j->units = j->conv->batch * j->conv->groups;
    j->units_per_piece = units_in(unit_floats(&j->window), j->units);
    size_t slot = 0, bytes = 0;
    tt_conv_reserve(&slot, j->units_per_piece * tt_window_unit_bytes(&j->window) + TT_CONV_SLACK);
    j->slot_bytes = slot;
    const int64_t pieces = j->units == 0 ? 0 : tt_pieces_of(j->units, j->units_per_piece);
    const int64_t workers = tt_min(tt_threads_count(threads), pieces);
    lay_out(j, workers, NULL, &bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    bytes = 0;
    lay_out(j, workers, block, &bytes);
    list_views(j, is_to_x, phases);
    tt_threads_run(threads, (size_t)workers, correlate_piece, j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}

tutti_status_t tt_depthwise_forward(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                    const float *weight, const float *bias, float *y)
{
    job_t j = {.conv = conv,
               .window = tt_conv_window(conv),
               .size = {conv->out_size[0], conv->out_size[1]},
               .image = x,
               .weight = weight,
               .bias = bias,
               .out = y};
    return run(threads, &j, false, (int64_t[]){1, 1});
}

tutti_status_t tt_depthwise_to_x(tt_threads_t *threads, const tt_conv_t *conv, const float *dy,
                                 const float *weight, const float *bias, float *dx)
{
    job_t j = {.conv = conv,
               .window = tt_conv_window_of_dy(conv),
               .size = {conv->size[0], conv->size[1]},
               .image = dy,
               .weight = weight,
               .bias = bias,
               .out = dx};
    const int64_t phases[] = {tt_min(conv->stride[0], conv->size[0]),
                              tt_min(conv->stride[1], conv->size[1])};
    return run(threads, &j, true, phases);
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct {
    const tt_conv_t *conv;
    const tt_depthwise_ops_t *ops;
    tt_window_t window, dy_window; /* of one channel; dy's rows are as long as x's */
    int64_t groups_per_piece, taps, count;
    int64_t *tap_at;
    const float *x, *dy;
    float *dw;
    char *slots; /* of each thread: planes of x, of dy, sums */
    size_t slot_bytes, dy_at, sums_at;
    atomic_size_t next;
} weight_job_t;

/* Some groups of all images. */
static void add_groups(const weight_job_t *j, int64_t first, int64_t groups, char *slot)
{
    const tt_conv_t *c = j->conv;
    tt_window_t x = j->window, dy = j->dy_window;
    float *sums = (float *)(void *)(slot + j->sums_at);
    x.channels = dy.channels = groups;
    memset(sums, 0, (size_t)(groups * j->taps * TT_DEPTHWISE_LANES) * sizeof *sums);
    for (int64_t image = 0; image < c->batch; image++) {
        const int64_t unit = image * c->groups + first;
        tt_window_arrange(&x, j->x + unit * c->size[0] * c->size[1], slot);
        tt_window_arrange(&dy, j->dy + unit * c->out_size[0] * c->out_size[1], slot + j->dy_at);
        j->ops->add_weights(&(tt_depthwise_weight_t){
            .units = groups,
            .planes = (const float *)(const void *)slot,
            .dy = (const float *)(const void *)(slot + j->dy_at),
            .unit = unit_floats(&x),
            .dy_unit = unit_floats(&dy),
            .count = j->count,
            .taps = j->taps,
            .tap_at = j->tap_at,
            .sums = sums,
        });
    }
    j->ops->fold(sums, groups * j->taps, j->dw + first * j->taps);
}

static void weight_piece(void *arg, size_t piece)
{
    weight_job_t *j = arg;
    char *slot = j->slots + piece * j->slot_bytes;
    memset(slot, 0, j->sums_at);
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        const int64_t first = next * j->groups_per_piece;
        if (first >= j->conv->groups) {
            return;
        }
        add_groups(j, first, tt_min(j->groups_per_piece, j->conv->groups - first), slot);
    }
}

/* Behind dy's rows zeros to a whole number of lanes. x is read as far, and must have what is no
 * other channel's there, for a zero of dy does not keep out a NaN. */
static void plan_weights(weight_job_t *j)
{
    const tt_conv_t *c = j->conv;
    const int64_t pitch = j->window.plane_size[1], lanes = TT_DEPTHWISE_LANES;
    j->window.plane_size[0] += tt_pieces_of(lanes, pitch) + 1;
    j->count = tt_pieces_of(c->out_size[0] * pitch, lanes) * lanes;
    j->dy_window = (tt_window_t){.channels = 1,
                                 .size = {c->out_size[0], c->out_size[1]},
                                 .stride = {1, 1},
                                 .phases = {1, 1},
                                 .plane_size = {c->out_size[0] + tt_pieces_of(lanes, pitch), pitch},
                                 .element_bytes = sizeof(float)};
    j->groups_per_piece = units_in(unit_floats(&j->window), c->groups);
    size_t bytes = 0;
    tt_conv_reserve(&bytes, j->groups_per_piece * tt_window_unit_bytes(&j->window));
    j->dy_at = tt_conv_reserve(&bytes, j->groups_per_piece * tt_window_unit_bytes(&j->dy_window));
    j->sums_at =
        tt_conv_reserve(&bytes, j->groups_per_piece * j->taps * lanes * (int64_t)sizeof(float));
    j->slot_bytes = bytes;
}

tutti_status_t tt_depthwise_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const float *x,
                                      const float *dy, float *dw)
{
    weight_job_t j = {.conv = conv,
                      .ops = tt_kernels()->conv->depthwise,
                      .window = tt_conv_window(conv),
                      .taps = conv->kernel[0] * conv->kernel[1],
                      .x = x,
                      .dy = dy,
                      .dw = dw};
    plan_weights(&j);
    const int64_t pieces = tt_pieces_of(conv->groups, j.groups_per_piece);
    const int64_t workers = tt_min(tt_threads_count(threads), pieces);
    size_t bytes = 0;
    const size_t at = tt_conv_reserve(&bytes, j.taps * (int64_t)sizeof(int64_t));
    const size_t slots = tt_conv_reserve(&bytes, workers * (int64_t)j.slot_bytes);
    char *block = tt_threads_borrow(threads, bytes);
    TT_TRY_ALLOC(block);
    j.tap_at = (int64_t *)(void *)(block + at);
    j.slots = block + slots;
    for (int64_t k = 0; k < j.taps; k++) {
        j.tap_at[k] = tt_window_at(&j.window, k / conv->kernel[1] * conv->dilation[0],
                                   k % conv->kernel[1] * conv->dilation[1]) /
                      (int64_t)sizeof(float);
    }
    tt_threads_run(threads, (size_t)workers, weight_piece, &j);
    tt_threads_give_back(threads, block);
    return TUTTI_OK;
}
