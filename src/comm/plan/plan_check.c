/* What may stand in a plan: steps of one round touch different memory, local ranks' memory belongs
 * to local ranks and may be touched, nothing goes beyond its buffer, dtypes agree, elements of
 * several numbers stay whole; between hosts, messages do not depend on bounce buffers. */
#include "comm/plan/plan_check.h"

#include "core/base/alloc.h"
#include "core/kernel/combine.h"

/* Memory of the rank itself that a step reads or writes; what one buffer has is one memory. */
struct tt_touch {
    uint64_t memory;
    size_t begin, end;
    int step;
    bool is_write;
};

typedef struct tt_touch touch_t;
typedef tt_plan_check_t check_t;

/* Two names of the bounce buffer are one memory. */
static tt_buffer_t memory_of(tt_part_t part)
{
    return part.buffer == TT_BUFFER_BOUNCE_BACK ? TT_BUFFER_BOUNCE : part.buffer;
}

/* Room for this was made. */
static void touch(check_t *check, int step, bool is_write, tt_part_t part)
{
    const size_t count = check->round->steps[step].count;
    if (count > 0) {
        const uint64_t memory = (uint64_t)memory_of(part) << 32 | (uint32_t)part.index;
        check->touches[check->count++] =
            (touch_t){memory, part.offset, part.offset + count, step, is_write};
    }
}

