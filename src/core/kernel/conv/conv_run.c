/* Tiles of a convolution (conv_correlation.h): gathered, multiplied, stored. What goes where is in
 * conv.c. */
#include "core/kernel/conv/conv_correlation.h"

#include <string.h>

/* Positions that are a tile's rows, of one image or of neighbours; and the steps that see more than
 * padding. */
typedef struct {
    int64_t image, position; /* of the first row: image of the piece, position in it */
    int rows;
    int64_t row_at[TT_CONV_ROWS_MAX]; /* in the run's planes */
    int64_t first, end;
} place_t;

/* Places that are worked on together, and their sums: [block of the run, place, tile]. */
typedef struct {
    const tt_correlation_t *c;
    const tt_conv_view_t *view;
    int64_t image, positions; /* the piece's first image; of a view's result */
    const char *planes;       /* of the first image */
    int64_t plane_bytes;      /* from image to image */
    int count;
    place_t places[TT_CONV_RUN_PLACES];
    float *panels, *sums;
    int64_t block, blocks; /* of columns */
} run_t;

static float *tile_of(const run_t *r, int64_t block, int place)
{
    return r->sums + ((block - r->block) * TT_CONV_RUN_PLACES + place) * TT_CONV_TILE_FLOATS;
}

static void *result_at(const run_t *r, int64_t image, int64_t block, int64_t position)
{
    const tt_correlation_t *c = r->c;
    const int64_t channel =
        (r->image + image * c->conv->groups) * c->channels + block * c->ops->columns;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(c->conv->out_dtype);
    return c->out + (channel * c->positions + position) * bytes;
}

/* Positions are stored together as far as they are equally far apart: those of an image, or those
 * of a row. */
static void store(const run_t *r, const place_t *p, int64_t block, const float *tile)
{
    const tt_correlation_t *c = r->c;
    const tt_conv_phase_t *down = r->view->phase[0], *across = r->view->phase[1];
    const bool is_whole = down->step == 1 && across->step == 1;
    int64_t image = p->image, i = p->position / across->count, j = p->position % across->count;
    for (int done = 0; done < p->rows;) {
        const int64_t left = (is_whole ? down->count - i : 1) * across->count - j;
        const int rows = (int)tt_min(p->rows - done, left);
        const int64_t position =
            (down->start + i * down->step) * c->size[1] + across->start + j * across->step;
        c->ops->store(&(tt_conv_store_t){
            .rows = rows,
            .columns = (int)tt_correlation_columns(c, block),
            .tile = tile + (ptrdiff_t)done * c->ops->columns,
            .dtype = c->conv->out_dtype,
            .out = result_at(r, image, block, position),
            .step = across->step,
            .ld = c->positions,
        });
        done += rows;
        j = 0;
        if (is_whole || ++i == down->count) {
            i = 0;
            image++;
        }
    }
}

/* Whether a row of the kernel sees the image from a row of positions among [first, last]. */
static bool sees_image(const tt_correlation_t *c, const tt_conv_reach_t *reach, int64_t first,
                       int64_t last)
{
    const int64_t stride = c->window.stride[0], in_front = c->window.before[0];
    return last * stride + reach->place >= in_front &&
           first * stride + reach->place < in_front + c->window.size[0];
}

/* Rows of the kernel follow each other in the steps: those that see padding only are at an end. */
static void find_steps(const run_t *r, place_t *p)
{
    const tt_conv_phase_t *down = r->view->phase[0], *across = r->view->phase[1];
    const bool is_in_one = p->position + p->rows <= r->positions;
    const int64_t first = is_in_one ? p->position / across->count : 0;
    const int64_t last = is_in_one ? (p->position + p->rows - 1) / across->count : down->count - 1;
    int64_t from = 0, end = down->reaches;
    while (from < end && !sees_image(r->c, &down->reach[from], first, last)) {
        from++;
    }
    while (from < end && !sees_image(r->c, &down->reach[end - 1], first, last)) {
        end--;
    }
    p->first = from * r->c->units * across->reaches;
    p->end = end * r->c->units * across->reaches;
}

/* Steps [first, end) of the view. */
typedef struct {
    int64_t first, end;
} steps_t;

static steps_t steps_of(const place_t *p, steps_t among)
{
    const int64_t first = p->first > among.first ? p->first : among.first;
    const int64_t end = tt_min(p->end, among.end);
    return (steps_t){first, end > first ? end : first};
}

static float *panel_of(const run_t *r, int place)
{
    return r->panels + (int64_t)place * TT_CONV_RUN_STEPS * TT_CONV_PITCH;
}

/* Rows that lie side by side. */
static int list_pieces(const run_t *r, int place, tt_conv_piece_t *to)
{
    const place_t *p = &r->places[place];
    int pieces = 0;
    for (int row = 0; row < p->rows; row++) {
        if (row > 0 && p->row_at[row] == p->row_at[row - 1] + 4) {
            to[pieces - 1].count++;
        } else {
            to[pieces++] =
                (tt_conv_piece_t){r->planes + p->row_at[row], 1, panel_of(r, place) + row};
        }
    }
    return pieces;
}

