/* The index beside the files of a model, as Hugging Face's save_pretrained() writes it: which file
 * has which tensor.
 *
 *     tt_hf_index_t index;
 *     tt_hf_index_begin(&index);
 *     tt_hf_index_add(&index, "head.weight", "model-00001-of-00003.safetensors", 12288);
 *     TT_TRY(tt_hf_index_end(&index, folder));
 *
 *     {"metadata": {"total_size": 12288},
 *      "weight_map": {"head.weight": "model-00001-of-00003.safetensors"}}
 */
#ifndef TT_HF_INDEX_H
#define TT_HF_INDEX_H

#include <jansson.h>

#include "runtime/checkpoint/manifest.h"

#define TT_HF_INDEX_NAME "model.safetensors.index.json"

typedef struct {
    json_t *map;
    uint64_t bytes;
    bool is_whole; /* all that was added is in it */
} tt_hf_index_t;

void tt_hf_index_begin(tt_hf_index_t *index);

/* A tensor, its file, and its bytes. */
void tt_hf_index_add(tt_hf_index_t *index, const char *name, const char *file, uint64_t bytes);

/* The model's tensors of a checkpoint, if these are saved whole. */
void tt_hf_index_of(const tt_manifest_t *manifest, tt_hf_index_t *index);

/* Whether the folder's says the same; one of nothing need not be there. Releases the index in any
 * case. Errors: IO (it is not there), FORMAT (it says something else; both name it), NOMEM. */
tutti_status_t tt_hf_index_check(tt_hf_index_t *index, const char *folder);

/* Written into the folder, flushed; an index of nothing is not. Releases the index in any case.
 * Errors: NOMEM (also a name that is not UTF-8), IO. */
tutti_status_t tt_hf_index_end(tt_hf_index_t *index, const char *folder);

#endif
