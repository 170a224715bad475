/* Collectives of a group: making it, the queue of calls, waiting.
 *
 * Calls are carried out strictly one after the other. They are shown in their slots as soon as they
 * start, or if an earlier one that is under way has overlapping memory, as soon as that is done: so
 * calls on overlapping memory may be under way together. What a call packs is copied when it is
 * shown and when it is done. Cost of an all_reduce of 4 bytes over 2 ranks: one cache line each
 * way.
 */

#include <stdio.h>
#include <string.h>

#include "comm/coll/coll.h"
#include "comm/coll/coll_fail.h"
#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p.h"
#include "core/base/alloc.h"

enum { WATCH_NS = 5000000 };

static int find_host(int *hosts, const tt_coll_t *coll, int rank)
{
    const int host = tt_peers_host(coll->peers, coll->peer_ranks[rank]);
    for (int i = 0; i < rank; i++) {
        if (tt_peers_host(coll->peers, coll->peer_ranks[i]) == host) {
            return hosts[i];
        }
    }
    return -1;
}

/* Of the other ranks of this host. */
static void find_doorbells(tt_coll_t *coll)
{
    int count = 0;
    for (int i = 0; i < coll->local_count; i++) {
        const int node_peer = coll->node_peer_ranks[coll->local_ranks[i]];
        if (coll->local_ranks[i] != coll->rank) {
            coll->doorbells[count++] =
                (tt_doorbell_t){tt_node_peers_doorbell(coll->node_peers, node_peer), node_peer};
        }
    }
}

/* Who is where: the group's own numbers of hosts, and its ranks on this one. */
static void map_ranks(tt_coll_t *coll)
{
    for (int i = 0; i < coll->size; i++) {
        coll->peer_ranks[i] = coll->options.peer_ranks != NULL ? coll->options.peer_ranks[i] : i;
        coll->node_peer_ranks[i] = tt_peers_node_peer(coll->peers, coll->peer_ranks[i]);
        if (coll->node_peer_ranks[i] >= 0) {
            coll->local_ranks[coll->local_count++] = i;
        }
        const int host = find_host(coll->hosts, coll, i);
        coll->hosts[i] = host >= 0 ? host : coll->host_count++;
    }
    coll->options.peer_ranks = NULL;
    find_doorbells(coll);
}

