/* Random fills and dropout in chunks: numbers of the stream into L1, then into elements.
 * Cost: about 1 ns per number and core, whatever the dtype. */
#include "core/kernel/random/random.h"

#include <math.h>

#include "core/kernel/elementwise/convert.h"
#include "core/kernel/kernels.h"
#include "core/kernel/random/random_ops.h"

enum { CHUNK = 1024, PIECE = 16 * CHUNK, GROUP = TT_RANDOM_GROUP };

typedef struct random_job {
    tt_random_t at;
    tutti_dtype_t dtype;
    size_t bytes, count;
    const char *x; /* of dropout */
    char *out;
    double p, q;     /* low and width; mean and std; probability and scale */
    bool is_bounded; /* the two below hold */
    double least, most;
    void (*chunk)(const struct random_job *job, size_t first, size_t n);
} random_job_t;

/* Room for a chunk that begins anywhere in a group, and to look at its neighbour. */
typedef struct {
    uint32_t number[CHUNK + 2 * GROUP];
} numbers_t;

/* Numbers first … first + n - 1 of the operand; returns where the first one is. */
static const uint32_t *draw(const random_job_t *job, size_t first, size_t n, numbers_t *numbers)
{
    const uint64_t index = job->at.first + first;
    const size_t skip = (size_t)(index % GROUP), groups = (skip + n + GROUP - 1) / GROUP;
    tt_kernels()->random->numbers(numbers->number, job->at.rng, index / GROUP, groups);
    return numbers->number + skip;
}

/* out = q × value + p, in double for f64. */
static void put_scaled(const random_job_t *job, size_t first, size_t n, const float *value)
{
    double wide[CHUNK];
    for (size_t i = 0; i < n; i++) {
        wide[i] = job->p + job->q * (double)value[i];
    }
    for (size_t i = 0; job->is_bounded && i < n; i++) {
        wide[i] = fmin(fmax(wide[i], job->least), job->most);
    }
    tt_convert_from(TT_CLASS_F64, job->dtype)(job->out + first * job->bytes, wide, n);
}

static void uniform_chunk(const random_job_t *job, size_t first, size_t n)
{
    numbers_t numbers;
    float value[CHUNK];
    tt_kernels()->random->uniform(value, draw(job, first, n, &numbers), n);
    put_scaled(job, first, n, value);
}

static void normal_chunk(const random_job_t *job, size_t first, size_t n)
{
    numbers_t numbers;
    float value[CHUNK + 2];
    const size_t odd = (size_t)((job->at.first + first) % 2);
    /* An odd beginning belongs to the pair before it; it is in the same group. */
    const uint32_t *number = draw(job, first, n + 1, &numbers) - odd;
    tt_kernels()->random->normal(value, number, (odd + n + 1) / 2 * 2);
    put_scaled(job, first, n, value + odd);
}

static void dropout_chunk_f64(const random_job_t *job, size_t first, size_t n)
{
    numbers_t numbers;
    const uint32_t *number = draw(job, first, n, &numbers);
    const double *x = (const double *)(const void *)job->x + first;
    double *y = (double *)(void *)job->out + first;
    for (size_t i = 0; i < n; i++) {
        const double u = (double)(number[i] >> 8) * 0x1p-24;
        y[i] = (float)u >= (float)job->p ? x[i] * job->q : 0;
    }
}

static void dropout_chunk(const random_job_t *job, size_t first, size_t n)
{
    numbers_t numbers;
    float value[CHUNK];
    const uint32_t *number = draw(job, first, n, &numbers);
    const char *x = job->x + first * job->bytes;
    char *y = job->out + first * job->bytes;
    const float p = (float)job->p, scale = (float)job->q;
    if (job->dtype == TUTTI_F32) {
        tt_kernels()->random->dropout((float *)(void *)y, (const float *)(const void *)x, number, n,
                                      p, scale);
        return;
    }
    tt_convert_to(TT_CLASS_F32, job->dtype)(value, x, n);
    tt_kernels()->random->dropout(value, value, number, n, p, scale);
    tt_convert_from(TT_CLASS_F32, job->dtype)(y, value, n);
}

static void random_piece(void *arg, size_t piece)
{
    const random_job_t *job = arg;
    const size_t first = piece * PIECE;
    const size_t end = job->count - first < PIECE ? job->count : first + PIECE;
    for (size_t i = first; i < end; i += CHUNK) {
        job->chunk(job, i, end - i < CHUNK ? end - i : CHUNK);
    }
}

static void fill(tt_threads_t *threads, random_job_t *job)
{
    tt_threads_run(threads, (job->count + PIECE - 1) / PIECE, random_piece, job);
}

static tutti_status_t run_job(tt_threads_t *threads, const void *arguments)
{
    random_job_t job = *(const random_job_t *)arguments;
    fill(threads, &job);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(random_job_t, out), TT_POINTER(random_job_t, x),
                                        TT_NO_POINTER};

/* Also behind a failure: initial values are as constant as a fill. */
static const tt_kernel_t uniform_kernel =
    TT_KERNEL_ALWAYS("uniform", random_job_t, run_job, pointers);
static const tt_kernel_t normal_kernel =
    TT_KERNEL_ALWAYS("normal", random_job_t, run_job, pointers);
static const tt_kernel_t dropout_kernel = TT_KERNEL("dropout", random_job_t, run_job, pointers);

/* x as the dtype has it, or, with a step of ±1, the number next to that in its direction: the bits
 * of a floating number's size count upwards. */
static double number_near(tutti_dtype_t dtype, double x, int step)
{
    const size_t bytes = tutti_dtype_bytes(dtype);
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    uint64_t bits = 0;
    tt_convert_from(TT_CLASS_F64, dtype)(&bits, &x, 1);
    if (step != 0) {
        const bool is_zero = (bits & ~sign) == 0, is_negative = (bits & sign) != 0;
        bits = is_zero                     ? (step > 0 ? 1 : sign | 1)
               : is_negative == (step > 0) ? bits - 1
                                           : bits + 1;
    }
    tt_convert_to(TT_CLASS_F64, dtype)(&x, &bits, 1);
    return x;
}

double tt_float_from(tutti_dtype_t dtype, double x)
{
    const double near = number_near(dtype, x, 0);
    return near < x ? number_near(dtype, x, 1) : near;
}

double tt_float_below(tutti_dtype_t dtype, double x)
{
    const double near = number_near(dtype, x, 0);
    return near < x ? near : number_near(dtype, x, -1);
}

static random_job_t uniform_job(tt_random_t at, tutti_dtype_t dtype, void *out, size_t count,
                                double low, double high)
{
    random_job_t job = {.at = at,
                        .dtype = dtype,
                        .bytes = tutti_dtype_bytes(dtype),
                        .count = count,
                        .out = out,
                        .p = low,
                        .q = high - low,
                        .chunk = uniform_chunk};
    const double last = low + (high - low) * (1 - 0x1p-24);
    if (number_near(dtype, low, 0) < low || number_near(dtype, last, 0) >= high) {
        job.is_bounded = true;
        job.least = tt_float_from(dtype, low);
        job.most = tt_float_below(dtype, high);
        if (job.least > job.most) {
            job.least = job.most = low;
        }
    }
    return job;
}

tutti_status_t tt_fill_uniform(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype, void *out,
                               size_t count, double low, double high)
{
    const random_job_t job = uniform_job(at, dtype, out, count, low, high);
    return tt_launch(exec, &uniform_kernel, &job);
}

void tt_fill_uniform_now(tt_threads_t *threads, tt_random_t at, tutti_dtype_t dtype, void *out,
                         size_t count, double low, double high)
{
    random_job_t job = uniform_job(at, dtype, out, count, low, high);
    fill(threads, &job);
}

tutti_status_t tt_fill_normal(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype, void *out,
                              size_t count, double mean, double std)
{
    random_job_t job = {.at = at,
                        .dtype = dtype,
                        .bytes = tutti_dtype_bytes(dtype),
                        .count = count,
                        .out = out,
                        .p = mean,
                        .q = std,
                        .chunk = normal_chunk};
    return tt_launch(exec, &normal_kernel, &job);
}

tutti_status_t tt_dropout(tt_exec_t *exec, tt_random_t at, tutti_dtype_t dtype, void *y,
                          const void *x, size_t count, double p)
{
    random_job_t job = {.at = at,
                        .dtype = dtype,
                        .bytes = tutti_dtype_bytes(dtype),
                        .count = count,
                        .x = x,
                        .out = y,
                        .p = p,
                        .q = p < 1 ? 1 / (1 - p) : 0,
                        .chunk = dtype == TUTTI_F64 ? dropout_chunk_f64 : dropout_chunk};
    return tt_launch(exec, &dropout_kernel, &job);
}
