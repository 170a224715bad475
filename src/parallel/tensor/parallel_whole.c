/* Wholes of what is cut: parameters, gradients, digests.
 *
 *     parts, side by side   rank 0: q0 k0 v0 | rank 1: q1 k1 v1 | …      all_gather
 *     whole                 q0 q1 … k0 k1 … v0 v1 …                      copies
 *
 * Cost: one parameter is whole at a time. */
#define XXH_STATIC_LINKING_ONLY /* the state as a value, so that nothing is allocated */
#include <xxhash.h>

#include <tutti/autograd.h>
#include <tutti/collectives.h>
#include <tutti/context.h>

#include <stdio.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/copy.h"
#include "parallel/tensor/tp_item.h"

typedef struct {
    tutti_scope_t *s;
    const tt_tp_linear_t *how;
    int dim;
    tutti_tensor_t *whole, *packed;
} whole_t;

/* How many of part `part` rank `rank` has, and where they begin in the whole part. */
static tt_span_t span_of(const whole_t *w, int part, int rank)
{
    const tt_tp_t tp = w->how->tp;
    const tt_cut_t cut = {w->how->dim.sizes[part], tp.shards, tutti_group_size(tp.group)};
    return tt_cut_rank(&cut, rank);
}

static int64_t each_of(const whole_t *w)
{
    const int64_t size = w->whole->shape.dims[w->dim];
    return size == 0 ? 0 : w->whole->numel / size;
}

static tutti_status_t count_rows(const whole_t *w, int64_t **out)
{
    const int ranks = tutti_group_size(w->how->tp.group);
    int64_t *counts = tt_alloc_array((size_t)ranks, sizeof *counts, "parts");
    TT_TRY_ALLOC(counts);
    for (int rank = 0; rank < ranks; rank++) {
        for (int part = 0; part < w->how->dim.parts; part++) {
            counts[rank] += span_of(w, part, rank).count * each_of(w);
        }
    }
    *out = counts;
    return TUTTI_OK;
}

/* A run of a rank's part: `own` indices of it, of which the run is [at, at + span.count). */
typedef struct {
    int64_t first, own, at; /* elements before the rank's; its indices; those before the run */
    tt_span_t span;         /* in the whole */
} run_t;

static tutti_status_t copy_run(const whole_t *w, const run_t *run)
{
    const int64_t bytes = (int64_t)tutti_dtype_bytes(w->whole->dtype);
    tutti_shape_t shape = w->whole->shape;
    shape.dims[w->dim] = run->own;
    tt_strided_t to = tt_tensor_strided(w->whole), from = to;
    tt_shape_strides(shape, from.strides);
    from.data =
        (char *)tt_tensor_data(w->packed) + (run->first + run->at * from.strides[w->dim]) * bytes;
    to.data = (char *)to.data + run->span.begin * to.strides[w->dim] * bytes;
    to.shape[w->dim] = from.shape[w->dim] = run->span.count;
    return run->span.count > 0 ? tt_copy(tt_scope_exec(w->s), &to, &from) : TUTTI_OK;
}

static tutti_status_t copy_rank(const whole_t *w, int rank, const int64_t *counts, int64_t first)
{
    run_t run = {.first = first, .own = each_of(w) == 0 ? 0 : counts[rank] / each_of(w)};
    int64_t part_first = 0;
    for (int part = 0; part < w->how->dim.parts; part++) {
        run.span = span_of(w, part, rank);
        const int64_t count = run.span.count;
        run.span.begin += part_first;
        TT_TRY(copy_run(w, &run));
        run.at += count;
        part_first += w->how->dim.sizes[part];
    }
    return TUTTI_OK;
}

static tutti_status_t gather_parts(whole_t *w, tutti_tensor_t *part)
{
    tutti_tensor_t *row = NULL;
    int64_t *counts = NULL, first = 0;
    tutti_status_t status = count_rows(w, &counts);
    if (status >= 0) {
        status = tt_tensor_over(part->storage, part->dtype, TUTTI_SHAPE(part->numel), NULL,
                                part->offset, &row);
    }
    if (status >= 0) {
        status = tutti_all_gather_uneven(w->how->tp.group, w->packed, row, counts, NULL);
    }
    for (int rank = 0; rank < tutti_group_size(w->how->tp.group) && status >= 0; rank++) {
        status = copy_rank(w, rank, counts, first);
        first += counts[rank];
    }
    tutti_tensor_release(row);
    tt_free(counts);
    return status;
}

