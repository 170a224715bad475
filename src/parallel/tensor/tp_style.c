/* Styles: what each does to a kind of module. */
#include "parallel/tensor/tp_item.h"

#include "compute/nn/layers/embedding_table.h"
#include "compute/nn/layers/layer_norms.h"
#include "compute/nn/layers/layer_positions.h"
#include "compute/nn/layers/layer_self_attention.h"

const char *tutti_parallel_style_name(tutti_parallel_style_t style)
{
    static const char *const names[] = {
#define X(identifier, name, about) name,
        TUTTI_PARALLEL_STYLE_LIST(X)
#undef X
    };
    return style >= 0 && style < TUTTI_PARALLEL_STYLE_COUNT ? names[style] : "?";
}

tt_tp_item_t *tt_tp_item_of(const tt_tp_plan_t *plan, const tutti_module_t *m,
                            tutti_parallel_style_t style)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->items[i].m == m && plan->items[i].rule.style == style) {
            return &plan->items[i];
        }
    }
    return NULL;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static const tutti_module_ops_t *sequence_kind(const tutti_module_ops_t *ops)
{
    return ops == &tutti_layer_norm_layer ? &tt_sequence_layer_norm_layer
           : ops == &tutti_rms_norm_layer ? &tt_sequence_rms_norm_layer
           : ops == &tt_positions_layer   ? &tt_sequence_positions_layer
                                          : NULL;
}

static bool is_cut_kind(const tutti_module_ops_t *ops)
{
    return ops == &tt_column_linear_layer || ops == &tt_row_linear_layer ||
           ops == &tt_vocabulary_embedding_layer || ops == &tt_sequence_layer_norm_layer ||
           ops == &tt_sequence_rms_norm_layer || ops == &tt_sequence_positions_layer;
}

bool tt_tp_is_cut(const tutti_module_t *m)
{
    return is_cut_kind(m->ops);
}

bool tt_tp_style_takes(tutti_parallel_style_t style, const tutti_module_t *m)
{
    if (is_cut_kind(m->ops) || style == TUTTI_PARALLEL_INPUT || style == TUTTI_PARALLEL_OUTPUT) {
        return true; /* who is cut already is an error of its own */
    }
    return style == TUTTI_PARALLEL_VOCABULARY ? m->ops == &tutti_embedding_layer
           : style == TUTTI_PARALLEL_SEQUENCE ? sequence_kind(m->ops) != NULL
                                              : m->ops == &tutti_linear_layer;
}

/* ---- dimensions ------------------------------------------------------------------------------ */

/* Sizes are given for all parts, or for none. */
static tutti_status_t check_sizes(const tt_tp_item_t *item, int parts, bool *are_given)
{
    const int64_t *sizes = item->rule.part_sizes;
    *are_given = false;
    for (int i = 0; i < TUTTI_PARALLEL_PARTS_MAX; i++) {
        *are_given = *are_given || sizes[i] != 0;
    }
    for (int i = 0; i < TUTTI_PARALLEL_PARTS_MAX && *are_given; i++) {
        if (i < parts ? sizes[i] < 1 : sizes[i] != 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "parallelize: %s: the size of part %d is %lld, of %d parts: want a size "
                           "of at least 1 for each of them, or 0 for all",
                           item->name, i, (long long)sizes[i], parts);
        }
    }
    return TUTTI_OK;
}

/* Parts as the rule has them: their sizes are those of the dimension. */
static tutti_status_t take_parts(tt_tp_item_t *item, int64_t size)
{
    const tutti_parallel_rule_t *rule = &item->rule;
    const int parts = rule->parts == 0 ? 1 : rule->parts;
    int64_t sum = 0;
    if (parts < 1 || parts > TT_TP_PARTS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "parallelize: %s: %d parts; want 1 to %d", item->name, parts,
                       TT_TP_PARTS_MAX);
    }
    bool are_given;
    TT_TRY(check_sizes(item, parts, &are_given));
    item->dim.parts = parts;
    for (int i = 0; i < parts; i++) {
        item->dim.sizes[i] = are_given ? rule->part_sizes[i] : size / parts;
        sum += item->dim.sizes[i];
    }
    return sum == size ? TUTTI_OK
                       : TT_FAIL(TUTTI_ERR_ARG,
                                 "parallelize: %s: %d parts of %lld rows together, of a weight "
                                 "with %lld",
                                 item->name, parts, (long long)sum, (long long)size);
}

