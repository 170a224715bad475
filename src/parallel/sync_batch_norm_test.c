/* Batch norm over all ranks: what one rank computes on the whole batch, for any split of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"

enum { N = 8, C = 3, WIDTH = 5, RANKS_MAX = 4 };

/* Samples of each rank; they add up to N. */
typedef struct {
    int64_t counts[RANKS_MAX];
    double running[RANKS_MAX][2 * C]; /* out: of each rank */
} split_t;

static int64_t first_of(const split_t *split, int rank)
{
    int64_t first = 0;
    for (int i = 0; i < rank; i++) {
        first += split->counts[i];
    }
    return first;
}

/* A forward and a backward whose loss weighs every element differently. */
static tutti_status_t run(tutti_scope_t *s, tutti_module_t *norm, tutti_tensor_t *x,
                          tutti_tensor_t *weights, tutti_tensor_t **y)
{
    TUTTI_CHECK(tutti_scope_status(s));
    TUTTI_CHECK(tutti_tensor_set_requires_grad(x, true));
    *y = tutti_forward(s, norm, x);
    return tutti_backward(s, tutti_sum(s, tutti_mul(s, *y, weights)));
}

static void expect_near(tt_member_t *m, const char *what, const tutti_tensor_t *got,
                        const tutti_tensor_t *want, int64_t from)
{
    for (int64_t i = 0; i < tutti_tensor_numel(got); i++) {
        const double a = tutti_tensor_at(got, i), b = tutti_tensor_at(want, from + i);
        if (!(fabs(a - b) <= 1e-5 * (1 + fabs(b))) && m->failure[0] == 0) {
            snprintf(m->failure, sizeof m->failure, "rank %d: %s: element %lld is %g, not %g",
                     m->rank, what, (long long)i, a, b);
        }
    }
}

/* Sums over the ranks of a gradient. */
static void expect_sum(tt_member_t *m, const char *name, tutti_module_t *own, tutti_module_t *whole)
{
    tutti_tensor_t *sum = tutti_tensor_grad(tutti_module_find(own, name));
    TT_EXPECT(m, tutti_all_reduce(m->group, sum, TUTTI_SUM, NULL) == TUTTI_OK);
    expect_near(m, name, sum, tutti_tensor_grad(tutti_module_find(whole, name)), 0);
}

static void keep_running(tt_member_t *m, split_t *split, tutti_module_t *own)
{
    for (int64_t i = 0; i < C; i++) {
        split->running[m->rank][i] = tutti_tensor_at(tutti_module_find(own, "running_mean"), i);
        split->running[m->rank][C + i] = tutti_tensor_at(tutti_module_find(own, "running_var"), i);
    }
}

static void compare_all(tt_member_t *m, tutti_scope_t *s, tutti_module_t *own,
                        tutti_module_t *whole)
{
    split_t *split = m->user;
    const int64_t first = first_of(split, m->rank), count = split->counts[m->rank];
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(N, C, WIDTH), 1, 2);
    tutti_tensor_t *weights = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(N, C, WIDTH), 0, 1);
    tutti_tensor_t *part = tutti_clone(s, tutti_narrow(s, x, 0, first, count));
    tutti_tensor_t *y, *part_y;
    TT_EXPECT(m, run(s, whole, x, weights, &y) == TUTTI_OK);
    TT_EXPECT(m, run(s, own, part, tutti_narrow(s, weights, 0, first, count), &part_y) == TUTTI_OK);
    if (m->failure[0] != 0) {
        return;
    }
    expect_near(m, "y", part_y, y, first * C * WIDTH);
    expect_near(m, "dx", tutti_tensor_grad(part), tutti_tensor_grad(x), first * C * WIDTH);
    expect_sum(m, "weight", own, whole);
    expect_sum(m, "bias", own, whole);
    static const char *const names[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int i = 0; i < 3; i++) {
        expect_near(m, names[i], tutti_module_find(own, names[i]),
                    tutti_module_find(whole, names[i]), 0);
    }
    keep_running(m, split, own);
}

static void compare_with_the_whole_batch(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *own = NULL, *whole = NULL;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    const tutti_context_options_t context = {.threads = 1, .seed = 3};
    TT_EXPECT(m, tutti_context_create(&context, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &own) == 0);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_batch_norm_layer, &options.norm, &whole) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    compare_all(m, s, own, whole);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_module_release(own);
    tutti_module_release(whole);
    tutti_context_release(ctx);
}

