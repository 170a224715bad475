/* Batch norm and group norm over segments (channels_simd.c). Threads take channels, or groups, so
 * that every sum is one thread's.
 * Cost: a channel's statistics read it twice, and the result once more; of these only the first
 * comes from memory while a channel fits the cache. A residual and relu of a batch norm are one
 * read more, instead of a pass each.
 *
 * A sum of a block is rounded, by as much as 10⁻⁵ of a mean far from 0. The differences from that
 * mean are small and exact: their own mean corrects it, and the variance. Source: Chan, Golub and
 * LeVeque, "Algorithms for Computing the Sample Variance" (1983), the corrected two-pass algorithm.
 */
#include "core/kernel/norm/channels.h"

#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/channels_ops.h"

enum { PIECE = 16384 };

static double value_or(const double *array, size_t at, double otherwise)
{
    return array == NULL ? otherwise : array[at];
}

typedef struct {
    double mean, variance;
} moments_t;

/* A mean as the kernels take it. */
static double rounded(double mean, tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? mean : (double)(float)mean;
}

/* From the sums of differences from about the mean, and of their squares. */
static moments_t moments_of(double about, const double sums[2], double count)
{
    const double mean = sums[0] / count, shift = isfinite(mean) ? mean : 0;
    const double variance = sums[1] / count - shift * shift;
    return (moments_t){about + shift, variance < 0 ? 0 : variance};
}

/* ---- batch norm ------------------------------------------------------------------------------ */

typedef struct {
    const tt_channels_t *c;
    const tt_segments_t *ops;
    size_t bytes; /* of an element */
    size_t group; /* channels of a piece */
    void (*first)(const void *job, size_t channel);
    void (*second)(const void *job, size_t channel); /* or NULL */
} channels_job_t;

/* Some elements further, where there is anything. */
static const void *further(const void *array, size_t bytes)
{
    return array == NULL ? NULL : (const char *)array + bytes;
}

static size_t offset_of(const channels_job_t *job, size_t sample, size_t channel)
{
    return (sample * job->c->channels + channel) * job->c->n * job->bytes;
}

static void measure_channel(const void *arg, size_t channel)
{
    const channels_job_t *job = arg;
    const tt_channels_t *c = job->c;
    const char *x = c->x;
    const double count = (double)c->batch * (double)c->n;
    double sum = 0, sums[2] = {0};
    for (size_t b = 0; b < c->batch; b++) {
        sum += job->ops->sum(x + offset_of(job, b, channel), c->n);
    }
    const double about = count > 0 ? rounded(sum / count, c->dtype) : 0;
    for (size_t b = 0; b < c->batch; b++) {
        job->ops->squares(x + offset_of(job, b, channel), c->n, about, sums);
    }
    const moments_t found = count > 0 ? moments_of(about, sums, count) : (moments_t){0};
    c->mean[channel] = found.mean;
    c->variance[channel] = found.variance;
}

static void normalize_channel(const void *arg, size_t channel)
{
    const channels_job_t *job = arg;
    const tt_channels_t *c = job->c;
    tt_segment_scale_t to = {.mean = c->mean[channel],
                             .factor = value_or(c->gamma, channel, 1) /
                                       sqrt(c->variance[channel] + c->eps),
                             .plus = value_or(c->beta, channel, 0),
                             .relu = c->relu};
    for (size_t b = 0; b < c->batch; b++) {
        const size_t at = offset_of(job, b, channel);
        to.residual = further(c->residual, at);
        job->ops->scale((char *)c->y + at, (const char *)c->x + at, c->n, &to);
    }
}

static void dot_channel(const void *arg, size_t channel)
{
    const channels_job_t *job = arg;
    const tt_channels_t *c = job->c;
    double sums[2] = {0};
    for (size_t b = 0; b < c->batch; b++) {
        const size_t at = offset_of(job, b, channel);
        const tt_segment_grad_t of = {.dy = further(c->dy, at),
                                      .y = c->relu ? further(c->y, at) : NULL,
                                      .dz = c->dz == NULL ? NULL : (char *)c->dz + at};
        job->ops->dot(&of, further(c->x, at), c->n, c->mean[channel], sums);
    }
    c->sum[channel] = sums[0];
    c->dot[channel] = sums[1];
    if (c->dgamma != NULL) {
        c->dgamma[channel] = sums[1] / sqrt(c->variance[channel] + c->eps);
    }
    if (c->dbeta != NULL) {
        c->dbeta[channel] = sums[0];
    }
}

static void slope_channel(const void *arg, size_t channel)
{
    const channels_job_t *job = arg;
    const tt_channels_t *c = job->c;
    const double r = 1 / sqrt(c->variance[channel] + c->eps);
    const double factor = value_or(c->gamma, channel, 1) * r;
    const double share = c->count > 0 ? factor / c->count : 0;
    const tt_segment_slope_t to = {.mean = c->mean[channel],
                                   .of_dy = factor,
                                   .of_x = -share * r * r * c->dot[channel],
                                   .plus = -share * c->sum[channel]};
    for (size_t b = 0; b < c->batch; b++) {
        const size_t at = offset_of(job, b, channel);
        job->ops->slope((char *)c->dx + at, further(c->relu ? c->dz : c->dy, at), further(c->x, at),
                        c->n, &to);
    }
}

