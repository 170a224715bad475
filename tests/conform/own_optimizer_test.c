/* Optimizers of a user, made of the public header alone, have what Tutti's have: the bits of
 * tutti_adam through groups, a schedule, clipping, loss scaling, f32 masters, files, checkpoints
 * and DDP's step inside backward; sums over a parameter; and errors that name what is wrong. */
#include "own_optimizers.h"

#include <stdlib.h>
#include <unistd.h>

#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/optim.h>
#include <tutti/checkpoint.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/folder.h"
#include "core/tensor/device_testing.h"

enum { WIDE = 300, STEPS = 6 }; /* a weight is of several parts */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_scaler_t *scaler;
} training_t;

static int no_bias(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)user, (void)x;
    return strstr(name, "bias") != NULL ? 1 : 0;
}

static tutti_status_t add_groups(tutti_optim_t *opt, tutti_module_t *net, bool is_own)
{
    const tutti_adam_options_t biases = {.lr = 0.02, .beta1 = TUTTI_ZERO, .weight_decay = 0.1};
    const own_adam_options_t own = {.lr = 0.02, .beta1 = TUTTI_ZERO, .weight_decay = 0.1};
    int group;
    TUTTI_CHECK(tutti_optim_add_group(opt, is_own ? (const void *)&own : &biases, &group));
    return tutti_optim_add_module(opt, net, no_bias, NULL);
}

static void open_training(training_t *t, const tutti_optim_ops_t *kind, tutti_dtype_t dtype)
{
    const tutti_context_options_t options = {.threads = 3, .seed = 5};
    const tutti_mlp_options_t mlp = {.width = WIDE, .hidden = WIDE};
    assert_int_equal(tt_test_context(&options, &t->ctx), 0);
    assert_int_equal(tutti_module_create(t->ctx, &tutti_mlp_layer, &mlp, &t->net), 0);
    assert_int_equal(tutti_module_cast(t->net, dtype), 0);
    assert_int_equal(tutti_optim_create(t->ctx, kind, NULL, &t->opt), 0);
    assert_int_equal(tutti_scaler_create(NULL, &t->scaler), 0);
    if (kind == &tutti_adam || kind == &own_adam) {
        assert_int_equal(add_groups(t->opt, t->net, kind == &own_adam), 0);
    } else {
        assert_int_equal(tutti_optim_add_module(t->opt, t->net, NULL, NULL), 0);
    }
}

static void close_training(training_t *t)
{
    tutti_scaler_release(t->scaler);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static tutti_tensor_t *loss_of(tutti_scope_t *s, tutti_module_t *net, tutti_dtype_t dtype)
{
    tutti_tensor_t *x = tutti_uniform(s, dtype, TUTTI_SHAPE(4, WIDE), -1, 1);
    return tutti_mse_loss(s, tutti_forward(s, net, x), x, TUTTI_LOSS_MEAN);
}

static void train(training_t *t, int from, int to)
{
    const tutti_schedule_t schedule = {
        .kind = TUTTI_SCHEDULE_COSINE, .lr = 0.01, .total_steps = STEPS};
    const tutti_dtype_t dtype = tutti_tensor_dtype(tutti_module_find(t->net, "up.weight"));
    for (int step = from; step < to; step++) {
        tutti_scope_t *s;
        bool is_skipped;
        tutti_context_set_step(t->ctx, step);
        assert_int_equal(tutti_scope_open(t->ctx, &s), 0);
        tutti_tensor_t *loss = loss_of(s, t->net, dtype);
        assert_int_equal(tutti_backward(s, tutti_scaler_scale(t->scaler, s, loss)), 0);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_int_equal(tutti_scaler_unscale(t->scaler, t->opt), 0);
        assert_int_equal(tutti_clip_grad_norm(t->opt, 0.01, 2, NULL), 0);
        tutti_optim_set_lr(t->opt, tutti_schedule_lr(&schedule, step));
        assert_int_equal(tutti_scaler_step(t->scaler, t->opt, &is_skipped), 0);
        assert_false(is_skipped);
        assert_int_equal(tutti_scaler_update(t->scaler), 0);
        tutti_optim_zero_grad(t->opt);
    }
}

typedef struct {
    char text[TUTTI_DIGEST_BYTES];
} digest_t;

static digest_t digest_of(const training_t *t)
{
    digest_t digest;
    assert_int_equal(tutti_module_digest(t->net, digest.text), 0);
    return digest;
}

static digest_t trained(const tutti_optim_ops_t *kind, tutti_dtype_t dtype)
{
    training_t t;
    open_training(&t, kind, dtype);
    train(&t, 0, STEPS);
    const digest_t digest = digest_of(&t);
    close_training(&t);
    return digest;
}

static void its_bits_are_those_of_adam(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2; i++) {
        assert_string_equal(trained(&own_adam, dtypes[i]).text,
                            trained(&tutti_adam, dtypes[i]).text);
    }
}

