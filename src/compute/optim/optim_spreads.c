/* What an optimizer must know of parameters that are spread over ranks (core/tensor/spread.h). Each
 * leaf of a gradient is measured by itself, by the rank that has it, and all of them are added up
 * in their order: so a norm has the same bits on any number of ranks.
 *
 * Cost: a copy of each leaf, and one call of a number for each leaf of each parameter. */
#include "compute/optim/optimizer.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/copy.h"

static tt_spread_t *spread_of(const tutti_optim_t *opt, size_t slot)
{
    return opt->slots[slot].tensor->spread;
}

static tt_slicer_t *slicer_of(const tutti_optim_t *opt, size_t slot)
{
    const tt_tensor_slice_t *slice = opt->slots[slot].tensor->slice;
    return slice == NULL ? NULL : slice->slicer;
}

/* Both are spread over the same ranks, and dealt out to the same. */
static bool have_same_ranks(const tutti_optim_t *opt, size_t a, size_t b)
{
    const tt_spread_t *x = spread_of(opt, a), *y = spread_of(opt, b);
    return x != NULL && y != NULL && x->ranks == y->ranks && slicer_of(opt, a) == slicer_of(opt, b);
}

/* Those of one group are asked once. */
static bool is_first_of_ranks(const tutti_optim_t *opt, size_t slot)
{
    for (size_t i = 0; i < slot; i++) {
        if (have_same_ranks(opt, i, slot)) {
            return false;
        }
    }
    return spread_of(opt, slot) != NULL;
}

bool tt_optim_has_spreads(const tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (spread_of(opt, i) != NULL) {
            return true;
        }
    }
    return false;
}

tutti_status_t tt_optim_agree_spreads(const tutti_optim_t *opt, tutti_status_t status)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_ranks(opt, i)) {
            status = spread_of(opt, i)->ops->agree(spread_of(opt, i), status);
        }
    }
    return status;
}

/* The numbers that are summed count 1 for one rank: all who say no are counted. */
tutti_status_t tt_optim_all_agree_spreads(const tutti_optim_t *opt, bool *is_so)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_ranks(opt, i)) {
            double others = *is_so ? 0 : 1;
            TT_TRY(spread_of(opt, i)->ops->sum(spread_of(opt, i), &others, 1));
            *is_so = others == 0;
        }
    }
    return TUTTI_OK;
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct {
    tutti_optim_t *opt;
    const tt_spread_t *spread;
    const tutti_tensor_t *grad; /* this rank's part of it, f32, in a row */
    bool is_largest;
} leaf_t;

static int64_t count_runs(const tt_spread_run_t *runs, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += runs[i].count;
    }
    return sum;
}

/* Runs of the part's dimension, one behind the other. */
static tutti_status_t copy_leaf(const leaf_t *l, const tt_spread_run_t *runs, int count,
                                const tutti_tensor_t *to, tutti_shape_t part)
{
    const int dim = l->spread->dim;
    tt_strided_t in = {.data = tt_tensor_data(l->grad), .dtype = TUTTI_F32, .rank = part.rank};
    tt_strided_t out = tt_tensor_strided(to);
    memcpy(in.shape, part.dims, sizeof in.shape);
    tt_shape_strides(part, in.strides);
    char *from = in.data;
    for (int i = 0; i < count; i++) {
        in.data = from + runs[i].first * in.strides[dim] * (int64_t)sizeof(float);
        in.shape[dim] = out.shape[dim] = runs[i].count;
        TT_TRY(runs[i].count > 0 ? tt_copy(tt_tensor_exec(l->opt->ctx, l->grad), &out, &in)
                                 : TUTTI_OK);
        out.data = (char *)out.data + runs[i].count * out.strides[dim] * (int64_t)sizeof(float);
    }
    return TUTTI_OK;
}

static tutti_status_t measure_copy(const leaf_t *l, const tutti_tensor_t *copy, double *number)
{
    tutti_tensor_t *cell;
    TT_TRY(tt_tensor_new(copy->storage->device, TUTTI_F64, TUTTI_SCALAR, true, &cell));
    tutti_status_t status =
        tt_flat_measure(tt_tensor_exec(l->opt->ctx, copy), tt_tensor_data(copy),
                        (size_t)copy->numel, l->is_largest, tt_tensor_data(cell));
    if (status >= 0) {
        status = tt_tensor_read(cell, number);
    }
    tutti_tensor_release(cell);
    return status;
}

