/* Names and sizes of dtypes. */
#include <tutti/dtype.h>

#include <string.h>

#include "core/base/dtype_names.h"
#include "core/base/fail.h"

typedef struct {
    const char *name, *safetensors;
    size_t bytes;
} dtype_entry_t;

static const dtype_entry_t table[TUTTI_DTYPE_COUNT] = {
#define X(identifier, name, bytes, safetensors) {name, safetensors, bytes},
    TUTTI_DTYPE_LIST(X)
#undef X
};

size_t tutti_dtype_bytes(tutti_dtype_t dtype)
{
    return table[dtype].bytes;
}

const char *tutti_dtype_name(tutti_dtype_t dtype)
{
    return table[dtype].name;
}

const char *tt_dtype_safetensors_name(tutti_dtype_t dtype)
{
    return table[dtype].safetensors;
}

bool tutti_dtype_is_float(tutti_dtype_t dtype)
{
    return dtype <= TUTTI_F16;
}

static tutti_status_t find(const char *text, bool safetensors, tutti_dtype_t *out)
{
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        if (strcmp(text, safetensors ? table[i].safetensors : table[i].name) == 0) {
            *out = (tutti_dtype_t)i;
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG,
                   "unknown dtype \"%s\": want f32, f64, bf16, f16, i64, i32, i8, u8 or bool",
                   text);
}

tutti_status_t tutti_dtype_parse(const char *name, tutti_dtype_t *out)
{
    return find(name, false, out);
}

tutti_status_t tt_dtype_parse_safetensors(const char *name, tutti_dtype_t *out)
{
    return find(name, true, out);
}