static void any_split_gives_what_the_whole_batch_gives(void **state)
{
    (void)state;
    static const int64_t splits[][RANKS_MAX] = {{8}, {4, 4}, {1, 7}, {3, 0, 5}, {2, 1, 4, 1}};
    static const int ranks[] = {1, 2, 2, 3, 4};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        split_t split;
        memset(&split, 0, sizeof split);
        memcpy(split.counts, splits[i], sizeof split.counts);
        assert_string_equal(tt_team_run(ranks[i], 20000, compare_with_the_whole_batch, &split).text,
                            "");
        for (int rank = 1; rank < ranks[i]; rank++) { /* to the bit */
            assert_memory_equal(split.running[rank], split.running[0], sizeof split.running[0]);
        }
    }
}

/* ---- evaluation, DDP, errors ----------------------------------------------------------------- */

static tutti_status_t forward_ones(tutti_context_t *ctx, tutti_module_t *m, int64_t rows)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    (void)tutti_forward(s, m, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(rows, C)));
    return tutti_scope_close(s);
}

/* Rank 1 evaluates alone; then one sample in all is too few, on both. */
static void evaluate_alone(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *norm;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    if (m->rank == 1) {
        tutti_context_set_training(ctx, false);
        TT_EXPECT(m, forward_ones(ctx, norm, 2) == TUTTI_OK);
        tutti_context_set_training(ctx, true);
    }
    TT_EXPECT(m, forward_ones(ctx, norm, m->rank) == TUTTI_ERR_SHAPE);
    TT_EXPECT(m, strstr(tutti_last_error(), "sync_batch_norm: one value has no variance") != NULL);
    tutti_module_release(norm);
    tutti_context_release(ctx);
}

/* Statistics that did not arrive are nobody's: forward says so. */
static void forward_in_a_group_that_was_given_up(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *norm;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    tutti_group_abort(m->group);
    TT_EXPECT(m, forward_ones(ctx, norm, 4) == TUTTI_ERR_ABORTED);
    tutti_module_release(norm);
    tutti_context_release(ctx);
}

static void a_group_that_was_given_up_fails_forward(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, forward_in_a_group_that_was_given_up, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void evaluation_waits_for_nobody(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, evaluate_alone, NULL).text, "");
}

/* On each rank alone, before anything is sent. */
static void differentiate_twice(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *norm;
    tutti_scope_t *s;
    tutti_tensor_t *grad;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    const tutti_backward_options_t recorded = {.create_graph = true};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, C));
    TT_EXPECT(m, tutti_tensor_set_requires_grad(x, true) == TUTTI_OK);
    tutti_tensor_t *y = tutti_sum(s, tutti_forward(s, norm, x));
    TT_EXPECT(m, tutti_grad(s, y, &recorded, &x, 1, &grad) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m,
              strstr(tutti_last_error(), "sync_batch_norm: its gradient has no gradient") != NULL);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_ERR_UNSUPPORTED);
    tutti_module_release(norm);
    tutti_context_release(ctx);
}

static void gradients_of_gradients_are_refused(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, differentiate_twice, NULL).text, "");
}

static void wrap(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net, *norm;
    tutti_ddp_t *ddp = NULL;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_sequential_add(net, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    const tutti_ddp_options_t more = {.shards = 3};
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &more, &ddp) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m,
              strstr(tutti_last_error(), "3 shards on 2 ranks, and 0 is a sync_batch_norm, which "
                                         "needs one shard on every rank") != NULL);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, NULL, &ddp) == TUTTI_OK);
    while (ddp != NULL && tutti_ddp_next_shard(ddp, ctx)) {
        tutti_scope_t *s;
        tutti_tensor_t *y;
        TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, C), 0, 1);
        TT_EXPECT(m, run(s, net, x, tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, C), 0, 1), &y) == 0);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    }
    TT_EXPECT(m, ddp == NULL || tutti_ddp_finish(ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void ddp_wants_one_shard_on_every_rank(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, wrap, NULL).text, "");
}

/* From step 1 on rank 1 has no samples, and takes part in forward and backward with none. */
static void run_out(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net, *norm;
    tutti_ddp_t *ddp = NULL;
    double slopes[2] = {0};
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    const tutti_ddp_options_t weighted = {.uneven = TUTTI_DDP_WEIGHTED};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_sequential_add(net, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &weighted, &ddp) == TUTTI_OK);
    for (int step = 0; step < 2; step++) {
        const int64_t n = m->rank == 1 && step > 0 ? 0 : 4;
        tutti_scope_t *s;
        tutti_tensor_t *y;
        TT_EXPECT(m, tutti_ddp_next_shard(ddp, ctx));
        TT_EXPECT(m, tutti_ddp_set_weight(ddp, n) == TUTTI_OK);
        TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(n, C), 0, 1);
        TT_EXPECT(m, run(s, net, x, tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(n, C), 0, 1), &y) == 0);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_finish(ddp) == TUTTI_OK);
        slopes[step] = tutti_tensor_at(tutti_tensor_grad(tutti_module_find(net, "0.weight")), 0);
    }
    TT_EXPECT(m, tutti_ddp_weight(ddp, -1) == 4);
    TT_EXPECT(m, isfinite(slopes[1]) && slopes[1] != slopes[0]);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void a_rank_without_samples_takes_part_under_ddp(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, run_out, NULL).text, "");
}

