/**
 * @file own_optimizer.h
 * An optimizer of your own: a table of its options, its moments and its update. It then has what
 * Tutti's own have, for they are such tables: groups, schedules, clipping, loss scaling, f32
 * masters of 16-bit parameters, saving, checkpoints, the step inside DDP's backward.
 *
 * Example:
 *
 *     typedef struct { double lr, momentum; } heavy_ball_options_t;
 *     static const tutti_optim_option_t heavy_ball_options[] = {
 *         {"lr", offsetof(heavy_ball_options_t, lr), 0.01, 0, INFINITY},
 *         {"momentum", offsetof(heavy_ball_options_t, momentum), 0.9, 0, 1},
 *         {NULL, 0, 0, 0, 0}};
 *     static void heavy_ball_update(const tutti_optim_piece_t *piece)
 *     {
 *         const heavy_ball_options_t *o = (const heavy_ball_options_t *)piece->options;
 *         float *b = piece->moments[0];
 *         for (size_t i = 0; i < piece->count; i++) {
 *             b[i] = (float)o->momentum * b[i] + piece->gradient[i];
 *             piece->weight[i] -= (float)piece->lr * b[i];
 *         }
 *     }
 *
 *     const tutti_optim_ops_t heavy_ball = {.name = "heavy_ball", .about = "momentum alone",
 *         .options_bytes = sizeof(heavy_ball_options_t), .options = heavy_ball_options,
 *         .moments = {"buffer"}, .update = heavy_ball_update};
 *     tutti_optim_t *opt;
 *     TUTTI_CHECK(tutti_optim_create(ctx, &heavy_ball, NULL, &opt));
 *     TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_optim_release(opt);
 *
 * A step of a parameter is cut, by the number of its elements alone, into parts that several
 * threads take; so its bits depend on no number of threads:
 *
 *     measure   where there is one: sums over the parameter, a section at a time
 *     (sums)    those of the sections are added in f64, in the order of the sections
 *     update    changes weight and moments, a part at a time, and may read the sums
 *
 * What a section or part holds is a row of elements of one parameter: all of it, or what one rank
 * of a sharded parameter has of it. Sections are at most TUTTI_OPTIM_SECTIONS_MAX, of equal size,
 * so a shard that ends between two of them can be measured by its rank: the numbers that ranks
 * exchange are the sections' sums. LAMB is such a measure. Adafactor is not, for its moments are
 * sums over rows and columns: it sets `wants_whole`.
 */
#ifndef TUTTI_OWN_OPTIMIZER_H
#define TUTTI_OWN_OPTIMIZER_H

#include <math.h>
#include <stddef.h>

#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TUTTI_OPTIM_MOMENTS_MAX = 8,          /**< moments of a kind of optimizer */
    TUTTI_OPTIM_SUMS_MAX = 4,             /**< sums that a measure makes */
    TUTTI_OPTIM_SECTIONS_MAX = 256,       /**< what a parameter is measured in */
    TUTTI_OPTIM_SECTION = 16384,          /**< elements of one at least, but for the last */
    TUTTI_OPTIM_OPTIONS_BYTES_MAX = 1024, /**< of a struct of options: steps take a copy along */
};

/** An option that is a number: a double in the struct of options. Others, such as flags, need no
 *  row. The one that is called "lr" is the learning rate; there must be one. */
typedef struct tutti_optim_option {
    const char *name;  /**< as in the text of errors; NULL ends a table */
    size_t offset;     /**< offsetof(my_options_t, lr) */
    double fallback;   /**< what 0 means; TUTTI_ZERO is the number 0 */
    double min, below; /**< min <= value < below; an infinite one: any finite number */
} tutti_optim_option_t;

/** A part of a parameter in one step. Everything is borrowed until the function returns. */
typedef struct tutti_optim_piece {
    tutti_context_t *ctx; /**< the optimizer's; NULL for a parameter on an accelerator, whose
                               stream calls, maybe after tutti_optim_step() has returned */
    const void *options;  /**< of the parameter's group, with fallbacks put in */
    double lr;            /**< of the group, by now; the one in the options is where it began */
    int64_t step;         /**< of this parameter, from 1 on */
    tutti_shape_t shape;  /**< of the whole parameter */
    size_t first, count;  /**< which elements of it stand here */
    float *weight;        /**< [count]; of a 16-bit parameter its f32 master */
    const float *gradient;
    float *moments[TUTTI_OPTIM_MOMENTS_MAX]; /**< [count] each, 0 at first; NULL: has_moment said
                                                  no */
    const double *sums; /**< [TUTTI_OPTIM_SUMS_MAX] of the parameter, for update; NULL without
                             measure */
} tutti_optim_piece_t;

/**
 * A kind of optimizer. Functions hold no state of their own: several threads call them at a time,
 * each with another part, and no part may depend on another; they cannot fail.
 */
struct tutti_optim_ops {
    const char *name;     /**< "adam"; saved with the state, which no other kind loads */
    const char *about;    /**< a line about it; may be NULL */
    size_t options_bytes; /**< at most TUTTI_OPTIM_OPTIONS_BYTES_MAX */
    const tutti_optim_option_t *options; /**< ended by a row without a name */

    /** Names of the moments, in files "<parameter>.<moment>": no dot in it, not "step" and not
     *  "master"; NULL behind the last. */
    const char *moments[TUTTI_OPTIM_MOMENTS_MAX];

    /** Options as they were given, before the table's fallbacks and ranges: check what belongs
     *  together, set what follows from others. A failure is handed on by tutti_optim_create();
     *  tutti_fail() gives it a text. NULL: nothing. */
    tutti_status_t (*resolve)(void *options);

    /** Whether a parameter has moment i, and its shape, which is the parameter's unless
     *  `wants_whole`. NULL: all, of the parameter's shape. Pure. */
    bool (*has_moment)(const void *options, int i, tutti_shape_t *shape);

    /** Add to sums [TUTTI_OPTIM_SUMS_MAX], which are 0 at first, those of one section. It may
     * change moments, not the weight. NULL: there are no sums. */
    void (*measure)(const tutti_optim_piece_t *section, double *sums);

    /** Change weight and moments. Required. */
    void (*update)(const tutti_optim_piece_t *piece);

    /** update is called once, in one thread, with the whole parameter; there it may use
     *  tutti_parallel_for() of piece->ctx, unless that is NULL. Such a kind cannot step a shard; it
     * has no measure. */
    bool wants_whole;
};

#ifdef __cplusplus
}
#endif

#endif
