/* rnn_scan, lstm_scan, gru_scan: the steps of a recurrent layer over time, given the products of
 * all inputs. One operation for all steps, for each needs the one before, and so that the weight's
 * gradient is one product.
 *
 *     forward   step t:  product = h W_hhᵀ + b_hh, then recurrent.h's step
 *     backward  step t:  recurrent.h's step, then dh = dproduct W_hh;  at last dW_hh = dproductᵀ h
 *
 * With a projection, of an LSTM, the step's hidden units r become the state:
 *
 *     forward   step t:  …, h = r W_hrᵀ
 *     backward  step t:  dr = (dy + dh) W_hr, …;  at last dW_hr = (dy + dh)ᵀ r
 *
 * Sums and cells are f32 (f64 for f64), states have the dtype of the products. The weights are
 * packed once for the products of all steps. Cost: T products [B, H] × [H, G H]; keeps the gates of
 * all steps. Source: op_nn.h. */
#include <tutti/op_nn.h>

#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/matmul/matmul.h"
#include "core/kernel/recurrent/recurrent.h"
#include "core/kernel/reduce/reduce.h"
#include "core/kernel/norm/rows.h"

enum { X, W, B, H, C, R, INPUTS };
enum { SAVED_W, SAVED_KEPT, SAVED_C, SAVED_Y, SAVED_H, SAVED_C0, SAVED_R, SAVED_HIDDEN };

typedef struct {
    tt_recurrent_t kind;
    bool is_reverse;
} scan_params_t;

/* T steps of B rows of n hidden units, and of p numbers of a state: n without a projection. */
typedef struct {
    tt_recurrent_t kind;
    bool is_reverse;
    tutti_dtype_t dtype, accum;
    int64_t steps, rows, n, p, gates;
} scan_t;

