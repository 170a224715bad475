/* Convolution in f64, by plain loops: for gradient checks. */
#ifndef TT_CONV_F64_H
#define TT_CONV_F64_H

#include "core/kernel/conv/conv.h"

void tt_conv_forward_f64(const tt_conv_t *conv, const double *x, const double *weight,
                         const double *bias, double *y);
void tt_conv_to_x_f64(const tt_conv_t *conv, const double *dy, const double *weight,
                      const double *bias, double *dx);
void tt_conv_to_weight_f64(const tt_conv_t *conv, const double *x, const double *dy, double *dw);

#endif
