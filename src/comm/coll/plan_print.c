/* Plans as text, one line per step; golden tests and `tutti explain` read it. */
#include "comm/coll/plan.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct {
    char *text;
    size_t capacity, length;
} writer_t;

__attribute__((format(printf, 2, 3))) static void put(writer_t *writer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t left = writer->length < writer->capacity ? writer->capacity - writer->length : 0;
    const int n = vsnprintf(left > 0 ? writer->text + writer->length : NULL, left, format, args);
    va_end(args);
    writer->length += n > 0 ? (size_t)n : 0;
}

static void put_part(writer_t *writer, tt_part_t part, size_t count)
{
    static const char *const names[] = {"piece", "out", "scratch", "sum", "stage", "stage_out"};
    if (part.index == TT_FROM_TABLE) {
        put(writer, "%s, its part for me", names[part.buffer]);
        return;
    }
    put(writer, "%s", names[part.buffer]);
    if (part.buffer == TT_BUFFER_PIECE) {
        put(writer, " %d", part.index);
    }
    put(writer, " [%zu, %zu)", part.offset, part.offset + count);
}

/* "piece 0 of 0 + piece 0 of 1 …", as far as they are not alike; all at [begin, end). */
static void put_sum(writer_t *writer, const tt_plan_t *plan, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &plan->sums[step->sum];
    put(writer, sum->is_partial ? "add    " : "reduce ");
    for (int i = 0; i < sum->count; i++) {
        tt_part_t part = sum->sources[i].part;
        part.offset += step->src.offset;
        put(writer, i > 0 ? " + " : "");
        put_part(writer, part, step->count);
        if (sum->sources[i].rank != plan->rank) {
            put(writer, " of %d", sum->sources[i].rank);
        }
    }
}

static void put_step(writer_t *writer, const tt_plan_t *plan, const tt_step_t *step)
{
    switch (step->kind) {
    case TT_STEP_SEND:
        put(writer, "send   ");
        put_part(writer, step->src, step->count);
        put(writer, " to %d", step->peer);
        return;
    case TT_STEP_RECV:
        put(writer, "recv   ");
        put_part(writer, step->dst, step->count);
        put(writer, " from %d", step->peer);
        return;
    case TT_STEP_COPY:
        put(writer, "copy   ");
        put_part(writer, step->src, step->count);
        put(writer, " to ");
        break;
    case TT_STEP_PULL:
        put(writer, "pull   ");
        put_part(writer, step->src, step->count);
        put(writer, " of %d to ", step->peer);
        break;
    case TT_STEP_REDUCE:
        put_sum(writer, plan, step);
        put(writer, step->to == TT_TO_MATES ? " to all " : " to ");
        put_part(writer, step->dst, step->count);
        if (step->to == TT_TO_PEER) {
            put(writer, " of %d", step->peer);
        }
        return;
    case TT_STEP_MEET:
        put(writer, "meet   the mates");
        return;
    }
    put_part(writer, step->dst, step->count);
}

size_t tt_plan_print(const tt_plan_t *plan, char *text, size_t text_bytes)
{
    writer_t writer = {text, text_bytes, 0};
    put(&writer, "%s %s: rank %d of %d, %zu elements", tt_collective_name(plan->collective),
        plan->algorithm->name, plan->rank, plan->size, plan->count);
    if (tt_collective_reduces(plan->collective)) {
        put(&writer, ", %d leaves", plan->leaves);
    }
    put(&writer, "\n");
    for (int i = 0; i < plan->step_count; i++) {
        put(&writer, "  round %d: ", plan->steps[i].round);
        put_step(&writer, plan, &plan->steps[i]);
        put(&writer, "\n");
    }
    return writer.length;
}
