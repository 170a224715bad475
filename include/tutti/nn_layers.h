/**
 * @file nn_layers.h
 * Ready-made modules, from linear to GPT.
 *
 * Example:
 *
 *     tutti_module_t *gpt;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_gpt_layer,
 *         &(tutti_gpt_options_t){.layers = 4, .width = 128, .heads = 4}, &gpt));
 *     tutti_tensor_t *logits = tutti_forward(s, gpt, x); // tokens [B, T] -> [B, T, 256]
 *
 * Each kind is a table to give to tutti_module_create() or tutti_module_new_child(), together with
 * its options. Parameters are f32; choose bf16 for the matrix products through the context's
 * autocast. Zero options mean the default that is named; sizes without one are required.
 */
#ifndef TUTTI_NN_LAYERS_H
#define TUTTI_NN_LAYERS_H

#include <tutti/group.h>
#include <tutti/nn.h>
#include <tutti/op_conv.h>
#include <tutti/op_nn.h>
#include <tutti/op_volume.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Functions of one element. */
typedef enum tutti_activation {
    TUTTI_ACTIVATION_DEFAULT, /**< none in a linear layer; GELU elsewhere */
    TUTTI_ACTIVATION_RELU,
    TUTTI_ACTIVATION_GELU, /**< with erf */
    TUTTI_ACTIVATION_GELU_TANH,
    TUTTI_ACTIVATION_SILU,
    TUTTI_ACTIVATION_SIGMOID,
    TUTTI_ACTIVATION_TANH,
    TUTTI_ACTIVATION_LEAKY_RELU, /**< these are in op_activation.h */
    TUTTI_ACTIVATION_ELU,
    TUTTI_ACTIVATION_CELU,
    TUTTI_ACTIVATION_SELU,
    TUTTI_ACTIVATION_SOFTPLUS,
    TUTTI_ACTIVATION_LOGSIGMOID,
    TUTTI_ACTIVATION_MISH,
    TUTTI_ACTIVATION_SOFTSIGN,
    TUTTI_ACTIVATION_TANHSHRINK,
    TUTTI_ACTIVATION_THRESHOLD,
    TUTTI_ACTIVATION_HARDTANH,
    TUTTI_ACTIVATION_RELU6,
    TUTTI_ACTIVATION_HARDSIGMOID,
    TUTTI_ACTIVATION_HARDSWISH,
    TUTTI_ACTIVATION_HARDSHRINK,
    TUTTI_ACTIVATION_SOFTSHRINK,
    TUTTI_ACTIVATION_RRELU, /**< of an activation layer alone: it draws while the context trains */
} tutti_activation_t;

typedef struct tutti_linear_options {
    int64_t in, out;
    bool no_bias;
    tutti_activation_t activation; /**< of the result; GELU is fused */
    double std; /**< 0: U(±1/√in) as in PyTorch; else weight N(0, std²), bias 0 */
} tutti_linear_options_t;

/** activation(x weightᵀ + bias): [..., in] -> [..., out]; "weight" [out, in], "bias" [out].
 *  @source torch.nn.Linear; He et al. 2015 for the initial values */
TUTTI_API extern const tutti_module_ops_t tutti_linear_layer;

typedef struct tutti_conv_layer_options {
    int64_t in, out;   /**< channels; groups divide both */
    int64_t kernel[3]; /**< as in move: {height, width}, over volumes {depth, height, width} */
    tutti_conv_options_t move; /**< stride, padding or same, dilation, groups */
    bool no_bias;
} tutti_conv_layer_options_t;

/** [N, in, L] -> [N, out, L']; "weight" [out, in / groups, kernel], "bias" [out]; both begin as
 *  U(±1/√(in / groups · kernel)). @source torch.nn.Conv1d */
TUTTI_API extern const tutti_module_ops_t tutti_conv1d_layer;

/** The same over planes: [N, in, H, W] -> [N, out, H', W']. @source torch.nn.Conv2d */
TUTTI_API extern const tutti_module_ops_t tutti_conv2d_layer;

/** Longer lines: "weight" [in, out / groups, kernel], bounds by out. @source
 *  torch.nn.ConvTranspose1d */
