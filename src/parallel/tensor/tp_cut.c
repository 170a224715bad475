/* This rank's parts of the parameters, and what hangs on modules and tensors that are cut.
 *
 * All memory is made first; putting it in place does not fail. A parameter stays the tensor that it
 * is, so that everybody who holds it has the part. */
#include "parallel/tensor/tp_item.h"

#include <tutti/autograd.h>
#include <tutti/collectives.h>

#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/copy.h"

/* ---- on tensors ------------------------------------------------------------------------------ */

typedef struct {
    tt_spread_t base;
    tt_tp_linear_t how; /* its group is retained */
} tp_spread_t;

static void free_spread(tt_spread_t *spread)
{
    tutti_group_release(((tp_spread_t *)spread)->how.tp.group);
    tt_free(spread);
}

static int leaf_runs(const tt_spread_t *base, int leaf, tt_spread_run_t *out)
{
    const tp_spread_t *spread = (const tp_spread_t *)base;
    tt_span_t runs[TT_TP_PARTS_MAX];
    const int count = tt_tp_runs(&spread->how.tp, &spread->how.dim, leaf, runs);
    for (int i = 0; i < count; i++) {
        out[i] = (tt_spread_run_t){runs[i].begin, runs[i].count};
    }
    return count;
}

static tutti_status_t agree(tt_spread_t *base, tutti_status_t status)
{
    return tt_group_agree(((tp_spread_t *)base)->how.tp.group, status);
}

static tutti_status_t hear_first(tt_spread_t *base, const void *mine, size_t bytes, void *first)
{
    return tt_group_hear_first(((tp_spread_t *)base)->how.tp.group, mine, bytes, first);
}

static tutti_status_t sum(tt_spread_t *base, double *numbers, size_t count)
{
    tutti_group_t *group = ((tp_spread_t *)base)->how.tp.group;
    tutti_tensor_t *row;
    if (tutti_group_size(group) == 1 || count == 0) {
        return TUTTI_OK;
    }
    tutti_status_t status = tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)count), &row);
    if (status < 0) {
        return tt_group_give_up(group, status);
    }
    memcpy(tutti_tensor_data(row), numbers, count * sizeof *numbers);
    status = tutti_all_reduce(group, row, TUTTI_SUM, NULL);
    memcpy(numbers, tutti_tensor_data(row), count * sizeof *numbers);
    tutti_tensor_release(row);
    return status < 0 ? tt_group_give_up(group, status) : TUTTI_OK; /* perhaps on this rank alone */
}

static void give_up(tt_spread_t *base)
{
    (void)tt_group_give_up(((tp_spread_t *)base)->how.tp.group, TUTTI_ERR_ABORTED);
}

static const tt_spread_ops_t spread_ops = {free_spread, leaf_runs, agree, hear_first, sum, give_up};

const tt_tp_linear_t *tt_tp_spread_of(const tutti_tensor_t *x)
{
    return x->spread != NULL && x->spread->ops == &spread_ops
               ? &((const tp_spread_t *)x->spread)->how
               : NULL;
}

static tutti_status_t new_spread(const tt_tp_item_t *item, const tt_tp_parameter_t *p,
                                 tt_spread_t **out)
{
    tp_spread_t *spread = tt_alloc(sizeof *spread, "spread");
    TT_TRY_ALLOC(spread);
    tt_ref_init(&spread->base.ref);
    const tt_leaves_t own = tt_tp_leaves(&item->tp);
    spread->base.ops = &spread_ops;
    spread->base.ranks = item->tp.group;
    spread->base.leaves = item->tp.shards;
    spread->base.leaf_begin = own.begin;
    spread->base.leaf_end = own.end;
    spread->base.whole = p->tensor->shape;
    spread->base.dim = p->dim;
    int64_t first = 0;
    for (int i = 0; i < item->dim.parts; i++) {
        const tt_span_t part = tt_tp_part(&item->tp, &item->dim, i);
        spread->base.runs[i].first = first + part.begin;
        spread->base.runs[i].count = part.count;
        first += item->dim.sizes[i];
    }
    spread->base.run_count = item->dim.parts;
    spread->how = (tt_tp_linear_t){item->tp, item->dim, item->is_sequence_cut};
    (void)tutti_group_retain(item->tp.group);
    *out = &spread->base;
    return TUTTI_OK;
}

/* Indices [first, first + count) of a dimension, as kernels see them. */
static tt_strided_t view_of(const tutti_tensor_t *x, int dim, int64_t first, int64_t count)
{
    tt_strided_t view = tt_tensor_strided(x);
    view.data =
        (char *)view.data + first * view.strides[dim] * (int64_t)tutti_dtype_bytes(x->dtype);
    view.shape[dim] = count;
    return view;
}

