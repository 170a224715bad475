/* The inside of a module: its tensors and its children, by name, in the order of registration. */
#ifndef TT_MODULE_IMPL_H
#define TT_MODULE_IMPL_H

#include <tutti/nn.h>

#include "compute/autograd/hook_list.h"
#include "core/base/fail.h"
#include "core/base/ref.h"
#include "core/base/rng.h"

enum { TT_MODULE_NAME_BYTES = 512 };

typedef struct {
    char *name;
    tutti_tensor_t *tensor;
    bool is_buffer;
} tt_slot_t;

typedef struct {
    char *name; /* "" adds no level */
    tutti_module_t *module;
} tt_child_t;

struct tutti_module {
    tt_ref_t ref;
    const tutti_module_ops_t *ops;
    tutti_context_t *ctx; /* retained */
    void *state;
    tt_slot_t *slots;
    size_t slot_count;
    tt_child_t *children;
    size_t child_count;
    tt_hook_list_t hooks; /* module_hooks.c */
};

/* The stream of parameter number `index` of a context. */
tt_rng_t tt_init_stream(const tutti_context_t *ctx, uint64_t index);

/* Fill a contiguous f32 tensor with initial values; the stream is named by (seed, index). */
tutti_status_t tt_init_fill(tutti_context_t *ctx, tutti_init_t init, uint64_t index,
                            tutti_tensor_t *x);

/* Buffers alone, as tutti_module_cast(); dtype: a floating one. */
tutti_status_t tt_module_cast_buffers(tutti_module_t *m, tutti_dtype_t dtype);

/* Every kind of module in layers.def. */
extern const tutti_module_ops_t *const tt_layers[];
extern const size_t tt_layer_count;

#endif
