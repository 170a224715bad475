/* What may stand in a plan: steps of one round touch different memory, local ranks' memory belongs
 * to local ranks and may be touched, nothing goes beyond its buffer, dtypes agree, elements of
 * several numbers stay whole; between hosts, messages do not depend on bounce buffers. */
#include "comm/plan/plan_check.h"

#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/combine.h"

/* Memory of the rank itself that a step reads or writes; what one buffer has is one memory. */
struct tt_touch {
    uint64_t memory;
    size_t begin, end;
    int step;
    bool is_write;
};

typedef struct tt_touch touch_t;
typedef tt_plan_check_t check_t;

/* Room for this was made. */
static void touch(check_t *check, int step, bool is_write, tt_part_t part)
{
    const size_t count = check->round->steps[step].count;
    if (count > 0) {
        const uint64_t memory = (uint64_t)tt_plan_memory(part.buffer) << 32 | (uint32_t)part.index;
        check->touches[check->count++] =
            (touch_t){memory, part.offset, part.offset + count, step, is_write};
    }
}

/* What a step reads, and one part that it writes. */
static tutti_status_t make_touch_room(check_t *check)
{
    int most = check->round->count;
    for (int i = 0; i < check->round->count; i++) {
        most += tt_plan_reads(check->plan, &check->round->steps[i]);
    }
    if (most > check->capacity) {
        touch_t *grown =
            tt_realloc(check->touches, (size_t)most * sizeof *grown, "check of a plan");
        TT_TRY_ALLOC(grown);
        check->touches = grown;
        check->capacity = most;
    }
    check->count = 0;
    return TUTTI_OK;
}

static void touch_reads(check_t *check, int index)
{
    const tt_step_t *step = &check->round->steps[index];
    for (int i = 0; i < tt_plan_reads(check->plan, step); i++) {
        const tt_source_t source = tt_plan_read(check->plan, step, i);
        if (source.rank == check->plan->rank) {
            touch(check, index, false, source.part);
        }
    }
}

static void touch_writes(check_t *check, int index)
{
    const tt_step_t *step = &check->round->steps[index];
    if (step->kind != TT_STEP_SEND && tt_plan_target(check->plan, step) == check->plan->rank) {
        touch(check, index, true, step->dst);
    }
}

