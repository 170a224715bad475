/* A digest of the whole module, whose parameters come one at a time (pipeline_collect.c). */
#define XXH_STATIC_LINKING_ONLY /* the state as a value, so that nothing is allocated */
#include <xxhash.h>

#include <stdio.h>

#include "parallel/pipeline/pipeline_impl.h"

static tutti_status_t add_values(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    (void)XXH3_128bits_update(user, tutti_tensor_data(x), tutti_tensor_bytes(x));
    return TUTTI_OK;
}

tutti_status_t tutti_pipeline_digest(tutti_pipeline_t *p, char text[TUTTI_DIGEST_BYTES])
{
    TT_WANT("pipeline_digest", p);
    TT_WANT("pipeline_digest", text);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_128bits_reset(&state);
    TT_TRY(tt_pipeline_each_whole(p, p->param_count, add_values, &state));
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    for (size_t i = 0; i < sizeof digest.digest; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest.digest[i]);
    }
    return TUTTI_OK;
}
