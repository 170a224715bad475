/**
 * @file dtype.h
 * The types of a tensor's elements.
 *
 * Example:
 *
 *     size_t bytes = 1024 * tutti_dtype_bytes(TUTTI_BF16);
 *     printf("%s: %zu\n", tutti_dtype_name(TUTTI_BF16), bytes);
 */
#ifndef TUTTI_DTYPE_H
#define TUTTI_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Every dtype: X(identifier, name, bytes, name in safetensors). */
#define TUTTI_DTYPE_LIST(X)                                                                        \
    X(TUTTI_F32, "f32", 4, "F32")                                                                  \
    X(TUTTI_F64, "f64", 8, "F64")                                                                  \
    X(TUTTI_BF16, "bf16", 2, "BF16")                                                               \
    X(TUTTI_F16, "f16", 2, "F16")                                                                  \
    X(TUTTI_I64, "i64", 8, "I64")                                                                  \
    X(TUTTI_I32, "i32", 4, "I32")                                                                  \
    X(TUTTI_I8, "i8", 1, "I8")                                                                     \
    X(TUTTI_U8, "u8", 1, "U8")                                                                     \
    X(TUTTI_BOOL, "bool", 1, "BOOL")

/** TUTTI_F32 is 0, so that an options struct of zeros means f32. */
typedef enum tutti_dtype {
#define X(identifier, name, bytes, safetensors) identifier,
    TUTTI_DTYPE_LIST(X)
#undef X
        TUTTI_DTYPE_COUNT
} tutti_dtype_t;

/**
 * The number 0, as an option or argument whose plain 0 means a default:
 *
 *     const tutti_adam_options_t options = {.lr = 1e-3, .beta1 = TUTTI_ZERO};
 *
 * A struct of zeros is all defaults, so a double whose comment says `0:` and a default takes that
 * when it is 0 or left out, and the number 0 is written TUTTI_ZERO: a zero with a minus sign. This
 * holds for every such double; docs/guide/defaults.md lists them, with what their zero does. Where
 * 0 makes no sense, as of a divisor, TUTTI_ZERO is an ARG error that names the option. Integers
 * whose comment says `0:` are counts, sizes, times and distances, of which 0 is no value;
 * ignore_index, of which it is one, has a flag beside it.
 */
#define TUTTI_ZERO (-0.0)

/** Bytes of one element. @thread any @errors none */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype_t dtype);

/** The short name, such as "bf16". @thread any @errors none */
TUTTI_API const char *tutti_dtype_name(tutti_dtype_t dtype);

/** Whether it is f32, f64, bf16 or f16. @thread any @errors none */
TUTTI_API bool tutti_dtype_is_float(tutti_dtype_t dtype);

/** The dtype with this short name. @thread any @errors ARG */
TUTTI_API tutti_status_t tutti_dtype_parse(const char *name, tutti_dtype_t *out);

#ifdef __cplusplus
}
#endif

#endif
