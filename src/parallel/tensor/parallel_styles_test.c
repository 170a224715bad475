/* Styles and their cost: rules over names, what they refuse, and the calls that each makes. */
#include "parallel/tensor/parallel_trial_testing.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/autograd.h>
#include <tutti/context.h>
#include <tutti/diagnose.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor_parallel.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

/* ---- the calls of a layer and step ----------------------------------------------------------- */

enum { CALLS_MAX = 32 };

typedef struct {
    char name[40];
    int64_t bytes; /* of a sum, or of the whole that is gathered or scattered */
} call_t;

/* What a group was asked since `first`: by its dump. */
static int read_calls(tt_member_t *m, int first, call_t *calls)
{
    char place[] = "/tmp/tutti_calls_XXXXXX", path[60];
    TT_EXPECT(m, mkdtemp(place) != NULL);
    snprintf(path, sizeof path, "%s/rank%d.json", place, m->rank);
    TT_EXPECT(m, tutti_group_dump(m->group, path) == TUTTI_OK);
    json_t *dump = json_load_file(path, 0, NULL);
    const json_t *list =
        json_object_get(json_array_get(json_object_get(dump, "groups"), 0), "calls");
    int count = 0;
    for (size_t i = 0; i < json_array_size(list) && count < CALLS_MAX; i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "call"));
        const char *dtype = json_string_value(json_object_get(one, "dtype"));
        if (name == NULL || json_integer_value(json_object_get(one, "number")) <= first) {
            continue;
        }
        const bool is_part =
            strncmp(name, "all_gather", 10) == 0 || strncmp(name, "reduce_scatter", 14) == 0;
        snprintf(calls[count].name, sizeof calls[count].name, "%s", name);
        calls[count].bytes = json_integer_value(json_object_get(one, "count")) *
                             (dtype != NULL && strcmp(dtype, "f32") == 0 ? 4 : 8) *
                             (is_part ? m->size : 1);
        count++;
    }
    json_decref(dump);
    (void)remove(path);
    (void)rmdir(place);
    return count;
}

typedef struct {
    const tutti_module_ops_t *kind;
    const void *options;
    bool sequence, is_gpt;
    const char *want; /* "F all_reduce 768 …", in order, both passes */
} cost_t;

