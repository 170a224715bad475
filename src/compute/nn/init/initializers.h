/* What the files of this folder share. */
#ifndef TT_INITIALIZERS_H
#define TT_INITIALIZERS_H

#include <tutti/tensor.h>

#include "core/base/fail.h"

/* DTYPE unless x is floating, SHAPE with fewer than `rank` dimensions. */
tutti_status_t tt_init_check(const tutti_tensor_t *x, const char *name, int rank);

/* Contiguous f32 memory of the host for x's values: x itself, retained, or new; then put into x and
 * released. */
tutti_status_t tt_init_borrow(tutti_tensor_t *x, tutti_tensor_t **out);
tutti_status_t tt_init_give_back(tutti_tensor_t *x, tutti_tensor_t *values);

/* Values in f32 that are outside [low, high), or [low, high] where it has its end, or that rounding
 * to x's dtype would put there, become the nearest number of the dtype inside, if there is one. */
void tt_init_bound(const tutti_tensor_t *x, const tutti_tensor_t *values, double low, double high,
                   bool has_high);

#endif
