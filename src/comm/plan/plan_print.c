/* Plans as text, one line per step; golden tests and `tutti explain` read it. */
#include "comm/plan/plan.h"

#include <stdarg.h>

#include "comm/plan/plan_text.h"
#include "core/base/reals.h"

void tt_plan_put(tt_plan_text_t *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t left = text->length < text->capacity ? text->capacity - text->length : 0;
    const int n = tt_format_list(left > 0 ? text->text + text->length : NULL, left, format, args);
    va_end(args);
    text->length += n > 0 ? (size_t)n : 0;
}

static void put_part(tt_plan_text_t *writer, tt_part_t part, size_t count)
{
    static const char *const names[] = {"piece",  "out",         "scratch",   "sum",
                                        "bounce", "bounce_back", "bounce_out"};
    if (part.index == TT_FROM_TABLE) {
        tt_plan_put(writer, "%s, its part for me", names[part.buffer]);
        return;
    }
    tt_plan_put(writer, "%s", names[part.buffer]);
    if (part.buffer == TT_BUFFER_PIECE) {
        tt_plan_put(writer, " %d", part.index);
    }
    tt_plan_put(writer, " [%zu, %zu)", part.offset, part.offset + count);
}

/* What a step reads: "piece 0 [0, 8) + piece 0 [0, 8) of 1"; a GET always says of whom. */
static void put_reads(tt_plan_text_t *writer, const tt_plan_t *plan, const tt_step_t *step)
{
    for (int i = 0; i < tt_plan_reads(plan, step); i++) {
        const tt_source_t source = tt_plan_read(plan, step, i);
        tt_plan_put(writer, i > 0 ? " + " : "");
        put_part(writer, source.part, step->count);
        if (source.rank != plan->rank || step->kind == TT_STEP_GET) {
            tt_plan_put(writer, " of %d", source.rank);
        }
    }
}

static void put_step(tt_plan_text_t *writer, const tt_plan_t *plan, const tt_step_t *step)
{
    static const char *const verbs[] = {"send   ", "recv   ", "copy   ",
                                        "get    ", "put    ", "reduce "};
    if (step->kind == TT_STEP_BARRIER) {
        tt_plan_put(writer, "barrier of the local ranks");
        return;
    }
    const bool is_added = step->kind == TT_STEP_REDUCE && plan->sums[step->sum].is_partial;
    tt_plan_put(writer, "%s", is_added ? "add    " : verbs[step->kind]);
    put_reads(writer, plan, step);
    if (step->kind == TT_STEP_SEND) {
        tt_plan_put(writer, " to %d", step->peer);
        return;
    }
    if (step->kind != TT_STEP_RECV) {
        tt_plan_put(writer, step->to == TT_TO_LOCAL_RANKS ? " to all " : " to ");
    }
    put_part(writer, step->dst, step->count);
    if (step->kind == TT_STEP_RECV) {
        tt_plan_put(writer, " from %d", step->peer);
    } else if (step->to == TT_TO_PEER) {
        tt_plan_put(writer, " of %d", step->peer);
    }
}

size_t tt_plan_print(const tt_plan_t *plan, char *text, size_t text_bytes)
{
    tt_plan_text_t writer = {text, text_bytes, 0};
    tt_plan_put(&writer, "%s %s: rank %d of %d, %zu elements", tt_collective_name(plan->collective),
                plan->algorithm->name, plan->rank, plan->size, plan->count);
    if (tt_collective_reduces(plan->collective)) {
        tt_plan_put(&writer, ", %d leaves", plan->leaves);
    }
    tt_plan_put(&writer, "\n");
    tt_plan_round_t round = {0};
    for (int r = 0; r < plan->rounds && tt_plan_round(plan, r, &round) >= 0; r++) {
        for (int i = 0; i < round.count; i++) {
            tt_plan_put(&writer, "  round %d: ", r);
            put_step(&writer, plan, &round.steps[i]);
            tt_plan_put(&writer, "\n");
        }
    }
    tt_plan_round_close(&round);
    return writer.length;
}
