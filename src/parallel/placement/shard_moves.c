/* Moves between a whole and its parts along one dimension.
 *
 *     x [outer, n, inner]   part r of it is [outer, n_r, inner]: rows that lie apart, unless outer
 *                           is 1, while a call sends and receives parts side by side
 *
 *     gather   parts --all_gather--> packed: part 0 | part 1 | … --copies--> whole
 *     reduce   whole --copies--> packed --reduce_scatter--> part
 *     turn     part, cut along another dimension --copies--> packed --all_to_all--> packed
 *              --copies--> part
 *
 * Where outer is 1, or there is one rank, packed is the whole itself. On meta nothing is sent.
 * Cost: the call, and a pass over the whole for each copy. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/copy.h"
#include "parallel/placement/placement_impl.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

static tutti_shape_t with_size(tutti_shape_t shape, int dim, int64_t size)
{
    shape.dims[dim] = size;
    return shape;
}

static tt_span_t own_span(const tt_sharding_t *sh)
{
    return tt_cut_rank(&sh->cut, tutti_group_rank(sh->group));
}

static int64_t product(tutti_shape_t shape, int from, int to)
{
    int64_t out = 1;
    for (int i = from; i < to; i++) {
        out *= shape.dims[i];
    }
    return out;
}

static bool has_values(const tutti_tensor_t *x)
{
    return tt_device_has_values(x->storage->device);
}

/* Of the host's tensors the context's memory, which is kept for the next one. */
static tt_device_t *memory_of(const tt_sharding_t *sh, const tutti_tensor_t *x)
{
    return x->storage->device != NULL ? x->storage->device : sh->s->ctx->cpu;
}

