/* Sampling at the places of a grid. Threads take parts: of y and of the grid's gradient some points
 * of a sample, of dx some channels of one, so that each element is one thread's. Of y channels are
 * dealt out, too, where there are few points; each part finds its taps itself.
 * Cost: a gather for each tap of an element of y, and of dx a scatter; the grid's gradient is one
 * gather for each, whatever the number of dimensions. Scratch of a thread: the taps of 64 points,
 * 100 KB, or 180 KB in f64. */
#include "core/kernel/pool/grid_sample.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/kernel/pool/grid_sample_ops.h"
#include "core/kernel/pool/interpolate_ops.h"

enum { POINTS = TT_GRID_POINTS, CELLS = TT_GRID_TAPS * TT_GRID_POINTS };

typedef struct {
    tt_grid_sample_t t;
    const void *x, *dy, *grid;
    void *to; /* y, dx or dgrid */
} operands_t;

/* A part: points from the first to the end, and channels, of a sample. */
typedef struct {
    int64_t sample, point, points, channel, channels;
} part_t;

/* Memory of a thread. */
typedef struct {
    tt_taps_t taps;
    void *dots, *slopes[3];
} room_t;

typedef struct job {
    const operands_t *a;
    const tt_grid_sample_ops_t *ops;
    const tt_interpolate_ops_t *sums;
    void (*run)(const struct job *job, room_t *room, part_t part);
    int64_t runs, blocks; /* of channels, and of points, in a sample */
    int64_t run_channels, block_points, volume;
    size_t bytes;
    char *scratch;
    size_t scratch_bytes;
    _Atomic int64_t next;
} job_t;

static const char *at(const job_t *job, const void *from, int64_t element)
{
    return (const char *)from + (size_t)element * job->bytes;
}

static char *at_to(const job_t *job, int64_t element)
{
    return (char *)job->a->to + (size_t)element * job->bytes;
}

/* Elements before those of a channel, in planes of a size. */
static int64_t channel_of(const job_t *job, part_t p, int64_t channel, int64_t plane)
{
    return (p.sample * job->a->t.channels + channel) * plane;
}

