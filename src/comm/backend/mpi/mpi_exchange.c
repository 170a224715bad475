/* Collectives as messages between all ranks of a group, each from and to the caller's own memory.
 *
 * What moves data only is one phase: everyone sends each rank its part. A reduction has two, in
 * blocks, so that scratch is bounded:
 *
 *     phase 0    slice r of every piece goes to rank r, which adds them up by the canonical tree
 *     phase 1    sums go from their owners to all (all_reduce), to the root, or stay
 *
 * or one, for little: everyone sends all to everyone who wants the result.
 *
 * In a scan rank r adds up slice r of every rank's result; phase 1 brings each to its rank.
 *
 * So sums over this engine have the bits of the native one. Cost for n ranks and N bytes: n - 1
 * messages each way and phase; all_reduce and scan send and receive 2 N (n - 1) / n bytes. That is
 * what any algorithm must move, but the number of messages grows with n: large groups use MPI's own
 * collectives (mpi_own.c). Measured: docs/decisions/0006-mpi-by-messages.md.
 */
#include <string.h>

#include "comm/backend/mpi/mpi_impl.h"

enum {
    WHOLE_BYTES = 2048, /* messages of more than 4 KiB with their header are slow in Open MPI */
    BLOCK_BYTES = 64 << 20,
};

static const char *at(const void *base, size_t index, tutti_dtype_t dtype)
{
    return base != NULL ? (const char *)base + index * tutti_dtype_bytes(dtype) : NULL;
}

/* NULL of a call of no elements, which may have no out. */
static char *at_out(const tt_call_t *call, size_t index)
{
    return call->out != NULL ? (char *)call->out + index * tutti_dtype_bytes(call->out_dtype)
                             : NULL;
}

static int peer_at(const tt_mpi_group_t *group, int step)
{
    const int peer = group->rank + step;
    return peer < group->size ? peer : peer - group->size;
}

/* How many ranks contribute to a rank's result. */
static int contributors(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int rank)
{
    const tt_plan_request_t request = {.collective = job->run->call.collective,
                                       .size = group->size};
    return tt_plan_contributors(&request, rank);
}

static bool is_prefix(const tt_mpi_job_t *job)
{
    return tt_collective_is_prefix(job->run->call.collective);
}

/* How many pieces this rank sends. In a scan of little, to ranks behind it alone. */
static int pieces_given(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    return is_prefix(job) && job->is_whole ? 1 : job->piece_counts[group->rank];
}

/* Whether a rank gets sums in phase 1. */
static bool gets_sums(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int rank)
{
    const tt_call_t *call = &job->run->call;
    return is_prefix(job) ? contributors(group, job, rank) > 0
                          : call->collective == TT_ALL_REDUCE || rank == call->root;
}

/* ---- the tree ---- */

/* How often to merge after a push. */
static unsigned char count_merges(tt_tree_stack_t *stack)
{
    unsigned char merges = 0;
    while (tt_tree_can_merge(stack)) {
        tt_tree_merge(stack);
        merges++;
    }
    return merges;
}

static tutti_status_t add_rank(tt_mpi_job_t *job, int rank, tt_leaves_t leaves,
                               tt_tree_stack_t *stack)
{
    tt_leaves_t spans[TT_TREE_DEPTH_MAX];
    const int count = leaves.end > leaves.begin
                          ? tt_tree_pieces(stack->leaves, leaves.begin, leaves.end, spans)
                          : 0;
    job->piece_counts[rank] = count;
    TT_TRY(tt_mpi_want_sources(job, job->source_count + count));
    for (int i = 0; i < count; i++) {
        tt_tree_push(stack, spans[i].begin, spans[i].end);
        job->depth = stack->depth > job->depth ? stack->depth : job->depth;
        job->merges[job->source_count++] = count_merges(stack);
    }
    return TUTTI_OK;
}

/* Of a scan: a piece of each rank that this one adds up for itself, or for anyone. The room that
 * other calls have planned is lost. */
