/* The parts of `tutti bench`: what it is given, what it prints. */
#ifndef TT_BENCH_PARTS_H
#define TT_BENCH_PARTS_H

#include <stdio.h>

#include <jansson.h>

#include <tutti/bench.h>

#include "cli/cli.h"

/* Sizes to measure: "4:64M:x4" multiplies, "1M:8M:+1M" adds. */
typedef struct {
    size_t first, last, factor, step;
} tt_sizes_t;

/* false: it is no such text. */
bool tt_sizes_parse(const char *text, tt_sizes_t *out);

/* The size behind `bytes`; 0: it was the last one. */
size_t tt_sizes_next(const tt_sizes_t *sizes, size_t bytes);

/* The times, in µs, of an earlier run's JSON lines by their bytes, for --compare; the caller's.
 * NULL, and a text on stderr, if there are none. */
json_t *tt_earlier_read(const char *path, const char *op);

typedef struct {
    const tutti_bench_options_t *options;
    bool is_json;
    const json_t *earlier; /* or NULL */
    int rows, compared;
    double busbw_sum, ratio_log_sum;
    int64_t wrong;
} tt_bench_output_t;

/* The operation of a name that there is. */
tutti_bench_op_t tt_bench_find(const char *name);

void tt_bench_print_head(const tt_bench_output_t *output, int ranks);
void tt_bench_print_row(tt_bench_output_t *output, const tutti_bench_row_t *row);
void tt_bench_print_end(const tt_bench_output_t *output);

#endif
