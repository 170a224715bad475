/**
 * @file averaging.h
 * Averaging parameters every so often, instead of gradients in each step.
 *
 * Example:
 *
 *     // within a host (group) every 4 steps, over all hosts every 16
 *     const tutti_average_level_t levels[] = {{.period = 4, .group = group},
 *                                             {.period = 16, .group = world}};
 *     tutti_averager_t *averager;
 *     TUTTI_CHECK(tutti_averager_create(levels, 2, 100, &averager));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     TUTTI_CHECK(tutti_averager_step(averager, net)); // after each step of the optimizer
 */
#ifndef TUTTI_AVERAGING_H
#define TUTTI_AVERAGING_H

#include <tutti/group.h>
#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Replace each parameter by its average over the group's ranks.
 *
 * @param module  the same on every rank
 * @thread        the context's; blocks until it is done
 * @cost          an all_reduce of the parameters
 * @errors        as tutti_all_reduce
 * @source        torch.distributed.algorithms.model_averaging.utils.average_parameters
 */
TUTTI_API tutti_status_t tutti_average_parameters(tutti_module_t *module, tutti_group_t *group);

/** Counts steps and averages when it is time. */
typedef struct tutti_averager tutti_averager_t;

/** Every `period` steps, the parameters are averaged over `group`. */
typedef struct tutti_average_level {
    int64_t period;
    tutti_group_t *group; /**< retained */
} tutti_average_level_t;

/**
 * Make an averager.
 *
 * @param levels  [count] of growing periods, each a multiple of the one before: where several are
 *                due, the last one is enough, whose group should hold the others'; borrowed
 * @param warmup  steps without any averaging, at first
 * @param out     owned by the caller, to be released with tutti_averager_release
 * @thread        any
 * @errors        ARG (names the period), NOMEM
 * @source        torch's PeriodicModelAverager and HierarchicalModelAverager
 */
TUTTI_API tutti_status_t tutti_averager_create(const tutti_average_level_t *levels, int count,
                                               int64_t warmup, tutti_averager_t **out);

/** Give an averager back; NULL does nothing. @thread the context's @errors none */
TUTTI_API void tutti_averager_release(tutti_averager_t *averager);

/** A step has been made: average if it is time. @thread the context's @errors as
 *  tutti_average_parameters */
TUTTI_API tutti_status_t tutti_averager_step(tutti_averager_t *averager, tutti_module_t *module);

/** Go on counting from a step, as after a restart. @thread the context's @errors none */
TUTTI_API void tutti_averager_set_step(tutti_averager_t *averager, int64_t step);

/** The level that averages after a step, counted from 0; -1: none. A pure function. @thread any
 *  @errors none */
TUTTI_API int tutti_averager_due(const tutti_averager_t *averager, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