TUTTI_API extern const tutti_module_ops_t tutti_conv_transpose1d_layer;

/** Larger planes. @source torch.nn.ConvTranspose2d */
TUTTI_API extern const tutti_module_ops_t tutti_conv_transpose2d_layer;

/** Over volumes: [N, in, D, H, W] -> [N, out, D', H', W']. @source torch.nn.Conv3d */
TUTTI_API extern const tutti_module_ops_t tutti_conv3d_layer;

/** Larger volumes. @source torch.nn.ConvTranspose3d */
TUTTI_API extern const tutti_module_ops_t tutti_conv_transpose3d_layer;

typedef struct tutti_embedding_options {
    int64_t count, width;
    double std;                              /**< of the initial values; 0: 1, as in PyTorch */
    tutti_embedding_lookup_options_t lookup; /**< as tutti_embedding_with() takes them */
} tutti_embedding_options_t;

/** Rows of a table: [...] integers below count -> [..., width]; "weight" [count, width], in which a
 *  row of padding begins as zeros. With max_norm ranks and replicas would end with tables of their
 *  own: tutti_ddp_create() of several shards, DataParallel and tutti_parallelize() refuse it, and
 *  tutti_ddp_create() also where shards compute with copies: at stage 3, under param_dtype.
 *  @source torch.nn.Embedding */
TUTTI_API extern const tutti_module_ops_t tutti_embedding_layer;

typedef struct tutti_norm_options {
    int64_t width;
    double eps;          /**< 0: that of the operation in op_nn.h */
    bool no_bias;        /**< of layer_norm; rms_norm has none */
    bool no_affine;      /**< no weight and bias */
    tutti_shape_t shape; /**< of rows of several dimensions, in width's place: torch's
                              normalized_shape */
} tutti_norm_options_t;

/** Rows of mean 0 and variance 1, times "weight" [width], plus "bias" [width], or both of `shape`.
 *  @source torch.nn.LayerNorm */
TUTTI_API extern const tutti_module_ops_t tutti_layer_norm_layer;

/** Rows of root mean square 1, times "weight" [width], or of `shape`. @source torch.nn.RMSNorm */
TUTTI_API extern const tutti_module_ops_t tutti_rms_norm_layer;

typedef struct tutti_batch_norm_layer_options {
    int64_t width;   /**< C, the channels */
    double eps;      /**< 0: 1e-5 */
    double momentum; /**< of the running statistics; 0: 0.1 */
    bool cumulative; /**< they are the plain average of all batches: torch's momentum=None */
    bool no_affine;  /**< no weight and bias */
    bool no_running; /**< no running statistics: the batch's in evaluation too */
    bool relu;       /**< negative results are 0 */
    bool no_bias;    /**< a weight alone */
} tutti_batch_norm_layer_options_t;

/** Channels of x [N, C, ...] of mean 0 and variance 1 over the batch, times "weight" [C], plus
 *  "bias" [C]; buffers "running_mean" [C], "running_var" [C], "num_batches_tracked" []. A second
 *  input of tutti_forward_many() is added to the result, before the relu: the same as add and relu
 *  behind it, in one pass.
 *  @source torch.nn.BatchNorm1d, torch.nn.BatchNorm2d; with relu torch.ao.nn.intrinsic.BNReLU2d */
TUTTI_API extern const tutti_module_ops_t tutti_batch_norm_layer;

typedef struct tutti_group_norm_options {
    int64_t width;  /**< C, the channels */
    int64_t groups; /**< divides the width */
    double eps;     /**< 0: 1e-5 */
    bool no_affine; /**< no weight and bias */
    bool no_bias;   /**< a weight alone */
} tutti_group_norm_options_t;

/** Groups of channels of mean 0 and variance 1 in each sample of x [N, C, ...], times "weight"
 *  [C], plus "bias" [C]. @source torch.nn.GroupNorm */
TUTTI_API extern const tutti_module_ops_t tutti_group_norm_layer;

