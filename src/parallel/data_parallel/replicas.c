/* Replicas of a module: each in a context of its own, its parameters being tensors over the
 * original's memory. To share is to let a tensor point to another storage, so whatever in the
 * replica holds the parameter holds the shared one.
 *
 * Cost: O(tensors) to bring a replica up to date, and a copy of the buffers, if they changed.
 */
#include <tutti/nn_layers.h>

#include <string.h>

#include "compute/nn/layers/embedding_table.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/base/core_set.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

/* ---- bringing up to date --------------------------------------------------------------------- */

static tutti_status_t learn_as(tutti_tensor_t *x, const tutti_tensor_t *with)
{
    const bool is_learning = tutti_tensor_requires_grad(with);
    return is_learning == tutti_tensor_requires_grad(x)
               ? TUTTI_OK
               : tutti_tensor_set_requires_grad(x, is_learning);
}

static tutti_status_t share(tutti_tensor_t *x, const tutti_tensor_t *with)
{
    if (x->storage != with->storage || x->dtype != with->dtype || x->offset != with->offset) {
        TT_TRY(tutti_tensor_set_grad(x, NULL));
        tt_storage_retain(with->storage);
        tt_storage_release(x->storage);
        x->storage = with->storage;
        x->changes = with->changes;
        x->dtype = with->dtype;
        x->offset = with->offset;
        memcpy(x->strides, with->strides, sizeof x->strides);
    }
    return learn_as(x, with);
}

/* Memory of its own, in another dtype. */
static tutti_status_t renew(tutti_tensor_t *x, const tutti_tensor_t *from)
{
    tutti_tensor_t *fresh;
    TT_TRY(tt_tensor_new(x->storage->device, from->dtype, from->shape, true, &fresh));
    const tutti_status_t status = share(x, fresh);
    tutti_tensor_release(fresh);
    return status;
}

static bool has_bits_of(const tutti_tensor_t *x, const tutti_tensor_t *y)
{
    return tutti_tensor_is_contiguous(x) && tutti_tensor_is_contiguous(y) &&
           memcmp(tutti_tensor_data(x), tutti_tensor_data(y),
                  (size_t)x->numel * tutti_dtype_bytes(x->dtype)) == 0;
}

/* Whether x is what `from` is: by their bits, and where the host cannot see these, if nobody has
 * written one of them since, and the copy was not skipped behind a failure. */
static bool is_replicated(const tutti_tensor_t *x, const tutti_tensor_t *from,
                          const tt_replicated_t *last)
{
    if (x->storage->device == NULL && from->storage->device == NULL) {
        return has_bits_of(x, from);
    }
    return last->storage == from->storage && last->version == from->storage->version &&
           last->own_version == x->storage->version &&
           (last->behind.stream == NULL || tt_stream_check(last->before, last->behind) >= 0);
}

/* Copied only if it changed: a graph of an earlier forward may need what is there. */
static tutti_status_t replicate(tutti_tensor_t *x, const tutti_tensor_t *from,
                                tt_replicated_t *last)
{
    TT_TRY(tt_tensor_check(from));
    if (x->dtype != from->dtype) {
        TT_TRY(renew(x, from));
        last->storage = NULL;
    }
    if (!is_replicated(x, from, last)) {
        const tt_event_t before = tt_device_event(x->storage->device);
        TT_TRY(tutti_tensor_copy(x, from));
        *last = (tt_replicated_t){from->storage, from->storage->version, x->storage->version,
                                  before, tt_device_event(x->storage->device)};
    }
    return TUTTI_OK;
}

static tutti_status_t replicate_parameter(tutti_tensor_t *x, const tutti_tensor_t *from,
                                          tt_replicated_t *last)
{
    TT_TRY(replicate(x, from, last));
    return learn_as(x, from);
}

