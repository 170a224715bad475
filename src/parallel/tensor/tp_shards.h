/* T shards of tensor parallelism, on the ranks of a group.
 *
 * A job fixes T. Dimensions that are cut are cut into T leaves, as torch.chunk does, of which a
 * rank hosts a row; what is summed over such a dimension is T sums, added by the canonical tree. So
 * no bit depends on how many ranks there are.
 *
 *     qkv.weight [3 C, C]: three parts (q, k, v), each of them cut into T leaves
 *     whole      q0 q1 q2 q3 | k0 k1 k2 k3 | v0 v1 v2 v3
 *     rank 1/2   q2 q3 k2 k3 v2 v3                           leaf 2 is q2, k2 and v2
 */
#ifndef TT_TP_SHARDS_H
#define TT_TP_SHARDS_H

#include <tutti/group.h>

#include "core/base/fail.h"
#include "core/kernel/reduce/tree.h"
#include "parallel/placement/cut.h"

typedef struct {
    tutti_group_t *group;
    int shards; /* T, at least the ranks */
} tt_tp_t;

enum { TT_TP_PARTS_MAX = 8 };

/* A dimension that is cut: parts side by side, each of which is. */
typedef struct {
    int parts;
    int64_t sizes[TT_TP_PARTS_MAX]; /* of the whole parts */
} tt_tp_dim_t;

/* ARG unless there are as many shards as ranks, at least. `call`: for the text. */
tutti_status_t tt_tp_check(const char *call, const tt_tp_t *tp);

/* This rank's leaves; how often T is hosted here: all of them where there is one rank. */
tt_leaves_t tt_tp_leaves(const tt_tp_t *tp);

/* Elements of part `part` that this rank has, as indices of the whole part. */
tt_span_t tt_tp_part(const tt_tp_t *tp, const tt_tp_dim_t *dim, int part);

/* How many of the dimension this rank has; how many there are. */
int64_t tt_tp_own_size(const tt_tp_t *tp, const tt_tp_dim_t *dim);
int64_t tt_tp_whole_size(const tt_tp_dim_t *dim);

/* Where this rank's leaf `leaf` lies among its own: returns how many runs of indices, one for each
 * part. That some meet on a rank with one leaf makes no difference, for they are summed one by one;
 * a single shard is one run, and its sums are those of what is not cut. */
int tt_tp_runs(const tt_tp_t *tp, const tt_tp_dim_t *dim, int leaf, tt_span_t *runs);

#endif
