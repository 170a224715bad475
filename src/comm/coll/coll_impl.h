/* The inside of tt_coll_t, shared by the coll_*.c files. */
#ifndef TT_COLL_IMPL_H
#define TT_COLL_IMPL_H

#include "comm/coll/coll.h"
#include "comm/wire/wire.h"
#include "core/kernel/tree_reduce.h"

enum { TT_PLAN_CACHE = 32 };

/* What precedes every message on a wire. */
typedef struct {
    uint32_t magic, round;
    uint64_t sequence, fingerprint, bytes;
    tt_sign_t sign;
} tt_frame_t;

enum { TT_FRAME_MAGIC = 0x46545454 };

/* The connection to one rank: its wire, and the message under way in each direction. */
typedef struct {
    tt_wire_t wire;
    tt_frame_t in, out;
    size_t in_header, out_header; /* bytes of the headers done */
    bool is_blocked_in, is_blocked_out;
} tt_link_t;

/* A leaf map that calls have used; the first array of a call is borrowed only until it returns. */
typedef struct tt_leaf_map {
    struct tt_leaf_map *next;
    uint64_t hash;
    int leaves;
    int first[];
} tt_leaf_map_t;

typedef struct {
    tt_plan_request_t request;
    tt_plan_t *plan;
} tt_cached_plan_t;

struct tt_coll {
    tt_coll_options_t options;
    int rank, size;
    tt_mates_t *mates;
    int *mate_ranks;          /* [size] */
    tt_flag_block_t *block;   /* mine */
    tt_flag_block_t **blocks; /* [size], everyone's */
    const tt_combine_kernels_t *kernels;
    const tt_algorithm_t *forced; /* NULL: the picker decides */

    uint64_t sequence; /* of the last call started */
    uint64_t all_done; /* every rank is known to have finished this call */
    tt_run_t *head, *tail, *to_show;

    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    int64_t watched_ns;

    tt_leaf_map_t *leaf_maps;
    tt_cached_plan_t plans[TT_PLAN_CACHE];

    tt_link_t *links;   /* [size] */
    size_t *step_bytes; /* payload bytes done of each step of the plan that runs */
    int step_capacity;
    const void **sources; /* of a tree; as many as the plan has pieces */
    int source_capacity;
    void **dst; /* [size] */
    void *scratch, *tree_scratch;
    size_t scratch_bytes, tree_scratch_bytes;
    size_t stream_from_bytes; /* results from this size on are stored around the cache */
};

/* coll_flags.c */
void tt_coll_show(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_may_show(tt_coll_t *coll, const tt_run_t *run);
bool tt_coll_have_all_come(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_are_all_done(tt_coll_t *coll, const tt_run_t *run);
void tt_coll_post_done(tt_coll_t *coll, const tt_run_t *run);
tt_flag_slot_t *tt_coll_slot(const tt_coll_t *coll, int rank, uint64_t sequence);
void tt_coll_wake_all(tt_coll_t *coll);
uint64_t tt_sign_fingerprint(const tt_sign_t *sign);

/* coll_pick.c */
tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_run_t *run);
tutti_status_t tt_coll_pick_foreign(tt_coll_t *coll, tt_run_t *run);
tutti_status_t tt_coll_intern_leaves(tt_coll_t *coll, tt_run_t *run);
size_t tt_call_piece_bytes(const tt_call_t *call, int size);

/* coll_steps.c: PENDING while something is awaited. */
tutti_status_t tt_coll_run_steps(tt_coll_t *coll, tt_run_t *run);

/* coll_links.c */
tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, int step, const void *data,
                            size_t bytes);
tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, int step, void *data, size_t bytes);

/* coll_watch.c */
void tt_coll_fail(tt_coll_t *coll, tutti_status_t status, int blamed_rank);
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run);
tutti_status_t tt_sign_mismatch(const tt_coll_t *coll, uint64_t sequence, int rank,
                                const tt_sign_t *sign, int other_rank, const tt_sign_t *other);
void tt_coll_watch(tt_coll_t *coll, int64_t now);

#endif
