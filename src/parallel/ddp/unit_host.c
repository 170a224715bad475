/* The source of ranks on several hosts, some of them on one: a flat is gathered once for each host,
 * by all its ranks together, into memory that they share and that goes when none of them reads it.
 *
 *     host A, ranks 0 1        | slice 0 | slice 1 | slice 2 | slice 3 |   a host block, of A
 *                                  ^         ^         ^         ^
 *                                  0         1         2 sends   3 sends   to 0, and to 1
 *                               copies    copies       it        it
 *     host B, ranks 2 3        | slice 0 | slice 1 | slice 2 | slice 3 |   another one, of B
 *
 * Each rank sends its slice once to each other host: to that host's rank of the same number, modulo
 * how many there are. So every byte comes to a host once, over the wires of all its ranks, whatever
 * their number and order.
 *
 * A block's data have memory from when its keeper starts the flat until all ranks of the host have
 * left it. Its versions count the turns (host_block.h):
 *
 *     start     slices are sent. The keeper takes memory, and says so: it has finished the turn
 *               before, which it does not say earlier
 *     fill      when all ranks have finished the turn before: the own slice is copied, others are
 *               received, in place
 *     post      when they are there
 *     wait      until all have posted
 *     leave     finished; the keeper gives the memory back when all others have, too
 *     keep      not finished: what the host has stays, and the next start finds it there
 *
 * Nobody waits in start: what cannot be filled yet is filled later, at the latest in wait. Who
 * waits fills all flats in the order in which they were started, which is the same on all ranks; so
 * what a rank waits for are starts that others make without waiting for anything behind them. Who
 * announces the next start (ddp_unit_order.c) fills meanwhile, too (advance): a rank that follows
 * is not there before it has what was started before.
 *
 * Cost: of N bytes on H hosts with R ranks each a rank sends N (H − 1) / (H R), a host has N.
 */
#include <string.h>

#include <tutti/messages.h>

#include "comm/group/agree.h"
#include "comm/group/host_block.h"
#include "core/base/alloc.h"
#include "parallel/ddp/unit_slice_copy.h"
#include "parallel/ddp/unit_source.h"

typedef enum { AWAY, STARTED, FILLING, POSTED } phase_t;

/* A flat's whole in one dtype. */
typedef struct {
    phase_t phase;
    bool is_keeper, has_memory, is_near; /* near: posted, and kept for the next start */
    tt_host_block_t *block;
    tutti_tensor_t *data;   /* [numel] over it, which it holds */
    tutti_tensor_t **parts; /* [receive_count] of it */
    tutti_transfer_t *sends, *receives;
    int send_count, receive_count;
    tutti_work_t *sending, *receiving;
} turn_t;

typedef struct {
    tt_slice_copy_t low; /* what is sent of COMPUTE, if that is another dtype */
    turn_t turns[TT_UNIT_KINDS];
} host_flat_t;

typedef struct {
    tutti_group_t *local; /* the ranks of this host */
    int *hosts, *places;  /* [ranks] on which host, and as which of its ranks */
    int *counts;          /* [ranks] of each host */
    host_flat_t *flats;   /* [flat_count] */
    int kinds;            /* that are asked for */
    int *queue;           /* [flat_count × kinds] flats that come, in order: 2 flat + kind */
    int queue_count;
} host_t;

static turn_t *turn_of(const tt_unit_source_t *source, int flat, int kind)
{
    return &((host_t *)source->state)->flats[flat].turns[kind];
}

/* Whether what a host keeps is near to all who want it from there. */
static bool sets_are_within_hosts(const tutti_group_t *group, int near_ranks)
{
    for (int rank = 1; near_ranks > 0 && rank < tutti_group_size(group); rank++) {
        const int first = rank / near_ranks * near_ranks;
        if (tt_group_host(group, rank) != tt_group_host(group, first)) {
            return false;
        }
    }
    return true;
}

/* Several hosts, some rank of which is not alone. */
static bool may_gather_once(const tutti_group_t *group, int near_ranks)
{
    const int size = tutti_group_size(group);
    bool has_others = false, has_company = false;
    for (int rank = 1; rank < size; rank++) {
        has_others |= tt_group_host(group, rank) != tt_group_host(group, 0);
        for (int other = 0; other < rank; other++) {
            has_company |= tt_group_host(group, rank) == tt_group_host(group, other);
        }
    }
    return has_others && has_company && sets_are_within_hosts(group, near_ranks) &&
           tt_unit_may_share();
}

