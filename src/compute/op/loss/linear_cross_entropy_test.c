/* linear_cross_entropy beyond its cases and golden values: which bits it has, and its memory. */
#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "core/kernel/isa.h"
#include "core/tensor/device_testing.h"

/* Of each kind of reduction: what a step leaves behind. */
typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x, *weight, *bias, *targets, *loss;
} head_t;

enum { ROWS = 700, IN = 24, CLASSES = 301 };

static tutti_tensor_t *leaf(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_cast(s, tutti_uniform(s, TUTTI_F32, shape, -1, 1), dtype);
    x = tutti_detach(s, x);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static void open_head(head_t *h, tutti_dtype_t dtype, int64_t rows, int threads)
{
    assert_int_equal(
        tt_test_context(&(tutti_context_options_t){.threads = threads, .seed = 3}, &h->ctx), 0);
    assert_int_equal(tutti_scope_open(h->ctx, &h->s), 0);
    h->x = leaf(h->s, dtype, TUTTI_SHAPE(rows, IN));
    h->weight = leaf(h->s, dtype, TUTTI_SHAPE(CLASSES, IN));
    h->bias = leaf(h->s, dtype, TUTTI_SHAPE(CLASSES));
    h->targets = tutti_randint(h->s, TUTTI_I64, TUTTI_SHAPE(rows), 0, CLASSES);
}

static void close_head(head_t *h)
{
    assert_int_equal(tutti_scope_close(h->s), 0);
    tutti_context_release(h->ctx);
}

static tutti_tensor_t *weighted(tutti_scope_t *s, tutti_tensor_t *losses)
{
    return losses->shape.rank == 0
               ? losses
               : tutti_sum(
                     s, tutti_mul(s, losses, tutti_uniform(s, losses->dtype, losses->shape, 0, 1)));
}

static void step(head_t *h, tutti_loss_reduction_t reduction, int64_t chunk)
{
    const tutti_linear_cross_entropy_options_t options = {
        .bias = h->bias, .loss.reduction = reduction, .chunk = chunk};
    h->loss = tutti_linear_cross_entropy(h->s, h->x, h->weight, h->targets, &options);
    assert_int_equal(tutti_backward(h->s, weighted(h->s, h->loss)), 0);
}

static void expect_bits(tutti_tensor_t *a, tutti_tensor_t *b, const char *what)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_true(a->dtype == b->dtype && tutti_shape_equal(a->shape, b->shape));
    const size_t bytes = (size_t)a->numel * tutti_dtype_bytes(a->dtype);
    if (memcmp(tt_test_host(a), tt_test_host(b), bytes) != 0) {
        fail_msg("%s: other bits", what);
    }
}

static void expect_same(head_t *a, head_t *b)
{
    expect_bits(a->loss, b->loss, "loss");
    expect_bits(tutti_tensor_grad(a->x), tutti_tensor_grad(b->x), "dx");
    expect_bits(tutti_tensor_grad(a->weight), tutti_tensor_grad(b->weight), "dW");
    expect_bits(tutti_tensor_grad(a->bias), tutti_tensor_grad(b->bias), "db");
}

static void compare_chunks(tutti_dtype_t dtype, tutti_loss_reduction_t reduction)
{
    head_t one, other;
    open_head(&one, dtype, ROWS, 1);
    step(&one, reduction, ROWS);
    const int64_t chunks[] = {1, 300, 0};
    for (int i = 0; i < 3; i++) {
        open_head(&other, dtype, ROWS, i + 1);
        step(&other, reduction, chunks[i]);
        expect_same(&one, &other);
        close_head(&other);
    }
    close_head(&one);
}

static void neither_chunks_nor_threads_change_a_bit(void **state)
{
    (void)state;
    compare_chunks(TUTTI_F32, TUTTI_LOSS_MEAN);
    compare_chunks(TUTTI_F32, TUTTI_LOSS_NONE);
    compare_chunks(TUTTI_F64, TUTTI_LOSS_SUM);
    compare_chunks(TUTTI_BF16, TUTTI_LOSS_MEAN);
}

