/* Distances in tiles of rows and others (distances_simd.c): the others of a tile stay in a cache
 * while the rows go by, and many rows pay for transposing them. A row's gradient is added up by one
 * piece, over others in ascending order. Cost: 2 to 3 n operations for each pair, the same again
 * for each gradient; p but 0, 1, 2 and infinity: a power of each difference. */
#include "core/kernel/distance/distances.h"

#include <string.h>

enum { LEAST_ROWS = 16, PIECES_OF_THREAD = 4 };

typedef void (*tile_fn_t)(const tt_distances_t *job, const tt_distance_tile_t *tile);

typedef struct {
    const tt_distances_t *job;
    tile_fn_t do_tile;
    size_t rows, others; /* of a matrix, as the tiles see them */
    size_t group;        /* rows of a piece */
    char *sums;          /* [batch, rows, n]: tiles add to them; NULL: they do not */
} distance_run_t;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t pieces_of_matrix(const distance_run_t *run)
{
    return (run->rows + run->group - 1) / run->group;
}

/* All others for some rows; of own pairs distances are those to others that come later. */
static void do_rows(const distance_run_t *run, tt_distance_tile_t tile)
{
    const size_t bytes = run->job->is_wide ? 8 : 4, width = run->job->n * bytes;
    if (run->sums != NULL) {
        const size_t at = tile.matrix * run->rows + tile.first;
        memset(run->sums + at * width, 0, (tile.end - tile.first) * width);
    }
    const bool has_pairs = !run->job->is_own || run->rows > 1;
    for (size_t j = 0; j < run->others && has_pairs; j += TT_DISTANCE_OTHERS) {
        tile.from = j;
        tile.to = least(j + TT_DISTANCE_OTHERS, run->others);
        if (!run->job->is_own || run->sums != NULL || tile.to > tile.first) {
            run->do_tile(run->job, &tile);
        }
    }
}

static void do_piece(void *arg, size_t piece)
{
    const distance_run_t *run = arg;
    const size_t each = pieces_of_matrix(run), first = piece % each * run->group;
    const size_t end = least(first + run->group, run->rows);
    for (size_t i = first; i < end; i += TT_DISTANCE_ROWS) {
        do_rows(run, (tt_distance_tile_t){.matrix = piece / each,
                                          .first = i,
                                          .end = least(i + TT_DISTANCE_ROWS, end)});
    }
}

static void run_tiles(tt_threads_t *threads, distance_run_t run)
{
    const size_t pieces = PIECES_OF_THREAD * (size_t)tt_threads_count(threads);
    const size_t each = run.job->batch * run.rows / pieces + 1;
    run.group = each < LEAST_ROWS ? LEAST_ROWS : least(each, TT_DISTANCE_ROWS);
    if (run.rows > 0) {
        tt_threads_run(threads, run.job->batch * pieces_of_matrix(&run), do_piece, &run);
    }
}

static const tt_distances_ops_t *ops_of(const tt_distances_t *job)
{
    return tt_kernels_of(job->is_wide ? TUTTI_F64 : TUTTI_F32)->distances;
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const tt_distances_t *job = arguments;
    run_tiles(threads, (distance_run_t){.job = job,
                                        .do_tile = ops_of(job)->forward,
                                        .rows = job->rows,
                                        .others = job->others});
    return TUTTI_OK;
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const tt_distances_t *job = arguments;
    if (job->dx != NULL) {
        run_tiles(threads, (distance_run_t){.job = job,
                                            .do_tile = ops_of(job)->backward,
                                            .rows = job->rows,
                                            .others = job->others,
                                            .sums = job->dx});
    }
    if (job->dy != NULL) {
        run_tiles(threads, (distance_run_t){.job = job,
                                            .do_tile = ops_of(job)->backward_others,
                                            .rows = job->others,
                                            .others = job->rows,
                                            .sums = job->dy});
    }
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_distances_t, x),
                                        TT_POINTER(tt_distances_t, y),
                                        TT_POINTER(tt_distances_t, d),
                                        TT_POINTER(tt_distances_t, dd),
                                        TT_POINTER(tt_distances_t, dx),
                                        TT_POINTER(tt_distances_t, dy),
                                        TT_NO_POINTER};
TT_LAUNCHER(tt_distances, "distances", tt_distances_t, run_forward, pointers)
TT_LAUNCHER(tt_distances_backward, "distances_backward", tt_distances_t, run_backward, pointers)
