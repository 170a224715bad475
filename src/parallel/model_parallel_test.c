/* What tensor parallelism, pipelines and distributed autograd need, by public calls alone: a linear
 * layer whose outputs are spread over ranks, two stages that put their weights' gradients off, and
 * a graph that goes to another rank and comes back. The guide's chapter building.md shows them. */
#include "comm/group/group_team.h"

#include <tutti/autograd.h>
#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/op.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

enum { ROWS = 3, IN = 8, OUT = 6, RANKS = 2 };

static tutti_tensor_t *numbers(tutti_scope_t *s, int64_t rows, int64_t columns, double from)
{
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, from, 0.61, rows * columns);
    return tutti_clone(s, tutti_sin(s, tutti_reshape(s, x, TUTTI_SHAPE(rows, columns))));
}

static tutti_tensor_t *leaf(tutti_scope_t *s, int64_t rows, int64_t columns, double from)
{
    tutti_tensor_t *x = numbers(s, rows, columns, from);
    (void)tutti_tensor_set_requires_grad(x, true);
    return x;
}

static bool is_same(tutti_tensor_t *a, tutti_tensor_t *b)
{
    return a != NULL && b != NULL && tutti_tensor_bytes(a) == tutti_tensor_bytes(b) &&
           memcmp(tutti_tensor_data(a), tutti_tensor_data(b), tutti_tensor_bytes(a)) == 0;
}

static bool is_near(tutti_tensor_t *a, tutti_tensor_t *b)
{
    bool near = tutti_tensor_numel(a) == tutti_tensor_numel(b);
    for (int64_t i = 0; i < tutti_tensor_numel(a) && near; i++) {
        const double difference = tutti_tensor_at(a, i) - tutti_tensor_at(b, i);
        near = difference < 1e-5 && difference > -1e-5;
    }
    return near;
}

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
} place_t;

static place_t open_place(void)
{
    place_t p = {0};
    (void)tutti_context_create(&(tutti_context_options_t){.threads = 1}, &p.ctx);
    (void)tutti_scope_open(p.ctx, &p.s);
    return p;
}

static void close_place(tt_member_t *m, place_t *p)
{
    TT_EXPECT(m, tutti_scope_close(p->s) == 0);
    tutti_context_release(p->ctx);
}

/* ---- tensor parallelism: a linear layer, columns on each rank -------------------------------- */

/* y = x; dx = the sum of all ranks' dy */
static tutti_status_t enter_forward(tutti_op_call_t *call)
{
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

static tutti_status_t enter_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_clone(call->scope, call->grad_outputs[0]);
    return tutti_all_reduce(*(tutti_group_t *const *)call->params, call->grads[0], TUTTI_SUM, NULL);
}

static const tutti_op_t enter_op = {.name = "enter",
                                    .params_bytes = sizeof(tutti_group_t *),
                                    .infer = tutti_op_infer_same_float,
                                    .forward = enter_forward,
                                    .backward = enter_backward};

/* The rows of all ranks; dx = the own rows of dy */
static tutti_status_t gather_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    tutti_shape_t shape = tutti_tensor_shape(call->inputs[0]);
    shape.dims[0] *= tutti_group_size(*(tutti_group_t *const *)call->params);
    outputs[0] = (tutti_spec_t){tutti_tensor_dtype(call->inputs[0]), shape};
    return TUTTI_OK;
}

static tutti_status_t gather_forward(tutti_op_call_t *call)
{
    return tutti_all_gather(*(tutti_group_t *const *)call->params, call->outputs[0],
                            call->inputs[0], NULL);
}

static tutti_status_t gather_backward(tutti_op_backward_t *call)
{
    const int64_t rows = call->inputs[0].shape.dims[0];
    const int rank = tutti_group_rank(*(tutti_group_t *const *)call->params);
    call->grads[0] = tutti_narrow(call->scope, call->grad_outputs[0], 0, rank * rows, rows);
    return TUTTI_OK;
}

static const tutti_op_t gather_op = {.name = "gather_rows",
                                     .params_bytes = sizeof(tutti_group_t *),
                                     .infer = gather_infer,
                                     .forward = gather_forward,
                                     .backward = gather_backward};

/* [N, in] -> [N, out]; w [out / ranks, in] */
static tutti_tensor_t *column_linear(tutti_scope_t *s, tutti_group_t *group, tutti_tensor_t *x,
                                     tutti_tensor_t *w)
{
    x = tutti_op_run(s, &enter_op, &x, 1, &group);
    tutti_tensor_t *part = tutti_matmul(s, w, tutti_transpose(s, x, 0, 1)); /* [out / ranks, N] */
    return tutti_transpose(s, tutti_op_run(s, &gather_op, &part, 1, &group), 0, 1);
}

static tutti_tensor_t *square_sum(tutti_scope_t *s, tutti_tensor_t *y)
{
    return tutti_sum(s, tutti_mul(s, y, y));
}

