/* The serial reference that results are compared with: it counts what is wrong, whatever the dtype,
 * and does not take one place or one rank for another. */
#include "runtime/bench/bench_impl.h"

#include "core/base/testing.h"

enum { RANKS = 3, COUNT = 50, BYTES = RANKS * COUNT * 8 };

typedef struct {
    unsigned char inputs[RANKS][BYTES], result[BYTES];
} memory_t;

static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_BF16, TUTTI_F16,
                                       TUTTI_I64, TUTTI_I32, TUTTI_I8,   TUTTI_U8};

enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static void fill_all(memory_t *memory, const tutti_bench_options_t *options,
                     const tt_bench_op_t *op, size_t count)
{
    for (int rank = 0; rank < RANKS; rank++) {
        tt_bench_fill(options, op, rank, count, memory->inputs[rank]);
    }
}

/* An all_gather by hand. */
static void gather_all(memory_t *memory, size_t part_bytes)
{
    for (int rank = 0; rank < RANKS; rank++) {
        memcpy(memory->result + (size_t)rank * part_bytes, memory->inputs[rank], part_bytes);
    }
}

static void every_wrong_element_is_counted(void **state)
{
    (void)state;
    static memory_t memory;
    const tt_bench_op_t *op = tt_bench_op_find("all_gather");
    const tt_bench_shape_t shape = {.rank = 1, .size = RANKS, .count = COUNT};
    for (int i = 0; i < DTYPES; i++) {
        const tutti_bench_options_t options = {.op = "all_gather", .dtype = dtypes[i]};
        const size_t bytes = tutti_dtype_bytes(dtypes[i]);
        fill_all(&memory, &options, op, COUNT);
        gather_all(&memory, COUNT * bytes);
        assert_int_equal(tt_bench_wrong(&options, op, &shape, RANKS * COUNT, memory.result), 0);
        memory.result[0] ^= 1;
        memory.result[COUNT * bytes] ^= 1;
        memory.result[RANKS * COUNT * bytes - 1] ^= 1;
        assert_int_equal(tt_bench_wrong(&options, op, &shape, RANKS * COUNT, memory.result), 3);
    }
}

static void swapped_parts_and_shifted_places_are_wrong(void **state)
{
    (void)state;
    static memory_t memory;
    const tt_bench_op_t *op = tt_bench_op_find("all_gather");
    const tutti_bench_options_t options = {.op = "all_gather"};
    const tt_bench_shape_t shape = {.rank = 0, .size = RANKS, .count = COUNT};
    fill_all(&memory, &options, op, COUNT);
    gather_all(&memory, COUNT * sizeof(float));
    memcpy(memory.result, memory.inputs[1], COUNT * sizeof(float));
    assert_true(tt_bench_wrong(&options, op, &shape, RANKS * COUNT, memory.result) > COUNT / 2);
    gather_all(&memory, COUNT * sizeof(float));
    memmove(memory.result, memory.result + sizeof(float), COUNT * sizeof(float));
    assert_true(tt_bench_wrong(&options, op, &shape, RANKS * COUNT, memory.result) > COUNT / 2);
}

/* A sum that left a rank out, and one that has a rank twice. */
static void incomplete_sums_are_wrong(void **state)
{
    (void)state;
    static memory_t memory;
    const tt_bench_op_t *op = tt_bench_op_find("all_reduce");
    const tutti_bench_options_t options = {.op = "all_reduce"};
    const tt_bench_shape_t shape = {.rank = 2, .size = RANKS, .count = COUNT};
    float inputs[RANKS][COUNT], right[COUNT], wrong[COUNT];
    fill_all(&memory, &options, op, COUNT);
    memcpy(inputs[0], memory.inputs[0], sizeof inputs[0]);
    memcpy(inputs[1], memory.inputs[1], sizeof inputs[1]);
    memcpy(inputs[2], memory.inputs[2], sizeof inputs[2]);
    for (int i = 0; i < COUNT; i++) {
        right[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
        wrong[i] = inputs[0][i] + inputs[1][i] + inputs[1][i];
    }
    assert_int_equal(tt_bench_wrong(&options, op, &shape, COUNT, right), 0);
    assert_true(tt_bench_wrong(&options, op, &shape, COUNT, wrong) > COUNT / 4);
    assert_true(tt_bench_wrong(&options, op, &shape, COUNT, inputs[0]) > COUNT / 4);
}

static void averages_are_divided_once(void **state)
{
    (void)state;
    static memory_t memory;
    const tt_bench_op_t *op = tt_bench_op_find("all_reduce");
    const tutti_bench_options_t options = {.op = "all_reduce", .reduction = TUTTI_AVG};
    const tt_bench_shape_t shape = {.rank = 0, .size = RANKS, .count = COUNT};
    fill_all(&memory, &options, op, COUNT);
    float sum[COUNT] = {0}, input[COUNT];
    for (int rank = 0; rank < RANKS; rank++) {
        memcpy(input, memory.inputs[rank], sizeof input);
        for (int i = 0; i < COUNT; i++) {
            sum[i] += input[i];
        }
    }
    for (int i = 0; i < COUNT; i++) {
        sum[i] /= RANKS;
    }
    assert_int_equal(tt_bench_wrong(&options, op, &shape, COUNT, sum), 0);
    sum[0] += 1e-3f;
    assert_int_equal(tt_bench_wrong(&options, op, &shape, COUNT, sum), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_element_is_counted),
        cmocka_unit_test(swapped_parts_and_shifted_places_are_wrong),
        cmocka_unit_test(incomplete_sums_are_wrong),
        cmocka_unit_test(averages_are_divided_once),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
