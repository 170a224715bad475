/* Digest of a module: XXH3-128 over the bytes of its parameters, row-major, in the order of their
 * registration. Two runs that should agree to the bit are compared by this one line.
 */
#define XXH_STATIC_LINKING_ONLY /* the state as a value, so that nothing is allocated */
#include <xxhash.h>

#include <tutti/devices.h>
#include <tutti/nn.h>

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"
#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    XXH3_state_t state;
    tutti_tensor_visit_t before;
    void *user;
} digest_t;

static tutti_status_t add_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    digest_t *digest = user;
    TT_TRY(digest->before != NULL ? digest->before(digest->user, name, x) : TUTTI_OK);
    TT_TRY(tt_tensor_check_named(x, name));
    TT_TRY(tt_tensor_check_decided(x, name));
    const size_t bytes = tutti_tensor_bytes(x);
    if (tutti_tensor_device(x) == NULL && tutti_tensor_is_contiguous(x)) {
        (void)XXH3_128bits_update(&digest->state, tutti_tensor_data(x), bytes);
        return TUTTI_OK;
    }
    void *values = tt_alloc_raw(bytes, "digest");
    TT_TRY_ALLOC(values);
    const tutti_status_t status = tt_tensor_read(x, values);
    (void)XXH3_128bits_update(&digest->state, values, bytes);
    tt_free(values);
    return status;
}

tutti_status_t tt_module_digest(tutti_module_t *m, tutti_tensor_visit_t before, void *user,
                                char *text)
{
    digest_t digest = {.before = before, .user = user};
    XXH3_INITSTATE(&digest.state);
    (void)XXH3_128bits_reset(&digest.state);
    TT_TRY(tutti_module_each_parameter(m, add_tensor, &digest));
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&digest.state));
    for (size_t i = 0; i < sizeof bytes.digest; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes.digest[i]);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_module_digest(tutti_module_t *m, char text[TUTTI_DIGEST_BYTES])
{
    TT_WANT("module_digest", m);
    return tt_module_digest(m, NULL, NULL, text);
}