/* 1 / rows is a power of two, and there is one turn of rows. */
static void its_bits_are_those_of_linear_and_cross_entropy(void **state)
{
    (void)state;
    head_t fused, plain;
    open_head(&fused, TUTTI_F32, 128, 2);
    step(&fused, TUTTI_LOSS_MEAN, 0);
    open_head(&plain, TUTTI_F32, 128, 2);
    tutti_tensor_t *logits = tutti_linear(plain.s, plain.x, plain.weight, plain.bias);
    plain.loss = tutti_cross_entropy(plain.s, logits, plain.targets);
    assert_int_equal(tutti_backward(plain.s, plain.loss), 0);
    expect_same(&fused, &plain);
    close_head(&fused);
    close_head(&plain);
}

/* Weights of classes, and a target that is spread, in f32. */
static void spread_step(head_t *h, int threads, bool is_probability)
{
    open_head(h, TUTTI_F32, 40, threads);
    tutti_tensor_t *probabilities = tutti_uniform(h->s, TUTTI_F32, TUTTI_SHAPE(40, CLASSES), 0, 1);
    const tutti_linear_cross_entropy_options_t options = {
        .bias = h->bias,
        .loss = {.label_smoothing = 0.1,
                 .weight = tutti_uniform(h->s, TUTTI_F32, TUTTI_SHAPE(CLASSES), 1, 2)}};
    h->loss = tutti_linear_cross_entropy(h->s, h->x, h->weight,
                                         is_probability ? probabilities : h->targets, &options);
    assert_int_equal(tutti_backward(h->s, h->loss), 0);
}

static void instruction_sets_change_no_bit(void **state)
{
    (void)state;
    const int best = (int)tt_isa();
    for (int i = 0; i < 2 * (best + 1); i++) {
        head_t one, other;
        spread_step(&one, 1, i % 2 == 1);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(i / 2)), 1);
        spread_step(&other, 3, i % 2 == 1);
        unsetenv("TUTTI_ISA");
        expect_same(&one, &other);
        close_head(&one);
        close_head(&other);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { TOKENS = 8192, WIDTH = 768, WORDS = 50257, CHUNK = 256 };

typedef struct {
    tutti_context_t *ctx;
    tutti_device_t *device;
    size_t before;
} room_t;

/* On meta, where memory is counted and nothing is computed. */
static tutti_scope_t *open_room(room_t *r)
{
    tutti_scope_t *s;
    assert_int_equal(tt_test_context_on("meta", NULL, &r->ctx), 0);
    r->device = (tutti_device_t *)(uintptr_t)tutti_context_device(r->ctx);
    assert_int_equal(tutti_scope_open(r->ctx, &s), 0);
    return s;
}

static void close_room(room_t *r, tutti_scope_t *s)
{
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_context_release(r->ctx);
}

/* Bytes beside the inputs, in f32: at the peak of the forward, and behind it. */
static void expect_forward(bool has_head_grad, size_t peak, size_t kept)
{
    room_t r;
    tutti_scope_t *s = open_room(&r);
    tutti_tensor_t *x = tutti_empty(s, TUTTI_F32, TUTTI_SHAPE(TOKENS, WIDTH));
    tutti_tensor_t *weight = tutti_empty(s, TUTTI_F32, TUTTI_SHAPE(WORDS, WIDTH));
    tutti_tensor_t *targets = tutti_empty(s, TUTTI_I64, TUTTI_SHAPE(TOKENS));
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(weight, has_head_grad), 0);
    r.before = tutti_device_stats(r.device).live_bytes;
    assert_int_equal(tutti_device_stats(r.device).peak_bytes, r.before);
    tutti_tensor_t *loss = tutti_linear_cross_entropy(s, x, weight, targets, NULL);
    assert_int_equal(tutti_tensor_status(loss), 0);
    assert_int_equal(tutti_device_stats(r.device).peak_bytes - r.before, peak);
    assert_int_equal(tutti_device_stats(r.device).live_bytes - r.before, kept);
    close_room(&r, s);
}