/* Half of the steps, saved, and the other half from the file; by a file and by checkpoints. */
static void a_state_goes_on_to_the_bit(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti-own-XXXXXX", path[64], checkpoint[64];
    assert_non_null(mkdtemp(folder));
    snprintf(checkpoint, sizeof checkpoint, "%s/step-%012d", folder, STEPS / 2);
    snprintf(path, sizeof path, "%s/o.safetensors", folder);
    for (int is_checkpoint = 0; is_checkpoint < 2; is_checkpoint++) {
        training_t t, other;
        int64_t step;
        const char *const state_of_it = "optim.*";
        const tutti_load_options_t weights = {.exclude = &state_of_it, .exclude_count = 1};
        open_training(&t, &own_adam, TUTTI_BF16);
        tutti_checkpoint_t all = {.folder = folder, .module = t.net, .optim = t.opt};
        train(&t, 0, STEPS / 2);
        assert_int_equal(tutti_checkpoint_save(&all, STEPS / 2), 0);
        assert_int_equal(tutti_optim_save(t.opt, path), 0);
        close_training(&t);
        open_training(&t, &own_adam, TUTTI_BF16);
        all.module = t.net;
        all.optim = is_checkpoint ? t.opt : NULL;
        if (is_checkpoint) {
            assert_int_equal(tutti_checkpoint_load(&all, &step), 0);
        } else {
            assert_int_equal(tutti_checkpoint_load_from(&all, folder, &weights), 0);
            assert_int_equal(tutti_optim_load(t.opt, path), 0);
        }
        train(&t, STEPS / 2, STEPS);
        assert_string_equal(digest_of(&t).text, trained(&tutti_adam, TUTTI_BF16).text);
        close_training(&t);
        open_training(&other, &tutti_adam, TUTTI_BF16);
        assert_int_equal(tutti_optim_load(other.opt, path), TUTTI_ERR_MISMATCH);
        tt_expect_error("holds the state of optimizer own_adam, not of adam");
        close_training(&other);
    }
    assert_int_equal(tt_folder_remove(checkpoint), 0);
    assert_int_equal(tt_folder_remove(folder), 0);
}

static void sums_are_those_of_the_whole(void **state)
{
    (void)state;
    assert_string_equal(trained(&own_trust, TUTTI_F32).text, trained(&own_whole, TUTTI_F32).text);
    assert_string_not_equal(trained(&own_trust, TUTTI_F32).text,
                            trained(&tutti_adam, TUTTI_F32).text);
}

typedef struct {
    double lr, *sums; /* where the first part puts them */
} place_options_t;

static void measure_place(const tutti_optim_piece_t *section, double *sums)
{
    sums[0] += 1;
    sums[1] += (double)section->count;
    sums[2] += (double)section->first;
    sums[3] += section->count > TUTTI_OPTIM_SECTION;
}

static void update_place(const tutti_optim_piece_t *piece)
{
    const place_options_t *o = piece->options;
    for (size_t i = 0; i < piece->count; i++) {
        piece->weight[i] = (float)(piece->first + i);
    }
    if (piece->first == 0) {
        memcpy(o->sums, piece->sums, TUTTI_OPTIM_SUMS_MAX * sizeof *o->sums);
    }
}

static void expect_places(const tutti_optim_ops_t *kind, int64_t n, int64_t length)
{
    double sums[TUTTI_OPTIM_SUMS_MAX];
    const int64_t sections = (n + length - 1) / length;
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    tutti_tensor_t *x, *g;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 3}, &ctx), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(n), &x), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(n), &g), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_set_grad(x, g), 0);
    assert_int_equal(tutti_optim_create(ctx, kind, &(place_options_t){.sums = sums}, &opt), 0);
    assert_int_equal(tutti_optim_add_parameter(opt, 0, "x", x), 0);
    assert_int_equal(tutti_optim_step(opt), 0);
    const float *places = tt_test_host(x);
    int64_t right = 0;
    for (int64_t i = 0; i < n; i++) {
        right += places[i] == (float)i;
    }
    assert_int_equal(right, n);
    assert_true(sums[0] == (double)sections && sums[1] == (double)n);
    assert_true(sums[2] == (double)(length * (sections * (sections - 1) / 2)));
    assert_true((sums[3] > 0) == (length > TUTTI_OPTIM_SECTION));
    tutti_optim_release(opt);
    tutti_tensor_release(x);
    tutti_tensor_release(g);
    tutti_context_release(ctx);
}

