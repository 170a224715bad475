/* powersgd: two matrices and their biases in one bucket, how well they are approximated, and what
 * is not compressed at all. */
#include "core/base/testing.h"

#include <math.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "comm/group/group_team.h"

enum { SHARDS = 5, IN = 40, OUT = 30, MATRICES = 2 };

static const char *const weights[MATRICES] = {"0.weight", "1.weight"};
static const char *const biases[MATRICES] = {"0.bias", "1.bias"};

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
} setting_t;

static tutti_status_t open_setting(tutti_group_t *world, const tutti_powersgd_options_t *wanted,
                                   setting_t *set)
{
    const tutti_linear_options_t linear = {.in = IN, .out = OUT};
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set->ctx));
    TUTTI_CHECK(tutti_module_create(set->ctx, &tutti_sequential_layer, NULL, &set->model));
    for (int k = 0; k < MATRICES; k++) {
        TUTTI_CHECK(tutti_sequential_add(set->model, &tutti_linear_layer, &linear, NULL));
    }
    const tutti_ddp_options_t options = {.shards = SHARDS};
    TUTTI_CHECK(tutti_ddp_create(set->ctx, set->model, world, &options, &set->ddp));
    return tutti_ddp_set_hook(set->ddp, &tutti_powersgd_hook, wanted);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

static tutti_tensor_t *gradient(const setting_t *set, const char *parameter)
{
    return tutti_tensor_grad(tutti_module_find(set->model, parameter));
}

/* Gradients of matrix k are g [OUT, IN] times k + 1; those of biases are 1. */
static tutti_status_t backward_of(setting_t *set, float *g)
{
    tutti_scope_t *s;
    tutti_tensor_t *wanted;
    TUTTI_CHECK(tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(OUT, IN), g, &wanted));
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *sum = tutti_zeros(s, TUTTI_F32, TUTTI_SCALAR);
    for (int k = 0; k < MATRICES; k++) {
        tutti_tensor_t *w = tutti_module_find(set->model, weights[k]);
        tutti_tensor_t *part = tutti_mul_scalar(s, tutti_sum(s, tutti_mul(s, w, wanted)), k + 1);
        sum = tutti_add(s, sum, part);
        sum = tutti_add(s, sum, tutti_sum(s, tutti_module_find(set->model, biases[k])));
    }
    (void)tutti_backward(s, sum);
    const tutti_status_t status = tutti_scope_close(s);
    tutti_tensor_release(wanted);
    return status;
}

static void expect_biases(tt_member_t *m, const setting_t *set)
{
    for (int k = 0; k < MATRICES; k++) {
        TT_EXPECT(m, fabs(tutti_tensor_at(gradient(set, biases[k]), OUT - 1) - 1) < 1e-6);
    }
}

/* ---- what is lost, and comes later ----------------------------------------------------------- */

/* The outer product of two vectors for each shard: rank one for a shard, so that a rank-5
 * approximation of their sum is exact. */
static double product_at(int shard, int row, int column, int step)
{
    return sin(row * (shard + 1) + step) * cos(column * (shard + 2) - step);
}

static tutti_status_t backward_of_products(setting_t *set, int step)
{
    float g[OUT * IN];
    for (int i = 0; i < OUT * IN; i++) {
        g[i] = (float)product_at(tutti_context_shard(set->ctx), i / IN, i % IN, step);
    }
    return backward_of(set, g);
}

static double mean_at(int i, int step)
{
    double sum = 0;
    for (int shard = 0; shard < SHARDS; shard++) {
        sum += product_at(shard, i / IN, i % IN, step);
    }
    return sum / SHARDS;
}

typedef struct {
    double got[OUT * IN], want[OUT * IN];
} sums_t;

static double relative_error(const sums_t *sums)
{
    double off = 0, all = 0;
    for (int i = 0; i < OUT * IN; i++) {
        off += (sums->got[i] - sums->want[i]) * (sums->got[i] - sums->want[i]);
        all += sums->want[i] * sums->want[i];
    }
    return sqrt(off / all);
}

