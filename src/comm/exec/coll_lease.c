/* The lease of memory: who may touch the memory of another rank, and when that rank may use it
 * again. flags.h has the protocol and why it holds; the letters here are those of its transitions.
 *
 * Cost of a call in which this rank goes into the others' memory once: two stores that wait for the
 * store buffer, and two looks at a line of each rank of the host that hardly ever changes. Calls
 * whose payload travels in the slots pay nothing.
 */
#include <stdio.h>
#include <string.h>

#include "comm/exec/coll_exec.h"
#include "core/base/log.h"

enum { QUIESCE_MS = 100, OWN_PIECES = 4 }; /* block, two bounce buffers, table */

void tt_coll_put_cause(tt_coll_t *coll, const char *text)
{
    const tt_wait_board_t *board = &coll->options.wait_board;
    snprintf(coll->block->cause, sizeof coll->block->cause, "%s", text);
    if (text[0] != 0 && coll->host_count > 1 && board->put != NULL) {
        (void)board->put(board->user, "cause", coll->rank, coll->block->cause,
                         strlen(coll->block->cause));
    }
}

/* F1 */
void tt_coll_give_up(tt_coll_t *coll, tt_verdict_t verdict)
{
    if (coll->status < 0) {
        return;
    }
    coll->status = verdict.status;
    snprintf(coll->error, sizeof coll->error, "%s", tutti_last_error());
    atomic_store(&coll->block->failure, tt_failure_pack(verdict.status, verdict.blamed) |
                                            (verdict.has_left ? TT_FAILURE_LEFT : 0));
    tt_coll_wake_node_peers(coll);
}

bool tt_coll_is_given_up(const tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const uint64_t failure = atomic_load(&coll->blocks[coll->local_ranks[i]]->failure);
        if (failure != 0 && tt_failure_status(failure) != TUTTI_END) {
            return true;
        }
    }
    return false;
}

bool tt_coll_enter(tt_coll_t *coll)
{
    atomic_store(&coll->block->inside, 1); /* E1 */
    coll->lease.is_inside = true;
    if (tt_coll_is_given_up(coll)) { /* E2 */
        atomic_store(&coll->block->inside, 0);
        coll->lease.is_inside = false;
    }
    return coll->lease.is_inside;
}

bool tt_coll_leave(tt_coll_t *coll)
{
    if (!coll->lease.is_inside) {
        return true;
    }
    atomic_store(&coll->block->inside, 0); /* L1 */
    coll->lease.is_inside = false;
    return !tt_coll_is_given_up(coll); /* L2 */
}

static bool has_failed(const tt_coll_t *coll, int rank)
{
    return atomic_load(&coll->blocks[rank]->failure) != 0;
}

/* A visit to one rank alone: E1, E2, L1, L2 with its failure word. */
bool tt_coll_get(tt_coll_t *coll, int rank, void *dst, const void *src, size_t bytes)
{
    atomic_store(&coll->block->inside, 1);
    bool is_fine = !has_failed(coll, rank);
    for (size_t done = 0; done < bytes && is_fine;) {
        const size_t part = bytes - done < TT_LOOK_BYTES ? bytes - done : TT_LOOK_BYTES;
        memcpy((char *)dst + done, (const char *)src + done, part);
        done += part;
        is_fine = !has_failed(coll, rank);
    }
    atomic_store(&coll->block->inside, 0);
    return is_fine && !has_failed(coll, rank);
}

tutti_status_t tt_coll_refuse(void)
{
    return TT_FAIL(TUTTI_ERR_ABORTED, "another rank has given the group up");
}

static bool is_anyone_inside(const tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        if (rank != coll->rank && coll->blocks[rank] != NULL &&
            atomic_load(&coll->blocks[rank]->inside) != 0 &&
            !tt_node_peers_is_gone(coll->node_peers, coll->node_peer_ranks[rank])) {
            return true;
        }
    }
    return false;
}

/* F2. A visitor that finds the failure wakes the owner, as a rank that fails does. */
static bool wait_until_outside(tt_coll_t *coll, int64_t timeout_ms)
{
    tt_idle_t idle = {0};
    const tt_deadline_t deadline = tt_deadline_in_ms(timeout_ms);
    bool is_inside = is_anyone_inside(coll);
    while (is_inside && !tt_deadline_is_past(deadline)) {
        tt_node_peers_check(coll->node_peers);
        tt_node_peers_idle(coll->node_peers, &idle, deadline);
        is_inside = is_anyone_inside(coll);
    }
    tt_node_peers_idle_end(coll->node_peers, &idle);
    return !is_inside;
}

