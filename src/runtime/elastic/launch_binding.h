/* Which cores each rank of this host gets. */
#ifndef TT_LAUNCH_BINDING_H
#define TT_LAUNCH_BINDING_H

#include "core/base/core_set.h"

typedef struct {
    tt_core_set_t cpus;
    int cores;
} tt_binding_t;

/* Disjoint neighbours in the order of the topology; with more ranks than cores they take turns. */
void tt_bindings_plan(int rank_count, tt_binding_t *out);

#endif
