/* Loops of optimizer steps over flat f32 buffers; each reads and writes every element once. */
#include "core/kernel/kernels.h"
#include "core/kernel/optim/optim_steps.h"
#include "core/kernel/vmath.h"

typedef struct {
#define TT_NUMBER(name, about) float name;
#include "core/kernel/optim/updates.def"
#undef TT_NUMBER
} rounded_t;

static rounded_t round_numbers(const tt_update_numbers_t *numbers)
{
    return (rounded_t){
#define TT_NUMBER(name, about) .name = (float)numbers->name,
#include "core/kernel/optim/updates.def"
#undef TT_NUMBER
    };
}

typedef void (*lanes_fn_t)(const rounded_t *k, const tt_update_buffers_t *at, int moments, size_t i,
                           size_t n);

/* fn for whole vectors, and for what is left. */
TT_INLINE void for_lanes(const tt_update_numbers_t *numbers, const tt_update_buffers_t *buffers,
                         int moments, size_t n, lanes_fn_t fn)
{
    const rounded_t k = round_numbers(numbers);
    const tt_update_buffers_t at = *buffers;
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        fn(&k, &at, moments, i, TT_LANES);
    }
    if (i < n) {
        fn(&k, &at, moments, i, n - i);
    }
}

/* ---- updates.def: a loop for each set of moments that a rule can meet ------------------------ */

enum { A = 1, B = 2, C = 4, ALL = A | B | C };

/* The sets are numbers that are known where a loop is compiled: most cases go. */
TT_INLINE void for_moments(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at,
                           int always, int at_most, size_t n, lanes_fn_t fn)
{
    const int there = (at->a == NULL ? 0 : A) | (at->b == NULL ? 0 : B) | (at->c == NULL ? 0 : C);
#pragma GCC unroll 8
    for (int moments = 0; moments <= ALL; moments++) {
        const bool is_possible =
            (moments & ~((1 << at_most) - 1)) == 0 && (~moments & ((1 << always) - 1)) == 0;
        if (is_possible && moments == there) {
            for_lanes(numbers, at, moments, n, fn);
        }
    }
}

TT_INLINE tt_vf load_if(bool has, const float *x, size_t i, size_t n)
{
    return has ? tt_vload_n(x + i, n) : tt_vsplat(0.0f);
}

TT_INLINE void store_if(bool has, float *x, size_t i, tt_vf v, size_t n)
{
    if (has) {
        tt_vstore_n(x + i, v, n);
    }
}

#define TT_UPDATE(kind, always, at_most, source, ...)                                              \
    TT_INLINE void at_##kind(const rounded_t *k, const tt_update_buffers_t *at, int moments,       \
                             size_t i, size_t n)                                                   \
    {                                                                                              \
        const bool has_a = moments & A, has_b = moments & B, has_c = moments & C;                  \
        tt_vf w = tt_vload_n(at->weight + i, n), g = tt_vload_n(at->gradient + i, n) * k->sign;    \
        tt_vf a = load_if(has_a, at->a, i, n), b = load_if(has_b, at->b, i, n);                    \
        tt_vf c = load_if(has_c, at->c, i, n);                                                     \
        __VA_ARGS__                                                                                \
        store_if(has_a, at->a, i, a, n);                                                           \
        store_if(has_b, at->b, i, b, n);                                                           \
        store_if(has_c, at->c, i, c, n);                                                           \
        tt_vstore_n(at->weight + i, w, n);                                                         \
    }                                                                                              \
                                                                                                   \
    static void update_##kind(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at,   \
                              size_t n)                                                            \
    {                                                                                              \
        for_moments(numbers, at, always, at_most, n, at_##kind);                                   \
    }

#include "core/kernel/optim/updates.def"
#undef TT_UPDATE

/* ---- LAMB ------------------------------------------------------------------------------------ */

TT_INLINE void lamb_moments_at(const rounded_t *k, const tt_update_buffers_t *at, int moments,
                               size_t i, size_t n)
{
    (void)moments;
    const tt_vf g = tt_vload_n(at->gradient + i, n) * k->sign;
    const tt_vf m = tt_vload_n(at->a + i, n), v = tt_vload_n(at->b + i, n);
    tt_vstore_n(at->a + i, m * k->beta1 + g * k->gain1, n);
    tt_vstore_n(at->b + i, v * k->beta2 + (g * k->gain2) * g, n);
}

static void lamb_moments(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at,
                         size_t n)
{
    for_lanes(numbers, at, A | B, n, lamb_moments_at);
}

static void lamb_update(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at, float *u,
                        size_t n)
{
    const rounded_t k = round_numbers(numbers);
    for (size_t i = 0; i < n; i += TT_LANES) {
        const size_t length = n - i < TT_LANES ? n - i : TT_LANES;
        const tt_vf m = tt_vload_n(at->a + i, length) * k.scale1;
        const tt_vf v = tt_vsqrt(tt_vload_n(at->b + i, length)) / k.root2 + k.eps;
        tt_vstore_n(u + i, m / v + tt_vload_n(at->weight + i, length) * k.decay, length);
    }
}

/* ---- Adafactor ------------------------------------------------------------------------------- */

static void column_squares(double *sum, const float *x, size_t rows, size_t stride, size_t n)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < n; i++) {
            const double value = (double)x[row * stride + i];
            sum[i] += value * value;
        }
    }
}

static void square_mean(const tt_update_numbers_t *numbers, float *mean, const float *gradient,
                        size_t n)
{
    const rounded_t k = round_numbers(numbers);
    for (size_t i = 0; i < n; i++) {
        mean[i] = mean[i] * k.beta2 + (gradient[i] * gradient[i] + k.eps) * k.gain2;
    }
}

static void over_root(float *u, const float *gradient, const float *mean, float factor, size_t n)
{
    for (size_t i = 0; i < n; i += TT_LANES) {
        const size_t length = n - i < TT_LANES ? n - i : TT_LANES;
        const tt_vf g = tt_vload_n(gradient + i, length), v = tt_vload_n(mean + i, length);
        tt_vstore_n(u + i, g * (tt_vsplat(factor) / tt_vsqrt(v)), length);
    }
}

static void apply(const tt_update_numbers_t *numbers, float *weight, float *first, const float *u,
                  size_t n)
{
    const rounded_t k = round_numbers(numbers);
    if (first == NULL) {
        for (size_t i = 0; i < n; i++) {
            weight[i] = weight[i] * k.keep + u[i] * k.minus_lr;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        first[i] = first[i] * k.beta1 - (u[i] * k.minus_lr) * k.gain1;
        weight[i] = weight[i] * k.keep - first[i];
    }
}

extern const tt_optim_steps_ops_t TT_ISA_NAME(tt_optim_steps_ops);

const tt_optim_steps_ops_t TT_ISA_NAME(tt_optim_steps_ops) = {
#define TT_UPDATE(kind, ...) .update[TT_UPDATE_##kind] = update_##kind,
#include "core/kernel/optim/updates.def"
#undef TT_UPDATE
    .lamb_moments = lamb_moments,
    .lamb_update = lamb_update,
    .column_squares = column_squares,
    .square_mean = square_mean,
    .over_root = over_root,
    .apply = apply,
};
