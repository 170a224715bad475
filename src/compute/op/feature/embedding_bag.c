/* embedding_bag: rows of a table, and what becomes of each bag of them. Bags that lie in a row are
 * told apart by how many begin before an index; their maxima come first when columns are sorted by
 * value and then, keeping that order, by bag. Source: op_feature.h. */
#include <tutti/op_feature.h>
#include <tutti/op_index.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/op/math/elementwise.h"

typedef struct {
    tutti_embedding_bag_options_t options;
    tutti_tensor_t *indices;
    tutti_tensor_t *rows; /* [indices, C], those of padding 0 */
    tutti_tensor_t *has;  /* as indices: 1 where the row counts; NULL: all do */
    tutti_shape_t result;
} bag_t;

static tutti_status_t check_shapes(const tutti_tensor_t *indices, const tutti_tensor_t *weight,
                                   const tutti_embedding_bag_options_t *o)
{
    char a[160], b[160];
    const bool is_row = o->offsets != NULL;
    if (indices->shape.rank != (is_row ? 1 : 2) || weight->shape.rank != 2 ||
        (is_row && o->offsets->shape.rank != 1)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "embedding_bag: indices must be [B, L], or [L] with offsets [B], the weight "
                       "[V, C]: %s and %s",
                       tutti_tensor_describe(indices, a, sizeof a),
                       tutti_tensor_describe(weight, b, sizeof b));
    }
    if (is_row && o->offsets->numel < (o->has_last_offset ? 1 : 0)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "embedding_bag: there is no last offset");
    }
    if (o->weights != NULL && !tutti_shape_equal(o->weights->shape, indices->shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "embedding_bag: weights must have the indices' shape");
    }
    return TUTTI_OK;
}

/* Where bags begin, of offsets in the host's memory; those of a device are not waited for. */
static tutti_status_t check_offsets(const tutti_tensor_t *offsets, int64_t indices)
{
    if (offsets == NULL || tt_tensor_is_absent(offsets) || offsets->storage->device != NULL) {
        return TUTTI_OK;
    }
    for (int64_t i = 0, least = 0; i < offsets->numel; i++) {
        const double begin = tutti_tensor_at(offsets, i);
        if (i == 0 && begin != 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "embedding_bag: offsets begin with %g: the first bag begins at 0",
                           begin);
        }
        if (!(begin >= (double)least && begin <= (double)indices)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "embedding_bag: offset %lld is %g: they must rise, in [0, %lld], of as "
                           "many indices",
                           (long long)i, begin, (long long)indices);
        }
        least = (int64_t)begin;
    }
    return TUTTI_OK;
}

static tutti_status_t check(const tutti_tensor_t *indices, const tutti_tensor_t *weight,
                            const tutti_embedding_bag_options_t *o)
{
    TT_TRY(tt_tensor_status(indices));
    TT_TRY(tt_tensor_status(weight));
    TT_TRY(o->offsets == NULL ? TUTTI_OK : tt_tensor_status(o->offsets));
    TT_TRY(o->weights == NULL ? TUTTI_OK : tt_tensor_status(o->weights));
    TT_TRY(check_shapes(indices, weight, o));
    TT_TRY(check_offsets(o->offsets, indices->numel));
    if ((int)o->mode < TUTTI_BAG_MEAN || o->mode > TUTTI_BAG_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding_bag: there is no mode %d", (int)o->mode);
    }
    if (o->weights != NULL && o->mode != TUTTI_BAG_SUM) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding_bag: weights go with sums only");
    }
    const int64_t table = weight->shape.dims[0];
    if (o->has_padding && (o->padding < -table || o->padding >= table)) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding_bag: padding %lld is no row of a table of %lld",
                       (long long)o->padding, (long long)table);
    }
    return o->scale_by_frequency && o->mode == TUTTI_BAG_MAX
               ? TT_FAIL(TUTTI_ERR_ARG, "embedding_bag: scale_by_frequency goes not with maxima")
               : TUTTI_OK;
}

/* ---- bags [B, L] ----------------------------------------------------------------------------- */

