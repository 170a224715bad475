/* Collapsing dims and stepping through them. Cost: a few ns per run of the innermost dim. */
#include "core/kernel/elementwise/walk.h"

static void swap_dims(tt_walk_t *walk, int a, int b)
{
    const int64_t size = walk->shape[a];
    walk->shape[a] = walk->shape[b];
    walk->shape[b] = size;
    for (int k = 0; k < walk->operands; k++) {
        const int64_t stride = walk->strides[k][a];
        walk->strides[k][a] = walk->strides[k][b];
        walk->strides[k][b] = stride;
    }
}

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Largest stride of operand 0 first: insertion sort of at most eight. */
static void order_dims(tt_walk_t *walk)
{
    for (int i = 1; i < walk->rank; i++) {
        for (int j = i;
             j > 0 && magnitude(walk->strides[0][j - 1]) < magnitude(walk->strides[0][j]); j--) {
            swap_dims(walk, j - 1, j);
        }
    }
}

/* Whether dims d and d + 1 are one even run for every operand. */
static bool can_join(const tt_walk_t *walk, int d)
{
    for (int k = 0; k < walk->operands; k++) {
        if (walk->strides[k][d] != walk->strides[k][d + 1] * walk->shape[d + 1]) {
            return false;
        }
    }
    return true;
}

static void join_dims(tt_walk_t *walk)
{
    for (int d = walk->rank - 2; d >= 0; d--) {
        if (!can_join(walk, d)) {
            continue;
        }
        walk->shape[d] *= walk->shape[d + 1];
        for (int k = 0; k < walk->operands; k++) {
            walk->strides[k][d] = walk->strides[k][d + 1];
        }
        for (int e = d + 1; e + 1 < walk->rank; e++) {
            swap_dims(walk, e, e + 1);
        }
        walk->rank--;
    }
}

static void classify(tt_walk_t *walk, int k)
{
    int64_t step = 1;
    walk->is_dense[k] = walk->is_single[k] = true;
    for (int d = walk->rank - 1; d >= 0; d--) {
        walk->is_dense[k] &= walk->strides[k][d] == step;
        walk->is_single[k] &= walk->strides[k][d] == 0;
        step *= walk->shape[d];
    }
}

void tt_walk_init(tt_walk_t *walk, const tt_strided_t *const *operands, int count, bool reorder)
{
    *walk = (tt_walk_t){.operands = count, .total = 1};
    for (int d = 0; d < operands[0]->rank; d++) {
        const int64_t size = operands[0]->shape[d];
        walk->total *= size;
        if (size == 1) {
            continue;
        }
        walk->shape[walk->rank] = size;
        for (int k = 0; k < count; k++) {
            walk->strides[k][walk->rank] = operands[k]->strides[d];
        }
        walk->rank++;
    }
    if (reorder) {
        order_dims(walk);
    }
    if (walk->total > 0) {
        join_dims(walk);
    }
    for (int k = 0; k < count; k++) {
        classify(walk, k);
    }
}

tt_cursor_t tt_cursor_at(const tt_walk_t *walk, int operand, int64_t first)
{
    tt_cursor_t cursor = {.walk = walk, .operand = operand};
    for (int d = walk->rank - 1; d >= 0; d--) {
        cursor.coordinate[d] = first % walk->shape[d];
        first /= walk->shape[d];
        cursor.offset += cursor.coordinate[d] * walk->strides[operand][d];
    }
    return cursor;
}

/* The innermost dim is through: carry into the outer ones. */
static void carry(tt_cursor_t *cursor)
{
    const tt_walk_t *walk = cursor->walk;
    for (int d = walk->rank - 1; d > 0 && cursor->coordinate[d] == walk->shape[d]; d--) {
        const int64_t *strides = walk->strides[cursor->operand];
        cursor->offset += strides[d - 1] - walk->shape[d] * strides[d];
        cursor->coordinate[d] = 0;
        cursor->coordinate[d - 1]++;
    }
}

int64_t tt_cursor_next(tt_cursor_t *cursor, int64_t most, int64_t *offset)
{
    const tt_walk_t *walk = cursor->walk;
    *offset = cursor->offset;
    if (walk->rank == 0) {
        return 1;
    }
    const int inner = walk->rank - 1;
    const int64_t left = walk->shape[inner] - cursor->coordinate[inner];
    const int64_t run = left < most ? left : most;
    cursor->coordinate[inner] += run;
    cursor->offset += run * walk->strides[cursor->operand][inner];
    carry(cursor);
    return run;
}

int64_t tt_walk_inner_stride(const tt_walk_t *walk, int operand)
{
    return walk->rank == 0 ? 1 : walk->strides[operand][walk->rank - 1];
}