typedef struct tutti_instance_norm_options {
    int64_t width;    /**< C, the channels */
    double eps;       /**< 0: 1e-5 */
    bool affine;      /**< with weight and bias */
    bool no_bias;     /**< with a weight alone */
    bool running;     /**< with running statistics: torch's track_running_stats */
    double momentum;  /**< of those; 0: 0.1 */
    int spatial_dims; /**< of a channel, 1 to 3: a sample x [C, ...] may come without a batch then;
                           0: any number */
} tutti_instance_norm_options_t;

/** Channels of mean 0 and variance 1 in each sample of x [N, C, ...]. With running statistics it
 * has buffers as tutti_batch_norm_layer, and in evaluation normalizes by them (num_batches_tracked
 *  stays 0, as in PyTorch). Pipelines move them behind each micro-batch;
 * tutti_convert_sync_batchnorm() and tutti_norm_statistics_begin() leave them alone.
 *  @source torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d */
TUTTI_API extern const tutti_module_ops_t tutti_instance_norm_layer;

typedef struct tutti_dropout_options {
    float p; /**< in [0, 1] */
} tutti_dropout_options_t;

/** Zero elements with probability p while the context trains. @source torch.nn.Dropout */
TUTTI_API extern const tutti_module_ops_t tutti_dropout_layer;

/** A kind, and its numbers; those of other kinds are not used. */
typedef struct tutti_activation_options {
    tutti_activation_t kind;
    double slope;     /**< of leaky ReLU below 0; 0: 0.01 */
    double alpha;     /**< of ELU and CELU; 0: 1 */
    double beta;      /**< of softplus; 0: 1 */
    double bound;     /**< of softplus: beyond it x stays; 0: 20 */
    double lambda;    /**< of the shrinks; 0: 0.5 */
    double threshold; /**< of threshold */
    double value;     /**< of threshold, below it */
    double low, high; /**< of hardtanh; PyTorch's are -1 and 1 */
    double lower;     /**< of RReLU's slopes; 0: 1/8 */
    double upper;     /**< of RReLU's slopes; 0: 1/3 */
} tutti_activation_options_t;

/** One of tutti_activation_t, on each element. @source torch.nn.ReLU, torch.nn.LeakyReLU … */
TUTTI_API extern const tutti_module_ops_t tutti_activation_layer;

typedef struct tutti_sequential_options {
    tutti_module_t *const *modules; /**< [count], retained; more with tutti_sequential_add() */
    int count;
    bool recompute; /**< each of them in backward, as modes.h says, to save memory */
} tutti_sequential_options_t;

/** Modules one after the other, called "0", "1", … @source torch.nn.Sequential */
TUTTI_API extern const tutti_module_ops_t tutti_sequential_layer;

/** Make a module and put it behind those that are there. @param out out, borrowed; may be NULL
 *  @thread the context's @errors NOMEM, and those of ops->init */
TUTTI_API tutti_status_t tutti_sequential_add(tutti_module_t *sequential,
                                              const tutti_module_ops_t *ops, const void *options,
                                              tutti_module_t **out);

typedef struct tutti_self_attention_options {
    int64_t width, heads; /**< heads divide the width */
    int64_t kv_heads;     /**< of keys and values, each for heads / kv_heads of the queries'; they
                               divide the heads. 1: multi-query; 0: heads */
    bool causal;          /**< a position sees those before it only */
    float dropout;        /**< of the weights, and of the result */
    bool no_bias;
    double std;        /**< of the initial weights; 0: as tutti_linear_layer */
    double result_std; /**< of the last linear's; 0: std */
} tutti_self_attention_options_t;

/** Multi-head self-attention: [B, T, width] -> the same; "qkv" and "proj" are linear. The rows of
 *  qkv are heads of queries, of keys, of values. @source Vaswani et al., "Attention Is All You
 * Need" (2017); Ainslie et al., "GQA" (2023) for kv_heads */
TUTTI_API extern const tutti_module_ops_t tutti_self_attention_layer;

