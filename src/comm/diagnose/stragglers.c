/* The ranks that a call waits for. The wait is followed from rank to rank: a rank in the same call
 * is late itself only if it waits for no other; the ranks at the end of the chain are named.
 *
 * Cost: a few requests to the store for each rank on the way, for a second at most; nothing is
 * asked for ranks of this host.
 */
#include "comm/diagnose/stragglers.h"

#include <stdio.h>
#include <string.h>

#include "comm/plan/plan_text.h"
#include "core/base/alloc.h"

enum { ASK_NS = 1000000000 };

enum { UNSEEN, ON_THE_WAY, BLAMED }; /* a rank in the search */

typedef struct {
    tt_coll_t *coll;
    const tt_run_t *run;
    tt_stragglers_t *stragglers;
    unsigned char *marks; /* [size] */
    int *queue;           /* [size] */
    int end;
    tt_plan_text_t text; /* of the stragglers */
    tt_deadline_t deadline;
    bool may_ask;
} search_t;

/* Where what is said next goes: behind what was said before. */
static tt_plan_text_t *next(search_t *s)
{
    if (s->text.length > 0) {
        tt_plan_put(&s->text, ", ");
    }
    return &s->text;
}

/* The last call here that needs every rank, and so one that all have made. */
static tt_call_text_t describe_last_common(const tt_coll_t *coll, uint64_t before)
{
    tt_call_text_t out = {"has made no call that is known of"};
    const tt_records_t *records = &coll->block->records;
    const uint64_t newest = atomic_load_explicit(&records->count, memory_order_relaxed);
    for (uint64_t back = 0; back < TT_RECORDS && back < newest; back++) {
        tt_record_t record;
        if (tt_records_at(records, newest - back, &record) && record.kind == TT_RECORD_CALL &&
            record.sequence < before && record.state == TT_RECORD_DONE &&
            !tt_collective_has_root((tt_collective_t)record.collective)) {
            snprintf(out.text, sizeof out.text, "has made no call that is known of since %.120s",
                     tt_record_describe(&record).text);
            return out;
        }
    }
    return out;
}

/* "; its last call is barrier #811 (train.c:80)" */
static tt_call_text_t describe_last(const search_t *s, int rank)
{
    const tt_coll_t *coll = s->coll;
    tt_call_text_t out;
    if (!tt_coll_is_node_peer(coll, rank)) {
        return describe_last_common(coll, s->run->sequence);
    }
    const tt_record_t last = tt_records_last_call(&coll->blocks[rank]->records);
    if (last.number == 0) {
        return (tt_call_text_t){"has made no call yet"};
    }
    snprintf(out.text, sizeof out.text, "is in no call that waits; its last here is %.80s%.100s",
             tt_record_describe(&last).text,
             tt_text_in_brackets(tt_coll_site(coll, rank, last.site).text).text);
    return out;
}

static void blame(search_t *s, int rank, bool has_entered)
{
    tt_stragglers_t *stragglers = s->stragglers;
    if (s->marks[rank] == BLAMED) {
        return;
    }
    s->marks[rank] = BLAMED;
    stragglers->first =
        stragglers->first < 0 || rank < stragglers->first ? rank : stragglers->first;
    if (has_entered) {
        tt_plan_put(next(s), "rank %d has entered it and has not finished", rank);
        return;
    }
    const tt_call_text_t wait_state = tt_coll_wait_state(s->coll, rank);
    if (wait_state.text[0] != 0) {
        tt_plan_put(next(s), "rank %d never entered it: it waits in %s", rank, wait_state.text);
    } else {
        tt_plan_put(next(s), "rank %d never entered it: it %s", rank, describe_last(s, rank).text);
    }
}

static void visit_later(search_t *s, int rank)
{
    if (s->marks[rank] == UNSEEN) {
        s->marks[rank] = ON_THE_WAY;
        s->queue[s->end++] = rank;
    }
}

