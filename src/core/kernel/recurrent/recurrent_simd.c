/* Rows of recurrent steps. Each kind is written once, for a dtype that is a constant at every call.
 */
#include "core/kernel/kernels.h"
#include "core/kernel/recurrent/recurrent_ops.h"
#include "core/kernel/vrow.h"

/* A row under way: where its operands begin. */
typedef struct {
    const tt_recurrent_step_t *step;
    tutti_dtype_t dtype;
    size_t row, n;
} place_t;

/* Part `part` of the row of an array [rows, parts n]. */
TT_INLINE const void *part_of(const place_t *p, const void *array, size_t parts, size_t part,
                              tutti_dtype_t dtype)
{
    return (const char *)array + (p->row * parts + part) * p->n * tt_vbytes(dtype);
}

TT_INLINE tt_vf get(const place_t *p, const void *array, size_t parts, size_t part, size_t at,
                    tutti_dtype_t dtype)
{
    return tt_vread(part_of(p, array, parts, part, dtype), at, p->n, 0.0f, dtype);
}

TT_INLINE void put(const place_t *p, void *array, size_t parts, size_t part, size_t at, tt_vf v,
                   tutti_dtype_t dtype)
{
    tt_vwrite((char *)array + (p->row * parts + part) * p->n * tt_vbytes(dtype), at, p->n, v,
              dtype);
}

/* x + product of a gate. */
TT_INLINE tt_vf gate(const place_t *p, size_t gates, size_t which, size_t at)
{
    return get(p, p->step->x, gates, which, at, p->dtype) +
           get(p, p->step->product, gates, which, at, TT_REAL);
}

TT_INLINE tt_vf kept(const place_t *p, size_t which, size_t at)
{
    return get(p, p->step->kept, 4, which, at, TT_REAL);
}

/* dy, and what came back from the step after. */
TT_INLINE tt_vf state_slope(const place_t *p, size_t at)
{
    const tt_vf dh = get(p, p->step->dh, 1, 0, at, TT_REAL);
    return p->step->dy == NULL ? dh : dh + get(p, p->step->dy, 1, 0, at, p->dtype);
}

/* ---- forward --------------------------------------------------------------------------------- */

TT_INLINE void plain_forward(const place_t *p, bool is_relu)
{
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf a = gate(p, 1, 0, at);
        const tt_vf h = is_relu ? tt_vmax(a, tt_vsplat(0.0f)) : tt_vtanh(a);
        put(p, p->step->kept, 1, 0, at, h, TT_REAL);
        put(p, p->step->y, 1, 0, at, h, p->dtype);
    }
}

TT_INLINE void lstm_forward(const place_t *p)
{
    const tt_recurrent_step_t *s = p->step;
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf i = tt_vsigmoid(gate(p, 4, 0, at)), f = tt_vsigmoid(gate(p, 4, 1, at));
        const tt_vf g = tt_vtanh(gate(p, 4, 2, at)), o = tt_vsigmoid(gate(p, 4, 3, at));
        const tt_vf c = tt_vfma(f, get(p, s->c, 1, 0, at, TT_REAL), i * g);
        put(p, s->kept, 4, 0, at, i, TT_REAL);
        put(p, s->kept, 4, 1, at, f, TT_REAL);
        put(p, s->kept, 4, 2, at, g, TT_REAL);
        put(p, s->kept, 4, 3, at, o, TT_REAL);
        put(p, s->c_next, 1, 0, at, c, TT_REAL);
        put(p, s->y, 1, 0, at, o * tt_vtanh(c), p->dtype);
    }
}

TT_INLINE void gru_forward(const place_t *p)
{
    const tt_recurrent_step_t *s = p->step;
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf r = tt_vsigmoid(gate(p, 3, 0, at)), z = tt_vsigmoid(gate(p, 3, 1, at));
        const tt_vf q = get(p, s->product, 3, 2, at, TT_REAL);
        const tt_vf n = tt_vtanh(tt_vfma(r, q, get(p, s->x, 3, 2, at, p->dtype)));
        put(p, s->kept, 4, 0, at, r, TT_REAL);
        put(p, s->kept, 4, 1, at, z, TT_REAL);
        put(p, s->kept, 4, 2, at, n, TT_REAL);
        put(p, s->kept, 4, 3, at, q, TT_REAL);
        put(p, s->y, 1, 0, at, tt_vfma(z, get(p, s->h, 1, 0, at, p->dtype) - n, n), p->dtype);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

TT_INLINE void plain_backward(const place_t *p, bool is_relu)
{
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf h = get(p, p->step->kept, 1, 0, at, TT_REAL), d = state_slope(p, at);
        const tt_vf da =
            is_relu ? tt_vsel(h <= 0.0f, tt_vsplat(0.0f), d) : d * tt_vfma(-h, h, tt_vsplat(1.0f));
        put(p, p->step->dx, 1, 0, at, da, p->dtype);
    }
}

