/* What buffers hold before a measured call, what they must hold behind it, and counting what is
 * wrong: a serial reference that shares no code with the engine.
 *
 * An element is a small integer, mixed from rank and place. Sums, products and averages of
 * them are exact in f32 for the ranks that a group can have here, so a result is right in every
 * bit or wrong, whatever the order in which it was added; 16-bit floats are rounded once.
 */
#include <string.h>

#include "core/kernel/half.h"
#include "runtime/bench/bench_impl.h"

/* Integers wrap around as in C's unsigned types; floats are exact in a double. */
typedef struct {
    double real;
    uint64_t whole;
} value_t;

static uint32_t mix(int rank, size_t index)
{
    uint64_t x = (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(rank + 1) << 40;
    x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 40);
}

static value_t value_of(const tutti_bench_options_t *options, const tt_bench_op_t *op, int rank,
                        size_t index)
{
    const uint32_t bits = mix(rank, index);
    uint32_t value;
    if (options->dtype == TUTTI_BOOL) {
        value = bits & 1;
    } else if (op->reduces && options->reduction == TUTTI_PRODUCT) {
        value = (bits & 7) == 0 ? 2 : 1;
    } else if (op->reduces &&
               (options->reduction == TUTTI_SUM || options->reduction == TUTTI_AVG)) {
        value = bits & 3;
    } else {
        value = bits % 120;
    }
    return (value_t){value, value};
}

static value_t combine(tutti_reduction_t reduction, value_t a, value_t b)
{
    switch (reduction) {
    case TUTTI_PRODUCT:
        return (value_t){a.real * b.real, a.whole * b.whole};
    case TUTTI_MIN:
        return b.whole < a.whole ? b : a;
    case TUTTI_MAX:
        return b.whole > a.whole ? b : a;
    case TUTTI_BAND:
        return (value_t){0, a.whole & b.whole};
    case TUTTI_BOR:
        return (value_t){0, a.whole | b.whole};
    case TUTTI_BXOR:
        return (value_t){0, a.whole ^ b.whole};
    default:
        return (value_t){a.real + b.real, a.whole + b.whole};
    }
}

static value_t reduced(const tutti_bench_options_t *options, const tt_bench_op_t *op, int ranks,
                       size_t index)
{
    value_t sum = value_of(options, op, 0, index);
    for (int rank = 1; rank < ranks; rank++) {
        sum = combine(options->reduction, sum, value_of(options, op, rank, index));
    }
    if (options->reduction == TUTTI_AVG) {
        sum.real = options->dtype == TUTTI_F64 ? sum.real / ranks
                                               : (double)((float)sum.real / (float)ranks);
    }
    return sum;
}

static void store(tutti_dtype_t dtype, value_t value, void *element)
{
    const float real = (float)value.real;
    const uint16_t half = dtype == TUTTI_F16 ? tt_f16_from_f32(real) : tt_bf16_from_f32(real);
    switch (dtype) {
    case TUTTI_F32:
        memcpy(element, &real, sizeof real);
        return;
    case TUTTI_F64:
        memcpy(element, &value.real, sizeof value.real);
        return;
    case TUTTI_F16:
    case TUTTI_BF16:
        memcpy(element, &half, sizeof half);
        return;
    default: /* the low bytes, which come first */
        memcpy(element, &value.whole, tutti_dtype_bytes(dtype));
    }
}

void tt_bench_fill(const tutti_bench_options_t *options, const tt_bench_op_t *op, int rank,
                   size_t count, void *data)
{
    const size_t bytes = tutti_dtype_bytes(options->dtype);
    for (size_t i = 0; i < count; i++) {
        store(options->dtype, value_of(options, op, rank, i), (char *)data + i * bytes);
    }
}

/* How many ranks, from 0 on, contribute. Of an exscan rank 0 keeps what it has. */
static int contributors(const tt_bench_op_t *op, const tt_bench_shape_t *shape)
{
    const tt_plan_request_t request = {.collective = (tt_collective_t)op->collective,
                                       .size = shape->size};
    const int count = tt_plan_contributors(&request, shape->rank);
    return count > 0 ? count : 1;
}

size_t tt_bench_wrong(const tutti_bench_options_t *options, const tt_bench_op_t *op,
                      const tt_bench_shape_t *shape, size_t count, const void *data)
{
    const size_t bytes = tutti_dtype_bytes(options->dtype);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const tt_bench_origin_t origin = op->origin(shape, i);
        char want[sizeof(double)];
        store(options->dtype,
              op->reduces ? reduced(options, op, contributors(op, shape), origin.index)
                          : value_of(options, op, origin.rank, origin.index),
              want);
        wrong += memcmp(want, (const char *)data + i * bytes, bytes) != 0;
    }
    return wrong;
}
