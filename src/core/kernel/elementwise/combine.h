/* Elementwise combining of two buffers, for reductions across ranks and shards. One table per
 * instruction set, all with the same bits; the table is chosen by the CPU and TUTTI_ISA.
 *
 * dst may be a or b (the same element), but may not overlap them otherwise.
 */
#ifndef TT_COMBINE_H
#define TT_COMBINE_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/collectives.h>
#include <tutti/dtype.h>

/* What is combined as one element has a power of two of numbers, at most so many; a caller that
 * cuts a tensor for a reduction cuts it at multiples of this. */
enum { TT_COMBINE_GRAIN = 64, TT_CUSTOM_NAME_BYTES = 15 };

/* `count` is of numbers; those of a pair are two. */
typedef void (*tt_combine_fn_t)(void *dst, const void *a, const void *b, size_t count);

typedef struct {
    /* NULL where it makes no sense. AVG and the 16-bit dtypes have no entry: see combine.def. */
    tt_combine_fn_t combine[TUTTI_DTYPE_COUNT][TUTTI_REDUCTION_COUNT];

    /* d[i] = e[i] = a[i] + b[i] */
    void (*sum_f32_to_two)(float *d, float *e, const float *a, const float *b, size_t count);

    /* bf16 or f16 to f32 and back, rounded to nearest even. */
    void (*widen)(float *dst, const void *src, tutti_dtype_t dtype, size_t count);
    void (*narrow)(void *dst, const float *src, tutti_dtype_t dtype, size_t count);

    void (*divide_f32)(float *x, float divisor, size_t count);
    void (*divide_f64)(double *x, double divisor, size_t count);

    /* dst = src times factor; dst may be src. */
    void (*scale_f32)(float *dst, const float *src, float factor, size_t count);
    void (*scale_f64)(double *dst, const double *src, double factor, size_t count);

    /* memcpy around the cache. */
    void (*copy_stream)(void *dst, const void *src, size_t bytes);
} tt_combine_kernels_t;

/* The table for this CPU and TUTTI_ISA. */
const tt_combine_kernels_t *tt_combine_kernels(void);

/* The dtype in which a dtype is combined: f32 for the 16-bit floats, itself otherwise. */
static inline tutti_dtype_t tt_combine_dtype(tutti_dtype_t dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16 ? TUTTI_F32 : dtype;
}

/* x, of tt_combine_dtype(x's), by a divisor. Floats only. */
static inline void tt_combine_divide(const tt_combine_kernels_t *kernels, void *x,
                                     tutti_dtype_t dtype, double divisor, size_t count)
{
    if (dtype == TUTTI_F64) {
        kernels->divide_f64(x, divisor, count);
    } else {
        kernels->divide_f32(x, (float)divisor, count);
    }
}

/* Numbers of an element. */
#define TT_COMBINE_WIDTH(reduction)                                                                \
    ((reduction) == TUTTI_MINLOC || (reduction) == TUTTI_MAXLOC ? 2 : 1)

static inline int tt_combine_width(tutti_reduction_t reduction)
{
    return TT_COMBINE_WIDTH(reduction);
}

/* The same of those that make sense for a dtype; 0: it does not, or wants more than a number. */
extern const unsigned char tt_combine_widths[TUTTI_DTYPE_COUNT][TUTTI_REDUCTION_COUNT];

static inline int tt_custom_width(const tutti_custom_reduction_t *custom)
{
    return custom->width > 0 ? custom->width : 1;
}

/* dst, of tt_combine_dtype(dtype), becomes src, of dtype, times factor. Floats only. */
void tt_combine_scale(void *dst, const void *src, tutti_dtype_t dtype, double factor, size_t count);

/* DTYPE unless the reduction makes sense for the dtype. `call` names the caller in the text. */
tutti_status_t tt_combine_check(const char *call, tutti_dtype_t dtype, tutti_reduction_t reduction);

/* SHAPE unless `count` numbers are whole elements of `width`. */
tutti_status_t tt_combine_check_whole(const char *call, const char *reduction, int width,
                                      size_t count);

/* Both, for a part of `count` numbers. */
static inline tutti_status_t tt_combine_check_part(const char *call, tutti_dtype_t dtype,
                                                   tutti_reduction_t reduction, size_t count)
{
    if ((unsigned)reduction < TUTTI_REDUCTION_COUNT && tt_combine_widths[dtype][reduction] == 1) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_combine_check(call, dtype, reduction);
    return status < 0 ? status
                      : tt_combine_check_whole(call, tutti_reduction_name(reduction),
                                               tt_combine_width(reduction), count);
}

/* ARG or DTYPE unless it can be carried out. */
tutti_status_t tt_custom_check(const char *call, tutti_dtype_t dtype,
                               const tutti_custom_reduction_t *custom);

#endif
