/* Manifests of arbitrary bytes, as they are and with a digest that fits, as otherwise nothing
 * behind the digest's check would be reached: refused with a text, or what is printed again is the
 * same manifest. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/fail.h"
#include "runtime/checkpoint/manifest.h"

enum { END_BYTES = 46 }; /* ,"digest":"…"} and a new line */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void look_at(const tt_manifest_t *manifest)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &manifest->tensors[i];
        TT_ASSERT(tt_manifest_find(manifest, tensor->name) == tensor);
        TT_ASSERT(tutti_shape_numel(tensor->shape) >= 0);
        for (size_t k = 0; k < tensor->slice_count; k++) {
            const tt_saved_slice_t *slice = &tensor->slices[k];
            TT_ASSERT(tt_box_is_inside(&slice->box, tensor->shape));
            TT_ASSERT(slice->rank >= 0 && slice->rank < manifest->ranks);
            TT_ASSERT(slice->file == TT_NO_FILE ||
                      (slice->file >= 0 && (size_t)slice->file < manifest->file_count));
        }
    }
}

static void parse(tutti_bytes_t text)
{
    tt_manifest_t *manifest, *again;
    tutti_buffer_t once, twice;
    if (tt_manifest_parse("fuzz", text, &manifest) < 0) {
        TT_ASSERT(tutti_last_error()[0] != 0);
        return;
    }
    look_at(manifest);
    TT_ASSERT(tt_manifest_print(manifest, &once) == TUTTI_OK);
    TT_ASSERT(tt_manifest_parse("printed", tt_buffer_view(&once), &again) == TUTTI_OK);
    TT_ASSERT(tt_manifest_print(again, &twice) == TUTTI_OK);
    TT_ASSERT(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    tutti_buffer_release(&once);
    tutti_buffer_release(&twice);
    tt_manifest_release(manifest);
    tt_manifest_release(again);
}

/* What stands before the digest, or would. */
static void parse_signed(const uint8_t *data, size_t bytes)
{
    char digest[TT_DIGEST_TEXT_BYTES];
    char *text = tt_alloc_raw(bytes + END_BYTES + 1, "fuzz");
    TT_ASSERT(text != NULL);
    memcpy(text, data, bytes);
    snprintf(text + bytes, END_BYTES + 1, ",\"digest\":\"%s\"}\n",
             tt_digest_format(tt_digest_of(data, bytes), digest));
    parse(tutti_bytes_of(text, bytes + END_BYTES));
    tt_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0) {
        parse(tutti_bytes_of(data, bytes));
        parse_signed(data, bytes > END_BYTES ? bytes - END_BYTES : bytes);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