static void logits_are_in_memory_for_a_chunk_of_rows(void **state)
{
    (void)state;
    const size_t dx = (size_t)TOKENS * WIDTH * 4, dw = (size_t)WORDS * WIDTH * 4;
    const size_t losses = (size_t)TOKENS * 4, numbers = 4 * 4; /* the loss, the mean's three */
    const size_t chunk = (size_t)CHUNK * WORDS * 4 + (size_t)CHUNK * 2 * 4;
    expect_forward(true, dx + dw + losses + numbers + chunk, dx + dw + numbers);
    expect_forward(false, dx + losses + numbers + chunk, dx + numbers);
}

/* ---- nothing to be a mean of ----------------------------------------------------------------- */

enum { FEW = 5 };

/* 0, or NaN in all elements; of no others. */
static void expect_each(const tutti_tensor_t *x, int64_t first, int64_t count, bool is_nan)
{
    for (int64_t i = first; i < first + count; i++) {
        const double value = tutti_tensor_at(x, i);
        assert_true(is_nan ? isnan(value) : value == 0);
    }
}

/* The mean of rows that weigh nothing: of all, or of all but the first two, the targets are
 * ignored. What is ignored has a gradient of 0, whatever is not has none. */
static void step_without(tutti_dtype_t dtype, int64_t rows, bool has_other, double smoothing)
{
    head_t h;
    open_head(&h, dtype, rows, 2);
    const int64_t others = has_other ? 2 : 0;
    float weights[CLASSES];
    int64_t targets[FEW];
    for (int i = 0; i < CLASSES; i++) {
        weights[i] = i == 3 ? 0 : 1;
    }
    for (int i = 0; i < FEW; i++) {
        targets[i] = i < others ? 3 : -100;
    }
    tutti_tensor_t *class_weight = tutti_ones(h.s, TUTTI_F32, TUTTI_SHAPE(CLASSES));
    assert_int_equal(tutti_tensor_copy_from(class_weight, weights), 0);
    assert_int_equal(rows == 0 ? 0 : tutti_tensor_copy_from(h.targets, targets), 0);
    const tutti_linear_cross_entropy_options_t options = {
        .bias = h.bias,
        .loss = {.weight = has_other ? class_weight : NULL, .label_smoothing = smoothing}};
    h.loss = tutti_linear_cross_entropy(h.s, h.x, h.weight, h.targets, &options);
    assert_int_equal(tutti_backward(h.s, h.loss), 0);
    assert_true(has_other ? !isfinite(tutti_tensor_at(h.loss, 0))
                          : isnan(tutti_tensor_at(h.loss, 0)));
    expect_each(tutti_tensor_grad(h.x), 0, others * IN, true);
    expect_each(tutti_tensor_grad(h.x), others * IN, (rows - others) * IN, false);
    expect_each(tutti_tensor_grad(h.weight), 0, CLASSES * IN, has_other);
    expect_each(tutti_tensor_grad(h.bias), 0, CLASSES, has_other);
    close_head(&h);
}

/* As in PyTorch's, and as of tutti_cross_entropy(). */
static void a_mean_of_ignored_rows_alone_has_gradients_of_0(void **state)
{
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64};
    (void)state;
    for (int i = 0; i < 4; i++) {
        step_without(dtypes[i], FEW, false, 0);
        step_without(dtypes[i], FEW, false, 0.1);
        step_without(dtypes[i], 0, false, 0);
        step_without(dtypes[i], FEW, true, 0);
        step_without(dtypes[i], FEW, true, 0.1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neither_chunks_nor_threads_change_a_bit),
        cmocka_unit_test(its_bits_are_those_of_linear_and_cross_entropy),
        cmocka_unit_test(instruction_sets_change_no_bit),
        cmocka_unit_test(logits_are_in_memory_for_a_chunk_of_rows),
        cmocka_unit_test(a_mean_of_ignored_rows_alone_has_gradients_of_0),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
