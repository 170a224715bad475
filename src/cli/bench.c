/* tutti bench: measures an operation of a group, size by size. With -n it starts the ranks itself,
 * as `tutti run` does; inside a launcher's job it is one of its ranks. Measuring is tutti_bench_*;
 * here are the command line, the order of things, and the tuning file.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/diagnose.h>
#include <tutti/launch.h>

#include "cli/bench_parts.h"

enum { ROWS_MAX = 128 };

typedef struct {
    const char *bytes, *dtype, *reduction, *algo, *wire, *backend, *compare, *out;
    int64_t ranks, root, batches, calls, spoil;
    bool is_rotating, is_foreign, is_out_of_place, has_barrier, is_json, is_tuning;
} flags_t;

#define FIELD(name) .offset = offsetof(flags_t, name)
#define TEXT(field, word, help)                                                                    \
    .kind = TUTTI_OPTION_TEXT, FIELD(field), .argument = (word), .about = (help)

static const tutti_option_t table[] = {
    {.name = "ranks",
     .alias = 'n',
     .kind = TUTTI_OPTION_INT,
     FIELD(ranks),
     .argument = "N",
     .min = 0,
     .max = TUTTI_LAUNCH_RANKS_MAX,
     .about = "ranks to start; inside a launcher's job: how many it must have"},
    {.name = "bytes",
     TEXT(bytes, "FIRST:LAST:xFACTOR", "sizes, of all ranks' parts together; also :+STEP")},
    {.name = "dtype", TEXT(dtype, "TYPE", "of the elements: f32, f64, bf16, f16, i32, …")},
    {.name = "reduce", TEXT(reduction, "OP", "sum, avg, product, min, max, band, bor, bxor")},
    {.name = "root",
     .kind = TUTTI_OPTION_INT,
     FIELD(root),
     .argument = "RANK",
     .min = 0,
     .max = TUTTI_LAUNCH_RANKS_MAX,
     .about = "of operations that have one"},
    {.name = "algo",
     TEXT(algo, "RULES", "which algorithms (TUTTI_ALGO): ring, 0-4k:flag,4k-:ring")},
    {.name = "wire", TEXT(wire, "shm|tcp", "the only wires to use (TUTTI_WIRES)")},
    {.name = "backend", TEXT(backend, "native|mpi", "the engine (TUTTI_BACKEND)")},
    {.name = "rotate",
     FIELD(is_rotating),
     .about = "walk over buffers that are larger than the caches together"},
    {.name = "foreign", FIELD(is_foreign), .about = "buffers outside the ranks' shared heap"},
    {.name = "out-of-place", FIELD(is_out_of_place), .about = "input and output apart"},
    {.name = "barrier", FIELD(has_barrier), .about = "a barrier before each call; it is timed too"},
    {.name = "batches",
     .kind = TUTTI_OPTION_INT,
     FIELD(batches),
     .argument = "N",
     .min = 1,
     .max = 1000,
     .about = "the best of so many counts"},
    {.name = "calls",
     .kind = TUTTI_OPTION_INT,
     FIELD(calls),
     .argument = "N",
     .min = 0,
     .max = 1e8,
     .about = "per batch; 0: 20000 below 4 KiB, then 2000, 200, 20"},
    {.name = "json", FIELD(is_json), .about = "a JSON line per size"},
    {.name = "compare", TEXT(compare, "FILE", "JSON lines of an earlier run: prints ratios")},
    {.name = "tune",
     FIELD(is_tuning),
     .about = "measure every canonical algorithm and keep the fastest in the tuning file"},
    {.name = "out", TEXT(out, "FILE", "the tuning file; otherwise TUTTI_TUNE or the user's")},
    {.name = "spoil",
     .kind = TUTTI_OPTION_INT,
     FIELD(spoil),
     .argument = "N",
     .min = 0,
     .max = 1e9,
     .about = "damage N elements before they are checked: shows that this is found"},
    {0}};

typedef struct {
    flags_t flags;
    tt_sizes_t sizes;
    tutti_bench_options_t options;
    bool has_bytes;
} job_t;

static bool find_reduction(const char *name, tutti_reduction_t *out)
{
    for (int i = 0; i < TUTTI_REDUCTION_COUNT; i++) {
        if (strcmp(tutti_reduction_name((tutti_reduction_t)i), name) == 0) {
            *out = (tutti_reduction_t)i;
            return true;
        }
    }
    return false;
}

/* One more than there may be, if there are more. */
static int count_sizes(const tt_sizes_t *sizes)
{
    int count = 0;
    for (size_t bytes = sizes->first; bytes > 0 && count <= ROWS_MAX; count++) {
        bytes = tt_sizes_next(sizes, bytes);
    }
    return count;
}

