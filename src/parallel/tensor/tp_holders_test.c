/* Modules that hold a part, or compute with one, and that no rule is for: refused, and named. */
#include "comm/group/group_team.h"

#include <string.h>

#include <tutti/autograd.h>
#include <tutti/context.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/tensor_parallel.h>

#include "compute/nn/module_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
} place_t;

static tutti_status_t open_place(place_t *p)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 2};
    TUTTI_CHECK(tutti_context_create(&context, &p->ctx));
    return tutti_module_create(p->ctx, &tutti_sequential_layer, NULL, &p->net);
}

static void close_place(place_t *p)
{
    tutti_module_release(p->net);
    tutti_context_release(p->ctx);
}

/* A head with a weight of another module. */
static tutti_status_t tied_init(tutti_module_t *m, const void *options)
{
    return tutti_module_add_parameter(m, "weight", *(tutti_tensor_t *const *)options);
}

static tutti_tensor_t *tied_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_linear(s, x, tutti_module_find(m, "weight"), NULL);
}

static const tutti_module_ops_t tied_layer = {
    .name = "tied", .init = tied_init, .forward = tied_forward};

/* A table, a norm, a linear layer, and a head: a kind of our own, or a linear layer. */
static tutti_status_t open_tied(place_t *p, const tutti_module_ops_t *head)
{
    const tutti_embedding_options_t table = {.count = 8, .width = 4};
    const tutti_norm_options_t norm = {.width = 4};
    const tutti_linear_options_t linear = {.in = 4, .out = 8};
    tutti_module_t *tok;
    TUTTI_CHECK(open_place(p));
    TUTTI_CHECK(tutti_sequential_add(p->net, &tutti_embedding_layer, &table, &tok));
    TUTTI_CHECK(tutti_sequential_add(p->net, &tutti_layer_norm_layer, &norm, NULL));
    tutti_tensor_t *weight = tutti_module_find(tok, "weight");
    return tutti_sequential_add(p->net, head, head == &tied_layer ? (const void *)&weight : &linear,
                                NULL);
}

typedef struct {
    const tutti_module_ops_t *head;
    bool sequence, are_two_calls;
    tutti_parallel_rule_t rules[3];
    int rule_count;
    tutti_status_t status;
    const char *text;
} tied_t;

static void cut_tied(tt_member_t *m)
{
    const tied_t *tied = m->user;
    const tutti_parallel_rule_t tok = {.pattern = "", .style = TUTTI_PARALLEL_VOCABULARY};
    const tutti_parallel_options_t first = {.shards = 2, .rules = &tok, .rule_count = 1},
                                   options = {.shards = 2,
                                              .sequence = tied->sequence,
                                              .rules = tied->rules,
                                              .rule_count = tied->rule_count};
    place_t p = {0};
    TT_EXPECT(m, open_tied(&p, tied->head) == TUTTI_OK);
    if (tied->are_two_calls) {
        TT_EXPECT(m, tutti_parallelize(p.net->children[0].module, m->group, &first) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == tied->status);
    TT_EXPECT(m, strstr(tutti_last_error(), tied->text) != NULL);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    close_place(&p);
}

static void whoever_is_left_out_is_named(void **state)
{
    (void)state;
    const tutti_parallel_rule_t tok = {.pattern = "0", .style = TUTTI_PARALLEL_VOCABULARY},
                                norm = {.pattern = "1", .style = TUTTI_PARALLEL_SEQUENCE},
                                head = {.pattern = "2", .style = TUTTI_PARALLEL_COLUMN},
                                whole = {.pattern = "1",
                                         .style = TUTTI_PARALLEL_INPUT,
                                         .how = {.from = tutti_shard(0)}};
    const tied_t all[] = {
        {&tied_layer, false, false, {tok}, 1, TUTTI_ERR_ARG, "2.weight is 0.weight, which is to"},
        {&tied_layer, false, true, {norm}, 1, TUTTI_ERR_STATE, "2.weight was cut by an earlier"},
        {&tutti_linear_layer, true, false, {tok, head}, 2, TUTTI_ERR_ARG, "1.weight, whose grad"},
        {&tutti_linear_layer, true, false, {tok, head}, 2, TUTTI_ERR_ARG, "the style sequence"},
        {&tutti_linear_layer, true, false, {tok, norm}, 2, TUTTI_ERR_ARG, "2.weight, whose grad"},
        {&tutti_linear_layer, true, false, {tok, norm, head}, 3, TUTTI_OK, ""},
        {&tutti_linear_layer, true, false, {tok, whole, head}, 3, TUTTI_OK, ""},
        {&tutti_linear_layer, false, false, {tok, head}, 2, TUTTI_OK, ""},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            tied_t tied = all[i];
            tt_team_expect_quietly(ranks, 20000, cut_tied, &tied);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_is_left_out_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