static tutti_status_t open_parts(tt_coll_t *coll)
{
    const size_t size = (size_t)coll->size;
    coll->peer_ranks = tt_alloc_array(4 * size, sizeof *coll->peer_ranks, "group");
    coll->doorbells = tt_alloc_array(size, sizeof *coll->doorbells, "group");
    coll->blocks = tt_alloc_array(size, sizeof *coll->blocks, "group");
    coll->links.all = tt_alloc_array(size, sizeof *coll->links.all, "group");
    if (coll->peer_ranks == NULL || coll->doorbells == NULL || coll->blocks == NULL ||
        coll->links.all == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    coll->node_peer_ranks = coll->peer_ranks + size;
    coll->hosts = coll->node_peer_ranks + size;
    coll->local_ranks = coll->hosts + size;
    TT_TRY(tt_coll_open_steps(coll));
    map_ranks(coll);
    const size_t bytes = tt_flag_block_bytes(coll->size);
    coll->block = tt_device_alloc(tt_node_peers_heap(coll->node_peers), bytes, "flag block");
    TT_TRY_ALLOC(coll->block);
    memset(coll->block, 0, bytes);
    coll->blocks[coll->rank] = coll->block;
    return tt_coll_open_lease(coll);
}

tutti_status_t tt_coll_create(const tt_coll_options_t *options, tt_coll_t **out)
{
    tt_coll_t *coll = tt_alloc(sizeof *coll, "group");
    TT_TRY_ALLOC(coll);
    coll->options = *options;
    coll->links.mismatched = -1;
    coll->rank = options->rank;
    coll->size = options->size;
    coll->peers = tt_peers_retain(options->peers);
    coll->node_peers = tt_peers_node_peers(coll->peers);
    coll->kernels = tt_combine_kernels();
    tutti_status_t status = tt_coll_rules_add(&coll->rules, options->rules, "TUTTI_ALGO");
    if (status >= 0) {
        status = open_parts(coll);
    }
    if (status < 0) {
        tt_coll_release(coll);
        return status;
    }
    if (options->world != NULL) { /* so that a dump finds it */
        LIST_INSERT_HEAD(&options->world->parts, coll, of_world);
    }
    *out = coll;
    return TUTTI_OK;
}

tt_heap_address_t tt_coll_address(const tt_coll_t *coll)
{
    return tt_heap_address(tt_node_peers_heap(coll->node_peers), coll->block,
                           tt_flag_block_bytes(coll->size));
}

tutti_status_t tt_coll_connect(tt_coll_t *coll, int rank, tt_heap_address_t address)
{
    const tt_heap_span_t span = {address, tt_flag_block_bytes(coll->size),
                                 _Alignof(tt_flag_block_t)};
    void *block;
    const tutti_status_t status =
        tt_node_peers_find(coll->node_peers, coll->node_peer_ranks[rank], span, &block);
    TT_TRY(status);
    coll->blocks[rank] = block;
    return status == TUTTI_OK ? TUTTI_OK
                              : TT_FAIL(TUTTI_ERR_FORMAT,
                                        "rank %d of group %s shows flags in memory that it has not "
                                        "sent",
                                        rank, coll->options.name);
}

bool tt_coll_has_node_peers(const tt_coll_t *coll)
{
    return coll->local_count > 1;
}

static void finish(tt_coll_t *coll, tt_run_t *run, tutti_status_t status)
{
    if (status >= 0) {
        tt_call_copy_out(&run->call);
    }
    if (coll->queue.conflict == run) {
        coll->queue.conflict = NULL;
    }
    tt_record_progress(&coll->block->records, run->op.record,
                       status < 0 ? TT_RECORD_FAILED : TT_RECORD_DONE, run->round);
    tt_prepared_release(run->prepared);
    run->next = NULL;
    run->op.status = status;
}

/* Calls or messages are under way. */
static inline bool is_busy(const tt_coll_t *coll)
{
    return coll->queue.head != NULL || (coll->p2p != NULL && tt_p2p_is_busy(coll->p2p));
}

static void fail_runs(tt_coll_t *coll)
{
    if (is_busy(coll)) {
        tt_coll_quiesce(coll); /* before a caller hears of it, and uses its memory again */
    }
    while (coll->queue.head != NULL) {
        tt_run_t *run = coll->queue.head;
        coll->queue.head = run->next;
        finish(coll, run, coll->status);
    }
    coll->queue.tail = coll->queue.to_post = NULL;
    if (coll->p2p != NULL) {
        tt_p2p_fail(coll->p2p, coll->status);
    }
}

/* A rank whose message this one has got in place waits for the answer, which may have found its
 * ring full. */
static void flush_answers(tt_coll_t *coll)
{
    enum { FLUSH_MS = 1000 };
    const tt_deadline_t deadline = tt_deadline_in_ms(FLUSH_MS);
    tt_idle_t idle = {0};
    while (tt_p2p_flush(coll->p2p) && !tt_deadline_is_past(deadline)) {
        tt_peers_idle(coll->peers, &idle, deadline);
    }
    tt_peers_idle_end(coll->peers, &idle);
}

void tt_coll_release(tt_coll_t *coll)
{
    if (coll == NULL) {
        return;
    }
    if (is_busy(coll)) {
        tt_coll_abort(coll, "");
    }
    if (coll->p2p != NULL && coll->status >= 0) {
        flush_answers(coll);
    }
    fail_runs(coll);
    if (coll->of_world.le_prev != NULL) {
        LIST_REMOVE(coll, of_world);
    }
    if (coll->block != NULL) {
        tt_coll_end_wait(coll);
        tt_coll_take_leave(coll);
    }
    for (int i = 0; i < coll->size && coll->links.all != NULL; i++) {
        tt_wire_close(&coll->links.all[i].endpoint.wire);
    }
    tt_p2p_release(coll->p2p);
    tt_coll_close_lease(coll);
    tt_coll_forget_prepared(coll);
    tt_peers_release(coll->peers);
    tt_free(coll->peer_ranks);
    tt_free(coll->doorbells);
    tt_free(coll->blocks);
    tt_free(coll->links.all);
    tt_coll_close_steps(coll);
    tt_free(coll);
}

static void enqueue(tt_coll_t *coll, tt_run_t *run, bool is_shown)
{
    if (coll->queue.tail != NULL) {
        coll->queue.tail->next = run;
    } else {
        coll->queue.head = run;
    }
    coll->queue.tail = run;
    if (!is_shown && coll->queue.to_post == NULL) {
        coll->queue.to_post = run;
    }
}

/* What is shown may be read, and written, by local ranks that are done with the calls before it:
 * so it is not shown while one of these is under way here on the same memory. */
static bool may_show(tt_coll_t *coll, const tt_run_t *run)
{
    if (coll->queue.conflict != NULL || !tt_coll_may_post(coll, run->sequence)) {
        return false;
    }
    const tt_run_t *at = coll->queue.head;
    while (at != NULL && at != run && !tt_runs_conflict(at, run)) {
        at = at->next;
    }
    coll->queue.conflict = at != run ? at : NULL;
    return coll->queue.conflict == NULL;
}

static void post_what_may_be_posted(tt_coll_t *coll)
{
    while (coll->queue.to_post != NULL && may_show(coll, coll->queue.to_post)) {
        tt_run_t *run = coll->queue.to_post;
        tt_coll_post(coll, run);
        tt_record_progress(&coll->block->records, run->op.record, TT_RECORD_POSTED, -1);
        coll->queue.to_post = run->next;
    }
}

/* What a call has that its descriptor has not. */
static void take_memory(tt_run_t *run, const tt_call_t *call)
{
    TT_ASSERT(call->piece_count <= TT_TREE_DEPTH_MAX);
    for (int i = 0; i < call->piece_count; i++) {
        run->pieces[i] = call->pieces[i];
    }
    run->call.pieces = run->pieces;
    run->call.out = call->out;
    run->call.packed = call->packed;
    run->piece_bytes = run->prepared->plan.piece_elements * tt_dtype_bytes(run->call.dtype);
    run->out_bytes = run->prepared->plan.out_elements * tt_dtype_bytes(run->call.out_dtype);
    run->call.tag = call->tag;
    run->call.site = call->site;
    run->call.custom = call->custom;
}

/* A call that was just written down piece by piece is not copied as a whole: the processor would
 * wait until all pieces have reached its cache. */
static void set_up(const tt_call_t *call, tt_prepared_t *prepared, tt_run_t *run)
{
    prepared->users++;
    run->next = NULL;
    run->op.status = TUTTI_PENDING;
    run->state = TT_RUN_QUEUED;
    run->round = -1;
    run->op.waited_since_ns = 0;
    run->op.is_reported = false;
    run->op.kind = TT_OP_CALL;
    run->prepared = prepared;
    run->plan = &prepared->plan;
    run->call = prepared->call;
    take_memory(run, call);
}

static void queue(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t *prepared, tt_run_t *run)
{
    set_up(call, prepared, run);
    run->sequence = coll->queue.sequence;
    run->fingerprint = tt_mix(prepared->fingerprint, call->tag);
    const bool shows = coll->queue.to_post == NULL && may_show(coll, run);
    if (shows) {
        tt_coll_post(coll, run);
    }
    run->op.record = tt_coll_write_down(coll, call, prepared, shows);
    enqueue(coll, run, shows);
}

/* If the local ranks are here, or come within a few polls, the call is carried out on the spot.
 * Otherwise it is queued as one that has been posted. */
static inline void start_small(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t *prepared,
                               tt_run_t *run)
{
    const tt_post_t post = {prepared, call, coll->queue.sequence,
                            tt_mix(prepared->fingerprint, call->tag)};
    if (tt_coll_start_small(coll, &post, &run->op.record)) {
        run->op.kind = TT_OP_CALL;
        run->op.status = TUTTI_OK;
        return;
    }
    set_up(call, prepared, run);
    run->sequence = post.sequence;
    run->fingerprint = post.fingerprint;
    run->state = TT_RUN_POSTED;
    run->arrived = 0;
    enqueue(coll, run, true);
}

/* Nothing else is under way, which would have to be moved forward first, and nothing is copied. */
static inline bool is_alone(const tt_coll_t *coll, const tt_call_t *call)
{
    return (coll->waiting.posted_record | coll->waiting.put_record | (uintptr_t)call->packed) ==
               0 &&
           !is_busy(coll);
}

/* What the caller has prepared, if it is up to date, or the first entry of its set. */
static inline tt_prepared_t *guess_prepared(tt_coll_t *coll, const tt_call_t *call)
{
    if (call->prepared != NULL && call->prepared->rules == coll->prepared.rules_version) {
        return call->prepared;
    }
    tt_prepared_t *at = tt_coll_prepared_set(coll, tt_call_hash(call))[0];
    return at != NULL && tt_call_is_alike(&at->call, call) && !at->has_more &&
                   !tt_call_has_more(call)
               ? at
               : NULL;
}

tutti_status_t tt_coll_start(tt_coll_t *coll, const tt_call_t *call, tt_run_t *run)
{
    if (coll->status < 0) {
        return tt_fail_again(coll->status, coll->error);
    }
    tt_prepared_t *prepared = guess_prepared(coll, call);
    if (prepared == NULL) {
        TT_TRY(tt_coll_find_prepared(coll, call, &prepared));
    }
    coll->queue.sequence++;
    if (prepared->is_small && is_alone(coll, call) &&
        tt_coll_may_post(coll, coll->queue.sequence)) {
        start_small(coll, call, prepared, run);
    } else {
        queue(coll, call, prepared, run);
    }
    return TUTTI_OK;
}

static tutti_status_t meet(tt_coll_t *coll, tt_run_t *run)
{
    TT_TRY(tt_coll_check_agreement(coll, run));
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    if (algorithm->shares_memory && !algorithm->travels_in_flags && tt_coll_is_foreign(coll, run)) {
        TT_TRY(tt_coll_pick_staged(coll, run));
    }
    coll->queue.last = run->plan->plan->algorithm;
    coll->queue.uncanonical_sums +=
        !coll->queue.last->is_canonical && tt_call_depends_on_order(&run->call);
    run->state = TT_RUN_RUNNING;
    tt_record_progress(&coll->block->records, run->op.record, TT_RECORD_RUNNING, run->round);
    return TUTTI_OK;
}

/* OK when the run is done, PENDING while others are awaited. */
static tutti_status_t advance(tt_coll_t *coll, tt_run_t *run)
{
    if (run->state == TT_RUN_QUEUED) {
        return TUTTI_PENDING;
    }
    if (run->state == TT_RUN_POSTED) {
        if (!tt_coll_have_arrived(coll, run)) {
            return TUTTI_PENDING;
        }
        TT_TRY(meet(coll, run));
    }
    if (run->state == TT_RUN_RUNNING) {
        tutti_status_t status = run->plan->execute(coll, run);
        if (!tt_coll_leave(coll) && status >= 0) {
            status = tt_coll_refuse();
        }
        if (status != TUTTI_OK) {
            return status;
        }
        tt_coll_post_done(coll, run->sequence);
        run->state = TT_RUN_FINISHING;
    }
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    const bool is_read_in_place = algorithm->shares_memory && !algorithm->travels_in_flags;
    return is_read_in_place && !tt_coll_are_all_done(coll, run) ? TUTTI_PENDING : TUTTI_OK;
}

static void progress_calls(tt_coll_t *coll)
{
    while (coll->queue.head != NULL && coll->status >= 0) {
        tt_run_t *run = coll->queue.head;
        const tutti_status_t status = advance(coll, run);
        if (status == TUTTI_PENDING) {
            if (coll->queue.to_post != NULL) {
                post_what_may_be_posted(coll);
            }
            return;
        }
        if (status < 0) {
            tt_coll_fail_call(coll, run, status);
            break;
        }
        coll->queue.head = run->next;
        if (coll->queue.head == NULL) {
            coll->queue.tail = NULL;
        }
        finish(coll, run, TUTTI_OK);
        post_what_may_be_posted(coll);
    }
}

void tt_coll_progress(tt_coll_t *coll)
{
    if (coll->host_count > 1) {
        tt_peers_progress(coll->peers);
    }
    progress_calls(coll);
    if (coll->p2p != NULL && coll->status >= 0) {
        const tutti_status_t status = tt_p2p_progress(coll->p2p);
        if (status < 0) {
            tt_coll_fail_message(coll, status, -1);
        }
    }
    if (coll->status < 0) {
        tt_coll_announce(coll);
        fail_runs(coll);
    }
}

static tt_verdict_t watch_messages(tt_coll_t *coll, int64_t now)
{
    tt_verdict_t verdict = {TUTTI_OK, -1, false};
    verdict.status = tt_p2p_watch(coll->p2p, now, &verdict.blamed);
    return verdict;
}

/* What was published before a rank went is taken first. */
bool tt_coll_check_health(tt_coll_t *coll, int64_t now)
{
    if (now - coll->queue.watched_ns < WATCH_NS) {
        return false;
    }
    coll->queue.watched_ns = now;
    tt_node_peers_check(coll->node_peers);
    tt_coll_progress(coll);
    tt_coll_note_wait(coll, now);
    if (coll->status >= 0) {
        tt_coll_fail(coll, tt_coll_watch(coll, now));
    }
    if (coll->p2p != NULL && coll->status >= 0) {
        tt_coll_fail(coll, watch_messages(coll, now));
    }
    if (coll->status >= 0) {
        tt_coll_fail(coll, tt_coll_ask_end(coll, now));
    }
    tt_coll_progress(coll);
    return true;
}

void tt_coll_abort(tt_coll_t *coll, const char *cause)
{
    if (coll->status >= 0) {
        tt_coll_put_cause(coll, cause);
        (void)(cause[0] == 0 ? TT_FAIL(TUTTI_ERR_ABORTED, "rank %d aborted group %s", coll->rank,
                                       coll->options.name)
                             : TT_FAIL(TUTTI_ERR_ABORTED, "rank %d gave group %s up: %s",
                                       coll->rank, coll->options.name, cause));
        tt_coll_fail(coll, (tt_verdict_t){TUTTI_ERR_ABORTED, coll->rank, false});
    }
}

tutti_status_t tt_coll_check(tt_coll_t *coll)
{
    if (coll->status >= 0) {
        tt_coll_fail(coll, tt_coll_listen_to(coll));
    }
    return coll->status < 0 ? tt_fail_again(coll->status, coll->error) : TUTTI_OK;
}

const tt_algorithm_t *tt_coll_last_algorithm(const tt_coll_t *coll)
{
    return coll->queue.last;
}

int64_t tt_coll_sent_bytes(const tt_coll_t *coll, tt_collective_t collective)
{
    return coll->links.sent_bytes[collective];
}

int64_t tt_coll_sent_message_bytes(const tt_coll_t *coll)
{
    return coll->links.sent_message_bytes;
}

int64_t tt_coll_uncanonical_sums(const tt_coll_t *coll)
{
    return coll->queue.uncanonical_sums;
}

const char *tt_coll_wires(const tt_coll_t *coll)
{
    if (coll->size == 1) {
        return "self";
    }
    return coll->host_count == 1 ? "shm" : coll->host_count == coll->size ? "tcp" : "shm+tcp";
}

tt_coll_rules_t *tt_coll_change_rules(tt_coll_t *coll)
{
    tt_coll_forget_prepared(coll); /* they remember what was chosen */
    return &coll->rules;
}
