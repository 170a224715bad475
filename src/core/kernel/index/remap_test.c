/* Padding, rolling, flipping and windows against loops over all elements, of drawn shapes: seed 1,
 * or TUTTI_SEED. */
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/kernel/index/patches.h"
#include "core/kernel/index/remap.h"

enum { ROUNDS = 400, MOST = 12 * 12 * 12 };

static uint64_t seed = 1, drawn;

static int64_t below(int64_t bound)
{
    return (int64_t)tt_rng_below(tt_rng_stream(seed, 0, 0, 0, 0), drawn++, (uint64_t)bound);
}

/* As the header says it, one element at a time. */
static int64_t source(const tt_remap_dim_t *dim, int64_t n, int64_t i)
{
    int64_t at = i - dim->before;
    switch (dim->mode) {
    case TT_REMAP_REFLECT:
        while (at < 0 || at >= n) {
            at = at < 0 ? -at : 2 * (n - 1) - at;
        }
        return at;
    case TT_REMAP_REPLICATE:
        return at < 0 ? 0 : at >= n ? n - 1 : at;
    case TT_REMAP_CIRCULAR:
        while (at < dim->first) {
            at += dim->length;
        }
        while (at >= dim->first + dim->length) {
            at -= dim->length;
        }
        return at;
    case TT_REMAP_FLIP:
        return n - 1 - i;
    default:
        return at < 0 || at >= n ? -1 : at;
    }
}

/* A dimension of size n, and the size of what is made of it. */
static int64_t draw_dim(tt_remap_dim_t *dim, int64_t n)
{
    *dim = (tt_remap_dim_t){.mode = (tt_remap_mode_t)below(5), .first = below(n)};
    dim->length = 1 + below(n - dim->first);
    dim->before = below(n + 2) - 2;
    if (dim->mode == TT_REMAP_FLIP) {
        return n;
    }
    if (dim->mode == TT_REMAP_REFLECT) {
        dim->before = below(2 * n - 1) - n + 1;
        return dim->before + n > 0 ? 1 + below(dim->before + n + n - 1) : 1;
    }
    return 1 + below(n + 4);
}

static void draw_remap(tt_remap_t *remap, double *x, double *out)
{
    remap->x = (tt_strided_t){.data = x, .dtype = TUTTI_F64, .rank = 1 + (int)below(3)};
    remap->out = remap->x;
    remap->out.data = out;
    for (int d = 0; d < remap->x.rank; d++) {
        remap->x.shape[d] = 1 + below(6);
        remap->out.shape[d] = draw_dim(&remap->dims[d], remap->x.shape[d]);
    }
    int64_t in = 1, to = 1;
    for (int d = remap->x.rank; d-- > 0;) {
        const int64_t gap = 1 + below(2);
        remap->x.strides[d] = in * gap;
        in *= remap->x.shape[d] * gap;
        remap->out.strides[d] = to;
        to *= remap->out.shape[d];
    }
}

/* The offsets of element k of out and of its source, -1: none. */
static void places(const tt_remap_t *remap, int64_t k, int64_t *to, int64_t *from)
{
    *to = *from = 0;
    for (int d = remap->out.rank; d-- > 0;) {
        const int64_t i = k % remap->out.shape[d];
        const int64_t at = source(&remap->dims[d], remap->x.shape[d], i);
        k /= remap->out.shape[d];
        *to += i * remap->out.strides[d];
        *from = at < 0 || *from < 0 ? -1 : *from + at * remap->x.strides[d];
    }
}

static int64_t count_of(const tt_strided_t *x)
{
    int64_t count = 1;
    for (int d = 0; d < x->rank; d++) {
        count *= x->shape[d];
    }
    return count;
}

