/* PNG and JPEG files of arbitrary bytes: refused with a text, or a whole picture. */
#include <stddef.h>
#include <stdint.h>

#include <tutti/pictures.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_tensor_t *x;
    if (tutti_picture_parse("fuzz", tutti_bytes_of(data, bytes), 3, &x) >= 0) {
        TT_ASSERT(tutti_tensor_rank(x) == 3 && tutti_tensor_dim(x, 0) == 3);
        TT_ASSERT(tutti_tensor_numel(x) > 0);
        tutti_tensor_release(x);
    } else {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
