/* What is asked of parameters that no rank has as a whole: to be read, written, digested, counted.
 */
#include <tutti/sharded.h>

#include "comm/group/agree.h"
#include "compute/nn/module_impl.h"
#include "core/base/integers.h"
#include "parallel/ddp/ddp_impl.h"

/* ---- summons --------------------------------------------------------------------------------- */

static tutti_status_t check_between_steps(const tutti_ddp_t *ddp, const char *what)
{
    return ddp->step.phase == TT_DDP_BETWEEN_STEPS
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s in the middle of a step", what);
}

/* Small parameters of a module are in the unit of those that are kept. */
static bool is_summoned(const tutti_ddp_t *ddp, const tt_ddp_summons_t *summons, int unit)
{
    return (unit >= summons->first && unit < summons->end) ||
           (summons->writes && tt_ddp_unit(ddp, unit)->is_kept);
}

/* All of them go before one comes back: what a rank of gathering ones has is its own. */
static tutti_status_t leave_summoned(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    for (int u = 0; u < ddp->units.count && ddp->units.source.ops->is_common; u++) {
        TT_TRY(is_summoned(ddp, summons, u) ? tt_ddp_unit_leave(ddp, u, TT_UNIT_FULL) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t bring_summoned(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    for (int u = 0; u < ddp->units.count; u++) {
        TT_TRY(is_summoned(ddp, summons, u) ? tt_ddp_unit_summon(ddp, u) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* For writing in memory of this rank: what all have is read by others meanwhile. A unit that was
 * written before goes with a failure on this rank, which all hear of. */
static tutti_status_t bring(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    if (!summons->writes) {
        return bring_summoned(ddp, summons);
    }
    TT_TRY(tt_group_agree(ddp->group, leave_summoned(ddp, summons)));
    tt_ddp_units_copy(ddp, true);
    const tutti_status_t status = bring_summoned(ddp, summons);
    tt_ddp_units_copy(ddp, false);
    return status;
}

tutti_status_t tutti_ddp_summon(tutti_ddp_t *ddp, const char *unit, bool writes)
{
    tt_ddp_summons_t summons = {.is_on = true, .writes = writes};
    TT_TRY(check_between_steps(ddp, "ddp_summon"));
    if (ddp->summons.is_on) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp_summon: call tutti_ddp_dismiss() first");
    }
    TT_TRY(tt_ddp_find_units(ddp, "ddp_summon", unit, &summons.first, &summons.end));
    TT_TRY(bring(ddp, &summons));
    ddp->summons = summons;
    return TUTTI_OK;
}

static void touch_params(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_tensor_touch(ddp->params[i].tensor);
    }
    for (size_t i = 0; i < ddp->frozen.count; i++) {
        tt_tensor_touch(tt_listed(&ddp->frozen, i));
    }
}

static tutti_status_t dismiss_read(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    tutti_status_t status = TUTTI_OK;
    for (int u = summons->first; u < summons->end; u++) {
        const tutti_status_t one = tt_ddp_unit_dismiss(ddp, u);
        status = status < 0 ? status : one;
    }
    return status;
}

static tutti_status_t check_there(const tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    for (int u = 0; u < ddp->units.count; u++) {
        const tt_unit_t *unit = tt_ddp_unit(ddp, u);
        if (is_summoned(ddp, summons, u) && unit->states[TT_UNIT_FULL] != TT_UNIT_THERE) {
            char name[TT_MODULE_NAME_BYTES + 32];
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp_dismiss: %s went before it was dismissed: what was written is lost",
                           tt_ddp_unit_name(unit, name, sizeof name));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t write_back(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    for (int u = 0; u < ddp->units.count; u++) {
        TT_TRY(is_summoned(ddp, summons, u) ? tt_ddp_unit_write_back(ddp, u) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* From the claim on a failure is for good: slices of some ranks have been written. */
static tutti_status_t write_summoned(tutti_ddp_t *ddp, const tt_ddp_summons_t *summons)
{
    TT_TRY(tt_group_agree(ddp->group, check_there(ddp, summons)));
    tutti_status_t status = tt_group_agree(ddp->group, tt_ddp_units_claim(ddp));
    if (status >= 0) {
        status = tt_group_agree(ddp->group, write_back(ddp, summons));
    }
    if (status < 0) {
        return tt_ddp_fail(ddp, status);
    }
    for (int u = summons->first; u < summons->end; u++) {
        tt_ddp_note_written(ddp, u);
    }
    return tt_group_agree(ddp->group, tt_ddp_units_publish(ddp));
}

tutti_status_t tutti_ddp_dismiss(tutti_ddp_t *ddp)
{
    const tt_ddp_summons_t summons = ddp->summons;
    if (!summons.is_on) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp_dismiss: nothing is summoned");
    }
    ddp->summons = (tt_ddp_summons_t){0};
    if (!summons.writes) {
        return dismiss_read(ddp, &summons);
    }
    if (!tt_ddp_has_units(ddp)) {
        touch_params(ddp);
        return TUTTI_OK;
    }
    return write_summoned(ddp, &summons);
}

/* ---- a digest -------------------------------------------------------------------------------- */

typedef struct {
    tutti_ddp_t *ddp;
    int unit;      /* that is there for the digest; -1: none */
    bool was_held; /* before */
} reading_t;

static int unit_of(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        if (ddp->units.params[i].tensor == x) {
            return ddp->units.params[i].unit;
        }
    }
    return -1;
}

static tutti_status_t end_unit(reading_t *reading)
{
    const int unit = reading->unit;
    reading->unit = -1;
    return unit < 0 || reading->was_held ? TUTTI_OK : tt_ddp_unit_dismiss(reading->ddp, unit);
}

static tutti_status_t begin_unit(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    reading_t *reading = user;
    const int unit = unit_of(reading->ddp, x);
    if (unit < 0 || unit == reading->unit) {
        return TUTTI_OK;
    }
    TT_TRY(end_unit(reading));
    reading->was_held = reading->ddp->order.turns.units[unit].is_held;
    reading->unit = unit;
    return tt_ddp_unit_summon(reading->ddp, unit);
}

tutti_status_t tutti_ddp_digest(tutti_ddp_t *ddp, char *text)
{
    reading_t reading = {.ddp = ddp, .unit = -1};
    TT_TRY(check_between_steps(ddp, "ddp_digest"));
    tutti_status_t status = tt_module_digest(ddp->module, begin_unit, &reading, text);
    const tutti_status_t end = end_unit(&reading);
    return status < 0 ? status : end;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t bytes_of_list(const tt_tensor_list_t *list)
{
    size_t bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        bytes += tutti_tensor_bytes(tt_listed(list, i));
    }
    return bytes;
}

static size_t bytes_if_there(const tutti_tensor_t *x)
{
    return x != NULL && x->storage->away == NULL ? tutti_tensor_bytes(x) : 0;
}

static size_t whole_parameters(const tutti_ddp_t *ddp)
{
    size_t bytes = bytes_of_list(&ddp->list) + bytes_of_list(&ddp->frozen);
    for (int i = 0; i < ddp->mixed.count; i++) {
        const tutti_tensor_t *other = ddp->mixed.copies[i].other;
        bytes += other != NULL ? tutti_tensor_bytes(other) : 0;
    }
    return bytes;
}

/* Memory of this rank alone that the whole of small parameters has, which are resident. */
static size_t kept_bytes(const tutti_ddp_t *ddp)
{
    const int last = ddp->units.count - 1;
    const bool is_own = !ddp->units.source.ops->is_common && tutti_group_size(ddp->units.group) > 1;
    return tt_ddp_unit(ddp, last)->is_kept && is_own ? tt_ddp_unit_bytes(ddp, last, TT_UNIT_FULL)
                                                     : 0;
}

static size_t sliced_parameters(const tutti_ddp_t *ddp)
{
    const tt_unit_source_t *source = &ddp->units.source;
    size_t bytes = 0;
    for (int f = 0; f < source->flat_count; f++) {
        const tt_unit_flat_t *flat = &source->flats[f];
        const tutti_tensor_t *slice = tt_ddp_unit_slice(ddp, f);
        const bool is_apart = slice != flat->own && slice->storage->device == NULL;
        bytes += bytes_if_there(flat->own) + (is_apart ? tutti_tensor_bytes(slice) : 0);
        if (flat->dtypes[TT_UNIT_COMPUTE] != flat->dtypes[TT_UNIT_FULL] && !tt_ddp_has_store(ddp)) {
            bytes += (size_t)flat->own->numel * tutti_dtype_bytes(flat->dtypes[TT_UNIT_COMPUTE]);
        }
    }
    return bytes + kept_bytes(ddp);
}

static size_t gradients_of(const tt_bucket_t *bucket)
{
    size_t bytes = bytes_if_there(bucket->grad);
    for (int i = 0; i < TT_TREE_DEPTH_MAX; i++) {
        bytes += bytes_if_there(bucket->sums[i]);
    }
    if (bucket->travel != bucket->grad) {
        bytes += bytes_if_there(bucket->travel);
    }
    for (int i = 1; i < bucket->rounds.sum_count; i++) {
        bytes += bytes_if_there(bucket->rounds.sums[i]);
    }
    if (bucket->own_result->storage == bucket->result->storage) {
        return bytes;
    }
    bytes += bytes_if_there(bucket->own_result);
    if (bucket->own_total != bucket->own_result) {
        bytes += bytes_if_there(bucket->own_total);
    }
    if (bucket->own_travel != bucket->own_result) {
        bytes += bytes_if_there(bucket->own_travel);
    }
    return bytes;
}

static tutti_status_t add_state(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(size_t *)user += tutti_tensor_rank(x) == 0 ? 0 : tutti_tensor_bytes(x);
    return TUTTI_OK;
}

static void count_units(const tutti_ddp_t *ddp, tutti_ddp_memory_t *out)
{
    const tt_unit_kind_t kind =
        ddp->options.param_dtype == TUTTI_F32 ? TT_UNIT_FULL : TT_UNIT_COMPUTE;
    out->units = ddp->units.count;
    const size_t kept = kept_bytes(ddp), held = ddp->units.source.held_bytes;
    out->unit_bytes = held > kept ? held - kept : 0;
    out->peak_unit_bytes = ddp->units.source.peak_held_bytes - kept;
    for (int u = 0; u < ddp->units.count; u++) {
        if (!tt_ddp_unit(ddp, u)->is_kept) {
            out->largest_unit_bytes =
                tt_max_size(out->largest_unit_bytes, tt_ddp_unit_bytes(ddp, u, kind));
        }
    }
    out->gathered_bytes = ddp->units.source.gathered_bytes + ddp->units.rows.received_bytes;
    out->near_bytes = ddp->units.source.near_bytes;
    out->sent_bytes += tutti_group_sent_bytes(ddp->units.group, NULL) +
                       tutti_group_sent_bytes(ddp->units.source.near, NULL) +
                       tutti_group_sent_bytes(ddp->units.rows.group, NULL);
}

tutti_ddp_memory_t tutti_ddp_memory(const tutti_ddp_t *ddp, tutti_optim_t *opt)
{
    tutti_ddp_memory_t out = {
        .stage = ddp->options.stage,
        .parameter_bytes = bytes_of_list(&ddp->ignored.params) +
                           (tt_ddp_has_units(ddp) ? sliced_parameters(ddp) : whole_parameters(ddp)),
        .local_traffic = tt_reducer_traffic(ddp->reducer, false),
        .sharded_traffic = tt_reducer_traffic(ddp->reducer, true),
        .sent_bytes = tutti_group_sent_bytes(ddp->group, NULL) - ddp->sent_before +
                      tutti_group_sent_bytes(ddp->slices.group, NULL)};
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        out.gradient_bytes += gradients_of(&ddp->reducer->buckets[b]);
    }
    if (opt != NULL) {
        (void)tutti_optim_each_state(opt, add_state, &out.optimizer_bytes);
    }
    if (tt_ddp_has_units(ddp)) {
        count_units(ddp, &out);
    }
    return out;
}
