/* A golden case under way, and its arguments. */
#ifndef TT_GOLDEN_ARGS_H
#define TT_GOLDEN_ARGS_H

#include <string.h>

#include <jansson.h>

#include <tutti/nn.h>
#include <tutti/op_loss.h>
#include <tutti/tensor.h>

enum { GOLDEN_INPUTS_MAX = 56, GOLDEN_OUTPUTS_MAX = 8 };

/* A case under way. */
typedef struct {
    tutti_scope_t *s;
    tutti_tensor_t *in[GOLDEN_INPUTS_MAX]; /* NULL where an optional one is missing */
    int input_count, output_count;
    const json_t *args;
    tutti_tensor_t *out[GOLDEN_OUTPUTS_MAX];
    tutti_dtype_t dtype;    /* of a module's state */
    tutti_module_t *module; /* owned; released behind backward */
} golden_call_t;

typedef struct {
    const char *name; /* in ops.def and in make_golden.py */
    tutti_tensor_t *(*unary)(tutti_scope_t *, tutti_tensor_t *);
    tutti_tensor_t *(*binary)(tutti_scope_t *, tutti_tensor_t *, tutti_tensor_t *);
    tutti_tensor_t *(*scalar)(tutti_scope_t *, tutti_tensor_t *, double);
    tutti_tensor_t *(*over)(tutti_scope_t *, tutti_tensor_t *, tutti_dims_t, bool);
    tutti_tensor_t *(*other)(golden_call_t *); /* NULL result: it filled in out[] itself */
} golden_entry_t;

/* ---- arguments ------------------------------------------------------------------------------ */

static double number(const golden_call_t *c, const char *name)
{
    return json_number_value(json_object_get(c->args, name));
}

static int64_t integer(const golden_call_t *c, const char *name)
{
    return json_integer_value(json_object_get(c->args, name));
}

static bool truth(const golden_call_t *c, const char *name)
{
    return json_is_true(json_object_get(c->args, name));
}

static bool is_given(const golden_call_t *c, const char *name)
{
    return json_object_get(c->args, name) != NULL;
}

static const char *text(const golden_call_t *c, const char *name)
{
    const char *value = json_string_value(json_object_get(c->args, name));
    return value == NULL ? "" : value;
}

static tutti_shape_t shape(const golden_call_t *c, const char *name)
{
    const json_t *list = json_object_get(c->args, name);
    tutti_shape_t out = {.rank = (int)json_array_size(list)};
    for (int i = 0; i < out.rank; i++) {
        out.dims[i] = json_integer_value(json_array_get(list, (size_t)i));
    }
    return out;
}

static tutti_dims_t dims(const golden_call_t *c, const char *name)
{
    const tutti_shape_t list = shape(c, name);
    tutti_dims_t out = {.count = list.rank};
    for (int i = 0; i < list.rank; i++) {
        out.dims[i] = (int)list.dims[i];
    }
    return out;
}

/* Numbers of each dimension, or one for all. */
static void sizes(const golden_call_t *c, const char *name, int64_t to[3])
{
    const tutti_shape_t list = shape(c, name);
    for (int i = 0; i < 3; i++) {
        to[i] = list.rank > 0 ? list.dims[i] : integer(c, name);
    }
}

static tutti_loss_reduction_t reduction(const golden_call_t *c)
{
    const char *name = text(c, "reduction");
    return strcmp(name, "mean") == 0  ? TUTTI_LOSS_MEAN
           : strcmp(name, "sum") == 0 ? TUTTI_LOSS_SUM
                                      : TUTTI_LOSS_NONE;
}

#endif
