/* What flows into dropout layers: a mask is drawn by the index in the whole.
 *
 *     sequential     known: each child gets what the one before it gives
 *                    linear (column) -> activation -> dropout: this rank's columns
 *                    linear (row) -> dropout: whole, or a part of the sequence
 *     other kinds    their forward is not known: a dropout layer beside layers that give columns
 *                    to others is an error, and beside others it gets what is whole
 */
#include "parallel/tensor/tp_item.h"

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

static bool keeps_elements(const tutti_module_t *m)
{
    return m->ops == &tutti_activation_layer || m->ops == &tutti_dropout_layer;
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

/* An activation that draws does so for what it is given, as if that was the whole. */
static tutti_status_t see_activation(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    const tutti_activation_options_t *options = m->state;
    return options->kind != TUTTI_ACTIVATION_RRELU || (x.kind == WHOLE && !f->plan->is_sequence_cut)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "parallelize: %s, an activation layer that draws (RReLU), is given a part "
                         "of a tensor: put it where tensors are whole, or take another activation",
                         f->name_of(f->user, m));
}

static tutti_status_t see(const tt_tp_flow_t *f, const tutti_module_t *m, flow_t x)
{
    const bool is_chain = m->ops == &tutti_sequential_layer;
    x = prepare(f, m, TUTTI_PARALLEL_INPUT, x);
    if (m->ops == &tutti_dropout_layer) {
        return see_dropout(f, m, x);
    }
    if (m->ops == &tutti_activation_layer) {
        return see_activation(f, m, x);
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
