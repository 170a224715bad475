/* Gathers runs over the strides, then converts them. Cost: one pass over L1, none if in place. */
#include "core/kernel/load.h"

#include <string.h>

tt_source_t tt_source(const tt_strided_t *x, tt_class_t class, const tt_walk_t *walk, int operand)
{
    return (tt_source_t){
        .data = tt_strided_data(x),
        .bytes = tutti_dtype_bytes(x->dtype),
        .walk = walk,
        .operand = operand,
        .convert = x->dtype == tt_class_dtype(class) ? NULL : tt_convert_to(class, x->dtype),
    };
}

static const char *at(const tt_source_t *source, int64_t offset)
{
    return source->data + offset * (int64_t)source->bytes;
}

static void gather(const tt_source_t *source, int64_t base, int64_t first, int64_t n, char *out)
{
    const size_t bytes = source->bytes;
    const int64_t stride = tt_walk_inner_stride(source->walk, source->operand);
    tt_cursor_t cursor = tt_cursor_at(source->walk, source->operand, first);
    for (int64_t done = 0; done < n;) {
        int64_t offset;
        const int64_t run = tt_cursor_next(&cursor, n - done, &offset);
        const char *in = at(source, base + offset);
        if (stride == 1) {
            memcpy(out, in, (size_t)run * bytes);
        } else {
            tt_gather_bytes(out, in, stride, (size_t)run, bytes);
        }
        out += (size_t)run * bytes;
        done += run;
    }
}

const void *tt_load(const tt_source_t *source, int64_t base, int64_t first, int64_t n, void *buffer,
                    void *raw)
{
    const bool is_dense = source->walk->is_dense[source->operand];
    if (is_dense && source->convert == NULL) {
        return at(source, base + first);
    }
    const void *elements = raw;
    if (is_dense) {
        elements = at(source, base + first);
    } else {
        gather(source, base, first, n, source->convert == NULL ? buffer : raw);
    }
    if (source->convert != NULL) {
        source->convert(buffer, elements, (size_t)n);
    }
    return buffer;
}