static void a_part_knows_its_place(void **state)
{
    (void)state;
    static const tutti_optim_option_t table[] = {{"lr", 0, 1, 0, 2}, {0}};
    const tutti_optim_ops_t kind = {.name = "place",
                                    .options_bytes = sizeof(place_options_t),
                                    .options = table,
                                    .measure = measure_place,
                                    .update = update_place};
    expect_places(&kind, 5, TUTTI_OPTIM_SECTION);
    expect_places(&kind, 100000, TUTTI_OPTIM_SECTION);
    expect_places(&kind, 4300037, 20480); /* of 16797, rounded up to blocks of 4096 */
}

static void update_length(const tutti_optim_piece_t *piece)
{
    for (size_t i = 0; i < piece->count; i++) {
        piece->weight[i] = (float)piece->count;
    }
}

static void parts_are_cut_by_the_number_of_elements_alone(void **state)
{
    (void)state;
    static const tutti_optim_option_t table[] = {{"lr", 0, 1, 0, 2}, {0}};
    const tutti_optim_ops_t kind = {.name = "length",
                                    .options_bytes = sizeof(double),
                                    .options = table,
                                    .update = update_length};
    tutti_tensor_t *x[2], *g;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(100000), &g), 0);
    for (int i = 0; i < 2; i++) {
        tutti_context_t *ctx;
        tutti_optim_t *opt;
        assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1 + i}, &ctx), 0);
        assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(100000), &x[i]), 0);
        assert_int_equal(tutti_tensor_set_requires_grad(x[i], true), 0);
        assert_int_equal(tutti_tensor_set_grad(x[i], g), 0);
        assert_int_equal(tutti_optim_create(ctx, &kind, NULL, &opt), 0);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, "x", x[i]), 0);
        assert_int_equal(tutti_optim_step(opt), 0);
        tutti_optim_release(opt);
        tutti_context_release(ctx);
    }
    assert_memory_equal(tt_test_host(x[0]), tt_test_host(x[1]), tutti_tensor_bytes(x[0]));
    tutti_tensor_release(x[0]);
    tutti_tensor_release(x[1]);
    tutti_tensor_release(g);
}

/* ---- DDP ------------------------------------------------------------------------------------- */

typedef struct {
    const tutti_optim_ops_t *kind;
    bool is_inside;
    int early[2];
    digest_t digests[2];
} job_t;

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    training_t t;
    tutti_ddp_t *ddp = NULL;
    open_training(&t, job->kind, TUTTI_BF16);
    const tutti_ddp_options_t options = {
        .shards = 4, .bucket_bytes = 1024, .optimizer = job->is_inside ? t.opt : NULL};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &ddp) == TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        tutti_context_set_step(t.ctx, step);
        while (tutti_ddp_next_shard(ddp, t.ctx)) {
            tutti_scope_t *s;
            TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
            TT_EXPECT(m, tutti_backward(s, loss_of(s, t.net, TUTTI_BF16)) == TUTTI_OK);
            TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(ddp) == TUTTI_OK);
        TT_EXPECT(m, job->is_inside || tutti_optim_step(t.opt) == TUTTI_OK);
    }
    job->early[m->rank] = tutti_ddp_stats(ddp).early_steps;
    job->digests[m->rank] = digest_of(&t);
    tutti_ddp_release(ddp);
    close_training(&t);
}

