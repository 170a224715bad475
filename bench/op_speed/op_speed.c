/* Forward and, where an input has a gradient, backward of one operation after the other, on one
 * thread, as its lines on stdin ask:
 *
 *     case NAME NUMBER...   makes the inputs, and prints the sums of results and gradients
 *     STEPS                 so many steps of that case, whose median is printed, in milliseconds of
 *                           the processor's time
 *
 * A sum is Σ (i % 97 + 1) v[i], and behind it that of the absolute values. The other side of a
 * comparison, bench/peers/torch_ops.py, waits meanwhile; shapes are in bench/op_shapes.py.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "op_speed/op_case.h"

enum { STEPS_MAX = 1000, LINE_BYTES = 256, GRADIENT_SEED = 99 };

static const op_t *find_op(const char *name)
{
    const op_t *const tables[] = {op_moves, op_layers, op_losses};
    for (int i = 0; i < 3 && name != NULL; i++) {
        for (const op_t *op = tables[i]; op->name != NULL; op++) {
            if (strcmp(op->name, name) == 0) {
                return op;
            }
        }
    }
    return NULL;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void forget_gradients(op_case_t *c)
{
    if (c->module != NULL) {
        tutti_module_zero_grad(c->module);
    }
    for (int i = 0; i < c->inputs; i++) {
        tutti_tensor_zero_grad(c->in[i]);
    }
}

static void backward(tutti_scope_t *s, op_case_t *c, tutti_tensor_t *y)
{
    if (tutti_tensor_rank(y) > 0 && c->grad_output == NULL) {
        c->grad_output = op_spread(c, tutti_tensor_shape(y), GRADIENT_SEED, -1, 1);
    }
    const tutti_backward_options_t options = {.grad_output = c->grad_output};
    (void)tutti_backward_with(s, y, &options); /* the scope knows if it failed */
}

/** Forward and backward; y is the scope's. */
static tutti_tensor_t *step(tutti_scope_t *s, op_case_t *c)
{
    forget_gradients(c);
    tutti_tensor_t *y = c->op->forward(s, c);
    if (tutti_tensor_requires_grad(y)) {
        backward(s, c, y);
    }
    return y;
}

/* ---- what came out --------------------------------------------------------------------------- */

typedef struct {
    double sum, size;
} sums_t;

static void add_sums(sums_t *sums, const tutti_tensor_t *x)
{
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double value = (double)(i % 97 + 1) * tutti_tensor_at(x, i);
        sums->sum += value;
        sums->size += fabs(value);
    }
}

static void print_sums(const char *what, sums_t sums)
{
    printf(", \"%s\": [%.9g, %.9g]", what, sums.sum, sums.size);
}

static tutti_status_t add_grad(void *user, const char *name, tutti_tensor_t *parameter)
{
    (void)name;
    add_sums(user, tutti_tensor_grad(parameter));
    return TUTTI_OK;
}

static void print_result(op_case_t *c, const tutti_tensor_t *y)
{
    sums_t sums = {0}, grads = {0};
    add_sums(&sums, y);
    printf("{\"count\": %lld", (long long)tutti_tensor_numel(y));
    print_sums("result", sums);
    for (int i = 0; i < c->inputs; i++) {
        if (tutti_tensor_grad(c->in[i]) != NULL) {
            add_sums(&grads, tutti_tensor_grad(c->in[i]));
        }
    }
    if (c->module != NULL) {
        (void)tutti_module_each_parameter(c->module, add_grad, &grads);
    }
    print_sums("gradients", grads);
    sums = (sums_t){0};
    if (c->second != NULL) {
        add_sums(&sums, c->second);
    }
    print_sums("second", sums);
    printf("}\n");
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void close_case(op_case_t *c)
{
    tutti_module_release(c->module);
    (void)tutti_scope_close(c->scope);
    *c = (op_case_t){.ctx = c->ctx};
}

/** What stands behind the name. */
static void read_words(op_case_t *c, char *rest)
{
    for (char *word; (word = strtok_r(NULL, " \n", &rest)) != NULL;) {
        char *end;
        const long long number = strtoll(word, &end, 10);
        if (*end != 0) {
            (void)snprintf(c->text, sizeof c->text, "%s", word);
        } else if (c->count < OP_NUMBERS) {
            c->n[c->count++] = number;
        }
    }
}

static tutti_status_t open_case(op_case_t *c, char *words)
{
    tutti_scope_t *s;
    char *rest = NULL;
    close_case(c);
    c->op = find_op(strtok_r(words, " \n", &rest));
    if (c->op == NULL) {
        fprintf(stderr, "op_speed: no such operation\n");
        return TUTTI_ERR_ARG;
    }
    read_words(c, rest);
    TUTTI_CHECK(tutti_scope_open(c->ctx, &c->scope));
    c->op->prepare(c);
    TUTTI_CHECK(tutti_scope_open(c->ctx, &s));
    const tutti_tensor_t *y = step(s, c);
    print_result(c, y);
    c->second = NULL;
    return tutti_scope_close(s);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tutti_status_t take_steps(op_case_t *c, long asked)
{
    double took[STEPS_MAX];
    const size_t steps = asked < 1 ? 1 : asked > STEPS_MAX ? STEPS_MAX : (size_t)asked;
    for (size_t i = 0; i < steps; i++) {
        tutti_scope_t *s;
        const double begin = now_ms();
        TUTTI_CHECK(tutti_scope_open(c->ctx, &s));
        (void)step(s, c);
        TUTTI_CHECK(tutti_scope_close(s));
        took[i] = now_ms() - begin;
    }
    qsort(took, steps, sizeof *took, compare_doubles);
    printf("%.6f\n", took[steps / 2]);
    return TUTTI_OK;
}

static tutti_status_t answer_lines(op_case_t *c)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "case ", 5) == 0) {
            TUTTI_CHECK(open_case(c, line + 5));
        } else if (c->op != NULL) {
            TUTTI_CHECK(take_steps(c, strtol(line, NULL, 10)));
        }
        (void)fflush(stdout);
    }
    return TUTTI_OK;
}

int main(void)
{
    op_case_t c = {0};
    const tutti_context_options_t options = {.threads = 1, .seed = 1};
    tutti_status_t status = tutti_context_create(&options, &c.ctx);
    if (status >= 0) {
        status = answer_lines(&c);
    }
    if (status < 0) {
        fprintf(stderr, "op_speed: %s\n", tutti_last_error());
    }
    close_case(&c);
    tutti_context_release(c.ctx);
    return status < 0;
}