/* ---- making ---------------------------------------------------------------------------------- */

static tutti_status_t count_hosts(const tt_unit_source_t *source, host_t *host)
{
    const size_t ranks = (size_t)tutti_group_size(source->group),
                 flats = (size_t)source->flat_count;
    host->hosts = tt_alloc_array(ranks, sizeof(int), "host units");
    TT_TRY_ALLOC(host->hosts);
    host->places = tt_alloc_array(ranks, sizeof(int), "host units");
    TT_TRY_ALLOC(host->places);
    host->counts = tt_alloc_array(ranks, sizeof(int), "host units");
    TT_TRY_ALLOC(host->counts);
    host->flats = tt_alloc_array(flats, sizeof *host->flats, "host units");
    TT_TRY_ALLOC(host->flats);
    host->queue = tt_alloc_array(flats * TT_UNIT_KINDS, sizeof(int), "host units");
    TT_TRY_ALLOC(host->queue);
    for (size_t rank = 0; rank < ranks; rank++) {
        host->hosts[rank] = tt_group_host(source->group, (int)rank);
        host->places[rank] = host->counts[host->hosts[rank]]++;
    }
    host->kinds = 1;
    for (int i = 0; i < source->flat_count; i++) {
        const tutti_dtype_t *dtypes = source->flats[i].dtypes;
        host->kinds = dtypes[TT_UNIT_FULL] != dtypes[TT_UNIT_COMPUTE] ? 2 : host->kinds;
    }
    return TUTTI_OK;
}

static void release_block(tt_storage_t *storage)
{
    tt_host_block_release(storage->owner);
}

/* The tensor of a block, which it holds from here on. */
static tutti_status_t open_data(const tt_unit_flat_t *flat, turn_t *turn, int kind)
{
    const tutti_dtype_t dtype = flat->dtypes[kind];
    tt_storage_t *storage;
    TT_TRY(tt_storage_borrow(tt_host_block_data(turn->block),
                             (size_t)flat->numel * tutti_dtype_bytes(dtype), release_block,
                             turn->block, &storage));
    const tutti_status_t status =
        tt_tensor_over(storage, dtype, TUTTI_SHAPE(flat->numel), NULL, 0, &turn->data);
    if (status < 0) {
        storage->release = NULL; /* the block is still the turn's */
    }
    tt_storage_release(storage);
    return status;
}

/* What this rank sends: the slice, or its copy of the other dtype. */
static tutti_tensor_t *part_of(const tt_unit_source_t *source, int index, int kind)
{
    tutti_tensor_t *low = ((host_t *)source->state)->flats[index].low.tensor;
    return kind == TT_UNIT_COMPUTE && low != NULL ? low : source->flats[index].own;
}

/* From a rank of another host, whose slice is this one's to bring. */
static tutti_status_t add_receive(const tt_unit_source_t *source, int index, int kind, int from)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    turn_t *turn = turn_of(source, index, kind);
    tutti_tensor_t **part = &turn->parts[turn->receive_count];
    TT_TRY(tt_tensor_over(turn->data->storage, flat->dtypes[kind], TUTTI_SHAPE(flat->counts[from]),
                          NULL, flat->cuts[from], part));
    turn->receives[turn->receive_count++] = (tutti_transfer_t){
        .kind = TUTTI_RECV, .x = *part, .peer = from, .tag = TT_UNIT_KINDS * index + kind};
    return TUTTI_OK;
}

