/* Parameters in 16 bits: the optimizer keeps an f32 master of each, steps that, and rounds it into
 * the parameter. So updates that are small beside a weight add up, rather than be lost.
 *
 * A gradient in 16 bits, or with gaps in it, is copied once, as f32 in a row, when a step, a
 * clipping or an unscaling first asks; they work on the copy, so that unscaling loses no small
 * number of f16, and nobody's tensor is replaced. Whether it is still that gradient is told by its
 * storage's count of writes.
 *
 * What is written into a parameter is right: where the master does not round to what the parameter
 * holds, it takes the parameter's value. Elsewhere it keeps its own, so that the order in which
 * weights and state are loaded does not matter.
 *
 * Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.1. */
#include "compute/optim/optim_offload.h"
#include "compute/optim/optimizer.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tt_strided_t out, x;
} convert_t;

static tutti_status_t run_convert(tt_threads_t *threads, const void *arguments)
{
    const convert_t *c = arguments;
    tt_map_now(threads, 1, TT_UNARY_COPY, (tt_map_params_t){0},
               (const tt_strided_t *[]){&c->out, &c->x});
    return TUTTI_OK;
}

static const tt_pointer_t convert_pointers[] = {TT_POINTER(convert_t, out.data),
                                                TT_POINTER(convert_t, x.data), TT_NO_POINTER};
static const tt_kernel_t kernel_convert =
    TT_KERNEL_ALWAYS("optim_convert", convert_t, run_convert, convert_pointers);

tutti_status_t tt_optim_convert(tutti_context_t *ctx, tutti_tensor_t *to,
                                const tutti_tensor_t *from)
{
    const convert_t c = {tt_tensor_strided(to), tt_tensor_strided(from)};
    TT_TRY(tt_launch(tt_tensor_exec(ctx, from), &kernel_convert, &c));
    tt_tensor_touch(to);
    return TUTTI_OK;
}

static void release_copy(tt_optim_slot_t *slot)
{
    tutti_tensor_release(slot->flat_grad);
    tutti_tensor_release(slot->given_grad);
    slot->flat_grad = slot->given_grad = NULL;
}

