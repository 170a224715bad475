/* The pass: chunks of rows, and turns within them. See head_pass.h, linear_cross_entropy_op.c. */
#include "compute/op/loss/head_pass.h"

#include "compute/op/linear/dense.h"
#include "core/base/integers.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/matmul/matmul.h"
#include "core/kernel/reduce/reduce.h"

typedef tt_head_params_t params_t;
typedef tt_head_pass_t pass_t;

enum {
    X = TT_HEAD_X,
    WEIGHT = TT_HEAD_WEIGHT,
    BIAS = TT_HEAD_BIAS,
    TARGETS = TT_HEAD_TARGETS,
    CLASS_WEIGHT = TT_HEAD_CLASS_WEIGHT,
    INPUTS = TT_HEAD_INPUTS,
    LOGITS = TT_HEAD_LOGITS,
    DLOGITS = TT_HEAD_DLOGITS,
    MAX_SUM = TT_HEAD_MAX_SUM,
    PROBS = TT_HEAD_PROBS,
    PART = TT_HEAD_PART,
    LOSSES = TT_HEAD_LOSSES,
    MEAN = TT_HEAD_MEAN
};

enum { TURN = 256 };

tutti_dtype_t tt_head_dtype(const params_t *params, tutti_tensor_t *const *inputs)
{
    tutti_dtype_t dtype = tutti_op_promote(inputs[X]->dtype, inputs[WEIGHT]->dtype);
    dtype = inputs[BIAS] == NULL ? dtype : tutti_op_promote(dtype, inputs[BIAS]->dtype);
    return params->autocast != TUTTI_F32 && dtype != TUTTI_F64 ? params->autocast : dtype;
}

static tt_exec_t *exec_of(const pass_t *p)
{
    return tt_scope_exec(p->s);
}

static const void *row_of(const tutti_tensor_t *x, int64_t row)
{
    return tt_head_element(x, row * tt_row_stride(x));
}

/* Rows of a chunk: whole turns, whose logits take about what x takes. */
static int64_t choose_chunk(const pass_t *p)
{
    const int64_t outputs = p->places * p->classes;
    const int64_t wanted = p->params->chunk > 0 ? p->params->chunk
                           : outputs > 0        ? p->rows * p->in / outputs
                                                : p->rows;
    const int64_t turns = tt_max((tt_min(wanted, p->rows) + TURN - 1) / TURN, 1);
    return tt_min(turns * TURN, p->rows);
}

tutti_status_t tt_head_new(pass_t *p, int at, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return tt_tensor_new(p->s->ctx->place.device, dtype, shape, false, &p->at[at]);
}

/* Weights of probabilities are given: of 1, if need be. */
static tutti_status_t take_class_weight(pass_t *p, tutti_tensor_t *weight)
{
    if (weight != NULL || !tt_head_is_probabilities(p->at[TARGETS])) {
        return tt_dense(p->s, weight, p->wide, &p->at[CLASS_WEIGHT]);
    }
    TT_TRY(tt_head_new(p, CLASS_WEIGHT, p->wide, TUTTI_SHAPE(p->classes)));
    const tt_strided_t all = tt_tensor_strided(p->at[CLASS_WEIGHT]);
    return tt_fill(exec_of(p), &all, 1);
}

tutti_status_t tt_head_take(pass_t *p, tutti_tensor_t *const *inputs)
{
    tutti_tensor_t *targets = inputs[TARGETS];
    TT_TRY(tt_dense_rows(p->s, inputs[X], p->dtype, &p->at[X]));
    TT_TRY(tt_dense_rows(p->s, inputs[WEIGHT], p->dtype, &p->at[WEIGHT]));
    TT_TRY(tt_dense(p->s, inputs[BIAS], p->dtype, &p->at[BIAS]));
    TT_TRY(tt_dense(p->s, targets, tt_head_is_probabilities(targets) ? targets->dtype : TUTTI_I64,
                    &p->at[TARGETS]));
    return take_class_weight(p, inputs[CLASS_WEIGHT]);
}

static bool wants_gradients(const pass_t *p)
{
    bool wants = false;
    for (int i = 0; i < INPUTS; i++) {
        wants = wants || p->grads[i] != NULL;
    }
    return wants;
}

