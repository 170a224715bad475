/**
 * @file nn.h
 * Modules: named parameters, their initial values, and a forward pass over them. Ready-made ones
 * are in nn_layers.h.
 *
 * A module of your own, made of two others. Example:
 *
 *     typedef struct { tutti_module_t *up, *down; } net_t;
 *
 *     static tutti_status_t net_init(tutti_module_t *m, const void *options)
 *     {
 *         net_t *net = tutti_module_state(m);
 *         TUTTI_CHECK(tutti_module_new_child(m, "up", &tutti_linear_layer,
 *             &(tutti_linear_options_t){.in = 784, .out = 256}, &net->up));
 *         return tutti_module_new_child(m, "down", &tutti_linear_layer,
 *             &(tutti_linear_options_t){.in = 256, .out = 10}, &net->down);
 *     }
 *
 *     static tutti_tensor_t *net_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
 *     {
 *         net_t *net = tutti_module_state(m);
 *         return tutti_forward(s, net->down, tutti_relu(s, tutti_forward(s, net->up, x)));
 *     }
 *
 *     static const tutti_module_ops_t net_ops = {
 *         .name = "net", .state_bytes = sizeof(net_t), .init = net_init, .forward = net_forward};
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &net_ops, NULL, &net));
 *     tutti_tensor_t *y = tutti_forward(s, net, x);
 *
 * Parameters are called as in PyTorch's state_dict, "up.weight", and come in the order of their
 * registration: a module's own ones first, then those of its children. Whether modules train
 * (dropout) is the context's affair, not the module's. Initial values are a function of the
 * context's seed and of how many parameters were made from it before.
 */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H

#include <tutti/autograd.h>
#include <tutti/safetensors.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parameters, buffers, children and a forward pass; reference-counted, one thread at a time. */
typedef struct tutti_module tutti_module_t;

/** A module in a chain of them. */
typedef struct tutti_chain_link {
    tutti_module_t *module; /**< borrowed */
    int outputs;            /**< how many tensors it gives to the next; 0: 1 */
    bool is_recomputed;     /**< it is called by tutti_recompute_many() (modes.h) */
} tutti_chain_link_t;

/** What a kind of module can do. All but `name` may be left out; a module that is called needs
 *  `forward` or `forward_many`. */
typedef struct tutti_module_ops {
    const char *name;   /**< "linear" */
    const char *about;  /**< one line */
    size_t state_bytes; /**< of zeroed memory that tutti_module_state() gives */

    /** Check the options and register parameters and children. On failure what was registered is
     *  released, and `fini` is called. */
    tutti_status_t (*init)(tutti_module_t *m, const void *options);

    /** Release what the state owns by itself; parameters and children are the module's. */
    void (*fini)(tutti_module_t *m);

    /** One tensor in, one out. The scope is the module's own: what is made in it and not returned
     *  lives only as long as the graph needs it. Failures go through the scope. */
    tutti_tensor_t *(*forward)(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

    /** Any number in and out; all outputs must be set (to anything, after a failure). */
    void (*forward_many)(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count);

    /** What forward does is to call these modules one behind the other, each with the outputs of
     *  the one before: a pipeline (pipeline_run.h) may cut there. Together they have all parameters
     *  and buffers of m. Writes the link at a place, counted from 0; false behind the last. */
    bool (*chain)(tutti_module_t *m, int place, tutti_chain_link_t *link);
} tutti_module_ops_t;

/**
 * Make a module.
 *
 * @param ctx      retained; its seed and threads fill the parameters
 * @param ops      borrowed; must outlive the module
 * @param options  of that kind of module; borrowed, may be NULL
 * @param out      owned by the caller, to be released with tutti_module_release
 * @thread         the context's
 * @errors         NOMEM, and those of ops->init
 */
TUTTI_API tutti_status_t tutti_module_create(tutti_context_t *ctx, const tutti_module_ops_t *ops,
                                             const void *options, tutti_module_t **out);

/** Share a module. @thread any @errors none */
TUTTI_API tutti_module_t *tutti_module_retain(tutti_module_t *m);

/** Give a module back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_module_release(tutti_module_t *m);

/** The module's own state, ops->state_bytes of it. @thread any @errors none */
TUTTI_API void *tutti_module_state(tutti_module_t *m);

/** The kind of the module. @thread any @errors none */
TUTTI_API const tutti_module_ops_t *tutti_module_kind(const tutti_module_t *m);

/* ---- building, mostly from `init` ----------------------------------------------------------- */

typedef enum tutti_init_kind {
    TUTTI_INIT_CONSTANT, /**< a */
    TUTTI_INIT_UNIFORM,  /**< [a, b) */
    TUTTI_INIT_NORMAL,   /**< mean a, standard deviation b */
} tutti_init_kind_t;

/** How a parameter begins; zeros if left out. */
typedef struct tutti_init_value {
    tutti_init_kind_t kind;
    double a, b;
} tutti_init_t;

/**
 * Make a f32 parameter that needs a gradient.
 *
 * @param name  without dots; unlike the module's other names
 * @param out   out, borrowed from the module; may be NULL
 * @thread      the context's
 * @errors      ARG (the name, the shape), NOMEM
 */
TUTTI_API tutti_status_t tutti_module_new_parameter(tutti_module_t *m, const char *name,
                                                    tutti_shape_t shape, tutti_init_t init,
                                                    tutti_tensor_t **out);

/** Register a tensor made elsewhere as a parameter; retained. It is as it is: call
 *  tutti_tensor_set_requires_grad() if it is to learn. @thread the context's @errors ARG, NOMEM */
TUTTI_API tutti_status_t tutti_module_add_parameter(tutti_module_t *m, const char *name,
                                                    tutti_tensor_t *tensor);

/** Register a tensor that is saved and loaded but not learned; retained. @thread the context's
 *  @errors ARG, NOMEM */
TUTTI_API tutti_status_t tutti_module_add_buffer(tutti_module_t *m, const char *name,
                                                 tutti_tensor_t *tensor);

/**
 * Make a child, as tutti_module_create.
 *
 * @param name  without dots; "" adds no level: the child's names stand beside the module's
 * @param out   out, borrowed from the module; may be NULL
 * @thread      the context's
 * @errors      ARG (the name), NOMEM, and those of ops->init
 */
TUTTI_API tutti_status_t tutti_module_new_child(tutti_module_t *m, const char *name,
                                                const tutti_module_ops_t *ops, const void *options,
                                                tutti_module_t **out);

/** Register a module made elsewhere as a child; retained. @thread the context's
 *  @errors ARG (the name; it contains m), NOMEM */
TUTTI_API tutti_status_t tutti_module_add_child(tutti_module_t *m, const char *name,
                                                tutti_module_t *child);

/* ---- calling -------------------------------------------------------------------------------- */

/**
 * Run a module on one tensor.
 *
 * @return  in scope s; the null tensor after a failure, whose text ends with the module's kind
 * @thread  the scope's
 * @errors  the module's, through the scope
 * @source  torch.nn.Module.__call__
 */
TUTTI_API tutti_tensor_t *tutti_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

/** Run a module on several tensors. @param outputs out, [output_count], in scope s; null tensors
 *  after a failure @thread the scope's @errors the module's, through the scope */
TUTTI_API void tutti_forward_many(tutti_scope_t *s, tutti_module_t *m,
                                  tutti_tensor_t *const *inputs, int input_count,
                                  tutti_tensor_t **outputs, int output_count);

/* ---- hooks ---------------------------------------------------------------------------------- */

/** What a hook of a module sees; in backward, gradients: NULL where none is needed, or none came.
 */
typedef struct tutti_module_call {
    tutti_module_t *module;
    int input_count, output_count;
    tutti_tensor_t **inputs;  /**< [input_count] */
    tutti_tensor_t **outputs; /**< [output_count] */
} tutti_module_call_t;

/** May put other tensors (made in s, or retained elsewhere) in place of those that it may change.
 *  A failure, returned or in s, is that of the forward or backward. */
typedef tutti_status_t (*tutti_module_hook_t)(tutti_scope_t *s, tutti_module_call_t *call,
                                              void *user);

/** Hooks around a module's forward and backward, also where it is recomputed
 *  (tutti_context_is_recomputing()); any may be NULL. */
typedef struct tutti_module_hooks {
    tutti_module_hook_t before_forward;  /**< may change inputs; there are no outputs yet */
    tutti_module_hook_t after_forward;   /**< may change outputs */
    tutti_module_hook_t before_backward; /**< outputs: all their gradients, which it may change */
    tutti_module_hook_t after_backward; /**< inputs: all their gradients, which it may change. Where
                                             no input needs one they are NULL, and it is called
                                             behind before_backward */
    bool always_call; /**< after_forward also where the forward, or a hook of it, has failed: for
                           what before_forward made. Outputs may be null tensors then */
} tutti_module_hooks_t;

/**
 * Call hooks whenever m is called by tutti_forward(), in the order of their registration; a graph
 * has those of backward if m had any when it was called. One that a hook adds is called from the
 * next time on.
 *
 * @param hooks  copied
 * @param user   given to them; outlives the module's graphs
 * @thread       the context's
 * @errors       NOMEM
 * @source       torch.nn.Module.register_forward_hook, register_full_backward_hook
 */
TUTTI_API tutti_status_t tutti_module_add_hooks(tutti_module_t *m,
                                                const tutti_module_hooks_t *hooks, void *user);

/** Remove the hooks that were registered with `user`; a hook may do so. @thread the context's
 *  @errors none */
TUTTI_API void tutti_module_remove_hooks(tutti_module_t *m, void *user);

/* ---- looking -------------------------------------------------------------------------------- */

/** Called with each tensor and its full name, which is valid during the call. A negative status
 *  ends the walk. */
typedef tutti_status_t (*tutti_tensor_visit_t)(void *user, const char *name,
                                               tutti_tensor_t *tensor);

/** Visit the parameters, one that is registered twice only once. @thread the context's
 *  @errors those of visit, ARG (a name longer than 511 bytes), NOMEM
 *  @source torch.nn.Module.named_parameters */
TUTTI_API tutti_status_t tutti_module_each_parameter(tutti_module_t *m, tutti_tensor_visit_t visit,
                                                     void *user);

/** Visit the buffers, one that is registered twice only once. @thread the context's
 *  @errors those of visit, ARG (a name longer than 511 bytes), NOMEM
 *  @source torch.nn.Module.named_buffers */
TUTTI_API tutti_status_t tutti_module_each_buffer(tutti_module_t *m, tutti_tensor_visit_t visit,
                                                  void *user);

/** Visit parameters and buffers, by every name that they have. @thread the context's
 *  @errors those of visit, ARG (a name longer than 511 bytes) @source torch.nn.Module.state_dict */
TUTTI_API tutti_status_t tutti_module_each_tensor(tutti_module_t *m, tutti_tensor_visit_t visit,
                                                  void *user);

/** Called with each module and its full name. A negative status ends the walk. */
typedef tutti_status_t (*tutti_module_visit_t)(void *user, const char *name, tutti_module_t *m);

/** Visit m, called "", and all below, parents first. @thread the context's
 *  @errors those of visit, ARG (a name longer than 511 bytes) @source torch.nn.Module.apply */
TUTTI_API tutti_status_t tutti_module_apply(tutti_module_t *m, tutti_module_visit_t visit,
                                            void *user);

/** Number of parameters, as tensors. @thread the context's @errors none (0 if out of memory) */
TUTTI_API size_t tutti_module_parameter_count(tutti_module_t *m);

/** Number of parameters, as numbers. @thread the context's @errors none (0 if out of memory) */
TUTTI_API int64_t tutti_module_numel(tutti_module_t *m);

/** A line for m and for each module below: name, kind, parameters, bytes of these and of the
 *  buffers, with those below. At most `bytes` of it. @return bytes of the whole text without its
 *  final 0; 0: out of memory @thread the context's @errors none @source torchinfo */
TUTTI_API size_t tutti_module_describe(tutti_module_t *m, char *text, size_t bytes);

/** The parameter or buffer with a full name, borrowed; NULL if there is none. @thread the
 *  context's @errors none */
TUTTI_API tutti_tensor_t *tutti_module_find(tutti_module_t *m, const char *name);

/** Freeze the parameters, or let them learn again. @thread the context's @errors DTYPE, NOMEM
 *  @source torch.nn.Module.requires_grad_ */
TUTTI_API tutti_status_t tutti_module_set_requires_grad(tutti_module_t *m, bool requires_grad);

/** Forget all gradients. @thread the context's @errors none
 *  @source torch.nn.Module.zero_grad */
TUTTI_API void tutti_module_zero_grad(tutti_module_t *m);

/**
 * Turn the floating parameters and buffers into another dtype, in place; gradients are forgotten.
 * Optimizers keep f32 masters of 16-bit parameters. Cast before DDP wraps the module.
 *
 * @param dtype  a floating one
 * @thread       the context's
 * @errors       DTYPE, NOMEM; nothing is changed then
 * @source       torch.nn.Module.to
 */
TUTTI_API tutti_status_t tutti_module_cast(tutti_module_t *m, tutti_dtype_t dtype);

/** Give every parameter and buffer that lies on meta memory and its initial value, as
 *  tutti_tensor_materialize() (devices.h) does for one. Compute with it by a context of that
 *  device. @param device NULL: the host's memory @thread the context's @errors as there; those
 *  before the failure have their memory @source torchdistx's materialize_module */
TUTTI_API tutti_status_t tutti_module_materialize(tutti_module_t *m, tutti_device_t *device);

/* ---- keeping -------------------------------------------------------------------------------- */

enum { TUTTI_DIGEST_BYTES = 33 }; /**< of a digest as text, with its final 0 */

/**
 * Digest of all parameters: XXH3-128 over their bytes, in the order of registration.
 *
 * @param text  out, 32 hexadecimal digits and a final 0
 * @thread      the context's
 * @cost        one pass over the parameters
 * @errors      NOMEM
 */
TUTTI_API tutti_status_t tutti_module_digest(tutti_module_t *m, char text[TUTTI_DIGEST_BYTES]);

/** Save parameters and buffers as safetensors, under their names. @param metadata
 *  [metadata_count], may be NULL @thread the context's @errors as tutti_safetensors_save */
TUTTI_API tutti_status_t tutti_module_save(tutti_module_t *m, const char *path,
                                           const tutti_named_text_t *metadata,
                                           size_t metadata_count);

/**
 * Load parameters and buffers, converting dtypes. All names and shapes are checked first: unless
 * the file fits the module exactly, nothing is changed. What lies on meta gets memory of the host,
 * as by tutti_module_load_to().
 *
 * @thread  the context's
 * @errors  MISMATCH (lists names that are missing, unexpected, or of another shape), and as
 *          tutti_safetensors_open
 * @source  torch.nn.Module.load_state_dict(strict=True)
 */
TUTTI_API tutti_status_t tutti_module_load(tutti_module_t *m, const char *path);

/**
 * Load, where what lies on meta gets memory of a device: no initializer runs. Tensors stay
 * themselves, with their dtypes; the gradients of those on meta are forgotten. What has memory
 * stays where it is. Compute with the module by a context of that device.
 *
 * @param device  NULL: the host's memory
 * @thread        the context's
 * @cost          beside what stays, the memory of one tensor: as it is in the file, and where it
 *                is of another dtype once more, converted
 * @errors        as tutti_module_load(); ARG (the device is meta, or what lies on meta is a part
 *                of another tensor: names it; nothing is changed then); NOMEM, IO: those before
 *                the failure are loaded, and a later load goes on
 * @source        torch.nn.Module.load_state_dict(assign=True)
 */
TUTTI_API tutti_status_t tutti_module_load_to(tutti_module_t *m, const char *path,
                                              tutti_device_t *device);

/** The same from a file that is open already. @thread the context's @errors as tutti_module_load */
TUTTI_API tutti_status_t tutti_module_load_from(tutti_module_t *m, const tutti_safetensors_t *file);

/* ---- initial values -------------------------------------------------------------------------- */

/* Initial values of parameters, for those who want others than the layers begin with.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_linear_layer,
 *         &(tutti_linear_options_t){.in = 784, .out = 256}, &net));
 *     tutti_tensor_t *w = tutti_module_find(net, "weight");
 *     TUTTI_CHECK(tutti_init_kaiming_normal(
 *         ctx, w, &(tutti_kaiming_options_t){.nonlinearity = TUTTI_NONLINEARITY_RELU}));
 *
 * Random values are a function of the context's seed, of how many parameters were drawn from the
 * context before, and of the element's index: the same bits whatever the threads and ranks are.
 * A tensor may be of any floating dtype and layout; values are drawn in f32.
 *
 * "fan in" is the number of inputs of one output, the second size times all sizes behind it;
 * "fan out" the first size times those behind the second. Both need two dimensions.
 */

/** What follows a layer, for the gain that keeps variances as they are. */
typedef enum tutti_nonlinearity {
    TUTTI_NONLINEARITY_LEAKY_RELU, /**< √(2 / (1 + slope²)) */
    TUTTI_NONLINEARITY_RELU,       /**< √2 */
    TUTTI_NONLINEARITY_LINEAR,     /**< 1; convolutions and sigmoid too */
    TUTTI_NONLINEARITY_TANH,       /**< 5/3 */
    TUTTI_NONLINEARITY_SELU,       /**< 3/4 */
} tutti_nonlinearity_t;

/** The gain of a nonlinearity; slope is that of LEAKY_RELU below 0. @thread any @errors none
 *  @source torch.nn.init.calculate_gain */
TUTTI_API double tutti_init_gain(tutti_nonlinearity_t nonlinearity, double slope);

/** Every element the same. @thread the context's @errors DTYPE @source torch.nn.init.constant_ */
TUTTI_API tutti_status_t tutti_init_constant(tutti_tensor_t *x, double value);

/** 1 on the diagonal of a matrix, else 0. @thread the context's @errors SHAPE, DTYPE, NOMEM
 *  @source torch.nn.init.eye_ */
TUTTI_API tutti_status_t tutti_init_eye(tutti_tensor_t *x);

/** Uniform in [low, high). @thread the context's @errors ARG, DTYPE, NOMEM
 *  @source torch.nn.init.uniform_ */
TUTTI_API tutti_status_t tutti_init_uniform(tutti_context_t *ctx, tutti_tensor_t *x, double low,
                                            double high);

/** Normal. @thread the context's @errors ARG, DTYPE, NOMEM @source torch.nn.init.normal_ */
TUTTI_API tutti_status_t tutti_init_normal(tutti_context_t *ctx, tutti_tensor_t *x, double mean,
                                           double std);

typedef struct tutti_trunc_normal_options {
    double mean;
    double std;       /**< 0: 1 */
    double low, high; /**< values lie between them; both 0: -2 and 2 */
} tutti_trunc_normal_options_t;

/** Normal, of what lies between two bounds. @param options NULL for the defaults
 *  @thread the context's @errors ARG, DTYPE, NOMEM @source torch.nn.init.trunc_normal_ */
TUTTI_API tutti_status_t tutti_init_trunc_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                 const tutti_trunc_normal_options_t *options);

/** U(±gain √(6 / (fan in + fan out))). @param gain 0: 1 @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.xavier_uniform_; Glorot and Bengio (2010) */
TUTTI_API tutti_status_t tutti_init_xavier_uniform(tutti_context_t *ctx, tutti_tensor_t *x,
                                                   double gain);

/** N(0, gain² 2 / (fan in + fan out)). @param gain 0: 1 @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.xavier_normal_; Glorot and Bengio (2010) */
TUTTI_API tutti_status_t tutti_init_xavier_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                  double gain);

typedef struct tutti_kaiming_options {
    tutti_nonlinearity_t nonlinearity;
    double slope; /**< of LEAKY_RELU below 0; √5 gives what tutti_linear_layer begins with */
    bool fan_out; /**< keep the variance of gradients, not of values */
} tutti_kaiming_options_t;

/** U(±gain √(3 / fan)). @param options NULL for the defaults @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.kaiming_uniform_; He et al. (2015) */
TUTTI_API tutti_status_t tutti_init_kaiming_uniform(tutti_context_t *ctx, tutti_tensor_t *x,
                                                    const tutti_kaiming_options_t *options);

/** N(0, gain² / fan). @param options NULL for the defaults @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.kaiming_normal_; He et al. (2015) */
TUTTI_API tutti_status_t tutti_init_kaiming_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                   const tutti_kaiming_options_t *options);

/**
 * Orthonormal rows or columns, whichever are fewer, times a gain: Q of the QR decomposition of
 * normal numbers, such that R's diagonal is positive. x counts as a matrix of its first size.
 *
 * @param gain  0: 1
 * @thread      the context's
 * @cost        4 m n² operations in f64 for sizes m >= n, on one thread
 * @errors      SHAPE (fewer than two dimensions), DTYPE, NOMEM
 * @source      torch.nn.init.orthogonal_; Saxe et al. (2013)
 */
TUTTI_API tutti_status_t tutti_init_orthogonal(tutti_context_t *ctx, tutti_tensor_t *x,
                                               double gain);

#ifdef __cplusplus
}
#endif

#endif