/* With each other host, the rank of this one's number there; with this host's, nothing. */
static tutti_status_t list_transfers(const tt_unit_source_t *source, int index, int kind)
{
    const host_t *host = source->state;
    const tt_unit_flat_t *flat = &source->flats[index];
    turn_t *turn = turn_of(source, index, kind);
    const int size = tutti_group_size(source->group), me = tutti_group_rank(source->group);
    turn->sends = tt_alloc_array((size_t)size, sizeof *turn->sends, "host units");
    TT_TRY_ALLOC(turn->sends);
    turn->receives = tt_alloc_array((size_t)size, sizeof *turn->receives, "host units");
    TT_TRY_ALLOC(turn->receives);
    turn->parts = tt_alloc_array((size_t)size, sizeof *turn->parts, "host units");
    TT_TRY_ALLOC(turn->parts);
    for (int rank = 0; rank < size; rank++) {
        const int theirs = host->counts[host->hosts[rank]], mine = host->counts[host->hosts[me]];
        if (host->hosts[rank] == host->hosts[me]) {
            continue;
        }
        if (flat->counts[me] > 0 && host->places[me] % theirs == host->places[rank]) {
            turn->sends[turn->send_count++] =
                (tutti_transfer_t){.kind = TUTTI_SEND,
                                   .x = part_of(source, index, kind),
                                   .peer = rank,
                                   .tag = TT_UNIT_KINDS * index + kind};
        }
        if (flat->counts[rank] > 0 && host->places[rank] % mine == host->places[me]) {
            TT_TRY(add_receive(source, index, kind, rank));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t open_own(const tt_unit_source_t *source, int index)
{
    tt_unit_flat_t *flat = &source->flats[index];
    const tutti_shape_t shape = TUTTI_SHAPE(flat->counts[tutti_group_rank(source->group)]);
    tutti_tensor_t **low = &((host_t *)source->state)->flats[index].low.tensor;
    TT_TRY(tutti_group_tensor(source->group, flat->dtypes[TT_UNIT_FULL], shape, &flat->own));
    return flat->dtypes[TT_UNIT_COMPUTE] == flat->dtypes[TT_UNIT_FULL]
               ? TUTTI_OK
               : tutti_group_tensor(source->group, flat->dtypes[TT_UNIT_COMPUTE], shape, low);
}

/* All finish the first version but the keeper, who does when it takes memory. */
static tutti_status_t open_turn(const tt_unit_source_t *source, int index, int kind)
{
    const host_t *host = source->state;
    const tt_unit_flat_t *flat = &source->flats[index];
    turn_t *turn = turn_of(source, index, kind);
    const int keeper = index % tutti_group_size(host->local);
    char what[TT_UNIT_FLAT_TEXT_BYTES];
    tt_unit_flat_text(flat, index, (tt_unit_kind_t)kind, what);
    const tt_host_block_options_t options = {.bytes = (size_t)flat->numel *
                                                      tutti_dtype_bytes(flat->dtypes[kind]),
                                             .keeper = keeper,
                                             .what = what,
                                             .comes_and_goes = true};
    TT_TRY(tt_host_block_create(host->local, &options, &turn->block));
    turn->is_keeper = keeper == tutti_group_rank(host->local);
    tt_host_block_post(turn->block);
    if (!turn->is_keeper) {
        tt_host_block_finish(turn->block);
    }
    tutti_status_t status = open_data(flat, turn, kind);
    if (status >= 0) {
        status = list_transfers(source, index, kind);
    }
    return tt_group_agree(host->local, status);
}

static tutti_status_t open_alone(const tt_unit_source_t *source)
{
    TT_TRY(count_hosts(source, source->state));
    for (int i = 0; i < source->flat_count; i++) {
        TT_TRY(open_own(source, i));
    }
    return TUTTI_OK;
}

static tutti_status_t open_turns(const tt_unit_source_t *source)
{
    const host_t *host = source->state;
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < host->kinds; kind++) {
            TT_TRY(open_turn(source, i, kind));
        }
    }
    return TUTTI_OK;
}

/* What a host's ranks fail of together, those of others are told. */
static tutti_status_t open_host(tt_unit_source_t *source)
{
    host_t *host = source->state;
    const int me = tutti_group_rank(source->group);
    TT_TRY(tt_group_agree(source->group, open_alone(source)));
    const tutti_status_t status =
        tutti_group_split(source->group, host->hosts[me], me, &host->local);
    return tt_group_agree(source->group, status < 0 ? status : open_turns(source));
}

/* ---- filling --------------------------------------------------------------------------------- */

static tutti_status_t exchange(const tt_unit_source_t *source, const tutti_transfer_t *transfers,
                               int count, tutti_work_t **work)
{
    return count == 0 ? TUTTI_OK : tutti_batch_send_recv(source->group, transfers, count, work);
}

static tutti_status_t fill(const tt_unit_source_t *source, int index, int kind)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    turn_t *turn = turn_of(source, index, kind);
    const tutti_tensor_t *part = part_of(source, index, kind);
    const size_t begin = (size_t)flat->cuts[tutti_group_rank(source->group)];
    memcpy((char *)tt_tensor_data(turn->data) + begin * tutti_dtype_bytes(part->dtype),
           tt_tensor_data(part), tutti_tensor_bytes(part));
    TT_TRY(exchange(source, turn->receives, turn->receive_count, &turn->receiving));
    turn->phase = FILLING; /* if that failed, who waits for it tries again, and is told */
    return TUTTI_OK;
}

