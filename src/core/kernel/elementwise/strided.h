/* What a kernel sees of a tensor: memory with a shape and strides. Kernels know no tensor. */
#ifndef TT_STRIDED_H
#define TT_STRIDED_H

#include <stdint.h>

#include <tutti/dtype.h>

enum { TT_RANK_MAX = 8 };

typedef struct {
    void *data; /* the first element; NULL: `number` is the only one, seen with strides 0 */
    tutti_dtype_t dtype;
    int rank;
    int64_t shape[TT_RANK_MAX];
    int64_t strides[TT_RANK_MAX]; /* in elements; 0 repeats (broadcast) */
    union {
        float f32;
        double f64;
        int64_t i64;
    } number;
} tt_strided_t;

/* The first element of an operand that is read: in memory, or a number by value. */
static inline const void *tt_strided_data(const tt_strided_t *x)
{
    return x->data != NULL ? x->data : &x->number;
}

/* Contiguous: [n], and [rows, n]. */
static inline tt_strided_t tt_strided_row(void *data, tutti_dtype_t dtype, int64_t n)
{
    return (tt_strided_t){.data = data, .dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
}

static inline tt_strided_t tt_strided_rows(void *data, tutti_dtype_t dtype, int64_t rows, int64_t n)
{
    return (tt_strided_t){
        .data = data, .dtype = dtype, .rank = 2, .shape = {rows, n}, .strides = {n, 1}};
}

#endif
