/* Measuring one size: verify a call, time batches of calls, then single calls.
 *
 *     barrier | call call call … call | slowest rank's mean      once to warm up, then five times
 *     barrier | call | call | …                                  single ones, for p50 and p99
 *
 * Every rank times itself; the slowest one's time is the call's. The best batch counts: what is
 * worse than it was somebody else's work on the same cores. Percentiles are not helped in that way.
 * A single call's time includes reading the clock, about 20 ns.
 *
 * Source: nccl-tests for the units; OSU's micro-benchmarks for batches of one buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/options.h>

#include "comm/backend/native_backend.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/kernel/elementwise/combine.h"
#include "runtime/bench/bench_impl.h"

enum { BATCHES = 5, SINGLES_MAX = 4000, CELLS = 2 };

static int calls_for(const tutti_bench_options_t *options, size_t bytes)
{
    if (options->calls > 0) {
        return options->calls;
    }
    return bytes < 4096 ? 20000 : bytes < (256 << 10) ? 2000 : bytes < (8 << 20) ? 200 : 20;
}

static tutti_status_t fail_op(const char *name)
{
    const char *names[16] = {0};
    tutti_bench_op_t op;
    for (size_t i = 0; i + 1 < 16 && tutti_bench_op_at(i, &op) == TUTTI_OK; i++) {
        names[i] = op.name;
    }
    return TT_FAIL(TUTTI_ERR_ARG, "bench: there is no operation \"%s\"; did you mean \"%s\"?", name,
                   tutti_nearest_name(name, names));
}

tutti_status_t tutti_bench_check(const tutti_bench_options_t *options, int ranks)
{
    const tt_bench_op_t *op = tt_bench_op_find(options->op != NULL ? options->op : "");
    if (op == NULL) {
        return fail_op(options->op != NULL ? options->op : "");
    }
    if (op->has_root && (options->root < 0 || options->root >= ranks)) {
        return TT_FAIL(TUTTI_ERR_ARG, "bench: root %d is outside a group of %d ranks",
                       options->root, ranks);
    }
    if (options->batches < 0 || options->calls < 0 || options->spoil < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "bench: %d batches of %d calls, %lld spoilt: want 0 or more",
                       options->batches, options->calls, (long long)options->spoil);
    }
    if (op->reduces && tt_combine_width(options->reduction) > 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "bench: %s combines pairs; what is measured are numbers",
                       tutti_reduction_name(options->reduction));
    }
    return op->reduces ? tt_combine_check("bench", options->dtype, options->reduction) : TUTTI_OK;
}

tutti_status_t tutti_bench_open(tutti_group_t *group, const tutti_bench_options_t *options,
                                tutti_bench_t **out)
{
    TT_TRY(tutti_bench_check(options, tutti_group_size(group)));
    tutti_bench_t *bench = tt_alloc(sizeof *bench, "benchmark");
    TT_TRY_ALLOC(bench);
    const tutti_status_t status =
        tutti_group_tensor(group, TUTTI_F64, TUTTI_SHAPE(CELLS), &bench->cells);
    if (status < 0) {
        tt_free(bench);
        return status;
    }
    bench->group = tutti_group_retain(group);
    bench->options = *options;
    bench->op = tt_bench_op_find(options->op);
    *out = bench;
    return TUTTI_OK;
}

void tutti_bench_close(tutti_bench_t *bench)
{
    if (bench != NULL) {
        tutti_tensor_release(bench->cells);
        tutti_group_release(bench->group);
        tt_free(bench);
    }
}

/* Combines two numbers over all ranks. */
static tutti_status_t agree(tutti_bench_t *bench, tutti_reduction_t how, double *a, double *b)
{
    double *cells = tutti_tensor_data(bench->cells);
    cells[0] = *a;
    cells[1] = *b;
    TT_TRY(tutti_all_reduce(bench->group, bench->cells, how, NULL));
    *a = cells[0];
    *b = cells[1];
    return TUTTI_OK;
}

