/* Units: parts of a module whose parameters are whole only while they are used (stage 3, decision
 * 0030).
 *
 *     unit               the root, or a module that the options name; parameters belong to the
 *                        innermost unit, those of several units to the root
 *     flats              buckets of the reducer, and of frozen parameters; each of one unit
 *     source             what brings the whole of a flat (unit_source.h)
 *
 *     ddp_unit_policy.c  which modules are units
 *     ddp_unit_open.c    their parameters move into flats, and at the end out of them
 *     ddp_units.c        they come and go
 *     ddp_unit_values.c  they get other values behind a step
 *     ddp_unit_slice.c   where this rank's slices are
 *     ddp_unit_rows.c    rows of ranks, each of which has all parameters
 *     ddp_unit_near.c    sets of ranks that keep units from their forward to their backward
 *     ddp_unit_store.c   slices lie on a disk
 *     ddp_unit_hooks.c   when: around a unit's forward and backward
 *     ddp_unit_order.c   all ranks start in one order, and know what comes next
 */
#ifndef TT_DDP_UNITS_H
#define TT_DDP_UNITS_H

#include <tutti/ddp.h>
#include <tutti/messages.h>

#include "parallel/ddp/unit_source.h"
#include "parallel/ddp/unit_turns.h"
#include "parallel/reduce/bucket_plan.h"

typedef enum {
    TT_UNIT_AWAY,
    TT_UNIT_COMING,
    TT_UNIT_THERE,
    TT_UNIT_NEAR /* away, but the next start is of what stayed near (unit_source.h) */
} tt_unit_state_t;

typedef struct {
    tutti_ddp_t *ddp;
    char *name;             /* "" is the root */
    char *reason;           /* why its parameters are away */
    tutti_module_t *module; /* borrowed from the ddp's; NULL: of those that are kept */
    bool is_kept;           /* small parameters: away only while they are stepped */
    bool is_unloaded; /* ddp_meta.c's: values are still to come, from a checkpoint or the user */
    tt_unit_state_t states[TT_UNIT_KINDS];
    int64_t started_ns; /* when it started to come last */
} tt_unit_t;

/* A parameter of a flat. */
typedef struct {
    const char *name;
    tutti_tensor_t *tensor;
    int unit, flat;
    int64_t offset;                        /* in the flat */
    tt_storage_t *storages[TT_UNIT_KINDS]; /* retained; NULL: there is no such kind */
    uint32_t versions[TT_UNIT_KINDS];      /* as the values came */
} tt_unit_param_t;

/* Of options.mesh: ddp_unit_rows.c's. */
typedef struct {
    int rows, size; /* as many, of so many ranks each; rows is 0 where all ranks are one row */
    int row, place; /* of this rank */
    int *ranks;     /* [rows × size] of the group, row after row */
    tutti_group_t *group;        /* of all ranks: slices on their way */
    int64_t **cuts;              /* [2 × flats] into parts of a row: cuts, then counts */
    tutti_tensor_t **slices;     /* [flats] this rank's, which it steps */
    tutti_tensor_t **parts;      /* [flats × rows] whose slices its part has, one behind another */
    tutti_transfer_t *transfers; /* [transfer_count] of all flats, behind each step */
    int transfer_count;
    int64_t received_bytes; /* so far */
} tt_unit_rows_t;

/* Of a parameter, of options.offload, in elements: this rank's slice of it. */
typedef struct {
    int64_t first, count; /* in the parameter */
    int64_t in_slice;     /* in the slice of the flat */
    int64_t at;           /* in the flat's tensor on the disk */
} tt_unit_piece_t;

/* ddp_unit_store.c's. */
typedef struct {
    tt_device_t *disk;         /* NULL: slices are in memory */
    struct tt_disk_ring *ring; /* reads flats, which are its units */
    tt_unit_piece_t *pieces;   /* [params, then frozen ones] */
    tutti_tensor_t **values;   /* [flats] on the disk */
    tutti_tensor_t **grads;    /* [buckets] on the disk: averages */
    bool may_be_written;       /* slices are being written, or were so far behind the step */
} tt_unit_store_t;