static tutti_tensor_t *run_forward(tt_trial_t *p, const cost_t *cost, tt_member_t *m)
{
    tutti_tensor_t *x = tutti_ones(p->s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    if (cost->is_gpt) {
        const tutti_parallel_loss_options_t loss = {
            .group = m->group, .shards = 2, .classes = VOCAB};
        tutti_tensor_t *tokens = tutti_zeros(p->s, TUTTI_I64, TUTTI_SHAPE(BATCH, LENGTH));
        return tutti_parallel_cross_entropy(p->s, tutti_forward(p->s, p->net, tokens), tokens,
                                            &loss);
    }
    if (cost->sequence) {
        x = tutti_clone(p->s, tutti_narrow(p->s, x, 1, 0, LENGTH / 2));
    }
    (void)tutti_tensor_set_requires_grad(x, true);
    return tutti_sum(p->s, tutti_forward(p->s, p->net, x));
}

static void count_calls(tt_member_t *m)
{
    const cost_t *cost = m->user;
    const tutti_parallel_options_t options = {.shards = 2, .sequence = cost->sequence};
    call_t calls[CALLS_MAX];
    tt_trial_t p = {0};
    char got[1200] = "";
    TT_EXPECT(m, tt_trial_open(&p, cost->kind, cost->options) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_OK);
    const int before = read_calls(m, 0, calls);
    tutti_tensor_t *loss = run_forward(&p, cost, m);
    const int forward = read_calls(m, before, calls);
    TT_EXPECT(m, tutti_backward(p.s, loss) == TUTTI_OK);
    const int all = read_calls(m, before, calls);
    for (int i = 0; i < all; i++) {
        const size_t used = strlen(got);
        snprintf(got + used, sizeof got - used, "%s%.39s %lld",
                 i == forward ? " | "
                 : i > 0      ? " "
                              : "",
                 calls[i].name, (long long)calls[i].bytes);
    }
    if (strcmp(got, cost->want) != 0 && m->failure[0] == 0) {
        snprintf(m->failure, sizeof m->failure, "got \"%s\", not \"%s\"", got, cost->want);
    }
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

/* s·b·h·e is 8 × 2 × 12 × 4 = 768 bytes: four all_reduces, or four all_gathers and four
 * reduce_scatters, and then those of parameters that all ranks have, 12 × 4 = 48 bytes each. */
static void each_style_sends_what_its_formula_says(void **state)
{
    (void)state;
    static const tutti_gpt_options_t gpt = {
        .layers = 1, .width = WIDTH, .heads = HEADS, .context = LENGTH, .vocab = VOCAB};
    const cost_t costs[] = {
        {&tutti_mlp_layer, &tt_trial_mlp, false, false, "all_reduce 768 | all_reduce 768"},
        {&tutti_mlp_layer, &tt_trial_mlp, true, false,
         "all_gather 768 reduce_scatter 768 | all_gather 768 reduce_scatter 768"},
        {&tutti_transformer_block_layer, &tt_trial_block, false, false,
         "all_reduce 768 all_reduce 768 | all_reduce 768 all_reduce 768"},
        {&tutti_transformer_block_layer, &tt_trial_block, true, false,
         "all_gather 768 reduce_scatter 768 all_gather 768 reduce_scatter 768 | "
         "all_gather 768 reduce_scatter 768 all_reduce 96 "
         "all_gather 768 reduce_scatter 768 all_reduce 96"},
        /* the loss: 3 numbers of each of the 16 rows; the embedding; the head's dx */
        {&tutti_gpt_layer, &gpt, false, true,
         "all_reduce 768 all_reduce 768 all_reduce 768 all_reduce 64 all_reduce 128 | "
         "all_reduce 768 all_reduce 768 all_reduce 768"},
    };
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        cost_t cost = costs[i];
        tt_team_expect(2, 20000, count_calls, &cost);
    }
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct {
    tutti_parallel_rule_t rules[3];
    int rule_count, shards;
    tutti_status_t status;
    const char *text;
} refused_t;

static void expect_refused(tt_member_t *m, const refused_t *r,
                           const tutti_transformer_block_options_t *block)
{
    tt_trial_t p = {0};
    char before[TUTTI_DIGEST_BYTES], after[TUTTI_DIGEST_BYTES];
    const tutti_parallel_options_t options = {.shards = r->shards,
                                              .rules = r->rule_count > 0 ? r->rules : NULL,
                                              .rule_count = r->rule_count};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_transformer_block_layer, block) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(p.net, before) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == r->status);
    if (strstr(tutti_last_error(), r->text) == NULL) {
        TT_EXPECT(m, !"the text");
    }
    TT_EXPECT(m, tutti_module_digest(p.net, after) == TUTTI_OK && strcmp(before, after) == 0);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    TT_EXPECT(m, tutti_tensor_status(tutti_forward(p.s, p.net, x)) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* the group is as it was, too */
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

static void try_rules(tt_member_t *m)
{
    expect_refused(m, m->user, &tt_trial_block);
}

/* Six heads, of which each two share keys: half a group is no shard. */
static void try_groups(tt_member_t *m)
{
    tutti_transformer_block_options_t block = tt_trial_block;
    block.kv_heads = 3;
    expect_refused(m, m->user, &block);
}

static void groups_of_heads_are_not_cut(void **state)
{
    (void)state;
    refused_t r = {.shards = 2,
                   .status = TUTTI_ERR_ARG,
                   .text = "3 heads of keys and values are not divisible by 2 shards: choose "
                           "shards that divide them (3 at most), or a number of them that is a "
                           "multiple of 2"};
    tt_team_expect_quietly(2, 20000, try_groups, &r);
}

static void bad_plans_are_named_and_change_nothing(void **state)
{
    (void)state;
    const refused_t all[] = {
        {{{.pattern = "qvk"}},
         1,
         2,
         TUTTI_ERR_NOT_FOUND,
         "no module is called \"qvk\"; the nearest names are \"qkv\""},
        {{{.pattern = "dwon"}},
         1,
         2,
         TUTTI_ERR_NOT_FOUND,
         "the nearest names are \"down\", \"proj\", \"ln1\""},
        {{{.pattern = "ln*"}}, 1, 2, TUTTI_ERR_UNSUPPORTED, "ln1, a layer_norm"},
        {{{.pattern = "ln?", .style = TUTTI_PARALLEL_INPUT},
          {.pattern = "ln2", .style = TUTTI_PARALLEL_INPUT}},
         2,
         2,
         TUTTI_ERR_ARG,
         "two rules are for ln2: input and input"},
        {{{.pattern = "up"}, {.pattern = "u?", .style = TUTTI_PARALLEL_ROW}},
         2,
         2,
         TUTTI_ERR_ARG,
         "two rules are for up: column and row"},
        {{{.pattern = "up", .parts = 3}}, 1, 2, TUTTI_ERR_ARG, "3 parts of 18 rows together"},
        {{{.pattern = "up", .parts = 3, .part_sizes = {0, 12, 8}}},
         1,
         2,
         TUTTI_ERR_ARG,
         "up: the size of part 0 is 0, of 3 parts"},
        {{{.pattern = "up", .parts = 2, .part_sizes = {24, -4}}},
         1,
         2,
         TUTTI_ERR_ARG,
         "the size of part 1 is -4"},
        {{{.pattern = "up", .part_sizes = {12, 8}}},
         1,
         2,
         TUTTI_ERR_ARG,
         "the size of part 1 is 8, of 1 parts"},
        {{{.pattern = "up", .unit = 7}}, 1, 2, TUTTI_ERR_ARG, "units of 7 do not divide 20"},
        {{{.pattern = "up", .parts = 99}}, 1, 2, TUTTI_ERR_ARG, "99 parts; want 1 to 8"},
        {{{.pattern = "qkv"}}, 1, 2, TUTTI_ERR_ARG, "only one of qkv and proj is cut"},
        {{{.pattern = "up", .style = TUTTI_PARALLEL_STYLE_COUNT}}, 1, 2, TUTTI_ERR_ARG, "of style"},
        {{{.pattern = NULL}}, 1, 2, TUTTI_ERR_ARG, "without a pattern"},
        {{{.pattern = NULL}},
         0,
         4,
         TUTTI_ERR_ARG,
         "6 units (heads) of 2 are not divisible by 4 shards"},
        {{{.pattern = NULL}}, 0, 1, TUTTI_ERR_ARG, "1 shards on 2 ranks"},
        {{{.pattern = "up"}}, 1, 15, TUTTI_ERR_ARG, "too few for 15 shards"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        refused_t r = all[i];
        tt_team_expect_quietly(2, 20000, try_rules, &r);
    }
}

/* ---- options that only the whole has --------------------------------------------------------- */

typedef struct {
    const tutti_module_ops_t *kind;
    const void *options;
    tutti_parallel_style_t style;
    const char *text;
} whole_t;

static void try_whole(tt_member_t *m)
{
    const whole_t *w = m->user;
    const tutti_parallel_rule_t rule = {.pattern = "0", .style = w->style};
    const tutti_parallel_options_t options = {.shards = 2, .rules = &rule, .rule_count = 1};
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_sequential_layer, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_sequential_add(p.net, w->kind, w->options, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), w->text) != NULL);
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

/* Lookups that are more than rows of a table, and norms over more than one dimension. */
static void what_only_the_whole_can_do_is_not_cut(void **state)
{
    (void)state;
    const char *const lookup = "0: an embedding with padding, max_norm or scale_by_frequency stays";
    const tutti_embedding_options_t tables[] = {
        {.count = VOCAB, .width = WIDTH, .lookup = {.has_padding = true}},
        {.count = VOCAB, .width = WIDTH, .lookup = {.max_norm = 1}},
        {.count = VOCAB, .width = WIDTH, .lookup = {.scale_by_frequency = true}}};
    for (int i = 0; i < 3; i++) {
        whole_t table = {&tutti_embedding_layer, &tables[i], TUTTI_PARALLEL_VOCABULARY, lookup};
        tt_team_expect_quietly(2, 20000, try_whole, &table);
    }
    const tutti_norm_options_t wide = {.shape = TUTTI_SHAPE(LENGTH, WIDTH)};
    whole_t norm = {&tutti_layer_norm_layer, &wide, TUTTI_PARALLEL_SEQUENCE,
                    "0: a norm over several dimensions stays whole"};
    tt_team_expect_quietly(2, 20000, try_whole, &norm);
}

static void try_other_values(tt_member_t *m)
{
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_mlp_layer, &tt_trial_mlp) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    TT_EXPECT(m, tutti_backward(p.s, tutti_sum(p.s, tutti_forward(p.s, p.net, x))) == TUTTI_OK);
    if (m->rank == 1) {
        ((float *)tutti_tensor_data(tutti_module_find(p.net, "up.bias")))[3] += 1;
    }
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, tutti_tensor_grad(tutti_module_find(p.net, "up.bias")) != NULL); /* as it was */
    TT_EXPECT(m, strstr(tutti_last_error(), "the module has other values than on rank 0") != NULL);
    ((float *)tutti_tensor_data(tutti_module_find(p.net, "up.bias")))[3] = 1;
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    const tutti_parallel_rule_t again = {.pattern = "up"};
    const tutti_parallel_options_t options = {.rules = &again, .rule_count = 1};
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "up is cut already") != NULL);
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

