/* The inside of a tensor, a storage, a scope and a context. For the library only. */
#ifndef TT_TENSOR_IMPL_H
#define TT_TENSOR_IMPL_H

#include <tutti/tensor.h>

#include "core/base/fail.h"
#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"
#include "core/tensor/slice.h"
#include "core/tensor/spread.h"
#include "core/tensor/storage.h"

/* What compute/autograd attaches to a tensor; core knows only how to let it go. */
typedef struct tt_meta {
    void (*release)(struct tt_meta *meta);
} tt_meta_t;

struct tutti_tensor {
    tt_ref_t ref;
    tutti_status_t status; /* of a null tensor */
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    int64_t strides[TUTTI_RANK_MAX];
    int64_t offset; /* elements from the start of the storage */
    int64_t numel;
    tt_storage_t *storage;
    uint32_t changes; /* of the storage, when this tensor was made, or changed in place itself */
    tt_meta_t *meta;
    tt_tensor_part_t *part;   /* it is a row of another one; NULL: of none */
    tt_tensor_slice_t *slice; /* what this rank steps of it, borrowed; NULL: all */
    tt_spread_t *spread;      /* it is a part of a whole; NULL: it is one */
    const char *decides;      /* the call that says whether what was last written to it stays, a
                                 literal; NULL: it does */
};

struct tutti_scope {
    tutti_tensor_t null; /* stands for every result after a failure; who retains it keeps the
                            scope's memory, so it comes first */
    tutti_context_t *ctx;
    tutti_scope_t *parent;
    int inner_count; /* scopes opened inside that still need this one */
    bool is_closed;  /* too early: kept for those inside */
    tutti_tensor_t **tensors;
    size_t count, capacity;
    char error[TT_ERROR_TEXT_BYTES];
};

/* Where operations are computed, and the tensors that they make live. */
typedef struct {
    tt_device_t *device;      /* of the memory */
    tt_device_t *accelerator; /* the same, or NULL: the host */
    tt_exec_t *exec;
} tt_place_t;

/* A module whose forward is under way, inside that of `outer`. */
typedef struct tt_module_frame {
    const struct tt_module_frame *outer;
    const void *module;
    size_t (*write)(const struct tt_module_frame *frame, char *text, size_t bytes); /* its path */
    uint32_t profiled; /* its number in a profile; 0: there is none */
} tt_module_frame_t;

struct tutti_context {
    tt_ref_t ref;
    tt_exec_t exec;    /* the host's: its threads */
    tt_device_t *cpu;  /* the host's memory */
    tt_device_t *home; /* where what has no inputs is made: an accelerator, or NULL */
    tt_place_t place;  /* where is computed: home's, or an operation's that is under way */
    uint64_t seed;
    int64_t step, shard;
    uint64_t random_calls;    /* random operations in this (step, shard): part of their names */
    uint64_t node_sequence;   /* graph nodes made so far */
    uint64_t parameter_count; /* parameters made so far: part of their streams' names */
    bool is_training, is_grad_enabled, detects_anomaly;
    tutti_dtype_t autocast;
    const tt_module_frame_t *frame; /* the innermost; NULL: no module runs */
    /* Of compute/autograd: */
    struct tt_run *backward;          /* the backward that executes */
    struct tt_run *waiting_backwards; /* those that others have to go on with */
    struct tt_keeper *keeper;         /* of what operations save; NULL: nobody but their nodes */
    struct tt_keeper *refilled;       /* the region that is computed again: nothing is recorded */
    bool is_recomputing;              /* the latter; or, of a replica, its caller does */
    tutti_idle_t *idle; /* called between pieces of work, so that others make progress */
};

/* What is computed from now on is on a device (NULL: the host). Returns where it was: the caller
 * puts that back into ctx->place. */
static inline tt_place_t tt_context_enter(tutti_context_t *ctx, tt_device_t *accelerator)
{
    const tt_place_t before = ctx->place;
    if (accelerator != before.accelerator) {
        ctx->place = accelerator == NULL
                         ? (tt_place_t){ctx->cpu, NULL, &ctx->exec}
                         : (tt_place_t){accelerator, accelerator, tt_device_exec(accelerator)};
    }
    return before;
}

/* Between two pieces of work: calls all that were added, in no order to rely on. */
static inline void tt_context_idle(const tutti_context_t *ctx)
{
    for (const tutti_idle_t *idle = ctx->idle; idle != NULL; idle = idle->next) {
        idle->call(idle->user);
    }
}

/* A contiguous tensor over a device's memory (NULL: plain memory); owned by the caller. */
tutti_status_t tt_tensor_new(tt_device_t *device, tutti_dtype_t dtype, tutti_shape_t shape,
                             bool zeroed, tutti_tensor_t **out);

/* A tensor over a storage (retained): any strides (NULL: row-major), offset in elements. Owned by
 * the caller. */
tutti_status_t tt_tensor_over(tt_storage_t *storage, tutti_dtype_t dtype, tutti_shape_t shape,
                              const int64_t *strides, int64_t offset, tutti_tensor_t **out);

/* Another tensor over the same memory, without history. Owned by the caller. */
tutti_status_t tt_tensor_alias(const tutti_tensor_t *x, tutti_tensor_t **out);

/* Release `count` tensors, which may be NULL as their array may, and forget them. */
void tt_tensors_release(tutti_tensor_t **tensors, size_t count);

/* The failure that a null tensor stands for, with its text. */
tutti_status_t tt_tensor_status(const tutti_tensor_t *x);

/* Before its values are read or written. Errors: those of a null tensor; STATE: its storage is not
 * present, with the tensor's name (NULL: it has none); or it is a result that is not there yet. */
