/* How dtypes are called in safetensors files ("BF16"). */
#ifndef TT_DTYPE_NAMES_H
#define TT_DTYPE_NAMES_H

#include <tutti/dtype.h>

const char *tt_dtype_safetensors_name(tutti_dtype_t dtype);
tutti_status_t tt_dtype_parse_safetensors(const char *name, tutti_dtype_t *out);

#endif