static void ranks_with_other_values_are_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, try_other_values, NULL);
}

/* Rank 1 has one thing else in its rules. */
static void try_other_rules(tt_member_t *m)
{
    tutti_parallel_rule_t others[] = {
        {.pattern = "up", .parts = 2},
        {.pattern = "up", .unit = 5},
        {.pattern = "up", .part_sizes = {8, 12}, .parts = 2},
        {.pattern = "up", .part_sizes = {8, 6, 6}, .parts = 3},
        {.pattern = "up", .part_sizes = {8, 4, 8}, .parts = 3},
        {.pattern = "up"},
        {.pattern = "down", .style = TUTTI_PARALLEL_ROW},
        {.pattern = "", .style = TUTTI_PARALLEL_INPUT, .how = {.grad = tutti_partial(TUTTI_SUM)}},
        {.pattern = "", .style = TUTTI_PARALLEL_INPUT},
        {.pattern = "", .style = TUTTI_PARALLEL_OUTPUT},
    };
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_mlp_layer, &tt_trial_mlp) == TUTTI_OK);
    for (size_t i = 1; i < sizeof others / sizeof *others; i++) {
        const tutti_parallel_options_t options = {.rules = &others[i - (size_t)m->rank],
                                                  .rule_count = 1};
        TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, strstr(tutti_last_error(), m->rank == 0 ? "rank 1: " : "the rules cut other"));
    }
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