/* What a chunk needs, which the next one needs again. */
static tutti_status_t make_room(pass_t *p)
{
    const int64_t outputs = p->places * p->classes, losses = p->chunk * p->places;
    const tutti_tensor_t *targets = p->at[TARGETS];
    TT_TRY(tt_head_new(p, LOGITS, p->wide, TUTTI_SHAPE(p->chunk, outputs)));
    if (p->dtype != p->wide && wants_gradients(p)) {
        TT_TRY(tt_head_new(p, DLOGITS, p->dtype, TUTTI_SHAPE(p->chunk, outputs)));
    }
    TT_TRY(tt_head_new(p, MAX_SUM, p->wide, TUTTI_SHAPE(losses, 2)));
    if (tt_head_is_probabilities(targets) && targets->dtype != p->wide) {
        TT_TRY(tt_head_new(p, PROBS, p->wide, TUTTI_SHAPE(losses, p->classes)));
    }
    return p->grads[BIAS] == NULL ? TUTTI_OK : tt_head_new(p, PART, p->wide, TUTTI_SHAPE(outputs));
}

pass_t tt_head_pass(tutti_scope_t *s, const params_t *params, tutti_tensor_t *const *inputs)
{
    const tutti_shape_t x = inputs[X]->shape, w = inputs[WEIGHT]->shape;
    pass_t p = {.s = s,
                .params = params,
                .dtype = tt_head_dtype(params, inputs),
                .rows = tt_row_count(x),
                .in = w.dims[w.rank - 1],
                .classes = w.dims[w.rank - 2]};
    tutti_shape_t places = w;
    places.rank--;
    p.places = tt_row_count(places);
    p.wide = tt_accum_dtype(p.dtype);
    p.chunk = choose_chunk(&p);
    return p;
}

/* ---- a chunk --------------------------------------------------------------------------------- */

static tutti_status_t multiply(const pass_t *p, int64_t first, int64_t rows)
{
    const tutti_tensor_t *x = p->at[X], *w = p->at[WEIGHT];
    return tt_matmul(
        exec_of(p),
        &(tt_matmul_t){
            .batch = 1,
            .m = rows,
            .n = p->places * p->classes,
            .k = p->in,
            .dtype = p->dtype,
            .out_dtype = p->wide,
            .a = {.data = row_of(x, first), .ld = tt_row_stride(x)},
            .b = {.data = tt_tensor_data(w), .ld = tt_row_stride(w), .transposed = true},
            .c = tt_tensor_data(p->at[LOGITS]),
            .bias = tt_data_of(p->at[BIAS]),
            .bias_dtype = p->dtype,
        });
}