/* By memory, then by where they begin. */
static int compare_touches(const void *a, const void *b)
{
    const touch_t *left = a, *right = b;
    if (left->memory != right->memory) {
        return left->memory < right->memory ? -1 : 1;
    }
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* How far touches have come, of two different steps: [0] the furthest. */
typedef struct {
    const touch_t *at[2];
} front_t;

static size_t end_of(const touch_t *touch)
{
    return touch != NULL ? touch->end : 0;
}

static void advance(front_t *front, const touch_t *touch)
{
    if (front->at[0] != NULL && front->at[0]->step == touch->step) {
        front->at[0] = end_of(touch) > end_of(front->at[0]) ? touch : front->at[0];
    } else if (end_of(touch) > end_of(front->at[0])) {
        front->at[1] = front->at[0];
        front->at[0] = touch;
    } else if (end_of(touch) > end_of(front->at[1])) {
        front->at[1] = touch;
    }
}

/* What reaches into a touch, of another step; NULL: nothing. */
static const touch_t *find_overlap(const front_t *front, const touch_t *touch)
{
    for (int i = 0; i < 2; i++) {
        const touch_t *other = front->at[i];
        if (other != NULL && other->step != touch->step && other->end > touch->begin) {
            return other;
        }
    }
    return NULL;
}

/* Elements of a private buffer or a bounce buffer; pieces and outs are as long as the caller says.
 */
static size_t room_of(const tt_plan_t *plan, tt_buffer_t memory)
{
    const bool is_callers = memory == TT_BUFFER_PIECE || memory == TT_BUFFER_OUT;
    return is_callers ? SIZE_MAX : plan->room[memory];
}

/* The part that an element of a piece or out is in, or that ends before it. */
static tt_slice_t part_at(const tt_plan_request_t *request, tt_buffer_t buffer, size_t offset)
{
    int rank = 0;
    if (request->collective != TT_REDUCE_SCATTER) {
        return (tt_slice_t){0, request->count};
    }
    if (buffer == TT_BUFFER_OUT) {
        return (tt_slice_t){0, tt_plan_part(request, request->rank).count};
    }
    if (request->counts == NULL) {
        const size_t number = request->count > 0 ? offset / request->count : 0;
        rank = number < (size_t)request->size ? (int)number : request->size - 1;
    }
    tt_slice_t part = tt_plan_part(request, rank);
    while (offset >= part.begin + part.count && rank < request->size - 1) {
        part = tt_plan_part(request, ++rank);
    }
    return part;
}

/* Numbers that are combined as one are never taken apart. */
static bool is_cut_whole(const check_t *check, const touch_t *touch)
{
    const tt_buffer_t buffer = (tt_buffer_t)(touch->memory >> 32);
    const bool is_reduced = tt_collective_reduces(check->plan->collective) &&
                            (buffer == TT_BUFFER_PIECE || buffer == TT_BUFFER_OUT);
    const size_t cuts[] = {touch->begin, touch->end};
    for (int i = 0; i < 2 && is_reduced; i++) {
        const tt_slice_t part = part_at(check->request, buffer, cuts[i]);
        const size_t inside = cuts[i] - part.begin;
        if (inside % TT_COMBINE_GRAIN != 0 && inside != part.count) {
            return false;
        }
    }
    return true;
}

static tutti_status_t check_touches(const check_t *check, int round)
{
    const touch_t *touches = check->touches;
    front_t all = {{NULL}}, writes = {{NULL}};
    for (const touch_t *touch = touches; touch < touches + check->count; touch++) {
        if (!is_cut_whole(check, touch)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "rank %d: step %d of round %d takes apart what is combined as one",
                           check->plan->rank, touch->step, round);
        }
        if (touch->end > room_of(check->plan, (tt_buffer_t)(touch->memory >> 32))) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: step %d of round %d goes beyond its buffer",
                           check->plan->rank, touch->step, round);
        }
        if (touch > touches && touch->memory != touch[-1].memory) {
            all = writes = (front_t){{NULL}};
        }
        const touch_t *other = find_overlap(touch->is_write ? &all : &writes, touch);
        if (other != NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: steps %d and %d of round %d touch the same",
                           check->plan->rank, other->step, touch->step, round);
        }
        advance(&all, touch);
        if (touch->is_write) {
            advance(&writes, touch);
        }
    }
    return TUTTI_OK;
}

/* ---- dtypes ---- */

/* Without a reduction there is one dtype. */
static tt_content_t content_of(const tt_plan_t *plan, tt_buffer_t buffer)
{
    const tt_content_t content = tt_plan_content(buffer);
    return content == TT_OF_OUT && !tt_collective_reduces(plan->collective) ? TT_OF_PIECE : content;
}

static bool has_right_dtypes(const tt_plan_t *plan, const tt_step_t *step)
{
    if (step->kind == TT_STEP_COPY || step->kind == TT_STEP_GET || step->kind == TT_STEP_PUT) {
        return content_of(plan, step->src.buffer) == content_of(plan, step->dst.buffer);
    }
    if (step->kind != TT_STEP_REDUCE) {
        return true;
    }
    const tt_plan_sum_t *sum = &plan->sums[step->sum];
    for (int i = 0; i < sum->count; i++) {
        const tt_content_t content = content_of(plan, sum->sources[i].part.buffer);
        if (content == TT_OF_OUT || content != content_of(plan, sum->sources[0].part.buffer)) {
            return false;
        }
    }
    return content_of(plan, step->dst.buffer) == (sum->is_partial ? TT_OF_SUM : TT_OF_OUT);
}

/* ---- local ranks ---- */

static bool is_bounce(tt_buffer_t buffer)
{
    return buffer == TT_BUFFER_BOUNCE || buffer == TT_BUFFER_BOUNCE_BACK ||
           buffer == TT_BUFFER_BOUNCE_OUT;
}

static bool may_touch(const check_t *check, int rank, tt_part_t part)
{
    const bool is_shared = is_bounce(part.buffer) ||
                           (!check->request->is_staged &&
                            (part.buffer == TT_BUFFER_PIECE || part.buffer == TT_BUFFER_OUT));
    return rank == check->plan->rank ||
           (is_shared && check->plan->algorithm->shares_memory &&
            tt_plan_host(check->request, rank) == tt_plan_host(check->request, check->plan->rank));
}