static tutti_status_t call_slot(const tutti_bench_t *bench, size_t slot)
{
    if (bench->options.has_barrier) {
        TT_TRY(tutti_barrier(bench->group, NULL));
    }
    return bench->op->call(bench->group, &bench->options, bench->outs[slot], bench->ins[slot]);
}

/* ---- which algorithm ---- */

tt_coll_t *tt_bench_coll(const tutti_bench_t *bench)
{
    const tutti_group_t *group = bench->group;
    return group->backend == &tt_backend_native ? tt_native_coll(group->state) : NULL;
}

static void describe(const tutti_bench_t *bench, tutti_bench_row_t *row)
{
    const tt_coll_t *coll = tt_bench_coll(bench);
    const tt_algorithm_t *algorithm = coll != NULL ? tt_coll_last_algorithm(coll) : NULL;
    const char *engine = bench->group->backend->name;
    snprintf(row->wire, sizeof row->wire, "%s", coll != NULL ? tt_coll_wires(coll) : engine);
    if (bench->op->collective < 0) {
        snprintf(row->algo, sizeof row->algo, "%s", "message");
        row->is_canonical = true;
        return;
    }
    snprintf(row->algo, sizeof row->algo, "%s", algorithm != NULL ? algorithm->name : engine);
    row->is_canonical = algorithm != NULL && algorithm->is_canonical;
}

/* ---- verifying ---- */

static void fill_input(const tutti_bench_t *bench)
{
    void *data = bench->ins[0] != NULL ? tutti_tensor_data(bench->ins[0]) : NULL;
    if (data != NULL) {
        tt_bench_fill(&bench->options, bench->op, bench->shape.rank, bench->in_count, data);
    }
}

static void spoil(const tutti_bench_t *bench, unsigned char *data)
{
    const size_t bytes = tutti_dtype_bytes(bench->options.dtype);
    const size_t count = (size_t)bench->options.spoil;
    for (size_t i = 0; i < count && i < bench->out_count && bench->shape.rank == 0; i++) {
        data[i * bytes] ^= 1;
    }
}

static tutti_status_t verify(tutti_bench_t *bench, tutti_bench_row_t *row)
{
    fill_input(bench);
    TT_TRY(call_slot(bench, 0));
    describe(bench, row);
    double wrong = 0, none = 0;
    if (bench->outs[0] != NULL) {
        void *data = tutti_tensor_data(bench->outs[0]);
        spoil(bench, data);
        wrong = (double)tt_bench_wrong(&bench->options, bench->op, &bench->shape, bench->out_count,
                                       data);
    }
    TT_TRY(agree(bench, TUTTI_SUM, &wrong, &none));
    row->wrong = (int64_t)wrong;
    /* Sums of sums would grow to infinity. */
    memset(tutti_tensor_data(bench->pool), 0, tutti_tensor_bytes(bench->pool));
    return TUTTI_OK;
}

/* ---- timing ---- */

static tutti_status_t time_batches(tutti_bench_t *bench, int calls, tutti_bench_row_t *row)
{
    const int batches = bench->options.batches > 0 ? bench->options.batches : BATCHES;
    size_t slot = 0;
    double best = 0;
    for (int batch = 0; batch <= batches; batch++) { /* the first one warms up */
        TT_TRY(tutti_barrier(bench->group, NULL));
        const int64_t start = tt_clock_ns();
        for (int i = 0; i < calls; i++) {
            TT_TRY(call_slot(bench, slot));
            slot = slot + 1 < bench->slots ? slot + 1 : 0;
        }
        double mean = (double)(tt_clock_ns() - start) / calls, none = 0;
        TT_TRY(agree(bench, TUTTI_MAX, &mean, &none));
        best = batch <= 1 || mean < best ? mean : best;
    }
    row->time_us = best * 1e-3;
    return TUTTI_OK;
}

