/* Lesson 1 in C++: tensors and scopes. The calls are those of C; owners release what they own, and
 * failures are exceptions (tutti/tutti.hpp).
 *
 *     g++ -std=c++17 01_tensor.cpp $(pkg-config --cflags --libs tutti) -o 01_tensor
 */
#include <cstdio>
#include <exception>

#include <tutti/tutti.hpp>

static void print_matrix(const char *name, const tutti_tensor_t *x)
{
    char text[64];
    std::printf("%s is %s:\n", name, tutti_tensor_describe(x, text, sizeof text));
    for (int64_t row = 0; row < tutti_tensor_dim(x, 0); row++) {
        for (int64_t column = 0; column < tutti_tensor_dim(x, 1); column++) {
            std::printf(" %6g", tutti_tensor_at(x, row * tutti_tensor_dim(x, 1) + column));
        }
        std::printf("\n");
    }
}

/* Making, computing, looking. */
static void arithmetic(tutti_context_t *ctx)
{
    tutti::in_scope(ctx, [](tutti_scope_t *s) {
        const float data[] = {1, 2, 3, 4, 5, 6};
        tutti_tensor_t *a = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2, 3), data);
        tutti_tensor_t *b = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(3), 10); // one row …
        print_matrix("a + b", tutti_add(s, a, b)); // … is added to every row
        print_matrix("a · aᵀ", tutti_matmul(s, a, tutti_transpose(s, a, 0, 1)));
        std::printf("the mean of a is %g\n", tutti_tensor_item(tutti_mean(s, a)));
    });
}

/* A view shares its memory: nothing is copied, and a change is seen through all views. */
static void views(tutti_context_t *ctx)
{
    tutti::in_scope(ctx, [](tutti_scope_t *s) {
        tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 0, 1, 12);
        tutti_tensor_t *grid = tutti_view(s, x, TUTTI_SHAPE(3, 4));
        tutti_tensor_t *column = tutti_select(s, grid, 1, 2); // 2, 6, 10
        tutti::check(tutti_tensor_fill(column, -1));
        print_matrix("the grid, its third column filled,", grid);
    });
}

/* After a failure operations do nothing, and the end of the scope throws what it was. */
static void mistakes(tutti_context_t *ctx)
{
    try {
        tutti::in_scope(ctx, [](tutti_scope_t *s) {
            tutti_tensor_t *a = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
            tutti_tensor_t *wrong = tutti_matmul(s, a, a);
            (void)tutti_exp(s, wrong); // safe to go on with
        });
    } catch (const tutti::error &error) {
        std::printf("as expected: %s\n", error.what());
    }
}

/* What must outlive its scope gets an owner. */
static void keeping(tutti_context_t *ctx)
{
    tutti::owner<tutti_tensor_t> kept;
    tutti::in_scope(ctx, [&](tutti_scope_t *s) {
        kept = tutti::retain(tutti_full(s, TUTTI_F64, TUTTI_SCALAR, 0.5));
    });
    std::printf("still here: %g\n", tutti_tensor_item(kept));
}

int main()
{
    try {
        auto ctx = tutti::make(tutti_context_create, nullptr);
        arithmetic(ctx);
        views(ctx);
        mistakes(ctx);
        keeping(ctx);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
