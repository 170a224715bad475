/* What both pictures of a schedule need. */
#ifndef TT_PIPELINE_DRAW_H
#define TT_PIPELINE_DRAW_H

#include "parallel/pipeline/pipeline_text.h"

/* F, B, I, W, STEP, if they take time. */
bool tt_pipeline_is_drawn(const tutti_pipeline_action_t *action, const tutti_pipeline_span_t *span);

tutti_status_t tt_pipeline_draw_svg(const tutti_pipeline_schedule_t *schedule,
                                    const tutti_pipeline_simulation_t *simulation,
                                    tutti_buffer_t *out);

#endif
