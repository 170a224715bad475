/* Dropout layers of a module that is cut: the mask is the whole's, on any number of ranks; where it
 * is not known which part a layer is given, that is an error. */
#include "comm/group/group_team.h"

#include <string.h>

#include <tutti/context.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>
#include <tutti/op_shape.h>
#include <tutti/tensor_parallel.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

enum { BATCH = 2, LENGTH = 6, WIDTH = 4, HIDDEN = 11, SHARDS = 3, COUNT = BATCH * LENGTH * WIDTH };

static const tutti_linear_options_t up = {.in = WIDTH, .out = HIDDEN},
                                    down = {.in = HIDDEN, .out = WIDTH};
static const tutti_dropout_options_t half = {.p = 0.5F};

/* A kind whose forward nobody knows: up, drop, down. */
static tutti_status_t own_init(tutti_module_t *m, const void *options)
{
    (void)options;
    TUTTI_CHECK(tutti_module_new_child(m, "up", &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_module_new_child(m, "drop", &tutti_dropout_layer, &half, NULL));
    return tutti_module_new_child(m, "down", &tutti_linear_layer, &down, NULL);
}

static const tutti_module_ops_t own_layer = {.name = "own", .init = own_init};

/* Another one: up and, if its options say so, down. */
static tutti_status_t pair_init(tutti_module_t *m, const void *options)
{
    TUTTI_CHECK(tutti_module_new_child(m, "up", &tutti_linear_layer, &up, NULL));
    return *(const bool *)options
               ? tutti_module_new_child(m, "down", &tutti_linear_layer, &down, NULL)
               : TUTTI_OK;
}

static tutti_tensor_t *pair_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    for (size_t i = 0; i < m->child_count; i++) {
        x = tutti_forward(s, m->children[i].module, x);
    }
    return x;
}

static const tutti_module_ops_t pair_layer = {
    .name = "pair", .init = pair_init, .forward = pair_forward};

typedef enum { PLAIN, OWN, PAIR, HALF_PAIR, CHAIN, DRAWN, DRAWN_LAST, MIXED } net_t;

/* A layer that is put into a net. */
typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
} layer_t;

static const tutti_activation_options_t rrelu = {.kind = TUTTI_ACTIVATION_RRELU};
static const tutti_dropout_options_t never = {.p = 0};

static const layer_t drawing[] = {{&tutti_activation_layer, &rrelu},
                                  {&tutti_alpha_dropout_layer, &half},
                                  {&tutti_feature_alpha_dropout_layer, &half},
                                  {&tutti_dropout1d_layer, &half},
                                  {&tutti_dropout2d_layer, &half},
                                  {&tutti_dropout3d_layer, &half}};

/* PLAIN: up, [gelu, dropout], down, dropout. OWN: [up, dropout, down] of a kind of one's own.
 * PAIR: [up, down] of such a kind, dropout; HALF_PAIR: [up], dropout. CHAIN: [up, gelu, down],
 * dropout. DRAWN: up, layer, dropout, down, dropout; DRAWN_LAST: up, gelu, down, layer;
 * MIXED: up, layer, down. */
static tutti_status_t add_layers(tutti_module_t *net, net_t what, const layer_t *layer)
{
    tutti_module_t *inner;
    const bool has_down = what == PAIR;
    if (what == OWN) {
        return tutti_sequential_add(net, &own_layer, NULL, NULL);
    }
    if (what == PAIR || what == HALF_PAIR) {
        TUTTI_CHECK(tutti_sequential_add(net, &pair_layer, &has_down, NULL));
        return tutti_sequential_add(net, &tutti_dropout_layer, &half, NULL);
    }
    if (what == CHAIN) {
        TUTTI_CHECK(tutti_sequential_add(net, &tutti_sequential_layer, NULL, &inner));
        TUTTI_CHECK(tutti_sequential_add(inner, &tutti_linear_layer, &up, NULL));
        TUTTI_CHECK(tutti_sequential_add(inner, &tutti_activation_layer, NULL, NULL));
        TUTTI_CHECK(tutti_sequential_add(inner, &tutti_linear_layer, &down, NULL));
        return tutti_sequential_add(net, &tutti_dropout_layer, &half, NULL);
    }
    TUTTI_CHECK(tutti_sequential_add(net, &tutti_linear_layer, &up, NULL));
    if (what == MIXED) {
        TUTTI_CHECK(tutti_sequential_add(net, layer->ops, layer->options, NULL));
        return tutti_sequential_add(net, &tutti_linear_layer, &down, NULL);
    }
    if (what == DRAWN) {
        TUTTI_CHECK(tutti_sequential_add(net, layer->ops, layer->options, NULL));
        TUTTI_CHECK(tutti_sequential_add(net, &tutti_dropout_layer, &half, NULL));
        TUTTI_CHECK(tutti_sequential_add(net, &tutti_linear_layer, &down, NULL));
        return tutti_sequential_add(net, &tutti_dropout_layer, &half, NULL);
    }
    if (what == DRAWN_LAST) {
        TUTTI_CHECK(tutti_sequential_add(net, &tutti_activation_layer, NULL, NULL));
        TUTTI_CHECK(tutti_sequential_add(net, &tutti_linear_layer, &down, NULL));
        return tutti_sequential_add(net, layer->ops, layer->options, NULL);
    }
    TUTTI_CHECK(tutti_sequential_add(net, &tutti_sequential_layer, NULL, &inner));
    TUTTI_CHECK(tutti_sequential_add(inner, &tutti_activation_layer, NULL, NULL));
    TUTTI_CHECK(tutti_sequential_add(inner, &tutti_dropout_layer, &half, NULL));
    TUTTI_CHECK(tutti_sequential_add(net, &tutti_linear_layer, &down, NULL));
    return tutti_sequential_add(net, &tutti_dropout_layer, &half, NULL);
}

