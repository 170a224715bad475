/* An image laid out so that each tap of a kernel sees runs of neighbours: padded, zeros between its
 * elements where a stride is undone, and cut into one plane for each remainder of the stride.
 *
 *     stride 2, one channel:   a b a b        planes  a a a   b b b   c c c   d d d
 *                              c d c d                a a a   b b b   c c c   d d d
 *
 * With (h, w) a place in the padded image, plane (h % s, w % s) holds it at (h / s, w / s). Then
 * the element that tap t sees at position (i, j) is image[tap[t] + i * pitch + j].
 */
#ifndef TT_CONV_WINDOW_H
#define TT_CONV_WINDOW_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t channels;
    int64_t size[2];   /* of the image that is given */
    int64_t spread[2]; /* distance between its elements: 1 leaves it as it is */
    int64_t before[2]; /* zeros in front; negative cuts off */
    int64_t kernel[2], stride[2], dilation[2];
    int64_t out_size[2];
    size_t element_bytes; /* 2 or 4 */

    int64_t plane_size[2], plane; /* by tt_window_init: of one plane, in elements */
} tt_window_t;

/* A run of neighbours: elements image[tap + from …] become positions to … of a block. */
typedef struct {
    int32_t to, count;
    int64_t from;
} tt_window_run_t;

void tt_window_init(tt_window_t *window);

int64_t tt_window_taps(const tt_window_t *window);

/* taps[tt_window_taps]: where each tap begins. */
void tt_window_list_taps(const tt_window_t *window, int64_t *taps);

/* The runs of positions [first, first + count), at most `count`. Returns how many. */
int tt_window_list_runs(const tt_window_t *window, int64_t first, int64_t count,
                        tt_window_run_t *runs);

/* Elements of all planes. */
int64_t tt_window_elements(const tt_window_t *window);

/* Write image [channels, height, width] into the planes. */
void tt_window_arrange(const tt_window_t *window, const void *image, void *planes);

#endif