static tutti_status_t end_work(tutti_work_t **work)
{
    const tutti_status_t status = *work != NULL ? tutti_work_wait(*work, 0) : TUTTI_OK;
    tutti_work_release(*work);
    *work = NULL;
    return status;
}

static tutti_status_t post(tt_unit_source_t *source, int index, int kind)
{
    turn_t *turn = turn_of(source, index, kind);
    if (turn->receiving != NULL) { /* one that failed stays, for who asks next */
        TT_TRY(tutti_work_wait(turn->receiving, 0));
    }
    (void)end_work(&turn->receiving);
    for (int i = 0; i < turn->receive_count; i++) {
        source->gathered_bytes += (int64_t)tutti_tensor_bytes(turn->parts[i]);
    }
    turn->phase = POSTED;
    tt_host_block_post(turn->block);
    return TUTTI_OK;
}

/* As far as it goes without waiting. */
static tutti_status_t advance_one(tt_unit_source_t *source, int index, int kind)
{
    turn_t *turn = turn_of(source, index, kind);
    if (turn->phase == STARTED && tt_host_block_is_free(turn->block)) {
        TT_TRY(fill(source, index, kind));
    }
    const bool is_here = turn->receiving == NULL || tutti_work_is_done(turn->receiving);
    return turn->phase == FILLING && is_here ? post(source, index, kind) : TUTTI_OK;
}

/* Memory that all others have left goes. */
static void discard_if_unread(turn_t *turn)
{
    if (turn->has_memory && turn->phase == AWAY && tt_host_block_is_unread(turn->block)) {
        tt_host_block_discard(turn->block);
        turn->has_memory = false;
    }
}

static void forget_posted(tt_unit_source_t *source)
{
    host_t *host = source->state;
    int kept = 0;
    for (int i = 0; i < host->queue_count; i++) {
        const int code = host->queue[i];
        const phase_t phase = turn_of(source, code / TT_UNIT_KINDS, code % TT_UNIT_KINDS)->phase;
        if (phase == STARTED || phase == FILLING) {
            host->queue[kept++] = code;
        }
    }
    host->queue_count = kept;
}

static tutti_status_t advance(tt_unit_source_t *source)
{
    const host_t *host = source->state;
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < host->queue_count && status >= 0; i++) {
        status =
            advance_one(source, host->queue[i] / TT_UNIT_KINDS, host->queue[i] % TT_UNIT_KINDS);
    }
    forget_posted(source);
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < host->kinds; kind++) {
            discard_if_unread(turn_of(source, i, kind));
        }
    }
    return status;
}

static tutti_status_t complete_one(tt_unit_source_t *source, int index, int kind)
{
    turn_t *turn = turn_of(source, index, kind);
    if (turn->phase == STARTED) {
        TT_TRY(tt_host_block_claim(turn->block));
        TT_TRY(fill(source, index, kind));
    }
    return turn->phase == FILLING ? post(source, index, kind) : TUTTI_OK;
}

/* In the order of starts, until this one is posted; NULL: all. */
static tutti_status_t complete(tt_unit_source_t *source, const turn_t *last)
{
    const host_t *host = source->state;
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < host->queue_count && status >= 0; i++) {
        if (last != NULL && last->phase != STARTED && last->phase != FILLING) {
            break;
        }
        status =
            complete_one(source, host->queue[i] / TT_UNIT_KINDS, host->queue[i] % TT_UNIT_KINDS);
    }
    forget_posted(source);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static size_t bytes_of(const turn_t *turn)
{
    return tutti_tensor_bytes(turn->data);
}

static tutti_status_t start_host(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    host_t *host = source->state;
    turn_t *turn = turn_of(source, index, kind);
    if (turn->is_near) {
        turn->is_near = false;
        return TUTTI_OK;
    }
    TT_ASSERT(turn->phase == AWAY && source->flats[index].whole[kind] == NULL);
    TT_TRY(end_work(&turn->sending));
    tt_slice_copy_update(&host->flats[index].low, source->flats[index].own,
                         source->ctx->exec.threads);
    if (turn->is_keeper) {
        TT_TRY(tt_host_block_populate(turn->block));
        turn->has_memory = true;
        tt_unit_source_hold(source, bytes_of(turn));
        tt_host_block_finish(turn->block);
    }
    turn->phase = STARTED;
    host->queue[host->queue_count++] = TT_UNIT_KINDS * index + (int)kind;
    TT_TRY(exchange(source, turn->sends, turn->send_count, &turn->sending));
    return advance(source);
}