static void sources_are_those_of_the_header(void **state)
{
    (void)state;
    static double x[8 * MOST], out[8 * MOST], sums[8 * MOST], want[8 * MOST];
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(2, &threads), 0);
    for (int round = 0; round < ROUNDS; round++) {
        tt_remap_t remap = {.out = {.data = NULL}};
        double value = -1;
        draw_remap(&remap, x, out);
        memcpy(remap.value.bytes, &value, sizeof value);
        for (int i = 0; i < 8 * MOST; i++) {
            x[i] = i;
            out[i] = -2;
            sums[i] = want[i] = 0;
        }
        tt_exec_t exec = {.threads = round % 2 == 0 ? NULL : threads};
        assert_int_equal(tt_remap(&exec, &remap), 0);
        const int64_t count = count_of(&remap.out);
        for (int64_t k = 0; k < count; k++) {
            int64_t to, from;
            places(&remap, k, &to, &from);
            if (out[to] != (from < 0 ? -1 : x[from])) {
                fail_msg("TUTTI_SEED=%llu: round %d, element %lld is %g", (unsigned long long)seed,
                         round, (long long)k, out[to]);
            }
            if (from >= 0) {
                want[from] += out[to] = (double)k;
            }
        }
        remap.x.data = sums;
        assert_int_equal(tt_remap_add(&exec, &remap), 0);
        assert_memory_equal(sums, want, sizeof sums);
    }
    tt_threads_release(threads);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void draw_patches(tt_patches_t *p)
{
    *p = (tt_patches_t){.dtype = TUTTI_F32, .count = 1 + below(3)};
    for (int d = 0; d < 2; d++) {
        p->kernel[d] = 1 + below(3);
        p->stride[d] = 1 + below(3);
        p->padding[d] = below(3);
        p->dilation[d] = 1 + below(2);
        const int64_t reach = (p->kernel[d] - 1) * p->dilation[d];
        const int64_t least = reach + 1 - 2 * p->padding[d];
        p->size[d] = (least > 1 ? least : 1) + below(5);
        p->windows[d] = (p->size[d] + 2 * p->padding[d] - 1 - reach) / p->stride[d] + 1;
    }
}

/* Where in a plane; -1: outside. */
static int64_t place_in_plane(const tt_patches_t *p, int64_t kh, int64_t kw, int64_t window)
{
    const int64_t y = window / p->windows[1] * p->stride[0] + kh * p->dilation[0] - p->padding[0];
    const int64_t x = window % p->windows[1] * p->stride[1] + kw * p->dilation[1] - p->padding[1];
    return y < 0 || y >= p->size[0] || x < 0 || x >= p->size[1] ? -1 : y * p->size[1] + x;
}

static void windows_are_taken_and_added(void **state)
{
    (void)state;
    static float planes[8 * MOST], columns[32 * MOST], sums[8 * MOST], want[8 * MOST];
    for (int round = 0; round < ROUNDS; round++) {
        tt_patches_t p;
        draw_patches(&p);
        p.planes = planes;
        p.columns = columns;
        const int64_t own = p.size[0] * p.size[1], windows = p.windows[0] * p.windows[1],
                      places_of_one = p.kernel[0] * p.kernel[1];
        for (int64_t i = 0; i < p.count * own; i++) {
            planes[i] = (float)(i + 1);
            want[i] = 0;
            sums[i] = -1;
        }
        assert_int_equal(tt_patches_take(NULL, &p), 0);
        for (int64_t i = 0; i < p.count * places_of_one * windows; i++) {
            const int64_t place = i / windows % places_of_one, plane = i / windows / places_of_one;
            const int64_t at =
                place_in_plane(&p, place / p.kernel[1], place % p.kernel[1], i % windows);
            if (columns[i] != (at < 0 ? 0 : planes[plane * own + at])) {
                fail_msg("TUTTI_SEED=%llu: round %d, column element %lld is %g",
                         (unsigned long long)seed, round, (long long)i, (double)columns[i]);
            }
            if (at >= 0) {
                want[plane * own + at] += columns[i];
            }
        }
        p.planes = sums;
        assert_int_equal(tt_patches_add(NULL, &p), 0);
        assert_memory_equal(sums, want, (size_t)(p.count * own) * sizeof *sums);
    }
}

int main(void)
{
    const char *chosen = getenv("TUTTI_SEED");
    seed = chosen == NULL ? seed : strtoull(chosen, NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_are_those_of_the_header),
        cmocka_unit_test(windows_are_taken_and_added),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