typedef struct {
    tt_unit_t *units; /* [count]; the root is the first */
    int count;
    int *unit_of;            /* [params, then frozen ones] */
    tt_unit_param_t *params; /* the same */
    int param_count;
    tt_bucket_plan_t frozen; /* flats of frozen parameters, behind the buckets */
    int64_t **cuts;          /* [2 × flats of frozen ones] cuts, then counts */
    tutti_group_t *group;    /* of the gathers; NULL: stage 3 is not on */
    tt_unit_rows_t rows;     /* of which the group is one */
    int near_ranks;          /* that keep units together (options.reshard_ranks); 0: nobody does */
    tt_unit_store_t store;
    tt_unit_source_t source; /* of flats; `group` is this one */
    int64_t kept_bytes;      /* of the group's memory, for units that come and go */
} tt_ddp_units_t;

/* When units come, and in which order: ddp_unit_order.c's. */
typedef struct {
    tt_unit_turns_t turns;
    bool announces; /* some ranks may have less to compute than others */
    tutti_tensor_t *word;
    tutti_work_t *ends[2];           /* of barriers behind this rank's starts of a step */
    bool has_told;                   /* that the order has changed */
    tt_sharded_list_t calls, before; /* of this rank's last shard of the step under way, and of the
                                        step before */
} tt_ddp_order_t;

/* ddp_unit_slice.c: whether parameters are dealt out, and slices lie on a disk. What this rank
 * steps of a flat, and where all ranks' slices are cut, [ranks + 1]. */
bool tt_ddp_has_units(const tutti_ddp_t *ddp);
bool tt_ddp_has_store(const tutti_ddp_t *ddp);
tutti_tensor_t *tt_ddp_unit_slice(const tutti_ddp_t *ddp, int flat);
const int64_t *tt_ddp_unit_cuts(const tutti_ddp_t *ddp, int flat);

/* ddp_unit_policy.c: units, and to which each parameter belongs. Errors: ARG (no such module),
 * NOMEM.
 */
tutti_status_t tt_ddp_choose_units(tutti_ddp_t *ddp);
void tt_ddp_forget_units(tutti_ddp_t *ddp);

/* Whether a module is of a kind, by its name or its last words: "transformer_block" is a "block",
 * too. */
bool tt_ddp_is_kind(const char *kind, const char *name);

/* "unit blocks.0", for error texts; returns text. */
char *tt_ddp_unit_name(const tt_unit_t *unit, char *text, size_t bytes);

/* ddp_unit_open.c: parameters move into flats; collective. */
tutti_status_t tt_ddp_open_units(tutti_ddp_t *ddp);
void tt_ddp_close_units(tutti_ddp_t *ddp);

/* The kind in which parameters are now. */
tt_unit_kind_t tt_ddp_unit_kind(const tutti_ddp_t *ddp);

/* One unit: starts to come, is there, goes. */
tutti_status_t tt_ddp_unit_start(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind);
tutti_status_t tt_ddp_unit_wait(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind);
tutti_status_t tt_ddp_unit_leave(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind);

/* If it is there, or coming: it goes, but for what stays near. Errors: STATE (it was written), and
 * then it has gone all the same; NOMEM; as the group's calls. */
tutti_status_t tt_ddp_unit_keep(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind);

/* What is written in a unit that is whole goes into this rank's slices. Between claim and publish.
 * Errors: IO (they lie on a disk). */
tutti_status_t tt_ddp_unit_write_back(tutti_ddp_t *ddp, int unit);

size_t tt_ddp_unit_bytes(const tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind);

/* Whether the whole of what comes from now on is this rank's alone, to be written. */
void tt_ddp_units_copy(tutti_ddp_t *ddp, bool is_on);

/* STATE while units are summoned for writing. */
tutti_status_t tt_ddp_check_dismissed(const tutti_ddp_t *ddp, const char *what);

