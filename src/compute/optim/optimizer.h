/* The inside of an optimizer, and what Tutti's own kinds share. The contract of a kind is public
 * (own_optimizer.h); adding one is one file in this folder, one line in optimizers.def, one in
 * optim.h, and a line of updates.def if it goes element by element.
 */
#ifndef TT_OPTIMIZER_H
#define TT_OPTIMIZER_H

#include <tutti/optim.h>
#include <tutti/own_optimizer.h>

#include "core/base/default.h"
#include "core/base/fail.h"
#include "core/base/pointer_set.h"
#include "core/base/threads.h"
#include "core/kernel/kernels.h"
#include "core/kernel/optim/flat.h"
#include "core/kernel/optim/optim_steps.h"
#include "core/tensor/tensor_impl.h"

enum { TT_MOMENTS_MAX = TUTTI_OPTIM_MOMENTS_MAX };

/* A row of a table of options: TT_OPTIM_OPTION(type, field, fallback, min, below). */
#define TT_OPTIM_OPTION(type, field, ...)                                                          \
    {                                                                                              \
#field, offsetof(type, field), __VA_ARGS__                                                 \
    }

/* The buffers of a piece from element i on, and a rule of updates.def over all of it. */
tt_update_buffers_t tt_optim_buffers(const tutti_optim_piece_t *piece, size_t i);
void tt_optim_update(const tutti_optim_piece_t *piece, tt_update_t rule,
                     const tt_update_numbers_t *numbers);

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

typedef enum {
    TT_MASTER_IS_RIGHT,
    TT_MASTER_IS_NEW, /* it becomes the parameter */
    TT_MASTER_MEETS,  /* it becomes the parameter where it does not round to it */
} tt_master_due_t;

typedef struct {
    char *name;
    tutti_tensor_t *tensor;
    int group;
    int64_t step;                            /* times it was changed */
    tutti_tensor_t *moments[TT_MOMENTS_MAX]; /* from the first change on */

    /* Of a 16-bit parameter (master.c), f32; NULL for others. */
    tutti_tensor_t *master; /* what steps change, from the first one on */
    uint32_t version;       /* of the parameter, as the master was last rounded into it */
    bool is_master_loaded;  /* it has not met the parameter yet */
    bool is_current;        /* nobody has written the parameter since; while slices are stepped */
    tt_master_due_t due;    /* of a master on a disk: what the next step does first */

    /* Of a gradient in 16 bits, or with gaps in it (master.c); NULL for others. */
    tutti_tensor_t *flat_grad;  /* f32 of given_grad at given_version, clipped and unscaled */
    tutti_tensor_t *given_grad; /* retained */
    uint32_t given_version;
} tt_optim_slot_t;

typedef struct {
    double lr, ratio; /* to group 0's */
    void *options;    /* resolved */
} tt_optim_group_t;

struct tutti_optim {
    const tutti_optim_ops_t *ops;
    tutti_context_t *ctx;
    tt_optim_group_t *groups;
    int group_count;
    tt_optim_slot_t *slots;
    size_t slot_count, slot_room;
    tt_pointer_set_t seen; /* where there are many: hashes of names, tensors, their storages */
    size_t compared;       /* slots, with new parameters, ever */
    const char *driver;    /* who steps it inside backward, a literal; NULL: nobody does */
    struct tt_optim_offload *offload; /* NULL: state lies where its parameters do */
    const char *decides; /* the call by which the driver, which can undo steps in memory, says
                            what becomes of one, a literal; NULL: steps stay */
    bool is_undecided;   /* the last step may be undone yet */
    bool writes_all;     /* parameters are written without gradients, too (averaged.c) */
};

/* What is stepped of a parameter, and its gradient: all of it, or this rank's slice. */
static inline tutti_tensor_t *tt_optim_weight(const tt_optim_slot_t *slot)
{
    const tt_tensor_slice_t *slice = slot->tensor->slice;
    return slice == NULL ? slot->tensor : slice->values;
}

static inline tutti_tensor_t *tt_optim_grad(const tt_optim_slot_t *slot)
{
    const tt_tensor_slice_t *slice = slot->tensor->slice;
    return slice == NULL ? tutti_tensor_grad(slot->tensor) : slice->grad;
}

/* STATE if a driver steps the optimizer: `call` comes too late then. */
tutti_status_t tt_optim_check_free(const tutti_optim_t *opt, const char *call);