tutti_status_t tt_replicas_check_streams(const tt_replicas_t *team)
{
    for (int i = 0; i < team->count; i++) {
        tt_device_t *device = tt_replica_device(team, i);
        tt_streams_t *streams = tt_device_streams(device);
        if (streams != NULL && tt_streams_current(streams) != streams->streams[0]) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "data_parallel: replicas are computed on the stream of %s itself, and "
                           "this thread's is another one: tutti_device_set_stream(device, NULL)",
                           tutti_device_name(device));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_replicas_update(tt_replicas_t *team)
{
    TT_TRY(tt_replicas_check_streams(team));
    for (int i = 0; i < team->count; i++) {
        const tt_replica_t *replica = &team->replicas[i];
        for (size_t k = 0; k < team->params.count; k++) {
            tutti_tensor_t *x = tt_listed(&replica->params, k);
            const tutti_tensor_t *from = tt_listed(&team->params, k);
            TT_TRY(tt_replica_device(team, i) == tt_replica_device(team, 0)
                       ? share(x, from)
                       : replicate_parameter(x, from, &replica->replicated[k]));
        }
        for (size_t k = 0; k < team->buffers.count; k++) {
            tutti_tensor_t *x = tt_listed(&replica->buffers, k);
            const tutti_tensor_t *from = tt_listed(&team->buffers, k);
            TT_TRY(i == 0 ? share(x, from)
                          : replicate(x, from, &replica->replicated[team->params.count + k]));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_replica_move(tt_device_t *device, tutti_tensor_t **x)
{
    tutti_tensor_t *moved, *old = *x;
    if (old->storage->device == device) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_new(device, old->dtype, old->shape, false, &moved));
    *x = moved;
    const tutti_status_t status = tutti_tensor_copy(moved, old);
    tutti_tensor_release(old);
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

static tutti_status_t compare(const char *what, int index, const tt_tensor_list_t *original,
                              const tt_tensor_list_t *built)
{
    char want[192], got[192];
    for (size_t k = 0; k < original->count && k < built->count; k++) {
        const tutti_named_tensor_t *a = &original->items[k], *b = &built->items[k];
        if (strcmp(a->name, b->name) != 0 ||
            !tutti_shape_equal(tutti_tensor_shape(a->tensor), tutti_tensor_shape(b->tensor))) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "data_parallel: %s %zu of replica %d is \"%s\" %s, but \"%s\" %s in the "
                           "module: build must make a module like it",
                           what, k, index, b->name,
                           tutti_tensor_describe(b->tensor, got, sizeof got), a->name,
                           tutti_tensor_describe(a->tensor, want, sizeof want));
        }
    }
    if (original->count != built->count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "data_parallel: replica %d has %zu %ss, but the module %zu: build must make "
                       "a module like it",
                       index, built->count, what, original->count);
    }
    return TUTTI_OK;
}

static tutti_status_t build_replica(tt_replicas_t *team, int index,
                                    const tutti_data_parallel_options_t *options)
{
    tt_replica_t *replica = &team->replicas[index];
    tutti_module_t *built = NULL;
    TT_TRY(options->build(replica->ctx, options->user, &built));
    if (built == NULL || built == team->original) {
        tutti_module_release(built);
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data_parallel: build %s for replica %d: it must make a new "
                       "module each time",
                       built == NULL ? "gave no module" : "gave the module itself", index);
    }
    replica->module = built;
    TT_TRY(tutti_module_each_parameter(built, tt_tensor_list_add, &replica->params));
    TT_TRY(tutti_module_each_buffer(built, tt_tensor_list_add, &replica->buffers));
    replica->replicated = tt_alloc_array(team->params.count + team->buffers.count,
                                         sizeof *replica->replicated, "replicas");
    TT_TRY_ALLOC(replica->replicated);
    TT_TRY(compare("parameter", index, &team->params, &replica->params));
    return compare("buffer", index, &team->buffers, &replica->buffers);
}

/* In the member's thread, so that compute threads go to the member's cores. */
typedef struct {
    tt_replicas_t *team;
    tutti_device_t *const *devices;
    uint64_t seed;
    tutti_status_t statuses[TUTTI_DATA_PARALLEL_MAX];
} opening_t;

static void open_context(void *user, int index)
{
    opening_t *opening = user;
    const tutti_context_options_t options = {
        .threads = opening->team->threads,
        .seed = opening->seed,
        .device = opening->devices == NULL ? NULL : opening->devices[index]};
    opening->statuses[index] = tutti_context_create(&options, &opening->team->replicas[index].ctx);
}