static scan_t scan_of(const scan_params_t *params, tutti_dtype_t dtype, tutti_shape_t x,
                      tutti_shape_t w)
{
    const int64_t gates = (int64_t)tt_recurrent_gates(params->kind);
    return (scan_t){.kind = params->kind,
                    .is_reverse = params->is_reverse,
                    .dtype = dtype,
                    .accum = tt_accum_dtype(dtype),
                    .steps = x.dims[0],
                    .rows = x.dims[1],
                    .n = x.dims[2] / gates,
                    .p = w.dims[1],
                    .gates = gates};
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool has_shape(const tutti_tensor_t *x, tutti_shape_t shape)
{
    return x == NULL || tutti_shape_equal(x->shape, shape);
}

static tutti_status_t check_shapes(const tutti_op_call_t *call)
{
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[W]->shape;
    const scan_params_t *params = call->params;
    const int64_t gates = (int64_t)tt_recurrent_gates(params->kind);
    if (x.rank != 3 || x.dims[0] < 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "x must be [T, B, %lld H] with at least one step", (long long)gates);
    }
    const tutti_tensor_t *r = call->input_count > R ? call->inputs[R] : NULL;
    if (w.rank != 2 || w.dims[0] != x.dims[2] ||
        (r == NULL ? w.dims[0] != gates * w.dims[1] : w.dims[0] % gates != 0)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "weight must be [%lld H, %s], its rows as long as x's last dimension",
                             (long long)gates, r == NULL ? "H" : "P");
    }
    const int64_t n = w.dims[0] / gates;
    if (!has_shape(r, TUTTI_SHAPE(w.dims[1], n))) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "a projection must be [P, H], [%lld, %lld]",
                             (long long)w.dims[1], (long long)n);
    }
    if (!has_shape(call->inputs[B], TUTTI_SHAPE(w.dims[0]))) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "bias must be [%lld H], [%lld]",
                             (long long)gates, (long long)w.dims[0]);
    }
    for (int i = H; i <= C && i < call->input_count; i++) {
        const tutti_shape_t state = TUTTI_SHAPE(x.dims[1], i == H ? w.dims[1] : n);
        if (!has_shape(call->inputs[i], state)) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE, "a state must be [B, H], [%lld, %lld]",
                                 (long long)state.dims[0], (long long)state.dims[1]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t scan_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    tutti_dtype_t dtype;
    TT_TRY(tt_product_dtype(call, &dtype));
    TT_TRY(check_shapes(call));
    const scan_t scan =
        scan_of(call->params, dtype, call->inputs[X]->shape, call->inputs[W]->shape);
    outputs[0] = (tutti_spec_t){dtype, TUTTI_SHAPE(scan.steps, scan.rows, scan.p)};
    if (call->output_count > 1) {
        outputs[1] = (tutti_spec_t){dtype, TUTTI_SHAPE(scan.rows, scan.n)};
    }
    return TUTTI_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Step t of x [T, ...], or of x [1, ...] which every step writes anew. */
static void *at_step(const tutti_tensor_t *x, int64_t t)
{
    const int64_t steps = x == NULL ? 0 : x->shape.dims[0];
    const size_t bytes = steps == 0 ? 0 : tutti_tensor_bytes(x) / (size_t)steps;
    return x == NULL ? NULL : (char *)tt_tensor_data(x) + (steps > 1 ? (size_t)t : 0) * bytes;
}

/* The time of the ith step. */
static int64_t time_of(const scan_t *scan, int64_t i)
{
    return scan->is_reverse ? scan->steps - 1 - i : i;
}

static tutti_status_t new_tensor(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                 bool zeroed, tutti_tensor_t **out)
{
    return tt_tensor_new(s->ctx->place.device, dtype, shape, zeroed, out);
}

/* A state as the kernels take it, zeros where it is missing. */
static tutti_status_t bring_state(tutti_op_call_t *call, int input, const scan_t *scan,
                                  tutti_dtype_t dtype, tutti_tensor_t **out)
{
    tutti_tensor_t *x = input < call->input_count ? call->inputs[input] : NULL;
    const tutti_shape_t shape = TUTTI_SHAPE(scan->rows, input == H ? scan->p : scan->n);
    return x != NULL ? tt_dense(call->scope, x, dtype, out)
                     : new_tensor(call->scope, dtype, shape, true, out);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What forward makes on its way: tensors alone. */
typedef struct {
    tutti_tensor_t *x, *w, *bias, *h, *c0;
    tutti_tensor_t *product, *kept, *c;
    tutti_tensor_t *packed;     /* w, for the products of all steps; or NULL */
    tutti_tensor_t *r, *hidden; /* with a projection: it, and what it is applied to */
} parts_t;

static tutti_status_t make_parts(tutti_op_call_t *call, const scan_t *scan, parts_t *p)
{
    tutti_scope_t *s = call->scope;
    const int64_t kept_steps = call->needs_grad ? scan->steps : 1;
    const int64_t kept = (int64_t)tt_recurrent_kept(scan->kind) * scan->n;
    TT_TRY(tt_dense(s, call->inputs[X], scan->dtype, &p->x));
    TT_TRY(tt_dense(s, call->inputs[W], scan->dtype, &p->w));
    TT_TRY(tt_dense(s, call->inputs[B], scan->accum, &p->bias));
    TT_TRY(bring_state(call, H, scan, scan->dtype, &p->h));
    TT_TRY(new_tensor(s, scan->accum, TUTTI_SHAPE(scan->rows, scan->gates * scan->n), false,
                      &p->product));
    TT_TRY(new_tensor(s, scan->accum, TUTTI_SHAPE(kept_steps, scan->rows, kept), false, &p->kept));
    if (scan->kind != TT_RECURRENT_LSTM) {
        return TUTTI_OK;
    }
    TT_TRY(bring_state(call, C, scan, scan->accum, &p->c0));
    TT_TRY(new_tensor(s, scan->accum, TUTTI_SHAPE(kept_steps, scan->rows, scan->n), false, &p->c));
    if (call->inputs[R] == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_dense(s, call->inputs[R], scan->dtype, &p->r));
    return new_tensor(s, scan->dtype, TUTTI_SHAPE(kept_steps, scan->rows, scan->n), false,
                      &p->hidden);
}

/* Weights of the products of all steps, packed once; NULL where a product gains nothing by it. */
static tutti_status_t pack_weights(tutti_scope_t *s, const tt_matmul_t *product,
                                   tutti_tensor_t **packed)
{
    const size_t bytes = tt_matmul_packed_bytes(product->dtype, product->n, product->k);
    if (bytes == 0) {
        return TUTTI_OK;
    }
    TT_TRY(new_tensor(s, TUTTI_U8, TUTTI_SHAPE((int64_t)bytes), false, packed));
    return tt_matmul_pack(tt_scope_exec(s), product, tt_tensor_data(*packed));
}

/* product = h W_hhᵀ + b_hh */
static tt_matmul_t state_product(const scan_t *scan, const parts_t *p)
{
    return (tt_matmul_t){.batch = 1,
                         .m = scan->rows,
                         .n = scan->gates * scan->n,
                         .k = scan->p,
                         .dtype = scan->dtype,
                         .out_dtype = scan->accum,
                         .b = {.data = tt_tensor_data(p->w), .transposed = true},
                         .packed = tt_data_of(p->packed),
                         .c = tt_tensor_data(p->product),
                         .bias = tt_data_of(p->bias),
                         .bias_dtype = scan->accum};
}

/* y = hidden W_hrᵀ */
static tutti_status_t project(tutti_op_call_t *call, const scan_t *scan, const parts_t *p,
                              const void *hidden, void *y)
{
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){.batch = 1,
                                    .m = scan->rows,
                                    .n = scan->p,
                                    .k = scan->n,
                                    .dtype = scan->dtype,
                                    .out_dtype = scan->dtype,
                                    .a = {.data = hidden},
                                    .b = {.data = tt_tensor_data(p->r), .transposed = true},
                                    .c = y});
}

