/* Ranges of dtypes. Cost: a pass over the values, where not all of one dtype are the other's. */
#include "runtime/checkpoint/cast_check.h"

#include <math.h>

#include "core/base/dtype_bytes.h"
#include "core/kernel/elementwise/convert.h"

enum { BLOCK = 1024 };

/* Values v of an integer: low <= v < end; of a float, when rounded to f32, that stay finite:
 * low < v < end. */
static const struct {
    double low, end;
} ranges[TUTTI_DTYPE_COUNT] = {
    [TUTTI_F64] = {-INFINITY, INFINITY},
    [TUTTI_F32] = {-0x1.ffffffp127, 0x1.ffffffp127},
    [TUTTI_BF16] = {-0x1.ffp127, 0x1.ffp127},
    [TUTTI_F16] = {-65520, 65520},
    [TUTTI_I64] = {-0x1p63, 0x1p63},
    [TUTTI_I32] = {-0x1p31, 0x1p31},
    [TUTTI_I8] = {-128, 128},
    [TUTTI_U8] = {0, 256},
    [TUTTI_BOOL] = {0, 2},
};

/* A bool is whether it is not 0. */
static bool is_every_value_had(tutti_dtype_t from, tutti_dtype_t to)
{
    const bool is_inside = ranges[from].low >= ranges[to].low && ranges[from].end <= ranges[to].end;
    return to == TUTTI_BOOL || to == TUTTI_F64 ||
           (is_inside && (tutti_dtype_is_float(to) || !tutti_dtype_is_float(from)));
}

static bool is_had(double value, tutti_dtype_t to)
{
    if (tutti_dtype_is_float(to)) {
        return !isfinite(value) || fabs((double)(float)value) < ranges[to].end;
    }
    return trunc(value) >= ranges[to].low && trunc(value) < ranges[to].end;
}

bool tt_cast_loses(tutti_dtype_t from, const void *values, size_t count, tutti_dtype_t to,
                   size_t *at, double *value)
{
    const tt_convert_fn_t convert = tt_convert_to(TT_CLASS_F64, from);
    double numbers[BLOCK];
    if (is_every_value_had(from, to)) {
        return false;
    }
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t n = count - first < BLOCK ? count - first : BLOCK;
        convert(numbers, (const char *)values + first * tutti_dtype_bytes(from), n);
        for (size_t i = 0; i < n; i++) {
            if (!is_had(numbers[i], to)) {
                *at = first + i;
                *value = numbers[i];
                return true;
            }
        }
    }
    return false;
}
