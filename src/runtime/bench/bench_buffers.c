/* The buffers of one size: a pool cut into slots, each with an input and an output.
 *
 *     in place       slot: | the larger of input and output; the smaller is part of it |
 *     out of place   slot: | output | input |
 *
 * Hot calls use one slot. Rotating ones walk over so many that the pool is larger than the last
 * cache several times over; where sizes are small the slots are spread over it, at most SLOTS_MAX.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cache_size.h"
#include "core/base/integers.h"
#include "runtime/bench/bench_impl.h"

enum { LINE = 64, SLOTS_MAX = 1 << 16 };

static const size_t rotate_bytes_min = 256 << 20;

typedef struct {
    size_t in_bytes, out_bytes, in_offset, out_offset, slot_bytes, stride;
} layout_t;

static bool is_in_place(const tutti_bench_t *bench)
{
    const tt_bench_place_t place = bench->op->place;
    /* One tensor is both in the call itself: there is no other way to make it. */
    return place == TT_BENCH_SAME || (place != TT_BENCH_APART && !bench->options.is_out_of_place);
}

static layout_t lay_out(const tutti_bench_t *bench)
{
    const size_t element = tutti_dtype_bytes(bench->options.dtype);
    const size_t part = bench->shape.count * element * (size_t)bench->shape.rank;
    layout_t layout = {.in_bytes = bench->in_count * element,
                       .out_bytes = bench->out_count * element};
    if (!is_in_place(bench)) {
        layout.in_offset = tt_round_up(layout.out_bytes, LINE);
        layout.slot_bytes = layout.in_offset + tt_round_up(layout.in_bytes, LINE);
        return layout;
    }
    const bool has_both = layout.in_bytes > 0 && layout.out_bytes > 0;
    layout.in_offset = has_both && bench->op->place == TT_BENCH_IN_IN_OUT ? part : 0;
    layout.out_offset = has_both && bench->op->place == TT_BENCH_OUT_IN_IN ? part : 0;
    layout.slot_bytes =
        tt_round_up(layout.in_bytes > layout.out_bytes ? layout.in_bytes : layout.out_bytes, LINE);
    return layout;
}

static size_t rotate_bytes(void)
{
    const size_t wanted = 4 * tt_last_cache_bytes();
    return wanted > rotate_bytes_min ? wanted : rotate_bytes_min;
}

/* Alike on every rank, so that the ranks of a call are in the same slot: by the size of the whole
 * array, which every rank knows, not by what it has of it. */
static void spread_slots(tutti_bench_t *bench, size_t bytes, layout_t *layout)
{
    const size_t pool_bytes = rotate_bytes(), least = 2 * tt_round_up(bytes, LINE) + 2 * LINE;
    bench->slots =
        bench->options.is_rotating ? pool_bytes / tt_round_up(bytes > 0 ? bytes : 1, LINE) : 1;
    bench->slots = bench->slots > SLOTS_MAX ? SLOTS_MAX : bench->slots;
    bench->slots = bench->slots > 0 ? bench->slots : 1;
    layout->stride = layout->slot_bytes > 0 ? layout->slot_bytes : LINE;
    if (bench->slots == SLOTS_MAX && least * SLOTS_MAX < pool_bytes) {
        layout->stride = pool_bytes / SLOTS_MAX;
    }
}

static tutti_status_t wrap(const tutti_bench_t *bench, size_t count, char *at, tutti_tensor_t **out)
{
    if (count == 0) {
        *out = NULL;
        return TUTTI_OK;
    }
    return tutti_tensor_wrap(bench->options.dtype, TUTTI_SHAPE((int64_t)count), at, out);
}

static tutti_status_t make_views(tutti_bench_t *bench, const layout_t *layout)
{
    bench->ins = tt_alloc_array(bench->slots, sizeof(tutti_tensor_t *), "buffers of a benchmark");
    bench->outs = tt_alloc_array(bench->slots, sizeof(tutti_tensor_t *), "buffers of a benchmark");
    TT_TRY_ALLOC(bench->ins);
    TT_TRY_ALLOC(bench->outs);
    char *base = tutti_tensor_data(bench->pool);
    for (size_t i = 0; i < bench->slots; i++, base += layout->stride) {
        TT_TRY(wrap(bench, bench->out_count, base + layout->out_offset, &bench->outs[i]));
        TT_TRY(wrap(bench, bench->in_count, base + layout->in_offset, &bench->ins[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tt_bench_buffers_open(tutti_bench_t *bench, size_t bytes)
{
    layout_t layout = lay_out(bench);
    spread_slots(bench, bytes, &layout);
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)(layout.stride * bench->slots));
    TT_TRY(bench->options.is_foreign
               ? tutti_tensor_create(TUTTI_U8, shape, &bench->pool)
               : tutti_group_tensor(bench->group, TUTTI_U8, shape, &bench->pool));
    memset(tutti_tensor_data(bench->pool), 0, tutti_tensor_bytes(bench->pool)); /* touched here */
    return make_views(bench, &layout);
}

void tt_bench_buffers_close(tutti_bench_t *bench)
{
    for (size_t i = 0; i < bench->slots; i++) {
        if (bench->ins != NULL) {
            tutti_tensor_release(bench->ins[i]);
        }
        if (bench->outs != NULL) {
            tutti_tensor_release(bench->outs[i]);
        }
    }
    tt_free(bench->ins);
    tt_free(bench->outs);
    tutti_tensor_release(bench->pool);
    bench->ins = bench->outs = NULL;
    bench->pool = NULL;
    bench->slots = 0;
}
