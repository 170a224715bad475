/* What flows into layers that draw: a mask is drawn by the index in the whole. Dropout layers can
 * do that for a part, others want what is whole.
 *
 *     sequential     known: each child gets what the one before it gives
 *                    linear (column) -> activation -> dropout: this rank's columns
 *                    linear (row) -> dropout: whole, or a part of the sequence
 *     other kinds    their forward is not known: a dropout layer beside layers that give columns
 *                    to others is an error, and beside others it gets what is whole
 */
#include "parallel/tensor/tp_item.h"

#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>

/* What a module gives, or is given. */
typedef struct {
    enum { WHOLE, COLUMNS, UNKNOWN } kind;
    const tutti_module_t *of; /* of columns: who made them */
} flow_t;

static bool has(const tt_tp_flow_t *f, const tutti_module_t *m, tutti_parallel_style_t style)
{
    return tt_tp_item_of(f->plan, m, style) != NULL;
}

/* Of whole channels, or with another value in the place of 0. */
static bool is_other_dropout(const tutti_module_t *m)
{
    const tutti_module_ops_t *const kinds[] = {&tutti_dropout1d_layer, &tutti_dropout2d_layer,
                                               &tutti_dropout3d_layer, &tutti_alpha_dropout_layer,
                                               &tutti_feature_alpha_dropout_layer};
    bool is_one = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        is_one = is_one || m->ops == kinds[i];
    }
    return is_one;
}

static bool keeps_elements(const tutti_module_t *m)
{
    return m->ops == &tutti_activation_layer || m->ops == &tutti_dropout_layer ||
           is_other_dropout(m);
}

/* Whether m draws for what it is given, as if that was the whole. */
static bool draws(const tutti_module_t *m)
{
    if (m->ops == &tutti_activation_layer) {
        const tutti_activation_options_t *options = m->state;
        return options->kind == TUTTI_ACTIVATION_RRELU;
    }
    const tutti_dropout_options_t *options = m->state;
    return is_other_dropout(m) && options->p > 0;
}

/* What a rule makes of an input or result. */
static flow_t prepare(const tt_tp_flow_t *f, const tutti_module_t *m, tutti_parallel_style_t style,
                      flow_t x)
{
    const tt_tp_item_t *item = tt_tp_item_of(f->plan, m, style);
    if (item == NULL) {
        return x;
    }
    return (flow_t){item->rule.how.to.kind == TUTTI_PLACEMENT_SHARD ? UNKNOWN : WHOLE, NULL};
}

static flow_t give(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x);

/* Of a kind whose forward is not known: whole, but where columns come out and no row takes them. */
static flow_t give_unknown(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    const flow_t whole = {WHOLE, NULL}, unknown = {UNKNOWN, NULL};
    bool are_columns = x.kind != WHOLE, has_row = false;
    for (size_t i = 0; i < m->child_count; i++) {
        are_columns = are_columns || give(f, m->children[i].module, whole).kind != WHOLE;
        has_row = has_row || has(f, m->children[i].module, TUTTI_PARALLEL_ROW);
    }
    return are_columns && !has_row ? unknown : whole;
}

static flow_t give_inside(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    if (has(f, m, TUTTI_PARALLEL_COLUMN)) {
        return (flow_t){COLUMNS, m};
    }
    if (has(f, m, TUTTI_PARALLEL_ROW) || has(f, m, TUTTI_PARALLEL_VOCABULARY) ||
        has(f, m, TUTTI_PARALLEL_SEQUENCE)) {
        return (flow_t){WHOLE, NULL};
    }
    if (keeps_elements(m)) {
        return x;
    }
    if (m->ops != &tutti_sequential_layer) {
        return give_unknown(f, m, x);
    }
    for (size_t i = 0; i < m->child_count; i++) {
        x = give(f, m->children[i].module, x);
    }
    return x;
}

/* What m gives if it is given x. */
static flow_t give(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    x = give_inside(f, m, prepare(f, m, TUTTI_PARALLEL_INPUT, x));
    return prepare(f, m, TUTTI_PARALLEL_OUTPUT, x);
}

static tutti_status_t see_dropout(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    const tutti_dropout_options_t *options = m->state;
    if (options->p == 0 || m->cut != NULL) {
        return TUTTI_OK;
    }
    const tt_tp_item_t *item =
        x.kind == COLUMNS ? tt_tp_item_of(f->plan, x.of, TUTTI_PARALLEL_COLUMN) : NULL;
    if (x.kind == UNKNOWN || (item != NULL && item->rule.parts > 1)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "parallelize: %s, a dropout layer, is given parts of columns that are not "
                       "known, so that its mask is not that of the whole: put it behind one layer "
                       "cut by columns (of one part) in a sequential, or behind the row",
                       f->name_of(f->user, m));
    }
    return x.kind == COLUMNS || f->plan->is_sequence_cut ? f->found(f->user, m, x.of) : TUTTI_OK;
}

static tutti_status_t see_drawing(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    return x.kind == WHOLE && !f->plan->is_sequence_cut
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "parallelize: %s, a layer that draws (%s), is given a part of a tensor: "
                         "put it where tensors are whole, or take another activation or dropout",
                         f->name_of(f->user, m), m->ops->name);
}

/* Whether m needs all columns together: a dimension that is counted from the first one may be the
 * last one. */
static bool mixes_columns(const tutti_module_t *m)
{
    const tutti_dim_options_t *options = m->state;
    return (m->ops == &tutti_softmax_layer || m->ops == &tutti_log_softmax_layer ||
            m->ops == &tutti_softmin_layer || m->ops == &tutti_glu_layer) &&
           (options->dim == -1 || options->dim > 0);
}

static tutti_status_t see_mixing(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    return x.kind != COLUMNS
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "parallelize: %s, a %s layer, is given a part of the columns, which it "
                         "needs together: give it what is whole (a rule of the style output for "
                         "the layer before), or count its dimension from the last one",
                         f->name_of(f->user, m), m->ops->name);
}

static tutti_status_t see(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    const bool is_chain = m->ops == &tutti_sequential_layer;
    x = prepare(f, m, TUTTI_PARALLEL_INPUT, x);
    if (m->ops == &tutti_dropout_layer) {
        return see_dropout(f, m, x);
    }
    if (draws(m)) {
        return see_drawing(f, m, x);
    }
    if (mixes_columns(m)) {
        return see_mixing(f, m, x);
    }
    bool are_columns = x.kind != WHOLE;
    for (size_t i = 0; i < m->child_count && !is_chain; i++) {
        const flow_t whole = {WHOLE, NULL};
        are_columns = are_columns || give(f, m->children[i].module, whole).kind != WHOLE;
    }
    if (!is_chain) {
        x = (flow_t){are_columns ? UNKNOWN : WHOLE, NULL};
    }
    for (size_t i = 0; i < m->child_count; i++) {
        TT_TRY(see(f, m->children[i].module, x));
        x = is_chain ? give(f, m->children[i].module, x) : x;
    }
    return TUTTI_OK;
}

tutti_status_t tt_tp_flow(const tt_tp_flow_t *flow, const tutti_module_t *m)
{
    return see(flow, m, (flow_t){WHOLE, NULL});
}
