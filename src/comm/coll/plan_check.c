/* What may stand in a plan: steps of one round touch different memory, mates' memory belongs to
 * mates and may be touched, dtypes agree. Quadratic in the steps of a round. */
#include "comm/coll/plan_sim.h"

/* Memory of the rank itself that a step reads or writes. */
typedef struct {
    int step;
    bool is_write;
    tt_part_t part;
    size_t count;
} touch_t;

enum { TOUCHES_MAX = 4096 };

typedef struct {
    const tt_plan_t *plan;
    const tt_plan_request_t *request;
    touch_t touches[TOUCHES_MAX];
    int count;
} check_t;

static void touch(check_t *check, int step, bool is_write, tt_part_t part)
{
    if (check->count < TOUCHES_MAX) {
        check->touches[check->count++] =
            (touch_t){step, is_write, part, check->plan->steps[step].count};
    }
}

static void touch_sum(check_t *check, int index)
{
    const tt_step_t *step = &check->plan->steps[index];
    const tt_plan_sum_t *sum = &check->plan->sums[step->sum];
    for (int i = 0; i < sum->count; i++) {
        if (sum->sources[i].rank == check->plan->rank) {
            tt_part_t part = sum->sources[i].part;
            part.offset += step->src.offset;
            touch(check, index, false, part);
        }
    }
    if (step->to != TT_TO_PEER || step->peer == check->plan->rank) {
        touch(check, index, true, step->dst);
    }
}

static void touch_step(check_t *check, int index)
{
    const tt_step_t *step = &check->plan->steps[index];
    switch (step->kind) {
    case TT_STEP_SEND:
        touch(check, index, false, step->src);
        return;
    case TT_STEP_COPY:
        touch(check, index, false, step->src);
        break;
    case TT_STEP_REDUCE:
        touch_sum(check, index);
        return;
    case TT_STEP_MEET:
        return;
    case TT_STEP_RECV:
    case TT_STEP_PULL:
        break;
    }
    touch(check, index, true, step->dst);
}

/* Two names of the stage are one memory. */
static tt_buffer_t memory_of(tt_part_t part)
{
    return part.buffer == TT_BUFFER_STAGE_BACK ? TT_BUFFER_STAGE : part.buffer;
}

static bool overlap(const touch_t *a, const touch_t *b)
{
    return memory_of(a->part) == memory_of(b->part) && a->part.index == b->part.index &&
           a->part.offset < b->part.offset + b->count && b->part.offset < a->part.offset + a->count;
}

/* Elements of a private buffer or a stage; pieces and outs are as long as the caller says. */
static size_t room_of(const tt_plan_t *plan, tt_part_t part)
{
    switch (memory_of(part)) {
    case TT_BUFFER_SCRATCH:
        return plan->scratch_count;
    case TT_BUFFER_SUM:
        return plan->sum_elements;
    case TT_BUFFER_STAGE:
        return plan->stage_count;
    case TT_BUFFER_STAGE_OUT:
        return plan->stage_out_count;
    case TT_BUFFER_STAGE_BACK:
    case TT_BUFFER_PIECE:
    case TT_BUFFER_OUT:
        break;
    }
    return SIZE_MAX;
}