typedef struct tutti_mlp_options {
    int64_t width, hidden;         /**< hidden 0: 4 width */
    tutti_activation_t activation; /**< of the hidden values */
    float dropout;                 /**< of the result */
    bool no_bias;
    double std;        /**< of the initial weights; 0: as tutti_linear_layer */
    double result_std; /**< of the last linear's; 0: std */
} tutti_mlp_options_t;

/** down(activation(up(x))): [..., width] -> the same. */
TUTTI_API extern const tutti_module_ops_t tutti_mlp_layer;

typedef struct tutti_transformer_block_options {
    int64_t width, heads, hidden; /**< heads divide the width; hidden 0: 4 width */
    int64_t kv_heads;             /**< as in tutti_self_attention_options_t */
    bool causal;
    float dropout;
    bool no_bias;                  /**< of the linear layers */
    double eps;                    /**< of the norms; 0: 1e-5 */
    double std, result_std;        /**< 0: as in tutti_self_attention_options_t */
    tutti_activation_t activation; /**< as in tutti_mlp_options_t */
} tutti_transformer_block_options_t;

/** x + attention(norm(x)), then x + mlp(norm(x)): [B, T, width] -> the same; "ln1" "ln2" "qkv"
 *  "proj" "up" "down". @source Radford et al., "Language Models are Unsupervised Multitask
 *  Learners" (2019); Xiong et al. 2020 for the norm in front */
TUTTI_API extern const tutti_module_ops_t tutti_transformer_block_layer;

typedef struct tutti_gpt_options {
    int64_t layers;                /**< 0: 6 */
    int64_t width;                 /**< 0: 384 */
    int64_t heads;                 /**< 0: 6; they divide the width */
    int64_t kv_heads;              /**< as in tutti_self_attention_options_t */
    int64_t context;               /**< longest sequence; 0: 256 */
    int64_t vocab;                 /**< 0: 256 */
    float dropout;                 /**< of embeddings, attention and residual branches, in [0, 1) */
    bool recompute;                /**< each block in backward, as modes.h says, to save memory */
    tutti_activation_t activation; /**< of the mlps; GPT-2's own weights are for
                                        TUTTI_ACTIVATION_GELU_TANH */
    bool tie_head;                 /**< the head's weight is the embedding's: GPT-2 itself */
} tutti_gpt_options_t;

/**
 * GPT-2's shape: [B, T] tokens (i64, i32, u8) -> logits [B, T, vocab]. Learned positions, norms in
 * front, GELU, head of its own without bias. Weights begin as N(0, 1 / (3 width)), GPT-2's
 * 0.02² at its width of 768; those at the end of a residual branch are divided by √(2 layers).
 *
 * "tok.weight" "pos.weight" "blocks.0.ln1.weight" … "ln.weight" "ln.bias" "head.weight", which with
 * tie_head is the tensor "tok.weight".
 * @source  Radford et al., "Language Models are Unsupervised Multitask Learners" (2019)
 */
TUTTI_API extern const tutti_module_ops_t tutti_gpt_layer;

/* ---- pooling, upsampling, reshaping ---------------------------------------------------------- */

/* Pooling, upsampling and reshaping layers, without parameters.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_max_pool2d_layer,
 *         &(tutti_pool_options_t){.kernel = {2, 2}}, NULL));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_flatten_layer, NULL, NULL));
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32));
 *     tutti_tensor_t *y = tutti_forward(s, net, image); // [8, 768]
 *
 * Options that are wrong for every x are refused when the module is made.
 */

/** tutti_max_pool1d(), options tutti_pool_options_t; a second output are the indices.
 *  @source torch.nn.MaxPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_max_pool1d_layer;

/** tutti_max_pool2d(). @source torch.nn.MaxPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_max_pool2d_layer;

/** tutti_max_pool3d(). @source torch.nn.MaxPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_max_pool3d_layer;

/** tutti_avg_pool1d(), options tutti_avg_pool_options_t. @source torch.nn.AvgPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_avg_pool1d_layer;

/** tutti_avg_pool2d(). @source torch.nn.AvgPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_avg_pool2d_layer;

/** tutti_avg_pool3d(). @source torch.nn.AvgPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_avg_pool3d_layer;

/** tutti_lp_pool1d(), options tutti_lp_pool_options_t (op_volume.h). @source torch.nn.LPPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_lp_pool1d_layer;

/** tutti_lp_pool2d(). @source torch.nn.LPPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_lp_pool2d_layer;

/** tutti_lp_pool3d(). @source torch.nn.LPPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_lp_pool3d_layer;

typedef struct tutti_adaptive_pool_options {
    int64_t size[3]; /**< of y, {height, width}, over lines the first alone, over volumes {depth,
                          height, width}; 0: that of x */
} tutti_adaptive_pool_options_t;

