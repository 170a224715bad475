/* Trials of zero_test.c: options of nn_functions.h, op_feature.h and averaged.h. */
#ifndef TT_ZERO_FUNCTIONS_H
#define TT_ZERO_FUNCTIONS_H

#include <tutti/averaged.h>
#include <tutti/nn_functions.h>
#include <tutti/nn_transformer.h>
#include <tutti/nn_vocabulary.h>
#include <tutti/op_attention.h>

#include "zero_trial.h"

/* A module of two inputs. */
static tutti_status_t pair(trial_t *t, const tutti_module_ops_t *ops, const void *options)
{
    tutti_module_t *m;
    tutti_tensor_t *y, *x = numbers(t->s, TUTTI_SHAPE(6, 4));
    TUTTI_CHECK(tutti_module_create(t->ctx, ops, options, &m));
    tutti_tensor_t *in[] = {tutti_mul_scalar(t->s, x, 1e-6), tutti_mul_scalar(t->s, x, 5e-7)};
    tutti_forward_many(t->s, m, in, 2, &y, 1);
    const tutti_status_t status = keep_result(t, y);
    tutti_module_release(m);
    return status;
}

static tutti_status_t adaptive_div_value(trial_t *t)
{
    tutti_module_t *m;
    return tutti_module_create(t->ctx, &tutti_adaptive_log_softmax_layer,
                               &(tutti_adaptive_log_softmax_options_t){
                                   .in = 4, .classes = 4, .cutoffs = {2}, .div_value = t->value},
                               &m);
}

static tutti_status_t cosine_eps(trial_t *t)
{
    return pair(t, &tutti_cosine_similarity_layer,
                &(tutti_cosine_similarity_options_t){.dim = 1, .eps = t->value});
}

static tutti_status_t distance_eps(trial_t *t)
{
    return pair(t, &tutti_pairwise_distance_layer,
                &(tutti_pairwise_distance_options_t){.eps = t->value});
}

static tutti_status_t distance_norm(trial_t *t)
{
    return pair(t, &tutti_pairwise_distance_layer,
                &(tutti_pairwise_distance_options_t){.p = t->value});
}

static tutti_status_t embedding_lookup(trial_t *t, tutti_embedding_lookup_options_t o)
{
    tutti_tensor_t *indices = tutti_from_data(t->s, TUTTI_U8, TUTTI_SHAPE(3), (uint8_t[]){1, 4, 0});
    return keep_result(t,
                       tutti_embedding_with(t->s, indices, numbers(t->s, TUTTI_SHAPE(6, 4)), &o));
}

static tutti_status_t embedding_max_norm(trial_t *t)
{
    return embedding_lookup(t, (tutti_embedding_lookup_options_t){.max_norm = t->value});
}

static tutti_status_t embedding_norm_p(trial_t *t)
{
    return embedding_lookup(t, (tutti_embedding_lookup_options_t){.norm_p = t->value});
}

static tutti_status_t local_response(trial_t *t, tutti_local_response_options_t o)
{
    o.size = 3;
    tutti_tensor_t *x = tutti_mul_scalar(t->s, numbers(t->s, TUTTI_SHAPE(2, 4, 3)), 1e3);
    return keep_result(t, tutti_local_response_norm(t->s, x, &o));
}

static tutti_status_t local_response_alpha(trial_t *t)
{
    return local_response(t, (tutti_local_response_options_t){.alpha = t->value});
}

static tutti_status_t local_response_beta(trial_t *t)
{
    return local_response(t, (tutti_local_response_options_t){.beta = t->value});
}

static tutti_status_t local_response_k(trial_t *t)
{
    return local_response(t, (tutti_local_response_options_t){.k = t->value});
}

static tutti_status_t softplus_beta(trial_t *t)
{
    tutti_module_t *m;
    const tutti_activation_options_t o = {.kind = TUTTI_ACTIVATION_SOFTPLUS, .beta = t->value};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_activation_layer, &o, &m));
    const tutti_tensor_t *y = tutti_forward(t->s, m, numbers(t->s, TUTTI_SHAPE(6, 4)));
    const tutti_status_t status = keep_result(t, y);
    tutti_module_release(m);
    return status;
}

static tutti_status_t transformer_eps(trial_t *t)
{
    tutti_module_t *m;
    const tutti_transformer_options_t o = {
        .width = 4, .heads = 2, .hidden = 4, .eps = t->value, .norm_first = true};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_encoder_block_layer, &o, &m));
    const tutti_tensor_t *y = tutti_forward(t->s, m, numbers(t->s, TUTTI_SHAPE(2, 3, 4)));
    const tutti_status_t status = keep_result(t, y);
    tutti_module_release(m);
    return status;
}

static tutti_status_t masked_scale(trial_t *t)
{
    tutti_tensor_t *q = tutti_mul_scalar(t->s, numbers(t->s, TUTTI_SHAPE(1, 2, 3, 4)), 1e3),
                   *weights;
    const tutti_masked_attention_options_t o = {.scale = t->value};
    return keep_result(t, tutti_masked_attention(t->s, q, q, q, &o, &weights));
}

static const tutti_activation_options_t leaky = {.kind = TUTTI_ACTIVATION_LEAKY_RELU};
static const tutti_activation_options_t elu = {.kind = TUTTI_ACTIVATION_ELU};
static const tutti_activation_options_t softplus = {.kind = TUTTI_ACTIVATION_SOFTPLUS};
static const tutti_activation_options_t hardshrink = {.kind = TUTTI_ACTIVATION_HARDSHRINK};
static const tutti_activation_options_t rrelu = {.kind = TUTTI_ACTIVATION_RRELU};
static const tutti_activation_options_t rising = {.kind = TUTTI_ACTIVATION_RRELU, .lower = -0.5};
static const tutti_prelu_options_t prelu = {.count = 1};

static tutti_status_t keep_average(void *user, const char *name, tutti_tensor_t *x)
{
    if (strcmp(name, "weight") == 0) {
        keep(user, 0, x);
    }
    return TUTTI_OK;
}

/* Of two updates. */
static tutti_status_t averaged_decay(trial_t *t)
{
    tutti_module_t *net;
    tutti_averaged_t *average;
    const tutti_linear_options_t linear = {.in = 6, .out = 4};
    const tutti_averaged_options_t o = {.decay = t->value};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_linear_layer, &linear, &net));
    TUTTI_CHECK(tutti_averaged_create(t->ctx, net, &o, &average));
    tutti_tensor_t *weight = tutti_module_find(net, "weight");
    TUTTI_CHECK(tutti_tensor_fill(weight, 1));
    TUTTI_CHECK(tutti_averaged_update(average));
    TUTTI_CHECK(tutti_tensor_copy(weight, numbers(t->s, TUTTI_SHAPE(4, 6))));
    TUTTI_CHECK(tutti_averaged_update(average));
    const tutti_status_t status = tutti_averaged_each_state(average, keep_average, t);
    tutti_averaged_release(average);
    tutti_module_release(net);
    return status;
}

#endif
