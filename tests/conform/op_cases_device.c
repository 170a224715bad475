/* Cases of devices.h. */
#include <tutti/devices.h>
#include <tutti/op_math.h>

#include "op_cases.h"

/* There and back. */
static void call_to(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_device_t *device;
    if (tutti_device_open("strict:9", NULL, &device) < 0) {
        out[0] = tutti_scope_fail(s, TUTTI_ERR_NOMEM);
        return;
    }
    out[0] = tutti_tensor_to(s, tutti_tensor_to(s, in[0], device), NULL);
    tutti_device_release(device);
}

static const double counting[] = {0, 1, 2, 3, 4, 5};

const op_case_t op_cases_device[] = {
    {.op = "to",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = counting}},
     .call = call_to,
     .copies = true,
     .expected = counting,
     .expected_shape = SHAPE(2, 3)},
    {.op = "to",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_to,
     .copies = true,
     .expected = counting,
     .expected_shape = SHAPE(0, 3)},
};

/* Two inputs on two devices. */
static void call_mixed(tutti_scope_t *s)
{
    tutti_tensor_t *out,
        *in[] = {tutti_tensor_to(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2)), NULL)};
    tutti_device_t *device;
    if (tutti_device_open("strict:9", NULL, &device) >= 0) {
        out = tutti_tensor_to(s, in[0], device);
        (void)tutti_add(s, in[0], out);
        tutti_device_release(device);
    }
}

const op_error_t op_errors_device[] = {
    {"to", call_mixed,
     "add: input 0, f32[2], lies on the host, and input 1, f32[2], on strict:9: tutti_tensor_to() "
     "brings one to the other"},
};

OP_CASE_LISTS(device);