typedef struct {
    bool sequence;
    net_t net;
    const layer_t *layer; /* of DRAWN, DRAWN_LAST and MIXED */
    int parts;
    tutti_status_t status;
    const char *text;
    float y[COUNT]; /* out */
} job_t;

static tutti_tensor_t *run_net(tutti_scope_t *s, tt_member_t *m, tutti_module_t *net, bool sequence)
{
    tutti_redistribution_t in = {.to = tutti_shard(1)}, out = {.from = tutti_shard(1)};
    in.to.leaves = out.from.leaves = SHARDS;
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 1, 0.25, COUNT);
    x = tutti_reshape(s, x, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    x = sequence ? tutti_redistribute(s, x, m->group, &in) : x;
    x = tutti_forward(s, net, x);
    return sequence ? tutti_redistribute(s, x, m->group, &out) : x;
}

static bool is_flat(const job_t *job)
{
    return job->net == PLAIN || job->net == DRAWN || job->net == DRAWN_LAST || job->net == MIXED;
}

static void drop(tt_member_t *m)
{
    job_t *job = m->user;
    const tutti_parallel_rule_t rules[] = {
        {.pattern = job->net == CHAIN ? "0.0"
                    : is_flat(job)    ? "0"
                                      : "0.up",
         .parts = job->parts,
         .part_sizes = {job->parts == 2 ? 5 : 0, job->parts == 2 ? HIDDEN - 5 : 0}},
        {.pattern = job->net == CHAIN   ? "0.2"
                    : job->net == DRAWN ? "3"
                    : is_flat(job)      ? "2"
                                        : "0.down",
         .style = TUTTI_PARALLEL_ROW}};
    const tutti_parallel_options_t options = {.shards = SHARDS,
                                              .sequence = job->sequence,
                                              .rules = rules,
                                              .rule_count = job->net == HALF_PAIR ? 1 : 2};
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_scope_t *s;
    const tutti_context_options_t context = {.threads = 1, .seed = 3};
    TT_EXPECT(m, tutti_context_create(&context, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net) == TUTTI_OK);
    TT_EXPECT(m, add_layers(net, job->net, job->layer) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(net, m->group, &options) == job->status);
    TT_EXPECT(m, strstr(tutti_last_error(), job->text) != NULL);
    tutti_context_set_step(ctx, 5);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    if (job->status == TUTTI_OK) {
        tutti_tensor_t *y = run_net(s, m, net, job->sequence);
        TT_EXPECT(m, tutti_tensor_status(y) == TUTTI_OK && y->numel == COUNT);
        for (int i = 0; i < COUNT && m->rank == 0 && m->failure[0] == 0; i++) {
            job->y[i] = (float)tutti_tensor_at(y, i);
        }
    }
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void expect_masks_of_the_whole(net_t net, const layer_t *layer)
{
    job_t want = {.net = net, .layer = layer, .text = ""};
    int zeros = 0;
    tt_team_expect(1, 20000, drop, &want);
    for (int i = 0; i < COUNT; i++) {
        zeros += want.y[i] == 0;
    }
    assert_in_range(zeros, 1, COUNT - 1);
    for (int i = 0; i < 2 * SHARDS; i++) {
        job_t got = {.net = net, .layer = layer, .text = "", .sequence = i % 2 == 1};
        tt_team_expect(1 + i / 2, 20000, drop, &got);
        assert_memory_equal(got.y, want.y, sizeof want.y);
    }
}

static void masks_are_those_of_the_whole(void **state)
{
    (void)state;
    expect_masks_of_the_whole(PLAIN, NULL);
    expect_masks_of_the_whole(PAIR, NULL);
    expect_masks_of_the_whole(CHAIN, NULL);
}

static void parts_that_are_not_known_are_refused(void **state)
{
    (void)state;
    job_t half_pair = {.net = HALF_PAIR, .status = TUTTI_ERR_UNSUPPORTED, .text = "1, a dropout"};
    tt_team_expect_quietly(2, 20000, drop, &half_pair);
    job_t own = {.net = OWN, .status = TUTTI_ERR_UNSUPPORTED, .text = "0.drop, a dropout"};
    tt_team_expect_quietly(2, 20000, drop, &own);
    job_t parts = {.parts = 2, .status = TUTTI_ERR_UNSUPPORTED, .text = "1.1, a dropout"};
    tt_team_expect_quietly(2, 20000, drop, &parts);
}

/* Its numbers are those of what it is given: the same on any number of ranks where that is whole.
 */
static void expect_whole_inputs(const layer_t *layer)
{
    char text[80];
    snprintf(text, sizeof text, "1, a layer that draws (%s)", layer->ops->name);
    job_t drawn = {.net = DRAWN, .layer = layer, .status = TUTTI_ERR_UNSUPPORTED, .text = text};
    tt_team_expect_quietly(2, 20000, drop, &drawn);
    char last[80];
    snprintf(last, sizeof last, "3, a layer that draws (%s)", layer->ops->name);
    job_t sequence = {.net = DRAWN_LAST,
                      .layer = layer,
                      .sequence = true,
                      .status = TUTTI_ERR_UNSUPPORTED,
                      .text = last};
    tt_team_expect_quietly(2, 20000, drop, &sequence);
}

static void layers_that_draw_want_what_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof drawing / sizeof drawing[0]; i++) {
        const layer_t *layer = &drawing[i];
        expect_whole_inputs(layer);
        if (layer->ops != &tutti_dropout3d_layer) { /* that takes four dimensions */
            job_t want = {.net = DRAWN_LAST, .layer = layer, .text = ""}, got = want;
            tt_team_expect(1, 20000, drop, &want);
            tt_team_expect(3, 20000, drop, &got);
            assert_memory_equal(got.y, want.y, sizeof want.y);
        }
    }
}

