/* Sums that stay sharded: behind each shard of the ranks, a round, a bucket's gradients go to those
 * who step them, and everybody adds up what comes for its slice, by the canonical tree (tree.h).
 *
 *     6 shards on 3 ranks    round 0     | 0 1 | 2 |      round 1     | 3 | 4 5 |
 *     nodes that come                     [0,2) [2,3)                 [3,4) [4,6)
 *     pieces of a slice                   [0,2) [2,3)           [0,4) and [4,6) are [0,6)
 *
 * Shards are hosted in turn, so that those of a round are neighbours. The nodes of a round are
 * reduced and scattered, a call each; where the number of ranks is a power of two there is one.
 * So a rank holds the pieces of the shards that have been, no more than log2(rounds) + 1 where a
 * round is one node, each of its slice. If it had neighbouring shards, as without rounds, those of
 * a round would be far from each other in the tree: each rank would have as many pieces as there
 * are ranks, which is the memory of a whole bucket.
 *
 * Cost: of a bucket of N bytes, a rank sends N without its slice in each round in which it has a
 * shard. */
#include "comm/group/transient.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "parallel/reduce/local_sum.h"
#include "parallel/reduce/reducer.h"

static const char reason[] = "it is a sum of shards, which is there within steps";

/* Those that the shards of a round are. */
static int nodes_of(const tt_reducer_t *reducer, int round, tt_leaves_t *nodes)
{
    const int shards = reducer->options.shards, size = tutti_group_size(reducer->options.group);
    const int begin = round * size, end = shards - begin < size ? shards : begin + size;
    return tt_tree_pieces(shards, begin, end, nodes);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The most that there are at once: pieces, and nodes that come. */
static int count_sums(const tt_reducer_t *reducer)
{
    tt_tree_stack_t stack = {.leaves = reducer->options.shards};
    tt_leaves_t nodes[TT_TREE_DEPTH_MAX];
    int most = 0;
    for (int round = 0; round < tt_reducer_rounds(reducer); round++) {
        const int count = nodes_of(reducer, round, nodes);
        most = stack.depth + count > most ? stack.depth + count : most;
        for (int i = 0; i < count; i++) {
            tt_tree_push(&stack, nodes[i].begin, nodes[i].end);
            while (tt_tree_can_merge(&stack)) {
                tt_tree_merge(&stack);
            }
        }
    }
    return most;
}

tutti_status_t tt_reducer_open_rounds(const tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    tt_bucket_rounds_t *rounds = &bucket->rounds;
    if (!tt_reducer_has_rounds(reducer)) {
        return TUTTI_OK;
    }
    const tutti_tensor_t *total = bucket->own_total;
    const int count = count_sums(reducer);
    TT_ASSERT(count <= TT_TREE_DEPTH_MAX);
    for (; rounds->sum_count < count; rounds->sum_count++) {
        tutti_tensor_t **sum = &rounds->sums[rounds->sum_count];
        if (rounds->sum_count == 0) {
            *sum = tutti_tensor_retain(bucket->own_total);
        } else {
            TT_TRY(tt_group_tensor_away(total->dtype, total->shape, reason, sum));
        }
    }
    return TUTTI_OK;
}

void tt_reducer_close_rounds(tt_bucket_t *bucket)
{
    tt_bucket_rounds_t *rounds = &bucket->rounds;
    for (int i = 0; i < rounds->sum_count; i++) {
        tutti_tensor_release(rounds->sums[i]);
    }
    for (int i = 0; i < rounds->call_count; i++) {
        tutti_prepared_release(rounds->calls[i].prepared);
    }
    tt_free(rounds->calls);
}

/* ---- it leaves ------------------------------------------------------------------------------- */

static bool is_in(tutti_tensor_t *const *list, int count, const tutti_tensor_t *x)
{
    int i = 0;
    while (i < count && list[i] != x) {
        i++;
    }
    return i < count;
}

/* A sum that is no piece, and to which nothing comes yet. A merged piece keeps the place of its
 * first leaf; so what begins with shard 0 is in the first one, own_total. */
static tutti_tensor_t *free_sum(const tt_bucket_t *bucket, int coming)
{
    const tt_bucket_rounds_t *rounds = &bucket->rounds;
    int i = 0;
    while (is_in(bucket->pieces, bucket->stack.depth, rounds->sums[i]) ||
           is_in(rounds->coming, coming, rounds->sums[i])) {
        i++;
        TT_ASSERT(i < rounds->sum_count);
    }
    return rounds->sums[i];
}

static tutti_status_t find_call(tt_bucket_rounds_t *rounds, int first_rank, int count,
                                tt_round_call_t **out)
{
    int i = 0;
    while (i < rounds->call_count &&
           (rounds->calls[i].first_rank != first_rank || rounds->calls[i].count != count)) {
        i++;
    }
    if (i == rounds->call_count) {
        tt_round_call_t *grown =
            tt_realloc(rounds->calls, (size_t)(i + 1) * sizeof *grown, "reducer rounds");
        TT_TRY_ALLOC(grown);
        rounds->calls = grown;
        grown[rounds->call_count++] = (tt_round_call_t){first_rank, count, NULL};
    }
    *out = &rounds->calls[i];
    return TUTTI_OK;
}

/* Of ranks [call->first_rank, + count) one leaf each. */
static tutti_status_t bind(const tt_reducer_t *reducer, tt_bucket_t *bucket, tt_round_call_t *call,
                           tutti_tensor_t *out)
{
    tutti_group_t *group = reducer->options.group;
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    const int last = call->first_rank + call->count;
    for (int r = 0; r <= size; r++) {
        reducer->first_leaves[r] = r <= call->first_rank ? 0
                                   : r < last            ? r - call->first_rank
                                                         : call->count;
    }
    const bool has_leaf = rank >= call->first_rank && rank < last;
    const tutti_contributions_t leaves = {.count = call->count,
                                          .first = reducer->first_leaves,
                                          .pieces = &bucket->rounds.leaf,
                                          .piece_count = has_leaf,
                                          .dtype = out->dtype};
    return call->prepared != NULL
               ? tt_prepared_rebind_leaves(call->prepared, &leaves, out)
               : tutti_prepare_reduce_scatter_contributions_uneven(
                     group, &leaves, out, bucket->counts, TUTTI_SUM, &call->prepared);
}

static tutti_status_t prepare_node(tt_reducer_t *reducer, tt_bucket_t *bucket, tt_leaves_t node,
                                   tutti_tensor_t *sum, tutti_prepared_t **out)
{
    tt_round_call_t *call;
    const int size = tutti_group_size(reducer->options.group);
    if (sum->storage->away != NULL) {
        TT_TRY(tt_group_tensor_refill(reducer->options.group, sum));
    }
    TT_TRY(find_call(&bucket->rounds, node.begin % size, node.end - node.begin, &call));
    TT_TRY(bind(reducer, bucket, call, sum));
    *out = call->prepared;
    return TUTTI_OK;
}

tutti_status_t tt_reducer_start_round(tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    tt_bucket_rounds_t *rounds = &bucket->rounds;
    tt_leaves_t nodes[TT_TREE_DEPTH_MAX];
    tutti_prepared_t *calls[TT_TREE_DEPTH_MAX];
    const int count = nodes_of(reducer, rounds->started, nodes);
    for (int i = 0; i < count; i++) {
        rounds->coming[i] = free_sum(bucket, i);
        TT_TRY(prepare_node(reducer, bucket, nodes[i], rounds->coming[i], &calls[i]));
    }
    rounds->started++;
    bucket->out = bucket->own_total;
    bucket->divisor = reducer->options.shards;
    return count == 1 ? tutti_prepared_start(calls[0], &bucket->work)
                      : tutti_prepared_start_all(calls, count, &bucket->work);
}

/* ---- and comes back -------------------------------------------------------------------------- */

static void merge_top(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const int left = bucket->stack.depth - 2;
    tt_local_sum(reducer->options.threads, bucket->pieces[left], &bucket->pieces[left], 2, true);
    tt_tree_merge(&bucket->stack);
}

void tt_reducer_end_round(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    tt_bucket_rounds_t *rounds = &bucket->rounds;
    tt_leaves_t nodes[TT_TREE_DEPTH_MAX];
    const int count = nodes_of(reducer, rounds->returned++, nodes);
    for (int i = 0; i < count; i++) {
        bucket->pieces[bucket->stack.depth] = rounds->coming[i];
        tt_tree_push(&bucket->stack, nodes[i].begin, nodes[i].end);
        while (tt_tree_can_merge(&bucket->stack)) {
            merge_top(reducer, bucket);
        }
    }
    bucket->rounds.leaf = NULL;
    if (rounds->returned == tt_reducer_rounds(reducer)) {
        TT_ASSERT(bucket->stack.depth == 1 && bucket->pieces[0] == bucket->own_total);
        bucket->stack.depth = 0;
    }
}

/* ---- what it costs --------------------------------------------------------------------------- */

/* How often this rank sends what it has of a bucket. */
static int times_sent(const tt_reducer_t *reducer, bool keeps_sums_sharded)
{
    const tt_reducer_options_t *o = &reducer->options;
    const int rank = tutti_group_rank(o->group), size = tutti_group_size(o->group);
    if (keeps_sums_sharded && o->shards > size) {
        return tt_tree_hosted(o->shards, size, rank, true).count;
    }
    const tt_leaves_t share = tt_tree_share(o->shards, size, rank);
    const int pieces = tt_tree_pieces(o->shards, share.begin, share.end, NULL);
    return o->adds_locally && pieces > 1 ? 1 : pieces;
}

int64_t tt_reducer_traffic(const tt_reducer_t *reducer, bool keeps_sums_sharded)
{
    const int rank = tutti_group_rank(reducer->options.group);
    int64_t bytes = 0;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        const tt_bucket_t *bucket = &reducer->buckets[b];
        const tutti_tensor_t *what =
            tt_reducer_is_narrow(reducer, bucket) ? bucket->travel : bucket->total;
        const int64_t elsewhere = bucket->cuts == NULL ? 0 : what->numel - bucket->counts[rank];
        bytes += elsewhere * (int64_t)tutti_dtype_bytes(what->dtype);
    }
    return bytes * times_sent(reducer, keeps_sums_sharded);
}
