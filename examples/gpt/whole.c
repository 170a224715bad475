/* The whole model on rank 0, as --save and --sample want it: there it is where ranks share the data
 * alone; otherwise rank 0 fills a model of its own, a tensor at a time, with what others have. */
#include "gpt.h"

/* module NULL: another rank's. */
static tutti_status_t take(void *module, const char *name, tutti_tensor_t *x)
{
    return module == NULL ? TUTTI_OK : tutti_tensor_copy(tutti_module_find(module, name), x);
}

typedef struct {
    session_t *session;
    tutti_module_t *whole; /* NULL: another rank's */
} parts_t;

/* Ranks that share the layer put it together. */
static tutti_status_t take_parts(void *user, const char *name, tutti_tensor_t *x)
{
    const parts_t *parts = user;
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(parts->session->ctx, &s));
    tutti_tensor_t *all = tutti_parallel_whole(s, x);
    tutti_status_t status = tutti_tensor_status(all);
    status = status < 0 ? status : take(parts->whole, name, all);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* At stage 3 parameters are here between summon and dismiss alone. */
static tutti_status_t collect_layers(parts_t *parts, tutti_ddp_t *ddp)
{
    TUTTI_CHECK(tutti_ddp_summon(ddp, NULL, false));
    TUTTI_CHECK(tutti_module_each_tensor(parts->session->model, take_parts, parts));
    return tutti_ddp_dismiss(ddp);
}

static tutti_status_t collect(parts_t *parts, tutti_pipeline_t *pipeline, tutti_ddp_t *ddp)
{
    return pipeline != NULL ? tutti_pipeline_collect(pipeline, 0, take, parts->whole)
                            : collect_layers(parts, ddp);
}

tutti_status_t gpt_gather(session_t *session, tutti_pipeline_t *pipeline, tutti_ddp_t *ddp,
                          tutti_module_t **out)
{
    parts_t parts = {.session = session};
    if (pipeline == NULL && !session->is_cut) {
        TUTTI_CHECK(tutti_ddp_unshard(ddp, NULL)); /* of stage 3 */
        *out = tutti_module_retain(session->model);
        return TUTTI_OK;
    }
    if (session->rank == 0) {
        TUTTI_CHECK(gpt_new_model(session, session->ctx, &parts.whole));
    }
    const tutti_status_t status = collect(&parts, pipeline, ddp);
    if (status < 0) {
        tutti_module_release(parts.whole);
        return status;
    }
    *out = parts.whole;
    return TUTTI_OK;
}
