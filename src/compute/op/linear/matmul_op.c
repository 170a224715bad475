/* matmul: y = a · b over the last two dimensions, batches broadcast.
 *
 * Matrices are read where they lie if one of their two strides is 1 (a transpose costs nothing)
 * and their batches are evenly spaced; otherwise they are copied, once. The operation itself sees
 * matrices only: tutti_matmul() turns vectors into rows and columns, and folds the batches of a
 * into its rows where b is a single matrix, so that there is one large product, and one for db.
 * Cost: 2 · batch · M · N · K flops. Source: textbook. */
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/kernel/matmul/matmul.h"

/* The batches of a shape followed by two sizes. */
static tutti_shape_t with_matrix(tutti_shape_t shape, int64_t rows, int64_t columns)
{
    shape.dims[shape.rank - 2] = rows;
    shape.dims[shape.rank - 1] = columns;
    return shape;
}

static tutti_shape_t batches_of(tutti_shape_t shape)
{
    return with_matrix(shape, 1, 1);
}

static int64_t row_count(const tutti_tensor_t *x)
{
    return x->shape.dims[x->shape.rank - 2];
}

static int64_t column_count(const tutti_tensor_t *x)
{
    return x->shape.dims[x->shape.rank - 1];
}

static tutti_status_t matmul_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *a = call->inputs[0], *b = call->inputs[1];
    TT_TRY(tt_product_dtype(call, &outputs->dtype));
    TT_TRY(tutti_op_broadcast_shapes(call->op->name, batches_of(a->shape), batches_of(b->shape),
                                     &outputs->shape));
    outputs->shape = with_matrix(outputs->shape, row_count(a), column_count(b));
    return TUTTI_OK;
}

/* ---- operands ------------------------------------------------------------------------------- */

/* Whether the matrices of x lie as the kernel wants them, and how. */
static bool describe_matrix(const tutti_tensor_t *x, tt_matmul_in_t *out)
{
    const int r = x->shape.rank;
    const int64_t rows = row_count(x), columns = column_count(x);
    const int64_t down = rows == 1 ? columns : x->strides[r - 2];
    const int64_t right = columns == 1 ? 1 : x->strides[r - 1];
    *out = (tt_matmul_in_t){.data = tt_tensor_data(x), .ld = down};
    if (right == 1 && down >= columns) {
        return true;
    }
    *out = (tt_matmul_in_t){.data = tt_tensor_data(x), .ld = right, .transposed = true};
    return (down == 1 || rows == 1) && right >= rows;
}

/* Whether the batches of x, repeated to those of y, are evenly spaced. */
static bool describe_batches(const tutti_tensor_t *x, tutti_shape_t y, int64_t *stride)
{
    const tt_strided_t wide =
        tt_tensor_strided_as(x, with_matrix(y, row_count(x), column_count(x)));
    int64_t expected = -1;
    *stride = 0;
    for (int i = y.rank - 3; i >= 0; i--) {
        if (y.dims[i] == 1) {
            continue;
        }
        if (expected < 0) {
            expected = *stride = wide.strides[i];
        }
        if (wide.strides[i] != expected) {
            return false;
        }
        expected *= y.dims[i];
    }
    return true;
}

static bool describe(const tutti_tensor_t *x, tutti_shape_t y, tt_matmul_in_t *out)
{
    if (x->numel == 0) { /* strides mean nothing */
        *out = (tt_matmul_in_t){.data = tt_tensor_data(x)};
        return true;
    }
    return describe_matrix(x, out) && describe_batches(x, y, &out->batch_stride);
}

/* Replace *held by a copy with all the batches of y. */
static tutti_status_t repeat_batches(tutti_scope_t *s, tutti_shape_t y, tutti_tensor_t **held)
{
    tutti_tensor_t *x = *held, *wide = NULL;
    const tutti_shape_t shape = with_matrix(y, row_count(x), column_count(x));
    const tt_strided_t view = tt_tensor_strided_as(x, shape);
    tutti_status_t status =
        tt_tensor_over(x->storage, x->dtype, shape, view.strides, x->offset, &wide);
    tutti_tensor_release(x);
    *held = NULL;
    if (status >= 0) {
        status = tt_dense(s, wide, wide->dtype, held);
        tutti_tensor_release(wide);
    }
    return status;
}

