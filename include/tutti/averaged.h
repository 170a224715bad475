/**
 * @file averaged.h
 * Averages of weights: of all steps alike (SWA), or with newer ones counting more (EMA).
 *
 * Example:
 *
 *     tutti_averaged_t *average;
 *     TUTTI_CHECK(tutti_averaged_create(ctx, net, &(tutti_averaged_options_t){.decay = 0.999},
 *                                       &average));
 *     for (int64_t step = 0; step < 100; step++) {
 *         TUTTI_CHECK(tutti_optim_step(opt));
 *         TUTTI_CHECK(tutti_averaged_update(average));
 *     }
 *     TUTTI_CHECK(tutti_averaged_swap_in(average)); // net has the averages
 *     y = tutti_forward(s, net, x);
 *     TUTTI_CHECK(tutti_averaged_swap_out(average)); // and its own weights again
 *     tutti_averaged_release(average);
 *
 * Each rank keeps what it steps: where weights are dealt out (DDP's stages 1 to 3, a pipeline's
 * stages, parts of a layer), the averages are. An update sends nothing, goes element by element,
 * and has the same bits on any layout.
 */
#ifndef TUTTI_AVERAGED_H
#define TUTTI_AVERAGED_H

#include <tutti/nn.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The average of a module's weights; one thread at a time. */
typedef struct tutti_averaged tutti_averaged_t;

/** Zero means default. */
typedef struct tutti_averaged_options {
    double decay; /**< a = decay a + (1 - decay) x, below 1; 0: the mean of all updates */
    bool buffers; /**< floating buffers are averaged, too; else the average has those of the last
                       update */
} tutti_averaged_options_t;

/**
 * Averages of all parameters of a module; they begin with the first update, whose values they have.
 *
 * @param ctx      of the module
 * @param module   its tensors are retained. Behind what deals its parameters out:
 *                 tutti_parallelize(), tutti_pipeline_create(), tutti_ddp_create()
 * @param options  NULL for the defaults
 * @param out      owned by the caller
 * @thread         the context's; no other rank waits
 * @cost           f32 for each weight that this rank steps, beside it
 * @errors         ARG (decay; a parameter that is not contiguous), DTYPE (parameters that are not
 *                 f32, bf16 or f16), UNSUPPORTED (weights on a disk), NOMEM
 * @source         torch.optim.swa_utils.AveragedModel; Izmailov et al., "Averaging Weights Leads to
 *                 Wider Optima and Better Generalization" (2018); Polyak and Juditsky (1992)
 */
TUTTI_API tutti_status_t tutti_averaged_create(tutti_context_t *ctx, tutti_module_t *module,
                                               const tutti_averaged_options_t *options,
                                               tutti_averaged_t **out);

/** Let go of the averages. What was swapped in stays in the module. NULL does nothing. @thread the
 *  context's @errors none */
TUTTI_API void tutti_averaged_release(tutti_averaged_t *average);

/**
 * Take the weights as they are now into the average: a + (x - a) share, where share is 1 - decay,
 * or 1 / n for the n-th of a mean. Behind a failure of a device, which is heard later, too: those
 * that are there then.
 *
 * @thread  the context's, behind an optimizer's step; no other rank waits
 * @cost    one pass over the weights that this rank steps
 * @errors  STATE (the averages are swapped in; ranks step other slices than before); those of the
 *          weights' device, after which some averages have moved: called again, before a step, it
 *          goes on with the others
 * @source  torch.optim.swa_utils.AveragedModel.update_parameters
 */
TUTTI_API tutti_status_t tutti_averaged_update(tutti_averaged_t *average);

/** How many updates there were. @thread the context's @errors none: 0 for NULL */
TUTTI_API int64_t tutti_averaged_count(const tutti_averaged_t *average);