/** tutti_adaptive_max_pool1d(); a second output are the indices.
 *  @source torch.nn.AdaptiveMaxPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_max_pool1d_layer;

/** tutti_adaptive_max_pool2d(). @source torch.nn.AdaptiveMaxPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_max_pool2d_layer;

/** tutti_adaptive_avg_pool1d(). @source torch.nn.AdaptiveAvgPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_avg_pool1d_layer;

/** tutti_adaptive_avg_pool2d(); {1, 1}: the mean of each channel.
 *  @source torch.nn.AdaptiveAvgPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_avg_pool2d_layer;

/** tutti_adaptive_max_pool3d(); a second output are the indices.
 *  @source torch.nn.AdaptiveMaxPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_max_pool3d_layer;

/** tutti_adaptive_avg_pool3d(). @source torch.nn.AdaptiveAvgPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_avg_pool3d_layer;

/** tutti_interpolate(), options tutti_interpolate_options_t. @source torch.nn.Upsample */
TUTTI_API extern const tutti_module_ops_t tutti_upsample_layer;

typedef struct tutti_flatten_options {
    int first, last; /**< dimensions, counted from the end if negative; both 0: 1 and -1 */
} tutti_flatten_options_t;

/** Dimensions first to last as one: [N, ...] -> [N, elements of a sample] without options.
 *  @source torch.nn.Flatten */
TUTTI_API extern const tutti_module_ops_t tutti_flatten_layer;

/* ---- recurrent layers ------------------------------------------------------------------------ */

/* Recurrent layers and cells with PyTorch's names and gate order.
 *
 * Example:
 *
 *     tutti_module_t *lstm;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_lstm_layer,
 *         &(tutti_rnn_options_t){.in = 5, .hidden = 8, .layers = 2, .batch_first = true}, &lstm));
 *     tutti_tensor_t *steps = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 7, 5)); // [B, T, in]
 *     tutti_tensor_t *out[3]; // the outputs [B, T, 8], the last states and cells [2, B, 8]
 *     tutti_forward_many(s, lstm, (tutti_tensor_t *[]){steps, NULL, NULL}, 3, out, 3);
 *     tutti_tensor_t *y = tutti_forward(s, lstm, steps); // the outputs alone
 *
 * Parameters begin as U(±1/√hidden). Inputs and outputs behind the first may be left out; an input
 * that is NULL counts as zeros. To train on pieces of a long text hand the last states to the next
 * piece, through tutti_detach() so that the graph ends there. Without a batch inputs and outputs
 * lack that dimension: x is [T, in], a state [layers D, hidden]; of a cell [in] and [hidden].
 */

typedef struct tutti_rnn_options {
    int64_t in, hidden;
    int64_t layers;                        /**< one on another; 0: 1 */
    bool bidirectional;                    /**< each layer runs both ways; outputs side by side */
    bool batch_first;                      /**< x and outputs are [B, T, …], not [T, B, …] */
    bool no_bias;                          /**< no "bias_ih_l0" … */
    float dropout;                         /**< of the outputs of all layers but the last */
    tutti_rnn_nonlinearity_t nonlinearity; /**< of tutti_rnn_layer */
    int64_t projection; /**< P, below hidden, of tutti_lstm_layer: what a state has, torch's
                             proj_size; 0: hidden */
} tutti_rnn_options_t;

/** x [T, B, in], h [layers D, B, hidden] -> y [T, B, D hidden], the last h; D directions: 1 or 2.
 *  Each layer has "weight_ih_l0" [hidden, in], "weight_hh_l0" [hidden, hidden], "bias_ih_l0" and
 *  "bias_hh_l0" [hidden]; of the way back "weight_ih_l0_reverse" …. @source torch.nn.RNN */
