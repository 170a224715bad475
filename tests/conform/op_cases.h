/* Cases of operations, which op_conform_test.c runs: in three memory layouts and three floating
 * types, against plain references and finite differences, and with every allocation failing.
 *
 *     static void call_tanh(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
 *     {
 *         out[0] = tutti_tanh(s, in[0]);
 *     }
 *
 *     {.op = "tanh", .inputs = {{.shape = SHAPE(3, 4)}}, .call = call_tanh, .unary = tanh},
 *
 * To add cases write them in op_cases_<family>.c, with the lists at its end; a new file gets a line
 * in OP_CASE_FAMILIES. Every operation in ops.def needs a case, one of them with an empty input,
 * and a reference or golden values.
 */
#ifndef TT_OP_CASES_H
#define TT_OP_CASES_H

#include <tutti/tensor.h>

#define OP_CASE_FAMILIES(X)                                                                        \
    X(math)                                                                                        \
    X(activation)                                                                                  \
    X(shape)                                                                                       \
    X(index)                                                                                       \
    X(pad)                                                                                         \
    X(reduce)                                                                                      \
    X(random)                                                                                      \
    X(nn)                                                                                          \
    X(loss)                                                                                        \
    X(channel)                                                                                     \
    X(rnn)                                                                                         \
    X(conv)                                                                                        \
    X(pool)                                                                                        \
    X(device)

/* TUTTI_SHAPE as an initialiser of static tables. */
#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { __VA_ARGS__ } \
    }

/* So many as a tensor there has elements. */
#define VALUES(...) ((const double[]){__VA_ARGS__})

enum { OP_INPUTS_MAX = 6, OP_OUTPUTS_MAX = 5 };

typedef struct {
    tutti_shape_t shape;
    tutti_dtype_t dtype;  /* TUTTI_F32 stands for each floating type in turn */
    double low, high;     /* random values in between (whole ones for other types); both 0: ±2 */
    const double *values; /* or exactly these */
    bool is_constant;     /* a floating input without a gradient */
    bool is_missing;      /* NULL */
} op_input_t;

typedef struct {
    const char *op;   /* its name in ops.def */
    const char *what; /* "" or what is special */
    op_input_t inputs[OP_INPUTS_MAX];
    int input_count;  /* 0: one; -1: none */
    int output_count; /* 0: 1 */
    void (*call)(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out);

    /* At most one reference, of output 0; without one, golden values must exist. */
    double (*unary)(double x);
    double (*binary)(double a, double b); /* of the first two inputs, broadcast */
    const double *expected;               /* [output's elements] */
    tutti_shape_t expected_shape;         /* checked with `expected` */

    bool has_no_gradient; /* of this case, though the operation may have one */
    bool is_contiguous;   /* run in that layout alone */
    bool is_exact;        /* run in f64 alone: other types would miss the point */
    bool copies;          /* a view operation that has to copy here */
    double step;          /* of finite differences; 0: 1e-5 */
    double tolerance;     /* of gradients in f64, relative; 0: 2e-6 */
} op_case_t;

/* A call that must fail, with this text. */
typedef struct {
    const char *op;
    void (*call)(tutti_scope_t *s);
    const char *text;
} op_error_t;

#define X(family)                                                                                  \
    extern const op_case_t op_cases_##family[];                                                    \
    extern const size_t op_cases_##family##_count;                                                 \
    extern const op_error_t op_errors_##family[];                                                  \
    extern const size_t op_errors_##family##_count;
OP_CASE_FAMILIES(X)
#undef X

/* At the end of a family's file. */
#define OP_CASE_LISTS(family)                                                                      \
    const size_t op_cases_##family##_count = sizeof op_cases_##family / sizeof(op_case_t);         \
    const size_t op_errors_##family##_count = sizeof op_errors_##family / sizeof(op_error_t)

#endif