static void ranks_with_other_rules_are_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, try_other_rules, NULL);
}

/* An mlp by rules, whose input and result are parts of the last dimension outside. */
static void run_prepared(tt_member_t *m)
{
    const tutti_parallel_rule_t rules[] = {
        {.pattern = "up"},
        {.pattern = "down", .style = TUTTI_PARALLEL_ROW},
        {.pattern = "",
         .style = TUTTI_PARALLEL_INPUT,
         .how = {.from = tutti_shard(-1), .to = tutti_replicate()}},
        {.pattern = "",
         .style = TUTTI_PARALLEL_OUTPUT,
         .how = {.from = tutti_replicate(), .to = tutti_shard(-1)}},
    };
    const tutti_parallel_options_t options = {.rules = rules, .rule_count = 4};
    tt_trial_t p = {0}, whole = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_mlp_layer, &tt_trial_mlp) == TUTTI_OK);
    TT_EXPECT(m, tt_trial_open(&whole, &tutti_mlp_layer, &tt_trial_mlp) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_OK);
    tutti_tensor_t *x = tutti_sin(p.s, tutti_arange(p.s, TUTTI_F32, 0, 1, 4 * WIDTH));
    x = tutti_reshape(p.s, x, TUTTI_SHAPE(4, WIDTH));
    tutti_tensor_t *want = tutti_forward(whole.s, whole.net, x);
    tutti_tensor_t *y =
        tutti_forward(p.s, p.net, tutti_narrow(p.s, x, 1, m->rank * WIDTH / 2, WIDTH / 2));
    TT_EXPECT(m, tutti_tensor_dim(y, 1) == WIDTH / 2);
    for (int64_t i = 0; i < 4 * WIDTH / 2 && m->failure[0] == 0; i++) {
        const int64_t row = i / (WIDTH / 2), column = i % (WIDTH / 2) + m->rank * WIDTH / 2;
        const double a = tutti_tensor_at(y, i), b = tutti_tensor_at(want, row * WIDTH + column);
        TT_EXPECT(m, a - b < 1e-5 && b - a < 1e-5);
    }
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
    TT_EXPECT(m, tt_trial_close(&whole) == TUTTI_OK);
}

static void inputs_and_results_are_prepared(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, run_prepared, NULL);
}

/* A row is a sum in which all but one summand is zero: -0 becomes 0, on one rank as on two. */
static void look_up(tt_member_t *m)
{
    const tutti_embedding_options_t table = {.count = 4, .width = 3};
    const tutti_parallel_rule_t rule = {.pattern = "", .style = TUTTI_PARALLEL_VOCABULARY};
    const tutti_parallel_options_t options = {.shards = 2, .rules = &rule, .rule_count = 1};
    const int64_t rows[] = {3, 0, 2, 1};
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_embedding_layer, &table) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(p.net, "weight"), -0.0) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, &options) == TUTTI_OK);
    tutti_tensor_t *y =
        tutti_forward(p.s, p.net, tutti_from_data(p.s, TUTTI_I64, TUTTI_SHAPE(4), rows));
    for (int64_t i = 0; i < 12 && m->failure[0] == 0; i++) {
        TT_EXPECT(m, tutti_tensor_at(y, i) == 0 && !signbit(tutti_tensor_at(y, i)));
    }
    TT_EXPECT(m, tt_trial_close(&p) == TUTTI_OK);
}

static void an_embedding_gives_no_negative_zero(void **state)
{
    (void)state;
    tt_team_expect(1, 20000, look_up, NULL);
    tt_team_expect(2, 20000, look_up, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_style_sends_what_its_formula_says),
        cmocka_unit_test(groups_of_heads_are_not_cut),
        cmocka_unit_test(bad_plans_are_named_and_change_nothing),
        cmocka_unit_test(what_only_the_whole_can_do_is_not_cut),
        cmocka_unit_test(ranks_with_other_values_are_told),
        cmocka_unit_test(ranks_with_other_rules_are_told),
        cmocka_unit_test(inputs_and_results_are_prepared),
        cmocka_unit_test(an_embedding_gives_no_negative_zero),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