static tutti_status_t measure_leaf(const leaf_t *l, tutti_shape_t part, int leaf, double *number)
{
    tt_spread_run_t runs[TT_SPREAD_RUNS_MAX];
    const int count = l->spread->ops->leaf_runs(l->spread, leaf, runs);
    tutti_shape_t shape = part;
    tutti_tensor_t *copy;
    shape.dims[l->spread->dim] = count_runs(runs, count);
    TT_TRY(tt_tensor_new(l->grad->storage->device, TUTTI_F32, shape, false, &copy));
    tutti_status_t status = copy_leaf(l, runs, count, copy, part);
    if (status >= 0) {
        status = measure_copy(l, copy, number);
    }
    tutti_tensor_release(copy);
    return status;
}

/* Who deals out spread tensors gives each to one rank, as a whole. */
static tutti_status_t check_slice(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    const int64_t numel = tt_optim_weight(slot)->numel;
    return numel == 0 || numel == slot->tensor->numel
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "%s: parameter \"%s\" is a part by tensor parallelism, of which this rank "
                         "steps a slice: its leaves cannot be measured",
                         opt->ops->name, slot->name);
}

/* numbers: of all leaves, zeros; they stay so on ranks that do not step it. */
static tutti_status_t measure_slot(tutti_optim_t *opt, size_t slot, bool is_largest,
                                   double *numbers)
{
    const tutti_tensor_t *x = opt->slots[slot].tensor;
    tutti_tensor_t *grad;
    TT_TRY(check_slice(opt, &opt->slots[slot]));
    TT_TRY(tt_optim_flat_grad(opt, &opt->slots[slot], &grad));
    if (grad == NULL || grad->numel != x->numel) {
        return TUTTI_OK;
    }
    const leaf_t l = {opt, x->spread, grad, is_largest};
    for (int leaf = x->spread->leaf_begin; leaf < x->spread->leaf_end; leaf++) {
        TT_TRY(measure_leaf(&l, x->shape, leaf, &numbers[leaf]));
    }
    return TUTTI_OK;
}

static size_t count_leaves(const tutti_optim_t *opt, size_t first)
{
    size_t count = 0;
    for (size_t i = first; i < opt->slot_count; i++) {
        count += have_same_ranks(opt, i, first) ? (size_t)spread_of(opt, i)->leaves : 0;
    }
    return count;
}

static tutti_status_t measure_ranks(tutti_optim_t *opt, size_t first, bool is_largest,
                                    double *numbers)
{
    for (size_t i = first; i < opt->slot_count; i++) {
        if (have_same_ranks(opt, i, first)) {
            TT_TRY(measure_slot(opt, i, is_largest, numbers));
            numbers += spread_of(opt, i)->leaves;
        }
    }
    return TUTTI_OK;
}

static void fold_ranks(const tutti_optim_t *opt, size_t first, bool is_largest,
                       const double *leaves, double *numbers)
{
    for (size_t i = first; i < opt->slot_count; i++) {
        if (!have_same_ranks(opt, i, first)) {
            continue;
        }
        numbers[i] = 0;
        for (int leaf = 0; leaf < spread_of(opt, i)->leaves; leaf++) {
            numbers[i] = tt_flat_fold(numbers[i], *leaves++, is_largest);
        }
    }
}

/* Over ranks that have parts of a parameter, then over those that have others. */
static tutti_status_t sum_ranks(const tutti_optim_t *opt, size_t first, double *leaves,
                                size_t count)
{
    tt_spread_t *spread = spread_of(opt, first);
    tt_slicer_t *slicer = slicer_of(opt, first);
    const tutti_status_t status = spread->ops->sum(spread, leaves, count);
    if (slicer == NULL) {
        return status;
    }
    TT_TRY(slicer->agree(slicer, status));
    return slicer->sum(slicer, leaves, count);
}

static tutti_status_t norms_of_ranks(tutti_optim_t *opt, size_t first, bool is_largest,
                                     double *numbers)
{
    const size_t count = count_leaves(opt, first);
    double *leaves = tt_alloc_array(count, sizeof *leaves, "sums of leaves");
    tutti_status_t status =
        leaves == NULL ? TUTTI_ERR_NOMEM : measure_ranks(opt, first, is_largest, leaves);
    status = spread_of(opt, first)->ops->agree(spread_of(opt, first), status);
    if (slicer_of(opt, first) != NULL) {
        status = slicer_of(opt, first)->agree(slicer_of(opt, first), status);
    }
    if (status >= 0) {
        status = sum_ranks(opt, first, leaves, count);
    }
    if (status >= 0) {
        fold_ranks(opt, first, is_largest, leaves, numbers);
    }
    tt_free(leaves);
    return status;
}

tutti_status_t tt_optim_norms_of_spreads(tutti_optim_t *opt, bool is_largest, double *numbers)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_ranks(opt, i)) {
            TT_TRY(norms_of_ranks(opt, i, is_largest, numbers));
        }
    }
    return TUTTI_OK;
}
