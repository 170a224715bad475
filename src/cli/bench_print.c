/* What `tutti bench` prints: the table of nccl-tests, or a JSON line per size; with --compare, how
 * many times faster this run is than an earlier one.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench_parts.h"

enum { LINE_BYTES = 4096, KEY_BYTES = 24 };

static const char *key_of(size_t bytes, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%zu", bytes);
    return key;
}

/* Lines that are no JSON, such as a launcher's, are passed over; so are other operations. Of lines
 * with the same size the first counts. */
static void read_line(json_t *earlier, const char *line, const char *op)
{
    char key[KEY_BYTES];
    const char *brace = strchr(line, '{');
    json_t *row = brace != NULL ? json_loads(brace, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *name = json_string_value(json_object_get(row, "op"));
    const json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
    json_t *time_us = json_object_get(row, "time_us");
    if (name != NULL && strcmp(name, op) == 0 && bytes >= 0 && json_number_value(time_us) > 0 &&
        json_object_get(earlier, key_of((size_t)bytes, key)) == NULL) {
        (void)json_object_set(earlier, key, time_us);
    }
    json_decref(row);
}

json_t *tt_earlier_read(const char *path, const char *op)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "tutti bench: --compare %s: the file cannot be read\n", path);
        return NULL;
    }
    json_t *earlier = json_object();
    for (char line[LINE_BYTES]; fgets(line, sizeof line, file) != NULL;) {
        read_line(earlier, line, op);
    }
    fclose(file);
    if (json_object_size(earlier) == 0) {
        fprintf(stderr,
                "tutti bench: --compare %s: no JSON line of %s with bytes and time_us; make one "
                "with `tutti bench %s --json > FILE`\n",
                path, op, op);
        json_decref(earlier);
        return NULL;
    }
    return earlier;
}

void tt_bench_print_head(const tt_bench_output_t *output, int ranks)
{
    const tutti_bench_options_t *options = output->options;
    if (output->is_json) {
        return;
    }
    printf("# %s, %d ranks, %s, %s, %s buffers\n", options->op, ranks,
           options->is_out_of_place ? "out of place" : "in place",
           options->is_rotating ? "rotating" : "hot",
           options->is_foreign ? "foreign" : "shared-heap");
    printf("#%11s %12s %6s %8s %5s %11s %8s %8s %7s %11s %11s  %-10s %-7s", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "#wrong", "p50", "p99", "algo", "wire");
    printf(output->earlier != NULL ? " %11s %7s\n" : "\n", "earlier", "ratio");
    printf("#%11s %12s %6s %8s %5s %11s %8s %8s %7s %11s %11s  %-10s %-7s", "(B)", "(elements)", "",
           "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "", "");
    printf(output->earlier != NULL ? " %11s %7s\n" : "\n", "(us)", "");
}

static void print_json(const tutti_bench_row_t *row, const char *op, double theirs)
{
    printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"wire\":\"%s\",\"algo\":\"%s\","
           "\"canonical\":%s,\"time_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f,"
           "\"algbw_GBps\":%.3f,\"busbw_GBps\":%.3f,\"wrong\":%" PRId64,
           op, row->bytes, row->ranks, row->wire, row->algo, row->is_canonical ? "true" : "false",
           row->time_us, row->p50_us, row->p99_us, row->algbw, row->busbw, row->wrong);
    if (theirs > 0) {
        printf(",\"earlier_us\":%.3f,\"ratio\":%.3f", theirs, theirs / row->time_us);
    }
    printf("}\n");
}

static void print_line(const tutti_bench_row_t *row, const tutti_bench_options_t *options,
                       const tutti_bench_op_t *op, double theirs)
{
    char root[16] = "-";
    if (op->has_root) {
        snprintf(root, sizeof root, "%d", options->root);
    }
    printf("%12zu %12zu %6s %8s %5s %11.2f %8.2f %8.2f %7" PRId64 " %11.2f %11.2f  %-10s %-7s",
           row->bytes, row->count, tutti_dtype_name(options->dtype),
           op->reduces ? tutti_reduction_name(options->reduction) : "-", root, row->time_us,
           row->algbw, row->busbw, row->wrong, row->p50_us, row->p99_us, row->algo, row->wire);
    if (theirs > 0) {
        printf(" %11.2f %7.2f", theirs, theirs / row->time_us);
    }
    printf("%s\n", row->is_canonical ? "" : "  (not canonical)");
}

tutti_bench_op_t tt_bench_find(const char *name)
{
    tutti_bench_op_t op = {0};
    for (size_t i = 0; tutti_bench_op_at(i, &op) == TUTTI_OK && strcmp(op.name, name) != 0; i++) {
    }
    return op;
}

void tt_bench_print_row(tt_bench_output_t *output, const tutti_bench_row_t *row)
{
    char key[KEY_BYTES]; /* a size that is not there has 0 */
    const double theirs =
        json_number_value(json_object_get(output->earlier, key_of(row->bytes, key)));
    const tutti_bench_op_t op = tt_bench_find(output->options->op);
    output->rows++;
    output->busbw_sum += row->busbw;
    output->wrong += row->wrong;
    if (theirs > 0 && row->time_us > 0) {
        output->compared++;
        output->ratio_log_sum += log(theirs / row->time_us);
    }
    if (output->is_json) {
        print_json(row, op.name, theirs);
    } else {
        print_line(row, output->options, &op, theirs);
    }
    fflush(stdout);
}

void tt_bench_print_end(const tt_bench_output_t *output)
{
    if (output->is_json || output->rows == 0) {
        return;
    }
    printf("# wrong elements        : %" PRId64 "%s\n", output->wrong,
           output->wrong == 0 ? " OK" : " FAILED");
    printf("# average bus bandwidth : %.3f GB/s\n", output->busbw_sum / output->rows);
    if (output->compared > 0) {
        printf("# geometric mean ratio  : %.3f times faster than earlier, over %d sizes\n",
               exp(output->ratio_log_sum / output->compared), output->compared);
    }
}