static void run_columns(tt_member_t *m)
{
    place_t p = open_place();
    tutti_tensor_t *whole = leaf(p.s, OUT, IN, 0), *x = leaf(p.s, ROWS, IN, 40);
    tutti_tensor_t *y = tutti_matmul(p.s, whole, tutti_transpose(p.s, x, 0, 1));
    TT_EXPECT(m, tutti_backward(p.s, square_sum(p.s, tutti_transpose(p.s, y, 0, 1))) == 0);

    const int64_t rows = OUT / m->size, first = m->rank * rows;
    tutti_tensor_t *w =
        tutti_clone(p.s, tutti_detach(p.s, tutti_narrow(p.s, whole, 0, first, rows)));
    tutti_tensor_t *own_x = leaf(p.s, ROWS, IN, 40);
    TT_EXPECT(m, tutti_tensor_set_requires_grad(w, true) == 0);
    tutti_tensor_t *own_y = column_linear(p.s, m->group, own_x, w);
    TT_EXPECT(m, is_near(own_y, tutti_transpose(p.s, y, 0, 1)));
    TT_EXPECT(m, tutti_backward(p.s, square_sum(p.s, own_y)) == 0);
    TT_EXPECT(m, is_near(tutti_tensor_grad(own_x), tutti_tensor_grad(x)));
    TT_EXPECT(m, is_near(tutti_tensor_grad(w),
                         tutti_narrow(p.s, tutti_tensor_grad(whole), 0, first, rows)));
    close_place(m, &p);
}

static void a_linear_layer_may_be_spread_by_columns(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 0, run_columns, NULL);
}

/* ---- a pipeline: inputs' gradients leave first, weights' come later -------------------------- */

enum { MICRO_BATCHES = 4, ACTIVATION, GRADIENT };

static tutti_tensor_t *stage(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *w)
{
    return tutti_tanh(s, tutti_matmul(s, x, w));
}

/* Both stages on one rank, micro-batch after micro-batch. */
static void run_whole(tutti_scope_t *s, tutti_tensor_t *first, tutti_tensor_t *second)
{
    for (int i = 0; i < MICRO_BATCHES; i++) {
        tutti_tensor_t *h = stage(s, numbers(s, ROWS, IN, i), first);
        (void)tutti_backward(s, square_sum(s, stage(s, h, second)));
    }
}

/* All forwards; then backwards, of which each waits for what the next stage sends at once. */
static void run_first(tt_member_t *m, tutti_scope_t *s, tutti_tensor_t *w)
{
    tutti_tensor_t *h[MICRO_BATCHES];
    for (int i = 0; i < MICRO_BATCHES; i++) {
        h[i] = stage(s, numbers(s, ROWS, IN, i), w);
        TT_EXPECT(m, tutti_send(m->group, h[i], 1, ACTIVATION, NULL) == 0);
    }
    for (int i = 0; i < MICRO_BATCHES; i++) {
        const tutti_root_t root = {.tensor = h[i], .is_awaited = true};
        tutti_backward_run_t *run;
        tutti_tensor_t *grad = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(ROWS, IN));
        TT_EXPECT(m, tutti_backward_begin(s, &root, 1, NULL, &run) == 0);
        TT_EXPECT(m, tutti_backward_advance(run) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_recv(m->group, grad, 1, GRADIENT, NULL) == 0);
        TT_EXPECT(m, tutti_backward_deliver(run, 0, grad) == 0);
        TT_EXPECT(m, tutti_backward_wait(run, 0) == 0);
        tutti_backward_release(run);
    }
}

static void run_second(tt_member_t *m, tutti_scope_t *s, tutti_tensor_t *w)
{
    tutti_backward_run_t *runs[MICRO_BATCHES];
    for (int i = 0; i < MICRO_BATCHES; i++) {
        tutti_tensor_t *h = leaf(s, ROWS, IN, 0), *grad;
        TT_EXPECT(m, tutti_recv(m->group, h, 0, ACTIVATION, NULL) == 0);
        const tutti_root_t root = {.tensor = square_sum(s, stage(s, h, w))};
        TT_EXPECT(m, tutti_backward_inputs(s, &root, 1, NULL, &h, 1, &grad, &runs[i]) == 0);
        TT_EXPECT(m, tutti_send(m->group, grad, 0, GRADIENT, NULL) == 0);
        TT_EXPECT(m, tutti_tensor_grad(w) == NULL); /* not yet */
    }
    for (int i = 0; i < MICRO_BATCHES; i++) {
        TT_EXPECT(m, tutti_backward_weights(runs[i]) == 0);
    }
}

static void run_stages(tt_member_t *m)
{
    place_t p = open_place();
    tutti_tensor_t *whole[2] = {leaf(p.s, IN, IN, 1), leaf(p.s, IN, IN, 2)};
    tutti_tensor_t *w = leaf(p.s, IN, IN, 1 + m->rank);
    run_whole(p.s, whole[0], whole[1]);
    (m->rank == 0 ? run_first : run_second)(m, p.s, w);
    TT_EXPECT(m, is_same(tutti_tensor_grad(w), tutti_tensor_grad(whole[m->rank])));
    close_place(m, &p);
}

static void a_pipeline_may_put_weights_off(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 0, run_stages, NULL);
}

