/* The inside of tutti_bench_*: ops as a table, what their buffers should hold, timing. */
#ifndef TT_BENCH_IMPL_H
#define TT_BENCH_IMPL_H

#include <tutti/bench.h>

#include "comm/coll/coll.h"
#include "comm/group/group_impl.h"

/* Where input and output may lie in one buffer. */
typedef enum {
    TT_BENCH_APART,     /* never */
    TT_BENCH_SAME,      /* one tensor is both */
    TT_BENCH_IN_IN_OUT, /* the input is this rank's part of the output */
    TT_BENCH_OUT_IN_IN, /* the output is this rank's part of the input */
} tt_bench_place_t;

typedef struct {
    int rank, size, root;
    size_t count; /* elements of a part */
} tt_bench_shape_t;

/* Which element of which rank's input comes to element i of this rank's output. In a reduction, of
 * the input of every rank that contributes. */
typedef struct {
    int rank;
    size_t index;
} tt_bench_origin_t;

typedef struct {
    const char *name, *about;
    int collective; /* tt_collective_t; -1: messages */
    bool reduces, has_root;
    bool in_is_all, out_is_all;   /* of size × count elements, not count */
    bool in_at_root, out_at_root; /* the others have none */
    tt_bench_place_t place;
    double (*factor)(int ranks); /* busbw / algbw */
    tt_bench_origin_t (*origin)(const tt_bench_shape_t *shape, size_t i);
    tutti_status_t (*call)(tutti_group_t *group, const tutti_bench_options_t *options,
                           tutti_tensor_t *out, tutti_tensor_t *in);
} tt_bench_op_t;

/* NULL if there is none of that name. */
const tt_bench_op_t *tt_bench_op_find(const char *name);

/* What elements [begin, begin + n) of a rank's input hold: integers small enough to be exact
 * in every dtype, different from rank to rank and place to place. */
void tt_bench_fill(const tutti_bench_options_t *options, const tt_bench_op_t *op, int rank,
                   size_t count, void *data);

/* How many of a rank's `count` results are wrong. */
size_t tt_bench_wrong(const tutti_bench_options_t *options, const tt_bench_op_t *op,
                      const tt_bench_shape_t *shape, size_t count, const void *data);

struct tutti_bench {
    tutti_group_t *group;
    tutti_bench_options_t options;
    const tt_bench_op_t *op;
    tutti_tensor_t *cells; /* f64, for what ranks tell each other */

    /* Of the size under way. */
    tt_bench_shape_t shape;
    size_t in_count, out_count; /* elements here; 0: this rank has none */
    tutti_tensor_t *pool;
    size_t slots;
    tutti_tensor_t **ins, **outs; /* [slots] views of the pool; NULL: none */
};

/* Buffers for one size: the whole pool, cut into slots. */
tutti_status_t tt_bench_buffers_open(tutti_bench_t *bench, size_t bytes);
void tt_bench_buffers_close(tutti_bench_t *bench);

/* The native engine's calls of a group; NULL: another engine performs them. */
tt_coll_t *tt_bench_coll(const tutti_bench_t *bench);

#endif
