/* The parts of a module, run as a step runs them, with a clock between: what is in the caches, and
 * that gradients are added up, is as it will be.
 *
 *     part 0 ──F──► part 1 ──F──► part 2 ──F──► loss
 *     I W    ◄───── I W    ◄───── I W    ◄─────          in one pass; in the next one B for each
 *
 * Passes are made some times, the first ones not counted, and the least times are taken: whatever
 * else the machine does only makes them longer. Cost: pipeline_measure.h.
 */
#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/layer_measure.h"

enum { REPEATS = 5, KINDS = 2 };

/* One part. */
typedef struct {
    const tt_part_t *part;
    bool is_last;
    double forward, inputs, weights, whole; /* seconds, the least so far */
    double held, pending, output_bytes;
    /* of a pass: */
    tutti_scope_t *s;
    tutti_tensor_t *in[TT_WIDTH], *out[TT_WIDTH];
    tutti_tensor_t *in_grads[TT_WIDTH]; /* NULL: none */
    int in_count, out_count;
} meter_t;

typedef struct {
    tutti_context_t *ctx;
    const tutti_measure_options_t *options;
    meter_t *meters; /* [count] */
    int count;
    bool is_whole, is_counted; /* the pass */
} pass_t;

/* ---- clock and memory ------------------------------------------------------------------------ */

/* What was launched is done, too. */
static tutti_status_t read_clock(const pass_t *p, double *seconds)
{
    if (p->ctx->place.accelerator != NULL) {
        TT_TRY(tutti_device_synchronize(p->ctx->place.accelerator, 0));
    }
    *seconds = (double)tt_clock_ns() / (double)TT_NS_PER_S;
    return TUTTI_OK;
}

static void take_least(const pass_t *p, double *least, double seconds)
{
    if (p->is_counted && seconds < *least) {
        *least = seconds;
    }
}