/* A loss of sync_batch_norm, whose module and group are given back before its backward. */
static tutti_tensor_t *make_orphan(tt_member_t *m, tutti_scope_t *s, bool recompute,
                                   tutti_tensor_t *x)
{
    tutti_group_t *own = NULL;
    tutti_module_t *norm = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, NULL, 0, NULL, &own) == TUTTI_OK);
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = own};
    tutti_context_t *ctx = tutti_scope_context(s);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    tutti_tensor_t *y = recompute ? tutti_recompute(s, norm, x) : tutti_forward(s, norm, x);
    const int held = atomic_load(&own->ref.count);
    TT_EXPECT(m, held == (recompute ? 2 : 3)); /* by us, the module, and the graph */
    tutti_module_release(norm);
    tutti_group_release(own);
    return tutti_sum(s, tutti_mul(s, y, y));
}

static void go_back_as_an_orphan(tt_member_t *m)
{
    for (int recompute = 0; recompute <= 1; recompute++) {
        tutti_context_t *ctx;
        tutti_scope_t *s;
        const tutti_context_options_t context = {.threads = 1, .seed = 3};
        TT_EXPECT(m, tutti_context_create(&context, &ctx) == TUTTI_OK);
        TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, C), 1, 2);
        TT_EXPECT(m, tutti_tensor_set_requires_grad(x, true) == TUTTI_OK);
        tutti_tensor_t *loss = make_orphan(m, s, recompute == 1, x);
        TT_EXPECT(m, tutti_backward(s, loss) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_grad(x) != NULL);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        tutti_context_release(ctx);
    }
}

static void a_graph_holds_the_group_that_its_backward_calls(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, go_back_as_an_orphan, NULL);
}

static void a_group_is_needed(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_module_t *norm;
    assert_int_equal(tutti_context_create(NULL, &ctx), TUTTI_OK);
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}};
    assert_int_equal(tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "options.group is missing"));
    tutti_context_release(ctx);
}

/* ---- conversion ------------------------------------------------------------------------------ */

/* norm, [norm, group norm, norm again] */
static tutti_status_t make_net(tutti_context_t *ctx, tutti_module_t **out)
{
    const tutti_batch_norm_layer_options_t norm = {.width = C, .eps = 1e-3, .momentum = 0.3};
    const tutti_group_norm_options_t other = {.width = C, .groups = 1};
    tutti_module_t *first, *inner;
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_batch_norm_layer, &norm, &first));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_sequential_layer, NULL, &inner));
    TUTTI_CHECK(tutti_sequential_add(inner, &tutti_batch_norm_layer, &norm, NULL));
    TUTTI_CHECK(tutti_sequential_add(inner, &tutti_group_norm_layer, &other, NULL));
    return tutti_module_add_child(inner, "again", first);
}

static tutti_status_t note_name(void *user, const char *name, tutti_tensor_t *x)
{
    char *text = user;
    const size_t used = strlen(text);
    snprintf(text + used, 1024 - used, "%s %p\n", name, (void *)x);
    return TUTTI_OK;
}

static tutti_status_t note_kind(void *user, const char *name, tutti_module_t *m)
{
    char *text = user;
    const size_t used = strlen(text);
    snprintf(text + used, 1024 - used, "%s:%s ", name, tutti_module_kind(m)->name);
    return TUTTI_OK;
}

