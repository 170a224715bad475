/* Rows side by side, with the places marked where ranks cannot go on. */
#ifndef TT_PIPELINE_GRID_H
#define TT_PIPELINE_GRID_H

#include "parallel/pipeline/pipeline_walk.h"

/* Record why ranks of a walk that has stopped cannot go on: a cycle, or what nobody does. */
tutti_status_t tt_pipeline_explain_stop(const tt_pipeline_walk_t *walk);

/* The rows around the places where a walk has stopped. */
tutti_status_t tt_pipeline_print_grid(const tt_pipeline_walk_t *walk, tutti_buffer_t *out);

#endif