/* STATE while the last step may be undone: nobody reads or writes its state. */
tutti_status_t tt_optim_check_decided(const tutti_optim_t *opt, const char *call);

/* DTYPE unless it is one that is stepped; a module may have been cast since. */
tutti_status_t tt_optim_check_dtype(const tutti_optim_t *opt, const char *name,
                                    const tutti_tensor_t *x);

/* What a kind must have; ARG names it. */
tutti_status_t tt_optim_check_kind(const tutti_optim_ops_t *kind);

/* Options of a kind: `resolve`, fallbacks, ranges. The rate in resolved ones. */
tutti_status_t tt_optim_resolve(const tutti_optim_ops_t *kind, void *options);
double tt_optim_lr_of(const tutti_optim_ops_t *kind, const void *options);

/* A parameter's slot, -1 if it has none; the step of one slot, as in tutti_optim_step. */
int tt_optim_find(const tutti_optim_t *opt, const tutti_tensor_t *x);
tutti_status_t tt_optim_step_slot(tutti_optim_t *opt, int slot);

/* All slots that have a gradient have been stepped so. */
void tt_optim_end_slots(tutti_optim_t *opt);

/* Around what brings other ranks' slices behind such a step, which is no write by somebody: masters
 * stay right. */
void tt_optim_note_current(tutti_optim_t *opt);
void tt_optim_keep_current(tutti_optim_t *opt);

/* tutti_optim_step() by whoever drives it. */
tutti_status_t tt_optim_step_all(tutti_optim_t *opt);

/* A step of a part of a parameter in memory, with its options and sums, now; and what each section
 * of `length` elements measures, into sums [TUTTI_OPTIM_SUMS_MAX] each, one behind another. */
void tt_optim_update_now(const tutti_optim_ops_t *ops, tt_threads_t *threads,
                         const tutti_optim_piece_t *piece);
void tt_optim_measure_now(const tutti_optim_ops_t *ops, tt_threads_t *threads,
                          const tutti_optim_piece_t *piece, size_t length, double *sums);

/* Those of sections are added to sums [TUTTI_OPTIM_SUMS_MAX] in their order. */
void tt_optim_add_sections(const double *sections, size_t count, double *sums);

/* What is known of a step of all that is here of a parameter; pointers are those of its tensors. */
tutti_optim_piece_t tt_optim_piece_of(tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                      const tutti_tensor_t *grad);

/* The gradient as f32 in a row, borrowed; NULL if there is none. What is written to it is what is
 * stepped; a writer touches it. The parameter keeps the gradient that it has. */
tutti_status_t tt_optim_flat_grad(tutti_optim_t *opt, tt_optim_slot_t *slot, tutti_tensor_t **out);

/* Of a 16-bit parameter: make its master, or bring it up to date; round it into the parameter
 * behind a step; release it, and the flat gradient. Others are left alone. */
tutti_status_t tt_optim_prepare_master(tutti_optim_t *opt, tt_optim_slot_t *slot);
tutti_status_t tt_optim_round_master(tutti_optim_t *opt, tt_optim_slot_t *slot);
void tt_optim_release_master(tt_optim_slot_t *slot);

/* Copies values; behind a failure of the device, too, for who asks notes that it is done. */
tutti_status_t tt_optim_convert(tutti_context_t *ctx, tutti_tensor_t *to,
                                const tutti_tensor_t *from);

/* master f32, x of 16 bits, both in a row: the master where it rounds to x, else x. */
tutti_status_t tt_optim_reconcile(tutti_context_t *ctx, tutti_tensor_t *master,
                                  const tutti_tensor_t *x);

typedef struct {
    bool is_begun;  /* some gradient was multiplied, also where the call fails */
    bool is_finite; /* every element was before */
} tt_unscaled_t;

/* Multiply all gradients. Waits once for each device where they lie. */
tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, tt_unscaled_t *out);

/* Elements of a section in which a parameter of so many is measured. */
size_t tt_optim_section(size_t numel);

/* ---- slices (optim_slices.c) ----------------------------------------------------------------- */

/* Whether some parameter is dealt out to several ranks. */
bool tt_optim_has_slices(const tutti_optim_t *opt);

/* `status` of this rank, and all that have slices: the same failure on all of them. */
tutti_status_t tt_optim_agree(const tutti_optim_t *opt, tutti_status_t status);

/* All ranks step slices now; then how that went on this one, as agree: it becomes everybody's. The
 * second is called also where the first has failed. */
