/* The inside of a module: its tensors and its children, by name, in the order of registration. */
#ifndef TT_MODULE_IMPL_H
#define TT_MODULE_IMPL_H

#include <tutti/nn.h>

#include "compute/autograd/hook_list.h"
#include "core/base/fail.h"
#include "core/base/pointer_set.h"
#include "core/base/ref.h"
#include "core/base/rng.h"
#include "core/tensor/storage.h"

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

/* Part [first, first + count) of `of` equal ones; of 0: all. */
typedef struct {
    int64_t first, count, of;
} tt_share_t;

/* What a rank has of a module that is spread over several (src/parallel/tensor); it goes with the
 * module. Dropout draws as the whole would. */
typedef struct tt_module_cut {
    void (*release)(struct tt_module_cut *cut);
    /* A call of the module failed, perhaps before its hooks; NULL: nobody waits for it. */
    void (*give_up)(struct tt_module_cut *cut, tutti_status_t status);
    struct tt_module_cut *next; /* more that goes with the module, and nobody looks at */
    tt_share_t positions;       /* of the result's dimension but one from the last */
    tt_share_t heads;           /* of an attention's */
    tt_share_t columns;         /* of the result's last dimension, as indices of the whole */
} tt_module_cut_t;

struct tutti_module {
    tt_ref_t ref;
    const tutti_module_ops_t *ops;
    tutti_context_t *ctx; /* retained */
    void *state;
    tt_slot_t *slots; /* room for a power of two, as of children */
    size_t slot_count;
    tt_child_t *children;
    size_t child_count;
    tt_pointer_set_t hashes; /* of the names, where they are many */
    size_t names_compared;   /* ever */
    tt_hook_list_t hooks;    /* module_hooks.c */
    tt_module_cut_t *cut;    /* NULL: it is whole */

    /* Its number in a profile, and that of the one around it then (module_forward.c). */
    uint32_t profiled, profiled_within;
};

/* The stream of the context's next parameter. */
tt_rng_t tt_init_next(tutti_context_t *ctx);

/* Fill a contiguous f32 tensor with initial values: numbers of `init`, by its rng. */
tutti_status_t tt_init_fill(tutti_context_t *ctx, tutti_tensor_t *x, const tt_initializer_t *init);

/* What fills: with numbers a and b, and the kind in the third place. */
tt_initializer_t tt_init_filler(tutti_context_t *ctx, tutti_init_t init);

/* Run it, or remember it where x lies on meta: nothing is drawn there. */
tutti_status_t tt_init_run(tutti_context_t *ctx, tutti_tensor_t *x, tt_initializer_t init);

/* Of a tensor on meta: whether its initial values can be made. Errors: ARG (a part), STATE. And
 * they are, in memory of a device (NULL: the host's), as a tensor like x, owned by the caller. x is
 * left alone: it needs no memory, not even meta's. */
tutti_status_t tt_init_check_known(const tutti_tensor_t *x, const char *name);
tutti_status_t tt_init_make(tutti_context_t *ctx, const tutti_tensor_t *x, tutti_device_t *device,
                            tutti_tensor_t **out);

/* A tensor on meta that is whole takes over the memory of one of its dtype and shape; its gradient
 * is forgotten. */
tutti_status_t tt_leave_meta(tutti_tensor_t *x, tutti_tensor_t *made);

/* Loading a module's tensor: what lies on meta can get memory on `device` (ARG names it); what is
 * read into, which is x itself or such memory; x has it, if reading went well. The end hands the
 * status on. */
tutti_status_t tt_load_check(tutti_tensor_t *x, const char *name, tutti_device_t *device);
tutti_status_t tt_load_begin(tutti_tensor_t *x, tutti_device_t *device, tutti_tensor_t **into);
tutti_status_t tt_load_end(tutti_tensor_t *x, tutti_tensor_t *into, tutti_status_t status);

/* Buffers alone, as tutti_module_cast(), those that `is_cast` says; dtype: a floating one. */
tutti_status_t tt_module_cast_buffers(tutti_module_t *m, tutti_dtype_t dtype,
                                      bool (*is_cast)(const void *user, const tutti_tensor_t *x),
                                      const void *user);

/* tutti_module_digest(); `before` (may be NULL) is called with each parameter before it is read. */
tutti_status_t tt_module_digest(tutti_module_t *m, tutti_tensor_visit_t before, void *user,
                                char *text);

/* Dropout of a module's result. */
tutti_tensor_t *tt_module_dropout(tutti_scope_t *s, const tutti_module_t *m, tutti_tensor_t *y,
                                  float p);

/* Every kind of module in layers.def. */
extern const tutti_module_ops_t *const tt_layers[];
extern const size_t tt_layer_count;

#endif