static tutti_status_t plan_prefix_tree(const tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const int end = contributors(group, job, job->is_whole ? group->rank : group->size - 1);
    tt_tree_stack_t stack = {.leaves = end};
    job->source_count = job->depth = job->tree_leaves = 0;
    for (int rank = 0; rank < group->size; rank++) {
        const tt_leaves_t leaf = {rank, rank < end ? rank + 1 : rank};
        TT_TRY(add_rank(job, rank, leaf, &stack));
    }
    return tt_mpi_want_tree(job, job->depth);
}

tutti_status_t tt_mpi_plan_tree(const tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const int leaves = call->leaves > 0 ? call->leaves : group->size;
    job->is_whole = call->collective != TT_REDUCE_SCATTER &&
                    call->count * tutti_dtype_bytes(call->dtype) <= WHOLE_BYTES;
    if (is_prefix(job)) {
        return plan_prefix_tree(group, job);
    }
    if (call->first == NULL && job->tree_leaves == leaves) {
        return TUTTI_OK;
    }
    tt_tree_stack_t stack = {.leaves = leaves};
    job->source_count = job->depth = job->tree_leaves = 0;
    for (int rank = 0; rank < group->size; rank++) {
        const int begin =
            call->first != NULL ? call->first[rank] : tt_tree_first_leaf(leaves, group->size, rank);
        const int end = call->first != NULL ? call->first[rank + 1]
                                            : tt_tree_first_leaf(leaves, group->size, rank + 1);
        if (begin < 0 || begin > end || end > leaves) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d hosts leaves [%d, %d) of %d",
                           tt_collective_name(call->collective), rank, begin, end, leaves);
        }
        TT_TRY(add_rank(job, rank, (tt_leaves_t){begin, end}, &stack));
    }
    if (stack.depth != 1 || stack.spans[0].begin != 0 || stack.spans[0].end != leaves) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: the leaf map does not tile %d leaves",
                       tt_collective_name(call->collective), leaves);
    }
    job->tree_leaves = call->first == NULL ? leaves : 0;
    return tt_mpi_want_tree(job, job->depth);
}

/* ---- reductions ---- */

/* Elements of a block: of the whole, or of each part of a reduce_scatter. */
static size_t block_elements(const tt_mpi_group_t *group, const tt_call_t *call)
{
    const size_t all = BLOCK_BYTES / tutti_dtype_bytes(call->dtype);
    const size_t most = call->collective == TT_REDUCE_SCATTER ? all / (size_t)group->size : all;
    return (most / TT_COMBINE_GRAIN + 1) * TT_COMBINE_GRAIN;
}

/* What each rank adds up in this block, as elements of a piece. */
static void cut_block(const tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const size_t most = block_elements(group, call), left = job->total - job->block;
    const size_t count = left < most ? left : most;
    for (int rank = 0; rank < group->size; rank++) {
        tt_slice_t *slice = &job->slices[rank];
        if (call->collective == TT_REDUCE_SCATTER) {
            const tt_slice_t part = job->recv[rank];
            const size_t rest = part.count > job->block ? part.count - job->block : 0;
            *slice = (tt_slice_t){part.begin + job->block, rest < count ? rest : count};
        } else if (is_prefix(job) && job->is_whole) { /* what it adds up, or gets of my piece */
            const int given = rank == group->rank ? 0 : group->rank;
            *slice = (tt_slice_t){0, given < contributors(group, job, rank) ? count : 0};
        } else if (job->is_whole) {
            const bool gets_it = call->collective == TT_ALL_REDUCE || rank == call->root;
            *slice = (tt_slice_t){0, gets_it ? count : 0};
        } else {
            *slice = tt_plan_slice(count, group->size, rank);
            slice->begin += job->block;
        }
    }
}

