/* A digest of the whole module: each parameter comes from the rank that has its stage, where the
 * ranks that share its layer put it together. Cost: one parameter is whole at a time; at DDP's
 * stage 3 all of a stage. */
#define XXH_STATIC_LINKING_ONLY /* the state as a value, so that nothing is allocated */
#include <xxhash.h>

#include <tutti/collectives.h>
#include <tutti/tensor_parallel.h>

#include <stdio.h>

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

/* A parameter's bytes, from its owner to all; of the host. */
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

static tutti_status_t digest_params(tutti_pipeline_t *p, XXH3_state_t *state)
{
    for (int i = 0; i < p->param_count; i++) {
        tutti_tensor_t *x;
        TT_TRY(fetch(p, &p->params[i], &x));
        (void)XXH3_128bits_update(state, tutti_tensor_data(x), tutti_tensor_bytes(x));
        tutti_tensor_release(x);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_pipeline_digest(tutti_pipeline_t *p, char text[TUTTI_DIGEST_BYTES])
{
    TT_WANT("pipeline_digest", p);
    TT_WANT("pipeline_digest", text);
    TT_TRY(tt_validation_settle(p));
    p->place = (tt_pipeline_place_t){.peer = -1}; /* between steps */
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_128bits_reset(&state);
    TT_TRY(tt_pipeline_summon(p));
    const tutti_status_t status = tt_pipeline_dismiss(p, digest_params(p, &state));
    if (status < 0) {
        return tt_pipeline_fail(p, status);
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    for (size_t i = 0; i < sizeof digest.digest; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest.digest[i]);
    }
    return TUTTI_OK;
}
