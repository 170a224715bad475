/* The whole module, a tensor at a time: each comes from the rank that has its stage, where the
 * ranks that share its layer put it together. Cost: one tensor is whole at a time, on every rank;
 * at DDP's stage 3 all of a stage. */
#include <tutti/collectives.h>
#include <tutti/tensor_parallel.h>

#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

static tutti_shape_t whole_shape(const tutti_tensor_t *x)
{
    return x->spread != NULL ? x->spread->whole : x->shape;
}

/* Of a parameter that this rank has; ranks that share its layer put it together. */
static tutti_status_t read_whole(tutti_pipeline_t *p, tutti_tensor_t *x, void *to)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(p->ctx, &s));
    const tutti_tensor_t *whole = tutti_parallel_whole(s, x);
    tutti_status_t status = tt_tensor_status(whole);
    status = status < 0 ? status : tt_tensor_read(whole, to);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* Its bytes, from its owner to all; of the host. */
static tutti_status_t fetch(tutti_pipeline_t *p, const tt_pipeline_param_t *param,
                            tutti_tensor_t **out)
{
    tutti_tensor_t *x = param->tensor;
    TT_TRY(tt_tensor_new(p->ctx->cpu, x->dtype, whole_shape(x), false, out));
    tutti_status_t status =
        param->owner == p->rank ? read_whole(p, x, tutti_tensor_data(*out)) : TUTTI_OK;
    if (p->ranks > 1 && status >= 0) {
        status = tutti_broadcast(p->group, *out, param->owner, NULL);
    }
    if (status < 0) {
        tutti_tensor_release(*out);
    }
    return status;
}

static tutti_status_t visit_wholes(tutti_pipeline_t *p, int count, tutti_tensor_visit_t visit,
                                   void *user)
{
    for (int i = 0; i < count; i++) {
        tutti_tensor_t *x;
        TT_TRY(fetch(p, &p->params[i], &x));
        const tutti_status_t status = visit(user, p->params[i].name, x);
        tutti_tensor_release(x);
        TT_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status_t tt_pipeline_each_whole(tutti_pipeline_t *p, int count, tutti_tensor_visit_t visit,
                                      void *user)
{
    TT_TRY(tt_validation_settle(p));
    p->place = (tt_pipeline_place_t){.peer = -1}; /* between steps */
    TT_TRY(tt_pipeline_summon(p));
    const tutti_status_t status = tt_pipeline_dismiss(p, visit_wholes(p, count, visit, user));
    return status < 0 ? tt_pipeline_fail(p, status) : TUTTI_OK;
}

/* ---- to one rank ----------------------------------------------------------------------------- */

typedef struct {
    bool is_asked;
    tutti_tensor_visit_t visit;
    void *user;
} collect_t;

static tutti_status_t visit_there(void *user, const char *name, tutti_tensor_t *x)
{
    const collect_t *collect = user;
    return collect->is_asked ? collect->visit(collect->user, name, x) : TUTTI_OK;
}

tutti_status_t tutti_pipeline_collect(tutti_pipeline_t *p, int to, tutti_tensor_visit_t visit,
                                      void *user)
{
    TT_WANT("pipeline_collect", p);
    if (to < 0 || to >= p->ranks || (visit == NULL && to == p->rank)) {
        return tt_pipeline_fail(p, TT_FAIL(TUTTI_ERR_ARG, "pipeline_collect: rank %d of %d%s", to,
                                           p->ranks, visit == NULL ? ", and no function" : ""));
    }
    collect_t collect = {to == p->rank, visit, user};
    return tt_pipeline_each_whole(p, p->tensor_count, visit_there, &collect);
}
