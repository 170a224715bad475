/* Is the model the same on every rank? Rank 0 sends a description, a line for each tensor, all
 * others compare; then they agree, so that every rank fails and says where (group_agree.c).
 */
#include <tutti/nn_layers.h>
#include <tutti/objects.h>

#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "compute/nn/layers/embedding_table.h"
#include "core/base/alloc.h"
#include "core/base/fnv.h"
#include "compute/optim/optimizer.h"
#include "parallel/ddp/ddp_impl.h"

/* Text with room for `bytes`; `used` counts what it wants. Devices are numbered as the module comes
 * to them: those of two ranks have other names, and the same numbers. */
typedef struct {
    const tutti_ddp_t *ddp;
    char *text;
    size_t bytes, used;
    const tt_device_t **devices; /* [device_count] */
    int device_count;
} description_t;

static tutti_status_t find_number(description_t *d, const tt_device_t *device, int *number)
{
    int i = 0;
    while (i < d->device_count && d->devices[i] != device) {
        i++;
    }
    if (i == d->device_count) {
        const tt_device_t **devices =
            tt_realloc(d->devices, (size_t)(i + 1) * sizeof(*devices), "ddp description");
        TT_TRY_ALLOC(devices);
        d->devices = devices;
        d->devices[d->device_count++] = device;
    }
    *number = i;
    return TUTTI_OK;
}

static char *end_of(const description_t *d)
{
    return d->used < d->bytes ? d->text + d->used : NULL;
}

static size_t room_of(const description_t *d)
{
    return d->used < d->bytes ? d->bytes - d->used : 0;
}

/* What would make its values: its numbers, and the stream. */
static unsigned long long draw_of(const tutti_tensor_t *x)
{
    const tt_initializer_t *init = x->storage->initializer;
    if (init == NULL) {
        return 0;
    }
    const uint64_t hash = tt_fnv(TT_FNV_BEGIN, init->numbers, sizeof init->numbers);
    return tt_fnv(hash, &init->rng, sizeof init->rng);
}

static tutti_status_t append_tensor(void *user, const char *name, tutti_tensor_t *tensor)
{
    description_t *d = user;
    char what[192], where[64] = "";
    int number = 0;
    if (tt_ddp_is_ignored(d->ddp, tensor)) { /* ranks may have others */
        d->used += (size_t)snprintf(end_of(d), room_of(d), "%s, ignored\n", name);
        return TUTTI_OK;
    }
    if (tt_ddp_is_on_meta(tensor)) {
        snprintf(where, sizeof where, ", on meta, from draw %016llx",
                 d->ddp->options.no_init ? 0 : draw_of(tensor));
    } else {
        TT_TRY(find_number(d, tensor->storage->device, &number));
    }
    if (number > 0) {
        snprintf(where, sizeof where, ", on device %d of the module", number + 1);
    }
    d->used += (size_t)snprintf(end_of(d), room_of(d), "%s %s%s%s\n", name,
                                tutti_tensor_describe(tensor, what, sizeof what),
                                tutti_tensor_requires_grad(tensor) ? "" : ", no gradient", where);
    return TUTTI_OK;
}

/* What else would be found by other numbers of bytes, much later. */
static void append_units(const tutti_ddp_t *ddp, description_t *d)
{
    const tutti_ddp_options_t *o = &ddp->options;
    if (!tt_ddp_has_units(ddp)) {
        return;
    }
    d->used += (size_t)snprintf(
        end_of(d), room_of(d),
        "units: of kind %s, of %zu bytes, %d by name; kept below %zu bytes, prefetch %d%s%s, "
        "resharded to %d ranks\n",
        o->units.kind == NULL ? "none" : o->units.kind, o->units.bytes, o->units.name_count,
        o->persistence_bytes, o->prefetch, o->keep_after_forward ? ", kept after forward" : "",
        o->keep_after_backward ? ", kept after backward" : "", o->reshard_ranks);
    d->used += (size_t)snprintf(end_of(d), room_of(d), "parameters %s\n",
                                o->offload == NULL ? "in memory" : "on disks");
    for (int i = 0; i < tutti_mesh_dims(o->mesh); i++) {
        const char *name = tutti_mesh_name(o->mesh, i);
        d->used += (size_t)snprintf(end_of(d), room_of(d), "%s%s %d%s", i == 0 ? "mesh: " : ", ",
                                    name, tutti_mesh_size(o->mesh, name),
                                    i + 1 == tutti_mesh_dims(o->mesh) ? "\n" : "");
    }
    d->used += tt_ddp_describe_units(ddp, end_of(d), room_of(d));
}

