/* The inside of tutti_measure_layers().
 *
 *     module_keeping.c   what measuring must leave as it was: gradients, buffers, modes
 *     layer_measure.c    passes over all parts, with a clock between them
 *     layer_table.c      the table: rank 0's, told to all; sums over stages
 */
#ifndef TT_LAYER_MEASURE_H
#define TT_LAYER_MEASURE_H

#include <tutti/pipeline_measure.h>

#include "parallel/pipeline/pipeline_impl.h"

/* ---- module_keeping.c ------------------------------------------------------------------------ */

typedef struct {
    tutti_tensor_t *tensor; /* retained */
    tutti_tensor_t *kept;   /* a parameter's gradient, or a buffer's values; NULL: none */
} tt_kept_t;

typedef struct {
    tutti_context_t *ctx;
    tt_kept_t *params, *buffers; /* [param_count], [buffer_count] */
    int param_count, param_capacity, buffer_count, buffer_capacity;
    uint64_t random_calls;
    bool was_training, was_recording, has_modes;
} tt_keeping_t;

/* Closed by the caller, also after a failure. Errors: STATE, UNSUPPORTED (tensors that cannot be
 * measured), NOMEM. */
tutti_status_t tt_keeping_open(tutti_context_t *ctx, tutti_module_t *module, tt_keeping_t *keeping);

/* All is as it was. Errors: of copies, for which there is memory. */
tutti_status_t tt_keeping_close(tt_keeping_t *keeping);

/* ---- layer_measure.c ------------------------------------------------------------------------- */

/* Times and bytes into the rows of a table that has its names. */
tutti_status_t tt_layers_measure(tutti_context_t *ctx, const tt_chain_t *chain,
                                 const tutti_measure_options_t *options,
                                 const tutti_layers_t *table);

#endif
