/* Where the parameters of a unit come from when they are needed whole (decision 0030).
 *
 * A unit's parameters lie side by side in flats, one for each dtype and bucket. Each rank has a
 * slice of each flat, `own`, which is what it steps; the whole is there only while a unit is
 * unsharded. What brings it is a source:
 *
 *     gather    own slices are gathered into this rank's memory, which goes when nobody reads it
 *     share     the ranks share a host, which has the whole once: own slices are parts of it
 *     host      the ranks are on several hosts: each gathers the whole once, in memory that its
 *               ranks share, which goes when none of them reads it
 *
 * A flat goes through these states on each rank; ddp_units.c makes the calls:
 *
 *     away ──start──> coming ──wait──> there ──leave──> away
 *                                            ──keep───> near ──start──> coming, ──leave──> away
 *
 * In a step the whole is of the dtype with which shards compute (COMPUTE), else of the parameters'
 * (FULL); both may be there at once. Where no flat has two dtypes FULL alone is asked for; where
 * one has, the others' COMPUTE is the same values as their FULL.
 *
 *     a step           start/wait/leave of flats, FULL or COMPUTE; also several times, and early
 *     optimizer        claim, own slices are written, publish
 *
 * Near: sets of near_ranks ranks, one behind another in the group, keep the whole among them; the
 * next start is of them alone.
 *
 * All ranks call open, start, claim and publish in the same order (a rank without data, too: it
 * follows), and those of a set keep before the same starts. wait and leave are each rank's own
 * business.
 */
#ifndef TT_UNIT_SOURCE_H
#define TT_UNIT_SOURCE_H

#include <tutti/group.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

typedef enum { TT_UNIT_FULL, TT_UNIT_COMPUTE, TT_UNIT_KINDS } tt_unit_kind_t;

typedef struct {
    const char *name; /* of its unit, for error texts; "" is the root; borrowed */
    tutti_dtype_t dtypes[TT_UNIT_KINDS]; /* of the wholes; that of FULL is the slices' */
    int64_t numel;                       /* of the whole, with padding between parameters */
    const int64_t *cuts, *counts;        /* [ranks + 1], [ranks]: rank r's slice is
                                            [cuts[r], cuts[r + 1]); borrowed */

    /* The source's, from open to close; [counts[rank]], of dtypes[FULL]. */
    tutti_tensor_t *own;

    /* [numel] each, the source's: from wait to leave; else NULL. Who lends its memory to a
     * parameter retains it meanwhile. */
    tutti_tensor_t *whole[TT_UNIT_KINDS];
} tt_unit_flat_t;

typedef struct tt_unit_source tt_unit_source_t;

typedef struct {
    const char *name, *about;
    size_t state_bytes; /* zeroed memory in source->state */
    bool is_common;     /* wholes are memory that other ranks have, too */
    bool is_local;      /* `start` is each rank's own business, too: it needs no order */

    /* Whether this rank can use it in a group, with sets of so many ranks (0: none), before open;
     * NULL: always. */
    bool (*is_possible)(const tutti_group_t *group, int near_ranks);

    /* Makes `own` of every flat, of undefined values. Collective: what one rank fails of, all ranks
     * return. close() follows also where it fails. */
    tutti_status_t (*open)(tt_unit_source_t *source);
    void (*close)(tt_unit_source_t *source);

    /* The whole is wanted: does not wait. Memory for it is taken here. Errors: NOMEM (on this rank
     * alone; the caller tells the others), as a group's calls. */
    tutti_status_t (*start)(tt_unit_source_t *source, int flat, tt_unit_kind_t kind);

    /* It is there, or has come when this returns. Errors: as a group's calls. */
    bool (*is_there)(tt_unit_source_t *source, int flat, tt_unit_kind_t kind);
    tutti_status_t (*wait)(tt_unit_source_t *source, int flat, tt_unit_kind_t kind);

    /* What has started moves on, as far as it goes without waiting: other ranks may wait for this
     * one's part while it waits for them elsewhere. NULL: it moves with the group's calls. Errors:
     * as a group's calls. */
    tutti_status_t (*advance)(tt_unit_source_t *source);

    /* This rank reads it no more. Of what is coming, too, which ends first; and of what is near. */
    void (*leave)(tt_unit_source_t *source, int flat, tt_unit_kind_t kind);

    /* It is there, and this rank reads it no more for now: this rank's part stays near. NULL: none
     * of this source needs that. Errors: NOMEM, on this rank alone. */
    tutti_status_t (*keep)(tt_unit_source_t *source, int flat, tt_unit_kind_t kind);

    /* Own slices will be written: returns when no rank reads what they were, nor will before
     * publish. Then they have been, and a start from now on gives the new values. NULL: nothing is
     * to be done. */
    tutti_status_t (*claim)(tt_unit_source_t *source);
    tutti_status_t (*publish)(tt_unit_source_t *source);

    /* Nobody goes on: groups of its own are given up, so that no rank waits in them. NULL: there
     * are none. */
    void (*give_up)(tt_unit_source_t *source);
} tt_unit_source_ops_t;