/* One that never drops is as if it was not there: a dropout behind it has the columns before it. */
static void layers_that_never_drop_keep_columns(void **state)
{
    (void)state;
    const layer_t kept[] = {{&tutti_alpha_dropout_layer, &never}, {&tutti_dropout2d_layer, &never}};
    expect_masks_of_the_whole(DRAWN, &kept[0]);
    expect_masks_of_the_whole(DRAWN, &kept[1]);
}

/* Along another dimension than the last one columns are computed apart. */
static void layers_over_all_columns_want_what_is_whole(void **state)
{
    (void)state;
    static const tutti_dim_options_t last = {.dim = -1}, second = {.dim = 1}, other = {.dim = -2};
    const layer_t mixing[] = {{&tutti_softmax_layer, NULL},
                              {&tutti_softmax_layer, &second},
                              {&tutti_log_softmax_layer, &last},
                              {&tutti_softmin_layer, &last},
                              {&tutti_glu_layer, &last}};
    for (size_t i = 0; i < sizeof mixing / sizeof mixing[0]; i++) {
        char text[80];
        snprintf(text, sizeof text, "1, a %s layer, is given", mixing[i].ops->name);
        job_t job = {
            .net = MIXED, .layer = &mixing[i], .status = TUTTI_ERR_UNSUPPORTED, .text = text};
        tt_team_expect_quietly(2, 20000, drop, &job);
    }
    const layer_t apart = {&tutti_softmax_layer, &other};
    job_t want = {.net = MIXED, .layer = &apart, .text = ""}, got = want;
    tt_team_expect(1, 20000, drop, &want);
    tt_team_expect(3, 20000, drop, &got);
    assert_memory_equal(got.y, want.y, sizeof want.y);
    job_t whole = {.net = DRAWN_LAST, .layer = &mixing[0], .text = ""};
    tt_team_expect(2, 20000, drop, &whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_those_of_the_whole),
        cmocka_unit_test(parts_that_are_not_known_are_refused),
        cmocka_unit_test(layers_that_draw_want_what_is_whole),
        cmocka_unit_test(layers_that_never_drop_keep_columns),
        cmocka_unit_test(layers_over_all_columns_want_what_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
