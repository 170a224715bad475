/**
 * @file tensor_parallel.h
 * Tensor parallelism: the layers of a model cut over the ranks of a group, as Megatron-LM does.
 *
 * Example:
 *
 *     // before the optimizer and DDP are made: every rank has made the whole model, from one seed
 *     const tutti_parallel_options_t options = {.shards = 4};
 *     TUTTI_CHECK(tutti_parallelize(net, group, &options)); // plans for gpt, blocks, MLPs
 *     tutti_tensor_t *logits = tutti_forward(s, net, x);    // this rank's part of the vocabulary
 *     tutti_tensor_t *loss = tutti_parallel_cross_entropy(
 *         s, logits, y,
 *         &(tutti_parallel_loss_options_t){.group = group, .shards = 4, .classes = 256});
 *     TUTTI_CHECK(tutti_backward(s, loss));
 *
 * A model of your own is told which layers are cut, and how:
 *
 *     const tutti_parallel_rule_t rules[] = {
 *         {.pattern = "blocks.*.up", .style = TUTTI_PARALLEL_COLUMN},
 *         {.pattern = "blocks.*.down", .style = TUTTI_PARALLEL_ROW},
 *         {.pattern = "blocks.*.norm", .style = TUTTI_PARALLEL_SEQUENCE}};
 *     const tutti_parallel_options_t own = {.shards = 4, .rules = rules, .rule_count = 3};
 *     TUTTI_CHECK(tutti_parallelize(net, group, &own));
 *
 * Bits: a job fixes T, `shards`, as it fixes the data shards of DDP. What is cut is cut into T
 * leaves, and a rank hosts some of them, from floor(T rank / ranks) on. A sum over a cut dimension
 * is T sums in f32, also of bf16, which are added by the canonical tree; gradients of parameters
 * that every rank has, such as those of norms, are sums of T slices of the sequence. So weights
 * become the same bits on 1, 2, 3 or T ranks, with sequence parallelism and without. With T = 1
 * they are those of the model that is not cut. T divides heads; other dimensions are cut as
 * torch.chunk does.
 *
 *     per call            without               with sequence parallelism
 *     column, forward     nothing               all_gather of x
 *     column, backward    all_reduce of dx      reduce_scatter of dx, while dW is computed
 *     row, forward        all_reduce of y       reduce_scatter of y
 *     row, backward       nothing               all_gather of dy
 *     vocabulary          all_reduce of y       reduce_scatter of y; backward all_gather of dy
 *     sequence            nothing               backward an all_reduce of each parameter
 *     cross entropy       3 numbers for each row
 *
 * Every call carries B × S × C elements for the whole group, so a transformer block has 4
 * all_reduces of them a step, or 4 all_gathers and 4 reduce_scatters. Sums travel in f32.
 *
 * A module that is cut, its optimizer, DDP over another dimension of a mesh and gradient
 * accumulation are used as ever. All ranks of the group compute the same batch. Where a forward or
 * backward of the module fails on a rank, the group is given up, so that no other one waits.
 */
#ifndef TUTTI_TENSOR_PARALLEL_H
#define TUTTI_TENSOR_PARALLEL_H

