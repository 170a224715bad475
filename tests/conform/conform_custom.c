/* Conformance of reductions of the program's own: elements of several numbers, a function that does
 * not commute, in every call that takes one, plain and prepared.
 *
 * An element (a, b, c, …) stands for the maps x -> a x + b, x -> a x + c, …; combining two is doing
 * one after the other. For integers, which wrap around, that is exactly associative, so that
 * the reference is a plain fold from rank 0 on; for floats it is the kernels' tree.
 */
#include <string.h>

#include <tutti/prepared.h>

#include "conform_impl.h"
#include "core/base/alloc.h"

enum { WIDTHS = 5 };

static const int widths[WIDTHS] = {2, 64, 4, 1, 2};

/* ---- the function ---- */

static double load_real(const void *x, tutti_dtype_t dtype, int64_t i)
{
    return dtype == TUTTI_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static uint64_t load_whole(const void *x, tutti_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_I64:
        return (uint64_t)((const int64_t *)x)[i];
    case TUTTI_I32:
        return (uint64_t)((const int32_t *)x)[i];
    default:
        return ((const uint8_t *)x)[i];
    }
}

static void store_whole(void *x, tutti_dtype_t dtype, int64_t i, uint64_t value)
{
    switch (dtype) {
    case TUTTI_I64:
        ((int64_t *)x)[i] = (int64_t)value;
        break;
    case TUTTI_I32:
        ((int32_t *)x)[i] = (int32_t)(uint32_t)value;
        break;
    default:
        ((uint8_t *)x)[i] = (uint8_t)(dtype == TUTTI_BOOL ? value & 1 : value);
    }
}

/* The number at i of the element that begins at `first`; of a single number, the later one. */
static void combine_number(void *inout, const void *in, tutti_dtype_t dtype, int64_t first,
                           int64_t i, int width)
{
    if (tutti_dtype_is_float(dtype)) {
        const double a = load_real(inout, dtype, first), y = load_real(in, dtype, i);
        const double sum = i > first ? a * y + load_real(inout, dtype, i) : a * y;
        if (dtype == TUTTI_F32) {
            ((float *)inout)[i] = (float)(width == 1 ? y : sum);
        } else {
            ((double *)inout)[i] = width == 1 ? y : sum;
        }
        return;
    }
    const uint64_t a = load_whole(inout, dtype, first), y = load_whole(in, dtype, i);
    const uint64_t sum = i > first ? a * y + load_whole(inout, dtype, i) : a * y;
    store_whole(inout, dtype, i, width == 1 ? y : sum);
}

/* user: the width. */
static void combine(void *inout, const void *in, int64_t count, tutti_dtype_t dtype, void *user)
{
    const int width = *(const int *)user;
    for (int64_t first = 0; first < count * width; first += width) {
        for (int64_t i = first + width - 1; i >= first; i--) { /* a is needed until the end */
            combine_number(inout, in, dtype, first, i, width);
        }
    }
}

/* ---- references ---- */

/* Rank after rank, for integers. */
static void expect_fold(const tt_conform_at_t *at, size_t count, int ranks, const void *want)
{
    if (tutti_dtype_is_float(at->dtype) || count == 0) {
        return;
    }
    const int width = at->custom->width;
    void *fold = tt_conform_room(tt_conform_bytes_of(at, count));
    void *next = tt_conform_room(tt_conform_bytes_of(at, count));
    tt_conform_fill(fold, at->dtype, 0, count, 0);
    for (int rank = 1; rank < ranks; rank++) {
        tt_conform_fill(next, at->dtype, 0, count, rank);
        combine(fold, next, (int64_t)count / width, at->dtype, at->custom->user);
    }
    tt_conform_bytes(at, "fold", want, fold, tt_conform_bytes_of(at, count));
    tt_free(fold);
    tt_free(next);
}

