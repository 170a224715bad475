/* Numbers gone bad (modes.h): with detection on, the operation that first makes a NaN, or an
 * infinity of finite numbers, fails and says where. */
#ifndef TT_ANOMALY_H
#define TT_ANOMALY_H

#include "compute/autograd/node.h"

/* NUMERIC: an output holds such a number. */
tutti_status_t tt_anomaly_check_outputs(const tutti_op_call_t *call);

/* NUMERIC: a gradient that the operation made of good ones does. */
tutti_status_t tt_anomaly_check_grads(const tutti_op_backward_t *call, const tt_node_t *node);

/* The path of the module whose forward runs, for the texts of backward; NULL: none runs, or nobody
 * asks. The caller's, by tt_free(). */
tutti_status_t tt_anomaly_note_module(const tutti_context_t *ctx, char **out);

#endif