static int compare_times(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static tutti_status_t time_singles(tutti_bench_t *bench, int64_t *times, int calls)
{
    size_t slot = 0;
    TT_TRY(tutti_barrier(bench->group, NULL));
    for (int i = 0; i < calls; i++) {
        const int64_t start = tt_clock_ns();
        TT_TRY(call_slot(bench, slot));
        times[i] = tt_clock_ns() - start;
        slot = slot + 1 < bench->slots ? slot + 1 : 0;
    }
    return TUTTI_OK;
}

static tutti_status_t find_percentiles(tutti_bench_t *bench, int calls, tutti_bench_row_t *row)
{
    calls = calls < SINGLES_MAX ? calls : SINGLES_MAX;
    int64_t *times = tt_alloc_array((size_t)calls, sizeof *times, "times of a benchmark");
    TT_TRY_ALLOC(times);
    const tutti_status_t status = time_singles(bench, times, calls);
    if (status >= 0) {
        qsort(times, (size_t)calls, sizeof *times, compare_times);
        row->p50_us = (double)times[calls / 2] * 1e-3;
        row->p99_us = (double)times[(int)((int64_t)(calls - 1) * 99 / 100)] * 1e-3;
    }
    tt_free(times);
    TT_TRY(status);
    return agree(bench, TUTTI_MAX, &row->p50_us, &row->p99_us);
}

/* ---- a size ---- */

static void shape_size(tutti_bench_t *bench, size_t bytes)
{
    const tt_bench_op_t *op = bench->op;
    const int rank = tutti_group_rank(bench->group), size = tutti_group_size(bench->group);
    const size_t parts = op->in_is_all || op->out_is_all ? (size_t)size : 1;
    const size_t count = bytes / parts / tutti_dtype_bytes(bench->options.dtype);
    bench->shape = (tt_bench_shape_t){
        .rank = rank, .size = size, .root = bench->options.root, .count = count > 0 ? count : 1};
    const size_t has_in = !op->in_at_root || rank == bench->options.root;
    const size_t has_out = !op->out_at_root || rank == bench->options.root;
    bench->in_count = has_in * bench->shape.count * (op->in_is_all ? parts : 1);
    bench->out_count = has_out * bench->shape.count * (op->out_is_all ? parts : 1);
    if (op->origin == NULL) {
        bench->shape.count = bench->in_count = bench->out_count = 0;
    }
}

static void describe_size(const tutti_bench_t *bench, tutti_bench_row_t *row)
{
    const tt_bench_op_t *op = bench->op;
    const size_t parts = op->in_is_all || op->out_is_all ? (size_t)bench->shape.size : 1;
    row->count = bench->shape.count;
    row->bytes = row->count * parts * tutti_dtype_bytes(bench->options.dtype);
    row->ranks = bench->shape.size;
}

static tutti_status_t measure_size(tutti_bench_t *bench, tutti_bench_row_t *row)
{
    TT_TRY(tt_bench_buffers_open(bench, row->bytes));
    const int calls = calls_for(&bench->options, row->bytes);
    if (bench->op->origin != NULL) {
        TT_TRY(verify(bench, row));
    } else {
        TT_TRY(call_slot(bench, 0));
        describe(bench, row);
    }
    TT_TRY(time_batches(bench, calls, row));
    TT_TRY(find_percentiles(bench, calls, row));
    row->algbw = row->time_us > 0 ? (double)row->bytes / row->time_us * 1e-3 : 0;
    row->busbw = row->algbw * bench->op->factor(row->ranks);
    return TUTTI_OK;
}

tutti_status_t tutti_bench_measure(tutti_bench_t *bench, size_t bytes, tutti_bench_row_t *row)
{
    tutti_bench_row_t made = {0};
    shape_size(bench, bytes);
    describe_size(bench, &made);
    const tutti_status_t status = measure_size(bench, &made);
    tt_bench_buffers_close(bench);
    TT_TRY(status);
    *row = made;
    return TUTTI_OK;
}
