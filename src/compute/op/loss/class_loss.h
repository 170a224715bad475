/* cross_entropy of other operations, where it has weights of classes, or probabilities. */
#ifndef TT_CLASS_LOSS_H
#define TT_CLASS_LOSS_H

#include <tutti/op_loss.h>

/* logits and targets are no null tensors; the label smoothing has been checked. */
tutti_tensor_t *tt_cross_entropy_composed(tutti_scope_t *s, tutti_tensor_t *logits,
                                          tutti_tensor_t *targets,
                                          const tutti_cross_entropy_options_t *o);

#endif