static tutti_status_t open_contexts(tt_replicas_t *team, tutti_device_t *const *devices)
{
    opening_t opening = {
        .team = team, .devices = devices, .seed = tutti_context_seed(team->original->ctx)};
    tt_thread_team_run(team->team, team->count,
                       &(tt_thread_team_job_t){.run = open_context, .user = &opening});
    for (int i = 0; i < team->count; i++) {
        if (opening.statuses[i] < 0) {
            return TT_FAIL(opening.statuses[i],
                           "data_parallel: cannot start %d threads for replica %d", team->threads,
                           i);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_module(void *user, const char *name, tutti_module_t *m)
{
    (void)user;
    if (tt_writes_its_table(m)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "data_parallel: %s has max_norm, by which each replica would write other "
                       "rows of its table: leave it out, and bound rows behind the step",
                       name[0] == 0 ? "the module" : name);
    }
    if (tutti_module_kind(m) != &tutti_sync_batch_norm_layer) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "data_parallel: %s is a sync_batch_norm, whose ranks are processes: take DDP, "
                   "or batch_norm",
                   name[0] == 0 ? "the module" : name);
}

static tutti_status_t check_device(const tt_replicas_t *team, const tt_tensor_list_t *list)
{
    const tt_device_t *first = tt_replica_device(team, 0);
    for (size_t k = 0; k < list->count; k++) {
        const tt_device_t *device = tt_listed(list, k)->storage->device;
        if (device != first) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "data_parallel: %s lies on %s, but the first replica's device is %s: "
                           "move the module there",
                           list->items[k].name, tt_device_text(device), tt_device_text(first));
        }
    }
    return TUTTI_OK;
}

static int share_of_cores(int replicas)
{
    tt_core_set_t allowed;
    const int cores = tt_core_set_of(0, &allowed);
    return cores > replicas ? cores / replicas : 1;
}

static tutti_status_t fill(tt_replicas_t *team, const tutti_data_parallel_options_t *options)
{
    TT_TRY(tutti_module_apply(team->original, check_module, NULL));
    TT_TRY(tutti_module_each_parameter(team->original, tt_tensor_list_add, &team->params));
    TT_TRY(tutti_module_each_buffer(team->original, tt_tensor_list_add, &team->buffers));
    team->threads = options->threads > 0 ? options->threads : share_of_cores(options->replicas);
    TT_TRY(tt_thread_team_start(options->replicas, team->threads, &team->team));
    team->count = options->replicas;
    TT_TRY(open_contexts(team, options->devices));
    TT_TRY(check_device(team, &team->params));
    TT_TRY(check_device(team, &team->buffers));
    for (int i = 0; i < team->count; i++) {
        TT_TRY(build_replica(team, i, options));
    }
    return tt_replicas_update(team);
}

tutti_status_t tt_replicas_new(tutti_module_t *original,
                               const tutti_data_parallel_options_t *options, tt_replicas_t **out)
{
    tt_replicas_t *team = tt_alloc(sizeof *team, "replicas");
    TT_TRY_ALLOC(team);
    tt_ref_init(&team->ref);
    team->original = tutti_module_retain(original);
    const tutti_status_t status = fill(team, options);
    if (status < 0) {
        tt_replicas_release(team);
        return status;
    }
    *out = team;
    return TUTTI_OK;
}

void tt_replicas_release(tt_replicas_t *team)
{
    if (team == NULL || !tt_ref_release(&team->ref)) {
        return;
    }
    for (int i = 0; i < team->count; i++) {
        tt_replica_t *replica = &team->replicas[i];
        tt_tensor_list_release(&replica->params);
        tt_tensor_list_release(&replica->buffers);
        tt_free(replica->replicated);
        tutti_module_release(replica->module);
        tutti_context_release(replica->ctx);
    }
    tt_thread_team_stop(team->team);
    tt_tensor_list_release(&team->params);
    tt_tensor_list_release(&team->buffers);
    tutti_module_release(team->original);
    tt_free(team);
}