static void *reference(const tt_conform_at_t *at, size_t count, int ranks)
{
    void *want = tt_conform_prefix(at, count, ranks);
    expect_fold(at, count, ranks, want);
    return want;
}

static tutti_reduce_options_t options_of(const tt_conform_at_t *at)
{
    return (tutti_reduce_options_t){.root = at->root, .custom = at->custom};
}

static void refill(const tt_conform_at_t *at, tutti_tensor_t *x)
{
    tt_conform_fill(tt_conform_data(x), at->dtype, 0, (size_t)tutti_tensor_numel(x), at->rank);
}

/* ---- calls ---- */

static void check_all(const tt_conform_at_t *at)
{
    const tutti_reduce_options_t options = options_of(at);
    const size_t bytes = tt_conform_bytes_of(at, at->count);
    void *want = reference(at, at->count, at->size);
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, "custom all_reduce",
                  tutti_all_reduce_with(at->group, x, TUTTI_CUSTOM, &options, NULL));
    tt_conform_bytes(at, "custom all_reduce", tt_conform_data(x), want, bytes);
    refill(at, x);
    tt_conform_ok(at, "custom reduce",
                  tutti_reduce_with(at->group, x, TUTTI_CUSTOM, &options, NULL));
    if (at->rank == at->root) {
        tt_conform_bytes(at, "custom reduce", tt_conform_data(x), want, bytes);
    }
    tutti_tensor_release(x);
    tt_free(want);
}

static void check_prefix(const tt_conform_at_t *at, const char *what, const tutti_tensor_t *x,
                         int ranks)
{
    void *want = reference(at, at->count, ranks > 0 ? ranks : 1);
    if (ranks == 0) { /* of rank 0, as it was: its own */
        tt_conform_fill(want, at->dtype, 0, at->count, 0);
    }
    tt_conform_bytes(at, what, tt_conform_data(x), want, tt_conform_bytes_of(at, at->count));
    tt_free(want);
}

static void check_scans(const tt_conform_at_t *at)
{
    const tutti_reduce_options_t options = options_of(at);
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, "custom scan", tutti_scan_with(at->group, x, TUTTI_CUSTOM, &options, NULL));
    check_prefix(at, "custom scan", x, at->rank + 1);
    refill(at, x);
    tt_conform_ok(at, "custom exscan",
                  tutti_exscan_with(at->group, x, TUTTI_CUSTOM, &options, NULL));
    check_prefix(at, "custom exscan", x, at->rank);
    tutti_tensor_release(x);
}

