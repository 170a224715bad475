/* What the files of conv.h share: parts of one block of scratch, the window of x, and convolutions
 * over planes, without regard to conv->depth; over volumes they are made of those. */
#ifndef TT_CONV_IMPL_H
#define TT_CONV_IMPL_H

#include "core/base/integers.h"
#include "core/kernel/conv/conv.h"
#include "core/kernel/conv/conv_window.h"

enum { TT_CONV_LINE = 64 };

/* Room for some bytes behind what *total has; returns where. */
static inline size_t tt_conv_reserve(size_t *total, int64_t bytes)
{
    const size_t at = *total;
    *total += (size_t)(tt_pieces_of(bytes, TT_CONV_LINE) * TT_CONV_LINE);
    return at;
}

/* The same as an address; of a block that is NULL, to be measured first: NULL. */
static inline void *tt_conv_part(char *block, size_t *total, int64_t bytes)
{
    const size_t at = tt_conv_reserve(total, bytes);
    return block == NULL ? NULL : block + at;
}

/* How the taps of the kernel see x. */
tt_window_t tt_conv_window(const tt_conv_t *conv);

/* Of dy: what all positions of x see of it. */
tt_window_t tt_conv_window_of_dy(const tt_conv_t *conv);

/* Of dx: start + padding = place of y · stride + tap · dilation; place may be negative. */
bool tt_conv_sees(const tt_conv_t *conv, int dim, int64_t start, int64_t tap, int64_t *place);

/* NOMEM where an image's planes, or the planes that windows of a volume see, are more than any
 * memory has, by a dilation or a padding: their bytes might not be a number. */
tutti_status_t tt_conv_check_room(const tt_conv_t *conv);

/* As tt_conv_forward(), tt_conv_to_x() and tt_conv_to_weight(), by the threads. */
tutti_status_t tt_planes_forward(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                 const void *weight, const void *bias, void *y);
tutti_status_t tt_planes_to_x(tt_threads_t *threads, const tt_conv_t *conv, const void *dy,
                              const void *weight, const void *bias, void *dx);
tutti_status_t tt_planes_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                   const void *dy, void *dw);

/* The same over volumes: conv->depth.size is at least 1. */
tutti_status_t tt_volume_forward(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                 const void *weight, const void *bias, void *y);
tutti_status_t tt_volume_to_x(tt_threads_t *threads, const tt_conv_t *conv, const void *dy,
                              const void *weight, const void *bias, void *dx);
tutti_status_t tt_volume_to_weight(tt_threads_t *threads, const tt_conv_t *conv, const void *x,
                                   const void *dy, void *dw);

#endif
