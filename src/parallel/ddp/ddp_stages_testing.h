/* A model with all that stages of sharding must cope with, and its training as a row of choices.
 * For
 * *_test.c only.
 *
 *     up        linear, whose weight is cut in several places
 *     x scale   a parameter of the root's own
 *     blocks    two transformer blocks, each a region if they are recomputed
 *     left      a holder of a parameter "common"
 *     right     another one of the same parameter
 *     twice     linear, called two times
 *     late      linear, called in odd steps alone: the order of units changes
 *     down      linear
 */
#ifndef TT_DDP_STAGES_TESTING_H
#define TT_DDP_STAGES_TESTING_H

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"

enum {
    TT_STAGES_IN = 40,
    TT_STAGES_WIDE = 160,
    TT_STAGES_WIDTH = 16,
    TT_STAGES_ROWS = TT_STAGES_WIDE / TT_STAGES_WIDTH
};

typedef struct {
    tutti_module_t *up, *blocks[2], *left, *right, *twice, *late, *down;
    tutti_tensor_t *scale, *common;
    bool recomputes;
} tt_stages_net_t;

static inline tutti_status_t tt_holder_init(tutti_module_t *m, const void *options)
{
    tutti_tensor_t *const *common = options;
    *(tutti_tensor_t **)tutti_module_state(m) = *common;
    return tutti_module_add_parameter(m, "common", *common);
}

static inline tutti_tensor_t *tt_holder_forward(tutti_scope_t *s, tutti_module_t *m,
                                                tutti_tensor_t *x)
{
    return tutti_mul(s, x, *(tutti_tensor_t **)tutti_module_state(m));
}

static const tutti_module_ops_t tt_holder_layer = {.name = "test_holder",
                                                   .about = "x times a parameter made elsewhere",
                                                   .state_bytes = sizeof(tutti_tensor_t *),
                                                   .init = tt_holder_init,
                                                   .forward = tt_holder_forward};

static inline tutti_status_t tt_stages_add_linear(tutti_module_t *m, const char *name, int64_t in,
                                                  int64_t out, tutti_module_t **child)
{
    const tutti_linear_options_t options = {
        .in = in, .out = out, .activation = TUTTI_ACTIVATION_TANH};
    return tutti_module_new_child(m, name, &tutti_linear_layer, &options, child);
}

static inline tutti_status_t tt_stages_init(tutti_module_t *m, const void *options)
{
    tt_stages_net_t *net = tutti_module_state(m);
    const int64_t wide = TT_STAGES_WIDE, width = TT_STAGES_WIDTH;
    const tutti_transformer_block_options_t block = {.width = width, .heads = 2, .dropout = 0.1F};
    const tutti_init_t ones = {.kind = TUTTI_INIT_CONSTANT, .a = 1};
    net->recomputes = *(const bool *)options;
    TUTTI_CHECK(tt_stages_add_linear(m, "up", TT_STAGES_IN, wide, &net->up));
    TUTTI_CHECK(tutti_module_new_parameter(m, "scale", TUTTI_SHAPE(wide), ones, &net->scale));
    for (int i = 0; i < 2; i++) {
        TUTTI_CHECK(tutti_module_new_child(m, i == 0 ? "a" : "b", &tutti_transformer_block_layer,
                                           &block, &net->blocks[i]));
    }
    TUTTI_CHECK(tutti_module_new_parameter(m, "common", TUTTI_SHAPE(width), ones, &net->common));
    TUTTI_CHECK(tutti_module_new_child(m, "left", &tt_holder_layer, &net->common, &net->left));
    TUTTI_CHECK(tutti_module_new_child(m, "right", &tt_holder_layer, &net->common, &net->right));
    TUTTI_CHECK(tt_stages_add_linear(m, "twice", width, width, &net->twice));
    TUTTI_CHECK(tt_stages_add_linear(m, "late", width, width, &net->late));
    return tt_stages_add_linear(m, "down", width, 5, &net->down);
}

static inline tutti_tensor_t *tt_stages_forward(tutti_scope_t *s, tutti_module_t *m,
                                                tutti_tensor_t *x)
{
    const tt_stages_net_t *net = tutti_module_state(m);
    x = tutti_mul(s, tutti_forward(s, net->up, x), net->scale);
    x = tutti_reshape(s, x, TUTTI_SHAPE(-1, TT_STAGES_ROWS, TT_STAGES_WIDTH));
    for (int i = 0; i < 2; i++) {
        x = net->recomputes ? tutti_recompute(s, net->blocks[i], x)
                            : tutti_forward(s, net->blocks[i], x);
        x = tutti_forward(s, i == 0 ? net->left : net->right, x);
        x = tutti_forward(s, net->twice, x);
    }
    if (tutti_context_step(tutti_scope_context(s)) % 2 == 1) {
        x = tutti_forward(s, net->late, x);
    }
    return tutti_forward(s, net->down, x);
}

static const tutti_module_ops_t tt_stages_layer = {.name = "test_stages",
                                                   .about = "all that stages must cope with",
                                                   .state_bytes = sizeof(tt_stages_net_t),
                                                   .init = tt_stages_init,
                                                   .forward = tt_stages_forward};

#endif
