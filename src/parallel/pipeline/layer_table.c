/* The table of measured layers: rank 0 fills it in, and the others are told, as rows of numbers.
 */
#include <tutti/collectives.h>

#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/layer_measure.h"

enum { NUMBERS = 9 };

/* ---- life ------------------------------------------------------------------------------------ */

static tutti_status_t open_table(const tt_chain_t *chain, tutti_layers_t *table)
{
    table->layers = tt_alloc_array((size_t)chain->count, sizeof *table->layers, "layers");
    table->costs = tt_alloc_array((size_t)chain->count, sizeof *table->costs, "costs of layers");
    TT_TRY_ALLOC(table->layers);
    TT_TRY_ALLOC(table->costs);
    for (table->count = 0; table->count < chain->count; table->count++) {
        char *name = tt_strdup(chain->parts[table->count].name, "layer's name");
        TT_TRY_ALLOC(name);
        table->layers[table->count].name = name;
    }
    return TUTTI_OK;
}

void tutti_layers_release(tutti_layers_t *table)
{
    if (table == NULL) {
        return;
    }
    for (int i = 0; i < table->count; i++) {
        tt_free((char *)(uintptr_t)table->layers[i].name);
    }
    tt_free(table->layers);
    tt_free(table->costs);
    *table = (tutti_layers_t){0};
}

/* ---- telling the others ---------------------------------------------------------------------- */

static void list_numbers(const tutti_layers_t *table, int i, double *numbers[NUMBERS])
{
    tutti_pipeline_layer_t *layer = &table->layers[i];
    tutti_pipeline_costs_t *costs = &table->costs[i];
    double *const all[NUMBERS] = {&layer->seconds,  &layer->output_bytes, &layer->weight_bytes,
                                  &costs->forward,  &costs->input,        &costs->weight,
                                  &costs->backward, &costs->activation,   &costs->pending};
    memcpy(numbers, all, sizeof all);
}

static void copy_numbers(const tutti_layers_t *table, double *row, bool is_read)
{
    for (int i = 0; i < table->count; i++) {
        double *numbers[NUMBERS];
        list_numbers(table, i, numbers);
        for (int k = 0; k < NUMBERS; k++, row++) {
            *(is_read ? numbers[k] : row) = *(is_read ? row : numbers[k]);
        }
    }
}

static tutti_status_t tell(tutti_group_t *group, const tutti_layers_t *table)
{
    tutti_tensor_t *x = NULL;
    const tutti_status_t made = tt_group_agree(
        group, tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)table->count, NUMBERS), &x));
    if (made < 0) {
        tutti_tensor_release(x);
        return made;
    }
    copy_numbers(table, tutti_tensor_data(x), false);
    const tutti_status_t status = tutti_broadcast(group, x, 0, NULL);
    if (status >= 0) {
        copy_numbers(table, tutti_tensor_data(x), true);
    }
    tutti_tensor_release(x);
    return status < 0 ? tt_group_give_up(group, status) : TUTTI_OK;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static tutti_status_t check(const tutti_measure_options_t *o)
{
    if (o->input_count < 1 || o->input_count > TT_WIDTH || o->inputs == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "measure_layers: %d inputs; want 1 to %d, of a micro-batch",
                       o->input_count, TT_WIDTH);
    }
    if (o->repeats < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "measure_layers: repeats is %d", o->repeats);
    }
    for (int i = 0; i < o->input_count; i++) {
        TT_TRY(tt_tensor_status(o->inputs[i]));
    }
    for (int i = 0; i < o->target_count; i++) {
        TT_TRY(tt_tensor_status(o->targets[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t measure(tutti_context_t *ctx, tutti_module_t *module, const tt_chain_t *chain,
                              const tutti_measure_options_t *options, const tutti_layers_t *table)
{
    tt_keeping_t keeping;
    TT_TRY(check(options));
    tutti_status_t status = tt_keeping_open(ctx, module, &keeping);
    if (status >= 0) {
        status = tt_layers_measure(ctx, chain, options, table);
    }
    const tutti_status_t closed = tt_keeping_close(&keeping);
    return status < 0 ? status : closed;
}

static tutti_status_t fill(tutti_context_t *ctx, tutti_module_t *module, tutti_group_t *group,
                           const tutti_measure_options_t *options, tutti_layers_t *table)
{
    tt_chain_t chain = {0};
    tutti_status_t status = tt_chain_open(module, &chain);
    if (status >= 0) {
        status = open_table(&chain, table);
    }
    if (status >= 0 && (group == NULL || tutti_group_rank(group) == 0)) {
        status = measure(ctx, module, &chain, options, table);
    }
    tt_chain_close(&chain);
    TT_TRY(tt_group_agree(group, status));
    return group == NULL || tutti_group_size(group) == 1 ? TUTTI_OK : tell(group, table);
}

tutti_status_t tutti_measure_layers(tutti_context_t *ctx, tutti_module_t *module,
                                    tutti_group_t *group, const tutti_measure_options_t *options,
                                    tutti_layers_t *out)
{
    TT_WANT("measure_layers", ctx);
    TT_WANT("measure_layers", module);
    TT_WANT("measure_layers", options);
    TT_WANT("measure_layers", out);
    tutti_layers_t table = {0};
    const tutti_status_t status = fill(ctx, module, group, options, &table);
    if (status < 0) {
        tutti_layers_release(&table);
        return status;
    }
    *out = table;
    return TUTTI_OK;
}

/* A stage whose inputs need no gradient leaves all of its backward to W. */
static tutti_pipeline_costs_t add_up(const tutti_layers_t *layers, int first, int count)
{
    tutti_pipeline_costs_t sum = {0};
    for (int i = first; i < first + count; i++) {
        const tutti_pipeline_costs_t *c = &layers->costs[i];
        sum.forward += c->forward;
        sum.input += c->input;
        sum.weight += c->weight;
        sum.backward += c->backward;
        sum.activation += c->activation;
        sum.pending += c->pending;
    }
    if (layers->costs[first].input == 0) {
        sum.input = 0;
        sum.weight = sum.backward;
    }
    return sum;
}

tutti_status_t tutti_layers_stage_costs(const tutti_layers_t *layers,
                                        const tutti_pipeline_partition_t *cut,
                                        tutti_pipeline_costs_t *costs)
{
    TT_WANT("layers_stage_costs", layers);
    TT_WANT("layers_stage_costs", cut);
    TT_WANT("layers_stage_costs", costs);
    for (int s = 0; s < cut->count; s++) {
        const tutti_pipeline_stage_t *stage = &cut->stages[s];
        if (stage->first < 0 || stage->layers < 1 || stage->first > layers->count - stage->layers) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "layers_stage_costs: stage %d has %d layers from %d on, of %d", s,
                           stage->layers, stage->first, layers->count);
        }
    }
    for (int s = 0; s < cut->count; s++) {
        costs[s] = add_up(layers, cut->stages[s].first, cut->stages[s].layers);
    }
    return TUTTI_OK;
}
