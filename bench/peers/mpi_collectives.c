/* Collectives of a bare MPI, to compare `tutti bench` with: the same sizes, the same number of
 * calls, the same time (the slowest rank's mean, the best of five batches), the same JSON fields.
 *
 *     mpicc -O2 bench/peers/mpi_collectives.c -o mpi_collectives
 *     mpirun -np 2 ./mpi_collectives all_gather [--rotate] [--barrier] [--min BYTES]
 *         [--max BYTES] [--calls N]
 *
 * f32, sum, in place where MPI has that, hot; --rotate walks over buffers of 256 MiB; --barrier
 * makes a barrier before each call and times it too. A size is that of the whole array: of all
 * ranks' parts together. Each line names the library that ran. Nothing is verified here.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, POOL_BYTES = 256 << 20, PAGE = 4096 };

typedef struct {
    float *data, *other;         /* other: where all_to_all puts its result */
    int rank, size, part, whole; /* elements */
} arrays_t;

static void all_reduce(const arrays_t *a)
{
    MPI_Allreduce(MPI_IN_PLACE, a->data, a->whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_scatter(const arrays_t *a)
{
    MPI_Reduce_scatter_block(MPI_IN_PLACE, a->data, a->part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(const arrays_t *a)
{
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a->data, a->part, MPI_FLOAT, MPI_COMM_WORLD);
}

static void broadcast(const arrays_t *a)
{
    MPI_Bcast(a->data, a->whole, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_to_all(const arrays_t *a)
{
    MPI_Alltoall(a->data, a->part, MPI_FLOAT, a->other, a->part, MPI_FLOAT, MPI_COMM_WORLD);
}

typedef struct {
    const char *name;
    void (*call)(const arrays_t *arrays);
    int has_parts;
} op_t;

static const op_t ops[] = {{"all_reduce", all_reduce, 0},
                           {"reduce_scatter", reduce_scatter, 1},
                           {"all_gather", all_gather, 1},
                           {"broadcast", broadcast, 0},
                           {"all_to_all", all_to_all, 1}};

enum { OPS = sizeof ops / sizeof ops[0] };

typedef struct {
    const op_t *op;
    int rotate, barrier, calls;
    size_t min, max;
} options_t;

static int parse(int argc, char **argv, options_t *options)
{
    *options = (options_t){.min = 4, .max = 64u << 20};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rotate") == 0) {
            options->rotate = 1;
        } else if (strcmp(argv[i], "--barrier") == 0) {
            options->barrier = 1;
        } else if (strcmp(argv[i], "--min") == 0 && i + 1 < argc) {
            options->min = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            options->max = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--calls") == 0 && i + 1 < argc) {
            options->calls = (int)strtol(argv[++i], NULL, 10);
        } else {
            for (int op = 0; op < OPS; op++) {
                options->op = strcmp(argv[i], ops[op].name) == 0 ? &ops[op] : options->op;
            }
        }
    }
    return options->op != NULL;
}

static int calls_for(const options_t *options, size_t bytes)
{
    if (options->calls > 0) {
        return options->calls;
    }
    return bytes < 4096 ? 20000 : bytes < (256 << 10) ? 2000 : bytes < (8 << 20) ? 200 : 20;
}

/* Memory that has been touched. */
static float *make_pool(size_t bytes)
{
    float *pool = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (pool == NULL) {
        fprintf(stderr, "mpi_collectives: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(pool, 0, bytes);
    return pool;
}

static double slowest(double seconds)
{
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* Seconds of a call: the best batch's. */
static double measure(const options_t *options, arrays_t arrays, size_t bytes, size_t slots)
{
    const int calls = calls_for(options, bytes);
    float *const data = arrays.data, *const other = arrays.other;
    double best = 1e30;
    size_t slot = 0;
    for (int batch = 0; batch <= BATCHES; batch++) { /* the first one warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < calls; i++) {
            arrays.data = data + slot * (bytes / sizeof *data);
            arrays.other = other + slot * (bytes / sizeof *data);
            if (options->barrier) {
                MPI_Barrier(MPI_COMM_WORLD);
            }
            options->op->call(&arrays);
            slot = slot + 1 < slots ? slot + 1 : 0;
        }
        const double mean = slowest((MPI_Wtime() - begin) / calls);
        best = batch > 0 && mean < best ? mean : best;
    }
    return best;
}

/* The first line of what the library says of itself, cut short. */
static void name_library(char *name, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n\"\\")] = 0;
    snprintf(name, bytes, "%s", text);
    for (char *at = name; *at != 0; at++) {
        *at = *at == '\t' ? ' ' : *at;
    }
}

static void print_row(const options_t *options, const arrays_t *arrays, size_t bytes, double best)
{
    const double algbw = (double)bytes / best * 1e-9;
    char library[64];
    name_library(library, sizeof library);
    printf("{\"op\":\"%s\",\"peer\":\"mpi\",\"library\":\"%s\",\"bytes\":%zu,\"ranks\":%d,"
           "\"time_us\":%.3f,\"algbw_GBps\":%.3f}\n",
           options->op->name, library, bytes, arrays->size, best * 1e6, algbw);
    fflush(stdout);
}

static void measure_size(const options_t *options, int rank, int size, size_t asked)
{
    const size_t parts = options->op->has_parts ? (size_t)size : 1;
    const size_t part = asked / parts / sizeof(float);
    arrays_t arrays = {.rank = rank, .size = size, .part = part > 0 ? (int)part : 1};
    arrays.whole = arrays.part * (int)parts;
    const size_t bytes = (size_t)arrays.whole * sizeof(float);
    const size_t slots = options->rotate && bytes < POOL_BYTES ? POOL_BYTES / bytes : 1;
    arrays.data = make_pool(slots * bytes);
    arrays.other = options->op->call == all_to_all ? make_pool(slots * bytes) : arrays.data;
    const double best = measure(options, arrays, bytes, slots);
    if (rank == 0) {
        print_row(options, &arrays, bytes, best);
    }
    if (arrays.other != arrays.data) {
        free(arrays.other);
    }
    free(arrays.data);
}

int main(int argc, char **argv)
{
    options_t options;
    int rank, size;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int is_good = parse(argc, argv, &options);
    for (size_t bytes = options.min; is_good && bytes <= options.max; bytes *= 4) {
        measure_size(&options, rank, size, bytes);
    }
    if (!is_good && rank == 0) {
        fprintf(stderr, "usage: mpi_collectives OP [--rotate] [--barrier] [--min B] [--max B] "
                        "[--calls N]\n");
    }
    MPI_Finalize();
    return is_good ? 0 : 2;
}