static tutti_status_t check_units(const tt_tp_item_t *item, int64_t size)
{
    const int64_t unit = item->rule.unit;
    const int shards = item->tp.shards;
    if (unit == 0) {
        return TUTTI_OK;
    }
    if (unit < 0 || size % unit != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "parallelize: %s: units of %lld do not divide %lld",
                       item->name, (long long)unit, (long long)size);
    }
    if (size / unit % shards != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "parallelize: %s: %lld units (heads) of %lld are not divisible by %d "
                       "shards: choose shards that divide them, or a number of heads that is a "
                       "multiple of %d",
                       item->name, (long long)(size / unit), (long long)unit, shards, shards);
    }
    return TUTTI_OK;
}

/* Every shard has something. */
static tutti_status_t check_shards(const tt_tp_item_t *item)
{
    for (int i = 0; i < item->dim.parts; i++) {
        const tt_cut_t cut = {item->dim.sizes[i], item->tp.shards, 1};
        TT_TRY(check_units(item, item->dim.sizes[i]));
        if (tt_cut_leaf(&cut, item->tp.shards - 1).count == 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "parallelize: %s: %lld rows or columns are too few for %d shards: the "
                           "last one would be empty",
                           item->name, (long long)item->dim.sizes[i], item->tp.shards);
        }
    }
    return TUTTI_OK;
}

static void add_parameter(tt_tp_item_t *item, const char *name, int dim)
{
    tutti_tensor_t *x = tutti_module_find(item->m, name);
    if (x != NULL) {
        item->parameters[item->parameter_count++] =
            (tt_tp_parameter_t){.name = name, .tensor = x, .dim = dim};
    }
}

/* Both parameters along their dimension `dim`, of which the weight's is -1 if there is none. */
static tutti_status_t cut_along(tt_tp_item_t *item, int weight_dim, int bias_dim)
{
    add_parameter(item, "weight", weight_dim);
    add_parameter(item, "bias", bias_dim);
    for (int i = 0; i < item->parameter_count; i++) {
        if (item->parameters[i].tensor->spread != NULL) {
            return TT_FAIL(
                TUTTI_ERR_STATE,
                "parallelize: %s.%s was cut by an earlier call, as another module's: cut "
                "modules that share a parameter by one call",
                item->name, item->parameters[i].name);
        }
    }
    TT_TRY(take_parts(item, item->parameters[0].tensor->shape.dims[weight_dim]));
    return check_shards(item);
}

/* ---- styles ---------------------------------------------------------------------------------- */

static tutti_status_t apply_column(tt_tp_item_t *item)
{
    item->ops = &tt_column_linear_layer;
    return cut_along(item, 0, 0);
}

static tutti_status_t apply_row(tt_tp_item_t *item)
{
    item->ops = &tt_row_linear_layer;
    return cut_along(item, 1, -1);
}

/* A table that is cut has its rows looked up as they are. */
static tutti_status_t apply_vocabulary(tt_tp_item_t *item)
{
    const tutti_embedding_lookup_options_t *lookup =
        &((const tt_embedding_table_t *)item->m->state)->lookup;
    if (lookup->has_padding || lookup->scale_by_frequency || tt_is_given(lookup->max_norm)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "parallelize: %s: an embedding with padding, max_norm or scale_by_frequency "
                       "stays whole",
                       item->name);
    }
    item->ops = &tt_vocabulary_embedding_layer;
    return cut_along(item, 0, 0);
}

/* Rows of a norm are single positions. */
static tutti_status_t apply_sequence(tt_tp_item_t *item)
{
    if (item->m->ops != &tt_positions_layer &&
        ((const tt_norm_layer_t *)item->m->state)->row.rank > 1) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "parallelize: %s: a norm over several dimensions stays whole", item->name);
    }
    item->ops = sequence_kind(item->m->ops);
    return TUTTI_OK;
}

static tutti_status_t apply_prepared(tt_tp_item_t *item)
{
    (void)item;
    return TUTTI_OK;
}

tutti_status_t tt_tp_style_apply(tt_tp_item_t *item)
{
    static tutti_status_t (*const apply[])(tt_tp_item_t *) = {
        [TUTTI_PARALLEL_COLUMN] = apply_column,         [TUTTI_PARALLEL_ROW] = apply_row,
        [TUTTI_PARALLEL_VOCABULARY] = apply_vocabulary, [TUTTI_PARALLEL_SEQUENCE] = apply_sequence,
        [TUTTI_PARALLEL_INPUT] = apply_prepared,        [TUTTI_PARALLEL_OUTPUT] = apply_prepared,
        [TUTTI_PARALLEL_STYLE_COUNT] = apply_prepared, /* what it has is cut */
    };
    if (item->m->cut != NULL || is_cut_kind(item->m->ops)) {
        return TT_FAIL(TUTTI_ERR_STATE, "parallelize: %s is cut already", item->name);
    }
    return apply[item->rule.style](item);
}