/* The whole of x, which lies as the spread says. */
static tutti_status_t make_whole(tutti_scope_t *s, const tt_spread_t *spread,
                                 const tt_tp_linear_t *how, tutti_tensor_t *x, tutti_tensor_t **out)
{
    whole_t w = {.s = s, .how = how, .dim = spread->dim};
    tutti_tensor_t *part = NULL;
    const int64_t numel = tutti_shape_numel(spread->whole);
    tutti_status_t status = tt_dense(s, x, x->dtype, &part);
    if (status >= 0) {
        status = tt_tensor_new(x->storage->device, x->dtype, spread->whole, false, &w.whole);
    }
    if (status >= 0) {
        status = tt_tensor_new(x->storage->device, x->dtype, TUTTI_SHAPE(numel), false, &w.packed);
    }
    if (status >= 0) {
        status = gather_parts(&w, part);
    }
    tutti_tensor_release(w.packed);
    tutti_tensor_release(part);
    if (status < 0) {
        tutti_tensor_release(w.whole);
        return status;
    }
    *out = w.whole;
    return TUTTI_OK;
}

static tutti_tensor_t *whole_of(tutti_scope_t *s, const tutti_tensor_t *x, tutti_tensor_t *values)
{
    const tt_tp_linear_t *how = tt_tp_spread_of(x);
    tutti_tensor_t *whole = NULL;
    if (how == NULL) {
        return values;
    }
    const tutti_status_t status = make_whole(s, x->spread, how, values, &whole);
    return tt_scope_adopt(s, status < 0 ? tt_group_give_up(how->tp.group, status) : status, whole);
}

/* No other rank waits for this one in the call. */
static tutti_status_t give_up(const tutti_tensor_t *x, tutti_status_t status)
{
    const tt_tp_linear_t *how = tt_tp_spread_of(x);
    return how != NULL ? tt_group_give_up(how->tp.group, status) : status;
}

tutti_tensor_t *tutti_parallel_whole(tutti_scope_t *s, tutti_tensor_t *x)
{
    return x == NULL ? tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "parallel_whole: x is NULL"))
                     : whole_of(s, x, x);
}

tutti_tensor_t *tutti_parallel_whole_grad(tutti_scope_t *s, tutti_tensor_t *x)
{
    if (x == NULL) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "parallel_whole_grad: x is NULL"));
    }
    tutti_tensor_t *grad = tutti_tensor_grad(x);
    if (grad == NULL) {
        const tutti_status_t status =
            TT_FAIL(TUTTI_ERR_STATE, "parallel_whole_grad: there is no gradient");
        return tutti_scope_fail(s, give_up(x, status));
    }
    return whole_of(s, x, grad);
}

/* ---- digest ---------------------------------------------------------------------------------- */

typedef struct {
    XXH3_state_t state;
    tutti_context_t *ctx;
} digest_t;

static tutti_status_t add_values(digest_t *d, const tutti_tensor_t *x)
{
    const size_t bytes = tutti_tensor_bytes(x);
    void *values = tt_alloc_raw(bytes, "digest");
    TT_TRY_ALLOC(values);
    const tutti_status_t status = tt_tensor_read(x, values);
    (void)XXH3_128bits_update(&d->state, values, status < 0 ? 0 : bytes);
    tt_free(values);
    return status;
}

static tutti_status_t add_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    digest_t *d = user;
    tutti_scope_t *s;
    (void)name;
    TT_TRY(tutti_scope_open(d->ctx, &s));
    const tutti_tensor_t *whole = tutti_parallel_whole(s, x);
    const tutti_status_t status =
        tt_tensor_status(whole) < 0 ? tt_tensor_status(whole) : add_values(d, whole);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* Whoever is told of a failure gives its group up; needs no memory. */
static tutti_status_t give_up_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_status_t *status = user;
    (void)name;
    *status = give_up(x, *status);
    return TUTTI_OK;
}

tutti_status_t tutti_parallel_digest(tutti_module_t *m, char text[TUTTI_DIGEST_BYTES])
{
    digest_t d;
    TT_WANT("parallel_digest", m);
    XXH3_INITSTATE(&d.state);
    (void)XXH3_128bits_reset(&d.state);
    d.ctx = m->ctx;
    tutti_status_t status = tutti_module_each_parameter(m, add_parameter, &d);
    if (status < 0) {
        (void)tutti_module_each_tensor(m, give_up_tensor, &status);
        return status;
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&d.state));
    for (size_t i = 0; i < sizeof digest.digest; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest.digest[i]);
    }
    return TUTTI_OK;
}
