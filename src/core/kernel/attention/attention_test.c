/* Attention against the definition in double, and its bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/kernel/attention/attention.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/matmul/gemm.h"

typedef struct {
    int64_t batch, heads, tq, tk, d, group;
    tutti_dtype_t dtype;
    bool causal, padding, fused; /* fused: q, k, v in one [B,T,H+2Hkv,D] */
    float dropout, scale;
} case_t;

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

typedef struct {
    tt_attention_t a;
    void *memory[TENSORS];
    size_t bytes[TENSORS];
    double *values[TENSORS]; /* [B,H,T,D], of its heads, dense, in double; the expected ones for
                                outputs */
    tt_max_sum_t *max_sum;
    uint8_t *padding;
} world_t;

static tt_heads_t *heads_of(tt_attention_t *a, int which)
{
    tt_heads_t *const all[TENSORS] = {&a->q,    &a->k,  &a->v,  &a->out,
                                      &a->dout, &a->dq, &a->dk, &a->dv};
    return all[which];
}

static bool is_of_keys(int which)
{
    return which == K || which == V || which == DK || which == DV;
}

static int64_t length_of(const tt_attention_t *a, int which)
{
    return is_of_keys(which) ? a->tk : a->tq;
}

static int64_t heads_in(const tt_attention_t *a, int which)
{
    return is_of_keys(which) ? a->heads / a->group : a->heads;
}

/* bh: of the tensor's own heads. */
static void *element(world_t *w, int which, int64_t bh, int64_t t, int64_t d)
{
    const tt_heads_t *x = heads_of(&w->a, which);
    const int64_t heads = heads_in(&w->a, which), b = bh / heads, h = bh % heads;
    return (char *)x->data + (b * x->stride_b + h * x->stride_h + t * x->stride_t + d) *
                                 (int64_t)tutti_dtype_bytes(w->a.dtype);
}

static double read_one(world_t *w, int which, int64_t bh, int64_t t, int64_t d)
{
    double x;
    tt_convert_to(TT_CLASS_F64, w->a.dtype)(&x, element(w, which, bh, t, d), 1);
    return x;
}

/* Heads from `first` on of [B,T,heads,D]. */
static void place(world_t *w, int which, void *memory, int64_t first, int64_t heads)
{
    const tt_attention_t *a = &w->a;
    *heads_of(&w->a, which) =
        (tt_heads_t){(char *)memory + first * a->d * (int64_t)tutti_dtype_bytes(a->dtype),
                     length_of(a, which) * heads * a->d, a->d, heads * a->d};
}

static void make_tensor(world_t *w, int which, bool fused)
{
    const tt_attention_t *a = &w->a;
    const int64_t fused_heads = a->heads + 2 * heads_in(a, K);
    const bool is_part = fused && which <= V;
    const bool is_gradient_part = fused && which >= DQ;
    if ((is_part && which != Q) || (is_gradient_part && which != DQ)) {
        const int first = is_part ? Q : DQ;
        place(w, which, w->memory[first], a->heads + (which - first - 1) * heads_in(a, K),
              fused_heads);
        return;
    }
    const int64_t heads = is_part || is_gradient_part ? fused_heads : heads_in(a, which);
    const int64_t count = a->batch * length_of(a, which) * heads * a->d;
    w->bytes[which] = (size_t)count * tutti_dtype_bytes(a->dtype);
    w->memory[which] = tt_alloc(w->bytes[which] + 1, "test");
    place(w, which, w->memory[which], 0, heads);
}

