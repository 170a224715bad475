/* Collectives of a group: making it, the queue of calls, waiting.
 *
 * Calls are shown in their slots as soon as they start, but carried out strictly one after the
 * other, so that calls on overlapping memory may be under way together. Cost of an all_reduce of 4
 * bytes over 2 ranks: one cache line each way.
 */
#include "comm/coll/coll.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/coll/coll_impl.h"
#include "core/base/alloc.h"

enum { WATCH_NS = 5000000, LLC_BYTES_DEFAULT = 32 << 20 };

static tutti_status_t open_parts(tt_coll_t *coll)
{
    const size_t size = (size_t)coll->size;
    coll->mate_ranks = tt_alloc_array(size, sizeof *coll->mate_ranks, "group");
    coll->blocks = tt_alloc_array(size, sizeof *coll->blocks, "group");
    coll->links = tt_alloc_array(size, sizeof *coll->links, "group");
    coll->dst = tt_alloc_array(size, sizeof *coll->dst, "group");
    if (coll->mate_ranks == NULL || coll->blocks == NULL || coll->links == NULL ||
        coll->dst == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    for (int i = 0; i < coll->size; i++) {
        coll->mate_ranks[i] = coll->options.mate_ranks != NULL ? coll->options.mate_ranks[i] : i;
    }
    coll->options.mate_ranks = NULL;
    const size_t bytes = tt_flag_block_bytes(coll->size);
    coll->block = tt_device_alloc(tt_mates_heap(coll->mates), bytes, "flag block");
    TT_TRY_ALLOC(coll->block);
    memset(coll->block, 0, bytes);
    coll->blocks[coll->rank] = coll->block;
    return TUTTI_OK;
}

static tutti_status_t find_forced(tt_coll_t *coll)
{
    const char *name = coll->options.algorithm;
    if (name == NULL || strcmp(name, "auto") == 0) {
        return TUTTI_OK;
    }
    coll->forced = tt_algorithm_find(name);
    return coll->forced != NULL ? TUTTI_OK
                                : TT_FAIL(TUTTI_ERR_ARG, "there is no algorithm \"%s\"", name);
}

tutti_status_t tt_coll_create(const tt_coll_options_t *options, tt_coll_t **out)
{
    tt_coll_t *coll = tt_alloc(sizeof *coll, "group");
    TT_TRY_ALLOC(coll);
    coll->options = *options;
    coll->rank = options->rank;
    coll->size = options->size;
    coll->mates = tt_mates_retain(options->mates);
    coll->kernels = tt_combine_kernels();
    const long llc_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    coll->stream_from_bytes = llc_bytes > 0 ? (size_t)llc_bytes : LLC_BYTES_DEFAULT;
    tutti_status_t status = find_forced(coll);
    if (status >= 0) {
        status = open_parts(coll);
    }
    if (status < 0) {
        tt_coll_release(coll);
        return status;
    }
    *out = coll;
    return TUTTI_OK;
}

tt_place_t tt_coll_place(const tt_coll_t *coll)
{
    return tt_heap_place(tt_mates_heap(coll->mates), coll->block, tt_flag_block_bytes(coll->size));
}

tutti_status_t tt_coll_connect(tt_coll_t *coll, int rank, tt_place_t place)
{
    const size_t bytes = tt_flag_block_bytes(coll->size);
    const int mate = coll->mate_ranks[rank];
    coll->blocks[rank] = tt_mates_at(coll->mates, mate, place, bytes);
    if (coll->blocks[rank] == NULL) {
        tt_mates_check(coll->mates);
        coll->blocks[rank] = tt_mates_at(coll->mates, mate, place, bytes);
    }
    if (coll->blocks[rank] == NULL) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d of group %s shows flags outside its heap", rank,
                       coll->options.name);
    }
    return TUTTI_OK;
}

static void finish(tt_run_t *run, tutti_status_t status)
{
    run->next = NULL;
    run->status = status;
}

static void fail_runs(tt_coll_t *coll)
{
    while (coll->head != NULL) {
        tt_run_t *run = coll->head;
        coll->head = run->next;
        finish(run, coll->status);
    }
    coll->tail = coll->to_show = NULL;
}

/* The block is freed only when nobody can still look at it; otherwise it stays in the heap until
 * that closes. Nobody waits here. */