static tutti_status_t append_all(const tutti_ddp_t *ddp, description_t *d)
{
    static const char *const uneven[] = {"even", "weighted", "initial", "active"};
    const tutti_ddp_options_t *o = &ddp->options;
    d->used = (size_t)snprintf(
        d->text, d->bytes,
        "options: stage %d, %d shards%s, buckets of %zu and %zu bytes, %s%s%s%s%s%s%s%s\n"
        "dtypes: parameters %s, reduced in %s, buffers %s%s%s\n",
        o->stage, o->shards, o->accumulate == TUTTI_DDP_LOCAL ? "" : " whose sums are sharded",
        o->first_bucket_bytes, o->bucket_bytes, uneven[o->uneven],
        o->ends_with_first ? ", ends with the first" : "",
        o->static_graph ? ", a static graph" : "", o->no_rebuild ? ", no rebuild" : "",
        ddp->is_exact ? "" : ", not exact", o->optimizer == NULL ? "" : ", steps in backward by ",
        o->optimizer == NULL ? "" : o->optimizer->ops->name,
        o->whole_slices ? ", whole slices" : "", tutti_dtype_name(o->param_dtype),
        tutti_dtype_name(o->reduce_dtype), tutti_dtype_name(o->buffer_dtype),
        o->f32_output ? ", the output f32" : "", o->no_init ? ", not initialized" : "");
    for (int i = 0; i < o->f32_kind_count; i++) {
        d->used +=
            (size_t)snprintf(end_of(d), room_of(d), "computed in f32: %s\n", o->f32_kinds[i]);
    }
    append_units(ddp, d);
    return tutti_module_each_tensor(ddp->module, append_tensor, d);
}

static tutti_status_t describe(const tutti_ddp_t *ddp, description_t *d)
{
    TT_TRY(append_all(ddp, d)); /* to know how long it is */
    d->bytes = d->used + 1;
    d->text = tt_alloc(d->bytes, "ddp description");
    TT_TRY_ALLOC(d->text);
    return append_all(ddp, d);
}

static tutti_status_t compare(int rank, const char *own, const char *first)
{
    while (*own != 0 || *first != 0) {
        const int own_bytes = (int)strcspn(own, "\n"), first_bytes = (int)strcspn(first, "\n");
        if (own_bytes != first_bytes || memcmp(own, first, (size_t)own_bytes) != 0) {
            return TT_FAIL(
                TUTTI_ERR_MISMATCH,
                "ddp: the model is not the same on every rank: rank %d has \"%.*s\" where "
                "rank 0 has \"%.*s\"",
                rank, own_bytes, own, first_bytes, first);
        }
        own += own_bytes + (own[own_bytes] != 0);
        first += first_bytes + (first[first_bytes] != 0);
    }
    return TUTTI_OK;
}

/* With OK on every rank, or the same failure on every rank. A rank that has failed before sends no
 * text; where that is rank 0, nobody can compare. */
static tutti_status_t compare_everywhere(tutti_ddp_t *ddp, const description_t *own,
                                         tutti_status_t status)
{
    char error[TT_ERROR_TEXT_BYTES];
    tutti_buffer_t first;
    snprintf(error, sizeof error, "%s", status < 0 ? tutti_last_error() : "");
    const tutti_status_t came = tutti_broadcast_bytes(
        ddp->group, tutti_bytes_of(own->text, status < 0 ? 0 : own->used), 0, &first);
    if (came < 0) {
        return tt_group_give_up(ddp->group, came);
    }
    if (status < 0) {
        (void)tt_fail_again(status, error);
    } else if (first.bytes > 0) {
        status = compare(tutti_group_rank(ddp->group), own->text, first.data);
    }
    tutti_buffer_release(&first);
    return tt_group_agree(ddp->group, status);
}

/* A module whose forward writes its table, where shards compute with copies. */
static bool writes_a_copy(const tutti_ddp_t *ddp, const tutti_module_t *m)
{
    if (!tt_writes_its_table(m)) {
        return false;
    }
    const tutti_tensor_t *table = ((const tt_embedding_table_t *)m->state)->weight;
    const bool is_low = ddp->options.param_dtype != TUTTI_F32 && !tt_ddp_stays_f32(ddp, table);
    return (ddp->options.stage == 3 || is_low) && !tt_ddp_is_ignored(ddp, table);
}

/* Statistics over all ranks' samples are needed in the middle of a shard's forward, and a forward
 * that writes a parameter would write another one's rows on each rank. */
