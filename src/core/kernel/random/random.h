/* Random fills and dropout. Element i of an operand gets number first + i of the stream, so that
 * it does not matter which thread, rank or piece makes it. Operands are contiguous. */
#ifndef TT_RANDOM_H
#define TT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/base/rng.h"
#include "core/exec/exec.h"

/* A stream and the index in it of an operand's first element. */
typedef struct {
    tt_rng_t rng;
    uint64_t first;
} tt_random_t;

/* The least number of a floating dtype that is at least x, and the largest that is below x. */
double tt_float_from(tutti_dtype_t dtype, double x);
double tt_float_below(tutti_dtype_t dtype, double x);

/* Uniform in [low, high): low + (high - low) tt_rng_uniform(i), rounded to nearest, but never out
 * of the interval. f32, f64, bf16, f16. Where no number of the dtype lies in it: low, rounded. */
TT_LAUNCHES tutti_status_t tt_fill_uniform(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype,
                                           void *out, size_t count, double low, double high);

/* The same inside a kernel. */
void tt_fill_uniform_now(tt_threads_t *threads, tt_random_t at, tutti_dtype_t dtype, void *out,
                         size_t count, double low, double high);

/* Normal: the pair i, i ^ 1 by Box and Muller from numbers i, i ^ 1 of the stream, in f32. */
TT_LAUNCHES tutti_status_t tt_fill_normal(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype,
                                          void *out, size_t count, double mean, double std);

/* Integers in [low, low + bound), from two numbers of the stream each. */
TT_LAUNCHES tutti_status_t tt_fill_whole(tt_exec_t *exec, tt_random_t at, int64_t *out,
                                         size_t count, int64_t low, uint64_t bound);

/* y = x / (1 - p) where tt_rng_uniform(i) >= p, else 0. The same call on dy is the gradient: the
 * mask is made again, not kept. y may be x. */
TT_LAUNCHES tutti_status_t tt_dropout(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype, void *y,
                                      const void *x, size_t count, double p);

#endif
