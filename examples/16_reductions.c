/* Lesson 16: scans, where the smallest is, and a reduction of your own.
 *
 *     tutti run -n 4 build/bin/16_reductions
 *     build/bin/16_reductions                            # alone: a world of one
 *
 * Every rank has measured some numbers: rank r has 10 (r + 1) of them. Where do they go in a file
 * of all? Which rank has the smallest? What are mean and variance of all of them?
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/collectives.h>

enum { MOST = 1000 };

typedef struct {
    int rank, count;
    double numbers[MOST];
} measured_t;

static void measure(int rank, measured_t *out)
{
    out->rank = rank;
    out->count = 10 * (rank + 1) < MOST ? 10 * (rank + 1) : MOST;
    for (int i = 0; i < out->count; i++) {
        out->numbers[i] = (double)((rank * 37 + i * 101) % 211) - 50;
    }
}

static double smallest(const measured_t *all)
{
    double least = all->numbers[0];
    for (int i = 1; i < all->count; i++) {
        least = all->numbers[i] < least ? all->numbers[i] : least;
    }
    return least;
}

/* A rank's numbers come after those of all ranks before it. Of rank 0 exscan changes nothing. */
static tutti_status_t find_place(tutti_group_t *world, tutti_tensor_t *x, const measured_t *mine)
{
    double *cell = tutti_tensor_data(x);
    cell[0] = mine->count;
    TUTTI_CHECK(tutti_exscan(world, x, TUTTI_SUM, NULL));
    const int begin = mine->rank == 0 ? 0 : (int)cell[0];
    printf("rank %d: numbers %d to %d\n", mine->rank, begin, begin + mine->count - 1);
    return TUTTI_OK;
}

/* A pair of a value and its index. */
static tutti_status_t find_smallest(tutti_group_t *world, tutti_tensor_t *pair,
                                    const measured_t *mine)
{
    double *cells = tutti_tensor_data(pair);
    cells[0] = smallest(mine);
    cells[1] = mine->rank;
    TUTTI_CHECK(tutti_all_reduce(world, pair, TUTTI_MINLOC, NULL));
    if (mine->rank == 0) {
        printf("the smallest is %g, of rank %g\n", cells[0], cells[1]);
    }
    return TUTTI_OK;
}

/* An element is: how many numbers, their mean, the sum of squared distances from it, nothing.
 * Source: Chan, Golub, LeVeque 1979. */
static void merge(void *inout, const void *in, int64_t count, tutti_dtype_t dtype, void *user)
{
    (void)dtype, (void)user; /* f64, as `dtypes` says; NULL */
    double *a = inout;
    const double *b = in;
    for (int64_t i = 0; i < count; i++, a += 4, b += 4) {
        const double n = a[0] + b[0], distance = b[1] - a[1];
        if (n > 0) {
            a[2] += b[2] + distance * distance * a[0] * b[0] / n;
            a[1] += distance * b[0] / n;
            a[0] = n;
        }
    }
}

static const tutti_custom_reduction_t moments = {
    .name = "moments", .combine = merge, .width = 4, .dtypes = 1u << TUTTI_F64};

static tutti_status_t describe_all(tutti_group_t *world, tutti_tensor_t *x, const measured_t *mine)
{
    double *a = tutti_tensor_data(x);
    a[0] = a[1] = a[2] = a[3] = 0;
    for (int i = 0; i < mine->count; i++) {
        const double one[4] = {1, mine->numbers[i]};
        merge(a, one, 1, TUTTI_F64, NULL);
    }
    const tutti_reduce_options_t options = {.custom = &moments};
    TUTTI_CHECK(tutti_all_reduce_with(world, x, TUTTI_CUSTOM, &options, NULL));
    if (mine->rank == 0) {
        printf("%g numbers, mean %.6f, deviation %.6f\n", a[0], a[1], sqrt(a[2] / a[0]));
    }
    return TUTTI_OK;
}

static tutti_status_t lesson(tutti_group_t *world)
{
    tutti_tensor_t *cells[3] = {NULL};
    measured_t mine;
    tutti_status_t status = TUTTI_OK;
    measure(tutti_group_rank(world), &mine);
    for (int i = 0; i < 3 && status >= 0; i++) {
        status = tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1 << i), &cells[i]);
    }
    if (status >= 0) {
        status = find_place(world, cells[0], &mine);
    }
    if (status >= 0) {
        status = find_smallest(world, cells[1], &mine);
    }
    if (status >= 0) {
        status = describe_all(world, cells[2], &mine);
    }
    for (int i = 0; i < 3; i++) {
        tutti_tensor_release(cells[i]);
    }
    return status;
}

int main(void)
{
    tutti_group_t *world = NULL;
    tutti_status_t status = tutti_init(NULL, &world);
    if (status >= 0) {
        status = lesson(world);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_group_release(world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
