/* Reading a stretch of a strided operand as contiguous elements of the computing type. */
#ifndef TT_LOAD_H
#define TT_LOAD_H

#include "core/kernel/elementwise/convert.h"
#include "core/kernel/elementwise/walk.h"

typedef struct {
    const char *data;
    size_t bytes; /* of an element */
    const tt_walk_t *walk;
    int operand;             /* of the walk */
    tt_convert_fn_t convert; /* to the computing type; NULL: it is of that type */
} tt_source_t;

tt_source_t tt_source(const tt_strided_t *x, tt_class_t class, const tt_walk_t *walk, int operand);

/* Elements [first, first + n) of the walk, counted from data + base elements: in place where they
 * lie contiguous in the computing type, else in `buffer`. Both buffers hold n × 8 bytes. */
const void *tt_load(const tt_source_t *source, int64_t base, int64_t first, int64_t n, void *buffer,
                    void *raw);

#endif