#include <tutti/group.h>
#include <tutti/nn.h>
#include <tutti/op_loss.h>
#include <tutti/placement.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Every style: X(identifier, name, what it does). Linear layers are cut by COLUMN and ROW, tables
 * by VOCABULARY; SEQUENCE is for layers that every rank has whole (norms, gpt's positions); INPUT
 * and OUTPUT are for any module.
 */
#define TUTTI_PARALLEL_STYLE_LIST(X)                                                               \
    X(TUTTI_PARALLEL_COLUMN, "column", "rows of the weight and bias are cut; so is the result")    \
    X(TUTTI_PARALLEL_ROW, "row", "columns of the weight are cut, as x is; the result is whole")    \
    X(TUTTI_PARALLEL_VOCABULARY, "vocabulary", "rows of the table are cut; the result is whole")   \
    X(TUTTI_PARALLEL_SEQUENCE, "sequence", "parameters are whole, gradients of T slices")          \
    X(TUTTI_PARALLEL_INPUT, "input", "the module's input is redistributed first")                  \
    X(TUTTI_PARALLEL_OUTPUT, "output", "its result is redistributed")

typedef enum tutti_parallel_style {
#define X(identifier, name, about) identifier,
    TUTTI_PARALLEL_STYLE_LIST(X)
#undef X
        TUTTI_PARALLEL_STYLE_COUNT
} tutti_parallel_style_t;

/** The name of a style; "?" for an unknown value. @thread any @errors none */
TUTTI_API const char *tutti_parallel_style_name(tutti_parallel_style_t style);

enum { TUTTI_PARALLEL_PARTS_MAX = 8 };

/** Modules, and how they are cut. */
typedef struct tutti_parallel_rule {
    const char *pattern; /**< of full names: * stands for any letters but a dot, ? for one */
    tutti_parallel_style_t style;
    int parts; /**< of COLUMN: the weight is so many side by side, as q, k and v are, each
                    of which is cut; 0: one, or those of a self_attention */
    int64_t part_sizes[TUTTI_PARALLEL_PARTS_MAX]; /**< rows of each; all 0: equal ones */
    int64_t unit; /**< of COLUMN and ROW: rows, or columns, that stay together, such as those of a
                       head. T divides the number of units of each part; 0: 1, and it need not */
    tutti_redistribution_t how; /**< of INPUT and OUTPUT */
} tutti_parallel_rule_t;

typedef struct tutti_parallel_options {
    int shards;    /**< T, the same on any number of ranks, which it is at least; 0: the ranks */
    bool sequence; /**< between the layers activations are parts along the sequence, the dimension
                        before the last: T divides its length */
    const tutti_parallel_rule_t *rules; /**< [rule_count]; NULL: the plan of the model's kind */
    int rule_count;
} tutti_parallel_options_t;

/**
 * Cut a module over the ranks of a group. Every rank has made the whole module, with the same
 * values, and makes this call; afterwards it has its parts alone.
 *
 * Without rules, every gpt, transformer_block, self_attention and mlp below m is cut: "qkv" and
 * "up" by columns, "proj" and "down" by rows, "tok" and "head" by the vocabulary, and norms by the
 * sequence. The logits of a gpt are parts then: tutti_parallel_cross_entropy().
 *
 * Modules that share a parameter are cut by one call, each by a rule. With `sequence`, every
 * module with parameters has a rule: a gradient would be of this rank's slices alone.
 *
 * Dropout layers draw as the whole would: in a sequential behind a layer cut by columns,
 * activations between, for its columns; elsewhere for what is whole, or a part of the sequence.
 * Beside a layer cut by columns in a kind of your own they are refused, as are other layers that
 * draw (dropouts of channels, alpha dropouts, RReLU) wherever they are given a part;
 * tutti_dropout() in a forward of your own draws by the index in what it is given: the same for
 * every part. A softmax or glu layer behind a layer cut by columns is refused where its dimension
 * is, or may be, that of the columns.
 *
 * Make optimizers and DDP afterwards; gradients and hooks of the whole module do not stay.
 *
 * @param m        changed in place; its modules and parameters stay themselves
 * @param group    retained, such as tutti_mesh_group(mesh, "tp")
 * @param options  NULL for the defaults
 * @thread         the context's, and the group's; waits
 * @cost           a digest of the module, a message, a copy of this rank's parts
 * @errors         ARG (shards, parts, units, heads that T does not divide, a dimension with fewer
 *                 indices than T, a shared parameter that is cut in one of its modules alone,
 *                 parameters without a rule under `sequence`), NOT_FOUND (a pattern that matches
 *                 nothing: the nearest names), UNSUPPORTED (a kind of module that a style does not
 *                 take; a dropout layer whose part is not known, another layer that draws for a
 *                 part, one over all columns that is given some; meta), STATE (it is cut already),
 *                 MISMATCH (other values, rules or options than rank 0's), NOMEM; on all ranks. The
 *                 module is as it was
 * @source         torch.distributed.tensor.parallel.parallelize_module; Shoeybi et al.,
 *                 "Megatron-LM" (2019); Korthikanti et al., "Reducing Activation Recomputation in
 *                 Large Transformer Models" (2022)
 */
TUTTI_API tutti_status_t tutti_parallelize(tutti_module_t *m, tutti_group_t *group,
                                           const tutti_parallel_options_t *options);

/** Of a loss over classes that are cut. */
typedef struct tutti_parallel_loss_options {
    tutti_group_t *group;
    int shards;      /**< T; 0: the ranks */
    int64_t classes; /**< of all ranks together */
    tutti_cross_entropy_options_t loss;
} tutti_parallel_loss_options_t;

/**
 * tutti_cross_entropy() of logits whose classes, their last dimension, are cut: they are not
 * gathered. The loss is the same on every rank.
 *
 * @param logits   [..., this rank's classes], as a layer cut by columns gives them
 * @param targets  [...] classes of the whole, the same on every rank
 * @thread         the scope's, and the group's; waits
 * @cost           an all_reduce of one number for each row, then one of two (three with
 *                 smoothing); backward sends nothing
 * @errors         as tutti_cross_entropy_with(), through the scope; ARG (classes, shards)
 * @source         torch.distributed.tensor.parallel.loss_parallel; Megatron-LM
 */
TUTTI_API tutti_tensor_t *
tutti_parallel_cross_entropy(tutti_scope_t *s, tutti_tensor_t *logits, tutti_tensor_t *targets,
                             const tutti_parallel_loss_options_t *options);

/**
 * tutti_module_digest() of the whole module: what a module that is not cut has with these values.
 *
 * @param text  out, 32 hexadecimal digits and a final 0
 * @thread      the context's, and the group's; a call of all ranks
 * @cost        one parameter after another is gathered
 * @errors      NOMEM; PEER, TIMEOUT, ABORTED. After a failure the group is given up
 */
TUTTI_API tutti_status_t tutti_parallel_digest(tutti_module_t *m, char text[TUTTI_DIGEST_BYTES]);

/**
 * The whole of a parameter that is cut, or of its gradient.
 *
 * @param x    of a module that is cut; any parameter
 * @return     in scope s: a new tensor, or x itself where it is whole already
 * @thread     the scope's, and the group's; a call of all ranks if it is cut
 * @errors     through the scope: ARG, NOMEM; PEER, TIMEOUT, ABORTED. After a failure the group of
 *             a parameter that is cut is given up, so that no other rank waits
 */
TUTTI_API tutti_tensor_t *tutti_parallel_whole(tutti_scope_t *s, tutti_tensor_t *x);

/** The same of the gradient of x, which must have one on all ranks. @thread as tutti_parallel_whole
 * @errors as tutti_parallel_whole; STATE (it has no gradient: if it is cut, the group is given up,
 * too) */
TUTTI_API tutti_tensor_t *tutti_parallel_whole_grad(tutti_scope_t *s, tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif
