/* Options of a pipeline, looked at: which schedule, how many of what. */
#ifndef TT_PIPELINE_SHAPE_H
#define TT_PIPELINE_SHAPE_H

#include "parallel/pipeline/pipeline_schedule.h"

typedef struct {
    const tt_pipeline_ops_t *ops; /* NULL: a schedule of one's own */
    tt_pipeline_shape_t shape;
} tt_pipeline_plan_t;

tutti_status_t tt_pipeline_shape(const tutti_pipeline_options_t *options, tt_pipeline_plan_t *plan);

/* Costs without defaults. */
tutti_pipeline_costs_t tt_pipeline_costs(const tutti_pipeline_costs_t *costs);

/* ARG: one of them is negative or not finite. */
tutti_status_t tt_pipeline_check_costs(const tutti_pipeline_costs_t *costs);

#endif
