/* What two processes of one host can do at best in an all_reduce: both buffers are shared memory,
 * each process sums its half out of both and stores the sum into both, with a flag before and a
 * flag after. It checks nothing and waits for nobody: a limit to measure against, not an example.
 * Best of five batches of the slower process's mean, hot, in place; one JSON line per size.
 *
 *     build/bench/shm_limit
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BYTES_MAX = 64 << 20, BATCHES = 5, LANES = 16, STREAM_FROM = 4 << 20 };

typedef float lanes_t __attribute__((vector_size(64), aligned(64), may_alias));

typedef struct {
    _Alignas(128) atomic_ulong value;
} flag_t;

typedef struct {
    flag_t flags[2];
    _Alignas(128) double means[2];
    float *buffers[2];
    int rank;
    bool streams; /* stores around the cache */
    unsigned long sequence;
} pair_t;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("shm_limit: mmap");
        _exit(1);
    }
    return memory;
}

static void meet(flag_t *flags, int rank, unsigned long *sequence)
{
    ++*sequence;
    atomic_store_explicit(&flags[rank].value, *sequence, memory_order_release);
    while (atomic_load_explicit(&flags[1 - rank].value, memory_order_acquire) < *sequence) {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }
}

__attribute__((target_clones("avx512f", "avx2", "default"))) static void
sum_into_both(float *restrict a, float *restrict b, size_t begin, size_t end)
{
    size_t i = begin;
    for (; i + LANES <= end; i += LANES) { /* by hand: at -O2 gcc leaves the loop below as it is */
        const lanes_t sum = *(const lanes_t *)(a + i) + *(const lanes_t *)(b + i);
        *(lanes_t *)(a + i) = sum;
        *(lanes_t *)(b + i) = sum;
    }
    for (; i < end; i++) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void stream_into_both(float *a, float *b, size_t begin,
                                                                size_t end)
{
    for (size_t i = begin; i + LANES <= end; i += LANES) {
        const __m512 sum = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
        _mm512_stream_ps(a + i, sum);
        _mm512_stream_ps(b + i, sum);
    }
    _mm_sfence();
}
#endif

static bool can_stream(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

static void all_reduce(pair_t *pair, flag_t *flags, size_t count)
{
    const size_t half = (((count + 1) / 2) + LANES - 1) / LANES * LANES;
    const size_t begin = pair->rank == 0 ? 0 : half < count ? half : count;
    const size_t end = pair->rank == 1 || half > count ? count : half;
    meet(flags, pair->rank, &pair->sequence);
    if (pair->streams) {
#if defined(__x86_64__)
        stream_into_both(pair->buffers[0], pair->buffers[1], begin, end);
#endif
    } else if (begin < end) {
        sum_into_both(pair->buffers[0], pair->buffers[1], begin, end);
    }
    meet(flags, pair->rank, &pair->sequence);
}

static int calls_for(size_t bytes)
{
    return bytes < 4096 ? 20000 : bytes < (256 << 10) ? 2000 : bytes < (8 << 20) ? 200 : 20;
}

static double measure(pair_t *pair, pair_t *shared, size_t bytes)
{
    double best = 1e30;
    for (int batch = 0; batch <= BATCHES; batch++) { /* the first one warms up */
        meet(shared->flags, pair->rank, &pair->sequence);
        const double start = now();
        for (int i = 0; i < calls_for(bytes); i++) {
            all_reduce(pair, shared->flags, bytes / 4);
        }
        shared->means[pair->rank] = (now() - start) / calls_for(bytes);
        meet(shared->flags, pair->rank, &pair->sequence);
        const double slower =
            shared->means[0] > shared->means[1] ? shared->means[0] : shared->means[1];
        best = batch > 0 && slower < best ? slower : best;
        meet(shared->flags, pair->rank, &pair->sequence);
    }
    return best;
}

/* Which stores are faster depends on the machine: the better of both is the limit. */
static void measure_size(pair_t *pair, pair_t *shared, size_t bytes)
{
    pair->streams = false;
    double best = measure(pair, shared, bytes);
    if (bytes >= STREAM_FROM && can_stream()) {
        pair->streams = true;
        const double streamed = measure(pair, shared, bytes);
        best = streamed < best ? streamed : best;
    }
    if (pair->rank == 0) {
        printf("{\"op\":\"all_reduce\",\"peer\":\"limit\",\"bytes\":%zu,\"ranks\":2,"
               "\"time_us\":%.3f,\"algbw_GBps\":%.3f}\n",
               bytes, best * 1e6, (double)bytes / best * 1e-9);
        fflush(stdout);
    }
}

static void bind_to_core(int rank)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        return;
    }
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank) {
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

int main(void)
{
    pair_t *shared = share(sizeof *shared), pair = {0};
    for (int i = 0; i < 2; i++) {
        pair.buffers[i] = share(BYTES_MAX);
        (void)madvise(pair.buffers[i], BYTES_MAX, MADV_HUGEPAGE);
    }
    fflush(stdout);
    pair.rank = fork() == 0;
    if (pair.rank == 1) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it waits for nobody: do not spin alone */
    }
    bind_to_core(pair.rank);
    for (size_t i = 0; i < BYTES_MAX / 4; i++) {
        pair.buffers[pair.rank][i] = 1e-3f * (float)(i % 1000);
    }
    for (size_t bytes = 4; bytes <= BYTES_MAX; bytes *= 4) {
        measure_size(&pair, shared, bytes);
    }
    if (pair.rank == 0) {
        wait(NULL);
    }
    return 0;
}
