/* Steps of an optimizer whose state lies on a disk, and a program that reads and writes the same
 * bytes, in turns; a line of JSON for each round (bench/offload_measures.py).
 *
 *     offload_speed FOLDER MIB ROUNDS     FOLDER on the disk; MIB of AdamW's state
 *
 * The limit program moves what a step must move: each piece of both moments is read from a file of
 * that size and written back, by two threads, past the page cache, and nothing is computed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tutti/tutti.h>

enum { PIECE = 1 << 20, MOMENTS = 2, THREADS = 2, STEPS = 2 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the limit ------------------------------------------------------------------------------- */

typedef struct {
    int fd, index;
    int64_t pieces; /* of a moment */
    char *memory;   /* MOMENTS pieces */
    int failure;    /* errno */
} mover_t;

/* Every THREADS-th piece: of all moments, one behind the other in the file. */
static void *move_pieces(void *user)
{
    mover_t *m = user;
    for (int64_t i = m->index; i < m->pieces && m->failure == 0; i += THREADS) {
        for (int k = 0; k < 2 * MOMENTS && m->failure == 0; k++) {
            char *memory = m->memory + (size_t)(k % MOMENTS) * PIECE;
            const off_t at = (off_t)((k % MOMENTS * m->pieces + i) * PIECE);
            const ssize_t n =
                k < MOMENTS ? pread(m->fd, memory, PIECE, at) : pwrite(m->fd, memory, PIECE, at);
            m->failure = n == PIECE ? 0 : n < 0 ? errno : EIO;
        }
    }
    return NULL;
}

static int open_file(const char *folder, int64_t bytes)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (fd < 0) {
        fd = open(folder, O_TMPFILE | O_RDWR, 0600);
    }
    if (fd >= 0 && posix_fallocate(fd, 0, bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int run_limit(int fd, int64_t pieces, char *memory)
{
    pthread_t threads[THREADS];
    mover_t movers[THREADS];
    int failure = 0, started = 0;
    for (; started < THREADS && failure == 0; started += failure == 0) {
        movers[started] = (mover_t){.fd = fd,
                                    .index = started,
                                    .pieces = pieces,
                                    .memory = memory + (size_t)started * MOMENTS * PIECE};
        failure = pthread_create(&threads[started], NULL, move_pieces, &movers[started]);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        failure = failure != 0 ? failure : movers[i].failure;
    }
    errno = failure;
    return failure == 0 ? 0 : -1;
}

/* ---- ours ------------------------------------------------------------------------------------ */

typedef struct {
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    tutti_tensor_t *x, *last;
} ours_t;

static tutti_status_t add(ours_t *ours, const char *name, int64_t count, tutti_tensor_t **out)
{
    tutti_tensor_t *g;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(count), out));
    TUTTI_CHECK(tutti_tensor_set_requires_grad(*out, true));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(count), &g));
    memset(tutti_tensor_data(g), 1, (size_t)count * sizeof(float));
    TUTTI_CHECK(tutti_tensor_set_grad(*out, g));
    tutti_tensor_release(g);
    return tutti_optim_add_parameter(ours->opt, 0, name, *out);
}

static tutti_status_t open_ours(const char *folder, int64_t count, ours_t *ours)
{
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ours->ctx));
    TUTTI_CHECK(tutti_optim_create(ours->ctx, &tutti_adamw, NULL, &ours->opt));
    TUTTI_CHECK(add(ours, "x", count, &ours->x));
    TUTTI_CHECK(add(ours, "last", 1, &ours->last));
    return tutti_optim_offload(ours->opt, folder);
}

static tutti_status_t read_one(void *user, const char *name, tutti_tensor_t *x)
{
    return strcmp(name, "last.exp_avg") == 0 ? tutti_tensor_copy(user, x) : TUTTI_OK;
}

/* A copy from the disk is made when all is written. */
static tutti_status_t run_ours(ours_t *ours)
{
    tutti_tensor_t *one;
    for (int i = 0; i < STEPS; i++) {
        TUTTI_CHECK(tutti_optim_step(ours->opt));
    }
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1), &one));
    const tutti_status_t status = tutti_optim_each_state(ours->opt, read_one, one);
    tutti_tensor_release(one);
    return status;
}

static void close_ours(ours_t *ours)
{
    tutti_optim_release(ours->opt);
    tutti_tensor_release(ours->x);
    tutti_tensor_release(ours->last);
    tutti_context_release(ours->ctx);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static tutti_status_t run_round(ours_t *ours, int fd, int64_t pieces, char *memory, bool is_printed)
{
    const double begin = now();
    TUTTI_CHECK(run_ours(ours));
    const double middle = now();
    for (int i = 0; i < STEPS; i++) {
        if (run_limit(fd, pieces, memory) != 0) {
            return tutti_fail(TUTTI_ERR_IO, "the limit program: %s", strerror(errno));
        }
    }
    const double end = now();
    tutti_offload_stats_t stats;
    tutti_optim_offload_stats(ours->opt, &stats);
    if (is_printed) {
        printf(
            "{\"ours_s\":%.6f,\"limit_s\":%.6f,\"waited_s\":%.3f,\"bytes\":%llu,\"direct\":%d}\n",
            (middle - begin) / STEPS, (end - middle) / STEPS, (double)stats.waited_ns * 1e-9,
            (unsigned long long)stats.file_bytes, stats.is_direct);
        fflush(stdout);
    }
    return TUTTI_OK;
}

static tutti_status_t measure(const char *folder, int64_t mib, int rounds, char *memory)
{
    ours_t ours = {NULL, NULL, NULL, NULL};
    const int64_t pieces = (mib + MOMENTS - 1) / MOMENTS;
    const int fd = open_file(folder, pieces * MOMENTS * PIECE);
    tutti_status_t status = fd < 0
                                ? tutti_fail(TUTTI_ERR_IO, "%s: %s", folder, strerror(errno))
                                : open_ours(folder, pieces * PIECE / (int64_t)sizeof(float), &ours);
    for (int i = 0; i <= rounds && status >= 0; i++) { /* the first writes what was never written */
        status = run_round(&ours, fd, pieces, memory, i > 0);
    }
    close_ours(&ours);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

int main(int argc, char **argv)
{
    const long mib = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    const long rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (mib < 1 || rounds < 1) {
        fprintf(stderr, "usage: offload_speed FOLDER MIB ROUNDS\n");
        return 2;
    }
    char *memory = aligned_alloc(4096, (size_t)THREADS * MOMENTS * PIECE);
    if (memory == NULL) {
        return 1;
    }
    memset(memory, 1, (size_t)THREADS * MOMENTS * PIECE);
    const tutti_status_t status = measure(argv[1], mib, (int)rounds, memory);
    free(memory);
    if (status < 0) {
        fprintf(stderr, "offload_speed: %s\n", tutti_last_error());
    }
    return status < 0;
}
