/* Tuning: which algorithms are tried, and the text of the file that comes of it. */
#include "runtime/bench/bench_impl.h"

#include <unistd.h>

#include "comm/algorithm/algorithms.h"
#include "comm/backend/native_backend.h"
#include "comm/group/group_team.h"

/* ---- which algorithms are tried -------------------------------------------------------------- */

enum { RANKS = 2, ALGORITHMS_MAX = 64 };

/* By each rank. */
static bool tried[RANKS][ALGORITHMS_MAX];

static tutti_status_t note_call(tutti_group_t *group, const tutti_bench_options_t *options,
                                tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)in;
    const tutti_status_t status = tutti_all_reduce(group, out, options->reduction, NULL);
    const tt_algorithm_t *last = tt_coll_last_algorithm(tt_native_coll(group->state));
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        tried[tutti_group_rank(group)][i] |= tt_algorithms[i] == last;
    }
    return status;
}

static void try_all(tt_member_t *m)
{
    const bool is_free = *(const bool *)m->user;
    const tutti_bench_options_t options = {.op = "all_reduce", .calls = 1, .batches = 1};
    tutti_bench_t *bench;
    tutti_bench_row_t row;
    TT_EXPECT(m, tutti_bench_open(m->group, &options, &bench) == TUTTI_OK);
    tt_bench_op_t op = *bench->op;
    op.call = note_call;
    bench->op = &op;
    tt_coll_rules_t *rules = tt_coll_change_rules(tt_bench_coll(bench));
    rules->is_free = is_free;
    const int count = rules->count;
    memset(tried[m->rank], 0, sizeof tried[m->rank]);
    TT_EXPECT(m, tutti_bench_fastest(bench, 1 << 16, &row) == TUTTI_OK);
    TT_EXPECT(m, rules->count == count && row.time_us > 0);
    const tt_algorithm_t *fastest = tt_algorithm_find(row.algo);
    TT_EXPECT(m, fastest != NULL && (is_free || fastest->is_canonical));
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        const char *name = tt_algorithms[i]->name;
        const bool is_ring = strcmp(name, "ring") == 0;
        TT_EXPECT(m, !is_ring || tried[m->rank][i] == is_free);
        TT_EXPECT(m, strcmp(name, "pairwise") != 0 || tried[m->rank][i]);
        TT_EXPECT(m, strcmp(name, "recursive_doubling") != 0 || tried[m->rank][i]);
        TT_EXPECT(m, tt_algorithms[i] != fastest || tried[m->rank][i]);
    }
    tutti_bench_close(bench);
}

static void every_algorithm_that_may_be_used_is_tried(void **state)
{
    (void)state;
    for (int is_free = 0; is_free < 2; is_free++) {
        tt_team_expect(RANKS, 60000, try_all, &(bool){is_free != 0});
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

#define LONG_RULES                                                                                 \
    "all_to_all:0-64:pairwise,all_to_all:64-128:direct,all_to_all:128-256:pairwise,"               \
    "all_to_all:256-512:direct,all_to_all:512-1024:pairwise,all_to_all:1024-2048:direct,"          \
    "all_to_all:2048-4096:pairwise,all_to_all:4096-8192:direct,all_to_all:8192-:pairwise,"         \
    "all_to_all:0-64:direct,all_to_all:64-128:pairwise"
#define HEAD "# Which algorithm was fastest, by `tutti bench OPERATION --tune`: RANKS WIRE RULE\n"

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_text(const char *path, const char *want)
{
    char text[2048] = "";
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    assert_true(bytes < sizeof text - 1);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, want);
}

static tutti_bench_row_t row_of(size_t bytes, const char *algo)
{
    tutti_bench_row_t row = {.bytes = bytes, .ranks = 2, .wire = "shm"};
    snprintf(row.algo, sizeof row.algo, "%s", algo);
    return row;
}

/* Sizes of one algorithm are one rule, up to about the geometric mean; what was there of other
 * operations, ranks and wires stays as it is. */
static void a_file_keeps_what_is_said_of_others(void **state)
{
    (void)state;
    char path[64], used[64];
    snprintf(path, sizeof path, "bench_tune_test.%d", (int)getpid());
    write_text(path, "# mine\n"
                     "7 shm all_reduce:0-:pairwise\n"
                     "2 shm all_reduce:0-:pairwise\n"
                     "2 tcp all_reduce:0-:pairwise\n"
                     "  2\tshm  " LONG_RULES "\n"
                     "2 shm all_gather:0-:pairwise\n");
    const tutti_bench_row_t rows[] = {row_of(64, "flag"), row_of(256, "flag"),
                                      row_of(1024, "direct"), row_of(65536, "pairwise")};
    assert_int_equal(tutti_tuning_save(path, "all_reduce", rows, 4, used, sizeof used), TUTTI_OK);
    assert_string_equal(used, path);
    expect_text(path, HEAD "7 shm all_reduce:0-:pairwise\n"
                           "2 tcp all_reduce:0-:pairwise\n"
                           "2 shm " LONG_RULES "\n"
                           "2 shm all_gather:0-:pairwise\n"
                           "2 shm all_reduce:0-512:flag\n"
                           "2 shm all_reduce:512-8192:direct\n"
                           "2 shm all_reduce:8192-:pairwise\n");
    assert_int_equal(tutti_tuning_save(path, "all_reduce", rows, 1, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_tuning_save(path, "all_to_all", rows, 1, NULL, 0), TUTTI_OK);
    expect_text(path, HEAD "7 shm all_reduce:0-:pairwise\n"
                           "2 tcp all_reduce:0-:pairwise\n"
                           "2 shm all_gather:0-:pairwise\n"
                           "2 shm all_reduce:0-:flag\n"
                           "2 shm all_to_all:0-:flag\n");
    (void)unlink(path);
}

/* Of an operation with parts a rule's bytes are a part's. */
static void bytes_of_rules_are_those_of_a_part(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "bench_tune_test.%d", (int)getpid());
    const tutti_bench_row_t rows[] = {row_of(128, "flag"), row_of(2048, "direct")};
    assert_int_equal(tutti_tuning_save(path, "all_gather", rows, 2, NULL, 0), TUTTI_OK);
    expect_text(path, HEAD "2 shm all_gather:0-256:flag\n"
                           "2 shm all_gather:256-:direct\n");
    (void)unlink(path);
}

static void what_is_no_result_leaves_the_file_as_it_is(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "bench_tune_test.%d", (int)getpid());
    const tutti_bench_row_t good = row_of(64, "flag"), bad = row_of(64, "flagg");
    write_text(path, "2 shm\n");
    assert_int_equal(tutti_tuning_save(path, "all_reduce", &good, 0, NULL, 0), TUTTI_ERR_ARG);
    tt_expect_error("no sizes were measured");
    assert_int_equal(tutti_tuning_save(path, "all_reduce", &bad, 1, NULL, 0), TUTTI_ERR_ARG);
    tt_expect_error("there is no algorithm \"flagg\"");
    assert_int_equal(tutti_tuning_save(path, "all_reduce", &good, 1, NULL, 0), TUTTI_ERR_ARG);
    tt_expect_error("is no line RANKS WIRE RULE");
    expect_text(path, "2 shm\n");
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_that_may_be_used_is_tried),
        cmocka_unit_test(a_file_keeps_what_is_said_of_others),
        cmocka_unit_test(bytes_of_rules_are_those_of_a_part),
        cmocka_unit_test(what_is_no_result_leaves_the_file_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