static bool touches_node_peers_only(const check_t *check, const tt_step_t *step)
{
    for (int i = 0; i < tt_plan_reads(check->plan, step); i++) {
        const tt_source_t source = tt_plan_read(check->plan, step, i);
        if (!may_touch(check, source.rank, source.part)) {
            return false;
        }
    }
    if (step->to != TT_TO_LOCAL_RANKS) {
        return may_touch(check, tt_plan_target(check->plan, step), step->dst);
    }
    return step->dst.buffer == TT_BUFFER_BOUNCE_OUT || step->dst.buffer == TT_BUFFER_BOUNCE_BACK ||
           (step->dst.buffer == TT_BUFFER_OUT && !check->request->is_staged);
}

/* ---- messages between hosts ---- */

/* A plan's messages to and from other hosts, one after the other. */
typedef struct {
    const tt_plan_t *plan;
    const tt_plan_request_t *request;
    tt_plan_round_t round;
    int next_round, next;
} messages_t;

/* NULL behind the last one; `status` keeps a failure. */
static const tt_step_t *next_message(messages_t *m, tutti_status_t *status)
{
    const int host = tt_plan_host(m->request, m->plan->rank);
    while (*status >= 0) {
        while (m->next < m->round.count) {
            const tt_step_t *step = &m->round.steps[m->next++];
            const bool is_message = step->kind == TT_STEP_SEND || step->kind == TT_STEP_RECV;
            if (is_message && tt_plan_host(m->request, step->peer) != host) {
                return step;
            }
        }
        if (m->next_round == m->plan->rounds) {
            return NULL;
        }
        *status = tt_plan_round(m->plan, m->next_round++, &m->round);
        m->next = 0;
    }
    return NULL;
}

static bool is_same_message(const tt_step_t *a, const tt_step_t *b)
{
    return a == NULL || b == NULL
               ? a == b
               : a->kind == b->kind && a->peer == b->peer && a->count == b->count;
}

static tutti_status_t compare_messages(const tt_plan_t *a, const tt_plan_t *b,
                                       const tt_plan_request_t *request)
{
    messages_t left = {.plan = a, .request = request}, right = {.plan = b, .request = request};
    tutti_status_t status = TUTTI_OK;
    const tt_step_t *one, *other;
    do {
        one = next_message(&left, &status);
        other = next_message(&right, &status);
    } while (one != NULL && is_same_message(one, other));
    if (status >= 0 && !is_same_message(one, other)) {
        status =
            TT_FAIL(TUTTI_ERR_ARG,
                    "rank %d: with and without bounce buffers, rounds %d and %d exchange other "
                    "messages with another host",
                    a->rank, left.next_round - 1, right.next_round - 1);
    }
    tt_plan_round_close(&left.round);
    tt_plan_round_close(&right.round);
    return status;
}

tutti_status_t tt_plan_check_hosts(const tt_plan_t *plan, const tt_plan_request_t *request)
{
    tt_plan_request_t other = *request;
    other.is_staged = !request->is_staged;
    if (request->hosts == NULL || !tt_algorithm_fits(plan->algorithm, &other)) {
        return TUTTI_OK;
    }
    tt_plan_t *sibling;
    TT_TRY(tt_plan_create(&other, plan->algorithm, &sibling));
    const tutti_status_t status = compare_messages(plan, sibling, request);
    tt_plan_release(sibling);
    return status;
}

tutti_status_t tt_plan_check_round(tt_plan_check_t *check, const tt_plan_t *plan,
                                   const tt_plan_request_t *request, int round,
                                   const tt_plan_round_t *steps)
{
    check->plan = plan;
    check->request = request;
    check->round = steps;
    for (int i = 0; i < steps->count; i++) {
        if (!has_right_dtypes(plan, &steps->steps[i])) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: step %d of round %d mixes dtypes", plan->rank,
                           i, round);
        }
        if (!touches_node_peers_only(check, &steps->steps[i])) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "rank %d: step %d of round %d touches memory it cannot reach",
                           plan->rank, i, round);
        }
    }
    TT_TRY(make_touch_room(check));
    for (int i = 0; i < steps->count; i++) {
        touch_reads(check, i);
    }
    for (int i = 0; i < steps->count; i++) {
        touch_writes(check, i);
    }
    if (check->count == 0) {
        return TUTTI_OK;
    }
    qsort(check->touches, (size_t)check->count, sizeof *check->touches, compare_touches);
    return check_touches(check, round);
}

void tt_plan_check_close(tt_plan_check_t *check)
{
    tt_free(check->touches);
}