static tutti_status_t check_module(void *user, const char *name, tutti_module_t *m)
{
    const tutti_ddp_t *ddp = user;
    const int size = tutti_group_size(ddp->group);
    if (tt_writes_its_table(m) && ddp->options.shards > 1) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: %s has max_norm, by which each of %d shards would write other rows of "
                       "its table: leave it out, and bound rows behind the step",
                       name[0] == 0 ? "the module" : name, ddp->options.shards);
    }
    if (writes_a_copy(ddp, m)) {
        return TT_FAIL(
            TUTTI_ERR_UNSUPPORTED,
            "ddp: %s has max_norm, by which forward writes its table, but at stage 3 and "
            "under param_dtype that is a copy: bound rows behind the step",
            name[0] == 0 ? "the module" : name);
    }
    if (tutti_module_kind(m) != &tutti_sync_batch_norm_layer || ddp->options.shards == size) {
        return TUTTI_OK;
    }
    return TT_FAIL(
        TUTTI_ERR_UNSUPPORTED,
        "ddp: %d shards on %d ranks, and %s is a sync_batch_norm, which needs one shard on "
        "every rank: take as many shards as ranks, or batch_norm",
        ddp->options.shards, size, name[0] == 0 ? "the module" : name);
}

tutti_status_t tt_ddp_check_model(tutti_ddp_t *ddp, tutti_status_t status)
{
    description_t own = {.ddp = ddp};
    if (status >= 0) {
        status = tutti_module_apply(ddp->module, check_module, ddp);
    }
    if (status >= 0) {
        status = describe(ddp, &own);
    }
    status = compare_everywhere(ddp, &own, status);
    tt_free(own.devices);
    tt_free(own.text);
    return status;
}

static tutti_status_t check_device(const char *name, const tutti_tensor_t *x,
                                   const tutti_tensor_t *grad)
{
    return x->storage->device == grad->storage->device
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: %s lies on %s, and lay on %s when ddp was made: move the module "
                         "before",
                         name, tt_device_text(x->storage->device),
                         tt_device_text(grad->storage->device));
}

static tutti_status_t check_dtype(const char *name, const tutti_tensor_t *x, tutti_dtype_t was)
{
    return x->dtype == was
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: %s is %s, and was %s when ddp was made: cast the module before",
                         name, tutti_dtype_name(x->dtype), tutti_dtype_name(was));
}

tutti_status_t tt_ddp_check_unchanged(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        const tt_ddp_param_t *param = &ddp->params[i];
        const tutti_tensor_t *result = ddp->reducer->slots[i].result;
        TT_TRY(check_dtype(param->name, param->tensor, result->dtype));
        TT_TRY(check_device(param->name, param->tensor, result));
    }
    TT_TRY(tt_ddp_check_slices(ddp));
    for (size_t i = 0; i < ddp->frozen.count; i++) {
        if (tutti_tensor_requires_grad(tt_listed(&ddp->frozen, i))) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp: parameter %s requires a gradient, and did not when ddp was made: "
                           "nobody would average it",
                           ddp->frozen.items[i].name);
        }
    }
    return tt_ddp_check_buffers(ddp);
}

static tutti_status_t broadcast_tensor(void *user, const char *name, tutti_tensor_t *tensor)
{
    (void)name;
    const tutti_ddp_t *ddp = user;
    if (tt_ddp_is_ignored(ddp, tensor) || tt_ddp_is_unmade(ddp, tensor) ||
        tt_slice_is_elsewhere(tensor)) {
        return TUTTI_OK;
    }
    if (tensor->storage->device == NULL) {
        return tutti_broadcast(ddp->group, tensor, 0, NULL);
    }
    tutti_tensor_t *host; /* what ranks share is memory of hosts */
    TT_TRY(tt_tensor_new(NULL, tensor->dtype, tensor->shape, false, &host));
    tutti_status_t status = tutti_tensor_copy(host, tensor);
    if (status >= 0) {
        status = tutti_broadcast(ddp->group, host, 0, NULL);
    }
    if (status >= 0) {
        status = tutti_tensor_copy(tensor, host);
    }
    tutti_tensor_release(host);
    return status;
}

tutti_status_t tt_ddp_broadcast_model(tutti_ddp_t *ddp)
{
    const tutti_status_t status = tutti_module_each_tensor(ddp->module, broadcast_tensor, ddp);
    return status < 0 ? tt_group_give_up(ddp->group, status) : TUTTI_OK;
}
