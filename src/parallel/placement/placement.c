/* Placements as values: making, checking, describing them. */
#include "parallel/placement/placement_impl.h"

#include <stdio.h>

#include "core/kernel/reduce/tree.h"
#include "core/tensor/tensor_impl.h"

tutti_placement_t tutti_replicate(void)
{
    return (tutti_placement_t){.kind = TUTTI_PLACEMENT_REPLICATE};
}

tutti_placement_t tutti_shard(int dim)
{
    return tutti_shard_of(dim, 0);
}

tutti_placement_t tutti_shard_of(int dim, int64_t size)
{
    return (tutti_placement_t){.kind = TUTTI_PLACEMENT_SHARD, .dim = dim, .size = size};
}

tutti_placement_t tutti_partial(tutti_reduction_t op)
{
    return (tutti_placement_t){.kind = TUTTI_PLACEMENT_PARTIAL, .op = op};
}

static tutti_status_t check_leaves(const tutti_placement_t *p, int ranks)
{
    if (p->leaves < 0 || p->leaves > TT_TREE_LEAVES_MAX || (p->leaves > 0 && p->leaves < ranks)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "placement: %d leaves on %d ranks: want at least one for each rank, at most "
                       "%d",
                       p->leaves, ranks, TT_TREE_LEAVES_MAX);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_placement_part(const tutti_placement_t *shard, int64_t size, int ranks,
                                    int rank, int64_t *begin, int64_t *count)
{
    TT_WANT("placement_part", shard);
    TT_WANT("placement_part", begin);
    TT_WANT("placement_part", count);
    if (shard->kind != TUTTI_PLACEMENT_SHARD || size < 0 || rank < 0 || rank >= ranks) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "placement_part: rank %d of %d, size %lld: want a shard, a rank below the "
                       "ranks, and a size of at least 0",
                       rank, ranks, (long long)size);
    }
    TT_TRY(check_leaves(shard, ranks));
    const tt_cut_t cut = {size, shard->leaves > 0 ? shard->leaves : ranks, ranks};
    const tt_span_t part = tt_cut_rank(&cut, rank);
    *begin = part.begin;
    *count = part.count;
    return TUTTI_OK;
}

size_t tutti_placement_describe(const tutti_placement_t *p, char *text, size_t bytes)
{
    switch (p->kind) {
    case TUTTI_PLACEMENT_REPLICATE:
        return (size_t)snprintf(text, bytes, "replicate");
    case TUTTI_PLACEMENT_SHARD:
        return (size_t)snprintf(text, bytes, "shard(%d)", p->dim);
    case TUTTI_PLACEMENT_PARTIAL:
        return (size_t)snprintf(text, bytes, "partial(%s)", tutti_reduction_name(p->op));
    default:
        return (size_t)snprintf(text, bytes, "placement %d", (int)p->kind);
    }
}

static tutti_status_t check_one(const tutti_placement_t *p, int ranks)
{
    if (p->kind != TUTTI_PLACEMENT_REPLICATE && p->kind != TUTTI_PLACEMENT_SHARD &&
        p->kind != TUTTI_PLACEMENT_PARTIAL) {
        return TT_FAIL(TUTTI_ERR_ARG, "redistribute: %d is no kind of placement", (int)p->kind);
    }
    if (p->kind == TUTTI_PLACEMENT_PARTIAL &&
        (p->op < 0 || p->op >= TUTTI_REDUCTION_COUNT || p->op == TUTTI_PREMUL_SUM ||
         p->op == TUTTI_CUSTOM)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "redistribute: partial(%s): want a reduction that needs no "
                       "more than its name",
                       tutti_reduction_name(p->op));
    }
    return p->kind == TUTTI_PLACEMENT_SHARD ? check_leaves(p, ranks) : TUTTI_OK;
}

static tutti_status_t fail_pair(const tutti_redistribution_t *how, const char *why)
{
    char from[40], to[40], grad[40];
    (void)tutti_placement_describe(&how->from, from, sizeof from);
    (void)tutti_placement_describe(&how->to, to, sizeof to);
    (void)tutti_placement_describe(&how->grad, grad, sizeof grad);
    return TT_FAIL(TUTTI_ERR_ARG, "redistribute: %s to %s with a gradient that is %s: %s", from, to,
                   grad, why);
}

tutti_status_t tt_placed_check(const tutti_redistribution_t *how, int ranks)
{
    const tutti_placement_t *from = &how->from, *to = &how->to, *grad = &how->grad;
    TT_TRY(check_one(from, ranks));
    TT_TRY(check_one(to, ranks));
    TT_TRY(check_one(grad, ranks));
    if (from->kind == TUTTI_PLACEMENT_PARTIAL && to->kind == TUTTI_PLACEMENT_PARTIAL) {
        return fail_pair(how, "what is partial is reduced, or stays as it is without a call");
    }
    if (to->kind == TUTTI_PLACEMENT_PARTIAL && to->op != TUTTI_SUM) {
        return fail_pair(how, "what is whole can become a sum alone");
    }
    if (grad->kind == TUTTI_PLACEMENT_PARTIAL && grad->op != TUTTI_SUM) {
        return fail_pair(how, "a gradient can be partial(sum) alone");
    }
    return (grad->kind == TUTTI_PLACEMENT_REPLICATE || to->kind == grad->kind ||
            (grad->kind == TUTTI_PLACEMENT_PARTIAL && to->kind == TUTTI_PLACEMENT_REPLICATE))
               ? TUTTI_OK
               : fail_pair(how, "the gradient of a shard is that shard's, and nothing else is one");
}

/* What the gradient of a value placed so is by itself. */
static tutti_placement_t as_grad(const tutti_placement_t *p)
{
    return p->kind == TUTTI_PLACEMENT_SHARD ? *p : tutti_replicate();
}

static bool is_other_cut(const tutti_placement_t *a, const tutti_placement_t *b)
{
    return a->kind == TUTTI_PLACEMENT_SHARD && b->kind == TUTTI_PLACEMENT_SHARD &&
           a->dim == b->dim && a->leaves != b->leaves;
}

tutti_status_t tt_placed_resolved(const tutti_redistribution_t *how, tt_placed_t *out)
{
    if (is_other_cut(&how->from, &how->to)) {
        return fail_pair(how, "a dimension is cut into other leaves by way of replicate");
    }
    if (how->grad.kind == TUTTI_PLACEMENT_SHARD &&
        (how->grad.dim != how->to.dim || is_other_cut(&how->grad, &how->to))) {
        return fail_pair(how, "the gradient of a shard is that shard's");
    }
    *out = (tt_placed_t){how->from, how->to,
                         how->to.kind == TUTTI_PLACEMENT_SHARD ? how->to : how->grad};
    return TUTTI_OK;
}

tt_placed_t tt_placed_adjoint(const tt_placed_t *p)
{
    return (tt_placed_t){.from = p->grad, .to = as_grad(&p->from), .grad = as_grad(&p->from)};
}
