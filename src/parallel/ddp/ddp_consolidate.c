/* An optimizer's state of whole parameters, collected from the ranks that have its slices.
 *
 *     each tensor   memory for it         all ranks agree: one that has none says so here
 *                   how many elements     of each rank, in the order of ranks, which is theirs
 *                   gathered              on one rank or all
 *                   visited               a failure is kept; the others' gathers go on
 *     the end       all ranks agree
 *
 * A rank that fails alone leaves with an agreement, in which the others are then, too.
 */
#include <tutti/sharded.h>

#include <stdio.h>

#include "comm/group/agree.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

typedef struct {
    tutti_ddp_t *ddp;
    bool is_here; /* this rank gets it */
    int to;
    tutti_tensor_visit_t visit;
    void *user;
    tutti_tensor_t *count, *counts; /* [1], [ranks] i64 */
    tutti_status_t status;          /* the first failure of visit, and its text */
    char error[TT_ERROR_TEXT_BYTES];
    bool is_over; /* all ranks have heard of a failure */
} collect_t;

/* One tensor on its way. */
typedef struct {
    tutti_tensor_t *host, *part; /* this rank's elements; part: in a row */
    tutti_tensor_t *whole, *row; /* all of them, where they are wanted; row: in a row */
} way_t;

static tutti_status_t in_a_row(const tutti_tensor_t *x, tutti_tensor_t **out)
{
    return tt_tensor_over(x->storage, x->dtype, TUTTI_SHAPE(x->numel), NULL, x->offset, out);
}

static tutti_status_t open_way(const collect_t *c, const tt_optim_kept_t *kept, way_t *way)
{
    TT_TRY(kept->tensor != NULL ? tt_tensor_on_host(kept->tensor, &way->host)
                                : tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(0), &way->host));
    TT_TRY(in_a_row(way->host, &way->part));
    *(int64_t *)tutti_tensor_data(c->count) = way->part->numel;
    if (!c->is_here) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_tensor_create(TUTTI_F32, kept->whole, &way->whole));
    return in_a_row(way->whole, &way->row);
}

static void close_way(const way_t *way)
{
    tutti_tensor_release(way->row);
    tutti_tensor_release(way->whole);
    tutti_tensor_release(way->part);
    tutti_tensor_release(way->host);
}

/* Ranks that stepped slices of another layout have what does not fit together. */
static tutti_status_t check_counts(const collect_t *c, const tt_optim_kept_t *kept)
{
    const int64_t *counts = tutti_tensor_data(c->counts);
    int64_t sum = 0;
    for (int64_t r = 0; r < c->counts->numel; r++) {
        sum += counts[r];
    }
    return sum == tutti_shape_numel(kept->whole)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp_consolidate: ranks have %lld elements of \"%s\", which has %lld: its "
                         "state is of other slices than this ddp's",
                         (long long)sum, kept->name, (long long)tutti_shape_numel(kept->whole));
}

static tutti_status_t gather(const collect_t *c, const way_t *way)
{
    tutti_group_t *group = c->ddp->group;
    const int64_t *counts = tutti_tensor_data(c->counts);
    return c->to < 0 ? tutti_all_gather_uneven(group, way->row, way->part, counts, NULL)
                     : tutti_gather_uneven(group, way->row, way->part, counts, c->to, NULL);
}

/* A call that fails here may do so here alone, and others wait in it. */
static tutti_status_t move(const collect_t *c, const tt_optim_kept_t *kept, const way_t *way)
{
    tutti_group_t *group = c->ddp->group;
    tutti_status_t status = tutti_all_gather(group, c->counts, c->count, NULL);
    if (status >= 0) {
        TT_TRY(check_counts(c, kept)); /* on all ranks alike */
        status = gather(c, way);
    }
    return status < 0 ? tt_group_give_up(group, status) : TUTTI_OK;
}

static void keep_failure(collect_t *c, tutti_status_t status)
{
    c->status = status;
    snprintf(c->error, sizeof c->error, "%s", status < 0 ? tutti_last_error() : "");
}

static void show(collect_t *c, const char *name, tutti_tensor_t *x)
{
    if (c->is_here && c->status >= 0) {
        keep_failure(c, c->visit(c->user, name, x));
    }
}

static tutti_status_t check_own(const tt_optim_kept_t *kept)
{
    return kept->tensor != NULL && kept->tensor->numel == tutti_shape_numel(kept->whole)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp_consolidate: this rank has a slice of \"%s\", whose parameter "
                         "options.ignored names: another ddp dealt it out",
                         kept->name);
}

/* Of a parameter that is left alone each rank has its own, of its own shape. */
static void show_own(collect_t *c, const tt_optim_kept_t *kept)
{
    if (c->is_here && c->status >= 0 && check_own(kept) < 0) {
        keep_failure(c, TUTTI_ERR_STATE);
    }
    show(c, kept->name, kept->tensor);
}

static tutti_status_t collect(void *user, const tt_optim_kept_t *kept)
{
    collect_t *c = user;
    way_t way = {0};
    if (kept->is_common) {
        show(c, kept->name, kept->tensor);
        return TUTTI_OK;
    }
    if (tt_ddp_is_ignored(c->ddp, kept->parameter)) {
        show_own(c, kept);
        return TUTTI_OK;
    }
    tutti_status_t status = tt_group_agree(c->ddp->group, open_way(c, kept, &way));
    status = status < 0 ? status : move(c, kept, &way);
    c->is_over = status < 0;
    if (status >= 0) {
        show(c, kept->name, way.whole);
    }
    close_way(&way);
    return status;
}

static tutti_status_t open_counts(collect_t *c)
{
    const int64_t ranks = tutti_group_size(c->ddp->group);
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &c->count));
    return tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(ranks), &c->counts);
}

static tutti_status_t collect_all(collect_t *c, tutti_optim_t *opt)
{
    tutti_status_t status = open_counts(c);
    status = status < 0 ? status : tt_optim_each_kept(opt, collect, c);
    if (c->is_over) {
        return status;
    }
    if (status >= 0 && c->status < 0) {
        status = tt_fail_again(c->status, c->error);
    }
    return tt_group_agree(c->ddp->group, status);
}

static tutti_status_t check_call(const tutti_ddp_t *ddp, int to)
{
    const int size = tutti_group_size(ddp->group);
    if (to < -1 || to >= size) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp_consolidate: rank %d; want 0 to %d, or -1 for all", to,
                       size - 1);
    }
    return ddp->step.phase == TT_DDP_BETWEEN_STEPS
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "ddp_consolidate in the middle of a step");
}

tutti_status_t tutti_ddp_consolidate(tutti_ddp_t *ddp, tutti_optim_t *opt, int to,
                                     tutti_tensor_visit_t visit, void *user)
{
    TT_TRY(check_call(ddp, to));
    collect_t c = {.ddp = ddp,
                   .is_here = to < 0 || to == tutti_group_rank(ddp->group),
                   .to = to,
                   .visit = visit,
                   .user = user};
    tutti_status_t status;
    if (ddp->options.stage == 0) { /* every rank has all */
        status = tt_group_agree(ddp->group,
                                c.is_here ? tutti_optim_each_state(opt, visit, user) : TUTTI_OK);
    } else {
        status = collect_all(&c, opt);
    }
    tutti_tensor_release(c.count);
    tutti_tensor_release(c.counts);
    return status;
}