static bool is_there_host(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const turn_t *turn = turn_of(source, index, kind);
    return source->flats[index].whole[kind] != NULL ||
           (advance(source) >= 0 && turn->phase == POSTED && tt_host_block_is_there(turn->block));
}

static tutti_status_t wait_host(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    tutti_tensor_t **whole = &source->flats[index].whole[kind];
    turn_t *turn = turn_of(source, index, kind);
    if (*whole != NULL) {
        return TUTTI_OK;
    }
    TT_TRY(complete(source, turn));
    TT_TRY(tt_host_block_await(turn->block));
    if (source->copies && kind == TT_UNIT_FULL) {
        return tt_unit_source_copy(source, turn->data, whole);
    }
    *whole = tutti_tensor_retain(turn->data);
    return TUTTI_OK;
}

static tutti_status_t keep_host(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    turn_t *turn = turn_of(source, index, kind);
    TT_ASSERT(turn->phase == POSTED && source->flats[index].whole[kind] != NULL);
    tt_unit_source_drop(source, turn->data, &source->flats[index].whole[kind]);
    turn->is_near = true;
    return TUTTI_OK;
}

/* What is coming is completed: other ranks of the host wait for it. Behind a failure nobody does.
 */
static void leave_host(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    turn_t *turn = turn_of(source, index, kind);
    if (turn->phase == AWAY) { /* also of a kind that is not asked for */
        return;
    }
    const bool is_posted = complete(source, turn) >= 0;
    tt_unit_source_drop(source, turn->data, &source->flats[index].whole[kind]);
    if (turn->is_keeper) {
        tt_unit_source_let_go(source, bytes_of(turn));
    }
    turn->phase = AWAY;
    turn->is_near = false;
    if (!is_posted) {
        turn->has_memory = false; /* it stays to the end: somebody may write it */
        return;
    }
    if (!turn->is_keeper) {
        tt_host_block_finish(turn->block);
    }
    (void)advance(source); /* what fails, whoever waits for it is told */
}

/* Slices are written: what comes has copied them, and nobody receives them any more. */
static tutti_status_t claim_host(tt_unit_source_t *source)
{
    const host_t *host = source->state;
    TT_TRY(complete(source, NULL));
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < host->kinds; kind++) {
            TT_TRY(end_work(&turn_of(source, i, kind)->sending));
        }
    }
    return advance(source);
}

static void give_up_host(tt_unit_source_t *source)
{
    const host_t *host = source->state;
    (void)tt_group_give_up(host->local, TUTTI_ERR_ABORTED);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void close_turn(turn_t *turn)
{
    (void)end_work(&turn->sending);
    (void)end_work(&turn->receiving);
    for (int i = 0; i < turn->receive_count; i++) {
        tutti_tensor_release(turn->parts[i]);
    }
    if (turn->data == NULL) {
        tt_host_block_release(turn->block);
    }
    tutti_tensor_release(turn->data);
    tt_free(turn->parts);
    tt_free(turn->sends);
    tt_free(turn->receives);
}

/* Memory of what is still held stays. */
static void close_flat(const tt_unit_source_t *source, int index)
{
    host_t *host = source->state;
    tt_unit_flat_t *flat = &source->flats[index];
    for (int kind = 0; kind < TT_UNIT_KINDS; kind++) {
        tutti_tensor_release(flat->whole[kind]);
        flat->whole[kind] = NULL;
        close_turn(&host->flats[index].turns[kind]);
    }
    tutti_tensor_release(host->flats[index].low.tensor);
    tutti_tensor_release(flat->own);
    flat->own = NULL;
}

static void close_host(tt_unit_source_t *source)
{
    host_t *host = source->state;
    for (int i = 0; host->flats != NULL && i < source->flat_count; i++) {
        close_flat(source, i);
    }
    tutti_group_release(host->local);
    tt_free(host->hosts);
    tt_free(host->places);
    tt_free(host->counts);
    tt_free(host->flats);
    tt_free(host->queue);
}

const tt_unit_source_ops_t tt_unit_host = {
    .name = "host",
    .about = "a host's ranks gather each unit once, in parts, into memory that they share",
    .state_bytes = sizeof(host_t),
    .is_common = true,
    .is_possible = may_gather_once,
    .open = open_host,
    .close = close_host,
    .start = start_host,
    .is_there = is_there_host,
    .wait = wait_host,
    .advance = advance,
    .leave = leave_host,
    .keep = keep_host,
    .claim = claim_host,
    .give_up = give_up_host,
};
