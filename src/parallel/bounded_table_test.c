/* An embedding with max_norm writes its table in forward: what has copies of it, or parts, refuses
 * it, and says who. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <tutti/data_parallel.h>
#include <tutti/ddp.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>
#include <tutti/tensor_parallel.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"

static const tutti_embedding_options_t bounded = {
    .count = 6, .width = 2, .lookup = {.max_norm = 1}};
static const tutti_embedding_options_t padded = {
    .count = 6, .width = 2, .lookup = {.has_padding = true}};
static const tutti_embedding_bag_layer_options_t bag = {.count = 6, .width = 2, .max_norm = 1};

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
} kind_t;

static void open_net(tt_member_t *m, const kind_t *kind, tutti_context_t **ctx,
                     tutti_module_t **net)
{
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(*ctx, &tutti_sequential_layer, NULL, net) == TUTTI_OK);
    TT_EXPECT(m, tutti_sequential_add(*net, kind->ops, kind->options, NULL) == TUTTI_OK);
}

static void wrap(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp = NULL;
    open_net(m, m->user, &ctx, &net);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, NULL, &ddp) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "ddp: 0 has max_norm, by which each of 2") != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void wrap_alone(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp = NULL;
    open_net(m, m->user, &ctx, &net);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

/* What forward writes lies in copies for a while: gathered ones, or of 16 bits; unless DDP leaves
 * the table alone. */
static void wrap_copies(tt_member_t *m)
{
    const char *const ignored[] = {"0"}, *const kinds[] = {((const kind_t *)m->user)->ops->name};
    const tutti_ddp_options_t copies[] = {{.param_dtype = TUTTI_BF16}, {.stage = 3}};
    const tutti_ddp_options_t none[] = {
        {.param_dtype = TUTTI_BF16, .f32_kinds = kinds, .f32_kind_count = 1},
        {.stage = 3, .ignored = ignored, .ignored_count = 1}};
    const tutti_linear_options_t linear = {.in = 2, .out = 2};
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp = NULL;
    open_net(m, m->user, &ctx, &net);
    TT_EXPECT(m, tutti_sequential_add(net, &tutti_linear_layer, &linear, NULL) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m,
                  tutti_ddp_create(ctx, net, m->group, &copies[i], &ddp) == TUTTI_ERR_UNSUPPORTED);
        TT_EXPECT(m, strstr(tutti_last_error(), "ddp: 0 has max_norm, by which forward") != NULL);
        TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &none[i], &ddp) == TUTTI_OK);
        tutti_ddp_release(ddp);
    }
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static tutti_status_t build(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    const kind_t *kind = user;
    return tutti_module_create(ctx, kind->ops, kind->options, out);
}

static void replicate(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net, *model = NULL;
    const tutti_data_parallel_options_t two = {.replicas = 2, .build = build, .user = m->user};
    open_net(m, m->user, &ctx, &net);
    TT_EXPECT(m, tutti_data_parallel_create(net, &two, &model) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "data_parallel: 0 has max_norm") != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void cut(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    const tutti_parallel_rule_t rule = {.pattern = "0", .style = TUTTI_PARALLEL_VOCABULARY};
    const tutti_parallel_options_t options = {.shards = 2, .rules = &rule, .rule_count = 1};
    open_net(m, m->user, &ctx, &net);
    TT_EXPECT(m, tutti_parallelize(net, m->group, &options) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "0: an embedding with padding, max_norm") != NULL);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void copies_of_a_bounded_table_are_refused(void **state)
{
    (void)state;
    kind_t kinds[] = {{&tutti_embedding_layer, &bounded}, {&tutti_embedding_bag_layer, &bag}};
    for (int i = 0; i < 2; i++) {
        tt_team_expect_quietly(2, 20000, wrap, &kinds[i]);
        tt_team_expect_quietly(1, 20000, replicate, &kinds[i]);
        tt_team_expect(1, 20000, wrap_alone, &kinds[i]);
        tt_team_expect_quietly(1, 20000, wrap_copies, &kinds[i]);
    }
}

static void parts_of_such_a_table_are_refused(void **state)
{
    (void)state;
    kind_t kinds[] = {{&tutti_embedding_layer, &bounded}, {&tutti_embedding_layer, &padded}};
    for (int i = 0; i < 2; i++) {
        tt_team_expect_quietly(2, 20000, cut, &kinds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_a_bounded_table_are_refused),
        cmocka_unit_test(parts_of_such_a_table_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
