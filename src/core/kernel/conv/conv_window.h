/* An image laid out so that what a tap of a kernel sees at neighbouring positions lies side by
 * side: padded, and cut into one plane for each remainder of the stride that taps can have.
 *
 *     stride 2, one channel:   a b a b        planes  a a a   b b b   c c c   d d d
 *                              c d c d                a a a   b b b   c c c   d d d
 *
 * With (h, w) a place in the padded image, plane (h % s, w % s) holds it at (h / s, w / s). A unit
 * is a channel, or in pairs two of them: an element is then both, the first one low.
 */
#ifndef TT_CONV_WINDOW_H
#define TT_CONV_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t channels;
    int64_t size[2];   /* of the image that is given */
    int64_t before[2]; /* zeros in front */
    int64_t stride[2];
    int64_t phases[2];     /* remainders that are kept: 1 … stride */
    int64_t plane_size[2]; /* what does not fit is cut off */
    size_t element_bytes;  /* of the image: 2 or 4 */
    bool in_pairs;         /* of 2-byte elements */
} tt_window_t;

int64_t tt_window_units(const tt_window_t *window);

/* Bytes of one unit's planes, and of all. */
int64_t tt_window_unit_bytes(const tt_window_t *window);
int64_t tt_window_bytes(const tt_window_t *window);

/* Bytes from a unit's beginning to place (h, w) of the padded image. */
int64_t tt_window_at(const tt_window_t *window, int64_t h, int64_t w);

/* Write image [channels, height, width] into the planes, whose padding is zero already. */
void tt_window_arrange(const tt_window_t *window, const void *image, void *planes);

/* Whether the image is its own planes: nothing is padded, cut or paired. */
bool tt_window_is_image(const tt_window_t *window);

#endif
