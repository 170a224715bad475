/* safetensors files of arbitrary bytes: refused with a text, or every tensor in them can be read.
 */
#include <stddef.h>
#include <stdint.h>

#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(const tutti_safetensors_t *file)
{
    for (size_t i = 0; i < tutti_safetensors_count(file); i++) {
        const tutti_safetensors_entry_t *entry = tutti_safetensors_at(file, i);
        TT_ASSERT(tutti_safetensors_find(file, entry->name) == entry);
        tutti_tensor_t *x;
        TT_ASSERT(tutti_tensor_create(entry->dtype, entry->shape, &x) == TUTTI_OK);
        const tutti_status_t status = tutti_safetensors_read(file, entry->name, x);
        TT_ASSERT(status == TUTTI_OK || entry->dtype == TUTTI_BOOL);
        tutti_tensor_release(x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_safetensors_t *file;
    const tutti_status_t status =
        tutti_safetensors_open_bytes("fuzz", tutti_bytes_of(data, bytes), &file);
    if (status >= 0) {
        read_all(file);
        tutti_safetensors_close(file);
    } else {
        TT_ASSERT(tutti_last_error()[0] != 0);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