static tutti_status_t check_room(const check_t *check, int round)
{
    for (int i = 0; i < check->count; i++) {
        const touch_t *touch = &check->touches[i];
        if (touch->part.offset + touch->count > room_of(check->plan, touch->part)) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: step %d of round %d goes beyond its buffer",
                           check->plan->rank, touch->step, round);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_round(check_t *check, int round)
{
    check->count = 0;
    for (int i = check->plan->round_starts[round]; i < check->plan->round_starts[round + 1]; i++) {
        touch_step(check, i);
    }
    TT_TRY(check_room(check, round));
    for (int i = 0; i < check->count; i++) {
        for (int j = 0; j < i; j++) {
            const touch_t *a = &check->touches[i], *b = &check->touches[j];
            if (a->step != b->step && (a->is_write || b->is_write) && overlap(a, b)) {
                return TT_FAIL(TUTTI_ERR_ARG, "rank %d: steps %d and %d of round %d touch the same",
                               check->plan->rank, b->step, a->step, round);
            }
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
    const bool is_out =
        buffer == TT_BUFFER_OUT || buffer == TT_BUFFER_STAGE_OUT || buffer == TT_BUFFER_STAGE_BACK;
    return is_out && tt_collective_reduces(plan->collective) ? OF_OUT : OF_PIECE;
}

static bool has_right_dtypes(const tt_plan_t *plan, const tt_step_t *step)
{
    if (step->kind == TT_STEP_COPY || step->kind == TT_STEP_PULL) {
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

/* ---- mates ---- */

static bool is_stage(tt_buffer_t buffer)
{
    return buffer == TT_BUFFER_STAGE || buffer == TT_BUFFER_STAGE_BACK ||
           buffer == TT_BUFFER_STAGE_OUT;
}

static bool may_touch(const check_t *check, int rank, tt_part_t part)
{
    const bool is_shared =
        is_stage(part.buffer) || (!check->request->is_staged &&
                                  (part.buffer == TT_BUFFER_PIECE || part.buffer == TT_BUFFER_OUT));
    return rank == check->plan->rank ||
           (is_shared && check->plan->algorithm->shares_memory &&
            tt_plan_host(check->request, rank) == tt_plan_host(check->request, check->plan->rank));
}

static bool touches_mates_only(const check_t *check, const tt_step_t *step)
{
    if (step->kind == TT_STEP_PULL) {
        return may_touch(check, step->peer, step->src);
    }
    if (step->kind != TT_STEP_REDUCE) {
        return true;
    }
    const tt_plan_sum_t *sum = &check->plan->sums[step->sum];
    for (int i = 0; i < sum->count; i++) {
        if (!may_touch(check, sum->sources[i].rank, sum->sources[i].part)) {
            return false;
        }
    }
    switch (step->to) {
    case TT_TO_ME:
        return true;
    case TT_TO_PEER:
        return may_touch(check, step->peer, step->dst);
    case TT_TO_MATES:
        break;
    }
    return step->dst.buffer == TT_BUFFER_STAGE_OUT || step->dst.buffer == TT_BUFFER_STAGE_BACK ||
           (step->dst.buffer == TT_BUFFER_OUT && !check->request->is_staged);
}

/* ---- messages between hosts ---- */

/* The number of the first step from `index` on that exchanges something with another host. */
static int find_message(const tt_plan_t *plan, const tt_plan_request_t *request, int index)
{
    const int host = tt_plan_host(request, plan->rank);
    while (index < plan->step_count) {
        const tt_step_t *step = &plan->steps[index];
        const bool is_message = step->kind == TT_STEP_SEND || step->kind == TT_STEP_RECV;
        if (is_message && tt_plan_host(request, step->peer) != host) {
            break;
        }
        index++;
    }
    return index;
}

static tutti_status_t compare_messages(const tt_plan_t *a, const tt_plan_t *b,
                                       const tt_plan_request_t *request)
{
    int i = find_message(a, request, 0), j = find_message(b, request, 0);
    while (i < a->step_count && j < b->step_count) {
        const tt_step_t *left = &a->steps[i], *right = &b->steps[j];
        if (left->kind != right->kind || left->peer != right->peer || left->count != right->count) {
            break;
        }
        i = find_message(a, request, i + 1);
        j = find_message(b, request, j + 1);
    }
    if (i < a->step_count || j < b->step_count) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "rank %d: steps %d and %d, with and without stages, exchange "
                       "other messages with another host",
                       a->rank, i, j);
    }
    return TUTTI_OK;
}

static tutti_status_t check_messages(const tt_plan_t *plan, const tt_plan_request_t *request)
{
    tt_plan_request_t other = *request;
    other.is_staged = !request->is_staged;
    if (request->hosts == NULL || !plan->algorithm->fits(&other)) {
        return TUTTI_OK;
    }
    tt_plan_t *sibling;
    TT_TRY(tt_plan_create(&other, plan->algorithm, &sibling));
    const tutti_status_t status = compare_messages(plan, sibling, request);
    tt_plan_release(sibling);
    return status;
}

tutti_status_t tt_plan_check(const tt_plan_t *plan, const tt_plan_request_t *request)
{
    check_t check = {.plan = plan, .request = request};
    for (int i = 0; i < plan->step_count; i++) {
        const tt_step_t *step = &plan->steps[i];
        if (!has_right_dtypes(plan, step)) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: step %d mixes dtypes", plan->rank, i);
        }
        if (!touches_mates_only(&check, step)) {
            return TT_FAIL(TUTTI_ERR_ARG, "rank %d: step %d touches memory it cannot reach",
                           plan->rank, i);
        }
    }
    for (int round = 0; round < plan->rounds; round++) {
        TT_TRY(check_round(&check, round));
    }
    return check_messages(plan, request);
}