static void fill_tensor(world_t *w, int which)
{
    const tt_attention_t *a = &w->a;
    const int64_t length = length_of(a, which);
    const tt_rng_t rng = tt_rng_stream((uint64_t)which, 1, 2, 3, 4);
    uint64_t n = 0;
    for (int64_t bh = 0; bh < a->batch * heads_in(a, which); bh++) {
        for (int64_t t = 0; t < length; t++) {
            for (int64_t d = 0; d < a->d; d++, n++) {
                const double x = which <= V || which == DOUT
                                     ? (double)tt_rng_uniform(rng, n) * 2 - 1
                                     : (double)NAN;
                tt_convert_from(TT_CLASS_F64, a->dtype)(element(w, which, bh, t, d), &x, 1);
                w->values[which][n] =
                    which <= V || which == DOUT ? read_one(w, which, bh, t, d) : 0;
            }
        }
    }
}

static void set_up(world_t *w, const case_t *c)
{
    *w = (world_t){.a = {.batch = c->batch,
                         .heads = c->heads,
                         .group = c->group > 0 ? c->group : 1,
                         .tq = c->tq,
                         .tk = c->tk,
                         .d = c->d,
                         .dtype = c->dtype,
                         .scale = c->scale,
                         .causal = c->causal,
                         .dropout = c->dropout,
                         .rng = tt_rng_stream(7, 7, 7, 7, 7)}};
    for (int which = 0; which < TENSORS; which++) {
        make_tensor(w, which, c->fused);
        const int64_t count = c->batch * heads_in(&w->a, which) * length_of(&w->a, which) * c->d;
        w->values[which] = tt_alloc((size_t)count * sizeof(double) + 1, "test");
        fill_tensor(w, which);
    }
    const size_t queries = (size_t)(c->batch * c->heads * c->tq);
    w->a.max_sum = w->max_sum = tt_alloc(queries * sizeof *w->max_sum + 1, "test");
    w->padding = tt_alloc((size_t)(c->batch * c->tk) + 1, "test");
    for (int64_t i = 0; i < c->batch * c->tk; i++) {
        w->padding[i] = i < c->tk / 2 || i % 3 == 1; /* batch 0 ignores its first half */
    }
    w->a.key_padding = c->padding ? w->padding : NULL;
}

static void tear_down(world_t *w)
{
    for (int which = 0; which < TENSORS; which++) {
        tt_free(w->memory[which]);
        tt_free(w->values[which]);
    }
    tt_free(w->max_sum);
    tt_free(w->padding);
}

/* bh: of the queries' heads. */
static double *row_of(world_t *w, int which, int64_t bh, int64_t t)
{
    bh = is_of_keys(which) ? bh / w->a.group : bh;
    return w->values[which] + (bh * length_of(&w->a, which) + t) * w->a.d;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += factor * x[i];
    }
}

static double kept(const tt_attention_t *a, int64_t bh, int64_t i, int64_t j)
{
    const uint64_t index = (uint64_t)((bh * a->tq + i) * a->tk + j);
    const bool is_dropped = a->dropout > 0 && tt_rng_uniform(a->rng, index) < a->dropout;
    return is_dropped ? 0 : 1 / (1 - (double)a->dropout);
}

/* One query by the definition: out and its share of the gradients; gives its log-sum-exp. */
static double expect_query(world_t *w, int64_t bh, int64_t i, double *p)
{
    const tt_attention_t *a = &w->a;
    const double *q = row_of(w, Q, bh, i), *dout = row_of(w, DOUT, bh, i);
    double sum = 0, pulled = 0;
    for (int64_t j = 0; j < a->tk; j++) {
        const bool is_seen =
            !(a->causal && j > i) && !(a->key_padding && a->key_padding[bh / a->heads * a->tk + j]);
        p[j] = is_seen ? exp(a->scale * dot(q, row_of(w, K, bh, j), a->d)) : 0;
        sum += p[j];
    }
    for (int64_t j = 0; j < a->tk && sum > 0; j++) {
        p[j] /= sum;
        add(row_of(w, OUT, bh, i), p[j] * kept(a, bh, i, j), row_of(w, V, bh, j), a->d);
        add(row_of(w, DV, bh, j), p[j] * kept(a, bh, i, j), dout, a->d);
        pulled += p[j] * kept(a, bh, i, j) * dot(dout, row_of(w, V, bh, j), a->d);
    }
    for (int64_t j = 0; j < a->tk && sum > 0; j++) {
        const double dp = kept(a, bh, i, j) * dot(dout, row_of(w, V, bh, j), a->d);
        const double ds = p[j] * (dp - pulled) * a->scale;
        add(row_of(w, DQ, bh, i), ds, row_of(w, K, bh, j), a->d);
        add(row_of(w, DK, bh, j), ds, q, a->d);
    }
    return log(sum);
}