/* ---- distributed autograd: to rank 1 and back ----------------------------------------------- */

/* y = f(a) goes to rank 1, z = g(y, b) comes back, loss = h(z, y). */
enum { Y = 7, Z, DZ, DY };

static tutti_tensor_t *make_y(tutti_scope_t *s, tutti_tensor_t *a)
{
    return tutti_exp(s, tutti_mul_scalar(s, a, 0.5));
}

static tutti_tensor_t *make_z(tutti_scope_t *s, tutti_tensor_t *y, tutti_tensor_t *b)
{
    return tutti_sin(s, tutti_mul(s, y, b));
}

static tutti_tensor_t *make_loss(tutti_scope_t *s, tutti_tensor_t *z, tutti_tensor_t *y)
{
    return tutti_sum(s, tutti_mul(s, tutti_mul(s, z, z), y));
}

/* Gradients of this backward alone: each of the leaves that it wants is there. */
typedef struct {
    tutti_tensor_t *leaf, *grad;
} wanted_t;

static tutti_status_t take(tutti_scope_t *s, tutti_tensor_t *leaf, tutti_tensor_t *grad, void *user)
{
    (void)s;
    wanted_t *wanted = user;
    while (wanted->leaf != leaf) {
        wanted++;
    }
    return tutti_tensor_copy(wanted->grad, grad);
}

static tutti_tensor_t *zeros(tutti_scope_t *s)
{
    return tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(ROWS, IN));
}

static void run_caller(tt_member_t *m, tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *da)
{
    tutti_tensor_t *y = make_y(s, a), *z = leaf(s, ROWS, IN, 0), *dy = zeros(s);
    TT_EXPECT(m, tutti_send(m->group, y, 1, Y, NULL) == 0);
    TT_EXPECT(m, tutti_recv(m->group, z, 1, Z, NULL) == 0);
    wanted_t wanted[] = {{a, da}, {z, zeros(s)}};
    const tutti_backward_options_t options = {.sink = take, .sink_user = wanted};
    const tutti_root_t roots[] = {{.tensor = make_loss(s, z, y)},
                                  {.tensor = y, .is_awaited = true}};
    tutti_backward_run_t *run;
    TT_EXPECT(m, tutti_backward_begin(s, roots, 2, &options, &run) == 0);
    TT_EXPECT(m, tutti_backward_advance(run) == TUTTI_PENDING); /* dz is there, dy not yet */
    TT_EXPECT(m, tutti_send(m->group, wanted[1].grad, 1, DZ, NULL) == 0);
    TT_EXPECT(m, tutti_recv(m->group, dy, 1, DY, NULL) == 0);
    TT_EXPECT(m, tutti_backward_deliver(run, 1, dy) == 0);
    TT_EXPECT(m, tutti_backward_wait(run, 0) == 0);
    tutti_backward_release(run);
}

static void run_callee(tt_member_t *m, tutti_scope_t *s, tutti_tensor_t *b, tutti_tensor_t *db)
{
    tutti_tensor_t *y = leaf(s, ROWS, IN, 0), *dz = zeros(s);
    TT_EXPECT(m, tutti_recv(m->group, y, 0, Y, NULL) == 0);
    tutti_tensor_t *z = make_z(s, y, b);
    TT_EXPECT(m, tutti_send(m->group, z, 0, Z, NULL) == 0);
    wanted_t wanted[] = {{b, db}, {y, zeros(s)}};
    const tutti_backward_options_t options = {.sink = take, .sink_user = wanted};
    const tutti_root_t root = {.tensor = z, .is_awaited = true};
    tutti_backward_run_t *run;
    TT_EXPECT(m, tutti_backward_begin(s, &root, 1, &options, &run) == 0);
    TT_EXPECT(m, tutti_recv(m->group, dz, 0, DZ, NULL) == 0);
    TT_EXPECT(m, tutti_backward_deliver(run, 0, dz) == 0);
    TT_EXPECT(m, tutti_backward_wait(run, 0) == 0);
    TT_EXPECT(m, tutti_send(m->group, wanted[1].grad, 0, DY, NULL) == 0);
    tutti_backward_release(run);
}

static void run_hand_over(tt_member_t *m)
{
    place_t p = open_place();
    tutti_tensor_t *a = leaf(p.s, ROWS, IN, 1), *b = leaf(p.s, ROWS, IN, 2), *grad = zeros(p.s);
    tutti_tensor_t *y = make_y(p.s, a);
    TT_EXPECT(m, tutti_backward(p.s, make_loss(p.s, make_z(p.s, y, b), y)) == 0);
    if (m->rank == 0) {
        run_caller(m, p.s, a, grad);
    } else {
        run_callee(m, p.s, b, grad);
    }
    TT_EXPECT(m, is_same(grad, tutti_tensor_grad(m->rank == 0 ? a : b)));
    close_place(m, &p);
}

static void a_graph_may_go_to_another_rank_and_come_back(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 0, run_hand_over, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_layer_may_be_spread_by_columns),
        cmocka_unit_test(a_pipeline_may_put_weights_off),
        cmocka_unit_test(a_graph_may_go_to_another_rank_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
