/* The form of a schedule that somebody else has made: what must hold before its rows are walked. */
#ifndef TT_PIPELINE_FORM_H
#define TT_PIPELINE_FORM_H

#include <tutti/pipeline.h>

/* Numbers of actions fit into an int with all that is added to them. */
enum { TT_PIPELINE_STAGES_MAX = 1 << 20, TT_PIPELINE_COMPUTATIONS_MAX = 1 << 28 };

/* Numbers in range, a rank or none for each stage, a row for each rank. Cost: linear in stages and
 * ranks. Errors: ARG. */
tutti_status_t tt_pipeline_check_form(const tutti_pipeline_schedule_t *schedule);

#endif
