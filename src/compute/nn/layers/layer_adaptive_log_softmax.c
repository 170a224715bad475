/* Adaptive softmax: a head of the frequent classes and of clusters of the others.
 *
 *     targets    5  0  812  31  400        cutoffs 10, 500; of 1000 classes
 *     cluster    -  -   1    0   0
 *     the head's 5  0   11  10  10         log-probabilities of the head, for all rows, +
 *     row 3, 4: tail.0 of classes 21, 390;  row 2: tail.1 of class 312
 *
 * Which rows a cluster has is found on the host. */
#include <tutti/nn_layers.h>
#include <tutti/nn_vocabulary.h>
#include <tutti/op_index.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include <math.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/base/integers.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_module_t *head, *tail[TUTTI_CUTOFFS_MAX];
    int64_t in, bounds[TUTTI_CUTOFFS_MAX + 1]; /* the cutoffs, and the number of classes */
    int clusters;
} adaptive_t;

/* ---- making it ------------------------------------------------------------------------------- */

static tutti_status_t check(const tutti_adaptive_log_softmax_options_t *o)
{
    if (o == NULL || o->in < 1 || o->classes < 2 || o->cutoffs[0] == 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "adaptive_log_softmax: want in of at least 1, two classes and a cutoff");
    }
    for (int i = 0; i < TUTTI_CUTOFFS_MAX && o->cutoffs[i] != 0; i++) {
        if (o->cutoffs[i] <= (i == 0 ? 0 : o->cutoffs[i - 1]) || o->cutoffs[i] >= o->classes) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "adaptive_log_softmax: cutoff %d is %lld: they must rise, in [1, %lld)",
                           i, (long long)o->cutoffs[i], (long long)o->classes);
        }
    }
    return TUTTI_OK;
}

/* in -> fewer features -> the cluster's classes. */
static tutti_status_t add_cluster(tutti_module_t *tail, adaptive_t *a, int i, double div_value)
{
    const double features = floor((double)a->in / pow(div_value, i + 1));
    if (!(features >= 1 && features <= INT32_MAX)) {
        return TT_FAIL(
            TUTTI_ERR_ARG,
            "adaptive_log_softmax: cluster %d of %d would have %g features, %lld / %g^%d: "
            "choose another div_value, fewer cutoffs or another in",
            i + 1, a->clusters, features, (long long)a->in, div_value, i + 1);
    }
    const tutti_linear_options_t down = {.in = a->in, .out = (int64_t)features, .no_bias = true};
    const tutti_linear_options_t up = {
        .in = (int64_t)features, .out = a->bounds[i + 1] - a->bounds[i], .no_bias = true};
    TT_TRY(tutti_sequential_add(tail, &tutti_sequential_layer, NULL, &a->tail[i]));
    TT_TRY(tutti_sequential_add(a->tail[i], &tutti_linear_layer, &down, NULL));
    return tutti_sequential_add(a->tail[i], &tutti_linear_layer, &up, NULL);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_adaptive_log_softmax_options_t *o = options;
    adaptive_t *a = tutti_module_state(m);
    tutti_module_t *tail;
    TT_TRY(check(o));
    a->in = o->in;
    while (a->clusters < TUTTI_CUTOFFS_MAX && o->cutoffs[a->clusters] != 0) {
        a->bounds[a->clusters] = o->cutoffs[a->clusters];
        a->clusters++;
    }
    a->bounds[a->clusters] = o->classes;
    const tutti_linear_options_t head = {
        .in = o->in, .out = a->bounds[0] + a->clusters, .no_bias = !o->has_bias};
    TT_TRY(tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &a->head));
    TT_TRY(tutti_module_new_child(m, "tail", &tutti_sequential_layer, NULL, &tail));
    for (int i = 0; i < a->clusters; i++) {
        TT_TRY(add_cluster(tail, a, i, tt_or_default(o->div_value, 4)));
    }
    return TUTTI_OK;
}

/* ---- which rows are whose -------------------------------------------------------------------- */

/* begin[i]: the first of cluster i's rows, which stand behind each other. Targets without values:
 * every cluster has all rows. */
typedef struct {
    int64_t count;
    int64_t *head, *rows, *own; /* [count] class of the head; rows, and their classes there */
    int64_t begin[TUTTI_CUTOFFS_MAX + 1];
} split_t;

static void close_split(split_t *split)
{
    tt_free(split->head);
    tt_free(split->rows);
    tt_free(split->own);
}

static tutti_status_t open_split(split_t *split, int64_t count)
{
    *split = (split_t){.count = count};
    const size_t room = (size_t)tt_max(count, 1);
    split->head = tt_alloc_array(room, sizeof(int64_t), "adaptive softmax");
    split->rows = tt_alloc_array(room, sizeof(int64_t), "adaptive softmax");
    split->own = tt_alloc_array(room, sizeof(int64_t), "adaptive softmax");
    return split->head != NULL && split->rows != NULL && split->own != NULL ? TUTTI_OK
                                                                            : TUTTI_ERR_NOMEM;
}