/* At most two of a step, and one of each source of a sum; twice that, to sort them. */
static tutti_status_t make_touch_room(check_t *check)
{
    int most = 2 * check->round->count;
    for (int i = 0; i < check->round->count; i++) {
        const tt_step_t *step = &check->round->steps[i];
        most += step->kind == TT_STEP_REDUCE ? check->plan->sums[step->sum].count : 0;
    }
    if (most > check->capacity) {
        touch_t *grown =
            tt_realloc(check->touches, 2 * (size_t)most * sizeof *grown, "check of a plan");
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
    if (step->kind == TT_STEP_SEND || step->kind == TT_STEP_COPY || step->kind == TT_STEP_PUT) {
        touch(check, index, false, step->src);
    }
    for (int i = 0; step->kind == TT_STEP_REDUCE && i < check->plan->sums[step->sum].count; i++) {
        const tt_source_t source = tt_plan_source(check->plan, step, i);
        if (source.rank == check->plan->rank) {
            touch(check, index, false, source.part);
        }
    }
}

static void touch_writes(check_t *check, int index)
{
    const tt_step_t *step = &check->round->steps[index];
    const bool is_to_peer =
        step->kind == TT_STEP_PUT || (step->kind == TT_STEP_REDUCE && step->to == TT_TO_PEER);
    const bool is_foreign = is_to_peer && step->peer != check->plan->rank;
    if (step->kind != TT_STEP_SEND && step->kind != TT_STEP_BARRIER && !is_foreign) {
        touch(check, index, true, step->dst);
    }
}

/* By memory, then by where they begin. */
static bool is_before(const touch_t *a, const touch_t *b)
{
    return a->memory != b->memory ? a->memory < b->memory : a->begin < b->begin;
}

/* The end of the run from `begin` on that is in order; one in reverse order is turned around. */
static int find_run(touch_t *touches, int begin, int count)
{
    int end = begin + 1;
    while (end < count && is_before(&touches[end], &touches[end - 1])) {
        end++;
    }
    for (int i = begin, j = end - 1; i < j; i++, j--) {
        const touch_t touch = touches[i];
        touches[i] = touches[j];
        touches[j] = touch;
    }
    while (end < count && !is_before(&touches[end], &touches[end - 1])) {
        end++;
    }
    return end;
}

/* Merges two runs; the second begins at mid. */
static void merge(const touch_t *touches, int begin, int mid, int end, touch_t *out)
{
    for (int i = begin, j = mid, k = begin; k < end; k++) {
        const bool is_second = i == mid || (j < end && is_before(&touches[j], &touches[i]));
        out[k] = touches[is_second ? j++ : i++];
    }
}

/* Merges runs until there is one. Steps mostly touch memory in order, so that there are few. */
static touch_t *sort_touches(const check_t *check)
{
    touch_t *touches = check->touches, *other = touches + check->capacity;
    const int count = check->count;
    int runs = 2;
    while (runs > 1) {
        runs = 0;
        for (int begin = 0, mid, end; begin < count; begin = end, runs++) {
            mid = find_run(touches, begin, count);
            if (begin == 0 && mid == count) {
                return touches;
            }
            end = mid < count ? find_run(touches, mid, count) : mid;
            merge(touches, begin, mid, end, other);
        }
        touch_t *merged = other;
        other = touches;
        touches = merged;
    }
    return touches;
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
    switch (memory) {
    case TT_BUFFER_SCRATCH:
        return plan->room[TT_BUFFER_SCRATCH];
    case TT_BUFFER_SUM:
        return plan->room[TT_BUFFER_SUM];
    case TT_BUFFER_BOUNCE:
        return plan->room[TT_BUFFER_BOUNCE];
    case TT_BUFFER_BOUNCE_OUT:
        return plan->room[TT_BUFFER_BOUNCE_OUT];
    case TT_BUFFER_BOUNCE_BACK:
    case TT_BUFFER_PIECE:
    case TT_BUFFER_OUT:
    case TT_BUFFER_COUNT:
        break;
    }
    return SIZE_MAX;
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
    const touch_t *touches = sort_touches(check);
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

typedef enum { OF_PIECE, OF_OUT, OF_SUM } dtype_class_t;

static dtype_class_t class_of(const tt_plan_t *plan, tt_buffer_t buffer)
{
    if (buffer == TT_BUFFER_SUM) {
        return OF_SUM;
    }
    const bool is_out = buffer == TT_BUFFER_OUT || buffer == TT_BUFFER_BOUNCE_OUT ||
                        buffer == TT_BUFFER_BOUNCE_BACK;
    return is_out && tt_collective_reduces(plan->collective) ? OF_OUT : OF_PIECE;
}

static bool has_right_dtypes(const tt_plan_t *plan, const tt_step_t *step)
{
    if (step->kind == TT_STEP_COPY || step->kind == TT_STEP_GET || step->kind == TT_STEP_PUT) {
        return class_of(plan, step->src.buffer) == class_of(plan, step->dst.buffer);
    }
    if (step->kind != TT_STEP_REDUCE) {
        return true;
    }
    const tt_plan_sum_t *sum = &plan->sums[step->sum];
    for (int i = 0; i < sum->count; i++) {
        const dtype_class_t class = class_of(plan, sum->sources[i].part.buffer);
        if (class == OF_OUT || class != class_of(plan, sum->sources[0].part.buffer)) {
            return false;
        }
    }
    return class_of(plan, step->dst.buffer) == (sum->is_partial ? OF_SUM : OF_OUT);
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
    if (step->kind == TT_STEP_GET) {
        return may_touch(check, step->peer, step->src);
    }
    if (step->kind == TT_STEP_PUT) {
        return may_touch(check, step->peer, step->dst);
    }
    if (step->kind != TT_STEP_REDUCE) {
        return true;
    }
    for (int i = 0; i < check->plan->sums[step->sum].count; i++) {
        const tt_source_t source = tt_plan_source(check->plan, step, i);
        if (!may_touch(check, source.rank, source.part)) {
            return false;
        }
    }
    switch (step->to) {
    case TT_TO_ME:
        return true;
    case TT_TO_PEER:
        return may_touch(check, step->peer, step->dst);
    case TT_TO_LOCAL_RANKS:
        break;
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
    return check->count > 0 ? check_touches(check, round) : TUTTI_OK;
}

void tt_plan_check_close(tt_plan_check_t *check)
{
    tt_free(check->touches);
}