static void find(const job_t *job, room_t *room, part_t p, bool has_slopes)
{
    const tt_grid_sample_t *t = &job->a->t;
    const int64_t place = (p.sample * t->points + p.point) * t->dims;
    job->ops->find_taps(t, at(job, job->a->grid, place), p.points, &room->taps,
                        has_slopes ? room->slopes : NULL);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void sample_part(const job_t *job, room_t *room, part_t p)
{
    const int64_t points = job->a->t.points;
    find(job, room, p, false);
    for (int64_t c = p.channel; c < p.channel + p.channels; c++) {
        job->sums->blend_columns(at_to(job, channel_of(job, p, c, points) + p.point),
                                 at(job, job->a->x, channel_of(job, p, c, job->volume)),
                                 &room->taps);
    }
}

/* All points, some at a time. */
static void spread_part(const job_t *job, room_t *room, part_t all)
{
    part_t p = all;
    memset(at_to(job, channel_of(job, p, p.channel, job->volume)), 0,
           (size_t)(p.channels * job->volume) * job->bytes);
    for (p.point = 0; p.point < all.points; p.point += POINTS) {
        p.points = tt_min(POINTS, all.points - p.point);
        find(job, room, p, false);
        for (int64_t c = p.channel; c < p.channel + p.channels; c++) {
            const int64_t from = channel_of(job, p, c, all.points) + p.point;
            job->ops->spread(at_to(job, channel_of(job, p, c, job->volume)),
                             at(job, job->a->dy, from), &room->taps);
        }
    }
}

/* All channels. */
static void slopes_part(const job_t *job, room_t *room, part_t p)
{
    const tt_grid_sample_t *t = &job->a->t;
    find(job, room, p, true);
    memset(room->dots, 0, (size_t)(room->taps.most * POINTS) * job->bytes);
    for (int64_t c = 0; c < p.channels; c++) {
        job->ops->add_dots(room->dots,
                           at(job, job->a->dy, channel_of(job, p, c, t->points) + p.point),
                           at(job, job->a->x, channel_of(job, p, c, job->volume)), &room->taps);
    }
    job->ops->sum_slopes(at_to(job, (p.sample * t->points + p.point) * t->dims), t->dims,
                         room->dots, room->slopes, &room->taps);
}

/* ---- all parts ------------------------------------------------------------------------------- */

static room_t lay_room(char *scratch, size_t bytes)
{
    room_t room = {.taps = {.stride = POINTS, .weight = scratch}};
    room.dots = scratch + CELLS * bytes;
    for (size_t i = 0; i < 3; i++) {
        room.slopes[i] = scratch + (i + 2) * CELLS * bytes;
    }
    room.taps.index = (int32_t *)(void *)(scratch + 5 * CELLS * bytes);
    return room;
}

static part_t part_of(const job_t *job, int64_t number)
{
    const int64_t each = job->runs * job->blocks;
    const int64_t block = number / job->runs % job->blocks, run = number % job->runs;
    part_t p = {number / each, block * job->block_points, 0, run * job->run_channels, 0};
    p.points = tt_min(job->block_points, job->a->t.points - p.point);
    p.channels = tt_min(job->run_channels, job->a->t.channels - p.channel);
    return p;
}

static int64_t count_parts(const job_t *job)
{
    return job->a->t.batch * job->runs * job->blocks;
}

static void run_piece(void *arg, size_t piece)
{
    job_t *job = arg;
    room_t room = lay_room(job->scratch + piece * job->scratch_bytes, job->bytes);
    int64_t number;
    while ((number = atomic_fetch_add(&job->next, 1)) < count_parts(job)) {
        job->run(job, &room, part_of(job, number));
    }
}

/* Channels in runs, so that there is work for all threads: no sum goes over runs. */
static void deal_channels(job_t *job, int threads)
{
    const int64_t channels = job->a->t.channels, parts = job->a->t.batch * job->blocks;
    const int64_t wanted = tt_min(tt_pieces_of(4 * (int64_t)threads, tt_max(parts, 1)), channels);
    job->run_channels = tt_pieces_of(channels, tt_max(wanted, 1));
    job->runs = job->run_channels == 0 ? 0 : tt_pieces_of(channels, job->run_channels);
}

static tutti_status_t run(tt_threads_t *threads, job_t *job)
{
    const tt_grid_sample_t *t = &job->a->t;
    job->ops = tt_kernels_of(t->dtype)->grid_sample;
    job->sums = tt_kernels_of(t->dtype)->interpolate;
    job->bytes = tutti_dtype_bytes(t->dtype);
    job->volume = t->size[0] * t->size[1] * t->size[2];
    if (count_parts(job) == 0) {
        return TUTTI_OK;
    }
    job->scratch_bytes = CELLS * (5 * job->bytes + sizeof(int32_t));
    const size_t workers = (size_t)tt_min(tt_threads_count(threads), count_parts(job));
    job->scratch = tt_threads_borrow(threads, workers * job->scratch_bytes);
    TT_TRY_ALLOC(job->scratch);
    tt_threads_run(threads, workers, run_piece, job);
    tt_threads_give_back(threads, job->scratch);
    return TUTTI_OK;
}

static job_t points_job(const operands_t *a)
{
    return (job_t){.a = a,
                   .block_points = POINTS,
                   .blocks = tt_pieces_of(a->t.points, POINTS),
                   .run_channels = a->t.channels,
                   .runs = 1};
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static tutti_status_t run_sample(tt_threads_t *threads, const void *arguments)
{
    job_t job = points_job(arguments);
    job.run = sample_part;
    deal_channels(&job, tt_threads_count(threads));
    return run(threads, &job);
}

static tutti_status_t run_spread(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    job_t job = {.a = a, .run = spread_part, .block_points = a->t.points, .blocks = 1};
    deal_channels(&job, tt_threads_count(threads));
    return run(threads, &job);
}

static tutti_status_t run_slopes(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    job_t job = points_job(a);
    if (a->t.mode == TT_GRID_NEAREST) {
        const int64_t elements = a->t.batch * a->t.points * a->t.dims;
        memset(a->to, 0, (size_t)elements * tutti_dtype_bytes(a->t.dtype));
        return TUTTI_OK;
    }
    job.run = slopes_part;
    return run(threads, &job);
}

static const tt_pointer_t pointers[] = {TT_POINTER(operands_t, x), TT_POINTER(operands_t, dy),
                                        TT_POINTER(operands_t, grid), TT_POINTER(operands_t, to),
                                        TT_NO_POINTER};
static const tt_kernel_t sample_kernel = TT_KERNEL("grid_sample", operands_t, run_sample, pointers);
static const tt_kernel_t spread_kernel = TT_KERNEL("grid_spread", operands_t, run_spread, pointers);
static const tt_kernel_t slopes_kernel = TT_KERNEL("grid_slopes", operands_t, run_slopes, pointers);

tutti_status_t tt_grid_sample(tt_exec_t *exec, const tt_grid_sample_t *t, const void *x,
                              const void *grid, void *y)
{
    return tt_launch(exec, &sample_kernel, &(operands_t){*t, x, NULL, grid, y});
}

tutti_status_t tt_grid_spread(tt_exec_t *exec, const tt_grid_sample_t *t, const void *dy,
                              const void *grid, void *dx)
{
    return tt_launch(exec, &spread_kernel, &(operands_t){*t, NULL, dy, grid, dx});
}

tutti_status_t tt_grid_slopes(tt_exec_t *exec, const tt_grid_sample_t *t, const void *dy,
                              const void *x, const void *grid, void *dgrid)
{
    return tt_launch(exec, &slopes_kernel, &(operands_t){*t, x, dy, grid, dgrid});
}