tutti_status_t tt_optim_begin_step(const tutti_optim_t *opt);
tutti_status_t tt_optim_end_step(const tutti_optim_t *opt, tutti_status_t status);

/* sums [slot_count][TUTTI_OPTIM_SUMS_MAX]: of each parameter with a slice and a gradient, over all
 * of it; others' stay as they are. Before its step. */
tutti_status_t tt_optim_measure_slices(tutti_optim_t *opt, double (*sums)[TUTTI_OPTIM_SUMS_MAX]);

/* numbers [slot_count]: of each gradient of a slice the sum of squares, or the largest, over all of
 * it; others' stay as they are. */
tutti_status_t tt_optim_norms_of_slices(tutti_optim_t *opt, bool is_largest, double *numbers);

/* Whether it is so on all ranks that have slices. */
tutti_status_t tt_optim_all_agree(const tutti_optim_t *opt, bool *is_so);

/* ---- spreads (optim_spreads.c) --------------------------------------------------------------- */

/* Of parameters that are parts of a whole which several ranks have. */
bool tt_optim_has_spreads(const tutti_optim_t *opt);

/* As the same of slices. */
tutti_status_t tt_optim_agree_spreads(const tutti_optim_t *opt, tutti_status_t status);
tutti_status_t tt_optim_all_agree_spreads(const tutti_optim_t *opt, bool *is_so);

/* numbers [slot_count]: of each gradient of a spread parameter what its leaves give, in their
 * order; others' stay as they are. Errors: UNSUPPORTED (a slice of a spread), those of the ranks.
 */
tutti_status_t tt_optim_norms_of_spreads(tutti_optim_t *opt, bool is_largest, double *numbers);

/* Whether a slot's options want moment i, and its shape: on some rank; on this one. */
bool tt_optim_has_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                         tutti_shape_t *shape);
bool tt_optim_wants_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                           tutti_shape_t *shape);

/* State of a whole parameter, of which this rank has a part, or nothing (optim_state.c). */
typedef struct {
    const tutti_tensor_t *parameter; /* whose state it is */
    const char *name;                /* as by tutti_optim_each_state() */
    tutti_shape_t whole;
    tutti_tensor_t *tensor; /* this rank's; NULL: others have it */
    bool is_common;         /* every rank has all of it: a step */
} tt_optim_kept_t;

/* That of all parameters that have been changed, in the same order on every rank that has the same
 * parameters. Errors: those of visit, NOMEM. */
tutti_status_t tt_optim_each_kept(tutti_optim_t *opt,
                                  tutti_status_t (*visit)(void *user, const tt_optim_kept_t *kept),
                                  void *user);

/* State on its way into an optimizer (optim_state.c). */
typedef struct tt_optim_loading tt_optim_loading_t;

/* What becomes of a parameter's state. */
typedef enum {
    TT_STATE_NONE,  /* none is saved: as before the first step */
    TT_STATE_SAVED, /* it is read */
    TT_STATE_STAYS, /* it is not to be loaded */
} tt_saved_state_t;

/* Memory for the state of the parameters of which "<parameter>.step" is saved, as `find` tells; of
 * those on meta, which are to leave it, on `device`. */
tutti_status_t tt_optim_load_begin(tutti_optim_t *opt, tutti_device_t *device,
                                   tt_saved_state_t (*find)(const void *saved, const char *name),
                                   const void *saved, tt_optim_loading_t **out);

/* What is to be read, named as by tutti_optim_each_state(). */
tutti_status_t tt_optim_load_each(tt_optim_loading_t *loading, tutti_tensor_visit_t visit,
                                  void *user);

/* How reading went: if well, the optimizer's state is what was read. Releases `loading`. Errors:
 * that status; FORMAT (a step below 1). */
tutti_status_t tt_optim_load_end(tt_optim_loading_t *loading, tutti_status_t status);

/* It is the same part of a parameter as another one, if that is any. */
static inline tutti_status_t tt_optim_like_part(tutti_tensor_t *x, const tutti_tensor_t *other)
{
    const tt_tensor_part_t *part = other->part;
    tt_tensor_set_spread(x, other->spread);
    return part == NULL ? TUTTI_OK : tt_tensor_set_part(x, part->whole, part->first);
}

/* Moment i as it is before the first step; nothing is written where the options want none. */
tutti_status_t tt_optim_new_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                                   tutti_device_t *device, tutti_tensor_t **out);

#endif