static tutti_status_t want_room(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const int others = group->size - 1, mine = pieces_given(group, job);
    const int coming = job->source_count - job->piece_counts[group->rank];
    const size_t slice = job->slices[group->rank].count;
    const int first = coming + mine * others, second = 2 * others;
    TT_TRY(tt_mpi_want_requests(group, job, first > second ? first : second));
    const int sums = is_prefix(job) && !job->is_whole ? others : 1; /* that go to others */
    return tt_mpi_want_scratch(job,
                               (size_t)(coming + sums) * slice * tutti_dtype_bytes(call->dtype));
}

/* Slices of others' pieces come into scratch; mine are sources where they lie. */
static tutti_status_t post_receives(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const tt_slice_t mine = job->slices[group->rank];
    const size_t bytes = mine.count * tutti_dtype_bytes(call->dtype);
    char *room = job->scratch;
    int source = 0;
    for (int rank = 0; rank < group->size; rank++) {
        for (int i = 0; i < job->piece_counts[rank]; i++) {
            if (rank == group->rank) {
                job->sources[source++] = at(job->run->pieces[i], mine.begin, call->dtype);
                continue;
            }
            job->sources[source++] = room;
            if (bytes > 0) {
                TT_TRY(tt_mpi_post_recv(group, job, rank, room, bytes));
            }
            room += bytes;
        }
    }
    job->result = room;
    return TUTTI_OK;
}