static void convert_net(tt_member_t *m, tutti_context_t *ctx, tutti_module_t *net)
{
    char before[1024] = "", after[1024] = "", kinds[1024] = "";
    TT_EXPECT(m, forward_ones(ctx, net, 2) == TUTTI_OK); /* so that the buffers have values */
    (void)tutti_module_each_tensor(net, note_name, before);
    TT_EXPECT(m, tutti_convert_sync_batchnorm(net, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_convert_sync_batchnorm(net, m->group) == TUTTI_OK); /* again is fine */
    (void)tutti_module_each_tensor(net, note_name, after);
    (void)tutti_module_apply(net, note_kind, kinds);
    TT_EXPECT(m, strcmp(before, after) == 0);
    TT_EXPECT(m, strcmp(kinds, ":sequential 0:sync_batch_norm 1:sequential 1.0:sync_batch_norm "
                               "1.1:group_norm 1.again:sync_batch_norm ") == 0);
}

/* The ranks' parts of a batch, through the converted net, and the whole one through the first. */
static void compare_converted(tt_member_t *m)
{
    const split_t *split = m->user;
    const int64_t first = first_of(split, m->rank), count = split->counts[m->rank];
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net = NULL, *whole = NULL;
    tutti_tensor_t *y, *part_y;
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, make_net(ctx, &net) == TUTTI_OK && make_net(ctx, &whole) == TUTTI_OK);
    convert_net(m, ctx, net);
    TT_EXPECT(m, forward_ones(ctx, whole, 2) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(N, C, WIDTH), 1, 2);
    tutti_tensor_t *weights = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(N, C, WIDTH), 0, 1);
    tutti_tensor_t *part = tutti_clone(s, tutti_narrow(s, x, 0, first, count));
    TT_EXPECT(m, run(s, whole, x, weights, &y) == TUTTI_OK);
    TT_EXPECT(m, run(s, net, part, tutti_narrow(s, weights, 0, first, count), &part_y) == TUTTI_OK);
    expect_near(m, "y", part_y, y, first * C * WIDTH);
    expect_near(m, "running_var", tutti_module_find(net, "0.running_var"),
                tutti_module_find(whole, "0.running_var"), 0);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_module_release(net);
    tutti_module_release(whole);
    tutti_context_release(ctx);
}

static void batch_norms_of_a_model_are_converted_in_place(void **state)
{
    (void)state;
    split_t split = {.counts = {5, 3}};
    assert_string_equal(tt_team_run(2, 20000, compare_converted, &split).text, "");
}

/* Also one that is no part of anything; without a group it stays what it was. */
static void convert_one(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *norm;
    const tutti_batch_norm_layer_options_t options = {.width = C};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_batch_norm_layer, &options, &norm) == TUTTI_OK);
    TT_EXPECT(m, tutti_convert_sync_batchnorm(norm, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "the group is missing") != NULL);
    TT_EXPECT(m, tutti_module_kind(norm) == &tutti_batch_norm_layer);
    TT_EXPECT(m, tutti_convert_sync_batchnorm(norm, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_kind(norm) == &tutti_sync_batch_norm_layer);
    TT_EXPECT(m, forward_ones(ctx, norm, 2) == TUTTI_OK);
    tutti_module_release(norm);
    tutti_context_release(ctx);
}

static void a_norm_by_itself_is_converted_or_left_alone(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(1, 20000, convert_one, NULL).text, "");
}

/* Each rank alone, with one sample, which is enough where there are others. */
static void train_on_meta(tt_member_t *m)
{
    tutti_device_t *meta;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *norm;
    tutti_tensor_t *y;
    const tutti_sync_batch_norm_options_t options = {.norm = {.width = C}, .group = m->group};
    TT_EXPECT(m, tutti_device_open("meta", NULL, &meta) == TUTTI_OK);
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.device = meta}, &ctx) == 0);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sync_batch_norm_layer, &options, &norm) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, C));
    TT_EXPECT(m, run(s, norm, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, C)), &y) == TUTTI_OK);
    TT_EXPECT(m, tutti_shape_equal(tutti_tensor_shape(y), tutti_tensor_shape(x)));
    TT_EXPECT(m, tutti_tensor_device(y) == meta && tutti_tensor_dtype(y) == TUTTI_F32);
    TT_EXPECT(m, tutti_tensor_grad(x) != NULL);
    TT_EXPECT(m, tutti_tensor_grad(tutti_module_find(norm, "weight")) != NULL);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_module_release(norm);
    tutti_context_release(ctx);
    tutti_device_release(meta);
}

static void on_meta_nothing_is_sent(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, train_on_meta, NULL).text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_gives_what_the_whole_batch_gives),
        cmocka_unit_test(a_group_that_was_given_up_fails_forward),
        cmocka_unit_test(evaluation_waits_for_nobody),
        cmocka_unit_test(gradients_of_gradients_are_refused),
        cmocka_unit_test(ddp_wants_one_shard_on_every_rank),
        cmocka_unit_test(a_rank_without_samples_takes_part_under_ddp),
        cmocka_unit_test(a_graph_holds_the_group_that_its_backward_calls),
        cmocka_unit_test(a_group_is_needed),
        cmocka_unit_test(batch_norms_of_a_model_are_converted_in_place),
        cmocka_unit_test(a_norm_by_itself_is_converted_or_left_alone),
        cmocka_unit_test(on_meta_nothing_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