/* ddp_unit_values.c: behind the optimizer's step own slices have other values. */
tutti_status_t tt_ddp_units_claim(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_units_publish(tutti_ddp_t *ddp);

/* ddp_unit_rows.c: from the options. Errors: ARG (the mesh does not fit), NOMEM. */
tutti_status_t tt_ddp_choose_rows(tutti_ddp_t *ddp);

/* ddp_unit_near.c: from the options, when rows are chosen. Errors: ARG. */
tutti_status_t tt_ddp_choose_near(tutti_ddp_t *ddp);

/* ddp_unit_rows.c: the group of units; collective. Then flats are cut into parts of a row; then
 * slices are made, when the source is open. */
tutti_status_t tt_ddp_open_rows(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_cut_rows(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_open_row_slices(tutti_ddp_t *ddp);
void tt_ddp_close_rows(tutti_ddp_t *ddp);
void tt_ddp_forget_rows(tutti_ddp_t *ddp);

/* Every rank's slices are in the parts of all that have them. Between claim and publish. */
tutti_status_t tt_ddp_rows_publish(tutti_ddp_t *ddp);

/* ddp_unit_store.c: options that do not go with it: ARG, UNSUPPORTED. */
tutti_status_t tt_ddp_check_store(const tutti_ddp_t *ddp);

/* When flats are listed: room for all of it. Errors: NOMEM (also of the disk), IO, UNSUPPORTED
 * (parameters not in f32). */
tutti_status_t tt_ddp_open_store(tutti_ddp_t *ddp);
void tt_ddp_close_store(tutti_ddp_t *ddp);

/* The source reads slices there. A step begins. Slices will be written. */
void tt_ddp_read_from_store(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_store_begin_step(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_store_claim(tutti_ddp_t *ddp);

/* Of a flat whose parameters are whole, this rank's slice; of a bucket's averages, those that are
 * final; those of all that have come back. Errors: IO, NOMEM. */
tutti_status_t tt_ddp_store_flat(tutti_ddp_t *ddp, int flat);
tutti_status_t tt_ddp_store_average(tutti_ddp_t *ddp, int bucket);
tutti_status_t tt_ddp_store_arrived(tutti_ddp_t *ddp);

/* The first part of publish, which no other rank waits for: all that is whole goes. STATE: some of
 * it was written. */
tutti_status_t tt_ddp_units_go(tutti_ddp_t *ddp);

/* The second half of that: as own slices are, everybody may read them. */
tutti_status_t tt_ddp_units_show(tutti_ddp_t *ddp);

/* A line for each, at most so many bytes. Returns how many it would want, as snprintf. */
size_t tt_ddp_describe_units(const tutti_ddp_t *ddp, char *text, size_t bytes);

/* Nothing has been moved elsewhere. */
tutti_status_t tt_ddp_check_units(const tutti_ddp_t *ddp);

/* ddp_unit_hooks.c */
tutti_status_t tt_ddp_hook_units(tutti_ddp_t *ddp);
void tt_ddp_unhook_units(tutti_ddp_t *ddp);

/* Units [first, end) of a name, NULL: all; none where nothing is sharded. Errors: NOT_FOUND. */
tutti_status_t tt_ddp_find_units(const tutti_ddp_t *ddp, const char *what, const char *name,
                                 int *first, int *end);

/* As tutti_ddp_unshard() and tutti_ddp_reshard() of one. */
tutti_status_t tt_ddp_unit_summon(tutti_ddp_t *ddp, int unit);
tutti_status_t tt_ddp_unit_dismiss(tutti_ddp_t *ddp, int unit);

/* A step begins; it ends, or will begin: nothing is wanted any more. The same at the end of a round
 * of it, where ranks tell each other. */
tutti_status_t tt_ddp_units_begin_step(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_units_end_step(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_units_end_round(tutti_ddp_t *ddp);

/* ddp_unit_order.c: something happens in this thread's program: written down in a step's last
 * shard. Then units come and go. */
tutti_status_t tt_ddp_order_note(tutti_ddp_t *ddp, const tutti_sharded_action_t *call);
tutti_status_t tt_ddp_order_take(tutti_ddp_t *ddp, const tutti_sharded_action_t *call);

/* A unit is wanted now, and is there when this returns; others may be started. */
tutti_status_t tt_ddp_unit_want(tutti_ddp_t *ddp, int unit);

/* This rank has nothing more to compute in this step: it takes part in the others' starts, or says
 * that it has none. Then all have said so. */
tutti_status_t tt_ddp_order_follow(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_order_await_others(tutti_ddp_t *ddp);

/* The same, of a round of the step, where ranks tell each other (tt_ddp_rounds_are_told). */
tutti_status_t tt_ddp_order_end_round(tutti_ddp_t *ddp);
tutti_status_t tt_ddp_open_order(tutti_ddp_t *ddp, const tt_unit_source_ops_t *ops);
void tt_ddp_close_order(tutti_ddp_t *ddp);

/* A step has ended, as a whole: its calls are what tutti_ddp_plan() foresees. */
void tt_ddp_order_end_step(tutti_ddp_t *ddp);

#endif