static void check_scatter(const tt_conform_at_t *at)
{
    const tutti_reduce_options_t options = options_of(at);
    const size_t all = at->count * (size_t)at->size, bytes = tt_conform_bytes_of(at, at->count);
    char *want = reference(at, all, at->size);
    tutti_tensor_t *x = tt_conform_make(at, at->count), *input = tt_conform_make_filled(at, all);
    tt_conform_ok(at, "custom reduce_scatter",
                  tutti_reduce_scatter_with(at->group, x, input, TUTTI_CUSTOM, &options, NULL));
    tt_conform_bytes(at, "custom reduce_scatter", tt_conform_data(x),
                     want + bytes * (size_t)at->rank, bytes);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

/* ---- who owns what ---- */

typedef tutti_status_t (*prepare_fn_t)(tutti_group_t *group, tutti_tensor_t *x,
                                       tutti_reduction_t op, const tutti_reduce_options_t *options,
                                       tutti_prepared_t **out);

/* Everything that was passed is gone when the call goes on, but for what the function is handed. */
static tutti_status_t prepare(const tt_conform_at_t *at, prepare_fn_t call, tutti_tensor_t *x,
                              tutti_prepared_t **out)
{
    char name[16];
    tutti_custom_reduction_t custom = *at->custom;
    tutti_reduce_options_t options = {.root = at->root, .custom = &custom};
    memcpy(name, custom.name, strlen(custom.name) + 1);
    custom.name = name;
    const tutti_status_t status = call(at->group, x, TUTTI_CUSTOM, &options, out);
    memset(name, 'x', sizeof name);
    memset(&custom, 0xff, sizeof custom);
    memset(&options, 0xff, sizeof options);
    return status;
}

static void check_prepared(const tt_conform_at_t *at, const char *what, prepare_fn_t call,
                           int ranks)
{
    tutti_prepared_t *prepared = NULL;
    tutti_work_t *work = NULL;
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tutti_tensor_t *y = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, what, prepare(at, call, x, &prepared));
    tt_conform_ok(at, what, tutti_prepared_start(prepared, NULL));
    check_prefix(at, what, x, ranks);
    tt_conform_ok(at, what, tutti_prepared_rebind(prepared, y));
    tt_conform_ok(at, what, tutti_prepared_start(prepared, &work));
    tutti_prepared_release(prepared);
    tt_conform_ok(at, what, tutti_work_wait(work, 0));
    tutti_work_release(work);
    check_prefix(at, what, y, ranks);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

/* What `given` says is not there any more when the call goes on. */
static tutti_status_t start_borrowed(const tt_conform_at_t *at, tutti_tensor_t *x,
                                     tutti_custom_reduction_t *given, tutti_work_t **work)
{
    *given = *at->custom;
    const tutti_reduce_options_t options = {.custom = given};
    const tutti_status_t status = tutti_all_reduce_with(at->group, x, TUTTI_CUSTOM, &options, work);
    *given = (tutti_custom_reduction_t){0};
    return status;
}

/* In flight, and among calls that are coalesced. */
static void check_works(const tt_conform_at_t *at)
{
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tutti_tensor_t *y = tt_conform_make_filled(at, at->count);
    tutti_work_t *first = NULL, *second = NULL;
    tutti_custom_reduction_t given[4]; /* still here, so that it can be overwritten */
    tt_conform_ok(at, "custom in flight", start_borrowed(at, x, &given[0], &first));
    tt_conform_ok(at, "custom in flight", start_borrowed(at, y, &given[1], &second));
    tt_conform_ok(at, "custom in flight", tutti_work_wait(second, 0));
    tt_conform_ok(at, "custom in flight", tutti_work_wait(first, 0));
    tutti_work_release(first);
    tutti_work_release(second);
    check_prefix(at, "custom in flight", x, at->size);
    check_prefix(at, "custom in flight", y, at->size);
    refill(at, x);
    refill(at, y);
    tt_conform_ok(at, "custom coalesced", tutti_coalesce_begin(at->group));
    tt_conform_ok(at, "custom coalesced", start_borrowed(at, x, &given[2], NULL));
    tt_conform_ok(at, "custom coalesced", start_borrowed(at, y, &given[3], NULL));
    tt_conform_ok(at, "custom coalesced", tutti_coalesce_end(at->group, NULL));
    check_prefix(at, "custom coalesced", x, at->size);
    check_prefix(at, "custom coalesced", y, at->size);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

void tt_conform_check_custom(const tt_conform_at_t *at, int turn)
{
    int width = widths[turn % WIDTHS];
    const tutti_custom_reduction_t custom = {
        .name = "affine maps",
        .combine = combine,
        .user = &width,
        .width = width,
        .dtypes = at->dtype == TUTTI_BF16 ? 1u << TUTTI_F16 | 1u << TUTTI_BF16 : 0};
    tt_conform_at_t with = *at;
    with.custom = &custom;
    with.count = at->count * (size_t)width;
    check_all(&with);
    check_scans(&with);
    check_scatter(&with);
    check_works(&with);
    check_prepared(&with, "prepared custom all_reduce", tutti_prepare_all_reduce_with, with.size);
    check_prepared(&with, "prepared custom scan", tutti_prepare_scan_with, with.rank + 1);
    check_prepared(&with, "prepared custom exscan", tutti_prepare_exscan_with, with.rank);
}
