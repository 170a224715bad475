/* Drawing indices by weights. */
#ifndef TT_MULTINOMIAL_H
#define TT_MULTINOMIAL_H

#include <stdbool.h>

#include "core/kernel/random/random.h"

/* Rows of weights, none negative: `count` indices of each row are drawn. With replacement draw i of
 * row r is the weight that number r count + i of the stream falls on. Without, number
 * r length + j of the stream gives weight j a waiting time, and the first ones are taken
 * (Efraimidis and Spirakis 2006). A weight of 0 is never drawn. */
typedef struct {
    tt_random_t at;
    int64_t *out;          /* [rows, count] */
    const double *weights; /* [rows, length], contiguous */
    int64_t rows, length, count;
    bool replaces;
} tt_multinomial_t;

/* Errors: ARG (a weight that is negative or not finite, a row whose weights are all 0, or fewer
 * that are not than are drawn), NOMEM (scratch). */
TT_LAUNCHES tutti_status_t tt_multinomial(tt_exec_t *exec, const tt_multinomial_t *choice);

#endif
