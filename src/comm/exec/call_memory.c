/* A call's memory on this rank: whether two calls under way touch the same, and what a call copies
 * before it begins and after it has gone well. Engines carry out calls on common memory in order,
 * and copy in that order, too.
 *
 * Cost of comparing two calls: one look at each range, unless both have lists that interleave.
 */
#include <string.h>

#include "comm/exec/call.h"
#include "core/kernel/elementwise/combine.h"

typedef struct {
    uintptr_t begin, end;
    bool is_written;
} range_t;

static range_t range_of(const void *data, size_t bytes, bool is_written)
{
    return (range_t){(uintptr_t)data, (uintptr_t)data + bytes, is_written};
}

static int count_copies(const tt_call_t *call)
{
    return call->packed != NULL ? call->packed->count : 0;
}

static int count_ranges(const tt_run_t *run)
{
    return 1 + run->call.piece_count + count_copies(&run->call);
}

/* Out, pieces, what is copied. */
static range_t range_at(const tt_run_t *run, int index)
{
    const tt_call_t *call = &run->call;
    if (index == 0) {
        return range_of(call->out, run->out_bytes, true);
    }
    if (index <= call->piece_count) {
        return range_of(run->pieces[index - 1], run->piece_bytes, false);
    }
    const tt_copy_t *copy = &call->packed->copies[index - 1 - call->piece_count];
    return range_of(copy->memory, copy->bytes, copy->is_out);
}

/* All that a run touches, as if it were one range. */
static range_t span_of(const tt_run_t *run)
{
    range_t all = {UINTPTR_MAX, 0, true};
    for (int i = 0; i < count_ranges(run); i++) {
        const range_t one = range_at(run, i);
        if (one.begin < one.end) {
            all.begin = one.begin < all.begin ? one.begin : all.begin;
            all.end = one.end > all.end ? one.end : all.end;
        }
    }
    return all;
}

static bool is_conflict(range_t a, range_t b)
{
    return a.begin < b.end && b.begin < a.end && (a.is_written || b.is_written) &&
           a.begin < a.end && b.begin < b.end;
}

bool tt_runs_conflict(const tt_run_t *a, const tt_run_t *b)
{
    const range_t span = span_of(b);
    for (int i = 0; i < count_ranges(a); i++) {
        const range_t one = range_at(a, i);
        for (int k = 0; is_conflict(one, span) && k < count_ranges(b); k++) {
            if (is_conflict(one, range_at(b, k))) {
                return true;
            }
        }
    }
    return false;
}

void tt_call_copy_in(const tt_call_t *call)
{
    for (int i = 0; i < count_copies(call); i++) {
        const tt_copy_t *copy = &call->packed->copies[i];
        if (copy->is_scaled) {
            tt_combine_scale(copy->packed, copy->memory, copy->dtype, copy->factor,
                             copy->bytes / tutti_dtype_bytes(copy->dtype));
        } else if (copy->is_in) {
            memcpy(copy->packed, copy->memory, copy->bytes);
        }
    }
}

void tt_call_copy_out(const tt_call_t *call)
{
    for (int i = 0; i < count_copies(call); i++) {
        const tt_copy_t *copy = &call->packed->copies[i];
        if (copy->is_out) {
            memcpy(copy->memory, copy->packed, copy->bytes);
        }
    }
}