static tutti_status_t run_steps(tutti_op_call_t *call, const scan_t *scan, const parts_t *p)
{
    const void *h = tt_tensor_data(p->h), *c = tt_data_of(p->c0);
    tt_matmul_t product = state_product(scan, p);
    for (int64_t i = 0; i < scan->steps; i++) {
        const int64_t t = time_of(scan, i);
        void *y = at_step(call->outputs[0], t);
        product.a.data = h;
        TT_TRY(tt_matmul(tt_scope_exec(call->scope), &product));
        const tt_recurrent_step_t step = {.kind = scan->kind,
                                          .dtype = scan->dtype,
                                          .rows = (size_t)scan->rows,
                                          .n = (size_t)scan->n,
                                          .x = at_step(p->x, t),
                                          .product = tt_tensor_data(p->product),
                                          .h = h,
                                          .c = c,
                                          .kept = at_step(p->kept, t),
                                          .c_next = at_step(p->c, t),
                                          .y = p->r == NULL ? y : at_step(p->hidden, t)};
        TT_TRY(tt_recurrent_forward(tt_scope_exec(call->scope), &step));
        TT_TRY(p->r == NULL ? TUTTI_OK : project(call, scan, p, step.y, y));
        h = y;
        c = step.c_next;
    }
    return TUTTI_OK;
}

/* The last cell, which was made in the accumulation type. */
static tutti_status_t give_cell(tutti_op_call_t *call, const scan_t *scan, const parts_t *p)
{
    const tt_strided_t to = tt_tensor_strided(call->outputs[1]);
    const tt_strided_t from = tt_strided_rows(at_step(p->c, time_of(scan, scan->steps - 1)),
                                              scan->accum, scan->rows, scan->n);
    return tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &to,
                        &from);
}

static tutti_status_t compute(tutti_op_call_t *call, parts_t *p)
{
    const scan_t scan = scan_of(call->params, call->outputs[0]->dtype, call->inputs[X]->shape,
                                call->inputs[W]->shape);
    TT_TRY(make_parts(call, &scan, p));
    const tt_matmul_t product = state_product(&scan, p);
    TT_TRY(pack_weights(call->scope, &product, &p->packed));
    TT_TRY(run_steps(call, &scan, p));
    if (call->output_count > 1) {
        TT_TRY(give_cell(call, &scan, p));
    }
    TT_TRY(tutti_op_save(call, p->w));
    TT_TRY(tutti_op_save(call, p->kept));
    TT_TRY(tutti_op_save(call, p->c));
    TT_TRY(tutti_op_save(call, call->outputs[0]));
    TT_TRY(tutti_op_save(call, p->h));
    TT_TRY(tutti_op_save(call, p->c0));
    TT_TRY(tutti_op_save(call, p->r));
    return tutti_op_save(call, p->hidden);
}

