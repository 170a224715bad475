/* Measuring an operation that the test makes up: where its buffers lie, which of them each call
 * gets, and what becomes of a call that fails. */
#include "runtime/bench/bench_impl.h"

#include "comm/group/group_team.h"
#include "core/base/cache_size.h"
#include "core/base/integers.h"

enum { SLOTS = 1 << 16, CALLS = 70000, SINGLES = 4000, CALLS_MAX = 1 + 2 * CALLS + SINGLES };

static struct {
    const tutti_bench_t *bench;
    const void *outs[CALLS_MAX];
    size_t count;
    bool fails_first, are_apart;
} seen;

/* ---- where buffers lie, and which of them a call gets ---------------------------------------- */

static size_t rotate_bytes(void)
{
    return (size_t)tt_max((int64_t)(4 * tt_last_cache_bytes()), 256 << 20);
}

/* From slot to slot: output and input lie behind all that was before, up to the pool's end. */
static bool are_apart(const tutti_bench_t *bench)
{
    const size_t pool_bytes = tutti_tensor_bytes(bench->pool);
    const char *free = tutti_tensor_data(bench->pool), *end = free + pool_bytes;
    for (size_t i = 0; i < bench->slots; i++) {
        const char *out = tutti_tensor_data(bench->outs[i]), *in = tutti_tensor_data(bench->ins[i]);
        if (out < free || in < out + tutti_tensor_bytes(bench->outs[i])) {
            return false;
        }
        free = in + tutti_tensor_bytes(bench->ins[i]);
    }
    return bench->slots == SLOTS && pool_bytes >= rotate_bytes() && free <= end &&
           free > end - pool_bytes / 4;
}

static tutti_status_t note_call(tutti_group_t *group, const tutti_bench_options_t *options,
                                tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)group, (void)options;
    if (seen.count < CALLS_MAX) {
        seen.outs[seen.count] = tutti_tensor_data(out);
    }
    if (seen.count++ > 0) {
        return TUTTI_OK;
    }
    if (seen.fails_first) {
        return TT_FAIL(TUTTI_ERR_STATE, "the first call fails");
    }
    seen.are_apart = are_apart(seen.bench);
    return tutti_tensor_copy(out, in);
}

static tutti_status_t measure_noted(tt_member_t *m, const tutti_bench_options_t *options,
                                    size_t bytes, tutti_bench_row_t *row)
{
    tutti_bench_t *bench = NULL;
    TT_EXPECT(m, tutti_bench_open(m->group, options, &bench) == TUTTI_OK);
    tt_bench_op_t op = *bench->op;
    op.call = note_call;
    bench->op = &op;
    seen.bench = bench;
    seen.count = 0;
    const tutti_status_t status = tutti_bench_measure(bench, bytes, row);
    tutti_bench_close(bench);
    return status;
}

/* As many slots as there may be, just too large to be spread over the pool. The first call is
 * verified; batches go through all slots and begin again; so do single calls. */
static void rotate(tt_member_t *m)
{
    const tutti_bench_options_t options = {.op = "all_gather",
                                           .dtype = TUTTI_U8,
                                           .is_foreign = true,
                                           .is_rotating = true,
                                           .is_out_of_place = true,
                                           .calls = CALLS,
                                           .batches = 1};
    const size_t bytes = rotate_bytes() / SLOTS / 2 + 64, singles = 1 + 2 * CALLS;
    tutti_bench_row_t row;
    TT_EXPECT(m, measure_noted(m, &options, bytes, &row) == TUTTI_OK);
    TT_EXPECT(m, row.bytes == bytes && row.wrong == 0 && seen.count == CALLS_MAX);
    TT_EXPECT(m, seen.are_apart);
    TT_EXPECT(m, row.time_us > 0 && row.p50_us > 0 && row.p99_us >= row.p50_us);
    const char *first = seen.outs[0];
    const ptrdiff_t stride = (const char *)seen.outs[2] - first;
    TT_EXPECT(m, stride >= (ptrdiff_t)(2 * bytes));
    for (size_t i = 1; i < CALLS_MAX; i++) {
        const size_t slot = (i < singles ? i - 1 : i - singles) % SLOTS;
        TT_EXPECT(m, seen.outs[i] == first + (ptrdiff_t)slot * stride);
    }
}

static void calls_go_through_buffers_that_do_not_overlap_and_begin_again(void **state)
{
    (void)state;
    tt_team_expect(1, 60000, rotate, NULL);
}

/* ---- what becomes of a failure --------------------------------------------------------------- */

static void fail_first(tt_member_t *m)
{
    const tutti_bench_options_t options = {.op = "all_reduce", .calls = 1, .batches = 1};
    tutti_bench_row_t row = {.bytes = 7};
    seen.fails_first = true;
    TT_EXPECT(m, measure_noted(m, &options, 64, &row) == TUTTI_ERR_STATE);
    TT_EXPECT(m, row.bytes == 7 && seen.count == 1);
    seen.fails_first = false;
}

static void a_call_that_fails_ends_the_measurement(void **state)
{
    (void)state;
    tt_team_expect(1, 60000, fail_first, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_go_through_buffers_that_do_not_overlap_and_begin_again),
        cmocka_unit_test(a_call_that_fails_ends_the_measurement),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