static tutti_tensor_t *maxima(tutti_scope_t *s, const bag_t *bag)
{
    tutti_tensor_t *rows = bag->rows;
    if (bag->indices->shape.dims[1] == 0) {
        return tutti_sum_over(s, rows, TUTTI_DIMS(1), false); /* zeros, in the graph */
    }
    if (bag->has == NULL) {
        return tutti_max_along(s, rows, 1, false, NULL);
    }
    tutti_tensor_t *has = tutti_unsqueeze(s, bag->has, 2);
    rows = tutti_masked_fill(s, rows, tutti_eq_scalar(s, has, 0), -(double)INFINITY);
    tutti_tensor_t *none = tutti_eq_scalar(s, tutti_max_over(s, has, TUTTI_DIMS(1), false), 0);
    return tutti_masked_fill(s, tutti_max_along(s, rows, 1, false, NULL), none, 0);
}

static tutti_tensor_t *sums_of_rows(tutti_scope_t *s, const bag_t *bag)
{
    tutti_tensor_t *sums = tutti_sum_over(s, bag->rows, TUTTI_DIMS(1), false);
    if (bag->options.mode == TUTTI_BAG_SUM) {
        return sums;
    }
    if (bag->has == NULL) {
        const int64_t n = bag->indices->shape.dims[1];
        return tutti_mul_scalar(s, sums, n == 0 ? 1 : 1 / (double)n);
    }
    tutti_tensor_t *counts = tutti_sum_over(s, bag->has, TUTTI_DIMS(1), true);
    return tutti_div(s, sums, tutti_clamp(s, counts, 1, (double)INFINITY));
}

/* ---- bags in a row --------------------------------------------------------------------------- */

/* Of each index its bag: how many begin there or before, less one. What lies behind the last offset
 * goes into a bag that is cut off. */
static tutti_tensor_t *bags_of(tutti_scope_t *s, const bag_t *bag)
{
    const int64_t n = bag->indices->numel;
    tutti_tensor_t *begins = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(n + 1));
    tutti_tensor_t *one = tutti_ones(s, TUTTI_I64, bag->options.offsets->shape);
    begins = tutti_index_add(s, begins, 0, bag->options.offsets, one);
    tutti_tensor_t *count = tutti_cumsum(s, begins, 0);
    return tutti_sub_scalar(s, tutti_narrow(s, count, 0, 0, n), 1);
}

/* How many rows of each bag count, [all bags]. */
static tutti_tensor_t *counts_in_a_row(tutti_scope_t *s, const bag_t *bag, tutti_tensor_t *bags)
{
    tutti_tensor_t *has = bag->has != NULL ? tutti_cast(s, bag->has, TUTTI_I64)
                                           : tutti_ones(s, TUTTI_I64, bag->indices->shape);
    tutti_tensor_t *counts = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(bag->options.offsets->numel));
    return tutti_index_add(s, counts, 0, bags, has);
}

static tutti_tensor_t *sums_in_a_row(tutti_scope_t *s, const bag_t *bag, tutti_tensor_t *bags)
{
    const int64_t all = bag->options.offsets->numel, count = bag->result.dims[0];
    const tutti_dtype_t dtype = tutti_tensor_dtype(bag->rows);
    tutti_tensor_t *sums = tutti_zeros(s, dtype, TUTTI_SHAPE(all, bag->result.dims[1]));
    return tutti_narrow(s, tutti_index_add(s, sums, 0, bags, bag->rows), 0, 0, count);
}

static tutti_tensor_t *means_in_a_row(tutti_scope_t *s, const bag_t *bag, tutti_tensor_t *bags)
{
    const int64_t count = bag->result.dims[0];
    tutti_tensor_t *sums = sums_in_a_row(s, bag, bags);
    tutti_tensor_t *counts = tutti_narrow(s, counts_in_a_row(s, bag, bags), 0, 0, count);
    counts = tutti_cast(s, counts, tutti_tensor_dtype(bag->rows));
    counts = tutti_clamp(s, counts, 1, (double)INFINITY);
    return tutti_div(s, sums, tutti_unsqueeze(s, counts, 1));
}

/* Of each column [L, C] the places of its rows, bag by bag, in each the largest first. Rows that do
 * not count are behind all bags. */
static tutti_tensor_t *places_in_a_row(tutti_scope_t *s, const bag_t *bag, tutti_tensor_t *bags)
{
    if (bag->has != NULL) {
        tutti_tensor_t *is_out = tutti_eq_scalar(s, bag->has, 0);
        bags = tutti_masked_fill(s, bags, is_out, (double)bag->options.offsets->numel);
    }
    const tutti_shape_t shape = tutti_tensor_shape(bag->rows);
    tutti_tensor_t *by_value = tutti_argsort(s, bag->rows, 0, true);
    bags = tutti_expand(s, tutti_unsqueeze(s, bags, 1), shape);
    tutti_tensor_t *by_bag = tutti_argsort(s, tutti_gather_along(s, bags, 0, by_value), 0, false);
    return tutti_gather_along(s, by_value, 0, by_bag);
}