/* The group's other calls must not end well if their results come to pages that were replaced. */
static void fail_if_exposed(tt_coll_t *coll, const char *memory, size_t bytes)
{
    const size_t page = tt_heap_page_bytes();
    for (const tt_run_t *run = coll->queue.head; run != NULL && coll->status >= 0;
         run = run->next) {
        size_t out_bytes;
        const char *out = tt_coll_exposed_out(coll, run, &out_bytes);
        if (out != NULL && out < memory + bytes + page && memory < out + out_bytes + page) {
            char cause[TT_CAUSE_BYTES];
            snprintf(cause, sizeof cause,
                     "group %s: the memory of a call was replaced, for a rank was stopped inside "
                     "it in a call of another group that failed",
                     coll->options.name);
            tt_coll_put_cause(coll, cause);
            const tutti_status_t status = TT_FAIL(TUTTI_ERR_ABORTED, "%s", cause);
            tt_coll_give_up(coll, (tt_verdict_t){status, coll->rank, false});
        }
    }
}

static void fail_other_groups(const tt_coll_t *coll, const void *memory, size_t bytes)
{
    tt_coll_t *world = coll->options.world;
    if (world != NULL) {
        fail_if_exposed(world, memory, bytes);
    }
    tt_coll_t *part;
    LIST_FOREACH(part, world != NULL ? &world->parts : &coll->parts, of_world)
    {
        fail_if_exposed(part, memory, bytes);
    }
}

/* F3 */
static tutti_status_t replace_outs(tt_coll_t *coll)
{
    for (const tt_run_t *run = coll->queue.head; run != NULL; run = run->next) {
        size_t bytes;
        void *out = tt_coll_exposed_out(coll, run, &bytes);
        if (out != NULL) {
            TT_TRY(tt_heap_replace(tt_node_peers_heap(coll->node_peers), out, bytes));
            fail_other_groups(coll, out, bytes);
        }
    }
    return TUTTI_OK;
}

void tt_coll_quiesce(tt_coll_t *coll)
{
    if (wait_until_outside(coll, QUIESCE_MS) || replace_outs(coll) == TUTTI_OK) {
        return;
    }
    if (!wait_until_outside(coll, coll->options.timeout_ms)) {
        tt_log(TT_LOG_ERROR,
               "group %s: a rank is still inside rank %d's memory, and there is none to "
               "replace it: %s",
               coll->options.name, coll->rank, tutti_last_error());
    }
}

/* ---- when the group is released ---- */

tutti_status_t tt_coll_open_lease(tt_coll_t *coll)
{
    const int rings = TT_LANES * coll->local_count;
    TT_TRY(tt_quarantine_open(coll->node_peers, coll->local_count, OWN_PIECES + rings,
                              &coll->lease.quarantine));
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        if (rank != coll->rank) {
            tt_quarantine_watch(coll->lease.quarantine, coll->node_peer_ranks[rank],
                                tt_flag_quiet(coll->block, coll->size, rank));
        }
    }
    return TUTTI_OK;
}

/* This rank looks at nothing of the group's memory on others any more. Those that it never met, in
 * a group that could not be made, wait until it leaves the job. */
static void say_quiet(tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        tt_flag_block_t *block = coll->blocks[rank];
        if (rank == coll->rank || block == NULL) {
            continue;
        }
        atomic_store_explicit(tt_flag_quiet(block, coll->size, coll->rank), TT_QUIET,
                              memory_order_release); /* Q1 */
    }
}

void tt_coll_close_lease(tt_coll_t *coll)
{
    if (coll->lease.quarantine == NULL) {
        tt_device_free(tt_node_peers_heap(coll->node_peers), coll->block,
                       tt_flag_block_bytes(coll->size));
        return;
    }
    tt_coll_keep_stages(coll);
    tt_quarantine_add(coll->lease.quarantine, coll->block, tt_flag_block_bytes(coll->size));
    say_quiet(coll);
    tt_quarantine_close(coll->lease.quarantine);
}