static double unit_of(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64   ? 1e-12
           : dtype == TUTTI_F32 ? 6e-6
           : dtype == TUTTI_F16 ? 1e-3
                                : 8e-3;
}

static void assert_tensor(world_t *w, int which)
{
    const tt_attention_t *a = &w->a;
    double most = 1; /* a gradient of 0 is the difference of two numbers of about this size */
    const int64_t length = length_of(a, which), rows = a->batch * heads_in(a, which) * length;
    most *= is_of_keys(which) ? (double)a->group : 1; /* so many of them add up */
    for (int64_t i = 0; i < rows * a->d; i++) {
        most = fmax(most, fabs(w->values[which][i]));
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = 0; d < a->d; d++) {
            const double want = w->values[which][i * a->d + d];
            const double got = read_one(w, which, i / length, i % length, d);
            if (!(fabs(got - want) <= unit_of(a->dtype) * (fabs(want) + most))) {
                fail_msg("tensor %d row %d element %d: got %.9g, expected %.9g (%s)", which, (int)i,
                         (int)d, got, want, tutti_dtype_name(a->dtype));
            }
        }
    }
}

static void run_case(const case_t *c, tt_threads_t *threads)
{
    world_t w;
    set_up(&w, c);
    assert_int_equal(tt_attention_forward(&(tt_exec_t){.threads = threads}, &w.a), TUTTI_OK);
    double *p = tt_alloc((size_t)c->tk * sizeof *p + 1, "test");
    for (int64_t bh = 0; bh < c->batch * c->heads; bh++) {
        for (int64_t i = 0; i < c->tq; i++) {
            const double want = expect_query(&w, bh, i, p);
            const tt_max_sum_t pair = w.max_sum[bh * c->tq + i];
            const double got = (double)pair.max + log((double)pair.sum);
            assert_true(got == want || fabs(got - want) < 1e-5 * (1 + fabs(want)));
        }
    }
    assert_tensor(&w, OUT);
    assert_int_equal(tt_attention_backward(&(tt_exec_t){.threads = threads}, &w.a), TUTTI_OK);
    for (int which = DQ; which <= DV; which++) {
        assert_tensor(&w, which);
    }
    tt_free(p);
    tear_down(&w);
}

static const int64_t lengths[] = {0, 1, 2, 13, 15, 31, 33, 70, 129, 150};
static const int64_t widths[] = {1, 3, 8, 16, 20, 32, 33, 64, 100};
static const char *const isas[] = {"auto", "avx512", "avx2", "baseline"};
enum { ISAS = sizeof isas / sizeof *isas };

