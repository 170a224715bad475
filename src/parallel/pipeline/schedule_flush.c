/* flush: PipeDream-Flush, which the field calls 1f1b today. */
#include "parallel/pipeline/pipeline_schedule.h"

const tt_pipeline_ops_t tt_pipeline_flush = {
    .name = "flush",
    .about = "PipeDream's synchronous schedule: the rows of 1f1b",
    .source = "Narayanan et al., \"Memory-Efficient Pipeline-Parallel DNN Training\", 2021",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .plan = tt_pipeline_plan_1f1b,
};
