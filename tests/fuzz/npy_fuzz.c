/* .npy files of arbitrary bytes: refused with a text, or a whole tensor. */
#include <stddef.h>
#include <stdint.h>

#include <tutti/data_files.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_tensor_t *x;
    if (tutti_npy_parse("fuzz", tutti_bytes_of(data, bytes), &x) >= 0) {
        TT_ASSERT(tutti_tensor_is_contiguous(x));
        TT_ASSERT(tutti_tensor_bytes(x) < bytes);
        tutti_tensor_release(x);
    } else {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
