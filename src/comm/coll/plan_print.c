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
    if (part.buffer == TT_BUFFER_PIECE) {
        put(writer, "piece %d", part.index);
    } else {
        put(writer, "%s", part.buffer == TT_BUFFER_OUT ? "out" : "scratch");
    }
    put(writer, " [%zu, %zu)", part.offset, part.offset + count);
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
    case TT_STEP_TREE:
        put(writer, "tree   of %d pieces to ", plan->piece_count);
        break;
    case TT_STEP_PULL:
        put(writer, "pull   ");
        put_part(writer, step->src, step->count);
        put(writer, " of %d to ", step->peer);
        break;
    case TT_STEP_DIRECT:
        put(writer, "direct of %d pieces [%zu, %zu) to %s", plan->piece_count, step->src.offset,
            step->src.offset + step->count, step->to_all ? "all " : "");
        break;
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
