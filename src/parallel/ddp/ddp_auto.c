/* TUTTI_DDP_BUCKET_AUTO: the smallest bucket whose latency is a tenth of its time on the wire, so
 * that communication starts early and costs no more than large buckets do. Rank 0's measurement is
 * what counts.
 */
#include <string.h>

#include "core/base/clock.h"
#include "parallel/ddp/ddp_impl.h"

enum {
    SMALL_BYTES = 1 << 10,
    LARGE_BYTES = 1 << 20,
    ROUNDS = 3,
    TIMES_LATENCY = 10,
    BYTES_MIN = 256 << 10,
    BYTES_MAX = 25 << 20,
};

/* The fastest of a few calls. */
static tutti_status_t time_calls(tutti_group_t *group, size_t bytes, int64_t *best_ns)
{
    tutti_tensor_t *x;
    TT_TRY(tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE((int64_t)bytes / 4), &x));
    tutti_status_t status = tutti_tensor_fill(x, 0);
    *best_ns = INT64_MAX;
    for (int i = 0; i < ROUNDS && status >= 0; i++) {
        const int64_t begin = tt_clock_ns();
        status = tutti_all_reduce(group, x, TUTTI_SUM, NULL);
        const int64_t ns = tt_clock_ns() - begin;
        *best_ns = ns < *best_ns ? ns : *best_ns;
    }
    tutti_tensor_release(x);
    return status;
}

size_t tt_ddp_auto_bytes(int64_t small_ns, int64_t large_ns)
{
    const double per_byte = (double)(large_ns > small_ns ? large_ns - small_ns : 1) / LARGE_BYTES;
    const double wanted = TIMES_LATENCY * (double)small_ns / per_byte;
    size_t bytes = BYTES_MIN;
    while (bytes < BYTES_MAX && (double)bytes < wanted) {
        bytes *= 2;
    }
    return bytes < BYTES_MAX ? bytes : BYTES_MAX;
}

tutti_status_t tt_ddp_choose_bucket_bytes(tutti_ddp_t *ddp)
{
    tutti_ddp_options_t *options = &ddp->options;
    if (options->bucket_bytes != TUTTI_DDP_BUCKET_AUTO) {
        return TUTTI_OK;
    }
    int64_t small_ns, large_ns;
    TT_TRY(time_calls(ddp->group, SMALL_BYTES, &small_ns));
    TT_TRY(time_calls(ddp->group, LARGE_BYTES, &large_ns));
    int64_t bytes = (int64_t)tt_ddp_auto_bytes(small_ns, large_ns);
    tutti_tensor_t *x;
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &x));
    memcpy(tutti_tensor_data(x), &bytes, sizeof bytes);
    const tutti_status_t status = tutti_broadcast(ddp->group, x, 0, NULL);
    memcpy(&bytes, tutti_tensor_data(x), sizeof bytes);
    tutti_tensor_release(x);
    TT_TRY(status);
    options->bucket_bytes = (size_t)bytes;
    if (options->first_bucket_bytes > options->bucket_bytes) {
        options->first_bucket_bytes = options->bucket_bytes;
    }
    return TUTTI_OK;
}