static tutti_status_t post_pieces(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    for (int step = 1; step < group->size; step++) {
        const int peer = peer_at(group, step);
        const tt_slice_t slice = job->slices[peer];
        for (int i = 0; i < pieces_given(group, job) && slice.count > 0; i++) {
            TT_TRY(tt_mpi_post_send(group, job, peer,
                                    at(job->run->pieces[i], slice.begin, call->dtype),
                                    slice.count * tutti_dtype_bytes(call->dtype)));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t post_block(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    job->step = 0;
    cut_block(group, job);
    TT_TRY(want_room(group, job));
    TT_TRY(post_receives(group, job));
    TT_TRY(post_pieces(group, job));
    return TUTTI_PENDING;
}

/* My slice of the first sources, `leaves` in all, to dst. */
static void add_sources(tt_mpi_group_t *group, tt_mpi_job_t *job, int leaves, int count, void *dst)
{
    const tt_call_t *call = &job->run->call;
    const tt_tree_reduce_t sum = {.kernels = group->kernels,
                                  .src_dtype = call->dtype,
                                  .dst_dtype = call->out_dtype,
                                  .reduction = call->reduction,
                                  .custom = call->custom,
                                  .leaves = leaves,
                                  .source_count = count,
                                  .sources = job->sources,
                                  .merges = job->merges,
                                  .dst_count = 1,
                                  .dst = &dst,
                                  .scratch = job->tree_scratch};
    if (job->slices[group->rank].count > 0 && count > 0) {
        tt_tree_reduce(&sum, 0, job->slices[group->rank].count);
    }
}

/* The result of the rank that contributes last. */
static void add_prefix(tt_mpi_group_t *group, tt_mpi_job_t *job, int rank, void *dst)
{
    const int count = contributors(group, job, rank);
    tt_tree_stack_t stack = {.leaves = count};
    for (int i = 0; i < count; i++) {
        tt_tree_push(&stack, i, i + 1);
        job->merges[i] = count_merges(&stack);
    }
    add_sources(group, job, count, count, dst);
}

/* Each rank's result of my slice; mine, which may take the place of my piece, comes last. */
static void add_prefixes(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const tt_slice_t mine = job->slices[group->rank];
    const size_t bytes = mine.count * tutti_dtype_bytes(call->out_dtype);
    for (int step = 1; step < group->size; step++) {
        add_prefix(group, job, peer_at(group, step), job->result + (size_t)(step - 1) * bytes);
    }
    add_prefix(group, job, group->rank, at_out(call, mine.begin));
}

static void add_up(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const tt_slice_t mine = job->slices[group->rank];
    if (is_prefix(job) && !job->is_whole) {
        add_prefixes(group, job);
        return;
    }
    if (call->collective == TT_REDUCE_SCATTER) {
        job->result = at_out(call, job->block);
    } else if (call->collective != TT_REDUCE || group->rank == call->root) {
        job->result = at_out(call, mine.begin);
    } /* else in scratch */
    const int leaves = is_prefix(job)     ? contributors(group, job, group->rank)
                       : call->leaves > 0 ? call->leaves
                                          : group->size;
    add_sources(group, job, leaves, job->source_count, job->result);
}

/* Phase 1: sums to those who want them. */
static tutti_status_t post_sums(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const size_t bytes = tutti_dtype_bytes(call->out_dtype);
    const size_t mine = job->slices[group->rank].count;
    for (int step = 1; step < group->size; step++) {
        const int peer = peer_at(group, step);
        const tt_slice_t theirs = job->slices[peer];
        const char *sum =
            is_prefix(job) ? job->result + (size_t)(step - 1) * mine * bytes : job->result;
        if (gets_sums(group, job, group->rank) && theirs.count > 0) {
            TT_TRY(tt_mpi_post_recv(group, job, peer, at_out(call, theirs.begin),
                                    theirs.count * bytes));
        }
        if (gets_sums(group, job, peer) && mine > 0) {
            TT_TRY(tt_mpi_post_send(group, job, peer, sum, mine * bytes));
        }
    }
    return TUTTI_PENDING;
}

static tutti_status_t advance_reduction(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    if (job->step == 0) {
        add_up(group, job);
        job->step = 1;
        if (call->collective != TT_REDUCE_SCATTER && !job->is_whole) {
            return post_sums(group, job);
        }
    }
    job->block += block_elements(group, call);
    return job->block < job->total ? post_block(group, job) : TUTTI_OK;
}

static tutti_status_t begin_reduction(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    job->block = 0;
    job->total = call->count;
    if (call->collective == TT_REDUCE_SCATTER) {
        job->total = 0;
        for (int rank = 0; rank < group->size; rank++) {
            const size_t count = job->recv[rank].count;
            job->total = count > job->total ? count : job->total;
        }
    }
    job->advance = advance_reduction;
    return job->total > 0 ? post_block(group, job) : TUTTI_OK;
}

/* ---- moving data ---- */

/* A part of nothing is not sent, but in a barrier. */
static bool is_sent(const tt_mpi_job_t *job, tt_slice_t part)
{
    return part.count > 0 || job->run->call.collective == TT_BARRIER;
}

static tutti_status_t send_part(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, tt_slice_t part)
{
    const tt_call_t *call = &job->run->call;
    return !is_sent(job, part) ? TUTTI_OK
                               : tt_mpi_post_send(group, job, peer,
                                                  at(job->run->pieces[0], part.begin, call->dtype),
                                                  part.count * tutti_dtype_bytes(call->dtype));
}

static tutti_status_t recv_part(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, tt_slice_t part)
{
    const tt_call_t *call = &job->run->call;
    return !is_sent(job, part) ? TUTTI_OK
                               : tt_mpi_post_recv(group, job, peer, at_out(call, part.begin),
                                                  part.count * tutti_dtype_bytes(call->out_dtype));
}

static void copy_own(const tt_mpi_job_t *job, tt_slice_t from, tt_slice_t to)
{
    const tt_call_t *call = &job->run->call;
    if (from.count > 0 && to.count > 0) {
        const char *src = at(job->run->pieces[0], from.begin, call->dtype);
        char *dst = at_out(call, to.begin);
        if (dst != src) {
            memmove(dst, src, from.count * tutti_dtype_bytes(call->dtype));
        }
    }
}

/* What I give to a rank, as part of my piece; what I get from it, as part of out. */
static tt_slice_t given_to(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int peer)
{
    const tt_call_t *call = &job->run->call;
    const bool am_root = group->rank == call->root;
    const tt_slice_t mine = {0, job->recv[group->rank].count};
    switch (call->collective) {
    case TT_ALL_GATHER:
        return mine;
    case TT_GATHER:
        return peer == call->root ? mine : (tt_slice_t){0, 0};
    case TT_SCATTER:
        return am_root ? job->recv[peer] : (tt_slice_t){0, 0};
    case TT_ALL_TO_ALL:
        return job->send[peer];
    case TT_BROADCAST:
        return (tt_slice_t){0, am_root ? call->count : 0};
    default:
        return (tt_slice_t){0, 0};
    }
}

static tt_slice_t taken_from(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int peer)
{
    const tt_call_t *call = &job->run->call;
    const bool is_root = peer == call->root;
    switch (call->collective) {
    case TT_ALL_GATHER:
    case TT_ALL_TO_ALL:
        return job->recv[peer];
    case TT_GATHER:
        return group->rank == call->root ? job->recv[peer] : (tt_slice_t){0, 0};
    case TT_SCATTER:
        return (tt_slice_t){0, is_root ? job->recv[group->rank].count : 0};
    case TT_BROADCAST:
        return (tt_slice_t){0, is_root ? call->count : 0};
    default:
        return (tt_slice_t){0, 0};
    }
}

static tutti_status_t begin_move(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    job->advance = NULL;
    TT_TRY(tt_mpi_want_requests(group, job, 2 * (group->size - 1)));
    for (int step = 1; step < group->size; step++) {
        const int peer = peer_at(group, step);
        TT_TRY(recv_part(group, job, peer, taken_from(group, job, peer)));
    }
    for (int step = 1; step < group->size; step++) {
        const int peer = peer_at(group, step);
        TT_TRY(send_part(group, job, peer, given_to(group, job, peer)));
    }
    copy_own(job, given_to(group, job, group->rank), taken_from(group, job, group->rank));
    return TUTTI_PENDING;
}

/* ---- an all_to_all of uneven parts ---- */

/* Elements that a rank gives another, and wants of it: it knows that of itself alone. */
typedef struct {
    uint64_t given, wanted;
} parts_t;

static tutti_status_t compare_parts(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const parts_t *mine = job->scratch, *theirs = mine + group->size;
    for (int peer = 0; peer < group->size; peer++) {
        const tt_exchange_t in = {peer, group->rank, theirs[peer].given, mine[peer].wanted};
        const tt_exchange_t out = {group->rank, peer, mine[peer].given, theirs[peer].wanted};
        if (peer != group->rank) {
            TT_TRY(tt_exchange_check(job->sequence, &in));
            TT_TRY(tt_exchange_check(job->sequence, &out));
        }
    }
    return begin_move(group, job);
}

/* Rows that are given and not wanted would stay in MPI, and fewer than are wanted would not be
 * noticed: the ranks of each pair tell each other before anything is moved. */
static tutti_status_t tell_parts(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const size_t size = (size_t)group->size;
    TT_TRY(tt_mpi_want_scratch(job, 2 * size * sizeof(parts_t)));
    TT_TRY(tt_mpi_want_requests(group, job, 2 * (group->size - 1)));
    parts_t *mine = job->scratch, *theirs = mine + size;
    memset(mine, 0, 2 * size * sizeof *mine);
    job->advance = compare_parts;
    for (int peer = 0; peer < group->size; peer++) {
        mine[peer] = (parts_t){job->send[peer].count, job->recv[peer].count};
        if (peer != group->rank) {
            TT_TRY(tt_mpi_post_recv(group, job, peer, &theirs[peer], sizeof *theirs));
            TT_TRY(tt_mpi_post_send(group, job, peer, &mine[peer], sizeof *mine));
        }
    }
    return TUTTI_PENDING;
}

tutti_status_t tt_mpi_exchange(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    job->step = 0;
    if (call->collective == TT_ALL_TO_ALL && call->counts != NULL) {
        return tell_parts(group, job);
    }
    return tt_collective_reduces(call->collective) ? begin_reduction(group, job)
                                                   : begin_move(group, job);
}
