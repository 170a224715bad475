/* A linear layer and its loss. For losses at several places of a row the weight's rows, which have
 * the classes first as PyTorch's, are seen with the classes behind the places. */
#include <tutti/nn_layers.h>
#include <tutti/nn_vocabulary.h>
#include <tutti/op_shape.h>
#include <tutti/op_vocabulary.h>

#include "compute/nn/layers/kept_options.h"
#include "compute/nn/layers/layer_linear.h"
#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_linear_cross_entropy_layer_options_t options;
    tutti_module_t *linear;
    tutti_tensor_t *weight; /* of classes, or NULL */
} head_t;

static tutti_status_t check(const tutti_linear_cross_entropy_layer_options_t *o, int64_t *outputs)
{
    bool is_valid = o != NULL && o->in >= 1 && o->classes >= 1;
    *outputs = is_valid ? o->classes : 0;
    for (int i = 0; is_valid && i < TUTTI_LOSS_SIZES_MAX && o->sizes[i] != 0; i++) {
        is_valid = o->sizes[i] > 0 && *outputs <= INT64_MAX / o->sizes[i];
        *outputs *= is_valid ? o->sizes[i] : 0;
    }
    return is_valid ? TUTTI_OK
                    : TT_FAIL(TUTTI_ERR_ARG,
                              "linear_cross_entropy: in %lld, classes %lld: both must be at least "
                              "1, no size negative, and classes times sizes below 2^63",
                              o == NULL ? 0LL : (long long)o->in,
                              o == NULL ? 0LL : (long long)o->classes);
}

static tutti_status_t add_class_weight(tutti_module_t *m, int64_t classes)
{
    head_t *head = tutti_module_state(m);
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(m->ctx->home, TUTTI_F32, TUTTI_SHAPE(classes), true, &x));
    tutti_status_t status = tutti_tensor_fill(x, 1);
    if (status >= 0) {
        status = tutti_module_add_buffer(m, "weight", x);
    }
    tutti_tensor_release(x);
    head->weight = status < 0 ? NULL : x; /* the module's */
    return status;
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_linear_cross_entropy_layer_options_t *o = options;
    head_t *head = tutti_module_state(m);
    int64_t outputs;
    TT_TRY(check(o, &outputs));
    head->options = *o;
    if (o->has_weight) {
        TT_TRY(add_class_weight(m, o->classes));
    }
    const tutti_linear_options_t linear = {.in = o->in, .out = outputs, .no_bias = !o->has_bias};
    return tutti_module_new_child(m, "linear", &tutti_linear_layer, &linear, &head->linear);
}

/* [classes d1 ... dK, more] as [d1, ..., dK, classes, more]. */
static tutti_tensor_t *classes_last(tutti_scope_t *s, const head_t *head, tutti_tensor_t *x)
{
    const tutti_linear_cross_entropy_layer_options_t *o = &head->options;
    tutti_shape_t shape = TUTTI_SHAPE(o->classes);
    tutti_dims_t order = {.count = 0};
    if (x == NULL || o->sizes[0] == 0) {
        return x;
    }
    for (int i = 0; i < TUTTI_LOSS_SIZES_MAX && o->sizes[i] != 0; i++) {
        shape.dims[shape.rank++] = o->sizes[i];
        order.dims[order.count++] = i + 1;
    }
    order.dims[order.count++] = 0;
    if (tutti_tensor_shape(x).rank > 1) {
        order.dims[order.count++] = shape.rank;
        shape.dims[shape.rank++] = o->in;
    }
    return tutti_permute(s, tutti_reshape(s, x, shape), order);
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const head_t *head = tutti_module_state(m);
    const tutti_linear_cross_entropy_layer_options_t *o = &head->options;
    const tt_linear_layer_t *linear = tutti_module_state(head->linear);
    if (!tt_is_call_of(s, m, 2, input_count, output_count)) {
        return;
    }
    outputs[0] = tutti_linear_cross_entropy(
        s, inputs[0], classes_last(s, head, linear->weight), inputs[1],
        &(tutti_linear_cross_entropy_options_t){.bias = classes_last(s, head, linear->bias),
                                                .loss = {.reduction = o->reduction,
                                                         .label_smoothing = o->label_smoothing,
                                                         .has_ignore_index = o->has_ignore_index,
                                                         .ignore_index = o->ignore_index,
                                                         .weight = head->weight},
                                                .chunk = o->chunk});
}

const tutti_module_ops_t tutti_linear_cross_entropy_layer = {
    .name = "linear_cross_entropy",
    .about = "cross entropy of a linear layer, whose logits are never whole in memory",
    .state_bytes = sizeof(head_t),
    .init = init,
    .forward_many = forward_many,
};
