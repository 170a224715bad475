/* Forward and backward of one layer with input and parameters that need a gradient, on one thread,
 * in turns: for each number on stdin so many steps, whose median in milliseconds is printed. The
 * other side of a comparison, bench/peers/torch_layer.py, waits meanwhile.
 *
 *     layer_speed lstm IN HIDDEN LAYERS BATCH STEPS
 *     layer_speed conv BATCH IN OUT SIZE KERNEL STRIDE      padding KERNEL / 2, no bias
 *     layer_speed pool BATCH CHANNELS SIZE                  the mean of each plane
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

enum { ARGUMENTS = 6, STEPS_MAX = 1000 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *scope; /* of what all steps use */
    tutti_module_t *layer;
    tutti_tensor_t *x, *grad_output;
} bench_t;

static tutti_status_t make_layer(bench_t *b, const char *kind, const int64_t *n)
{
    if (strcmp(kind, "lstm") == 0) {
        const tutti_rnn_options_t options = {.in = n[0], .hidden = n[1], .layers = n[2]};
        b->x = tutti_normal(b->scope, TUTTI_F32, TUTTI_SHAPE(n[4], n[3], n[0]), 0, 1);
        return tutti_module_create(b->ctx, &tutti_lstm_layer, &options, &b->layer);
    }
    if (strcmp(kind, "conv") == 0) {
        const tutti_conv_layer_options_t options = {
            .in = n[1],
            .out = n[2],
            .kernel = {n[4], n[4]},
            .move = {.stride = {n[5], n[5]}, .padding = {n[4] / 2, n[4] / 2}},
            .no_bias = true};
        b->x = tutti_normal(b->scope, TUTTI_F32, TUTTI_SHAPE(n[0], n[1], n[3], n[3]), 0, 1);
        return tutti_module_create(b->ctx, &tutti_conv2d_layer, &options, &b->layer);
    }
    const tutti_adaptive_pool_options_t options = {.size = {1, 1}};
    b->x = tutti_normal(b->scope, TUTTI_F32, TUTTI_SHAPE(n[0], n[1], n[2], n[2]), 0, 1);
    return tutti_module_create(b->ctx, &tutti_adaptive_avg_pool2d_layer, &options, &b->layer);
}

static tutti_status_t step(bench_t *b)
{
    tutti_scope_t *s;
    tutti_module_zero_grad(b->layer);
    tutti_tensor_zero_grad(b->x);
    TUTTI_CHECK(tutti_scope_open(b->ctx, &s));
    tutti_tensor_t *y = tutti_forward(s, b->layer, b->x);
    if (b->grad_output == NULL && y != NULL) {
        b->grad_output = tutti_normal(b->scope, TUTTI_F32, tutti_tensor_shape(y), 0, 1);
    }
    const tutti_backward_options_t options = {.grad_output = b->grad_output};
    (void)tutti_backward_with(s, y, &options); /* the scope knows if it failed */
    return tutti_scope_close(s);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tutti_status_t take_turns(bench_t *b)
{
    char line[64];
    double took[STEPS_MAX];
    while (fgets(line, sizeof line, stdin) != NULL) {
        const long asked = strtol(line, NULL, 10);
        const size_t steps = asked < 1 ? 1 : asked > STEPS_MAX ? STEPS_MAX : (size_t)asked;
        for (size_t i = 0; i < steps; i++) {
            const double begin = now_ms();
            TUTTI_CHECK(step(b));
            took[i] = now_ms() - begin;
        }
        qsort(took, steps, sizeof *took, compare_doubles);
        printf("%.6f\n", took[steps / 2]);
        (void)fflush(stdout);
    }
    return TUTTI_OK;
}

static tutti_status_t run(bench_t *b, const char *kind, const int64_t *numbers)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 1};
    TUTTI_CHECK(tutti_context_create(&options, &b->ctx));
    TUTTI_CHECK(tutti_scope_open(b->ctx, &b->scope));
    TUTTI_CHECK(make_layer(b, kind, numbers));
    TUTTI_CHECK(tutti_tensor_set_requires_grad(b->x, true));
    TUTTI_CHECK(take_turns(b));
    return tutti_scope_close(b->scope);
}

int main(int argc, char **argv)
{
    int64_t numbers[ARGUMENTS] = {0};
    bench_t b = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: layer_speed lstm|conv|pool NUMBER...\n");
        return 2;
    }
    for (int i = 0; i < ARGUMENTS && i + 2 < argc; i++) {
        numbers[i] = strtol(argv[i + 2], NULL, 10);
    }
    const tutti_status_t status = run(&b, argv[1], numbers);
    if (status < 0) {
        fprintf(stderr, "layer_speed: %s\n", tutti_last_error());
    }
    tutti_module_release(b.layer);
    tutti_context_release(b.ctx);
    return status < 0;
}