static int cluster_of(const adaptive_t *a, int64_t target)
{
    int i = 0;
    while (target >= a->bounds[i]) {
        i++;
    }
    return i - 1;
}

static tutti_status_t check_target(const adaptive_t *a, int64_t row, int64_t target)
{
    return target >= 0 && target < a->bounds[a->clusters]
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "adaptive_log_softmax: target %lld is %lld, outside the %lld classes",
                         (long long)row, (long long)target, (long long)a->bounds[a->clusters]);
}

static tutti_status_t sort_rows(const adaptive_t *a, split_t *split, const tutti_tensor_t *targets)
{
    int64_t used = 0;
    for (int64_t i = 0; i < split->count; i++) {
        const int64_t target = (int64_t)tutti_tensor_at(targets, i);
        TT_TRY(check_target(a, i, target));
        const int cluster = cluster_of(a, target);
        split->head[i] = cluster < 0 ? target : a->bounds[0] + cluster;
    }
    for (int c = 0; c < a->clusters; c++) {
        split->begin[c] = used;
        for (int64_t i = 0; i < split->count; i++) {
            if (split->head[i] == a->bounds[0] + c) {
                split->rows[used] = i;
                split->own[used++] = (int64_t)tutti_tensor_at(targets, i) - a->bounds[c];
            }
        }
    }
    split->begin[a->clusters] = used;
    return TUTTI_OK;
}

static tutti_status_t find_rows(const adaptive_t *a, split_t *split, tutti_tensor_t *targets)
{
    tutti_tensor_t *host;
    if (!tt_device_has_values(targets->storage->device)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_on_host(targets, &host));
    const tutti_status_t status = sort_rows(a, split, host);
    tutti_tensor_release(host);
    return status;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static tutti_tensor_t *log_probs_at(tutti_scope_t *s, tutti_tensor_t *logits,
                                    const int64_t *classes, int64_t count)
{
    const tutti_cross_entropy_options_t each = {
        .reduction = TUTTI_LOSS_NONE, .has_ignore_index = true, .ignore_index = -1};
    tutti_tensor_t *targets = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(count), classes);
    return tutti_neg(s, tutti_cross_entropy_with(s, logits, targets, &each));
}

/* The rows of a cluster, with the log-probability of their class among its classes. */
static tutti_tensor_t *add_rows(tutti_scope_t *s, const adaptive_t *a, const split_t *split, int c,
                                tutti_tensor_t *x, tutti_tensor_t *sum)
{
    const bool has_values = tt_device_has_values(x->storage->device);
    const int64_t first = has_values ? split->begin[c] : 0;
    const int64_t count = has_values ? split->begin[c + 1] - first : split->count;
    tutti_tensor_t *rows = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(count), split->rows + first);
    tutti_tensor_t *logits = tutti_forward(s, a->tail[c], tutti_index_select(s, x, 0, rows));
    return tutti_index_add(s, sum, 0, rows, log_probs_at(s, logits, split->own + first, count));
}

static tutti_tensor_t *log_probs_of(tutti_scope_t *s, const adaptive_t *a, tutti_tensor_t *x,
                                    tutti_tensor_t *targets)
{
    split_t split;
    tutti_tensor_t *sum = NULL;
    tutti_status_t status = open_split(&split, targets->numel);
    if (status >= 0) {
        status = find_rows(a, &split, targets);
    }
    if (status >= 0) {
        sum = log_probs_at(s, tutti_forward(s, a->head, x), split.head, split.count);
    }
    for (int c = 0; status >= 0 && c < a->clusters; c++) {
        sum = add_rows(s, a, &split, c, x, sum);
    }
    close_split(&split);
    return status < 0 ? tutti_scope_fail(s, status) : sum;
}

static tutti_status_t check_inputs(const adaptive_t *a, const tutti_tensor_t *x,
                                   const tutti_tensor_t *targets)
{
    char first[96], second[96];
    TT_TRY(tt_tensor_status(x));
    TT_TRY(tt_tensor_status(targets));
    tutti_shape_t rows = x->shape;
    rows.rank -= rows.rank > 0;
    return x->shape.rank > 0 && x->shape.dims[rows.rank] == a->in &&
                   tutti_shape_equal(rows, targets->shape) && !tutti_dtype_is_float(targets->dtype)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "adaptive_log_softmax: want x of [..., %lld], and an integer target for "
                         "each row: %s and %s",
                         (long long)a->in, tutti_tensor_describe(x, first, sizeof first),
                         tutti_tensor_describe(targets, second, sizeof second));
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const adaptive_t *a = tutti_module_state(m);
    if (input_count != 2 || output_count != 2) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "adaptive_log_softmax takes two tensors and gives two, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    const tutti_status_t status = check_inputs(a, inputs[0], inputs[1]);
    if (status < 0) {
        outputs[0] = outputs[1] = tutti_scope_fail(s, status);
        return;
    }
    tutti_tensor_t *x = tutti_reshape(s, inputs[0], TUTTI_SHAPE(inputs[1]->numel, a->in));
    const tt_place_t before = tt_context_enter_beside(s->ctx, x);
    tutti_tensor_t *log_probs = log_probs_of(s, a, x, inputs[1]);
    s->ctx->place = before;
    outputs[0] = tutti_reshape(s, log_probs, inputs[1]->shape);
    outputs[1] = tutti_neg(s, tutti_mean(s, log_probs));
}

