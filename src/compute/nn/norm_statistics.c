/* Running statistics of batch norm, made again. See averaged.h. */
#include <tutti/averaged.h>

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

/* NULL: of another kind, or without running statistics, or another rank's. */
static tt_channel_norm_t *norm_of(tutti_module_t *m)
{
    tt_channel_norm_t *norm =
        m->ops->forward_many == tt_batch_norm_layer_forward ? tutti_module_state(m) : NULL;
    return norm != NULL && norm->running_mean != NULL &&
                   tt_device_has_values(norm->running_mean->storage->device)
               ? norm
               : NULL;
}

static tutti_status_t check(void *begins, const char *name, tutti_module_t *m)
{
    const tt_channel_norm_t *norm = norm_of(m);
    return norm == NULL || norm->is_renewed != *(const bool *)begins
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "norm_statistics: of \"%s\" they are %s", name,
                         norm->is_renewed ? "being made already" : "not being made");
}

static tutti_status_t forget(void *user, const char *name, tutti_module_t *m)
{
    const tt_channel_norm_t *norm = norm_of(m);
    (void)user, (void)name;
    if (norm == NULL) {
        return TUTTI_OK;
    }
    const tt_event_t before = tt_device_event(norm->running_mean->storage->device);
    TT_TRY(tutti_tensor_fill(norm->running_mean, 0));
    TT_TRY(tutti_tensor_fill(norm->running_var, 1));
    TT_TRY(tutti_tensor_fill(norm->batches, 0));
    return tt_device_check_since(before);
}

static tutti_status_t begin(void *user, const char *name, tutti_module_t *m)
{
    tt_channel_norm_t *norm = norm_of(m);
    (void)user, (void)name;
    if (norm != NULL && !norm->is_renewed) { /* it may stand in two places */
        norm->is_renewed = true;
        norm->was_cumulative = norm->is_cumulative;
        norm->is_cumulative = true;
    }
    return TUTTI_OK;
}

static tutti_status_t end(void *user, const char *name, tutti_module_t *m)
{
    tt_channel_norm_t *norm = norm_of(m);
    (void)user, (void)name;
    if (norm != NULL) {
        norm->is_renewed = false;
        norm->is_cumulative = norm->was_cumulative;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_norm_statistics_begin(tutti_module_t *m)
{
    bool begins = true;
    TT_WANT("norm_statistics_begin", m);
    TT_TRY(tutti_module_apply(m, check, &begins));
    TT_TRY(tutti_module_apply(m, forget, NULL)); /* what fails has not begun */
    return tutti_module_apply(m, begin, NULL);
}

tutti_status_t tutti_norm_statistics_end(tutti_module_t *m)
{
    bool begins = false;
    TT_WANT("norm_statistics_end", m);
    TT_TRY(tutti_module_apply(m, check, &begins));
    return tutti_module_apply(m, end, NULL);
}
