/* Stacks of encoder and decoder blocks, and both as one transformer. */
#include <string.h>

#include "compute/nn/layers/transformer_parts.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"

enum { INPUTS_MAX = 8 };

typedef struct {
    tutti_module_t **blocks, *norm;
    int count;
    int inputs; /* at most */
    bool has_memory;
} stack_t;

static tutti_status_t init_stack(tutti_module_t *m, const tutti_transformer_options_t *o,
                                 const tutti_module_ops_t *block)
{
    stack_t *stack = tutti_module_state(m);
    tutti_module_t *layers;
    TT_TRY(tt_transformer_check(tutti_module_kind(m)->name, o));
    stack->has_memory = block == &tutti_decoder_block_layer;
    stack->inputs = stack->has_memory ? 6 : 3;
    stack->count = o->layers == 0 ? 6 : (int)o->layers;
    stack->blocks = tt_alloc_array((size_t)stack->count, sizeof *stack->blocks, "blocks");
    TT_TRY_ALLOC(stack->blocks);
    TT_TRY(tutti_module_new_child(m, "layers", &tutti_sequential_layer, NULL, &layers));
    for (int i = 0; i < stack->count; i++) {
        TT_TRY(tutti_sequential_add(layers, block, o, &stack->blocks[i]));
    }
    return o->final_norm ? tt_norm_add(m, "norm", o, &stack->norm) : TUTTI_OK;
}

static tutti_status_t init_encoder(tutti_module_t *m, const void *options)
{
    return init_stack(m, options, &tutti_encoder_block_layer);
}

static tutti_status_t init_decoder(tutti_module_t *m, const void *options)
{
    return init_stack(m, options, &tutti_decoder_block_layer);
}

static void fini_stack(tutti_module_t *m)
{
    const stack_t *stack = tutti_module_state(m);
    tt_free(stack->blocks);
}

static void forward_stack(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                          int input_count, tutti_tensor_t **outputs, int output_count)
{
    const stack_t *stack = tutti_module_state(m);
    tutti_tensor_t *in[INPUTS_MAX];
    const int least = stack->has_memory ? 2 : 1;
    if (input_count < least || input_count > stack->inputs || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "%s takes %d to %d tensors and gives one, not %d and %d",
                                          tutti_module_kind(m)->name, least, stack->inputs,
                                          input_count, output_count));
        return;
    }
    memcpy(in, inputs, (size_t)input_count * sizeof *in);
    for (int i = 0; i < stack->count; i++) {
        tutti_forward_many(s, stack->blocks[i], in, input_count, &in[0], 1);
    }
    outputs[0] = stack->norm == NULL ? in[0] : tutti_forward(s, stack->norm, in[0]);
}

const tutti_module_ops_t tutti_encoder_layer = {
    .name = "encoder",
    .about = "encoder blocks, one behind the other",
    .state_bytes = sizeof(stack_t),
    .init = init_encoder,
    .fini = fini_stack,
    .forward_many = forward_stack,
};

const tutti_module_ops_t tutti_decoder_layer = {
    .name = "decoder",
    .about = "decoder blocks, one behind the other",
    .state_bytes = sizeof(stack_t),
    .init = init_decoder,
    .fini = fini_stack,
    .forward_many = forward_stack,
};

/* ---- both ------------------------------------------------------------------------------------ */

enum { FIRST, SECOND, MASK, SECOND_MASK, MEMORY_MASK, PADDING, SECOND_PADDING, MEMORY_PADDING };

typedef struct {
    tutti_module_t *encoder, *decoder;
} transformer_t;

static tutti_status_t begin_matrix(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    return tutti_tensor_rank(x) > 1 ? tutti_init_xavier_uniform(user, x, 0) : TUTTI_OK;
}

static tutti_status_t init_transformer(tutti_module_t *m, const void *options)
{
    transformer_t *t = tutti_module_state(m);
    TT_TRY(tt_transformer_check("transformer", options));
    tutti_transformer_options_t o = *(const tutti_transformer_options_t *)options;
    const bool is_causal = o.causal;
    o.final_norm = true;
    o.causal = false;
    TT_TRY(tutti_module_new_child(m, "encoder", &tutti_encoder_layer, &o, &t->encoder));
    o.causal = is_causal;
    o.layers = o.decoder_layers == 0 ? o.layers : o.decoder_layers;
    TT_TRY(tutti_module_new_child(m, "decoder", &tutti_decoder_layer, &o, &t->decoder));
    return tutti_module_each_parameter(m, begin_matrix, m->ctx);
}

static void forward_transformer(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                int input_count, tutti_tensor_t **outputs, int output_count)
{
    const transformer_t *t = tutti_module_state(m);
    tutti_tensor_t *in[INPUTS_MAX] = {NULL}, *memory;
    if (input_count < 2 || input_count > INPUTS_MAX || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "transformer takes two to eight tensors and gives one, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    memcpy(in, inputs, (size_t)input_count * sizeof *in);
    tutti_forward_many(s, t->encoder, (tutti_tensor_t *[]){in[FIRST], in[MASK], in[PADDING]}, 3,
                       &memory, 1);
    tutti_tensor_t *const decoded[] = {in[SECOND],         memory,
                                       in[SECOND_MASK],    in[MEMORY_MASK],
                                       in[SECOND_PADDING], in[MEMORY_PADDING]};
    tutti_forward_many(s, t->decoder, decoded, 6, outputs, 1);
}

const tutti_module_ops_t tutti_transformer_layer = {
    .name = "transformer",
    .about = "an encoder, and a decoder that attends to its result",
    .state_bytes = sizeof(transformer_t),
    .init = init_transformer,
    .forward_many = forward_transformer,
};