static tutti_status_t flatten(tutti_optim_t *opt, tt_optim_slot_t *slot, tutti_tensor_t *grad)
{
    const uint32_t version = grad->storage->version;
    if (slot->flat_grad != NULL && slot->flat_grad->storage->device != grad->storage->device) {
        release_copy(slot);
    }
    if (slot->flat_grad == NULL) {
        TT_TRY(
            tt_tensor_new(grad->storage->device, TUTTI_F32, grad->shape, false, &slot->flat_grad));
    }
    if (slot->given_grad != grad || slot->given_version != version) {
        TT_TRY(tt_optim_convert(opt->ctx, slot->flat_grad, grad));
        tutti_tensor_release(slot->given_grad);
        slot->given_grad = tutti_tensor_retain(grad);
        slot->given_version = version;
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_flat_grad(tutti_optim_t *opt, tt_optim_slot_t *slot, tutti_tensor_t **out)
{
    tutti_tensor_t *grad = tt_optim_grad(slot);
    if (grad != NULL) {
        TT_TRY(tt_tensor_check_named(grad, slot->name));
        TT_TRY(tt_optim_check_dtype(opt, slot->name, slot->tensor));
    }
    if (grad != NULL && (grad->dtype != TUTTI_F32 || !tutti_tensor_is_contiguous(grad))) {
        TT_TRY(flatten(opt, slot, grad));
        grad = slot->flat_grad;
    } else if (grad != NULL) {
        release_copy(slot); /* of before a cast */
    }
    *out = grad;
    return TUTTI_OK;
}

typedef struct {
    float *master;
    const uint16_t *have, *want;
    const float *taken;
    int64_t n;
} reconcile_t;

static tutti_status_t run_reconcile(tt_threads_t *threads, const void *arguments)
{
    const reconcile_t *r = arguments;
    (void)threads;
    for (int64_t i = 0; i < r->n; i++) {
        r->master[i] = r->have[i] == r->want[i] ? r->master[i] : r->taken[i];
    }
    return TUTTI_OK;
}

static const tt_pointer_t reconcile_pointers[] = {
    TT_POINTER(reconcile_t, master), TT_POINTER(reconcile_t, have), TT_POINTER(reconcile_t, want),
    TT_POINTER(reconcile_t, taken), TT_NO_POINTER};
static const tt_kernel_t kernel_reconcile =
    TT_KERNEL_ALWAYS("optim_master", reconcile_t, run_reconcile, reconcile_pointers);

static tutti_status_t launch_reconcile(tutti_context_t *ctx, tutti_tensor_t *master,
                                       const tutti_tensor_t *x, tutti_tensor_t *rounded,
                                       tutti_tensor_t *exact)
{
    const reconcile_t r = {tt_tensor_data(master), tt_tensor_data(rounded), tt_tensor_data(x),
                           tt_tensor_data(exact), x->numel};
    TT_TRY(tt_optim_convert(ctx, rounded, master));
    TT_TRY(tt_optim_convert(ctx, exact, x));
    return tt_launch(tt_tensor_exec(ctx, x), &kernel_reconcile, &r);
}

tutti_status_t tt_optim_reconcile(tutti_context_t *ctx, tutti_tensor_t *master,
                                  const tutti_tensor_t *x)
{
    tutti_tensor_t *rounded, *exact;
    tt_device_t *device = x->storage->device;
    TT_TRY(tt_tensor_new(device, x->dtype, x->shape, false, &rounded));
    tutti_status_t status = tt_tensor_new(device, TUTTI_F32, x->shape, false, &exact);
    if (status >= 0) {
        status = launch_reconcile(ctx, master, x, rounded, exact);
        tutti_tensor_release(exact);
    }
    tutti_tensor_release(rounded);
    return status;
}

static tutti_status_t reconcile(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    if (tt_optim_is_offloaded(opt, slot)) {
        slot->due = slot->due == TT_MASTER_IS_NEW ? TT_MASTER_IS_NEW : TT_MASTER_MEETS;
        return TUTTI_OK;
    }
    return tt_optim_reconcile(opt->ctx, slot->master, tt_optim_weight(slot));
}

static tutti_status_t make_master(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    const tutti_tensor_t *x = tt_optim_weight(slot);
    tutti_tensor_t *master;
    TT_TRY(tt_tensor_new(tt_optim_state_device(opt, slot), TUTTI_F32, x->shape, false, &master));
    tutti_status_t status = tt_optim_like_part(master, x);
    if (tt_optim_is_offloaded(opt, slot)) {
        slot->due = TT_MASTER_IS_NEW;
    } else if (status >= 0) {
        status = tt_optim_convert(opt->ctx, master, x);
    }
    if (status < 0) {
        tutti_tensor_release(master);
        return status;
    }
    slot->master = master;
    return TUTTI_OK;
}

tutti_status_t tt_optim_prepare_master(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    const tutti_tensor_t *x = tt_optim_weight(slot);
    if (x->dtype == TUTTI_F32) {
        tutti_tensor_release(slot->master); /* of before a cast */
        slot->master = NULL;
        return TUTTI_OK;
    }
    if (slot->master == NULL) {
        TT_TRY(make_master(opt, slot));
    } else if (slot->is_master_loaded || slot->version != x->storage->version) {
        TT_TRY(reconcile(opt, slot));
    }
    slot->is_master_loaded = false;
    slot->version = x->storage->version;
    return TUTTI_OK;
}

tutti_status_t tt_optim_round_master(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    if (slot->master != NULL) {
        tutti_tensor_t *x = tt_optim_weight(slot);
        TT_TRY(tt_tensor_convert(tt_tensor_exec(opt->ctx, x), x, slot->master));
        slot->version = x->storage->version;
    }
    return TUTTI_OK;
}

void tt_optim_release_master(tt_optim_slot_t *slot)
{
    release_copy(slot);
    tutti_tensor_release(slot->master);
    slot->master = NULL;
}
