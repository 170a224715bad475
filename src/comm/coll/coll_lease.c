/* The lease of memory: who may touch the memory of another rank, and when that rank may use it
 * again. flags.h has the protocol and why it holds; the letters here are those of its transitions.
 *
 * Cost of a call in which this rank goes into the others' memory once: two stores that wait for the
 * store buffer, and two looks at a line of each rank of the host that hardly ever changes. Calls
 * whose payload travels in the slots pay nothing.
 */
#include "comm/coll/coll_impl.h"
#include "core/base/futex.h"

enum { QUIESCE_MS = 100, OWN_PIECES = 4 }; /* block, two stages, table */

bool tt_coll_is_given_up(const tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const uint64_t failure = atomic_load(&coll->blocks[coll->locals[i]]->failure);
        if (failure != 0 && tt_failure_status(failure) != TUTTI_END) {
            return true;
        }
    }
    return false;
}

bool tt_coll_enter(tt_coll_t *coll)
{
    atomic_store(&coll->block->inside, 1); /* E1 */
    coll->is_inside = true;
    if (tt_coll_is_given_up(coll)) { /* E2 */
        atomic_store(&coll->block->inside, 0);
        coll->is_inside = false;
    }
    return coll->is_inside;
}

bool tt_coll_leave(tt_coll_t *coll)
{
    if (!coll->is_inside) {
        return true;
    }
    atomic_store(&coll->block->inside, 0); /* L1 */
    coll->is_inside = false;
    return !tt_coll_is_given_up(coll); /* L2 */
}

static bool is_anyone_inside(const tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->locals[i];
        if (rank != coll->rank && coll->blocks[rank] != NULL &&
            atomic_load(&coll->blocks[rank]->inside) != 0 &&
            tt_mates_state(coll->mates, coll->mate_ranks[rank]) != TT_MATE_DEAD) {
            return true;
        }
    }
    return false;
}

/* A visitor that finds the failure wakes the owner, as whoever fails does. */
bool tt_coll_quiesce(tt_coll_t *coll)
{
    tt_idle_t idle = {0};
    const tt_deadline_t deadline = tt_deadline_in_ms(QUIESCE_MS);
    bool is_late = false;
    while (is_anyone_inside(coll) && !is_late) { /* F2 */
        tt_mates_check(coll->mates);
        is_late = tt_deadline_is_past(deadline);
        tt_mates_idle(coll->mates, &idle, deadline);
    }
    tt_mates_idle_end(coll->mates, &idle);
    return !is_late;
}

/* ---- when the group is released ---- */

tutti_status_t tt_coll_open_lease(tt_coll_t *coll)
{
    const int rings = TT_LANES * coll->local_count;
    TT_TRY(
        tt_quarantine_open(coll->mates, coll->local_count, OWN_PIECES + rings, &coll->quarantine));
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->locals[i];
        if (rank != coll->rank) {
            tt_quarantine_watch(coll->quarantine, coll->mate_ranks[rank],
                                tt_flag_quiet(coll->block, coll->size, rank));
        }
    }
    return TUTTI_OK;
}

bool tt_coll_disown(tt_coll_t *coll, int rank)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong(tt_flag_quiet(coll->block, coll->size, rank), &none,
                                          TT_QUIET_STRANGER);
}

/* This rank looks at nothing of the group's memory on others any more. */
static void say_quiet(tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->locals[i];
        tt_flag_block_t *block = coll->blocks[rank];
        if (rank == coll->rank || block == NULL) {
            continue;
        }
        const uint64_t before =
            atomic_exchange(tt_flag_quiet(block, coll->size, coll->rank), TT_QUIET); /* Q1 */
        if (before == TT_QUIET_STRANGER) {
            atomic_store(tt_flag_quiet(coll->block, coll->size, rank), TT_QUIET);
        }
    }
}

void tt_coll_close_lease(tt_coll_t *coll)
{
    if (coll->quarantine == NULL) {
        tt_device_free(tt_mates_heap(coll->mates), coll->block, tt_flag_block_bytes(coll->size));
        return;
    }
    tt_coll_keep_stages(coll);
    tt_quarantine_add(coll->quarantine, coll->block, tt_flag_block_bytes(coll->size));
    say_quiet(coll);
    tt_quarantine_close(coll->quarantine);
}