/* x as the kernel wants it; *held keeps the memory that *out describes. */
static tutti_status_t load(tutti_op_call_t *call, tutti_tensor_t *x, tutti_dtype_t dtype,
                           tt_matmul_in_t *out, tutti_tensor_t **held)
{
    const tutti_shape_t y = call->outputs[0]->shape;
    if (x->dtype == dtype && describe(x, y, out)) {
        *held = tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    TT_TRY(tt_dense(call->scope, x, dtype, held));
    if (!describe(*held, y, out)) {
        TT_TRY(repeat_batches(call->scope, y, held));
        const bool fits = describe(*held, y, out);
        TT_ASSERT(fits);
    }
    return TUTTI_OK;
}

/* ---- forward, backward ---------------------------------------------------------------------- */

static tutti_status_t multiply(tutti_op_call_t *call, tutti_tensor_t **held)
{
    const tutti_tensor_t *y = call->outputs[0];
    tt_matmul_t product = {.m = row_count(y),
                           .n = column_count(y),
                           .k = column_count(call->inputs[0]),
                           .batch = tutti_shape_numel(batches_of(y->shape)),
                           .dtype = y->dtype,
                           .out_dtype = y->dtype,
                           .c = tt_tensor_data(y),
                           .c_batch_stride = row_count(y) * column_count(y)};
    TT_TRY(load(call, call->inputs[0], y->dtype, &product.a, &held[0]));
    TT_TRY(load(call, call->inputs[1], y->dtype, &product.b, &held[1]));
    return tt_matmul(tt_scope_exec(call->scope), &product);
}

static tutti_status_t matmul_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *held[2] = {NULL, NULL};
    tutti_status_t status = multiply(call, held);
    for (int i = 0; i < 2; i++) {
        if (status >= 0) {
            status = tutti_op_save(call, tutti_op_needs_grad(call, 1 - i) ? call->inputs[i] : NULL);
        }
        tutti_tensor_release(held[i]);
    }
    return status;
}

static tutti_status_t matmul_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *dy = call->grad_outputs[0];
    if (call->wanted[0]) {
        tutti_tensor_t *bt = tutti_transpose(s, call->saved[1], -2, -1);
        tutti_tensor_t *da = tutti_op_run(s, &tt_op_matmul, (tutti_tensor_t *[]){dy, bt}, 2, NULL);
        call->grads[0] = tutti_sum_to(s, da, call->inputs[0].shape);
    }
    if (call->wanted[1]) {
        tutti_tensor_t *at = tutti_transpose(s, call->saved[0], -2, -1);
        tutti_tensor_t *db = tutti_op_run(s, &tt_op_matmul, (tutti_tensor_t *[]){at, dy}, 2, NULL);
        call->grads[1] = tutti_sum_to(s, db, call->inputs[1].shape);
    }
    return tutti_scope_status(s);
}

const tutti_op_t tt_op_matmul = {
    .name = "matmul",
    .about = "y = a b, batches broadcast; da = dy bᵀ, db = aᵀ dy",
    .autocast = TUTTI_OP_AUTOCAST_LOW,
    .infer = matmul_infer,
    .forward = matmul_forward,
    .backward = matmul_backward,
    .grad = matmul_backward,
};

/* ---- vectors, folding ------------------------------------------------------------------------ */

static tutti_status_t check_operands(tutti_tensor_t *const *in)
{
    const tutti_op_call_t call = {.op = &tt_op_matmul, .inputs = in, .input_count = 2};
    const tutti_shape_t a = in[0]->shape, b = in[1]->shape;
    if (a.rank == 0 || b.rank == 0) {
        return tutti_op_fail(&call, TUTTI_ERR_SHAPE, "each input needs at least one dimension");
    }
    const int64_t columns = a.dims[a.rank - 1], rows = b.dims[b.rank == 1 ? 0 : b.rank - 2];
    if (columns != rows) {
        return tutti_op_fail(&call, TUTTI_ERR_SHAPE, "the inner sizes differ");
    }
    return TUTTI_OK;
}

/* The result's shape, where y is [batches, rows, columns] of matrices made from a and b. */
static tutti_shape_t final_shape(tutti_shape_t y, tutti_shape_t a, tutti_shape_t b)
{
    tutti_shape_t out = {.rank = 0};
    const bool is_folded = a.rank > 2 && b.rank <= 2;
    for (int i = 0; i < (is_folded ? a.rank - 1 : y.rank - 1); i++) {
        const bool is_row_of_vector = a.rank == 1 && i == y.rank - 2;
        if (!is_row_of_vector) {
            out.dims[out.rank++] = is_folded ? a.dims[i] : y.dims[i];
        }
    }
    if (b.rank > 1) {
        out.dims[out.rank++] = y.dims[y.rank - 1];
    }
    return out;
}

tutti_tensor_t *tutti_matmul(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)
{
    tutti_tensor_t *in[2] = {a, b};
    if (a->status < 0 || b->status < 0) {
        return tutti_op_run(s, &tt_op_matmul, in, 2, NULL);
    }
    const tutti_shape_t a_shape = a->shape, b_shape = b->shape;
    const tutti_status_t status = check_operands(in);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (a_shape.rank == 1) {
        in[0] = tutti_unsqueeze(s, a, 0);
    } else if (a_shape.rank > 2 && b_shape.rank <= 2) {
        const int64_t columns = a_shape.dims[a_shape.rank - 1];
        in[0] = tutti_reshape(s, a, TUTTI_SHAPE(tt_row_count(a_shape), columns));
    }
    if (b_shape.rank == 1) {
        in[1] = tutti_unsqueeze(s, b, 1);
    }
    tutti_tensor_t *y = tutti_op_run(s, &tt_op_matmul, in, 2, NULL);
    if (y->status < 0 || (in[0] == a && in[1] == b)) {
        return y;
    }
    return tutti_reshape(s, y, final_shape(y->shape, a_shape, b_shape));
}
