/* The cells of a CSV text, and the actions in them. */
#ifndef TT_PIPELINE_CELLS_H
#define TT_PIPELINE_CELLS_H

#include "parallel/pipeline/pipeline_text.h"

/* A version that a cell does not say. */
enum { TT_PIPELINE_NO_VERSION = -1 };

/* Called for each action, in order; `action->version` may be TT_PIPELINE_NO_VERSION. */
typedef tutti_status_t tt_pipeline_take_t(void *user, int line,
                                          const tutti_pipeline_action_t *action);

/* Read all cells; `lines` gets how many lines there are. FORMAT names line and cell, from 1. */
tutti_status_t tt_pipeline_read_cells(const char *text, size_t bytes, tt_pipeline_take_t *take,
                                      void *user, int *lines);

#endif
