/* The parts of a module, one after the other, each measured on what the one before gave.
 *
 *     inputs (leaves) ──F──► outputs        once for backward in two turns: I, then W
 *     grads  ◄──── ones                     once for the whole one: B
 *
 * Each is done some times, the first one not counted, and the least time is taken: whatever else
 * the machine does only makes it longer. Cost: pipeline_measure.h.
 */
#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/layer_measure.h"

enum { REPEATS = 5 };

/* What goes from part to part, as leaves of no graph; owned. */
typedef struct {
    tutti_tensor_t *tensors[TT_WIDTH];
    bool need_grad[TT_WIDTH];
    int count;
} flow_t;

typedef struct {
    tutti_context_t *ctx;
    const tutti_measure_options_t *options;
    const tt_part_t *part;
    bool is_last;
    const flow_t *in;
    double forward, inputs, weights, whole; /* seconds, the least so far */
    double held, pending;                   /* bytes */
} meter_t;

/* One forward, in a scope of its own. */
typedef struct {
    tutti_scope_t *s;
    tutti_tensor_t *inputs[TT_WIDTH], *outputs[TT_WIDTH];
    int output_count;
    tutti_root_t roots[TT_WIDTH];
    int root_count;
    size_t live; /* bytes before it */
} turn_t;

/* ---- clock and memory ------------------------------------------------------------------------ */

/* What was launched is done, too. */
static tutti_status_t read_clock(const meter_t *m, double *seconds)
{
    if (m->ctx->place.accelerator != NULL) {
        TT_TRY(tutti_device_synchronize(m->ctx->place.accelerator, 0));
    }
    *seconds = (double)tt_clock_ns() / (double)TT_NS_PER_S;
    return TUTTI_OK;
}

static size_t live_bytes(const meter_t *m)
{
    return tt_device_stats(m->ctx->place.device).live_bytes;
}

