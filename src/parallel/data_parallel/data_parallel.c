/* DataParallel: a module whose forward is scatter, replicate, apply and gather.
 *
 * A wrapper has the wrapped module as a child without a name of its own, so that names, saving,
 * loading and optimizers see no difference. One replica is the module itself, in the caller's
 * thread.
 *
 * Source: torch/nn/parallel (data_parallel, replicate, scatter_gather, parallel_apply), for the
 * semantics.
 */
#include <tutti/data_parallel.h>
#include <tutti/op_shape.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

typedef struct {
    tutti_module_t *module; /* the child */
    tt_replicas_t *team;    /* NULL: one replica, the module */
    int replicas, dim;
} wrapper_t;

typedef struct {
    tutti_module_t *module;
    const tutti_data_parallel_options_t *options;
} wrapping_t;

/* ---- scatter and gather ---------------------------------------------------------------------- */

/* Indices that a chunk has, but for the last; 0 for none at all. As torch.chunk. */
static int64_t chunk_size(int64_t size, int count)
{
    return size / count + (size % count != 0);
}

static int chunk_count(int64_t size, int count)
{
    const int64_t chunk = chunk_size(size, count);
    return chunk == 0 ? 1 : (int)((size + chunk - 1) / chunk);
}

static int64_t chunk_length(int64_t size, int count, int index)
{
    const int64_t chunk = chunk_size(size, count), left = size - index * chunk;
    return left < chunk ? left : chunk;
}

static tutti_status_t find_dim(const tutti_tensor_t *x, int dim, int *out)
{
    char text[192];
    *out = tt_dim_index(dim, x->shape.rank);
    return *out >= 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_ARG, "data_parallel: %s has no dimension %d to cut",
                               tutti_tensor_describe(x, text, sizeof text), dim);
}

static tutti_status_t check_count(int count)
{
    return count >= 1 ? TUTTI_OK
                      : TT_FAIL(TUTTI_ERR_ARG, "data_parallel: %d parts: want at least 1", count);
}

static tutti_status_t check_scatter(tutti_scope_t *s, const tutti_tensor_t *x, int *dim, int count)
{
    TT_TRY(tutti_scope_status(s));
    TT_TRY(tutti_tensor_status(x));
    TT_TRY(check_count(count));
    return find_dim(x, *dim, dim);
}

int tutti_data_parallel_scatter(tutti_scope_t *s, tutti_tensor_t *x, int dim, int count,
                                tutti_tensor_t **parts)
{
    const tutti_status_t status = check_scatter(s, x, &dim, count);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
        return 0;
    }
    const int64_t size = x->shape.dims[dim];
    const int chunks = chunk_count(size, count);
    for (int i = 0; i < chunks; i++) {
        parts[i] =
            tutti_narrow(s, x, dim, i * chunk_size(size, count), chunk_length(size, count, i));
    }
    return tutti_scope_status(s) < 0 ? 0 : chunks;
}

tutti_tensor_t *tutti_data_parallel_gather(tutti_scope_t *s, tutti_tensor_t *const *parts,
                                           int count, int dim)
{
    const tutti_status_t status = check_count(count);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    return tutti_tensor_rank(parts[0]) == 0 ? tutti_stack(s, parts, count, 0)
                                            : tutti_cat(s, parts, count, dim);
}

/* ---- running --------------------------------------------------------------------------------- */

/* A replica's input: some indices of x (all of it: length < 0), as a leaf of the replica's, on its
 * device. */
static tutti_status_t make_leaf(tutti_scope_t *s, tt_device_t *device, const tutti_tensor_t *x,
                                int dim, int64_t start, int64_t length, tutti_tensor_t **out)
{
    tutti_shape_t shape = x->shape;
    int64_t offset = x->offset;
    if (length >= 0) {
        shape.dims[dim] = length;
        offset += start * x->strides[dim];
    }
    TT_TRY(tt_tensor_over(x->storage, x->dtype, shape, x->strides, offset, out));
    TT_TRY(tt_replica_move(device, out));
    return s->ctx->is_grad_enabled && tutti_tensor_requires_grad(x)
               ? tutti_tensor_set_requires_grad(*out, true)
               : TUTTI_OK;
}

