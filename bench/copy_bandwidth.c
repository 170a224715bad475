/* B: the bytes that the memory of this machine moves in a second, reads and writes counted, when
 * two processes on two cores copy what is larger than any cache. The limit of an all_reduce of two
 * ranks whose buffers rotate is B / 4: each reads and writes its array once.
 *
 *     build/bench/copy_bandwidth [RANKS]        a JSON line
 *
 * 64 MiB at a time over 256 MiB, best of five rounds of the slower process; by the C library's
 * memcpy and by stores around the cache, whichever is faster: a store that goes through the cache
 * reads its line first, and then more is moved than is counted.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/kernel/elementwise/combine.h"

enum { ROUNDS = 12, BLOCK = 64 << 20, BLOCKS = 4, RANKS_MAX = 64 };

typedef struct {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) double seconds[RANKS_MAX];
} shared_t;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *get_memory(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("copy_bandwidth: mmap");
        exit(1);
    }
    return memory;
}

/* Everybody comes `round` times; a process that is gone must not be waited for for ever. */
static void meet(shared_t *shared, int ranks, int round)
{
    const double deadline = now() + 60;
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < round * ranks) {
        if (now() > deadline) {
            fprintf(stderr, "copy_bandwidth: another process did not come\n");
            exit(1);
        }
        sched_yield();
    }
}

static void bind_to_core(int rank)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank % CPU_COUNT(&allowed)) {
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

static double copy_all(char *to, const char *from, bool is_streaming)
{
    const tt_combine_kernels_t *kernels = tt_combine_kernels();
    const double begin = now();
    for (size_t i = 0; i < BLOCKS; i++) {
        if (is_streaming) {
            kernels->copy_stream(to + i * BLOCK, from + i * BLOCK, BLOCK);
        } else {
            memcpy(to + i * BLOCK, from + i * BLOCK, BLOCK);
        }
    }
    return now() - begin;
}

/* Even rounds stream, odd ones do not. */
static double measure(shared_t *shared, int rank, int ranks)
{
    const size_t bytes = (size_t)BLOCK * BLOCKS;
    char *from = get_memory(bytes, MAP_PRIVATE), *to = get_memory(bytes, MAP_PRIVATE);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) { /* the first two warm up */
        meet(shared, ranks, 2 * round + 1);
        shared->seconds[rank] = copy_all(to, from, round % 2 == 0);
        meet(shared, ranks, 2 * round + 2);
        double slowest = 0;
        for (int i = 0; i < ranks; i++) {
            slowest = shared->seconds[i] > slowest ? shared->seconds[i] : slowest;
        }
        best = round > 1 && slowest < best ? slowest : best;
    }
    return 2.0 * (double)bytes * ranks / best * 1e-9;
}

int main(int argc, char **argv)
{
    const long ranks = argc > 1 ? strtol(argv[1], NULL, 10) : 2;
    if (ranks < 1 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: copy_bandwidth [RANKS]\n");
        return 2;
    }
    shared_t *shared = get_memory(sizeof *shared, MAP_SHARED);
    int rank = 0;
    while (rank + 1 < ranks && fork() == 0) {
        rank++; /* each starts the next one */
    }
    bind_to_core(rank);
    const double rate = measure(shared, rank, (int)ranks);
    if (rank == 0) {
        printf("{\"copy_GBps\":%.3f,\"ranks\":%ld}\n", rate, ranks);
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
