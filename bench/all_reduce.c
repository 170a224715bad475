/* all_reduce over the public API, as a table in the manner of nccl-tests or as JSON lines.
 *
 *     build/bin/tutti run -n 2 build/bench/all_reduce [--json] [--foreign] [--max BYTES]
 *     build/bench/all_reduce --ranks 2 [...]    starts the ranks itself, on a core each
 *
 * In place, hot; the time of a call is the slowest rank's mean over a batch, the best of five
 * batches is printed. Each size is verified first.
 */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/collectives.h>

enum { BATCHES = 5 };

typedef struct {
    bool as_json, is_foreign;
    size_t bytes_max;
    int ranks;
} options_t;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int calls_for(size_t bytes)
{
    return bytes < 4096 ? 20000 : bytes < (256 << 10) ? 2000 : bytes < (8 << 20) ? 200 : 20;
}

/* Elements whose sum is not what rank × small numbers must give. */
static tutti_status_t verify(tutti_group_t *world, tutti_tensor_t *x, size_t count, size_t *wrong)
{
    float *data = tutti_tensor_data(x);
    const int rank = tutti_group_rank(world), size = tutti_group_size(world);
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)((int)(i % 1000) + rank);
    }
    TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, NULL));
    *wrong = 0;
    for (size_t i = 0; i < count; i++) {
        *wrong += data[i] != (float)((int)(i % 1000) * size + size * (size - 1) / 2);
    }
    return TUTTI_OK;
}

/* The slowest rank's mean, by an all_reduce of its own. */
static tutti_status_t slowest(tutti_group_t *world, tutti_tensor_t *cell, double mean, double *out)
{
    double *value = tutti_tensor_data(cell);
    *value = mean;
    TUTTI_CHECK(tutti_all_reduce(world, cell, TUTTI_MAX, NULL));
    *out = *value;
    return TUTTI_OK;
}

static tutti_status_t measure(tutti_group_t *world, tutti_tensor_t *x, tutti_tensor_t *cell,
                              size_t bytes, double *best)
{
    *best = 1e30;
    memset(tutti_tensor_data(x), 0, bytes);
    for (int batch = 0; batch <= BATCHES; batch++) { /* the first one warms up */
        TUTTI_CHECK(tutti_barrier(world, NULL));
        const double start = now();
        for (int i = 0; i < calls_for(bytes); i++) {
            TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, NULL));
        }
        double mean;
        TUTTI_CHECK(slowest(world, cell, (now() - start) / calls_for(bytes), &mean));
        *best = batch > 0 && mean < *best ? mean : *best;
    }
    return TUTTI_OK;
}

static void print_row(const options_t *options, int ranks, size_t bytes, double best, size_t wrong)
{
    const double algbw = (double)bytes / best * 1e-9, busbw = algbw * 2 * (ranks - 1) / ranks;
    if (options->as_json) {
        printf("{\"op\":\"all_reduce\",\"peer\":\"tutti\",\"bytes\":%zu,\"ranks\":%d,"
               "\"foreign\":%s,\"time_us\":%.3f,\"algbw_GBps\":%.3f,\"busbw_GBps\":%.3f,"
               "\"wrong\":%zu}\n",
               bytes, ranks, options->is_foreign ? "true" : "false", best * 1e6, algbw, busbw,
               wrong);
    } else {
        printf("%12zu %12zu %8s %6s %12.3f %10.3f %10.3f %8zu\n", bytes, bytes / 4, "f32", "sum",
               best * 1e6, algbw, busbw, wrong);
    }
    fflush(stdout);
}

static tutti_status_t measure_size(tutti_group_t *world, const options_t *options, size_t bytes,
                                   tutti_tensor_t *cell)
{
    tutti_tensor_t *x;
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)bytes / 4);
    TUTTI_CHECK(options->is_foreign ? tutti_tensor_create(TUTTI_F32, shape, &x)
                                    : tutti_group_tensor(world, TUTTI_F32, shape, &x));
    size_t wrong = 0;
    double best = 0;
    tutti_status_t status = verify(world, x, bytes / 4, &wrong);
    if (status >= 0) {
        status = measure(world, x, cell, bytes, &best);
    }
    if (status >= 0 && tutti_group_rank(world) == 0) {
        print_row(options, tutti_group_size(world), bytes, best, wrong);
    }
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t run(const options_t *options)
{
    tutti_group_t *world;
    TUTTI_CHECK(tutti_init(NULL, &world));
    if (tutti_group_rank(world) == 0 && !options->as_json) {
        printf("# all_reduce, %d ranks, in place, hot, %s memory\n", tutti_group_size(world),
               options->is_foreign ? "foreign" : "shared");
        printf("%12s %12s %8s %6s %12s %10s %10s %8s\n", "bytes", "count", "type", "redop",
               "time(us)", "algbw", "busbw", "#wrong");
    }
    tutti_tensor_t *cell;
    tutti_status_t status = tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1), &cell);
    for (size_t bytes = 4; bytes <= options->bytes_max && status >= 0; bytes *= 4) {
        status = measure_size(world, options, bytes, cell);
    }
    tutti_tensor_release(cell);
    tutti_group_release(world);
    return status;
}

static void bind_to_core(int rank)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    const int count = CPU_COUNT(&allowed);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank % count) {
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

/* Becomes N processes that meet in rank 0's store. Returns in each of them with its rank. */
static void start_ranks(int ranks)
{
    char text[16];
    snprintf(text, sizeof text, "%d", ranks);
    setenv("WORLD_SIZE", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(text, sizeof text, "%d", 20000 + (int)getpid() % 20000);
    setenv("MASTER_PORT", text, 1);
    int rank = 0;
    while (rank + 1 < ranks && fork() == 0) {
        rank++; /* each starts the next one */
    }
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    bind_to_core(rank);
}

static bool parse(int argc, char **argv, options_t *options)
{
    *options = (options_t){.bytes_max = 64 << 20};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            options->as_json = true;
        } else if (strcmp(argv[i], "--foreign") == 0) {
            options->is_foreign = true;
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            options->bytes_max = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) {
            options->ranks = (int)strtoul(argv[++i], NULL, 10);
        } else {
            return false;
        }
    }
    return options->ranks >= 0 && options->ranks <= 64;
}

int main(int argc, char **argv)
{
    options_t options;
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: all_reduce [--json] [--foreign] [--max BYTES] [--ranks N]\n");
        return 2;
    }
    if (options.ranks > 0) {
        start_ranks(options.ranks);
    }
    const tutti_status_t status = run(&options);
    if (status < 0) {
        fprintf(stderr, "all_reduce: %s\n", tutti_last_error());
    }
    while (options.ranks > 0 && wait(NULL) > 0) {
    }
    return status < 0;
}
