/* Where a rank waits: showing it to the others, and reading it of them. */
#include <stdio.h>
#include <string.h>

#include "comm/diagnose/stragglers.h"
#include "core/base/printable.h"

enum { PUT_WAIT_DIVISOR = 8 };

/* ---- my own ---------------------------------------------------------------------------------- */

/* What local ranks see, while this rank blocks. */
static void post_wait_state(tt_coll_t *coll, const tt_op_t *op)
{
    tt_wait_state_t *wait_state = &tt_coll_world(coll)->block->wait_state;
    tt_record_t record;
    if (coll->waiting.posted_record == op->record ||
        !tt_records_at(&coll->block->records, op->record, &record)) {
        return;
    }
    uint64_t words[TT_WAIT_STATE_NAME_WORDS] = {0};
    snprintf((char *)words, sizeof words, "%s", coll->options.name);
    atomic_store_explicit(&wait_state->record.stamp, 0, memory_order_relaxed);
    for (int i = 0; i < TT_WAIT_STATE_NAME_WORDS; i++) {
        atomic_store_explicit(&wait_state->name[i], words[i], memory_order_release);
    }
    tt_record_fill(&wait_state->record, op->record, record.sequence, record.count, record.tag,
                   (const void *)(uintptr_t)record.site,
                   tt_record_what(record.kind, record.collective, record.dtype, record.reduction,
                                  record.root));
    coll->waiting.posted_record = op->record;
}

static tutti_status_t put(const tt_coll_t *coll, const char *what, int rank, const void *value,
                          size_t bytes)
{
    const tt_wait_board_t *wait_board = &coll->options.wait_board;
    return wait_board->put(wait_board->user, what, rank, value, bytes);
}

/* Ranks that this rank waits for in a call: of other hosts, and local ones that have not entered or
 * not finished it. */
bool tt_coll_waits_for(const tt_coll_t *coll, const tt_run_t *run, int rank)
{
    if (rank == coll->rank) {
        return false;
    }
    if (coll->node_peer_ranks[rank] < 0) {
        return tt_coll_awaits(coll, run, rank);
    }
    return run->arrived >= coll->local_count ? !tt_coll_has_finished(coll, run, rank)
                                             : !tt_coll_has_arrived(coll, run, rank);
}

static void list_awaited(const tt_coll_t *coll, const tt_run_t *run, tt_wait_report_t *head)
{
    for (int rank = 0; rank < coll->size && head->awaited_count < TT_WAIT_REPORT_AWAITED; rank++) {
        if (tt_coll_waits_for(coll, run, rank)) {
            head->awaited[head->awaited_count++] = rank;
        }
    }
}

static tutti_status_t put_head(const tt_coll_t *coll, const tt_run_t *run)
{
    tt_wait_report_t head = {.magic = TT_WAIT_REPORT_MAGIC,
                             .state = (uint32_t)run->state,
                             .sequence = run->sequence,
                             .fingerprint = run->fingerprint,
                             .descriptor = tt_run_descriptor(run),
                             .round = run->round};
    list_awaited(coll, run, &head);
    snprintf(head.site, sizeof head.site, "%s", tt_site_name(run->call.site).text);
    return put(coll, "report", coll->rank, &head, sizeof head);
}

/* A store that does not answer is asked no more. */
static void show_everybody(tt_coll_t *coll, const tt_op_t *op, int64_t now)
{
    const tt_run_t *call = op->kind == TT_OP_CALL ? coll->queue.head : NULL;
    const tt_op_t *first = call != NULL ? &call->op : op;
    const int round = call != NULL ? call->round : -1;
    const int64_t wait_ms = coll->options.timeout_ms / PUT_WAIT_DIVISOR;
    const int64_t report_ms = tt_coll_report_ms(coll) / 2;
    tt_coll_t *world = tt_coll_world(coll);
    if (first->waited_since_ns == 0 || world->host_count == 1 ||
        world->options.wait_board.put == NULL ||
        (coll->waiting.put_record == op->record && coll->waiting.put_round == round) ||
        now <
            tt_deadline_after(first->waited_since_ns, wait_ms < report_ms ? wait_ms : report_ms)) {
        return;
    }
    coll->waiting.put_record = op->record;
    coll->waiting.put_round = round;
    tt_record_t record = {0};
    (void)tt_records_at(&coll->block->records, op->record, &record);
    const tt_call_text_t where = tt_record_in_group(
        &record, coll->options.name, tt_site_name((const void *)(uintptr_t)record.site).text);
    if (put(world, "state", world->rank, where.text, strlen(where.text)) >= 0 && call != NULL) {
        (void)put_head(coll, call);
    }
}

