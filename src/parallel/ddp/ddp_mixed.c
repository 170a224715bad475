/* Mixed precision: while a step lasts, the module's f32 parameters are 16-bit copies of themselves.
 *
 *     between steps      tensor: f32        other: 16 bits    gradient: f32, the bucket's result
 *     in a step          tensor: 16 bits    other: f32        gradient: 16 bits, in the bucket
 *
 * Tensors take over each other's memory, so that whoever holds a parameter holds it all the time.
 * What nodes have saved keeps its memory. A copy is made anew when the f32 values were written.
 *
 * Cost: half as much memory again as the parameters; a pass over them each step. Source: PyTorch's
 * DDP, _MixedPrecision(param_dtype, reduce_dtype, buffer_dtype).
 */
#include <tutti/op_shape.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "parallel/ddp/ddp_impl.h"

static bool is_mixed(const tutti_ddp_t *ddp)
{
    return ddp->options.param_dtype != TUTTI_F32;
}

static bool is_low(tutti_dtype_t dtype)
{
    return dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

tutti_dtype_t tt_ddp_grad_dtype(const tutti_ddp_t *ddp, tutti_dtype_t param)
{
    return param == TUTTI_F32 ? ddp->options.param_dtype : param;
}

tutti_dtype_t tt_ddp_reduce_dtype(const tutti_ddp_t *ddp, tutti_dtype_t grad)
{
    return is_mixed(ddp) || grad == TUTTI_F32 ? ddp->options.reduce_dtype : grad;
}

tutti_status_t tt_ddp_check_mixed(const tutti_ddp_t *ddp)
{
    const struct {
        const char *name;
        tutti_dtype_t dtype;
    } options[] = {{"param_dtype", ddp->options.param_dtype},
                   {"reduce_dtype", ddp->options.reduce_dtype},
                   {"buffer_dtype", ddp->options.buffer_dtype}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].dtype != TUTTI_F32 && !is_low(options[i].dtype)) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.%s is %s: it must be f32, bf16 or f16",
                           options[i].name, tutti_dtype_name(options[i].dtype));
        }
    }
    return TUTTI_OK;
}

/* ---- making and releasing -------------------------------------------------------------------- */

static tutti_status_t add_copy(tutti_ddp_t *ddp, const char *name, tutti_tensor_t *x)
{
    tt_ddp_mixed_t *mixed = &ddp->mixed;
    if (!tutti_dtype_is_float(x->dtype)) {
        return TUTTI_OK;
    }
    if (x->dtype != TUTTI_F32) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: parameter %s is %s: options.param_dtype makes 16-bit copies of f32 "
                       "parameters alone",
                       name, tutti_dtype_name(x->dtype));
    }
    tutti_tensor_t *other;
    TT_TRY(tutti_tensor_create(ddp->options.param_dtype, x->shape, &other));
    mixed->copies[mixed->count++] =
        (tt_ddp_copy_t){.tensor = x, .other = other, .version = x->storage->version - 1};
    return TUTTI_OK;
}

static tutti_status_t cast_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    const tutti_dtype_t dtype = ((tutti_ddp_t *)user)->options.buffer_dtype;
    if (!tutti_dtype_is_float(x->dtype) || x->dtype == dtype) {
        return TUTTI_OK;
    }
    tutti_tensor_t *cast;
    TT_TRY(tutti_tensor_create(dtype, x->shape, &cast));
    const tutti_status_t status = tutti_tensor_copy(cast, x);
    if (status >= 0) {
        tt_tensor_swap(x, cast);
    }
    tutti_tensor_release(cast);
    return status;
}

tutti_status_t tt_ddp_open_mixed(tutti_ddp_t *ddp)
{
    if (ddp->options.buffer_dtype != TUTTI_F32) {
        TT_TRY(tutti_module_each_buffer(ddp->module, cast_buffer, ddp));
    }
    if (!is_mixed(ddp)) {
        return TUTTI_OK;
    }
    const tt_tensor_list_t *all = &ddp->all_params;
    ddp->mixed.copies =
        tt_alloc_array(all->count, sizeof *ddp->mixed.copies, "ddp mixed precision");
    TT_TRY_ALLOC(ddp->mixed.copies);
    for (size_t i = 0; i < all->count; i++) {
        TT_TRY(add_copy(ddp, all->items[i].name, tt_listed(all, i)));
    }
    return TUTTI_OK;
}

/* ---- in a step, and between two -------------------------------------------------------------- */

static void convert(const tutti_ddp_t *ddp, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    tt_map_unary(ddp->ctx->pool, TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in);
    tt_tensor_touch(to);
}

static void lower(const tutti_ddp_t *ddp, tt_ddp_copy_t *copy)
{
    if (!copy->is_low) {
        if (copy->version != copy->tensor->storage->version) {
            convert(ddp, copy->other, copy->tensor);
            copy->version = copy->tensor->storage->version;
        }
        tt_tensor_swap(copy->tensor, copy->other);
        copy->is_low = true;
    }
}

static void raise_copy(tt_ddp_copy_t *copy)
{
    if (copy->is_low) {
        tt_tensor_swap(copy->tensor, copy->other);
        copy->is_low = false;
    }
}

tutti_status_t tt_ddp_lower_params(tutti_ddp_t *ddp)
{
    if (!is_mixed(ddp) || ddp->shard_count == 0) {
        return TUTTI_OK;
    }
    for (int i = 0; i < ddp->mixed.count; i++) {
        lower(ddp, &ddp->mixed.copies[i]);
    }
    for (int i = 0; i < ddp->param_count; i++) {
        TT_TRY(tutti_tensor_set_grad(ddp->params[i].tensor, ddp->params[i].view));
    }
    return TUTTI_OK;
}

static void raise_tensor(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->mixed.count; i++) {
        if (ddp->mixed.copies[i].tensor == x) {
            raise_copy(&ddp->mixed.copies[i]);
        }
    }
}

tutti_status_t tt_ddp_raise_bucket(tutti_ddp_t *ddp, int index)
{
    for (int i = 0; is_mixed(ddp) && i < ddp->param_count; i++) {
        tt_ddp_param_t *param = &ddp->params[i];
        if (ddp->plan.slots[i].bucket == index) {
            raise_tensor(ddp, param->tensor);
            TT_TRY(tutti_tensor_set_grad(param->tensor, param->result));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_raise_params(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->mixed.count; i++) {
        raise_copy(&ddp->mixed.copies[i]);
    }
    for (int i = 0; is_mixed(ddp) && i < ddp->param_count; i++) {
        TT_TRY(tutti_tensor_set_grad(ddp->params[i].tensor, ddp->params[i].result));
    }
    return TUTTI_OK;
}

void tt_ddp_close_mixed(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->mixed.count; i++) {
        raise_copy(&ddp->mixed.copies[i]);
        tutti_tensor_release(ddp->mixed.copies[i].other);
    }
    tt_free(ddp->mixed.copies);
}

tutti_tensor_t *tutti_ddp_forward(tutti_scope_t *s, tutti_ddp_t *ddp, tutti_tensor_t *x)
{
    if (is_mixed(ddp) && tutti_tensor_status(x) >= 0 && tutti_dtype_is_float(x->dtype)) {
        x = tutti_cast(s, x, ddp->options.param_dtype);
    }
    return tutti_forward(s, ddp->module, x);
}