static void attention_equals_its_definition(void **state)
{
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    const tt_rng_t rng = tt_rng_stream(11, 0, 0, 0, 0);
    for (uint64_t i = 0; i < 150; i++) {
        const uint64_t at = i * 16;
        const bool fused = tt_rng_below(rng, at, 2);
        const int64_t tq = lengths[tt_rng_below(rng, at + 1, 10)];
        case_t c = {
            .batch = (int64_t)tt_rng_below(rng, at + 2, 3),
            .heads = 1 + (int64_t)tt_rng_below(rng, at + 3, 2),
            .tq = tq,
            .tk = fused ? tq : lengths[tt_rng_below(rng, at + 4, 10)],
            .d = widths[tt_rng_below(rng, at + 5, 9)],
            .dtype = (tutti_dtype_t)tt_rng_below(rng, at + 6, 4),
            .causal = tt_rng_below(rng, at + 7, 2),
            .padding = tt_rng_below(rng, at + 8, 2),
            .fused = fused,
            .dropout = tt_rng_below(rng, at + 9, 3) == 0 ? 0.25f : 0,
            .scale = tt_rng_below(rng, at + 10, 8) == 0 ? -1.5f : 0.3f,
        };
        c.group = tt_rng_below(rng, at + 13, 2) ? 1 : 1 + (int64_t)tt_rng_below(rng, at + 14, 4);
        c.heads *= c.group;
        setenv("TUTTI_ISA", isas[tt_rng_below(rng, at + 11, ISAS)], 1);
        run_case(&c, tt_rng_below(rng, at + 12, 2) ? threads : NULL);
    }
    unsetenv("TUTTI_ISA");
    tt_threads_release(threads);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void attention_crosses_blocks_of_keys(void **state)
{
    (void)state;
    const int64_t tks[] = {1100, 530, 257};
    for (int i = 0; i < 6; i++) {
        const case_t c = {.batch = 1,
                          .heads = 1,
                          .tq = i < 3 ? 40 : 600,
                          .tk = tks[i % 3],
                          .d = 16,
                          .causal = i % 2,
                          .padding = i % 3 == 1,
                          .scale = 2};
        run_case(&c, NULL);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Where products go in pairs along the keys, the last pair may be half of one that is not seen. */
static void an_odd_number_of_seen_keys_is_no_more(void **state)
{
    (void)state;
    const int64_t tqs[] = {1, 13, 27, 129};
    for (int i = 0; i < 8; i++) {
        const case_t c = {.batch = 1,
                          .heads = 2,
                          .tq = tqs[i % 4],
                          .tk = 150,
                          .d = i < 4 ? 33 : 64,
                          .dtype = TUTTI_BF16,
                          .causal = true,
                          .scale = 0.3f};
        run_case(&c, NULL);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void fill_with(world_t *w, int which, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)w->memory[which] + i * (int64_t)tutti_dtype_bytes(w->a.dtype);
        tt_convert_from(TT_CLASS_F64, w->a.dtype)(at, &value, 1);
    }
}

/* Five equal scores, so large that the logarithm of their sum has no digits behind the point: each
 * weight is a fifth. */
static void large_scores_keep_their_softmax(void **state)
{
    (void)state;
    enum { KEYS = 5, WIDTH = 4 };
    for (int i = 0; i < 4 * ISAS; i++) {
        const tutti_dtype_t dtype = (tutti_dtype_t)(i % 4);
        const case_t c = {.batch = 1,
                          .heads = 1,
                          .tq = 1,
                          .tk = KEYS,
                          .d = WIDTH,
                          .dtype = dtype,
                          .scale = dtype == TUTTI_F64 ? 1e16f : 1e7f};
        world_t w;
        setenv("TUTTI_ISA", isas[i / 4], 1);
        set_up(&w, &c);
        fill_with(&w, Q, WIDTH, 1);
        fill_with(&w, K, KEYS * WIDTH, 1);
        fill_with(&w, DOUT, WIDTH, 1);
        assert_int_equal(tt_attention_forward(NULL, &w.a), TUTTI_OK);
        assert_int_equal(tt_attention_backward(NULL, &w.a), TUTTI_OK);
        for (int64_t key = 0; key < KEYS; key++) {
            assert_true(fabs(read_one(&w, DV, 0, key, 1) - 0.2) < unit_of(dtype));
        }
        tear_down(&w);
    }
    unsetenv("TUTTI_ISA");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static uint64_t bits_of(world_t *w, tt_threads_t *threads)
{
    assert_int_equal(tt_attention_forward(&(tt_exec_t){.threads = threads}, &w->a), TUTTI_OK);
    assert_int_equal(tt_attention_backward(&(tt_exec_t){.threads = threads}, &w->a), TUTTI_OK);
    uint64_t hash = 14695981039346656037u;
    for (int which = OUT; which < TENSORS; which++) {
        for (size_t i = 0; i < w->bytes[which]; i++) {
            hash = (hash ^ ((const unsigned char *)w->memory[which])[i]) * 1099511628211u;
        }
    }
    return hash;
}

/* Products of bf16 have other bits where the CPU multiplies it in pairs, or in tiles. */
static void expect_bits_of_variants(world_t *w)
{
    enum { ELEMENTS, PAIRS, TILES, WAYS };
    uint64_t known[WAYS] = {0};
    for (int isa = 0; isa < ISAS; isa++) {
        setenv("TUTTI_ISA", isas[isa], 1);
        const tt_gemm_ops_t *gemm = w->a.dtype == TUTTI_BF16 ? tt_gemm_ops(TUTTI_BF16) : NULL;
        const int way = gemm == NULL ? ELEMENTS : gemm->k_per_step == 2 ? PAIRS : TILES;
        const uint64_t bits = bits_of(w, NULL);
        assert_true(known[way] == 0 || known[way] == bits);
        known[way] = bits;
    }
    unsetenv("TUTTI_ISA");
}

static void attention_gives_the_same_bits_for_any_threads_and_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const case_t c = {.batch = 2,
                          .heads = i < 4 ? 3 : 6,
                          .group = i < 4 ? 1 : 3,
                          .tq = 150,
                          .tk = 150,
                          .d = i & 1 ? 64 : 20,
                          .dtype = i & 2 ? TUTTI_BF16 : TUTTI_F32,
                          .causal = i & 1,
                          .fused = true,
                          .padding = i & 2,
                          .dropout = i & 1 ? 0.1f : 0,
                          .scale = 0.25f};
        world_t w;
        set_up(&w, &c);
        const uint64_t alone = bits_of(&w, NULL);
        assert_true(alone == bits_of(&w, NULL));
        for (int count = 1; count <= 8; count++) {
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
            assert_true(alone == bits_of(&w, threads));
            tt_threads_release(threads);
        }
        expect_bits_of_variants(&w);
        tear_down(&w);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Copy tensor `which` of x, whose heads are shared, to the one of y, whose are not. */
static void repeat_heads(world_t *y, world_t *x, int which)
{
    const int64_t heads = heads_in(&y->a, which), group = is_of_keys(which) ? x->a.group : 1;
    for (int64_t i = 0; i < y->a.batch * heads; i++) {
        for (int64_t t = 0; t < length_of(&y->a, which); t++) {
            memcpy(element(y, which, i, t, 0), element(x, which, i / group, t, 0),
                   (size_t)y->a.d * tutti_dtype_bytes(y->a.dtype));
        }
    }
}

static void assert_rows(world_t *y, world_t *x, int which)
{
    for (int64_t i = 0; i < y->a.batch * y->a.heads; i++) {
        for (int64_t t = 0; t < y->a.tq; t++) {
            assert_memory_equal(element(y, which, i, t, 0), element(x, which, i, t, 0),
                                (size_t)y->a.d * tutti_dtype_bytes(y->a.dtype));
        }
    }
}

/* Sums of f32 are those of the repeated heads' gradients in their order. */
static void assert_sums(world_t *y, world_t *x, int which)
{
    for (int64_t i = 0; i < x->a.batch * heads_in(&x->a, which); i++) {
        for (int64_t at = 0; at < x->a.tk * x->a.d; at++) {
            const int64_t t = at / x->a.d, d = at % x->a.d;
            float sum = *(float *)element(y, which, i * x->a.group, t, d);
            for (int64_t k = 1; k < x->a.group; k++) {
                sum += *(float *)element(y, which, i * x->a.group + k, t, d);
            }
            assert_memory_equal(&sum, element(x, which, i, t, d), sizeof sum);
        }
    }
}

static void shared_keys_give_the_bits_of_repeated_ones(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * ISAS; i++) {
        case_t c = {.batch = 2,
                    .heads = 6,
                    .group = i & 1 ? 6 : 2,
                    .tq = 37,
                    .tk = i & 2 ? 37 : 140,
                    .d = 20,
                    .dtype = i & 1 ? TUTTI_BF16 : TUTTI_F32,
                    .causal = i & 2,
                    .padding = i & 1,
                    .fused = i & 2,
                    .dropout = 0.25f,
                    .scale = 0.3f};
        world_t shared, repeated;
        setenv("TUTTI_ISA", isas[i / 4], 1);
        set_up(&shared, &c);
        c.group = 1;
        set_up(&repeated, &c);
        for (int which = Q; which <= DOUT; which++) {
            repeat_heads(&repeated, &shared, which);
        }
        (void)bits_of(&shared, NULL);
        (void)bits_of(&repeated, NULL);
        assert_rows(&repeated, &shared, OUT);
        assert_rows(&repeated, &shared, DQ);
        if (c.dtype == TUTTI_F32) {
            assert_sums(&repeated, &shared, DK);
            assert_sums(&repeated, &shared, DV);
        }
        tear_down(&shared);
        tear_down(&repeated);
    }
    unsetenv("TUTTI_ISA");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void attention_refuses_what_it_cannot_do(void **state)
{
    (void)state;
    tt_attention_t a = {.dtype = TUTTI_I32};
    assert_int_equal(tt_attention_forward(NULL, &a), TUTTI_ERR_DTYPE);
    a = (tt_attention_t){.dropout = 1};
    assert_int_equal(tt_attention_forward(NULL, &a), TUTTI_ERR_ARG);
    a = (tt_attention_t){.d = 513};
    assert_int_equal(tt_attention_backward(NULL, &a), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "513"));
    a = (tt_attention_t){.heads = 6, .group = 4};
    assert_int_equal(tt_attention_backward(NULL, &a), TUTTI_ERR_ARG);
    const case_t c = {.batch = 1, .heads = 1, .tq = 3, .tk = 3, .d = 3, .scale = 1};
    world_t w;
    set_up(&w, &c);
    tt_alloc_fail_at(1);
    assert_int_equal(tt_attention_forward(NULL, &w.a), TUTTI_ERR_NOMEM);
    tear_down(&w);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Also where the weights of all keys are dropped. */
static void nan_stays(void **state)
{
    (void)state;
    enum { T = 16, D = 4 };
    float q[T * D], k[D] = {1, 1, 1, 1}, v[D] = {1, 1, 1, 1}, out[T * D];
    tt_max_sum_t max_sum[T];
    for (int i = 0; i < T * D; i++) {
        q[i] = NAN;
    }
    const tt_attention_t a = {.batch = 1,
                              .heads = 1,
                              .tq = T,
                              .tk = 1,
                              .d = D,
                              .dtype = TUTTI_F32,
                              .scale = 1,
                              .dropout = 0.5f,
                              .rng = tt_rng_stream(1, 2, 3, 4, 5),
                              .q = {q, 0, 0, D},
                              .k = {k, 0, 0, D},
                              .v = {v, 0, 0, D},
                              .out = {out, 0, 0, D},
                              .max_sum = max_sum};
    assert_int_equal(tt_attention_forward(NULL, &a), TUTTI_OK);
    for (int i = 0; i < T * D; i++) {
        assert_true(isnan(out[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_its_definition),
        cmocka_unit_test(attention_crosses_blocks_of_keys),
        cmocka_unit_test(an_odd_number_of_seen_keys_is_no_more),
        cmocka_unit_test(large_scores_keep_their_softmax),
        cmocka_unit_test(nan_stays),
        cmocka_unit_test(attention_gives_the_same_bits_for_any_threads_and_instruction_set),
        cmocka_unit_test(shared_keys_give_the_bits_of_repeated_ones),
        cmocka_unit_test(attention_refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