TT_INLINE void lstm_backward(const place_t *p)
{
    const tt_recurrent_step_t *s = p->step;
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf i = kept(p, 0, at), f = kept(p, 1, at), g = kept(p, 2, at), o = kept(p, 3, at);
        const tt_vf t = tt_vtanh(get(p, s->c_next, 1, 0, at, TT_REAL));
        const tt_vf dh = state_slope(p, at);
        const tt_vf dc =
            tt_vfma(dh * o, tt_vfma(-t, t, tt_vsplat(1.0f)), get(p, s->dc, 1, 0, at, TT_REAL));
        const tt_vf c = get(p, s->c, 1, 0, at, TT_REAL);
        put(p, s->dx, 4, 0, at, dc * g * (i * (1.0f - i)), p->dtype);
        put(p, s->dx, 4, 1, at, dc * c * (f * (1.0f - f)), p->dtype);
        put(p, s->dx, 4, 2, at, dc * i * tt_vfma(-g, g, tt_vsplat(1.0f)), p->dtype);
        put(p, s->dx, 4, 3, at, dh * t * (o * (1.0f - o)), p->dtype);
        put(p, s->dc, 1, 0, at, dc * f, TT_REAL);
    }
}

TT_INLINE void gru_backward(const place_t *p)
{
    const tt_recurrent_step_t *s = p->step;
    for (size_t at = 0; at < p->n; at += TT_LANES) {
        const tt_vf r = kept(p, 0, at), z = kept(p, 1, at), n = kept(p, 2, at), q = kept(p, 3, at);
        const tt_vf dh = state_slope(p, at), h = get(p, s->h, 1, 0, at, p->dtype);
        const tt_vf dn = dh * (1.0f - z) * tt_vfma(-n, n, tt_vsplat(1.0f));
        const tt_vf dz = dh * (h - n) * (z * (1.0f - z));
        const tt_vf dr = dn * q * (r * (1.0f - r));
        put(p, s->dx, 3, 0, at, dr, p->dtype);
        put(p, s->dx, 3, 1, at, dz, p->dtype);
        put(p, s->dx, 3, 2, at, dn, p->dtype);
        put(p, s->dproduct, 3, 0, at, dr, p->dtype);
        put(p, s->dproduct, 3, 1, at, dz, p->dtype);
        put(p, s->dproduct, 3, 2, at, dn * r, p->dtype);
        put(p, s->dh, 1, 0, at, dh * z, TT_REAL);
    }
}

/* ---- by kind and dtype ----------------------------------------------------------------------- */

TT_INLINE void forward_of(const tt_recurrent_step_t *step, size_t row, tutti_dtype_t dtype)
{
    const place_t p = {step, dtype, row, step->n};
    switch (step->kind) {
    case TT_RECURRENT_TANH:
        plain_forward(&p, false);
        break;
    case TT_RECURRENT_RELU:
        plain_forward(&p, true);
        break;
    case TT_RECURRENT_LSTM:
        lstm_forward(&p);
        break;
    case TT_RECURRENT_GRU:
        gru_forward(&p);
        break;
    }
}

TT_INLINE void backward_of(const tt_recurrent_step_t *step, size_t row, tutti_dtype_t dtype)
{
    const place_t p = {step, dtype, row, step->n};
    switch (step->kind) {
    case TT_RECURRENT_TANH:
        plain_backward(&p, false);
        break;
    case TT_RECURRENT_RELU:
        plain_backward(&p, true);
        break;
    case TT_RECURRENT_LSTM:
        lstm_backward(&p);
        break;
    case TT_RECURRENT_GRU:
        gru_backward(&p);
        break;
    }
}

/* One function for each dtype. */
#define TT_DTYPE(suffix, dtype)                                                                    \
    static void forward_##suffix(const tt_recurrent_step_t *step, size_t row)                      \
    {                                                                                              \
        forward_of(step, row, dtype);                                                              \
    }                                                                                              \
                                                                                                   \
    static void backward_##suffix(const tt_recurrent_step_t *step, size_t row)                     \
    {                                                                                              \
        backward_of(step, row, dtype);                                                             \
    }
#include "core/kernel/dtypes.def"
#undef TT_DTYPE

extern const tt_recurrent_ops_t TT_ISA_NAME(tt_recurrent_ops);

const tt_recurrent_ops_t TT_ISA_NAME(tt_recurrent_ops) = {
#define TT_DTYPE(suffix, dtype)                                                                    \
    .forward[dtype] = forward_##suffix, .backward[dtype] = backward_##suffix,
#include "core/kernel/dtypes.def"
#undef TT_DTYPE
};