/* A chunk's probabilities, of the accumulation type. */
static tutti_status_t take_probs(const pass_t *p, int64_t first, int64_t rows, const void **probs)
{
    const tutti_tensor_t *targets = p->at[TARGETS];
    void *own = tt_head_element(targets, first * p->places * p->classes);
    *probs = !tt_head_is_probabilities(targets) ? NULL
             : p->at[PROBS] != NULL             ? tt_tensor_data(p->at[PROBS])
                                                : own;
    if (p->at[PROBS] == NULL) {
        return TUTTI_OK;
    }
    const int64_t count = rows * p->places * p->classes;
    const tt_strided_t from = tt_strided_row(own, targets->dtype, count);
    const tt_strided_t to = tt_strided_row(tt_tensor_data(p->at[PROBS]), p->wide, count);
    return tt_map_unary(exec_of(p), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
}

/* The kernel's view of some rows. */
tt_cross_entropy_t tt_head_describe(const pass_t *p, int64_t first, int64_t rows)
{
    const int64_t losses = first * p->places;
    const bool has_classes = !tt_head_is_probabilities(p->at[TARGETS]);
    const tutti_tensor_t *mean = p->at[MEAN];
    return (tt_cross_entropy_t){
        .shape = {p->wide, (size_t)(rows * p->places), (size_t)p->classes},
        .logits = tt_data_of(p->at[LOGITS]),
        .targets = has_classes ? tt_head_element(p->at[TARGETS], losses) : NULL,
        .ignore_index = p->params->ignore_index,
        .label_smoothing = p->params->label_smoothing,
        .loss = tt_head_element(p->at[LOSSES], losses),
        .max_sum = tt_data_of(p->at[MAX_SUM]),
        .class_weight = tt_data_of(p->at[CLASS_WEIGHT]),
        .dlogits = tt_data_of(p->at[LOGITS]),
        .dprobs = tt_head_element(p->grads[TARGETS], losses * p->classes),
        .scale = mean != NULL ? tt_head_element(mean, 1) : tt_head_element(p->scale, losses),
        .scale_is_shared = mean != NULL,
    };
}

static tutti_status_t narrow_dlogits(const pass_t *p, int64_t rows)
{
    const int64_t count = rows * p->places * p->classes;
    if (p->at[DLOGITS] == NULL) {
        return TUTTI_OK;
    }
    const tt_strided_t from = tt_strided_row(tt_tensor_data(p->at[LOGITS]), p->wide, count);
    const tt_strided_t to = tt_strided_row(tt_tensor_data(p->at[DLOGITS]), p->dtype, count);
    return tt_map_unary(exec_of(p), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
}

/* As products take them, from a row of the chunk on. */
static const void *dlogits_at(const pass_t *p, int64_t row)
{
    const tutti_tensor_t *dlogits = p->at[DLOGITS] != NULL ? p->at[DLOGITS] : p->at[LOGITS];
    return tt_head_element(dlogits, row * p->places * p->classes);
}

static tutti_status_t push_x(const pass_t *p, int64_t first, int64_t rows)
{
    const tutti_tensor_t *w = p->at[WEIGHT];
    return tt_matmul(exec_of(p), &(tt_matmul_t){
                                     .batch = 1,
                                     .m = rows,
                                     .n = p->in,
                                     .k = p->places * p->classes,
                                     .dtype = p->dtype,
                                     .out_dtype = p->wide,
                                     .a = {.data = dlogits_at(p, 0)},
                                     .b = {.data = tt_tensor_data(w), .ld = tt_row_stride(w)},
                                     .c = tt_head_element(p->grads[X], first * p->in),
                                 });
}

/* A turn's part of dW: rows of x from `first` on. */
static tutti_status_t push_weight(const pass_t *p, const void *dlogits, int64_t first, int64_t rows)
{
    const tutti_tensor_t *x = p->at[X];
    return tt_matmul(exec_of(p), &(tt_matmul_t){
                                     .batch = 1,
                                     .m = p->places * p->classes,
                                     .n = p->in,
                                     .k = rows,
                                     .dtype = p->dtype,
                                     .out_dtype = p->wide,
                                     .a = {.data = dlogits, .transposed = true},
                                     .b = {.data = row_of(x, first), .ld = tt_row_stride(x)},
                                     .c = tt_tensor_data(p->grads[WEIGHT]),
                                     .accumulate = first > 0,
                                 });
}

static tutti_status_t push_bias(const pass_t *p, void *dlogits, int64_t first, int64_t rows)
{
    const int64_t n = p->places * p->classes;
    const tt_strided_t in = tt_strided_rows(dlogits, p->wide, rows, n);
    const tt_strided_t sum = tt_strided_rows(tt_tensor_data(p->grads[BIAS]), p->wide, 1, n);
    const tt_strided_t part = tt_strided_rows(tt_tensor_data(p->at[PART]), p->wide, 1, n);
    TT_TRY(tt_reduce(exec_of(p), TT_REDUCE_SUM, (tt_reduce_params_t){0}, first > 0 ? &part : &sum,
                     &in, 1u));
    return first == 0
               ? TUTTI_OK
               : tt_map_binary(exec_of(p), TT_BINARY_ADD, (tt_map_params_t){0}, &sum, &sum, &part);
}

/* What a chunk adds to dW and db, turn by turn: without rows it is 0. */
static tutti_status_t push_turns(const pass_t *p, int64_t first, int64_t rows)
{
    int64_t at = 0;
    do {
        const int64_t count = tt_min(TURN, rows - at);
        if (p->grads[WEIGHT] != NULL) {
            TT_TRY(push_weight(p, dlogits_at(p, at), first + at, count));
        }
        if (p->grads[BIAS] != NULL) {
            TT_TRY(push_bias(p, tt_head_element(p->at[LOGITS], at * p->places * p->classes),
                             first + at, count));
        }
        at += TURN;
    } while (at < rows);
    return TUTTI_OK;
}

static tutti_status_t run_chunk(const pass_t *p, int64_t first, int64_t rows)
{
    tt_cross_entropy_t ce = tt_head_describe(p, first, rows);
    TT_TRY(take_probs(p, first, rows, &ce.probs));
    TT_TRY(multiply(p, first, rows));
    TT_TRY(tt_cross_entropy(exec_of(p), &ce));
    if (!wants_gradients(p)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_cross_entropy_backward(exec_of(p), &ce));
    TT_TRY(narrow_dlogits(p, rows));
    if (p->grads[X] != NULL) {
        TT_TRY(push_x(p, first, rows));
    }
    return push_turns(p, first, rows);
}

tutti_status_t tt_head_run(pass_t *p)
{
    int64_t first = 0;
    TT_TRY(make_room(p));
    do {
        TT_TRY(run_chunk(p, first, tt_min(p->chunk, p->rows - first)));
        first += p->chunk;
    } while (first < p->rows);
    return TUTTI_OK;
}