static tutti_status_t new_like(const tt_sharding_t *sh, const tutti_tensor_t *x,
                               tutti_shape_t shape, tutti_tensor_t **out)
{
    return tt_tensor_new(memory_of(sh, x), x->dtype, shape, false, out);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Indices [span) of dimension dim of x, as kernels see them. */
static tt_strided_t view_span(const tutti_tensor_t *x, int dim, tt_span_t span)
{
    tt_strided_t view = tt_tensor_strided(x);
    view.data =
        (char *)view.data + span.begin * view.strides[dim] * (int64_t)tutti_dtype_bytes(x->dtype);
    view.shape[dim] = span.count;
    return view;
}

/* The same as rows one behind another, from element `first` of a packed tensor. */
static tt_strided_t view_packed(const tutti_tensor_t *packed, int64_t first, tutti_shape_t shape)
{
    tt_strided_t view = {.data = (char *)tt_tensor_data(packed) +
                                 first * (int64_t)tutti_dtype_bytes(packed->dtype),
                         .dtype = packed->dtype,
                         .rank = shape.rank};
    memcpy(view.shape, shape.dims, sizeof view.shape);
    tt_shape_strides(shape, view.strides);
    return view;
}

typedef enum { PACK, UNPACK } direction_t;

/* All parts of x along dim, to or from a packed tensor. */
static tutti_status_t copy_parts(const tt_sharding_t *sh, int dim, const tt_cut_t *cut,
                                 tutti_tensor_t *x, tutti_tensor_t *packed, direction_t direction)
{
    int64_t first = 0;
    for (int rank = 0; rank < cut->ranks; rank++) {
        const tt_span_t span = tt_cut_rank(cut, rank);
        const tutti_shape_t shape = with_size(x->shape, dim, span.count);
        if (tutti_shape_numel(shape) == 0) {
            continue;
        }
        const tt_strided_t part = view_span(x, dim, span), flat = view_packed(packed, first, shape);
        TT_TRY(direction == PACK ? tt_copy(tt_scope_exec(sh->s), &flat, &part)
                                 : tt_copy(tt_scope_exec(sh->s), &part, &flat));
        first += tutti_shape_numel(shape);
    }
    return TUTTI_OK;
}

static bool is_packed(tutti_shape_t shape, int dim, int ranks)
{
    return ranks == 1 || product(shape, 0, dim) == 1;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Elements of each rank's part of a tensor of `each` elements for an index; owned by the caller. */
static tutti_status_t count_parts(const tt_cut_t *cut, int64_t each, bool *are_equal, int64_t **out)
{
    int64_t *counts = tt_alloc_array((size_t)cut->ranks, sizeof *counts, "parts");
    TT_TRY_ALLOC(counts);
    *are_equal = true;
    for (int rank = 0; rank < cut->ranks; rank++) {
        counts[rank] = tt_cut_rank(cut, rank).count * each;
        *are_equal &= counts[rank] == counts[0];
    }
    *out = counts;
    return TUTTI_OK;
}

/* x as a row of its elements, over the same memory. */
static tutti_status_t flatten(const tutti_tensor_t *x, tutti_tensor_t **out)
{
    return tt_tensor_over(x->storage, x->dtype, TUTTI_SHAPE(x->numel), NULL, x->offset, out);
}

/* What a call does with rows of elements. */
typedef tutti_status_t (*call_t)(const tt_sharding_t *sh, tutti_tensor_t *to, tutti_tensor_t *from,
                                 const int64_t *counts, bool are_equal, tutti_reduction_t op);

static tutti_status_t call_gather(const tt_sharding_t *sh, tutti_tensor_t *to, tutti_tensor_t *from,
                                  const int64_t *counts, bool are_equal, tutti_reduction_t op)
{
    (void)op;
    return are_equal ? tutti_all_gather(sh->group, to, from, NULL)
                     : tutti_all_gather_uneven(sh->group, to, from, counts, NULL);
}

static tutti_status_t call_reduce(const tt_sharding_t *sh, tutti_tensor_t *to, tutti_tensor_t *from,
                                  const int64_t *counts, bool are_equal, tutti_reduction_t op)
{
    return are_equal ? tutti_reduce_scatter(sh->group, to, from, op, NULL)
                     : tutti_reduce_scatter_uneven(sh->group, to, from, counts, op, NULL);
}

static tutti_status_t call_rows(const tt_sharding_t *sh, call_t call, int64_t each,
                                tutti_tensor_t *const tensors[2], tutti_reduction_t op)
{
    tutti_tensor_t *rows[2] = {NULL, NULL};
    int64_t *counts = NULL;
    bool are_equal;
    tutti_status_t status = count_parts(&sh->cut, each, &are_equal, &counts);
    for (int i = 0; i < 2 && status >= 0; i++) {
        status = flatten(tensors[i], &rows[i]);
    }
    if (status >= 0) {
        status = call(sh, rows[0], rows[1], counts, are_equal, op);
    }
    tt_tensors_release(rows, 2);
    tt_free(counts);
    return status;
}

/* Elements of one index of the cut dimension. */
static int64_t elements_each(tutti_shape_t shape, int dim)
{
    return product(shape, 0, dim) * product(shape, dim + 1, shape.rank);
}

/* ---- gather ---------------------------------------------------------------------------------- */

static tutti_status_t gather_into(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t *out)
{
    const int64_t each = elements_each(x->shape, sh->dim);
    tutti_tensor_t *packed = NULL;
    if (is_packed(x->shape, sh->dim, sh->cut.ranks)) {
        return call_rows(sh, call_gather, each, (tutti_tensor_t *[]){out, x}, TUTTI_SUM);
    }
    TT_TRY(new_like(sh, x, TUTTI_SHAPE(out->numel), &packed));
    tutti_status_t status =
        call_rows(sh, call_gather, each, (tutti_tensor_t *[]){packed, x}, TUTTI_SUM);
    if (status >= 0) {
        status = copy_parts(sh, sh->dim, &sh->cut, out, packed, UNPACK);
    }
    tutti_tensor_release(packed);
    return status;
}

/* Hands out on if all went well. */
static tutti_status_t give(tutti_status_t status, tutti_tensor_t *made, tutti_tensor_t **out)
{
    if (status < 0) {
        tutti_tensor_release(made);
        return status;
    }
    *out = made;
    return TUTTI_OK;
}

tutti_status_t tt_shard_gather(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out)
{
    tutti_tensor_t *whole;
    TT_TRY(new_like(sh, x, with_size(x->shape, sh->dim, sh->cut.size), &whole));
    return give(has_values(x) ? gather_into(sh, x, whole) : TUTTI_OK, whole, out);
}

/* ---- slice, widen ---------------------------------------------------------------------------- */

tutti_status_t tt_shard_slice(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out)
{
    const tt_span_t own = own_span(sh);
    tutti_tensor_t *part;
    TT_TRY(new_like(sh, x, with_size(x->shape, sh->dim, own.count), &part));
    if (part->numel == 0) {
        return give(TUTTI_OK, part, out);
    }
    const tt_strided_t to = tt_tensor_strided(part), from = view_span(x, sh->dim, own);
    return give(tt_copy(tt_scope_exec(sh->s), &to, &from), part, out);
}

tutti_status_t tt_shard_widen(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_tensor_t **out)
{
    tutti_tensor_t *whole;
    TT_TRY(tt_tensor_new(memory_of(sh, x), x->dtype, with_size(x->shape, sh->dim, sh->cut.size),
                         true, &whole));
    if (x->numel == 0) {
        return give(TUTTI_OK, whole, out);
    }
    const tt_strided_t to = view_span(whole, sh->dim, own_span(sh)), from = tt_tensor_strided(x);
    return give(tt_copy(tt_scope_exec(sh->s), &to, &from), whole, out);
}

/* ---- reduce ---------------------------------------------------------------------------------- */

static tutti_status_t reduce_into(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_reduction_t op,
                                  tutti_tensor_t *out)
{
    const int64_t each = elements_each(x->shape, sh->dim);
    tutti_tensor_t *packed = NULL;
    if (is_packed(x->shape, sh->dim, sh->cut.ranks)) {
        return call_rows(sh, call_reduce, each, (tutti_tensor_t *[]){out, x}, op);
    }
    TT_TRY(new_like(sh, x, TUTTI_SHAPE(x->numel), &packed));
    tutti_status_t status = copy_parts(sh, sh->dim, &sh->cut, x, packed, PACK);
    if (status >= 0) {
        status = call_rows(sh, call_reduce, each, (tutti_tensor_t *[]){out, packed}, op);
    }
    tutti_tensor_release(packed);
    return status;
}

tutti_status_t tt_shard_reduce(const tt_sharding_t *sh, tutti_tensor_t *x, tutti_reduction_t op,
                               tutti_tensor_t **out)
{
    tutti_tensor_t *part;
    TT_TRY(new_like(sh, x, with_size(x->shape, sh->dim, own_span(sh).count), &part));
    return give(has_values(x) ? reduce_into(sh, x, op, part) : TUTTI_OK, part, out);
}

/* ---- turn ------------------------------------------------------------------------------------ */

typedef struct {
    const tt_sharding_t *from, *to;
    tutti_tensor_t *sent, *received; /* packed */
} turn_t;

static tutti_status_t call_turn(const turn_t *t, tutti_tensor_t *x, const tutti_tensor_t *out)
{
    int64_t *counts[2] = {NULL, NULL};
    bool are_equal;
    tutti_status_t status =
        count_parts(&t->to->cut, elements_each(x->shape, t->to->dim), &are_equal, &counts[0]);
    if (status >= 0) {
        status = count_parts(&t->from->cut, elements_each(out->shape, t->from->dim), &are_equal,
                             &counts[1]);
    }
    if (status >= 0) {
        status = tutti_all_to_all_uneven(t->from->group, t->received, counts[1], t->sent, counts[0],
                                         NULL);
    }
    tt_free(counts[0]);
    tt_free(counts[1]);
    return status;
}

static tutti_status_t turn_into(turn_t *t, tutti_tensor_t *x, tutti_tensor_t *out)
{
    TT_TRY(new_like(t->from, x, TUTTI_SHAPE(x->numel), &t->sent));
    TT_TRY(new_like(t->from, x, TUTTI_SHAPE(out->numel), &t->received));
    TT_TRY(copy_parts(t->to, t->to->dim, &t->to->cut, x, t->sent, PACK));
    TT_TRY(call_turn(t, x, out));
    return copy_parts(t->from, t->from->dim, &t->from->cut, out, t->received, UNPACK);
}

tutti_status_t tt_shard_turn(const tt_sharding_t *from, const tt_sharding_t *to, tutti_tensor_t *x,
                             tutti_tensor_t **out)
{
    tutti_shape_t shape = with_size(x->shape, from->dim, from->cut.size);
    shape = with_size(shape, to->dim, own_span(to).count);
    turn_t t = {from, to, NULL, NULL};
    tutti_tensor_t *part;
    TT_TRY(new_like(from, x, shape, &part));
    const tutti_status_t status = has_values(x) ? turn_into(&t, x, part) : TUTTI_OK;
    tutti_tensor_release(t.sent);
    tutti_tensor_release(t.received);
    return give(status, part, out);
}
