/* The f64 loops of channels_f64.c. */
#ifndef TT_CHANNELS_F64_H
#define TT_CHANNELS_F64_H

#include "core/kernel/norm/channels_ops.h"
#include "core/kernel/kernels.h"

extern const tt_channels_ops_t tt_channels_ops_f64;

#endif