static void give_back_block(tt_coll_t *coll)
{
    const size_t bytes = tt_flag_block_bytes(coll->size);
    if (coll->size == 1) {
        tt_device_free(tt_mates_heap(coll->mates), coll->block, bytes);
    } else {
        tt_heap_abandon(tt_mates_heap(coll->mates));
    }
}

void tt_coll_release(tt_coll_t *coll)
{
    if (coll == NULL) {
        return;
    }
    if (coll->head != NULL && coll->status >= 0) {
        tt_coll_abort(coll);
    }
    fail_runs(coll);
    for (int i = 0; i < coll->size && coll->links != NULL; i++) {
        tt_wire_close(&coll->links[i].wire);
    }
    if (coll->block != NULL) {
        uint64_t none = 0;
        atomic_compare_exchange_strong(&coll->block->failure, &none,
                                       tt_failure_pack(TUTTI_END, coll->rank));
        tt_coll_wake_all(coll);
        give_back_block(coll);
    }
    for (tt_leaf_map_t *map = coll->leaf_maps, *next; map != NULL; map = next) {
        next = map->next;
        tt_free(map);
    }
    for (int i = 0; i < TT_PLAN_CACHE; i++) {
        tt_plan_release(coll->plans[i].plan);
    }
    tt_mates_release(coll->mates);
    tt_free(coll->mate_ranks);
    tt_free(coll->blocks);
    tt_free(coll->links);
    tt_free(coll->dst);
    tt_free(coll->step_bytes);
    tt_free(coll->sources);
    tt_free(coll->scratch);
    tt_free(coll->tree_scratch);
    tt_free(coll);
}

static tt_sign_t sign_of(const tt_coll_t *coll, const tt_call_t *call)
{
    return (tt_sign_t){.count = call->count,
                       .tag = call->tag,
                       .group = coll->options.group,
                       .epoch = coll->options.epoch,
                       .leaves = (uint32_t)call->leaves,
                       .root = call->root,
                       .collective = (uint8_t)call->collective,
                       .dtype = (uint8_t)call->dtype,
                       .out_dtype = (uint8_t)call->out_dtype,
                       .reduction = (uint8_t)call->reduction};
}

static void enqueue(tt_coll_t *coll, tt_run_t *run)
{
    if (coll->tail != NULL) {
        coll->tail->next = run;
    } else {
        coll->head = run;
    }
    coll->tail = run;
    if (coll->to_show == NULL) {
        coll->to_show = run;
    }
}

static void show_what_may_be_shown(tt_coll_t *coll)
{
    while (coll->to_show != NULL && tt_coll_may_show(coll, coll->to_show)) {
        tt_coll_show(coll, coll->to_show);
        coll->to_show = coll->to_show->next;
    }
}

static tutti_status_t set_up(tt_coll_t *coll, const tt_call_t *call, tt_run_t *run)
{
    run->next = NULL;
    run->call = *call;
    run->state = TT_RUN_QUEUED;
    run->round = -1;
    run->started_ns = 0;
    run->is_reported = false;
    TT_ASSERT(call->piece_count <= TT_TREE_DEPTH_MAX);
    for (int i = 0; i < call->piece_count; i++) {
        run->pieces[i] = call->pieces[i];
    }
    run->call.pieces = run->pieces;
    run->sign = sign_of(coll, call);
    TT_TRY(tt_coll_intern_leaves(coll, run));
    run->fingerprint = tt_sign_fingerprint(&run->sign);
    return tt_coll_pick(coll, run);
}

tutti_status_t tt_coll_start(tt_coll_t *coll, const tt_call_t *call, tt_run_t *run)
{
    if (coll->status < 0) {
        return tt_fail_again(coll->status, coll->error);
    }
    TT_TRY(set_up(coll, call, run));
    run->status = TUTTI_PENDING;
    run->sequence = ++coll->sequence;
    enqueue(coll, run);
    show_what_may_be_shown(coll);
    return TUTTI_OK;
}

static bool is_any_foreign(const tt_coll_t *coll, const tt_run_t *run)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if ((tt_coll_slot(coll, rank, run->sequence)->flags & TT_FLAG_FOREIGN) != 0) {
            return true;
        }
    }
    return false;
}

static tutti_status_t meet(tt_coll_t *coll, tt_run_t *run)
{
    TT_TRY(tt_coll_check_agreement(coll, run));
    if (!run->plan->algorithm->travels_in_flags && is_any_foreign(coll, run)) {
        TT_TRY(tt_coll_pick_foreign(coll, run));
    }
    run->state = TT_RUN_RUNNING;
    return TUTTI_OK;
}

