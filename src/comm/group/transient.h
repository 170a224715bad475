/* Shared tensors that are not there all the time, and prepared calls on them. */
#ifndef TT_TRANSIENT_H
#define TT_TRANSIENT_H

#include <tutti/prepared.h>

#include "core/tensor/tensor_impl.h"

/* A tensor as of tutti_group_tensor(), without memory; reason: as of tt_storage_evict(). Its memory
 * is taken, of undefined values, and given back by tt_storage_evict(). Errors: ARG; NOMEM. */
tutti_status_t tt_group_tensor_away(tutti_dtype_t dtype, tutti_shape_t shape, const char *reason,
                                    tutti_tensor_t **out);
tutti_status_t tt_group_tensor_refill(tutti_group_t *group, const tutti_tensor_t *x);

/* So many bytes of such memory may stay with the process while nobody has them, for they will be
 * wanted again (negative: no longer). */
void tt_group_keep_memory(tutti_group_t *group, int64_t bytes);

/* From the next start on, a call on contributions has these pieces, as many as it had, and this
 * output. Errors: as tutti_prepared_rebind(). */
tutti_status_t tt_prepared_rebind_leaves(tutti_prepared_t *prepared,
                                         const tutti_contributions_t *leaves,
                                         tutti_tensor_t *output);

#endif