static void channels_piece(void *arg, size_t piece)
{
    const channels_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t i = first; i < first + job->group && i < job->c->channels; i++) {
        job->first(job, i);
        if (job->second != NULL) {
            job->second(job, i);
        }
    }
}

static tutti_status_t run(tt_threads_t *threads, const tt_channels_t *c,
                          void (*first)(const void *, size_t), void (*second)(const void *, size_t))
{
    channels_job_t job = {.c = c,
                          .ops = &tt_kernels_of(c->dtype)->channels->of[c->dtype],
                          .bytes = tutti_dtype_bytes(c->dtype),
                          .group = PIECE / (c->batch * c->n + 1) + 1,
                          .first = first,
                          .second = second};
    tt_threads_run(threads, (c->channels + job.group - 1) / job.group, channels_piece, &job);
    return TUTTI_OK;
}

static tutti_status_t run_measure(tt_threads_t *threads, const void *c)
{
    return run(threads, c, measure_channel, NULL);
}

static tutti_status_t run_normalize(tt_threads_t *threads, const void *c)
{
    return run(threads, c, normalize_channel, NULL);
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *c)
{
    return run(threads, c, measure_channel, normalize_channel);
}

static tutti_status_t run_dot(tt_threads_t *threads, const void *c)
{
    return run(threads, c, dot_channel, NULL);
}

static tutti_status_t run_slope(tt_threads_t *threads, const void *c)
{
    return run(threads, c, slope_channel, NULL);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const tt_channels_t *c = arguments;
    return run(threads, c, dot_channel, c->dx == NULL ? NULL : slope_channel);
}

static const tt_pointer_t channels_pointers[] = {TT_POINTER(tt_channels_t, x),
                                                 TT_POINTER(tt_channels_t, gamma),
                                                 TT_POINTER(tt_channels_t, beta),
                                                 TT_POINTER(tt_channels_t, mean),
                                                 TT_POINTER(tt_channels_t, variance),
                                                 TT_POINTER(tt_channels_t, residual),
                                                 TT_POINTER(tt_channels_t, y),
                                                 TT_POINTER(tt_channels_t, dy),
                                                 TT_POINTER(tt_channels_t, sum),
                                                 TT_POINTER(tt_channels_t, dot),
                                                 TT_POINTER(tt_channels_t, dgamma),
                                                 TT_POINTER(tt_channels_t, dbeta),
                                                 TT_POINTER(tt_channels_t, dz),
                                                 TT_POINTER(tt_channels_t, dx),
                                                 TT_NO_POINTER};
TT_LAUNCHER(tt_channels_measure, "batch_norm_measure", tt_channels_t, run_measure,
            channels_pointers)
TT_LAUNCHER(tt_channels_normalize, "batch_norm_normalize", tt_channels_t, run_normalize,
            channels_pointers)
TT_LAUNCHER(tt_channels_forward, "batch_norm", tt_channels_t, run_forward, channels_pointers)
TT_LAUNCHER(tt_channels_dot, "batch_norm_dot", tt_channels_t, run_dot, channels_pointers)
TT_LAUNCHER(tt_channels_slope, "batch_norm_slope", tt_channels_t, run_slope, channels_pointers)
TT_LAUNCHER(tt_channels_backward, "batch_norm_backward", tt_channels_t, run_backward,
            channels_pointers)

typedef struct {
    size_t n;
    double *to;
    const double *from;
    double weights[2];
} move_t;

static tutti_status_t run_move(tt_threads_t *threads, const void *arguments)
{
    const move_t *move = arguments;
    (void)threads;
    for (size_t i = 0; i < move->n; i++) {
        move->to[i] = move->weights[0] * move->to[i] + move->weights[1] * move->from[i];
    }
    return TUTTI_OK;
}

static const tt_pointer_t move_pointers[] = {TT_POINTER(move_t, to), TT_POINTER(move_t, from),
                                             TT_NO_POINTER};
static const tt_kernel_t move_kernel =
    TT_KERNEL("batch_norm_update", move_t, run_move, move_pointers);

tutti_status_t tt_channels_move(tt_exec_t *exec, size_t n, double *to, const double *from,
                                const double weights[2])
{
    return tt_launch(exec, &move_kernel, &(move_t){n, to, from, {weights[0], weights[1]}});
}

/* ---- group norm ------------------------------------------------------------------------------ */

typedef struct {
    const tt_groups_t *g;
    const tt_segments_t *ops;
    size_t width;  /* channels of a group */
    size_t bytes;  /* of a segment */
    size_t pieces; /* groups of a piece */
    void (*call)(const void *job, size_t row);
} groups_job_t;