static tutti_tensor_t *maxima_in_a_row(tutti_scope_t *s, const bag_t *bag, tutti_tensor_t *bags)
{
    const int64_t count = bag->result.dims[0], rows = bag->indices->numel;
    if (rows == 0 || count == 0) {
        return sums_in_a_row(s, bag, bags); /* zeros, in the graph */
    }
    tutti_tensor_t *counts = counts_in_a_row(s, bag, bags);
    tutti_tensor_t *begins = tutti_sub(s, tutti_cumsum(s, counts, 0), counts);
    begins = tutti_clamp(s, tutti_narrow(s, begins, 0, 0, count), 0, (double)(rows - 1));
    tutti_tensor_t *first = tutti_index_select(s, places_in_a_row(s, bag, bags), 0, begins);
    tutti_tensor_t *is_empty = tutti_eq_scalar(s, tutti_narrow(s, counts, 0, 0, count), 0);
    tutti_tensor_t *y = tutti_gather_along(s, bag->rows, 0, first);
    return tutti_masked_fill(s, y, tutti_unsqueeze(s, is_empty, 1), 0);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Rows and weights of padding are 0 before they meet, so that neither makes a NaN of the other. */
static void take_rows(tutti_scope_t *s, bag_t *bag, tutti_tensor_t *weight)
{
    const tutti_embedding_bag_options_t *o = &bag->options;
    const tutti_embedding_lookup_options_t lookup = {
        .max_norm = o->max_norm, .norm_p = o->norm_p, .scale_by_frequency = o->scale_by_frequency};
    tutti_tensor_t *weights = o->weights;
    bag->rows = tt_wide(s, tutti_embedding_with(s, bag->indices, weight, &lookup));
    if (o->has_padding) {
        const int64_t padding = o->padding < 0 ? o->padding + weight->shape.dims[0] : o->padding;
        const tutti_dtype_t dtype = tutti_tensor_dtype(bag->rows);
        tutti_tensor_t *is_padding = tutti_eq_scalar(s, bag->indices, (double)padding);
        bag->has = tutti_cast(s, tutti_logical_not(s, is_padding), dtype);
        bag->rows = tutti_masked_fill(s, bag->rows, tutti_unsqueeze(s, is_padding, -1), 0);
        weights = weights == NULL ? NULL : tutti_masked_fill(s, weights, is_padding, 0);
    }
    if (weights != NULL) {
        bag->rows = tutti_mul(s, bag->rows, tutti_unsqueeze(s, weights, -1));
    }
}

static tutti_tensor_t *fill_bags(tutti_scope_t *s, const bag_t *bag)
{
    const tutti_bag_mode_t mode = bag->options.mode;
    if (bag->options.offsets == NULL) {
        return mode == TUTTI_BAG_MAX ? maxima(s, bag) : sums_of_rows(s, bag);
    }
    tutti_tensor_t *bags = bags_of(s, bag);
    return mode == TUTTI_BAG_MAX   ? maxima_in_a_row(s, bag, bags)
           : mode == TUTTI_BAG_SUM ? sums_in_a_row(s, bag, bags)
                                   : means_in_a_row(s, bag, bags);
}

tutti_tensor_t *tutti_embedding_bag(tutti_scope_t *s, tutti_tensor_t *indices,
                                    tutti_tensor_t *weight,
                                    const tutti_embedding_bag_options_t *options)
{
    bag_t bag = {.indices = indices};
    if (options != NULL) {
        bag.options = *options;
    }
    const tutti_embedding_bag_options_t *o = &bag.options;
    const tutti_status_t status = check(indices, weight, o);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const int64_t count =
        o->offsets == NULL ? indices->shape.dims[0] : o->offsets->numel - o->has_last_offset;
    bag.result = TUTTI_SHAPE(count, weight->shape.dims[1]);
    const tt_place_t before = tt_context_enter_beside(s->ctx, weight);
    take_rows(s, &bag, weight);
    tutti_tensor_t *y = tutti_cast(s, fill_bags(s, &bag), weight->dtype);
    s->ctx->place = before;
    return y;
}
