/* What may be asked of interpolate. */
#ifndef TT_INTERPOLATE_OP_H
#define TT_INTERPOLATE_OP_H

#include <tutti/op_conv.h>

/* What is wrong with the mode and its flags; NULL: nothing. */
const char *tt_interpolate_fault(const tutti_interpolate_options_t *o);

#endif