TUTTI_API extern const tutti_module_ops_t tutti_rnn_layer;

/** x, h, c -> y, the last h, the last c, shapes as tutti_rnn_layer; the parameters' first
 *  dimension is 4 hidden, in the order i f g o. With a projection states and outputs have P in
 *  hidden's place, but not cells; "weight_hh_l0" is [4 hidden, P], and there is "weight_hr_l0"
 *  [P, hidden], behind the biases. @source torch.nn.LSTM */
TUTTI_API extern const tutti_module_ops_t tutti_lstm_layer;

/** x, h -> y, the last h, shapes as tutti_rnn_layer; the parameters' first dimension is 3 hidden,
 *  in the order r z n. @source torch.nn.GRU */
TUTTI_API extern const tutti_module_ops_t tutti_gru_layer;

typedef struct tutti_rnn_cell_options {
    int64_t in, hidden;
    bool no_bias;
    tutti_rnn_nonlinearity_t nonlinearity; /**< of tutti_rnn_cell_layer */
} tutti_rnn_cell_options_t;

/** One step: x [B, in], h [B, hidden] -> h; "weight_ih" [hidden, in], "weight_hh", "bias_ih",
 *  "bias_hh". @source torch.nn.RNNCell */
TUTTI_API extern const tutti_module_ops_t tutti_rnn_cell_layer;

/** One step: x, h, c -> h, c. @source torch.nn.LSTMCell */
TUTTI_API extern const tutti_module_ops_t tutti_lstm_cell_layer;

/** One step: x, h -> h. @source torch.nn.GRUCell */
TUTTI_API extern const tutti_module_ops_t tutti_gru_cell_layer;

/* ---- batch norm over all ranks --------------------------------------------------------------- */

/* Batch norm whose statistics are over the samples of all ranks, for batches that are small on
 * each.
 *
 * Example:
 *
 *     tutti_module_t *norm;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_sync_batch_norm_layer,
 *         &(tutti_sync_batch_norm_options_t){.norm = {.width = 3}, .group = world}, &norm));
 *     tutti_tensor_t *y = tutti_forward(s, norm, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 3)));
 *
 * A model that has batch norms already is converted by one call:
 *
 *     TUTTI_CHECK(tutti_convert_sync_batchnorm(net, world));
 *
 * While the context trains, forward is a call that all ranks of the group make together, and so is
 * backward: all ranks run the same modules in the same order. Ranks may have unlike numbers of
 * samples, also none. In evaluation no rank waits for another.
 *
 * Under DDP every rank must host exactly one shard: the statistics of a step are needed in the
 * middle of its forward, when a rank that hosts several has computed one. tutti_ddp_create() says
 * UNSUPPORTED otherwise. With as many shards, results do not depend on anything else.
 */

typedef struct tutti_sync_batch_norm_options {
    tutti_batch_norm_layer_options_t norm;
    tutti_group_t *group; /**< retained; must not be used by another thread meanwhile */
} tutti_sync_batch_norm_options_t;

/** As tutti_batch_norm_layer, but mean and variance are those of all ranks' samples together,
 *  weighted by their count; gradients of x through them too. Those of weight and bias are of this
 *  rank's samples, as DDP wants them. @source torch.nn.SyncBatchNorm */
TUTTI_API extern const tutti_module_ops_t tutti_sync_batch_norm_layer;

/**
 * Turn every batch_norm in a module, itself too, into a sync_batch_norm, in place: parameters,
 * buffers, options and names stay. Those that are one already get the group. Call it before DDP
 * wraps the module.
 *
 * @param group  retained by each of them
 * @thread       the context's
 * @errors       ARG (no group); nothing is changed then
 * @source       torch.nn.SyncBatchNorm.convert_sync_batchnorm
 */
TUTTI_API tutti_status_t tutti_convert_sync_batchnorm(tutti_module_t *m, tutti_group_t *group);

#ifdef __cplusplus
}
#endif

#endif