static tutti_status_t scan_forward(tutti_op_call_t *call)
{
    parts_t parts = {0};
    const tutti_status_t status = compute(call, &parts);
    tt_tensors_release((tutti_tensor_t **)&parts, sizeof parts / sizeof(tutti_tensor_t *));
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradients on their way back through time. */
typedef struct {
    scan_t scan;
    tutti_tensor_t *dy;            /* of the dtype, or NULL */
    tutti_tensor_t *dx, *dproduct; /* [T, B, G n]; the same but for GRU */
    tutti_tensor_t *dh, *dc;       /* [B, p] and [B, n], accumulation type */
    tutti_tensor_t *packed;        /* W_hh, as in parts_t */
    /* with a projection: dy + dh [T, B, p], and what that is for hidden units, [B, n] of the
     * accumulation type */
    tutti_tensor_t *dstate, *dhidden;
} slopes_t;

static tutti_status_t fill_zeros(tutti_scope_t *s, const tutti_tensor_t *x)
{
    const tt_strided_t all = tt_tensor_strided(x);
    return tt_fill(tt_scope_exec(s), &all, 0);
}

/* dc of the step behind the last: the last cell's gradient, in memory of its own. */
static tutti_status_t make_dc(tutti_op_backward_t *call, slopes_t *g)
{
    const tutti_tensor_t *given = call->output_count > 1 ? call->grad_outputs[1] : NULL;
    g->dc = tt_scratch(call->scope, g->scan.accum, TUTTI_SHAPE(g->scan.rows, g->scan.n));
    TT_TRY(tutti_scope_status(call->scope));
    if (given == NULL) {
        return fill_zeros(call->scope, g->dc);
    }
    return tt_tensor_convert(tt_scope_exec(call->scope), g->dc, given);
}

static tutti_status_t make_slopes(tutti_op_backward_t *call, slopes_t *g)
{
    tutti_scope_t *s = call->scope;
    const scan_t *scan = &g->scan;
    g->dx = tt_scratch(s, scan->dtype, call->inputs[X].shape);
    g->dproduct =
        scan->kind == TT_RECURRENT_GRU ? tt_scratch(s, scan->dtype, call->inputs[X].shape) : g->dx;
    g->dh = tt_scratch(s, scan->accum, TUTTI_SHAPE(scan->rows, scan->p));
    if (call->saved[SAVED_R] != NULL) {
        g->dstate = tt_scratch(s, scan->dtype, call->outputs[0].shape);
        g->dhidden = tt_scratch(s, scan->accum, TUTTI_SHAPE(scan->rows, scan->n));
    }
    TT_TRY(tutti_scope_status(s));
    TT_TRY(fill_zeros(s, g->dh));
    if (scan->kind == TT_RECURRENT_LSTM) {
        TT_TRY(make_dc(call, g));
    }
    return tt_dense(s, call->grad_outputs[0], scan->dtype, &g->dy);
}

/* dh = dproduct W_hh of a step; added to what a GRU's step left there. */
static tt_matmul_t slope_product(const tutti_op_backward_t *call, const slopes_t *g)
{
    const scan_t *scan = &g->scan;
    return (tt_matmul_t){.batch = 1,
                         .m = scan->rows,
                         .n = scan->p,
                         .k = scan->gates * scan->n,
                         .dtype = scan->dtype,
                         .out_dtype = scan->accum,
                         .b = {.data = tt_tensor_data(call->saved[SAVED_W])},
                         .packed = tt_data_of(g->packed),
                         .c = tt_tensor_data(g->dh),
                         .accumulate = scan->kind == TT_RECURRENT_GRU};
}

/* dstate = dy + dh of a step, dhidden = dstate W_hr */
static tutti_status_t push_through_projection(tutti_op_backward_t *call, const slopes_t *g,
                                              int64_t t)
{
    const scan_t *scan = &g->scan;
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tt_strided_t to =
                           tt_strided_rows(at_step(g->dstate, t), scan->dtype, scan->rows, scan->p),
                       dh = tt_tensor_strided(g->dh);
    if (g->dy == NULL) {
        TT_TRY(tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, &to, &dh));
    } else {
        const tt_strided_t dy =
            tt_strided_rows(at_step(g->dy, t), scan->dtype, scan->rows, scan->p);
        TT_TRY(tt_map_binary(exec, TT_BINARY_ADD, (tt_map_params_t){0}, &to, &dy, &dh));
    }
    return tt_matmul(exec, &(tt_matmul_t){.batch = 1,
                                          .m = scan->rows,
                                          .n = scan->n,
                                          .k = scan->p,
                                          .dtype = scan->dtype,
                                          .out_dtype = scan->accum,
                                          .a = {.data = to.data},
                                          .b = {.data = tt_tensor_data(call->saved[SAVED_R])},
                                          .c = tt_tensor_data(g->dhidden)});
}