static tutti_status_t copy_runs(tutti_context_t *ctx, const tt_spread_t *spread,
                                const tutti_tensor_t *whole, const tutti_tensor_t *part)
{
    int64_t at = 0;
    for (int i = 0; i < spread->run_count; i++) {
        const int64_t count = spread->runs[i].count;
        const tt_strided_t from = view_of(whole, spread->dim, spread->runs[i].first, count),
                           to = view_of(part, spread->dim, at, count);
        TT_TRY(count > 0 ? tt_copy(tt_tensor_exec(ctx, whole), &to, &from) : TUTTI_OK);
        at += count;
    }
    return TUTTI_OK;
}

static tutti_status_t make_part(const tt_tp_item_t *item, tt_tp_parameter_t *p)
{
    tutti_shape_t shape = p->tensor->shape;
    tt_spread_t *spread;
    if (p->dim < 0 || p->tensor->spread != NULL) {
        return TUTTI_OK;
    }
    shape.dims[p->dim] = tt_tp_own_size(&item->tp, &item->dim);
    TT_TRY(new_spread(item, p, &spread));
    tutti_status_t status =
        tt_tensor_new(p->tensor->storage->device, p->tensor->dtype, shape, false, &p->part);
    if (status >= 0) {
        status = copy_runs(item->m->ctx, spread, p->tensor, p->part);
        tt_tensor_set_spread(p->part, spread);
    }
    tt_spread_release(spread);
    return status;
}

/* ---- on modules ------------------------------------------------------------------------------ */

static void release_cut(tt_module_cut_t *base)
{
    tt_tp_cut_t *cut = (tt_tp_cut_t *)base;
    tutti_group_release(cut->how.tp.group);
    tt_free(cut);
}

tutti_status_t tt_tp_cut_new(const tt_tp_t *tp, tt_tp_cut_t **out)
{
    tt_tp_cut_t *cut = tt_alloc(sizeof *cut, "module cut");
    TT_TRY_ALLOC(cut);
    cut->base.release = release_cut;
    cut->how.tp = *tp;
    (void)tutti_group_retain(tp->group);
    *out = cut;
    return TUTTI_OK;
}

static tutti_status_t prepare_value(tutti_scope_t *s, const tt_tp_cut_t *cut, int i,
                                    tutti_tensor_t **x)
{
    if (cut->is_prepared[i]) {
        *x = tutti_redistribute(s, *x, cut->how.tp.group, &cut->prepared[i]);
    }
    return tutti_scope_status(s);
}

static tutti_status_t prepare_input(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    return prepare_value(s, user, 0, &call->inputs[0]);
}

static tutti_status_t prepare_output(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    return prepare_value(s, user, 1, &call->outputs[0]);
}

static bool is_prepared(const tt_tp_item_t *item)
{
    return item->rule.style == TUTTI_PARALLEL_INPUT || item->rule.style == TUTTI_PARALLEL_OUTPUT;
}

static tutti_status_t add_hooks(tt_tp_item_t *item)
{
    static const tutti_module_hooks_t hooks[] = {{.before_forward = prepare_input},
                                                 {.after_forward = prepare_output}};
    const int i = item->rule.style == TUTTI_PARALLEL_OUTPUT;
    item->cut->prepared[i] = item->rule.how;
    item->cut->is_prepared[i] = true;
    return tutti_module_add_hooks(item->m, &hooks[i], item->cut);
}

tutti_status_t tt_tp_cut_make(tt_tp_item_t *item)
{
    const tt_leaves_t own = tt_tp_leaves(&item->tp);
    TT_TRY(tt_tp_cut_new(&item->tp, &item->cut));
    item->cut->how.dim = item->dim;
    item->cut->how.is_sequence_cut = item->is_sequence_cut;
    item->cut->base.heads = item->heads;
    item->cut->base.columns = item->columns;
    if (item->drops) {
        item->cut->base.positions = (tt_share_t){own.begin, own.end - own.begin, item->tp.shards};
    }
    for (int i = 0; i < item->parameter_count; i++) {
        TT_TRY(make_part(item, &item->parameters[i]));
    }
    return is_prepared(item) ? add_hooks(item) : TUTTI_OK;
}

void tt_tp_cut_hang(tutti_module_t *m, tt_tp_cut_t *cut, bool is_first)
{
    tt_module_cut_t **at = is_first || m->cut == NULL ? &m->cut : &m->cut->next;
    cut->base.next = *at;
    *at = &cut->base;
}

void tt_tp_cut_commit(tt_tp_item_t *item)
{
    if (item->ops != NULL) {
        item->m->ops = item->ops;
    }
    for (int i = 0; i < item->parameter_count; i++) {
        tt_tp_parameter_t *p = &item->parameters[i];
        if (p->part != NULL) {
            tt_tensor_become(p->tensor, p->part);
        }
    }
    tt_tp_cut_hang(item->m, item->cut, !is_prepared(item));
    item->cut = NULL;
}