/**
 * The module has the averages, rounded to its dtypes, until tutti_averaged_swap_out(): to evaluate
 * and to save them. Nothing may write the weights meanwhile, but a forward that bounds a table
 * (max_norm).
 *
 * @thread  the context's, between steps; all ranks call it where weights are dealt out
 * @cost    a copy of the weights that this rank steps; where they are dealt out, what an
 *          optimizer's step sends
 * @errors  on every rank of those that weights are dealt out to, and nothing is changed: STATE (no
 *          update yet, or they are in), NOMEM, those of devices. Writing, those of groups and of
 *          devices: the module's own weights are put back; where that fails, the text says so, and
 *          tutti_averaged_swap_out() puts them back
 */
TUTTI_API tutti_status_t tutti_averaged_swap_in(tutti_averaged_t *average);

/**
 * The module has its own weights again, and its buffers as they were; what its buffers became
 * meanwhile (tutti_norm_statistics_begin()) is the average's, and so are rows of tables that
 * forward bounded (max_norm), as of PyTorch's, which is a module. A training goes on with the bits
 * that it would have had.
 *
 * @thread  as tutti_averaged_swap_in
 * @errors  STATE (they are not in; a weight was written meanwhile, and stays), NOMEM; those of
 * groups
 *          and of devices: the module may have averages still, and called again it puts the own
 *          weights back
 */
TUTTI_API tutti_status_t tutti_averaged_swap_out(tutti_averaged_t *average);

/** Visit what there is to be saved, under the tensors' names, and "updates", an i64 scalar.
 *  tutti_checkpoint_t.averaged does it. @thread the context's @errors those of visit; STATE (the
 *  averages are swapped in) */
TUTTI_API tutti_status_t tutti_averaged_each_state(tutti_averaged_t *average,
                                                   tutti_tensor_visit_t visit, void *user);

/* ---- learning rates -------------------------------------------------------------------------- */

/** Another schedule until SWA begins; then its rate goes over to a constant one. */
typedef struct tutti_swa_schedule {
    tutti_schedule_t before;
    int64_t start;        /**< the first step whose weights are averaged */
    int64_t anneal_steps; /**< from before's rate at the start to lr; 0: at once */
    double lr;            /**< constant from then on */
    bool linear;          /**< along a line; else along half a cosine */
} tutti_swa_schedule_t;

/** Whether it makes sense. @thread any @errors ARG (names the value and its range) */
TUTTI_API tutti_status_t tutti_swa_check(const tutti_swa_schedule_t *schedule);

/** The learning rate of a step, a pure function. @param step from 0 on @thread any @errors none;
 *  NaN if tutti_swa_check() fails @source torch.optim.swa_utils.SWALR */
TUTTI_API double tutti_swa_lr(const tutti_swa_schedule_t *schedule, int64_t step);

/* ---- running statistics ---------------------------------------------------------------------- */

/**
 * Running statistics of batch norm, once more: they are forgotten, and until
 * tutti_norm_statistics_end() become the plain average of the batches that go forward while the
 * context trains. Weights that were averaged have others than those that were trained.
 *
 *     TUTTI_CHECK(tutti_averaged_swap_in(average));
 *     TUTTI_CHECK(tutti_norm_statistics_begin(net));
 *     … forward of some batches, without backward …
 *     TUTTI_CHECK(tutti_norm_statistics_end(net));
 *
 * @param m  a module with batch norms below it, or none
 * @thread   the context's; each rank sees its own batches: give all ranks the same ones, or
 *           synchronised norms
 * @errors   STATE (begun already); those of a device: they have not begun, but some statistics are
 *           forgotten; begin again
 * @source   torch.optim.swa_utils.update_bn
 */
TUTTI_API tutti_status_t tutti_norm_statistics_begin(tutti_module_t *m);

/** They move as before again. @thread the context's @errors STATE (not begun) */
TUTTI_API tutti_status_t tutti_norm_statistics_end(tutti_module_t *m);

#ifdef __cplusplus
}
#endif

#endif
