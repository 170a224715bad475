/* Layers that are cut: the state of the layer that is whole, and another forward. */
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>
#include <tutti/placement.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/layers/layer_linear.h"
#include "compute/nn/layers/layer_norms.h"
#include "core/base/alloc.h"
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

/* ---- norms: each slice of the sequence by a copy of the parameters --------------------------- */

typedef struct {
    const tt_norm_layer_t *norm;
    const tt_tp_linear_t *how;
    bool is_layer_norm;
    tutti_tensor_t *x, **weights, **biases, **parts; /* [count] */
    int count;
} slices_t;

static tutti_tensor_t *run_norm(tutti_scope_t *s, const slices_t *n, tutti_tensor_t *x, int i)
{
    return n->is_layer_norm
               ? tutti_layer_norm(s, x, n->weights[i], n->norm->bias == NULL ? NULL : n->biases[i],
                                  n->norm->eps)
               : tutti_rms_norm(s, x, n->weights[i], n->norm->eps);
}

/* Slice i of what is here: of T, or of this rank's. */
static tutti_tensor_t *slice_x(tutti_scope_t *s, const slices_t *n, int i)
{
    const int dim = tutti_tensor_rank(n->x) - 2;
    if (n->count == 1) {
        return n->x;
    }
    if (dim < 0) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_SHAPE, "a norm over slices of a sequence "
                                                            "wants x [..., positions, width]"));
    }
    const tt_cut_t cut = {tutti_tensor_dim(n->x, dim), n->count, n->count};
    const tt_span_t span = tt_cut_leaf(&cut, i);
    return tutti_narrow(s, n->x, dim, span.begin, span.count);
}

static tutti_tensor_t *run_slices(tutti_scope_t *s, slices_t *n)
{
    const bool is_cut = n->how->is_sequence_cut;
    tt_tp_copies(s, n->norm->weight, &n->how->tp, is_cut, n->weights, n->count);
    if (n->norm->bias != NULL) {
        tt_tp_copies(s, n->norm->bias, &n->how->tp, is_cut, n->biases, n->count);
    }
    for (int i = 0; i < n->count; i++) {
        n->parts[i] = run_norm(s, n, slice_x(s, n, i), i);
    }
    return n->count == 1 ? n->parts[0]
                         : tutti_cat(s, n->parts, n->count, tutti_tensor_rank(n->x) - 2);
}

static tutti_tensor_t *norm_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x,
                                    bool is_layer_norm)
{
    const tt_tp_linear_t *how = &cut_of(m)->how;
    const tt_leaves_t own = tt_tp_leaves(&how->tp);
    slices_t n = {.norm = tutti_module_state(m),
                  .how = how,
                  .is_layer_norm = is_layer_norm,
                  .x = x,
                  .count = how->is_sequence_cut ? own.end - own.begin : how->tp.shards};
    tutti_tensor_t **room = tt_alloc_array(3 * (size_t)n.count, sizeof *room, "slices");
    if (room == NULL) {
        return tutti_scope_fail(s, TUTTI_ERR_NOMEM);
    }
    n.weights = room;
    n.biases = room + n.count;
    n.parts = room + 2 * n.count;
    x = run_slices(s, &n);
    tt_free(room);
    return x;
}

static tutti_tensor_t *layer_norm_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return norm_forward(s, m, x, true);
}

static tutti_tensor_t *rms_norm_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return norm_forward(s, m, x, false);
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