void tt_coll_note_wait(tt_coll_t *coll, int64_t now)
{
    if (coll->waiting.op != NULL && coll->waiting.op->status == TUTTI_PENDING) {
        post_wait_state(coll, coll->waiting.op);
        show_everybody(coll, coll->waiting.op, now);
    }
}

/* What was shown is taken back, so that no rank is blamed for where it was. */
void tt_coll_end_wait(tt_coll_t *coll)
{
    tt_coll_t *world = tt_coll_world(coll);
    if (coll->waiting.posted_record != 0) {
        atomic_store_explicit(&world->block->wait_state.record.stamp, 0, memory_order_relaxed);
        coll->waiting.posted_record = 0;
    }
    if (coll->waiting.put_record != 0) {
        coll->waiting.put_record = 0;
        if (coll->status != TUTTI_ERR_PEER) { /* the store may have gone with the rank */
            (void)put(world, "state", world->rank, "", 0);
        }
    }
}

/* ---- that of others -------------------------------------------------------------------------- */

tt_site_t tt_coll_site(const tt_coll_t *coll, int rank, uint64_t address)
{
    tt_sites_t *sites =
        tt_sites_open(tt_node_peers_pid(coll->node_peers, coll->node_peer_ranks[rank]));
    const tt_site_t site = tt_sites_name(sites, address);
    tt_sites_close(sites);
    return site;
}

static tt_call_text_t wait_state_of_node_peer(const tt_coll_t *world, int rank)
{
    const tt_wait_state_t *wait_state = &world->blocks[rank]->wait_state;
    uint64_t words[TT_WAIT_STATE_NAME_WORDS];
    tt_record_t record;
    for (int i = 0; i < TT_WAIT_STATE_NAME_WORDS; i++) {
        words[i] = atomic_load_explicit(&wait_state->name[i], memory_order_acquire);
    }
    words[TT_WAIT_STATE_NAME_WORDS - 1] &=
        UINT64_C(0x00ffffffffffffff); /* ended by a 0, whatever was written */
    if (!tt_record_read(&wait_state->record, &record) || record.number == 0) {
        return (tt_call_text_t){""};
    }
    return tt_record_in_group(&record, (const char *)words,
                              tt_coll_site(world, rank, record.site).text);
}

static tt_call_text_t wait_state_of_remote(const tt_coll_t *world, int rank)
{
    const tt_wait_board_t *wait_board = &world->options.wait_board;
    tt_call_text_t out = {""};
    size_t bytes;
    if (wait_board->get(wait_board->user, "state", rank, out.text, sizeof out.text - 1, &bytes) !=
        TUTTI_OK) {
        return (tt_call_text_t){""};
    }
    out.text[bytes] = 0;
    tt_make_printable(out.text);
    return out;
}

tt_call_text_t tt_coll_wait_state(tt_coll_t *coll, int rank)
{
    tt_coll_t *world = tt_coll_world(coll);
    const int world_rank = world == coll ? rank : coll->peer_ranks[rank];
    if (world->node_peer_ranks[world_rank] >= 0) {
        return wait_state_of_node_peer(world, world_rank);
    }
    if (coll->waiting.op == NULL || world->options.wait_board.get == NULL) {
        return (tt_call_text_t){""};
    }
    return wait_state_of_remote(world, world_rank);
}