static tutti_status_t push_through_time(tutti_op_backward_t *call, const slopes_t *g)
{
    const scan_t *scan = &g->scan;
    tt_matmul_t product = slope_product(call, g);
    for (int64_t i = scan->steps - 1; i >= 0; i--) {
        const int64_t t = time_of(scan, i), before = i == 0 ? 0 : time_of(scan, i - 1);
        const tt_recurrent_step_t step = {
            .kind = scan->kind,
            .dtype = scan->dtype,
            .rows = (size_t)scan->rows,
            .n = (size_t)scan->n,
            .h = i == 0 ? tt_data_of(call->saved[SAVED_H]) : at_step(call->saved[SAVED_Y], before),
            .c = i == 0 ? tt_data_of(call->saved[SAVED_C0]) : at_step(call->saved[SAVED_C], before),
            .kept = at_step(call->saved[SAVED_KEPT], t),
            .c_next = at_step(call->saved[SAVED_C], t),
            .dy = g->dstate == NULL ? at_step(g->dy, t) : NULL,
            .dh = tt_tensor_data(g->dstate == NULL ? g->dh : g->dhidden),
            .dc = tt_data_of(g->dc),
            .dx = at_step(g->dx, t),
            .dproduct = at_step(g->dproduct, t)};
        TT_TRY(g->dstate == NULL ? TUTTI_OK : push_through_projection(call, g, t));
        TT_TRY(tt_recurrent_backward(tt_scope_exec(call->scope), &step));
        if (i > 0 || call->wanted[H]) {
            product.a.data = at_step(g->dproduct, t);
            TT_TRY(tt_matmul(tt_scope_exec(call->scope), &product));
        }
    }
    return TUTTI_OK;
}

/* dw (+)= dproductᵀ h over `rows` rows. */
static tutti_status_t multiply_rows(tutti_op_backward_t *call, const scan_t *scan, int64_t rows,
                                    const void *dproduct, const void *h, bool accumulate)
{
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){.batch = 1,
                                    .m = scan->gates * scan->n,
                                    .n = scan->p,
                                    .k = rows,
                                    .dtype = scan->dtype,
                                    .out_dtype = scan->accum,
                                    .a = {.data = dproduct, .transposed = true},
                                    .b = {.data = h},
                                    .c = tt_tensor_data(call->grads[W]),
                                    .accumulate = accumulate});
}

/* The states before the steps: the first one, and the outputs of all steps but the last. */
static tutti_status_t push_to_weight(tutti_op_backward_t *call, const slopes_t *g)
{
    const scan_t *scan = &g->scan;
    call->grads[W] = tt_scratch(call->scope, scan->accum, call->inputs[W].shape);
    TT_TRY(tutti_scope_status(call->scope));
    const int64_t behind = scan->is_reverse ? 0 : 1;
    TT_TRY(multiply_rows(call, scan, (scan->steps - 1) * scan->rows, at_step(g->dproduct, behind),
                         at_step(call->saved[SAVED_Y], 1 - behind), false));
    return multiply_rows(call, scan, scan->rows, at_step(g->dproduct, time_of(scan, 0)),
                         tt_tensor_data(call->saved[SAVED_H]), true);
}

static tutti_status_t push_to_bias(tutti_op_backward_t *call, const slopes_t *g)
{
    const scan_t *scan = &g->scan;
    const int64_t n = scan->gates * scan->n;
    tutti_tensor_t *db = tt_scratch(call->scope, scan->accum, call->inputs[B].shape);
    TT_TRY(tutti_scope_status(call->scope));
    call->grads[B] = db;
    const tt_strided_t in =
        tt_strided_rows(tt_tensor_data(g->dproduct), scan->dtype, scan->steps * scan->rows, n);
    const tt_strided_t out = tt_strided_rows(tt_tensor_data(db), scan->accum, 1, n);
    return tt_reduce(tt_scope_exec(call->scope), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in,
                     1u);
}

static tutti_status_t push_to_projection(tutti_op_backward_t *call, const slopes_t *g)
{
    const scan_t *scan = &g->scan;
    call->grads[R] = tt_scratch(call->scope, scan->accum, call->inputs[R].shape);
    TT_TRY(tutti_scope_status(call->scope));
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){.batch = 1,
                                    .m = scan->p,
                                    .n = scan->n,
                                    .k = scan->steps * scan->rows,
                                    .dtype = scan->dtype,
                                    .out_dtype = scan->accum,
                                    .a = {.data = tt_tensor_data(g->dstate), .transposed = true},
                                    .b = {.data = tt_tensor_data(call->saved[SAVED_HIDDEN])},
                                    .c = tt_tensor_data(call->grads[R])});
}

