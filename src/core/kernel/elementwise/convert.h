/* Elements of any dtype to the type that is computed in (f32, f64 or i64), and back. */
#ifndef TT_CONVERT_H
#define TT_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>

/* What a kernel computes in. */
typedef enum { TT_CLASS_I64, TT_CLASS_F32, TT_CLASS_F64, TT_CLASS_COUNT } tt_class_t;

/* f64 computes in f64, other floats in f32, the rest in i64. */
tt_class_t tt_class_of(tutti_dtype_t dtype);
tutti_dtype_t tt_class_dtype(tt_class_t class);

typedef void (*tt_convert_fn_t)(void *out, const void *in, size_t n);

/* f32 from and to each dtype, vectorised (convert_simd.c). */
struct tt_convert_ops {
    tt_convert_fn_t to_f32[TUTTI_DTYPE_COUNT], from_f32[TUTTI_DTYPE_COUNT];
};

/* Contiguous elements of `dtype` into the class's type, and back. n at most what fits. */
tt_convert_fn_t tt_convert_to(tt_class_t class, tutti_dtype_t dtype);
tt_convert_fn_t tt_convert_from(tt_class_t class, tutti_dtype_t dtype);

/* n elements, `stride` elements apart, to or from contiguous ones; bytes: 1, 2, 4 or 8. */
void tt_gather_bytes(void *out, const void *in, int64_t stride, size_t n, size_t bytes);
void tt_scatter_bytes(void *out, int64_t stride, const void *in, size_t n, size_t bytes);

#endif