static void a_step_inside_backward_has_the_bits_of_adam(void **state)
{
    (void)state;
    const tutti_optim_ops_t *const pairs[][2] = {{&own_adam, &tutti_adam},
                                                 {&own_trust, &own_whole}};
    for (int i = 0; i < 2; i++) {
        job_t inside = {.kind = pairs[i][0], .is_inside = true}, behind = {.kind = pairs[i][1]};
        tt_team_expect_quietly(2, 20000, train_member, &inside);
        tt_team_expect_quietly(2, 20000, train_member, &behind);
        assert_string_equal(inside.digests[0].text, behind.digests[0].text);
        assert_string_equal(inside.digests[1].text, behind.digests[0].text);
        assert_int_equal(behind.early[0], 0);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void nothing(const tutti_optim_piece_t *piece)
{
    (void)piece;
}

static tutti_status_t refuse(void *options)
{
    (void)options;
    return tutti_fail(TUTTI_ERR_STATE, "not today");
}

static bool grow(const void *options, int i, tutti_shape_t *shape)
{
    (void)options, (void)i;
    shape->dims[0]++;
    return true;
}

static void expect_refusal(tutti_optim_ops_t kind, const char *text)
{
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    assert_int_equal(tt_test_context(NULL, &ctx), 0);
    assert_true(tutti_optim_create(ctx, &kind, NULL, &opt) < 0);
    tt_expect_error(text);
    tutti_context_release(ctx);
}

static void what_a_table_lacks_is_named(void **state)
{
    (void)state;
    const tutti_optim_option_t no_lr[] = {{.name = "rate", .below = 1}, {0}};
    const tutti_optim_option_t outside[] = {
        {.name = "lr", .below = 1}, {.name = "far", .offset = sizeof(own_adam_options_t)}, {0}};
    tutti_optim_ops_t kind = own_adam;
    expect_refusal((tutti_optim_ops_t){.update = nothing}, "a kind with a name is required");
    kind.update = NULL;
    expect_refusal(kind, "own_adam: its table has no update");
    kind = own_adam;
    kind.options = NULL;
    expect_refusal(kind, "own_adam: its table of options has no \"lr\"");
    kind.options = no_lr;
    expect_refusal(kind, "own_adam: its table of options has no \"lr\"");
    kind.options = outside;
    expect_refusal(kind, "own_adam: option far is a double at offset 120 of 120 bytes");
    const tutti_optim_option_t crooked[] = {
        {.name = "lr", .offset = 80, .below = 1}, {.name = "odd", .offset = 84, .below = 1}, {0}};
    kind.options = crooked;
    expect_refusal(kind, "own_adam: option odd is a double at offset 84 of 120 bytes");
    kind = own_adam;
    kind.options_bytes = TUTTI_OPTIM_OPTIONS_BYTES_MAX + 1;
    expect_refusal(kind, "own_adam: options_bytes is 1025: it must be at most 1024");
    kind = own_trust;
    kind.wants_whole = true;
    expect_refusal(kind, "own_trust: a measure adds up sections, but it wants_whole");
    kind = own_adam;
    kind.resolve = refuse;
    expect_refusal(kind, "not today");
    const char *const bad[] = {"", "a.b", "step", "master", "exp_avg"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kind = own_adam;
        kind.moments[1] = bad[i];
        expect_refusal(kind, "own_adam: moment 1 is \"");
    }
    kind = own_adam;
    kind.moments[3] = "late";
    expect_refusal(kind, "own_adam: moment 3 is \"late\": want a name of its own without a dot");
}

static void a_moment_has_the_shape_of_its_parameter(void **state)
{
    (void)state;
    training_t t;
    tutti_optim_ops_t kind = own_adam;
    tutti_scope_t *s;
    kind.has_moment = grow;
    open_training(&t, &kind, TUTTI_F32);
    assert_int_equal(tutti_scope_open(t.ctx, &s), 0);
    assert_int_equal(tutti_backward(s, loss_of(s, t.net, TUTTI_F32)), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    assert_int_equal(tutti_optim_step(t.opt), TUTTI_ERR_SHAPE);
    tt_expect_error("own_adam: moment exp_avg of \"up.weight\" is not of the parameter's shape");
    close_training(&t);
}

static void options_have_defaults_and_ranges(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    assert_int_equal(tt_test_context(NULL, &ctx), 0);
    assert_int_equal(tutti_optim_create(ctx, &own_adam, NULL, &opt), 0);
    assert_true(tutti_optim_lr(opt, 0) == 1e-3);
    tutti_optim_release(opt);
    const own_adam_options_t options = {.beta2 = 1};
    assert_int_equal(tutti_optim_create(ctx, &own_adam, &options, &opt), TUTTI_ERR_ARG);
    tt_expect_error("own_adam: beta2 is 1: it must be at least 0 and below 1");
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_bits_are_those_of_adam),
        cmocka_unit_test(a_state_goes_on_to_the_bit),
        cmocka_unit_test(sums_are_those_of_the_whole),
        cmocka_unit_test(a_part_knows_its_place),
        cmocka_unit_test(parts_are_cut_by_the_number_of_elements_alone),
        cmocka_unit_test(a_step_inside_backward_has_the_bits_of_adam),
        cmocka_unit_test(what_a_table_lacks_is_named),
        cmocka_unit_test(a_moment_has_the_shape_of_its_parameter),
        cmocka_unit_test(options_have_defaults_and_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
