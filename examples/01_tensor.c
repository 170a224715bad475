/* Lesson 1: tensors and scopes.
 *
 * A tensor is typed memory with a shape. Operations make new tensors, and a scope owns what they
 * make: when it closes they are gone, and it returns the first thing that went wrong inside, so
 * that the lines between need no checks.
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

static void print_matrix(const char *name, const tutti_tensor_t *x)
{
    char text[64];
    printf("%s is %s:\n", name, tutti_tensor_describe(x, text, sizeof text));
    for (int64_t row = 0; row < tutti_tensor_dim(x, 0); row++) {
        for (int64_t column = 0; column < tutti_tensor_dim(x, 1); column++) {
            printf(" %6g", tutti_tensor_at(x, row * tutti_tensor_dim(x, 1) + column));
        }
        printf("\n");
    }
}

/* Making, computing, looking. */
static tutti_status_t arithmetic(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    const float data[] = {1, 2, 3, 4, 5, 6};
    tutti_tensor_t *a = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2, 3), data);
    tutti_tensor_t *b = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(3), 10); /* one row … */
    print_matrix("a + b", tutti_add(s, a, b)); /* … is added to every row */
    print_matrix("a · aᵀ", tutti_matmul(s, a, tutti_transpose(s, a, 0, 1)));
    printf("the mean of a is %g\n", tutti_tensor_item(tutti_mean(s, a)));
    return tutti_scope_close(s);
}

/* A view shares its memory: nothing is copied, and a change is seen through all views. */
static tutti_status_t views(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 0, 1, 12);
    tutti_tensor_t *grid = tutti_view(s, x, TUTTI_SHAPE(3, 4));
    tutti_tensor_t *column = tutti_select(s, grid, 1, 2); /* 2, 6, 10 */
    TUTTI_CHECK(tutti_tensor_fill(column, -1));
    print_matrix("the grid, its third column filled,", grid);
    return tutti_scope_close(s);
}

/* After a failure operations do nothing, and the scope tells what it was. */
static tutti_status_t mistakes(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *a = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    tutti_tensor_t *wrong = tutti_matmul(s, a, a);
    (void)tutti_exp(s, wrong); /* safe to go on with */
    if (tutti_scope_close(s) < 0) {
        printf("as expected: %s\n", tutti_last_error());
    }
    return TUTTI_OK;
}

/* What must outlive its scope is retained, and released by its holder. */
static tutti_status_t keeping(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *kept = tutti_tensor_retain(tutti_full(s, TUTTI_F64, TUTTI_SCALAR, 0.5));
    const tutti_status_t status = tutti_scope_close(s);
    printf("still here: %g\n", tutti_tensor_item(kept));
    tutti_tensor_release(kept);
    return status;
}

static tutti_status_t run(tutti_context_t *ctx)
{
    TUTTI_CHECK(arithmetic(ctx));
    TUTTI_CHECK(views(ctx));
    TUTTI_CHECK(mistakes(ctx));
    return keeping(ctx);
}

int main(void)
{
    tutti_context_t *ctx = NULL; /* threads, seed, modes: what would otherwise be global */
    tutti_status_t status = tutti_context_create(NULL, &ctx);
    if (status >= 0) {
        status = run(ctx);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_context_release(ctx);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