/* OK when the run is done, PENDING while others are awaited. */
static tutti_status_t advance(tt_coll_t *coll, tt_run_t *run)
{
    if (run->state == TT_RUN_QUEUED) {
        return TUTTI_PENDING;
    }
    if (run->state == TT_RUN_SHOWN) {
        if (!tt_coll_have_all_come(coll, run)) {
            return TUTTI_PENDING;
        }
        TT_TRY(meet(coll, run));
    }
    if (run->state == TT_RUN_RUNNING) {
        const tutti_status_t status = tt_coll_run_steps(coll, run);
        if (status != TUTTI_OK) {
            return status;
        }
        tt_coll_post_done(coll, run);
        run->state = TT_RUN_POSTED;
    }
    const tt_algorithm_t *algorithm = run->plan->algorithm;
    const bool is_read_in_place = algorithm->needs_shared_memory && !algorithm->travels_in_flags;
    return is_read_in_place && !tt_coll_are_all_done(coll, run) ? TUTTI_PENDING : TUTTI_OK;
}

void tt_coll_progress(tt_coll_t *coll)
{
    while (coll->head != NULL && coll->status >= 0) {
        tt_run_t *run = coll->head;
        const tutti_status_t status = advance(coll, run);
        if (status == TUTTI_PENDING) {
            if (coll->to_show != NULL) {
                show_what_may_be_shown(coll);
            }
            return;
        }
        if (status < 0) {
            tt_coll_fail(coll, status, -1);
            break;
        }
        coll->head = run->next;
        if (coll->head == NULL) {
            coll->tail = NULL;
        }
        finish(run, TUTTI_OK);
        show_what_may_be_shown(coll);
    }
    if (coll->status < 0) {
        fail_runs(coll);
    }
}

static tutti_status_t outcome(const tt_coll_t *coll, const tt_run_t *run)
{
    return run->status < 0 ? tt_fail_again(run->status, coll->error) : run->status;
}

/* Looks for trouble; what was published before a rank went is taken first. */
static void look_around(tt_coll_t *coll, int64_t now)
{
    if (now - coll->watched_ns < WATCH_NS) {
        return;
    }
    coll->watched_ns = now;
    tt_mates_check(coll->mates);
    tt_coll_progress(coll);
    tt_coll_watch(coll, now);
    tt_coll_progress(coll);
}

tutti_status_t tt_coll_test(tt_coll_t *coll, tt_run_t *run)
{
    if (run->status == TUTTI_PENDING) {
        tt_coll_progress(coll);
    }
    if (run->status == TUTTI_PENDING) {
        look_around(coll, tt_clock_ns());
    }
    return outcome(coll, run);
}

/* The time of the call's own end, so that no sleep passes it. */
static tt_deadline_t end_of(const tt_coll_t *coll, int64_t now)
{
    const int64_t started = coll->head->started_ns > 0 ? coll->head->started_ns : now;
    return started + coll->options.timeout_ms * TT_NS_PER_MS;
}

tutti_status_t tt_coll_wait(tt_coll_t *coll, tt_run_t *run, tt_deadline_t deadline)
{
    tt_idle_t idle = {0};
    tt_coll_progress(coll);
    while (run->status == TUTTI_PENDING) {
        if (idle.start_ns != 0) { /* it takes longer than a few polls */
            const int64_t now = tt_clock_ns();
            if (now >= deadline) {
                break;
            }
            look_around(coll, now);
            if (run->status != TUTTI_PENDING) {
                break;
            }
            const tt_deadline_t end = end_of(coll, now);
            tt_mates_idle(coll->mates, &idle, end < deadline ? end : deadline);
        } else {
            tt_mates_idle(coll->mates, &idle, deadline);
        }
        tt_coll_progress(coll);
    }
    tt_mates_idle_end(coll->mates, &idle);
    return outcome(coll, run);
}

void tt_coll_abort(tt_coll_t *coll)
{
    if (coll->status >= 0) {
        (void)TT_FAIL(TUTTI_ERR_ABORTED, "rank %d aborted group %s", coll->rank,
                      coll->options.name);
        tt_coll_fail(coll, TUTTI_ERR_ABORTED, coll->rank);
    }
}

tutti_status_t tt_coll_status(const tt_coll_t *coll)
{
    return coll->status;
}

const char *tt_coll_error(const tt_coll_t *coll)
{
    return coll->error;
}
