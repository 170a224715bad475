/* Lesson 14: where what backward needs is kept: in memory, in a file, in half the bits.
 *
 *     build/bin/14_saved_tensors
 *
 * Operations save tensors for their backward. Hooks take them: here to a file, which changes no bit
 * of the gradients, and rounded to bf16, which halves the memory and changes the gradients a
 * little.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

/* ---- to a file ---- */

typedef struct {
    FILE *file;
    long bytes; /* written so far */
    int live;   /* tensors in it that are still needed */
} store_t;

typedef struct {
    long at;
    tutti_dtype_t dtype;
    tutti_shape_t shape;
} place_t;

static tutti_status_t to_file(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed)
{
    store_t *store = user;
    const tutti_tensor_t *row_by_row = tutti_contiguous(s, x);
    TUTTI_CHECK(tutti_tensor_status(row_by_row));
    place_t *place = malloc(sizeof *place);
    const size_t bytes = tutti_tensor_bytes(row_by_row);
    if (place == NULL || fseek(store->file, store->bytes, SEEK_SET) != 0 ||
        fwrite(tutti_tensor_data(row_by_row), 1, bytes, store->file) != bytes) {
        free(place);
        return tutti_fail(TUTTI_ERR_IO, "cannot write %zu bytes", bytes);
    }
    *place = (place_t){store->bytes, tutti_tensor_dtype(x), tutti_tensor_shape(x)};
    store->bytes += (long)bytes;
    store->live++;
    *packed = place;
    return TUTTI_OK;
}

static tutti_tensor_t *from_file(tutti_scope_t *s, void *packed, void *user)
{
    store_t *store = user;
    const place_t *place = packed;
    tutti_tensor_t *x = tutti_empty(s, place->dtype, place->shape);
    if (tutti_tensor_status(x) < 0) {
        return x;
    }
    const size_t bytes = tutti_tensor_bytes(x);
    if (fseek(store->file, place->at, SEEK_SET) != 0 ||
        fread(tutti_tensor_data(x), 1, bytes, store->file) != bytes) {
        return tutti_scope_fail(s, tutti_fail(TUTTI_ERR_IO, "cannot read %zu bytes", bytes));
    }
    return x;
}

static void no_longer_needed(void *packed, void *user)
{
    ((store_t *)user)->live--;
    free(packed);
}

/* ---- in half the bits ---- */

static tutti_status_t to_bf16(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed)
{
    long *bytes = user;
    tutti_tensor_t *half = tutti_cast(s, x, TUTTI_BF16);
    TUTTI_CHECK(tutti_tensor_status(half));
    *bytes += (long)tutti_tensor_bytes(half);
    *packed = tutti_tensor_retain(half);
    return TUTTI_OK;
}

static tutti_tensor_t *to_f32(tutti_scope_t *s, void *packed, void *user)
{
    (void)user;
    return tutti_cast(s, packed, TUTTI_F32);
}

static void drop(void *packed, void *user)
{
    (void)user;
    tutti_tensor_release(packed);
}

/* ---- a step with hooks, or without ---- */

static tutti_status_t step(tutti_context_t *ctx, tutti_module_t *m,
                           const tutti_saved_hooks_t *hooks, double *norm)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_context_set_step(ctx, 1); /* the same random numbers each time */
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(8, 16, 32), 0, 1);
    tutti_status_t status = hooks == NULL ? TUTTI_OK : tutti_saved_hooks_push(ctx, hooks);
    if (status >= 0) {
        tutti_tensor_t *y = tutti_forward(s, m, x), *loss = tutti_mean(s, tutti_mul(s, y, y));
        status = hooks == NULL ? TUTTI_OK : tutti_saved_hooks_pop(ctx);
        tutti_module_zero_grad(m);
        status = status < 0 ? status : tutti_backward(s, loss);
    }
    if (status >= 0) {
        tutti_tensor_t *grad = tutti_tensor_grad(tutti_module_find(m, "qkv.weight"));
        *norm = sqrt(tutti_tensor_at(tutti_sum(s, tutti_mul(s, grad, grad)), 0));
    }
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static tutti_status_t compare(tutti_context_t *ctx, tutti_module_t *block)
{
    double plain, filed, halved;
    long half_bytes = 0;
    store_t store = {.file = tmpfile()};
    if (store.file == NULL) {
        return tutti_fail(TUTTI_ERR_IO, "no file");
    }
    const tutti_saved_hooks_t in_a_file = {to_file, from_file, no_longer_needed, &store};
    const tutti_saved_hooks_t in_halves = {to_bf16, to_f32, drop, &half_bytes};
    tutti_status_t status = step(ctx, block, NULL, &plain);
    status = status < 0 ? status : step(ctx, block, &in_a_file, &filed);
    status = status < 0 ? status : step(ctx, block, &in_halves, &halved);
    if (status >= 0) {
        printf("kept in memory:  the gradient's norm is %.9g\n", plain);
        printf("kept in a file:  %.9g, %ld bytes written, %d still needed\n", filed, store.bytes,
               store.live);
        printf("kept in bf16:    %.9g, %ld bytes, %.3f%% off\n", halved, half_bytes,
               100 * fabs(halved - plain) / plain);
    }
    (void)fclose(store.file);
    return status;
}

int main(void)
{
    tutti_context_t *ctx = NULL;
    tutti_module_t *block = NULL;
    const tutti_transformer_block_options_t options = {.width = 32, .heads = 4, .causal = true};
    tutti_status_t status = tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx);
    if (status >= 0) {
        status = tutti_module_create(ctx, &tutti_transformer_block_layer, &options, &block);
    }
    if (status >= 0) {
        status = compare(ctx, block);
    }
    if (status < 0) {
        fprintf(stderr, "14_saved_tensors: %s\n", tutti_last_error());
    }
    tutti_module_release(block);
    tutti_context_release(ctx);
    return status < 0;
}
