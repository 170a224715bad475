/* Finding the fastest algorithm for each size, and keeping that in the tuning file.
 *
 * Every canonical algorithm that fits (under TUTTI_EXACT=0 every one) is forced by a rule of its
 * own, in the same order on every rank, and measured as always. What is between two sizes belongs
 * to the lower one up to their geometric mean. Neighbours that agree become one rule.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/choice.h"
#include "comm/algorithm/tuning.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "runtime/bench/bench_impl.h"

/* ---- the fastest ---- */

/* One rule, and nothing else. */
static void force(tt_coll_t *coll, const tt_algorithm_t *algorithm, int collective)
{
    tt_coll_rules_t *rules = tt_coll_change_rules(coll);
    rules->count = 1;
    rules->rules[0] = (tt_rule_t){
        .collective = collective, .bytes_max = SIZE_MAX, .algorithm = algorithm, .origin = ""};
}

static tutti_status_t try_all(tutti_bench_t *bench, tt_coll_t *coll, size_t bytes,
                              tutti_bench_row_t *best)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (!tt_algorithms[i]->is_canonical && !tt_coll_change_rules(coll)->is_free) {
            continue;
        }
        force(coll, tt_algorithms[i], bench->op->collective);
        tutti_bench_row_t row;
        TT_TRY(tutti_bench_measure(bench, bytes, &row));
        /* What does not fit is left to the built-in table, which has its own turn. */
        const bool is_it = strcmp(row.algo, tt_algorithms[i]->name) == 0;
        if (is_it && (best->algo[0] == 0 || row.time_us < best->time_us)) {
            *best = row;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_bench_fastest(tutti_bench_t *bench, size_t bytes, tutti_bench_row_t *row)
{
    tt_coll_t *coll = tt_bench_coll(bench);
    if (coll == NULL || bench->op->collective < 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "bench: %s has no algorithms to choose from on %s",
                       bench->op->name, bench->group->backend->name);
    }
    tutti_bench_row_t best = {0};
    const tt_coll_rules_t before = *tt_coll_change_rules(coll);
    const tutti_status_t status = try_all(bench, coll, bytes, &best);
    *tt_coll_change_rules(coll) = before;
    TT_TRY(status);
    if (best.algo[0] == 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "bench: no canonical algorithm does %s over %d ranks",
                       bench->op->name, tutti_group_size(bench->group));
    }
    *row = best;
    return TUTTI_OK;
}

/* ---- the file ---- */

typedef struct {
    tt_new_file_t file;
    tutti_status_t status;
} writer_t;

static void put(writer_t *writer, const char *text, size_t bytes)
{
    if (writer->status >= 0) {
        writer->status = tt_new_file_write(&writer->file, text, bytes);
    }
}

static bool is_replaced(const tt_tuning_line_t *line, const char *op, const tutti_bench_row_t *row)
{
    return line->ranks == row->ranks && line->wire_bytes == strlen(row->wire) &&
           memcmp(line->wire, row->wire, line->wire_bytes) == 0 &&
           line->collective_bytes == strlen(op) &&
           memcmp(line->collective, op, line->collective_bytes) == 0;
}

/* Everything of the old file that is not about this op, number of ranks and wire. */
static void keep_others(writer_t *writer, const char *text, const char *op,
                        const tutti_bench_row_t *row)
{
    tt_tuning_line_t line;
    tutti_status_t status;
    while ((status = tt_tuning_next(&text, &line)) == TUTTI_OK) {
        char head[64]; /* a wire's name is short */
        const int bytes =
            snprintf(head, sizeof head, "%d %.*s ", line.ranks, (int)line.wire_bytes, line.wire);
        if (!is_replaced(&line, op, row)) {
            put(writer, head, (size_t)bytes);
            put(writer, line.rule, line.rule_bytes);
            put(writer, "\n", 1);
        }
    }
    writer->status = status < 0 ? status : writer->status;
}

/* Rules speak of the bytes of a part. */
static size_t part_bytes(const char *op, const tutti_bench_row_t *row)
{
    const tt_bench_op_t *found = tt_bench_op_find(op);
    const bool has_parts = found != NULL && (found->in_is_all || found->out_is_all);
    return has_parts ? row->bytes / (size_t)row->ranks : row->bytes;
}

/* About the geometric mean: the lower size, doubled until it is past that. */
static size_t boundary(size_t lower, size_t upper)
{
    size_t middle = lower;
    while (middle > 0 && middle < upper / middle * lower) {
        middle *= 2;
    }
    return middle > lower && middle < upper ? middle : upper;
}

static void put_rules(writer_t *writer, const char *op, const tutti_bench_row_t *rows, size_t count)
{
    size_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        const bool is_last = i + 1 == count;
        if (!is_last && strcmp(rows[i].algo, rows[i + 1].algo) == 0) {
            continue;
        }
        const size_t end =
            is_last ? 0 : boundary(part_bytes(op, &rows[i]), part_bytes(op, &rows[i + 1]));
        char line[256];
        int bytes =
            snprintf(line, sizeof line, "%d %s %s:%zu-", rows[i].ranks, rows[i].wire, op, begin);
        put(writer, line, (size_t)bytes);
        bytes = is_last ? snprintf(line, sizeof line, ":%s\n", rows[i].algo)
                        : snprintf(line, sizeof line, "%zu:%s\n", end, rows[i].algo);
        put(writer, line, (size_t)bytes);
        begin = end;
    }
}

static tutti_status_t check_rows(const tutti_bench_row_t *rows, size_t count)
{
    if (count == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "tuning: no sizes were measured");
    }
    for (size_t i = 0; i < count; i++) {
        if (tt_algorithm_find(rows[i].algo) == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "tuning: there is no algorithm \"%s\"", rows[i].algo);
        }
    }
    return TUTTI_OK;
}

/* The user's settings may have no folder yet; a path that somebody names must have one. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700); /* what fails here fails again when the file is made */
        *slash = '/';
    }
}

static tutti_status_t write_file(const char *path, const char *old, const char *op,
                                 const tutti_bench_row_t *rows, size_t count)
{
    static const char head[] =
        "# Which algorithm was fastest, by `tutti bench OPERATION --tune`: RANKS WIRE RULE\n";
    writer_t writer = {.status = TUTTI_OK};
    TT_TRY(tt_new_file_begin(path, &writer.file));
    put(&writer, head, sizeof head - 1);
    keep_others(&writer, old, op, &rows[0]);
    put_rules(&writer, op, rows, count);
    return tt_new_file_end(&writer.file, writer.status);
}

tutti_status_t tutti_tuning_save(const char *path, const char *op, const tutti_bench_row_t *rows,
                                 size_t count, char *used, size_t used_bytes)
{
    char found[TT_TUNING_PATH_BYTES];
    TT_TRY(check_rows(rows, count));
    if (path == NULL) {
        bool is_asked;
        TT_TRY(tt_tuning_path(found, &is_asked));
        if (!is_asked) {
            make_folders(found);
        }
        path = found;
    }
    char *old;
    TT_TRY(tt_tuning_read(path, &old));
    const tutti_status_t status = write_file(path, old, op, rows, count);
    tt_free(old);
    if (status >= 0 && used != NULL) {
        snprintf(used, used_bytes, "%s", path);
    }
    return status;
}