static int read_options(const char *name, job_t *job)
{
    const flags_t *flags = &job->flags;
    tutti_bench_options_t *options = &job->options;
    *options = (tutti_bench_options_t){.op = name,
                                       .root = (int)flags->root,
                                       .is_foreign = flags->is_foreign,
                                       .is_rotating = flags->is_rotating,
                                       .is_out_of_place = flags->is_out_of_place,
                                       .has_barrier = flags->has_barrier,
                                       .batches = (int)flags->batches,
                                       .calls = (int)flags->calls,
                                       .spoil = flags->spoil};
    if (!tt_sizes_parse(flags->bytes, &job->sizes)) {
        return tt_cli_refuse("bench", "bytes", flags->bytes,
                             "FIRST, FIRST:LAST or FIRST:LAST:x4, as in 4:64M");
    }
    if (tutti_dtype_parse(flags->dtype, &options->dtype) < 0) {
        return tt_cli_fail("bench", TT_EXIT_USAGE);
    }
    if (!find_reduction(flags->reduction, &options->reduction)) {
        return tt_cli_refuse("bench", "reduce", flags->reduction,
                             "sum, avg, product, min, max, band, bor or bxor");
    }
    const int ranks = flags->ranks > 0 ? (int)flags->ranks : TUTTI_LAUNCH_RANKS_MAX + 1;
    if (tutti_bench_check(options, ranks) < 0) {
        return tt_cli_fail("bench", TT_EXIT_USAGE);
    }
    const tutti_bench_op_t op = tt_bench_find(name);
    job->has_bytes = op.has_bytes;
    options->op = op.name;
    if (op.has_bytes && count_sizes(&job->sizes) > ROWS_MAX) {
        return tt_cli_refuse("bench", "bytes", flags->bytes, "at most 128 sizes");
    }
    return 0;
}

/* Everything below reads the environment, the ranks that are started included. */
static void set_environment(const flags_t *flags)
{
    const struct {
        const char *variable, *value;
    } settings[] = {{"TUTTI_ALGO", flags->algo},
                    {"TUTTI_WIRES", flags->wire},
                    {"TUTTI_BACKEND", flags->backend}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (settings[i].value != NULL) {
            setenv(settings[i].variable, settings[i].value, 1);
        }
    }
}

/* Each rank of a host on a core of its own, as far as there are cores; a launcher may have seen to
 * it. Linux has up to 8,192, and says nothing to who asks with room for fewer than there are. */
static void bind_to_core(const tutti_group_t *world)
{
    const int local = tutti_group_local_rank(world); /* -1: not known */
    const int rank = local >= 0 ? local : tutti_group_rank(world);
    enum { CORES_MAX = 8192 };
    cpu_set_t allowed[CORES_MAX / CPU_SETSIZE], one[CORES_MAX / CPU_SETSIZE] = {0};
    if (sched_getaffinity(0, sizeof allowed, allowed) != 0) {
        return;
    }
    const int count = CPU_COUNT_S(sizeof allowed, allowed);
    for (size_t cpu = 0, seen = 0; cpu < CORES_MAX && count > 1; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof allowed, allowed) && seen++ == (size_t)(rank % count)) {
            CPU_SET_S(cpu, sizeof one, one);
            (void)sched_setaffinity(0, sizeof one, one);
            return;
        }
    }
}

static tutti_status_t measure_all(const job_t *job, tutti_bench_t *bench, bool is_first,
                                  tt_bench_output_t *output)
{
    static tutti_bench_row_t rows[ROWS_MAX];
    size_t count = 0;
    for (size_t bytes = job->sizes.first; bytes > 0;
         bytes = job->has_bytes ? tt_sizes_next(&job->sizes, bytes) : 0) {
        tutti_bench_row_t *row = &rows[count++];
        TUTTI_CHECK(job->flags.is_tuning ? tutti_bench_fastest(bench, bytes, row)
                                         : tutti_bench_measure(bench, bytes, row));
        if (is_first) {
            tt_bench_print_row(output, row);
        }
    }
    if (!job->flags.is_tuning || !is_first) {
        return TUTTI_OK;
    }
    char path[1024];
    TUTTI_CHECK(tutti_tuning_save(job->flags.out, job->options.op, rows, count, path, sizeof path));
    printf("%s rules written to %s\n", job->flags.is_json ? "" : "#", path);
    return TUTTI_OK;
}