tutti_status_t tt_tensor_check_named(const tutti_tensor_t *x, const char *name);
static inline bool tt_tensor_is_absent(const tutti_tensor_t *x)
{
    return x->storage == NULL || x->storage->away != NULL || x->status < 0;
}
static inline tutti_status_t tt_tensor_check(const tutti_tensor_t *x)
{
    return tt_tensor_is_absent(x) ? tt_tensor_check_named(x, NULL) : TUTTI_OK;
}

/* Before a module's values are kept as those of its last step, or written. Errors: STATE (that may
 * be undone yet), with the tensor's name. */
tutti_status_t tt_tensor_check_decided(const tutti_tensor_t *x, const char *name);

/* Hand an owned tensor to a scope; a negative status records the failure instead. */
tutti_tensor_t *tt_scope_adopt(tutti_scope_t *s, tutti_status_t status, tutti_tensor_t *x);

/* Every output is the scope's null tensor. */
static inline void tt_fail_outputs(tutti_scope_t *s, tutti_status_t status,
                                   tutti_tensor_t **outputs, int count)
{
    tutti_tensor_t *failed = tutti_scope_fail(s, status);
    for (int i = 0; i < count && outputs != NULL; i++) {
        outputs[i] = failed;
    }
}

/* Row-major strides of a shape. */
void tt_shape_strides(tutti_shape_t shape, int64_t *strides);

/* ARG unless rank is 0…8, no size is negative and the bytes fit. */
tutti_status_t tt_shape_check(tutti_dtype_t dtype, tutti_shape_t shape);

/* The first element of a tensor that is present: an address that kernels are given, and nobody else
 * uses. The host reads and writes by tutti_tensor_data(), which is NULL for a device's memory. */
static inline void *tt_tensor_data(const tutti_tensor_t *x)
{
    return (char *)x->storage->data + x->offset * (int64_t)tutti_dtype_bytes(x->dtype);
}

/* For functions of several operations that make tensors beside x: these lie where it lies. Returns
 * what tt_context_enter() does. */
static inline tt_place_t tt_context_enter_beside(tutti_context_t *ctx, const tutti_tensor_t *x)
{
    return tt_context_enter(ctx, x->storage == NULL ? NULL : x->storage->device);
}

/* Where kernels on its memory are launched; of the host's, with the threads of a context. */
static inline tt_exec_t *tt_tensor_exec(tutti_context_t *ctx, const tutti_tensor_t *x)
{
    return x->storage->device == NULL ? &ctx->exec : tt_device_exec(x->storage->device);
}

/* The device whose memory a tensor beside x is made of. */
static inline tt_device_t *tt_memory_of(const tutti_context_t *ctx, const tutti_tensor_t *x)
{
    return x->storage->device == NULL ? ctx->cpu : x->storage->device;
}

/* A device as tt_tensor_new() takes it: NULL for the host's memory, by whatever name. */
static inline tt_device_t *tt_memory_on(tt_device_t *device)
{
    return device != NULL && tt_device_is_accelerator(device) ? device : NULL;
}

/* A device's name: "the host" for NULL. */
static inline const char *tt_device_text(const tt_device_t *device)
{
    return device == NULL ? "the host" : tutti_device_name(device);
}

/* Its values into memory of the host, contiguous and in its dtype. Waits for its device. Errors:
 * those of tt_tensor_check(); NOMEM; of the device's work. */
tutti_status_t tt_tensor_read(const tutti_tensor_t *x, void *host);

/* The same as a tensor, owned by the caller: over x's own memory, if that is the host's and x is
 * contiguous. */
tutti_status_t tt_tensor_on_host(const tutti_tensor_t *x, tutti_tensor_t **out);

/* What kernels see. */
tt_strided_t tt_tensor_strided(const tutti_tensor_t *x);

/* The same memory broadcast to a larger shape (trailing dimensions align; the caller checked). */
tt_strided_t tt_tensor_strided_as(const tutti_tensor_t *x, tutti_shape_t shape);

/* A dimension counted from either end, as an index; -1 if it is outside. */
int tt_dim_index(int dim, int rank);

/* Two tensors of one shape take over each other's memory and dtype: a holder of one still does.
 */
void tt_tensor_swap(tutti_tensor_t *x, tutti_tensor_t *y);

/* x takes over the memory, shape and spread of another tensor: all who hold it see that. */
void tt_tensor_become(tutti_tensor_t *x, tutti_tensor_t *other);

/* Values of `from` in the dtype of `to`, which has its shape. Errors: those of a launch, none on a
 * CPU. */
TT_LAUNCHES tutti_status_t tt_tensor_convert(tt_exec_t *exec, tutti_tensor_t *to,
                                             const tutti_tensor_t *from);

/* The same at once, of memory of the host. */
void tt_tensor_convert_now(tt_threads_t *threads, tutti_tensor_t *to, const tutti_tensor_t *from);

/* On meta, instead of writing all values: remember how they are made, if x is contiguous and its
 * whole storage. It counts as written. */
tutti_status_t tt_tensor_keep(tutti_tensor_t *x, const tt_initializer_t *initializer);

/* Whether it is contiguous, and its storage holds nothing else. */
bool tt_tensor_is_whole(const tutti_tensor_t *x);

/* Tell autograd that the values changed. */
void tt_tensor_touch(tutti_tensor_t *x);

/* Where kernels run. */
static inline tt_exec_t *tt_scope_exec(const tutti_scope_t *s)
{
    return s->ctx->place.exec;
}

/* The threads of kernels that are not launched. */
static inline tt_threads_t *tt_scope_threads(const tutti_scope_t *s)
{
    return s->ctx->exec.threads;
}

#endif
