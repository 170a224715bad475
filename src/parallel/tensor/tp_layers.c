/* Layers that are cut: the state of the layer that is whole, and another forward. */
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>
#include <tutti/placement.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/layers/layer_linear.h"
#include "compute/nn/layers/layer_norms.h"
#include "parallel/tensor/tp_item.h"

static const tt_tp_cut_t *cut_of(const tutti_module_t *m)
{
    return (const tt_tp_cut_t *)m->cut;
}

/* ---- linear ---------------------------------------------------------------------------------- */

static tutti_tensor_t *column_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_linear_layer_t *linear = tutti_module_state(m);
    const tt_tp_linear_t *how = &cut_of(m)->how;
    switch (linear->activation) {
    case TUTTI_ACTIVATION_GELU:
        return tt_tp_column_linear(s, x, linear->weight, linear->bias, TT_EPILOGUE_GELU_ERF, how);
    case TUTTI_ACTIVATION_GELU_TANH:
        return tt_tp_column_linear(s, x, linear->weight, linear->bias, TT_EPILOGUE_GELU_TANH, how);
    default:
        x = tt_tp_column_linear(s, x, linear->weight, linear->bias, TT_EPILOGUE_NONE, how);
        return linear->activation == TUTTI_ACTIVATION_DEFAULT
                   ? x
                   : tt_activate(s, x, linear->activation);
    }
}

static tutti_tensor_t *row_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_linear_layer_t *linear = tutti_module_state(m);
    x = tt_tp_row_linear(s, x, linear->weight, linear->bias, &cut_of(m)->how);
    return linear->activation == TUTTI_ACTIVATION_DEFAULT ? x
                                                          : tt_activate(s, x, linear->activation);
}

const tutti_module_ops_t tt_column_linear_layer = {
    .name = "column_linear",
    .about = "linear, whose rows are spread over ranks",
    .state_bytes = sizeof(tt_linear_layer_t),
    .forward = column_forward,
};

const tutti_module_ops_t tt_row_linear_layer = {
    .name = "row_linear",
    .about = "linear, whose columns are spread over ranks",
    .state_bytes = sizeof(tt_linear_layer_t),
    .forward = row_forward,
};

/* ---- embedding ------------------------------------------------------------------------------- */

static tutti_tensor_t *embedding_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tt_tp_embedding(s, x, tutti_module_find(m, "weight"), &cut_of(m)->how);
}

const tutti_module_ops_t tt_vocabulary_embedding_layer = {
    .name = "vocabulary_embedding",
    .about = "embedding, whose rows are spread over ranks",
    .forward = embedding_forward,
};

/* ---- norms ----------------------------------------------------------------------------------- */

static tutti_tensor_t *layer_norm_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_norm_layer_t *norm = tutti_module_state(m);
    return tt_tp_layer_norm(s, x, norm->weight, norm->bias, norm->eps, &cut_of(m)->how);
}

static tutti_tensor_t *rms_norm_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_norm_layer_t *norm = tutti_module_state(m);
    return tt_tp_rms_norm(s, x, norm->weight, norm->eps, &cut_of(m)->how);
}

const tutti_module_ops_t tt_sequence_layer_norm_layer = {
    .name = "sequence_layer_norm",
    .about = "layer norm, whose gradients are sums over slices of the sequence",
    .state_bytes = sizeof(tt_norm_layer_t),
    .forward = layer_norm_forward,
};

const tutti_module_ops_t tt_sequence_rms_norm_layer = {
    .name = "sequence_rms_norm",
    .about = "RMS norm, whose gradients are sums over slices of the sequence",
    .state_bytes = sizeof(tt_norm_layer_t),
    .forward = rms_norm_forward,
};

/* ---- learned positions ----------------------------------------------------------------------- */

/* Each position's gradient comes from one rank: no sum is made, and the rows are gathered. */
static tutti_tensor_t *positions_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_tp_linear_t *how = &cut_of(m)->how;
    tutti_tensor_t *weight = tutti_module_find(m, "weight");
    const tt_leaves_t own = tt_tp_leaves(&how->tp);
    int64_t length = tutti_tensor_dim(x, -2);
    if (how->is_sequence_cut) {
        length = length / (own.end - own.begin) * how->tp.shards;
    }
    if (length < tutti_tensor_dim(weight, 0)) {
        weight = tutti_slice(s, weight, 0, TUTTI_RANGE(0, length));
    }
    if (how->is_sequence_cut) {
        tutti_redistribution_t cut = {.to = tutti_shard(0)};
        cut.to.leaves = how->tp.shards;
        weight = tutti_redistribute(s, weight, how->tp.group, &cut);
    }
    return tutti_add(s, x, weight);
}

const tutti_module_ops_t tt_sequence_positions_layer = {
    .name = "sequence_positions",
    .about = "learned positions, added to a part of the sequence",
    .forward = positions_forward,
};
