/* Rows of a schedule of one's own: what it computes, with all that it has not said itself. */
#ifndef TT_PIPELINE_OWN_H
#define TT_PIPELINE_OWN_H

#include "parallel/pipeline/pipeline_emit.h"

/* Plan the row of emit->rank. */
tutti_status_t tt_pipeline_own_row(tt_pipeline_emit_t *emit, const tutti_pipeline_schedule_t *own,
                                   tutti_pipeline_row_t *row);

/* Give the planned actions to the caller, in a block of their size. */
tutti_status_t tt_pipeline_give_row(tt_pipeline_emit_t *emit, tutti_pipeline_row_t *row);

/* Whether a schedule has actions of this kind; messages of any. */
bool tt_pipeline_has(const tutti_pipeline_schedule_t *schedule, tutti_pipeline_kind_t kind);
bool tt_pipeline_has_messages(const tutti_pipeline_schedule_t *schedule);

#endif