/* How far the gradient of matrix k is off in a step; both are added to the sums. */
static double note_step(const setting_t *set, int k, int step, sums_t *sums)
{
    sums_t now;
    for (int i = 0; i < OUT * IN; i++) {
        now.got[i] = tutti_tensor_at(gradient(set, weights[k]), i);
        now.want[i] = (k + 1) * mean_at(i, step);
        sums->got[i] += now.got[i];
        sums->want[i] += now.want[i];
    }
    return relative_error(&now);
}

typedef struct {
    tutti_powersgd_options_t options;
    double error_of_one_step, error_of_sum; /* relative, largest allowed */
    double least_error;                     /* of one step */
} thin_t;

/* How far the gradients are off, and their sum over the steps: what is lost comes later. Until
 * start_step, which is the second, everything travels whole. */
static void approximate(tt_member_t *m)
{
    enum { LONG = 12 };
    const thin_t *thin = m->user;
    setting_t set = {0};
    sums_t sums[MATRICES] = {{{0}, {0}}};
    double worst[MATRICES] = {0};
    TT_EXPECT(m, open_setting(m->group, &thin->options, &set) == TUTTI_OK);
    for (int step = 0; step < LONG; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            TT_EXPECT(m, backward_of_products(&set, step) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        expect_biases(m, &set);
        for (int k = 0; k < MATRICES; k++) {
            const double error = note_step(&set, k, step, &sums[k]);
            worst[k] = fmax(worst[k], step > 0 ? error : 0);
            TT_EXPECT(m, step > 0 || error < 1e-6);
        }
    }
    for (int k = 0; k < MATRICES; k++) {
        TT_EXPECT(m, worst[k] <= thin->error_of_one_step && worst[k] >= thin->least_error);
        TT_EXPECT(m, relative_error(&sums[k]) <= thin->error_of_sum);
    }
    close_setting(&set);
}

static void thin_products_approximate_and_make_up_for_it(void **state)
{
    (void)state;
    thin_t exact = {.options = {.rank = 5, .start_step = 2, .min_compression = 1},
                    .error_of_one_step = 1e-3,
                    .error_of_sum = 1e-3};
    thin_t thin = {.options = {.rank = 2, .start_step = 2},
                   .error_of_one_step = 4,
                   .least_error = 0.05,
                   .error_of_sum = 0.5};
    for (int ranks = 1; ranks <= 3; ranks++) {
        tt_team_expect_quietly(ranks, 20000, approximate, &exact);
        tt_team_expect_quietly(ranks, 20000, approximate, &thin);
    }
}

/* ---- begun where it ended -------------------------------------------------------------------- */

/* Singular values 3 and 1, the same in every step: of each matrix the larger one's product is left,
 * for a step begins with the Q of the one before it, and gets nearer by 9 each time. */
static void repeat(tt_member_t *m)
{
    const tutti_powersgd_options_t options = {.start_step = 2, .no_error_feedback = true};
    setting_t set = {0};
    float g[OUT * IN] = {[2 * IN + 7] = 3, [11 * IN + 20] = 1};
    TT_EXPECT(m, open_setting(m->group, &options, &set) == TUTTI_OK);
    for (int step = 0; step < 16; step++) {
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            TT_EXPECT(m, backward_of(&set, g) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        expect_biases(m, &set);
    }
    for (int k = 0; k < MATRICES; k++) {
        const tutti_tensor_t *grad = gradient(&set, weights[k]);
        for (int i = 0; i < OUT * IN; i++) {
            const double want = i == 2 * IN + 7 ? 3 * (k + 1) : 0;
            TT_EXPECT(m, fabs(tutti_tensor_at(grad, i) - want) < 1e-4);
        }
    }
    close_setting(&set);
}

static void each_matrix_of_a_bucket_goes_on_with_its_own_q(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        tt_team_expect_quietly(ranks, 20000, repeat, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thin_products_approximate_and_make_up_for_it),
        cmocka_unit_test(each_matrix_of_a_bucket_goes_on_with_its_own_q),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
