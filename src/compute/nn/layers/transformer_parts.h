/* What encoders and decoders share: the options of a block's parts, and calls of them. */
#ifndef TT_TRANSFORMER_PARTS_H
#define TT_TRANSFORMER_PARTS_H

#include <tutti/nn_transformer.h>

#include "core/base/fail.h"

enum { TT_FEED_PARTS = 2 };

/* The two linear layers, with an activation and dropout between them and dropout behind. */
typedef struct {
    tutti_module_t *linear1, *linear2;
    float dropout;
} tt_feed_t;

/* ARG unless width, heads and numbers are such that parts can be made. */
tutti_status_t tt_transformer_check(const char *name, const tutti_transformer_options_t *o);

tutti_status_t tt_feed_add(tutti_module_t *m, const tutti_transformer_options_t *o,
                           tt_feed_t *feed);
tutti_tensor_t *tt_feed_forward(tutti_scope_t *s, tutti_module_t *m, const tt_feed_t *feed,
                                tutti_tensor_t *x);

tutti_status_t tt_attention_add(tutti_module_t *m, const char *name,
                                const tutti_transformer_options_t *o, bool is_causal,
                                tutti_module_t **out);
tutti_status_t tt_norm_add(tutti_module_t *m, const char *name,
                           const tutti_transformer_options_t *o, tutti_module_t **out);

/* Attention of x to a memory (or itself), with a mask and padding that may be NULL. */
tutti_tensor_t *tt_attend(tutti_scope_t *s, tutti_module_t *attention, tutti_tensor_t *x,
                          tutti_tensor_t *memory, tutti_tensor_t *const masks[2]);

/* A branch that is added to its input: y is the branch's result, or, with norms behind, the norm of
 * the sum. */
tutti_tensor_t *tt_add_branch(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x,
                              tutti_tensor_t *branch, float dropout);

#endif
