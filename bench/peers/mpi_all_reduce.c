/* all_reduce of a bare MPI, to compare with: what the mpi engine must not be much slower than.
 *
 *     mpicc -O2 bench/peers/mpi_all_reduce.c -o mpi_all_reduce && mpirun -np 2 ./mpi_all_reduce
 *
 * f32, sum, in place, hot, 4 B to 64 MiB by fours, a JSON line for each size in the form of
 * build/bench/all_reduce. The time of a call is the slowest rank's mean over a batch; the best of
 * five batches is printed, after one to warm up.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, BYTES_MAX = 64 << 20 };

static int calls_for(size_t bytes)
{
    return bytes < 4096 ? 20000 : bytes < (256 << 10) ? 2000 : bytes < (8 << 20) ? 200 : 20;
}

static void add_up(float *x, size_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / sizeof *x), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Seconds of a call, of the slowest rank. */
static double batch_time(float *x, size_t bytes)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls_for(bytes); i++) {
        add_up(x, bytes);
    }
    double mean = (MPI_Wtime() - begin) / calls_for(bytes);
    MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return mean;
}

static size_t count_wrong(float *x, size_t bytes, int rank, int size)
{
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        x[i] = (float)((int)(i % 1000) + rank);
    }
    add_up(x, bytes);
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        wrong += x[i] != (float)((int)(i % 1000) * size + size * (size - 1) / 2);
    }
    return wrong;
}

static void measure(float *x, size_t bytes, int rank, int size)
{
    const size_t wrong = count_wrong(x, bytes, rank, size);
    double best = 1e30;
    memset(x, 0, bytes);
    for (int batch = 0; batch <= BATCHES; batch++) {
        const double time = batch_time(x, bytes);
        best = batch > 0 && time < best ? time : best;
    }
    if (rank == 0) {
        const double algbw = (double)bytes / best * 1e-9;
        printf("{\"op\":\"all_reduce\",\"peer\":\"mpi\",\"bytes\":%zu,\"ranks\":%d,"
               "\"time_us\":%.3f,\"algbw_GBps\":%.3f,\"busbw_GBps\":%.3f,\"wrong\":%zu}\n",
               bytes, size, best * 1e6, algbw, algbw * 2 * (size - 1) / size, wrong);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *x = aligned_alloc(4096, BYTES_MAX);
    if (x == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    for (size_t bytes = 4; bytes <= BYTES_MAX; bytes *= 4) {
        measure(x, bytes, rank, size);
    }
    free(x);
    MPI_Finalize();
    return 0;
}
