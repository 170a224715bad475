/* Steps of parameters that take many parts, by several threads, against formulas in double that are
 * written out here. Small ones are compared with PyTorch in tests/golden. */
#include <math.h>

#include <tutti/optim.h>

#include "core/base/rng.h"
#include "core/tensor/device_testing.h"

enum { ROWS = 307, COLUMNS = 521, N = ROWS * COLUMNS };

typedef struct {
    tutti_context_t *ctx;
    tutti_tensor_t *x, *g;
    float weight[N];        /* of x, after a step */
    double start[N], g0[N]; /* what x and g began as */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    const tt_rng_t rng = tt_rng_stream(5, 0, 0, 0, 0);
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 3}, &f.ctx), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &f.x), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &f.g), 0);
    float weight[N], gradient[N];
    for (uint64_t i = 0; i < N; i++) {
        weight[i] = tt_rng_uniform(rng, i) - 0.5f;
        gradient[i] = (tt_rng_uniform(rng, N + i) - 0.5f) * 0.1f;
        f.start[i] = (double)weight[i];
        f.g0[i] = (double)gradient[i];
    }
    assert_int_equal(tutti_tensor_copy_from(f.x, weight), 0);
    assert_int_equal(tutti_tensor_copy_from(f.g, gradient), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    assert_int_equal(tutti_tensor_set_grad(f.x, f.g), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_release(f->x);
    tutti_tensor_release(f->g);
    tutti_context_release(f->ctx);
    return 0;
}

static void step(fixture_t *f, const tutti_optim_ops_t *kind, const void *options, int steps)
{
    tutti_optim_t *opt;
    for (int i = 0; i < N; i++) {
        f->weight[i] = (float)f->start[i];
    }
    assert_int_equal(tutti_tensor_copy_from(f->x, f->weight), 0);
    assert_int_equal(tutti_optim_create(f->ctx, kind, options, &opt), 0);
    assert_int_equal(tutti_optim_add_parameter(opt, 0, "x", f->x), 0);
    for (int i = 0; i < steps; i++) {
        assert_int_equal(tutti_optim_step(opt), 0);
    }
    memcpy(f->weight, tt_test_host(f->x), sizeof f->weight);
    tutti_optim_release(opt);
}

/* torch/optim/adam.py, single tensor, written out for one element. */
static double adam_reference(const tutti_adam_options_t *o, bool decoupled, double w, double g)
{
    double m = 0, v = 0, v_max = 0;
    for (int step = 1; step <= 10; step++) {
        double gradient = o->maximize ? -g : g;
        w *= decoupled ? 1 - o->lr * o->weight_decay : 1;
        gradient += decoupled ? 0 : o->weight_decay * w;
        m = o->beta1 * m + (1 - o->beta1) * gradient;
        v = o->beta2 * v + (1 - o->beta2) * gradient * gradient;
        v_max = fmax(v_max, v);
        const double root = sqrt(o->amsgrad ? v_max : v) / sqrt(1 - pow(o->beta2, step));
        w -= o->lr / (1 - pow(o->beta1, step)) * m / (root + o->eps);
    }
    return w;
}

static void adam_follows_the_formula(void **state)
{
    fixture_t *f = *state;
    for (int flags = 0; flags < 8; flags++) {
        const tutti_adam_options_t adam = {.lr = 1e-2,
                                           .beta1 = 0.9,
                                           .beta2 = 0.99,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .amsgrad = flags & 4,
                                           .maximize = flags & 2};
        const tutti_adamw_options_t adamw = {.lr = 1e-2,
                                             .beta2 = 0.99,
                                             .weight_decay = 0.1,
                                             .amsgrad = flags & 4,
                                             .maximize = flags & 2};
        const bool decoupled = flags & 1;
        step(f, decoupled ? &tutti_adamw : &tutti_adam,
             decoupled ? (const void *)&adamw : (const void *)&adam, 10);
        for (int i = 0; i < N; i += 41) {
            const double want = adam_reference(&adam, decoupled, f->start[i], f->g0[i]);
            assert_true(fabs((double)f->weight[i] - want) < 2e-6);
        }
    }
}

static void sgd_follows_the_formula(void **state)
{
    fixture_t *f = *state;
    for (int flags = 0; flags < 8; flags++) {
        const bool is_heavy = flags & 1, looks_ahead = (flags & 3) == 3;
        const tutti_sgd_options_t sgd = {.lr = 0.1,
                                         .momentum = is_heavy ? 0.9 : 0,
                                         .dampening = looks_ahead ? 0 : 0.1,
                                         .weight_decay = 0.01,
                                         .nesterov = looks_ahead,
                                         .maximize = flags & 4};
        step(f, &tutti_sgd, &sgd, 5);
        for (int i = 0; i < N; i += 41) {
            double w = f->start[i], buffer = 0;
            for (int k = 0; k < 5; k++) {
                double g = f->g0[i] * (flags & 4 ? -1 : 1) + 0.01 * w;
                buffer = k == 0 ? g : 0.9 * buffer + (1 - sgd.dampening) * g;
                g = !is_heavy ? g : looks_ahead ? g + 0.9 * buffer : buffer;
                w -= 0.1 * g;
            }
            assert_true(fabs((double)f->weight[i] - w) < 2e-6);
        }
    }
}

static void lamb_measures_the_whole_parameter(void **state)
{
    fixture_t *f = *state;
    step(f, &tutti_lamb, &(tutti_lamb_options_t){.lr = 0.1, .beta2 = 0.99, .eps = 1e-6}, 1);
    double weights = 0, updates = 0;
    for (int i = 0; i < N; i++) {
        const double u = f->g0[i] / (fabs(f->g0[i]) + 1e-6);
        weights += f->start[i] * f->start[i];
        updates += u * u;
    }
    for (int i = 0; i < N; i += 41) {
        const double u = f->g0[i] / (fabs(f->g0[i]) + 1e-6);
        const double want = f->start[i] - 0.1 * sqrt(weights / updates) * u;
        assert_true(fabs((double)f->weight[i] - want) < 1e-6);
    }
}

static void adafactor_divides_by_rows_and_columns(void **state)
{
    fixture_t *f = *state;
    step(f, &tutti_adafactor,
         &(tutti_adafactor_options_t){
             .lr = 0.1, .clip = 1e9, .no_relative_step = true, .no_scale_parameter = true},
         1);
    static double rows[ROWS], columns[COLUMNS];
    double all = 0;
    for (int i = 0; i < N; i++) {
        const double square = f->g0[i] * f->g0[i];
        rows[i / COLUMNS] += square / COLUMNS;
        columns[i % COLUMNS] += square / ROWS;
        all += square / N;
    }
    for (int i = 0; i < N; i += 37) {
        const double u = f->g0[i] / sqrt(rows[i / COLUMNS] * columns[i % COLUMNS] / all);
        assert_true(fabs((double)f->weight[i] - (f->start[i] - 0.1 * u)) < 1e-6);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(adam_follows_the_formula),
        TEST(sgd_follows_the_formula),
        TEST(lamb_measures_the_whole_parameter),
        TEST(adafactor_divides_by_rows_and_columns),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