/* Places with the same steps go together, for their rows are neighbours. */
static void gather(const run_t *r, steps_t among)
{
    tt_conv_piece_t list[TT_CONV_RUN_PLACES * TT_CONV_ROWS_MAX];
    tt_conv_gather_t g = {.piece = list};
    for (int place = 0; place < r->count; place++) {
        const bool is_last = place + 1 == r->count;
        const steps_t steps = steps_of(&r->places[place], among);
        const steps_t next = is_last ? (steps_t){-1, -1} : steps_of(&r->places[place + 1], among);
        g.pieces += list_pieces(r, place, list + g.pieces);
        if (next.first != steps.first || next.end != steps.end) {
            g.step_at = r->c->step_at + r->view->first_step + steps.first;
            g.steps = steps.end - steps.first;
            r->c->ops->gather(&g);
            g.pieces = 0;
        }
    }
}

/* The chain goes on where the steps before left it. */
static void multiply(const run_t *r, int place, int64_t block, steps_t among)
{
    const tt_correlation_t *c = r->c;
    const place_t *p = &r->places[place];
    const int64_t at = r->image % c->conv->groups * c->blocks + block;
    const steps_t steps = steps_of(p, among);
    tt_conv_tile_t t = {
        .rows = p->rows,
        .is_narrow = 2 * tt_correlation_columns(c, block) <= c->ops->columns,
        .row_at = c->is_gathered ? NULL : p->row_at,
        .step_at = c->step_at + r->view->first_step + steps.first,
        .steps = steps.end - steps.first,
        .planes = c->is_gathered ? (const char *)panel_of(r, place) : r->planes,
        .b = c->weights + (at * c->steps + r->view->first_step + steps.first) * c->ops->columns,
        .start = c->biases + at * c->ops->columns,
        .tile = tile_of(r, block, place),
    };
    if (among.first > 0) {
        t.start = t.tile;
        t.start_pitch = c->ops->columns;
    }
    (c->window.in_pairs ? c->ops->multiply_bf16 : c->ops->multiply_f32)(&t);
}

/* All steps of some blocks of columns. */
static void correlate_blocks(const run_t *r)
{
    const int64_t all = r->c->units * r->view->phase[0]->reaches * r->view->phase[1]->reaches;
    steps_t steps = {0, 0};
    do {
        steps = (steps_t){steps.end, tt_min(steps.end + TT_CONV_RUN_STEPS, all)};
        if (r->c->is_gathered && (r->block == 0 || all > TT_CONV_RUN_STEPS)) {
            gather(r, steps);
        }
        for (int64_t block = r->block; block < r->block + r->blocks; block++) {
            for (int place = 0; place < r->count; place++) {
                multiply(r, place, block, steps);
                if (steps.end == all) {
                    store(r, &r->places[place], block, tile_of(r, block, place));
                }
            }
        }
    } while (steps.end < all);
}

static void correlate_run(run_t *r)
{
    for (r->block = 0; r->block < r->c->blocks; r->block += r->blocks) {
        r->blocks = tt_min(TT_CONV_RUN_BLOCKS, r->c->blocks - r->block);
        correlate_blocks(r);
    }
    r->count = 0;
}

static void correlate_view(run_t *r, int64_t images)
{
    const int64_t *row_at = r->c->row_at + r->view->first_position;
    int64_t image = 0, position = 0;
    r->positions = r->view->phase[0]->count * r->view->phase[1]->count;
    while (image < images) {
        place_t *p = &r->places[r->count++];
        p->image = image;
        p->position = position;
        for (p->rows = 0; p->rows < r->c->ops->rows && image < images; p->rows++) {
            p->row_at[p->rows] = image * r->plane_bytes + row_at[position++];
            if (position == r->positions) {
                position = 0;
                image++;
            }
        }
        find_steps(r, p);
        if (r->count == TT_CONV_RUN_PLACES) {
            correlate_run(r);
        }
    }
    correlate_run(r);
}

/* Some images of a group. */
static void correlate_images(run_t *r, int64_t images, char *slot)
{
    const tt_correlation_t *c = r->c;
    const int64_t bytes = c->window.channels * c->window.size[0] * c->window.size[1] *
                          (int64_t)c->window.element_bytes;
    const char *image = c->image + r->image * bytes;
    r->planes = image;
    r->plane_bytes = c->conv->groups * bytes;
    if (!tt_window_is_image(&c->window)) {
        r->planes = slot;
        r->plane_bytes = tt_window_bytes(&c->window);
        for (int64_t i = 0; i < images; i++) {
            tt_window_arrange(&c->window, image + i * c->conv->groups * bytes,
                              slot + i * r->plane_bytes);
        }
    }
    for (int64_t i = 0; i < images; i++) {
        tt_correlation_clear(c, r->image + i * c->conv->groups);
    }
    for (r->view = c->views; r->view < c->views_end; r->view++) {
        correlate_view(r, images);
    }
}

void tt_correlation_piece(void *arg, size_t piece)
{
    tt_correlation_t *c = arg;
    char *slot = c->slots + piece * c->slot_bytes;
    run_t run = {.c = c,
                 .panels = (float *)(void *)(slot + c->panels_at),
                 .sums = (float *)(void *)(slot + c->sums_at)};
    memset(slot, 0, c->panels_at);
    for (;;) {
        const int64_t next = (int64_t)atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (next >= c->pieces) {
            return;
        }
        const int64_t first = next / c->conv->groups * c->images_per_piece;
        run.image = first * c->conv->groups + next % c->conv->groups;
        correlate_images(&run, tt_min(c->images_per_piece, c->conv->batch - first), slot);
    }
}