static tutti_status_t measure(const job_t *job, tutti_group_t *world, tt_bench_output_t *output)
{
    const bool is_first = tutti_group_rank(world) == 0;
    bind_to_core(world);
    if (is_first) {
        tt_bench_print_head(output, tutti_group_size(world));
    }
    tutti_bench_t *bench;
    TUTTI_CHECK(tutti_bench_open(world, &job->options, &bench));
    const tutti_status_t status = measure_all(job, bench, is_first, output);
    tutti_bench_close(bench);
    if (is_first && status >= 0) {
        tt_bench_print_end(output);
    }
    return status;
}

/* One rank of the job. */
static int be_rank(const job_t *job, const json_t *earlier)
{
    tt_bench_output_t output = {
        .options = &job->options, .is_json = job->flags.is_json, .earlier = earlier};
    tutti_group_t *world;
    if (tutti_init(NULL, &world) < 0) {
        return tt_cli_fail("bench", 1);
    }
    const int ranks = tutti_group_size(world);
    if (job->flags.ranks > 0 && job->flags.ranks != ranks) {
        fprintf(stderr, "tutti bench: -n %d, but the launcher has started %d ranks\n",
                (int)job->flags.ranks, ranks);
        tutti_group_release(world);
        return TT_EXIT_USAGE;
    }
    const tutti_status_t status = measure(job, world, &output);
    /* only the first rank has counted what is wrong, and said so: the others, ending with a code,
     * could have the launcher stop it before */
    const int code = status < 0 ? tt_cli_fail("bench", 1) : output.wrong > 0;
    tutti_group_release(world);
    return code;
}

static int launch(int ranks, int argc, char **argv)
{
    const char **command = calloc((size_t)argc + 2, sizeof *command);
    if (command == NULL) {
        fprintf(stderr, "tutti bench: out of memory\n");
        return 1;
    }
    command[0] = "/proc/self/exe";
    memcpy(command + 1, argv, (size_t)argc * sizeof *command);
    tutti_launch_report_t report;
    const tutti_launch_options_t options = {
        .rank_count = ranks, .command = command, .grace_ms = 2000, .is_plain = true};
    const tutti_status_t status = tutti_launch(&options, &report);
    free(command);
    if (status < 0) {
        return tt_cli_fail("bench", 1);
    }
    if (report.exit_code != 0 && report.exit_code != 1) {
        fprintf(stderr, "tutti bench: %s\n", report.verdict);
    }
    return report.exit_code;
}

static int run_job(job_t *job, int argc, char **argv)
{
    set_environment(&job->flags);
    if (job->flags.algo != NULL && tutti_explain_rules(job->flags.algo) < 0) {
        return tt_cli_fail("bench", TT_EXIT_USAGE);
    }
    json_t *earlier = NULL;
    if (job->flags.compare != NULL) {
        earlier = tt_earlier_read(job->flags.compare, job->options.op);
        if (earlier == NULL) {
            return TT_EXIT_USAGE;
        }
    }
    const int code = job->flags.ranks > 1 && !tutti_is_launched()
                         ? launch((int)job->flags.ranks, argc, argv)
                         : be_rank(job, earlier);
    json_decref(earlier);
    return code;
}

static int help(const flags_t *defaults)
{
    const int code = tt_cli_help("tutti bench OPERATION [OPTION …]", table, defaults);
    printf("\noperations:\n");
    tutti_bench_op_t op;
    for (size_t i = 0; tutti_bench_op_at(i, &op) == TUTTI_OK; i++) {
        printf("  %-16s %s\n", op.name, op.about);
    }
    return code;
}

int tt_verb_bench(int argc, char **argv)
{
    const flags_t defaults = {
        .bytes = "4:64M:x4", .dtype = "f32", .reduction = "sum", .batches = 5};
    job_t job = {.flags = defaults};
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, &job.flags, &operands);
    if (status == TUTTI_END) {
        return help(&defaults);
    }
    if (status < 0) {
        return tt_cli_fail("bench", TT_EXIT_USAGE);
    }
    if (operands.first == argc) {
        fprintf(stderr, "tutti bench: no operation; `tutti bench --help` lists them\n");
        return TT_EXIT_USAGE;
    }
    if (operands.first < argc - 1) {
        return tt_cli_refuse_operand("bench", argv[operands.first + 1]);
    }
    const int code = read_options(argv[operands.first], &job);
    return code != 0 ? code : run_job(&job, argc, argv);
}