static tutti_status_t push(tutti_op_backward_t *call, slopes_t *g)
{
    const tt_matmul_t product = slope_product(call, g);
    TT_TRY(pack_weights(call->scope, &product, &g->packed));
    TT_TRY(push_through_time(call, g));
    call->grads[X] = call->wanted[X] ? g->dx : NULL;
    call->grads[H] = call->wanted[H] ? g->dh : NULL;
    if (call->input_count > C) {
        call->grads[C] = call->wanted[C] ? g->dc : NULL;
        TT_TRY(call->wanted[R] ? push_to_projection(call, g) : TUTTI_OK);
    }
    if (call->wanted[B]) {
        TT_TRY(push_to_bias(call, g));
    }
    return call->wanted[W] ? push_to_weight(call, g) : TUTTI_OK;
}

static tutti_status_t scan_backward(tutti_op_backward_t *call)
{
    slopes_t g = {.scan = scan_of(call->params, call->outputs[0].dtype, call->inputs[X].shape,
                                  call->inputs[W].shape)};
    tutti_status_t status = make_slopes(call, &g);
    if (status >= 0) {
        status = push(call, &g);
    }
    tutti_tensor_release(g.dy);
    tutti_tensor_release(g.packed);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

const tutti_op_t tt_op_rnn_scan = {
    .name = "rnn_scan",
    .optional_inputs = 1 << B | 1 << H | 1 << C,
    .about = "h = f(x + h Wᵀ + b) step by step; da = f'(a) (dy + da' W)",
    .params_bytes = sizeof(scan_params_t),
    .infer = scan_infer,
    .forward = scan_forward,
    .backward = scan_backward,
};

const tutti_op_t tt_op_lstm_scan = {
    .name = "lstm_scan",
    .optional_inputs = 1 << B | 1 << H | 1 << C | 1 << R,
    .output_count = 2,
    .about = "i f g o = x + h Wᵀ + b, c = σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c) step by step, "
             "or that times Rᵀ",
    .params_bytes = sizeof(scan_params_t),
    .infer = scan_infer,
    .forward = scan_forward,
    .backward = scan_backward,
};

const tutti_op_t tt_op_gru_scan = {
    .name = "gru_scan",
    .optional_inputs = 1 << B | 1 << H | 1 << C,
    .about = "r, z = σ(x + p), p = h Wᵀ + b, n = tanh(x + r p), h = n + z (h - n) step by step",
    .params_bytes = sizeof(scan_params_t),
    .infer = scan_infer,
    .forward = scan_forward,
    .backward = scan_backward,
};

tutti_tensor_t *tutti_rnn_scan(tutti_scope_t *s, const tutti_scan_t *scan,
                               tutti_rnn_nonlinearity_t nonlinearity)
{
    const scan_params_t params = {
        nonlinearity == TUTTI_RNN_RELU ? TT_RECURRENT_RELU : TT_RECURRENT_TANH, scan->is_reverse};
    tutti_tensor_t *inputs[] = {scan->x, scan->weight, scan->bias, scan->h};
    return tutti_op_run(s, &tt_op_rnn_scan, inputs, C, &params);
}

tutti_tensor_t *tutti_lstm_scan(tutti_scope_t *s, const tutti_scan_t *scan, tutti_tensor_t **last_c)
{
    const scan_params_t params = {TT_RECURRENT_LSTM, scan->is_reverse};
    tutti_tensor_t *inputs[] = {scan->x, scan->weight, scan->bias,
                                scan->h, scan->c,      scan->projection};
    tutti_tensor_t *outputs[2];
    tutti_op_run_many(s, &tt_op_lstm_scan, inputs, INPUTS, &params, outputs, 2);
    if (last_c != NULL) {
        *last_c = outputs[1];
    }
    return outputs[0];
}

tutti_tensor_t *tutti_gru_scan(tutti_scope_t *s, const tutti_scan_t *scan)
{
    const scan_params_t params = {TT_RECURRENT_GRU, scan->is_reverse};
    tutti_tensor_t *inputs[] = {scan->x, scan->weight, scan->bias, scan->h};
    return tutti_op_run(s, &tt_op_gru_scan, inputs, C, &params);
}