const tutti_module_ops_t tutti_adaptive_log_softmax_layer = {
    .name = "adaptive_log_softmax",
    .about = "log softmax of frequent classes and of clusters of rare ones, and its loss",
    .state_bytes = sizeof(adaptive_t),
    .init = init,
    .forward_many = forward_many,
};

/* ---- of all classes -------------------------------------------------------------------------- */

static tutti_status_t check_kind(const tutti_module_t *m, const char *name)
{
    TT_WANT(name, m);
    return tutti_module_kind(m) == &tutti_adaptive_log_softmax_layer
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: want an adaptive_log_softmax, not a %s", name,
                         tutti_module_kind(m)->name);
}

/* x [..., in] and what the head makes of it. */
static tutti_tensor_t *log_probs_of_all(tutti_scope_t *s, const adaptive_t *a, tutti_tensor_t *x,
                                        tutti_tensor_t *head)
{
    tutti_tensor_t *parts[TUTTI_CUTOFFS_MAX + 1];
    head = tutti_log_softmax(s, head, -1);
    parts[0] = tutti_narrow(s, head, -1, 0, a->bounds[0]);
    for (int c = 0; c < a->clusters; c++) {
        tutti_tensor_t *own = tutti_log_softmax(s, tutti_forward(s, a->tail[c], x), -1);
        parts[c + 1] = tutti_add(s, own, tutti_narrow(s, head, -1, a->bounds[0] + c, 1));
    }
    return tutti_cat(s, parts, a->clusters + 1, -1);
}

tutti_tensor_t *tutti_adaptive_log_prob(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_status_t status = check_kind(m, "adaptive_log_prob");
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const adaptive_t *a = tutti_module_state(m);
    return log_probs_of_all(s, a, x, tutti_forward(s, a->head, x));
}

/* Rows whose best entry of the head is a cluster, i64; NULL: there is none, or *status says why. */
static tutti_tensor_t *rows_of_clusters(tutti_scope_t *s, const adaptive_t *a, tutti_tensor_t *best,
                                        tutti_status_t *status)
{
    tutti_tensor_t *host, *rows = NULL;
    int64_t count = 0;
    *status = tt_tensor_on_host(best, &host);
    if (*status < 0) {
        return NULL;
    }
    const int64_t *entries = tt_tensor_data(host), n = best->numel;
    int64_t *found = tt_alloc_array((size_t)tt_max(n, 1), sizeof *found, "adaptive softmax");
    *status = found == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (int64_t i = 0; found != NULL && i < n; i++) {
        if (entries[i] >= a->bounds[0]) {
            found[count++] = i;
        }
    }
    if (count > 0) {
        const tt_place_t before = tt_context_enter_beside(s->ctx, best);
        rows = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(count), found);
        s->ctx->place = before;
    }
    tt_free(found);
    tutti_tensor_release(host);
    return rows;
}

/* What is best [n], of x [n, in] and the head's [n, entries]. A class of the head that is the best
 * of its entries is the best of all classes: a cluster's classes have parts of its probability. */
static tutti_tensor_t *choose(tutti_scope_t *s, const adaptive_t *a, tutti_tensor_t *x,
                              tutti_tensor_t *head)
{
    tutti_tensor_t *best = tutti_argmax(s, head, -1, false);
    tutti_status_t status = tt_tensor_status(best);
    if (status < 0 || !tt_device_has_values(best->storage->device)) {
        return best;
    }
    tutti_tensor_t *rows = rows_of_clusters(s, a, best, &status);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (rows == NULL) {
        return best;
    }
    tutti_tensor_t *logs = log_probs_of_all(s, a, tutti_index_select(s, x, 0, rows),
                                            tutti_index_select(s, head, 0, rows));
    return tutti_scatter_along(s, best, 0, rows, tutti_argmax(s, logs, -1, false));
}

tutti_tensor_t *tutti_adaptive_predict(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tutti_status_t status = check_kind(m, "adaptive_predict");
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const adaptive_t *a = tutti_module_state(m);
    tutti_tensor_t *head = tutti_forward(s, a->head, x);
    if (tt_tensor_status(head) < 0) {
        return head;
    }
    tutti_shape_t shape = tutti_tensor_shape(x);
    shape.rank--; /* the head has refused a scalar */
    const int64_t entries = a->bounds[0] + a->clusters, n = tutti_tensor_numel(head) / entries;
    tutti_tensor_t *best = choose(s, a, tutti_reshape(s, x, TUTTI_SHAPE(n, a->in)),
                                  tutti_reshape(s, head, TUTTI_SHAPE(n, entries)));
    return tutti_reshape(s, best, shape);
}