/* False: it shows nothing about this call or a later one. */
static bool read_head(const search_t *s, int rank, tt_wait_report_t *head)
{
    const tt_wait_board_t *wait_board = &s->coll->options.wait_board;
    size_t bytes = 0;
    if (!s->may_ask || tt_deadline_is_past(s->deadline) ||
        wait_board->get(wait_board->user, "report", rank, head, sizeof *head, &bytes) != TUTTI_OK ||
        bytes != sizeof *head || head->magic != TT_WAIT_REPORT_MAGIC) {
        return false;
    }
    head->site[sizeof head->site - 1] = 0;
    return head->sequence >= s->run->sequence;
}

static void follow(search_t *s, int rank, const tt_wait_report_t *head)
{
    int followed = 0;
    for (int i = 0; i < head->awaited_count && i < TT_WAIT_REPORT_AWAITED; i++) {
        const int next = head->awaited[i];
        if (next >= 0 && next < s->coll->size && next != s->coll->rank) {
            visit_later(s, next);
            followed++;
        }
    }
    if (followed == 0 && head->awaited_count == 0) {
        blame(s, rank, true);
    }
}

static void visit(search_t *s, int rank)
{
    const bool has_come =
        tt_coll_is_node_peer(s->coll, rank) && tt_coll_has_arrived(s->coll, s->run, rank);
    tt_wait_report_t head = {0};
    if (tt_coll_is_node_peer(s->coll, rank)) {
        if (tt_coll_has_finished(s->coll, s->run, rank)) {
            return;
        }
        if (!has_come) {
            blame(s, rank, false);
            return;
        }
    }
    const bool is_known = s->coll->host_count > 1 && read_head(s, rank, &head);
    if (is_known && head.sequence == s->run->sequence) {
        if (head.fingerprint != s->run->fingerprint) {
            s->stragglers->mismatched = rank;
            s->stragglers->mismatch = head;
            tt_plan_put(next(s), "rank %d passed other arguments to %s #%llu%s", rank,
                        tt_collective_text(head.descriptor.collective),
                        (unsigned long long)head.sequence, tt_text_in_brackets(head.site).text);
        } else {
            follow(s, rank, &head);
        }
    } else if (!is_known && has_come) {
        blame(s, rank, true);
    } else if (!is_known && s->may_ask) {
        blame(s, rank, false);
    } else if (!is_known) {
        s->stragglers->first = s->stragglers->first < 0 ? rank : s->stragglers->first;
        tt_plan_put(next(s), "rank %d is awaited in round %d", rank, s->run->round);
    }
}

/* Those that this rank awaits itself. */
static void begin(search_t *s)
{
    const tt_coll_t *coll = s->coll;
    bool all_came = true;
    for (int i = 0; i < coll->local_count; i++) {
        all_came = all_came && tt_coll_has_arrived(coll, s->run, coll->local_ranks[i]);
    }
    bool is_remote = false;
    for (int rank = 0; rank < coll->size; rank++) {
        if (!tt_coll_is_node_peer(coll, rank) && tt_coll_awaits(coll, s->run, rank)) {
            visit_later(s, rank);
            is_remote = true;
        }
    }
    for (int i = 0; i < coll->local_count && !is_remote; i++) {
        const int rank = coll->local_ranks[i];
        if (rank != coll->rank && (all_came || !tt_coll_has_arrived(coll, s->run, rank))) {
            visit_later(s, rank);
        }
    }
}

void tt_coll_find_stragglers(tt_coll_t *coll, const tt_run_t *run, tt_stragglers_t *stragglers)
{
    const size_t size = (size_t)coll->size;
    search_t s = {.coll = coll,
                  .run = run,
                  .stragglers = stragglers,
                  .text = {stragglers->text, sizeof stragglers->text, 0},
                  .deadline = tt_clock_ns() + ASK_NS,
                  .may_ask = coll->waiting.op != NULL && coll->options.wait_board.get != NULL};
    stragglers->text[0] = 0;
    stragglers->first = stragglers->mismatched = -1;
    s.marks = tt_alloc(size, "search");
    s.queue = tt_alloc_array(size, sizeof *s.queue, "search");
    if (s.marks != NULL && s.queue != NULL) {
        begin(&s);
        for (int i = 0; i < s.end && stragglers->mismatched < 0; i++) {
            visit(&s, s.queue[i]);
        }
    }
    if (stragglers->text[0] == 0) {
        tt_plan_put(next(&s), "nobody else is known to be late");
    }
    tt_free(s.marks);
    tt_free(s.queue);
}