static double grown(const meter_t *m, size_t before)
{
    const size_t now = live_bytes(m);
    return now > before ? (double)(now - before) : 0;
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static tutti_status_t take_inputs(const meter_t *m, turn_t *t)
{
    for (int i = 0; i < m->in->count; i++) {
        t->inputs[i] = tutti_detach(t->s, m->in->tensors[i]);
        TT_TRY(tutti_tensor_status(t->inputs[i]));
        TT_TRY(m->in->need_grad[i] ? tutti_tensor_set_requires_grad(t->inputs[i], true) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t add_loss(const meter_t *m, turn_t *t)
{
    const tutti_measure_options_t *o = m->options;
    if (!m->is_last || o->loss == NULL) {
        return TUTTI_OK;
    }
    tutti_tensor_t *loss =
        o->loss(t->s, t->outputs, t->output_count, o->targets, o->target_count, o->loss_user);
    if (loss == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "measure_layers: the loss function gave NULL");
    }
    t->outputs[0] = loss;
    t->output_count = 1;
    return TUTTI_OK;
}

static tutti_status_t run_forward(meter_t *m, turn_t *t)
{
    double begin, end;
    const bool again = m->part->is_recomputed || m->options->recompute;
    t->output_count = m->part->outputs;
    t->live = live_bytes(m);
    TT_TRY(read_clock(m, &begin));
    (again ? tutti_recompute_many : tutti_forward_many)(t->s, m->part->module, t->inputs,
                                                        m->in->count, t->outputs, t->output_count);
    TT_TRY(add_loss(m, t));
    TT_TRY(tutti_scope_status(t->s));
    TT_TRY(read_clock(m, &end));
    m->forward = fmin(m->forward, end - begin);
    m->held = grown(m, t->live);
    return TUTTI_OK;
}

/* Ones, made before the clock is read. */
static tutti_status_t make_roots(turn_t *t)
{
    t->root_count = 0;
    for (int i = 0; i < t->output_count; i++) {
        if (tutti_tensor_requires_grad(t->outputs[i])) {
            t->roots[t->root_count++] =
                (tutti_root_t){.tensor = t->outputs[i],
                               .grad_output = tutti_ones(t->s, tutti_tensor_dtype(t->outputs[i]),
                                                         tutti_tensor_shape(t->outputs[i]))};
        }
    }
    return tutti_scope_status(t->s);
}

static int list_wanted(const meter_t *m, const turn_t *t, tutti_tensor_t *wanted[TT_WIDTH])
{
    int count = 0;
    for (int i = 0; i < m->in->count; i++) {
        if (m->in->need_grad[i]) {
            wanted[count++] = t->inputs[i];
        }
    }
    return count;
}

static tutti_status_t run_whole(meter_t *m, const turn_t *t)
{
    double begin, end;
    TT_TRY(read_clock(m, &begin));
    TT_TRY(tutti_backward_many(t->s, t->roots, t->root_count, NULL));
    TT_TRY(read_clock(m, &end));
    m->whole = fmin(m->whole, end - begin);
    return TUTTI_OK;
}

static tutti_status_t run_turns(meter_t *m, const turn_t *t)
{
    double begin, middle, end;
    tutti_tensor_t *wanted[TT_WIDTH], *grads[TT_WIDTH];
    tutti_backward_run_t *run = NULL;
    const int count = list_wanted(m, t, wanted);
    if (count == 0) { /* all is left to W */
        m->inputs = 0;
        return run_whole(m, t);
    }
    TT_TRY(read_clock(m, &begin));
    TT_TRY(tutti_backward_inputs(t->s, t->roots, t->root_count, NULL, wanted, count, grads, &run));
    const tutti_status_t read = read_clock(m, &middle);
    if (read < 0) {
        tutti_backward_release(run);
        return read;
    }
    m->pending = grown(m, t->live);
    TT_TRY(tutti_backward_weights(run));
    TT_TRY(read_clock(m, &end));
    m->inputs = fmin(m->inputs, middle - begin);
    m->weights = fmin(m->weights, end - middle);
    return TUTTI_OK;
}

/* ---- a part ---------------------------------------------------------------------------------- */

/* What the next part is given; nobody needs the graph behind it. */
static tutti_status_t keep_outputs(const turn_t *t, flow_t *out)
{
    for (int i = 0; i < t->output_count; i++) {
        tutti_tensor_t *x = tutti_detach(t->s, t->outputs[i]);
        TT_TRY(tutti_tensor_status(x));
        out->need_grad[i] = tutti_tensor_requires_grad(t->outputs[i]);
        out->tensors[i] = tutti_tensor_retain(x);
        out->count = i + 1;
    }
    return TUTTI_OK;
}

static void drop_flow(flow_t *flow)
{
    tt_tensors_release(flow->tensors, TT_WIDTH);
    *flow = (flow_t){.count = 0};
}

static tutti_status_t run_turn(meter_t *m, turn_t *t, bool is_whole, flow_t *out)
{
    TT_TRY(take_inputs(m, t));
    TT_TRY(run_forward(m, t));
    TT_TRY(out != NULL ? keep_outputs(t, out) : TUTTI_OK);
    TT_TRY(make_roots(t));
    return t->root_count == 0 ? TUTTI_OK : (is_whole ? run_whole : run_turns)(m, t);
}

/* out: NULL, or what it gave. */
static tutti_status_t take_turn(meter_t *m, tt_keeping_t *keeping, bool is_whole, flow_t *out)
{
    turn_t t = {.root_count = 0};
    TT_TRY(tutti_scope_open(m->ctx, &t.s));
    const tutti_status_t status = run_turn(m, &t, is_whole, out), closed = tutti_scope_close(t.s);
    tt_keeping_drop_grads(keeping);
    return status < 0 ? status : closed;
}

static tutti_status_t take_turns(meter_t *m, tt_keeping_t *keeping, int repeats, flow_t *out)
{
    for (int i = 0; i <= repeats; i++) {
        TT_TRY(take_turn(m, keeping, false, NULL));
        TT_TRY(take_turn(m, keeping, true, i == repeats ? out : NULL));
        if (i == 0 && repeats > 0) {
            m->forward = m->inputs = m->weights = m->whole = INFINITY;
        }
    }
    return TUTTI_OK;
}

static double found(double seconds)
{
    return isfinite(seconds) ? seconds : 0;
}

static double bytes_of(const flow_t *flow)
{
    double bytes = 0;
    for (int i = 0; i < flow->count; i++) {
        bytes += (double)flow->tensors[i]->numel *
                 (double)tutti_dtype_bytes(tutti_tensor_dtype(flow->tensors[i]));
    }
    return bytes;
}

static tutti_status_t add_bytes(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(double *)user += (double)x->numel * (double)tutti_dtype_bytes(x->dtype);
    return TUTTI_OK;
}

static tutti_status_t write_row(const meter_t *m, const flow_t *out, tutti_pipeline_layer_t *layer,
                                tutti_pipeline_costs_t *costs)
{
    const double inputs = found(m->inputs), whole = found(m->whole);
    *costs = (tutti_pipeline_costs_t){
        .forward = found(m->forward),
        .input = inputs,
        .weight = inputs > 0 ? found(m->weights) : whole,
        .backward = whole,
        .activation = m->held,
        .pending = m->pending,
    };
    layer->seconds = costs->forward + costs->backward;
    layer->output_bytes = bytes_of(out);
    return tutti_module_each_parameter(m->part->module, add_bytes, &layer->weight_bytes);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static tutti_status_t measure_part(meter_t *m, tt_keeping_t *keeping, flow_t *out,
                                   const tutti_layers_t *table, int index)
{
    m->forward = m->inputs = m->weights = m->whole = INFINITY;
    m->held = m->pending = 0;
    TT_TRY(take_turns(m, keeping, m->options->repeats != 0 ? m->options->repeats : REPEATS, out));
    return write_row(m, out, &table->layers[index], &table->costs[index]);
}

static void first_flow(const tutti_measure_options_t *options, flow_t *flow)
{
    for (flow->count = 0; flow->count < options->input_count; flow->count++) {
        flow->tensors[flow->count] = tutti_tensor_retain(options->inputs[flow->count]);
    }
}

tutti_status_t tt_layers_measure(tutti_context_t *ctx, const tt_chain_t *chain,
                                 const tutti_measure_options_t *options, tt_keeping_t *keeping,
                                 const tutti_layers_t *table)
{
    flow_t in = {.count = 0}, out = {.count = 0};
    tutti_status_t status = TUTTI_OK;
    first_flow(options, &in);
    for (int i = 0; i < chain->count && status >= 0; i++) {
        meter_t m = {.ctx = ctx,
                     .options = options,
                     .part = &chain->parts[i],
                     .is_last = i + 1 == chain->count,
                     .in = &in};
        status = measure_part(&m, keeping, &out, table, i);
        drop_flow(&in);
        in = out;
        out = (flow_t){.count = 0};
    }
    drop_flow(&in);
    return status;
}
