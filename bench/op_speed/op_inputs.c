/* Inputs of cases: numbers that are a hash of the input's place and the element's, so that any
 * program can make the same ones.
 */
#include <math.h>
#include <string.h>

#include "op_speed/op_case.h"

static uint32_t hash(uint32_t seed, uint32_t i)
{
    uint32_t h = i * 2654435761U + seed * 2246822519U + 1;
    h ^= h >> 16;
    h *= 0x85ebca6bU;
    h ^= h >> 13;
    h *= 0xc2b2ae35U;
    return h ^ h >> 16;
}

/** In [0, 1), of 24 bits. */
static double unit(uint32_t seed, int64_t i)
{
    return (hash(seed, (uint32_t)i) >> 8) * 0x1p-24;
}

static void spread(tutti_tensor_t *x, uint32_t seed, double low, double high)
{
    float *data = tutti_tensor_data(x);
    for (int64_t i = 0; data != NULL && i < tutti_tensor_numel(x); i++) {
        data[i] = (float)(low + (high - low) * unit(seed, i));
    }
}

tutti_shape_t op_sizes(const op_case_t *c, int from, int rank)
{
    tutti_shape_t shape = {.rank = rank};
    memcpy(shape.dims, c->n + from, (size_t)rank * sizeof *c->n);
    return shape;
}

tutti_tensor_t *op_spread(op_case_t *c, tutti_shape_t shape, uint32_t seed, double low, double high)
{
    tutti_tensor_t *x = tutti_empty(c->scope, TUTTI_F32, shape);
    spread(x, seed, low, high);
    return x;
}

void op_constant(op_case_t *c, tutti_shape_t shape, double low, double high)
{
    c->in[c->inputs] = op_spread(c, shape, (uint32_t)c->inputs, low, high);
    c->inputs++;
}

void op_input(op_case_t *c, tutti_shape_t shape, double low, double high)
{
    op_constant(c, shape, low, high);
    (void)tutti_tensor_set_requires_grad(c->in[c->inputs - 1], true); /* the scope knows */
}

void op_indices(op_case_t *c, tutti_shape_t shape, int64_t below)
{
    const uint32_t seed = (uint32_t)c->inputs;
    tutti_tensor_t *x = c->in[c->inputs++] = tutti_empty(c->scope, TUTTI_I64, shape);
    int64_t *data = tutti_tensor_data(x);
    for (int64_t i = 0; data != NULL && i < tutti_tensor_numel(x); i++) {
        data[i] = (int64_t)((double)below * unit(seed, i));
    }
}

void op_signs(op_case_t *c, tutti_shape_t shape)
{
    op_constant(c, shape, -1, 1);
    tutti_tensor_t *x = c->in[c->inputs - 1];
    float *data = tutti_tensor_data(x);
    for (int64_t i = 0; data != NULL && i < tutti_tensor_numel(x); i++) {
        data[i] = data[i] < 0 ? -1 : 1;
    }
}

static tutti_status_t fill(void *user, const char *name, tutti_tensor_t *tensor)
{
    (void)user;
    (void)name;
    const int rank = tutti_tensor_rank(tensor);
    const double bound = rank < 2 ? 1 : 1 / sqrt((double)tutti_tensor_dim(tensor, -1));
    spread(tensor, (uint32_t)tutti_tensor_numel(tensor), -bound, bound);
    return TUTTI_OK;
}

void op_module(op_case_t *c, const tutti_module_ops_t *kind, const void *options)
{
    if (tutti_module_create(c->ctx, kind, options, &c->module) >= 0) {
        (void)tutti_module_each_parameter(c->module, fill, NULL);
    }
}
