/* Reading slices where each host has a part of the files: a rank reads what its disk has, and gets
 * the rest from ranks of hosts that have it.
 */
#ifndef TT_HOST_SLICES_H
#define TT_HOST_SLICES_H

#include "runtime/checkpoint/load_slices.h"

/* As tt_slices_read(), of a load that has `holders`. A collective call. What cannot be read on one
 * host is taken from another that has it. Errors: those of tt_slices_read(), on all ranks. */
tutti_status_t tt_host_slices_read(const tt_slices_load_t *load);

#endif