static tutti_status_t cut_inputs(tutti_scope_t *s, const wrapper_t *wrapper, tt_replica_run_t *run,
                                 tutti_tensor_t *const *inputs)
{
    for (int k = 0; k < run->input_count; k++) {
        const int64_t size = inputs[k]->shape.dims[run->dim];
        for (int i = 0; i < run->count; i++) {
            TT_TRY(make_leaf(s, tt_replica_device(run->team, i), inputs[k], run->dim,
                             i * chunk_size(size, wrapper->replicas),
                             chunk_length(size, wrapper->replicas, i), &run->parts[i].inputs[k]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_inputs(const wrapper_t *wrapper, tutti_tensor_t *const *inputs,
                                   int input_count, int output_count, int *dim)
{
    char first[192], other[192];
    if (input_count < 1 || output_count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data_parallel: %d inputs and %d outputs: want at least one of each",
                       input_count, output_count);
    }
    for (int i = 0; i < input_count; i++) {
        if (inputs[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "data_parallel: input %d is missing: inputs must be tensors", i);
        }
        int own;
        TT_TRY(find_dim(inputs[i], wrapper->dim, &own));
        *dim = i == 0 ? own : *dim;
        if (own != *dim || inputs[i]->shape.dims[own] != inputs[0]->shape.dims[*dim]) {
            return TT_FAIL(
                TUTTI_ERR_SHAPE,
                "data_parallel: inputs 0 and %d, %s and %s, must be cut in the same way: want one "
                "size along dimension %d",
                i, tutti_tensor_describe(inputs[0], first, sizeof first),
                tutti_tensor_describe(inputs[i], other, sizeof other), wrapper->dim);
        }
    }
    return TUTTI_OK;
}

/* All replicas forward, and the node in the caller's graph. */
static tutti_status_t run_team(tutti_scope_t *s, tt_replica_run_t *run,
                               tutti_tensor_t *const *inputs, tutti_tensor_t **outputs)
{
    TT_TRY(tt_replicas_update(run->team));
    TT_TRY(tt_replica_run_forward(s, run));
    tt_replica_run_record(s, run, inputs, outputs);
    return tutti_scope_status(s);
}

static tutti_status_t forward_team(tutti_scope_t *s, const wrapper_t *wrapper,
                                   tutti_tensor_t *const *inputs, int input_count,
                                   tutti_tensor_t **outputs, int output_count)
{
    int dim = 0;
    tt_replica_run_t *run;
    TT_TRY(check_inputs(wrapper, inputs, input_count, output_count, &dim));
    const int count = chunk_count(inputs[0]->shape.dims[dim], wrapper->replicas);
    TT_TRY(tt_replica_run_new(wrapper->team, count, input_count, output_count, &run));
    run->dim = dim;
    run->out_dim = wrapper->dim;
    tutti_status_t status = cut_inputs(s, wrapper, run, inputs);
    if (status >= 0) {
        status = run_team(s, run, inputs, outputs);
    }
    tt_replica_run_release(run);
    return status;
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const wrapper_t *wrapper = tutti_module_state(m);
    if (wrapper->team == NULL) {
        tutti_forward_many(s, wrapper->module, inputs, input_count, outputs, output_count);
        return;
    }
    const tutti_status_t status =
        forward_team(s, wrapper, inputs, input_count, outputs, output_count);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
}

/* ---- wrapping -------------------------------------------------------------------------------- */

static tutti_status_t check_options(const wrapping_t *wrapping)
{
    const tutti_data_parallel_options_t *o = wrapping == NULL ? NULL : wrapping->options;
    if (o == NULL || wrapping->module == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data_parallel: the module or the options are missing: make "
                                      "it with tutti_data_parallel_create");
    }
    if (o->replicas < 1 || o->replicas > TUTTI_DATA_PARALLEL_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data_parallel: %d replicas: want 1 to %d; results depend on it",
                       o->replicas, TUTTI_DATA_PARALLEL_MAX);
    }
    if (o->threads < 0 || o->threads > 256) {
        return TT_FAIL(TUTTI_ERR_ARG, "data_parallel: %d threads: want 0 to 256", o->threads);
    }
    if (o->build == NULL && o->replicas > 1) {
        return TT_FAIL(
            TUTTI_ERR_ARG,
            "data_parallel: %d replicas, but options.build, which makes them, is missing",
            o->replicas);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const wrapping_t *wrapping = options;
    wrapper_t *wrapper = tutti_module_state(m);
    TT_TRY(check_options(wrapping));
    TT_TRY(tutti_module_add_child(m, "", wrapping->module));
    wrapper->module = wrapping->module;
    wrapper->replicas = wrapping->options->replicas;
    wrapper->dim = wrapping->options->dim;
    return wrapper->replicas == 1
               ? TUTTI_OK
               : tt_replicas_new(wrapper->module, wrapping->options, &wrapper->team);
}

static void fini(tutti_module_t *m)
{
    const wrapper_t *wrapper = tutti_module_state(m);
    tt_replicas_release(wrapper->team);
}

static const tutti_module_ops_t data_parallel = {
    .name = "data_parallel",
    .about = "replicas of a module, each on its chunk of a batch and with threads of its own",
    .state_bytes = sizeof(wrapper_t),
    .init = init,
    .fini = fini,
    .forward_many = forward_many,
};

tutti_status_t tutti_data_parallel_create(tutti_module_t *module,
                                          const tutti_data_parallel_options_t *options,
                                          tutti_module_t **out)
{
    const wrapping_t wrapping = {module, options};
    TT_TRY(check_options(&wrapping));
    return tutti_module_create(module->ctx, &data_parallel, &wrapping, out);
}

/* ---- looking, and the parts by themselves ---------------------------------------------------- */

static wrapper_t *wrapper_of(tutti_module_t *model)
{
    return tutti_module_kind(model) == &data_parallel ? tutti_module_state(model) : NULL;
}

static tutti_status_t check_wrapper(tutti_module_t *model)
{
    return wrapper_of(model) != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "data_parallel: a module of kind %s was passed: want one "
                         "from tutti_data_parallel_create",
                         tutti_module_kind(model)->name);
}

int tutti_data_parallel_replicas(tutti_module_t *model)
{
    const wrapper_t *wrapper = wrapper_of(model);
    return wrapper == NULL ? 0 : wrapper->replicas;
}

tutti_module_t *tutti_data_parallel_module(tutti_module_t *model)
{
    const wrapper_t *wrapper = wrapper_of(model);
    return wrapper == NULL ? NULL : wrapper->module;
}

tutti_module_t *tutti_data_parallel_replica(tutti_module_t *model, int index)
{
    const wrapper_t *wrapper = wrapper_of(model);
    if (wrapper == NULL || index < 0 || index >= wrapper->replicas) {
        return NULL;
    }
    return wrapper->team == NULL ? wrapper->module : wrapper->team->replicas[index].module;
}

tutti_status_t tutti_data_parallel_replicate(tutti_module_t *model)
{
    TT_TRY(check_wrapper(model));
    const wrapper_t *wrapper = wrapper_of(model);
    return wrapper->team == NULL ? TUTTI_OK : tt_replicas_update(wrapper->team);
}

static tutti_status_t check_apply(tutti_scope_t *s, tutti_module_t *model,
                                  tutti_tensor_t *const *parts, int count)
{
    TT_TRY(tutti_scope_status(s));
    TT_TRY(check_wrapper(model));
    TT_TRY(check_count(count));
    const int replicas = tutti_data_parallel_replicas(model);
    if (count > replicas) {
        return TT_FAIL(TUTTI_ERR_ARG, "data_parallel: %d parts for %d replicas", count, replicas);
    }
    for (int i = 0; i < count; i++) {
        TT_TRY(tutti_tensor_status(parts[i]));
    }
    return TUTTI_OK;
}

/* The outputs, which lie one behind the other. */
static void take_apart(tutti_scope_t *s, const tt_replica_run_t *run, tutti_tensor_t *all,
                       tutti_tensor_t **outputs)
{
    int64_t start = 0;
    for (int i = 0; i < run->count; i++) {
        const tutti_shape_t shape = run->parts[i].specs[0].shape;
        const int64_t numel = tutti_shape_numel(shape);
        outputs[i] = tutti_view(s, tutti_narrow(s, all, 0, start, numel), shape);
        start += numel;
    }
}

static tutti_status_t apply_team(tutti_scope_t *s, const wrapper_t *wrapper,
                                 tutti_tensor_t *const *parts, int count, tutti_tensor_t **outputs)
{
    tt_replica_run_t *run;
    tutti_tensor_t *all;
    tutti_status_t status = TUTTI_OK;
    TT_TRY(tt_replica_run_new(wrapper->team, count, 1, 1, &run));
    run->dim = -1;
    for (int i = 0; i < count && status >= 0; i++) {
        status = make_leaf(s, tt_replica_device(run->team, i), parts[i], 0, 0, -1,
                           &run->parts[i].inputs[0]);
    }
    if (status >= 0) {
        status = run_team(s, run, parts, &all);
    }
    if (status >= 0) {
        take_apart(s, run, all, outputs);
    }
    tt_replica_run_release(run);
    return status;
}

void tutti_data_parallel_apply(tutti_scope_t *s, tutti_module_t *model,
                               tutti_tensor_t *const *parts, int count, tutti_tensor_t **outputs)
{
    tutti_status_t status = check_apply(s, model, parts, count);
    const wrapper_t *wrapper = status < 0 ? NULL : wrapper_of(model);
    if (status >= 0 && wrapper->team == NULL) {
        outputs[0] = tutti_forward(s, wrapper->module, parts[0]);
    } else if (status >= 0) {
        status = apply_team(s, wrapper, parts, count, outputs);
    }
    for (int i = 0; i < count && status < 0; i++) {
        outputs[i] = tutti_scope_fail(s, status);
    }
}