static double live_bytes(const pass_t *p)
{
    return (double)tt_device_stats(p->ctx->place.device).live_bytes;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Of the part before, as leaves of a graph of their own; before NULL: the batch. */
static tutti_status_t take_inputs(const pass_t *p, meter_t *m, const meter_t *before)
{
    m->in_count = before == NULL ? p->options->input_count : before->out_count;
    for (int i = 0; i < m->in_count; i++) {
        tutti_tensor_t *x = before == NULL ? p->options->inputs[i] : before->out[i];
        m->in[i] = tutti_detach(m->s, x);
        TT_TRY(tutti_tensor_status(m->in[i]));
        if (before != NULL && tutti_tensor_requires_grad(x)) {
            TT_TRY(tutti_tensor_set_requires_grad(m->in[i], true));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t add_loss(const pass_t *p, meter_t *m)
{
    const tutti_measure_options_t *o = p->options;
    if (!m->is_last || o->loss == NULL) {
        return TUTTI_OK;
    }
    m->out[0] = o->loss(m->s, m->out, m->out_count, o->targets, o->target_count, o->loss_user);
    m->out_count = 1;
    return m->out[0] != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "measure_layers: the loss function gave NULL");
}

static void note_bytes(const pass_t *p, meter_t *m, double before)
{
    m->held = fmax(live_bytes(p) - before, 0);
    m->output_bytes = 0;
    for (int i = 0; i < m->out_count; i++) {
        m->output_bytes += (double)tutti_tensor_numel(m->out[i]) *
                           (double)tutti_dtype_bytes(tutti_tensor_dtype(m->out[i]));
    }
}

static tutti_status_t run_forward(const pass_t *p, meter_t *m, const meter_t *before)
{
    double begin, end;
    const double live = live_bytes(p);
    const bool again = m->part->is_recomputed || p->options->recompute;
    TT_TRY(take_inputs(p, m, before));
    m->out_count = m->part->outputs;
    TT_TRY(read_clock(p, &begin));
    (again ? tutti_recompute_many : tutti_forward_many)(m->s, m->part->module, m->in, m->in_count,
                                                        m->out, m->out_count);
    TT_TRY(add_loss(p, m));
    TT_TRY(tutti_scope_status(m->s));
    TT_TRY(read_clock(p, &end));
    take_least(p, &m->forward, end - begin);
    note_bytes(p, m, live);
    return TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* behind NULL: ones. */
static int list_roots(const meter_t *m, const meter_t *behind, tutti_root_t roots[TT_WIDTH])
{
    int count = 0;
    for (int i = 0; i < m->out_count; i++) {
        tutti_tensor_t *x = m->out[i], *grad = NULL;
        if (!tutti_tensor_requires_grad(x)) {
            continue;
        }
        grad = behind != NULL ? behind->in_grads[i]
                              : tutti_ones(m->s, tutti_tensor_dtype(x), tutti_tensor_shape(x));
        if (grad != NULL) {
            roots[count++] = (tutti_root_t){.tensor = x, .grad_output = grad};
        }
    }
    return count;
}

static tutti_status_t run_whole(const pass_t *p, meter_t *m, const tutti_root_t *roots, int count)
{
    double begin, end;
    TT_TRY(read_clock(p, &begin));
    TT_TRY(tutti_backward_many(m->s, roots, count, NULL));
    TT_TRY(read_clock(p, &end));
    take_least(p, &m->whole, end - begin);
    for (int i = 0; i < m->in_count; i++) {
        m->in_grads[i] = tutti_tensor_grad(m->in[i]);
    }
    return TUTTI_OK;
}

static int list_wanted(const meter_t *m, tutti_tensor_t *wanted[TT_WIDTH], int places[TT_WIDTH])
{
    int count = 0;
    for (int i = 0; i < m->in_count; i++) {
        if (tutti_tensor_requires_grad(m->in[i])) {
            places[count] = i;
            wanted[count++] = m->in[i];
        }
    }
    return count;
}

static tutti_status_t run_turns(const pass_t *p, meter_t *m, const tutti_root_t *roots, int count)
{
    double begin, middle, end;
    int places[TT_WIDTH];
    tutti_tensor_t *wanted[TT_WIDTH], *grads[TT_WIDTH];
    tutti_backward_run_t *run = NULL;
    const int inputs = list_wanted(m, wanted, places);
    const double live = live_bytes(p);
    if (inputs == 0) { /* all is left to W */
        m->inputs = 0;
        return run_whole(p, m, roots, count);
    }
    TT_TRY(read_clock(p, &begin));
    TT_TRY(tutti_backward_inputs(m->s, roots, count, NULL, wanted, inputs, grads, &run));
    const tutti_status_t read = read_clock(p, &middle);
    if (read < 0) {
        tutti_backward_release(run);
        return read;
    }
    m->pending = fmax(m->held + live_bytes(p) - live, 0);
    TT_TRY(tutti_backward_weights(run));
    TT_TRY(read_clock(p, &end));
    take_least(p, &m->inputs, middle - begin);
    take_least(p, &m->weights, end - middle);
    for (int i = 0; i < inputs; i++) {
        m->in_grads[places[i]] = grads[i];
    }
    return TUTTI_OK;
}

static tutti_status_t run_backward(const pass_t *p, meter_t *m, const meter_t *behind)
{
    tutti_root_t roots[TT_WIDTH];
    const int count = list_roots(m, behind, roots);
    TT_TRY(tutti_scope_status(m->s));
    return count == 0 ? TUTTI_OK : (p->is_whole ? run_whole : run_turns)(p, m, roots, count);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static tutti_status_t run_pass(const pass_t *p)
{
    for (int i = 0; i < p->count; i++) {
        TT_TRY(tutti_scope_open(p->ctx, &p->meters[i].s));
        TT_TRY(run_forward(p, &p->meters[i], i == 0 ? NULL : &p->meters[i - 1]));
    }
    for (int i = p->count - 1; i >= 0; i--) {
        TT_TRY(run_backward(p, &p->meters[i], i == p->count - 1 ? NULL : &p->meters[i + 1]));
    }
    return TUTTI_OK;
}

static tutti_status_t take_pass(const pass_t *p)
{
    tutti_status_t status = run_pass(p);
    for (int i = p->count - 1; i >= 0; i--) {
        meter_t *m = &p->meters[i];
        const tutti_status_t closed = m->s == NULL ? TUTTI_OK : tutti_scope_close(m->s);
        status = status < 0 ? status : closed;
        m->s = NULL;
        memset(m->in_grads, 0, sizeof m->in_grads);
    }
    return status;
}

static tutti_status_t take_passes(pass_t *p)
{
    const int repeats = p->options->repeats != 0 ? p->options->repeats : REPEATS;
    for (int i = 0; i < KINDS * (repeats + 1); i++) {
        p->is_whole = i % KINDS == 1;
        p->is_counted = i >= KINDS;
        TT_TRY(take_pass(p));
    }
    return TUTTI_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static double found(double seconds)
{
    return isfinite(seconds) ? seconds : 0;
}

static tutti_status_t add_bytes(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    *(double *)user += (double)x->numel * (double)tutti_dtype_bytes(x->dtype);
    return TUTTI_OK;
}

static tutti_status_t write_row(const meter_t *m, tutti_pipeline_layer_t *layer,
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
    layer->output_bytes = m->output_bytes;
    return tutti_module_each_parameter(m->part->module, add_bytes, &layer->weight_bytes);
}

static void begin_meters(const pass_t *p, const tt_chain_t *chain)
{
    for (int i = 0; i < p->count; i++) {
        p->meters[i] = (meter_t){.part = &chain->parts[i],
                                 .is_last = i + 1 == p->count,
                                 .forward = INFINITY,
                                 .inputs = INFINITY,
                                 .weights = INFINITY,
                                 .whole = INFINITY};
    }
}

tutti_status_t tt_layers_measure(tutti_context_t *ctx, const tt_chain_t *chain,
                                 const tutti_measure_options_t *options,
                                 const tutti_layers_t *table)
{
    pass_t p = {.ctx = ctx, .options = options, .count = chain->count};
    p.meters = tt_alloc_array((size_t)p.count, sizeof *p.meters, "layers under way");
    TT_TRY_ALLOC(p.meters);
    begin_meters(&p, chain);
    tutti_status_t status = take_passes(&p);
    for (int i = 0; i < p.count && status >= 0; i++) {
        status = write_row(&p.meters[i], &table->layers[i], &table->costs[i]);
    }
    tt_free(p.meters);
    return status;
}
