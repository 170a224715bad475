/* Options of DDP: checks, defaults, and what follows from them.
 *
 * Where weights need not have the same bits on any number of ranks (options.exact, TUTTI_EXACT=0),
 * a rank whose shards are several nodes of the canonical tree adds those up first, so that one
 * piece travels instead of several; and collectives may take any algorithm (choice.c). A rank whose
 * shards are one node has nothing to gain, and goes the exact way.
 *
 * TUTTI_DDP_BUCKET_AUTO: the smallest bucket whose latency is a tenth of its time on the wire, so
 * that communication starts early and costs no more than large buckets do. Rank 0's measurement is
 * what counts.
 */
#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/integers.h"
#include "core/base/log.h"
#include "compute/optim/optimizer.h"
#include "parallel/ddp/ddp_impl.h"

enum { MIB = 1 << 20 };

static tutti_status_t check_dtypes(const tutti_ddp_options_t *o)
{
    const struct {
        const char *name;
        tutti_dtype_t dtype;
    } options[] = {{"param_dtype", o->param_dtype},
                   {"reduce_dtype", o->reduce_dtype},
                   {"buffer_dtype", o->buffer_dtype}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const tutti_dtype_t dtype = options[i].dtype;
        if (dtype != TUTTI_F32 && dtype != TUTTI_BF16 && dtype != TUTTI_F16) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.%s is %s: it must be f32, bf16 or f16",
                           options[i].name, tutti_dtype_name(dtype));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t resolve_exact(tutti_ddp_t *ddp)
{
    int64_t is_exact;
    if ((unsigned)ddp->options.exact > TUTTI_DDP_EXACT_OFF) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no option exact %d", (int)ddp->options.exact);
    }
    TT_TRY(tt_config_int(TT_CONFIG_EXACT, 0, 1, &is_exact));
    ddp->is_exact = ddp->options.exact == TUTTI_DDP_EXACT_DEFAULT
                        ? is_exact != 0
                        : ddp->options.exact == TUTTI_DDP_EXACT_ON;
    if (!ddp->is_exact && tutti_group_rank(ddp->group) == 0) {
        tt_log(TT_LOG_INFO, "ddp: not exact (%s): weights depend on the number of ranks",
               ddp->options.exact == TUTTI_DDP_EXACT_OFF ? "options.exact" : "TUTTI_EXACT=0");
    }
    return TUTTI_OK;
}

static tutti_status_t check_accumulate(const tutti_ddp_options_t *o)
{
    if ((unsigned)o->accumulate > TUTTI_DDP_SHARDED) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no option accumulate %d", (int)o->accumulate);
    }
    return o->accumulate == TUTTI_DDP_LOCAL || o->stage >= 2
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "ddp: options.accumulate is TUTTI_DDP_SHARDED at stage %d, where every "
                         "rank has all gradients: take stage 2 or 3, or TUTTI_DDP_LOCAL",
                         o->stage);
}

tutti_status_t tt_ddp_take_options(tutti_ddp_t *ddp, const tutti_ddp_options_t *options)
{
    tutti_ddp_options_t *o = &ddp->options;
    *o = options == NULL ? (tutti_ddp_options_t){0} : *options;
    (void)tutti_trace_retain(o->trace);
    if ((unsigned)o->uneven > TUTTI_DDP_ACTIVE) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: no option uneven %d", (int)o->uneven);
    }
    if (o->stage < 0 || o->stage > 3) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: stage %d: want 0 to 3", o->stage);
    }
    TT_TRY(check_accumulate(o));
    if (o->shards < 0 || o->shards > TT_TREE_LEAVES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: %d shards: want 1 to %d, or 0 for one per rank",
                       o->shards, TT_TREE_LEAVES_MAX);
    }
    const int size = tutti_group_size(ddp->group);
    o->no_rebuild |= o->stage > 0; /* state follows slices, which follow buckets */
    o->whole_slices |= o->optimizer != NULL && o->optimizer->ops->wants_whole;
    o->shards = o->shards == 0 ? size : o->shards;
    o->bucket_bytes = o->bucket_bytes == 0 ? (size_t)25 * MIB : o->bucket_bytes;
    o->first_bucket_bytes = o->first_bucket_bytes == 0 ? MIB : o->first_bucket_bytes;
    o->first_bucket_bytes = tt_min_size(o->first_bucket_bytes, o->bucket_bytes);
    ddp->hosted =
        tt_tree_hosted(o->shards, size, tutti_group_rank(ddp->group), tt_ddp_is_sharded_sum(ddp));
    TT_TRY(check_dtypes(o));
    return resolve_exact(ddp);
}

/* ---- TUTTI_DDP_BUCKET_AUTO ------------------------------------------------------------------- */

enum {
    SMALL_BYTES = 1 << 10,
    LARGE_BYTES = 1 << 20,
    ROUNDS = 3,
    TIMES_LATENCY = 10,
    BYTES_MIN = 256 << 10,
    BYTES_MAX = 25 << 20,
};

/* The fastest of a few calls. */
static tutti_status_t time_calls(tutti_group_t *group, tutti_tensor_t *x, int64_t *best_ns)
{
    *best_ns = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t begin = tt_clock_ns();
        TT_TRY(tutti_all_reduce(group, x, TUTTI_SUM, NULL));
        *best_ns = tt_min(*best_ns, tt_clock_ns() - begin);
    }
    return TUTTI_OK;
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

/* Rank 0's measurement. */
static tutti_status_t measure(tutti_group_t *group, tutti_tensor_t *small, tutti_tensor_t *large,
                              size_t *bytes)
{
    int64_t small_ns, large_ns;
    tutti_buffer_t first;
    TT_TRY(time_calls(group, small, &small_ns));
    TT_TRY(time_calls(group, large, &large_ns));
    *bytes = tt_ddp_auto_bytes(small_ns, large_ns);
    TT_TRY(tutti_broadcast_bytes(group, tutti_bytes_of(bytes, sizeof *bytes), 0, &first));
    memcpy(bytes, first.data, sizeof *bytes);
    tutti_buffer_release(&first);
    return TUTTI_OK;
}

tutti_status_t tt_ddp_choose_bucket_bytes(tutti_ddp_t *ddp)
{
    tutti_ddp_options_t *options = &ddp->options;
    if (options->bucket_bytes != TUTTI_DDP_BUCKET_AUTO) {
        return TUTTI_OK;
    }
    tutti_tensor_t *small = NULL, *large = NULL;
    tutti_status_t status =
        tutti_group_tensor(ddp->group, TUTTI_F32, TUTTI_SHAPE(SMALL_BYTES / 4), &small);
    if (status >= 0) {
        status = tutti_group_tensor(ddp->group, TUTTI_F32, TUTTI_SHAPE(LARGE_BYTES / 4), &large);
    }
    status = tt_group_agree(ddp->group, status);
    if (status >= 0) {
        status = measure(ddp->group, small, large, &options->bucket_bytes);
        status = status < 0 ? tt_group_give_up(ddp->group, status) : status;
    }
    tutti_tensor_release(small);
    tutti_tensor_release(large);
    options->first_bucket_bytes = tt_min_size(options->first_bucket_bytes, options->bucket_bytes);
    return status;
}