static void forward_group(const void *arg, size_t row)
{
    const groups_job_t *job = arg;
    const tt_groups_t *g = job->g;
    const size_t count = job->width * g->n, first = row % g->groups * job->width;
    const char *x = (const char *)g->x + row * job->width * job->bytes;
    char *y = (char *)g->y + row * job->width * job->bytes;
    const double about = rounded(job->ops->sum(x, count) / (double)count, g->dtype);
    double sums[2] = {0};
    job->ops->squares(x, count, about, sums);
    const moments_t found = moments_of(about, sums, (double)count);
    const double r = 1 / sqrt(found.variance + g->eps);
    for (size_t i = 0; i < job->width; i++) {
        const tt_segment_scale_t to = {.mean = found.mean,
                                       .factor = r * value_or(g->gamma, first + i, 1),
                                       .plus = value_or(g->beta, first + i, 0)};
        job->ops->scale(y + i * job->bytes, x + i * job->bytes, g->n, &to);
    }
    g->mean[row] = found.mean;
    g->rstd[row] = r;
}

/* Σ dy and Σ dy x̂ of each channel of the group, and their sums weighted with gamma. */
static void dot_group(const groups_job_t *job, size_t row, double sums[2])
{
    const tt_groups_t *g = job->g;
    const size_t first = row % g->groups * job->width;
    sums[0] = sums[1] = 0;
    for (size_t i = 0; i < job->width; i++) {
        const size_t at = row * job->width + i;
        const tt_segment_grad_t of = {.dy = (const char *)g->dy + at * job->bytes};
        double own[2] = {0};
        job->ops->dot(&of, (const char *)g->x + at * job->bytes, g->n, g->mean[row], own);
        own[1] *= g->rstd[row];
        g->sum[at] = own[0];
        g->dot[at] = own[1];
        sums[0] += value_or(g->gamma, first + i, 1) * own[0];
        sums[1] += value_or(g->gamma, first + i, 1) * own[1];
    }
}

static void backward_group(const void *arg, size_t row)
{
    const groups_job_t *job = arg;
    const tt_groups_t *g = job->g;
    const double count = (double)(job->width * g->n), r = g->rstd[row];
    const size_t first = row % g->groups * job->width;
    double sums[2];
    dot_group(job, row, sums);
    for (size_t i = 0; i < job->width && g->dx != NULL; i++) {
        const size_t at = (row * job->width + i) * job->bytes;
        const tt_segment_slope_t to = {.mean = g->mean[row],
                                       .of_dy = r * value_or(g->gamma, first + i, 1),
                                       .of_x = -r * r * sums[1] / count,
                                       .plus = -r * sums[0] / count};
        job->ops->slope((char *)g->dx + at, (const char *)g->dy + at, (const char *)g->x + at, g->n,
                        &to);
    }
}

static void groups_piece(void *arg, size_t piece)
{
    const groups_job_t *job = arg;
    const size_t rows = job->g->batch * job->g->groups, first = piece * job->pieces;
    for (size_t i = first; i < first + job->pieces && i < rows; i++) {
        job->call(job, i);
    }
}

static tutti_status_t run_groups(tt_threads_t *threads, const tt_groups_t *g,
                                 void (*call)(const void *, size_t))
{
    const size_t width = g->groups == 0 ? 0 : g->channels / g->groups;
    groups_job_t job = {.g = g,
                        .ops = &tt_kernels_of(g->dtype)->channels->of[g->dtype],
                        .width = width,
                        .bytes = g->n * tutti_dtype_bytes(g->dtype),
                        .pieces = PIECE / (width * g->n + 1) + 1,
                        .call = call};
    const size_t rows = g->batch * g->groups;
    tt_threads_run(threads, (rows + job.pieces - 1) / job.pieces, groups_piece, &job);
    return TUTTI_OK;
}

static tutti_status_t run_groups_forward(tt_threads_t *threads, const void *g)
{
    return run_groups(threads, g, forward_group);
}

static tutti_status_t run_groups_backward(tt_threads_t *threads, const void *g)
{
    return run_groups(threads, g, backward_group);
}

static const tt_pointer_t groups_pointers[] = {TT_POINTER(tt_groups_t, x),
                                               TT_POINTER(tt_groups_t, gamma),
                                               TT_POINTER(tt_groups_t, beta),
                                               TT_POINTER(tt_groups_t, mean),
                                               TT_POINTER(tt_groups_t, rstd),
                                               TT_POINTER(tt_groups_t, y),
                                               TT_POINTER(tt_groups_t, dy),
                                               TT_POINTER(tt_groups_t, sum),
                                               TT_POINTER(tt_groups_t, dot),
                                               TT_POINTER(tt_groups_t, dx),
                                               TT_NO_POINTER};
TT_LAUNCHER(tt_groups_forward, "group_norm", tt_groups_t, run_groups_forward, groups_pointers)
TT_LAUNCHER(tt_groups_backward, "group_norm_backward", tt_groups_t, run_groups_backward,
            groups_pointers)
