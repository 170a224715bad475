/* The activations by their number, for the layers that take one. */
#ifndef TT_ACTIVATE_H
#define TT_ACTIVATE_H

#include <tutti/nn_layers.h>

#include "core/base/fail.h"

/* ARG unless it is one of the list, which draws nothing: for layers that do more than it. */
tutti_status_t tt_activation_check(const char *layer, tutti_activation_t activation);

/* TUTTI_ACTIVATION_DEFAULT is GELU here. */
tutti_tensor_t *tt_activate(tutti_scope_t *s, tutti_tensor_t *x, tutti_activation_t activation);

#endif