struct tt_unit_source {
    const tt_unit_source_ops_t *ops;
    tutti_group_t
        *group; /* borrowed, for the source's calls alone: their order is that of starts */
    tutti_context_t *ctx; /* borrowed */
    tt_unit_flat_t *flats;
    int flat_count;
    /* Own slices lie elsewhere: brings that of a flat into `own`, whose memory is there then, and
     * goes when the source has given it on. Of sources that copy slices (gather). NULL: `own` is
     * there all the time, and is the slice. Errors: the caller's. */
    tutti_status_t (*bring)(tt_unit_source_t *source, int flat);
    void *user; /* of bring */

    int near_ranks;      /* of a set, if anything is kept; else 0 */
    tutti_group_t *near; /* the source's: this rank's set, if what is near is gathered */

    bool copies; /* wholes that come from now on are this rank's alone, which it may write; FULL */
    int64_t gathered_bytes;             /* counted by the source: what other ranks brought in */
    int64_t near_bytes;                 /* of these, those of the set */
    size_t held_bytes, peak_held_bytes; /* tt_unit_source_hold() */
    void *state;                        /* of ops */
};

/* Makes `ops` work on flats, which the caller has filled as far as they are its own, and undoes it.
 * Errors: as open; NOMEM. */
tutti_status_t tt_unit_source_open(const tt_unit_source_ops_t *ops, tt_unit_source_t *source);
void tt_unit_source_close(tt_unit_source_t *source);

/* For sources: a whole has memory of this rank's own now, beside slices; and has it no more. */
void tt_unit_source_hold(tt_unit_source_t *source, size_t bytes);
void tt_unit_source_let_go(tt_unit_source_t *source, size_t bytes);

/* Of memory that other ranks have, too: a copy that this rank may write; what has been given to
 * `whole`, which it or the copy is, is let go. */
tutti_status_t tt_unit_source_copy(tt_unit_source_t *source, const tutti_tensor_t *common,
                                   tutti_tensor_t **whole);
void tt_unit_source_drop(tt_unit_source_t *source, const tutti_tensor_t *common,
                         tutti_tensor_t **whole);

/* A flat as error texts call it: "parameters of blocks.1 (flat 3)"; at most so many bytes. */
enum { TT_UNIT_FLAT_TEXT_BYTES = 576 };
void tt_unit_flat_text(const tt_unit_flat_t *flat, int index, tt_unit_kind_t kind, char *text);

/* Whether ranks of a host may have units once (TUTTI_SHARED_PARAMETERS). */
bool tt_unit_may_share(void);

extern const tt_unit_source_ops_t tt_unit_gather, tt_unit_share, tt_unit_host;

/* All there are; the end is NULL. */
extern const tt_unit_source_ops_t *const tt_unit_sources[];

/* unit_choice.c: the first of them that all ranks can use. Collective. Errors: NOMEM; as a group's
 * calls. */
tutti_status_t tt_unit_source_choose(tutti_group_t *group, int near_ranks,
                                     const tt_unit_source_ops_t **out);

#endif
