/* The contract of an optimizer, and the inside of one. Adding an optimizer is one file in this
 * folder, one line in optimizers.def, one in optim.h.
 *
 * An optimizer works on flat pieces: a parameter, its gradient and its moments are the same number
 * of f32 in a row. What a piece is a part of does not matter to it (a whole tensor, a ZeRO shard),
 * unless it says `wants_whole`: norms of the parameter, or moments of another shape, are its
 * matter.
 */
#ifndef TT_OPTIMIZER_H
#define TT_OPTIMIZER_H

#include <tutti/optim.h>

#include "core/base/fail.h"
#include "core/base/pool.h"

enum { TT_MOMENTS_MAX = 4, TT_OPTIM_OPTIONS_BYTES = 96 };

/* One step of one piece. */
typedef struct {
    tt_pool_t *pool;
    const void *options; /* of the group, with the defaults put in */
    double lr;
    int64_t step; /* of this piece, from 1 on */
    size_t count;
    tutti_shape_t shape; /* of the whole parameter */
    float *weight;
    const float *gradient;
    float *moments[TT_MOMENTS_MAX]; /* zero at step 1; NULL where the options want none */
} tt_optim_piece_t;

struct tutti_optim_ops {
    const char *name, *about;
    size_t options_bytes;
    const char *moments[TT_MOMENTS_MAX]; /* names; NULL behind the last */

    /* Put in the defaults and check. ARG names option, value and range. */
    tutti_status_t (*resolve)(void *options);
    /* The learning rate in the options. */
    double (*lr)(const void *options);
    /* Whether moment i is wanted for a parameter; may change the shape to the moment's. */
    bool (*has_moment)(const void *options, int i, tutti_shape_t *shape);
    void (*update)(const tt_optim_piece_t *piece);
    bool wants_whole; /* a piece must be a whole parameter */
};

/* Every kind in optimizers.def, and every schedule in schedules.def. */
extern const tutti_optim_ops_t *const tt_optimizers[];
extern const size_t tt_optimizer_count;

typedef struct {
    const char *name, *about;
    tutti_status_t (*check)(const tutti_schedule_t *schedule);
    double (*lr)(const tutti_schedule_t *schedule, int64_t step);
} tt_schedule_ops_t;

extern const tt_schedule_ops_t *const tt_schedules[];
extern const size_t tt_schedule_count;

typedef struct {
    char *name;
    tutti_tensor_t *tensor;
    int group;
    int64_t step;                            /* times it was changed */
    tutti_tensor_t *moments[TT_MOMENTS_MAX]; /* from the first change on */

    /* Of a 16-bit parameter (master.c), f32; NULL for others. */
    tutti_tensor_t *master;      /* what steps change, from the first one on */
    uint32_t version;            /* of the parameter, as the master was last rounded into it */
    bool is_master_loaded;       /* it has not met the parameter yet */
    tutti_tensor_t *wide_grad;   /* f32 of narrow_grad at narrow_version, clipped and unscaled */
    tutti_tensor_t *narrow_grad; /* retained */
    uint32_t narrow_version;
} tt_optim_slot_t;

typedef struct {
    double lr, ratio;                                  /* to group 0's */
    _Alignas(16) char options[TT_OPTIM_OPTIONS_BYTES]; /* resolved */
} tt_optim_group_t;

struct tutti_optim {
    const tutti_optim_ops_t *ops;
    tutti_context_t *ctx;
    tt_optim_group_t *groups;
    int group_count;
    tt_optim_slot_t *slots;
    size_t slot_count;
    const char *driver; /* who steps it inside backward, a literal; NULL: nobody does */
};

/* STATE if a driver steps the optimizer: `call` comes too late then. */
tutti_status_t tt_optim_check_free(const tutti_optim_t *opt, const char *call);

/* A parameter's slot, -1 if it has none; the step of one slot, as in tutti_optim_step. */
int tt_optim_find(const tutti_optim_t *opt, const tutti_tensor_t *x);
tutti_status_t tt_optim_step_slot(tutti_optim_t *opt, int slot);

/* The gradient as f32 in a row, borrowed; NULL if there is none. What is written to it is what is
 * stepped; who writes it touches it. */
tutti_status_t tt_optim_flat_grad(tutti_optim_t *opt, tt_optim_slot_t *slot, tutti_tensor_t **out);

/* Of a 16-bit parameter: make its master, or bring it up to date; round it into the parameter
 * behind a step; release it, and the wide gradient. Others are left alone. */
tutti_status_t tt_optim_prepare_master(tutti_optim_t *opt, tt_optim_slot_t *slot);
void tt_optim_round_master(tutti_optim_t *opt, tt_optim_slot_t *slot);
void tt_optim_release_master(tt_optim_slot_t *slot);

/* Multiply all gradients; whether every element was finite before. */
tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, bool *is_finite);

/* Whether a slot's options want moment i, and its shape. */
bool tt_optim_wants_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                           tutti_shape_t *shape);

/* Make the moments that a slot's options want and that it has not yet. */
tutti_status_t tt_optim_ensure_moments(tutti_optim_t *opt, tt_optim_slot_t *slot);

/* ARG unless low <= value < high; for `resolve`. */
tutti_status_t tt_optim_check_range(const char *optimizer, const char *option, double value,
                                    double low, double high);

#endif
