/* What tensors can be loaded from, whoever wrote it: a manifest over the files of one folder.
 *
 *     NAME.safetensors                      one file
 *     FOLDER/model.safetensors.index.json   Hugging Face's shards; FOLDER, or the index itself
 *     FOLDER/model.safetensors              without an index
 *     FOLDER/model.safetensors, optim.…     a snapshot of earlier versions of Tutti
 *     NAME.bin                              llm.c's GPT-2 (source_llmc.c)
 *     FOLDER/manifest.json                  a step of ours; FOLDER, or the manifest itself
 *     FOLDER/step-000000000300              the newest of its steps
 *
 * A snapshot's optimizer is under "optim.", its kind in a text, as in ours. Only the last two have
 * digests. What a header says is compared with the file's size before
 * anything is believed: a tensor is inside its file, and between tensors there is nothing.
 */
#ifndef TT_SOURCE_H
#define TT_SOURCE_H

#include "core/base/file.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/step_folders.h"

typedef struct {
    const char *format; /* "safetensors", "Hugging Face", "snapshot", "llm.c", "checkpoint" */
    tt_path_t folder;   /* of the manifest's files */
    tt_manifest_t *manifest;
} tt_source_t;

/* Errors: ARG (a path that is too long), IO, FORMAT and UNSUPPORTED (name file, offset or tensor),
 * NOT_FOUND (a folder with nothing of the above), NOMEM. */
tutti_status_t tt_source_open(const char *path, tt_source_t *out);

/* NULL and what could not be opened do nothing. */
void tt_source_close(tt_source_t *source);

/* The file that was added last is known by its first bytes from now on. */
tutti_status_t tt_source_know(tt_source_t *source, const tt_file_t *file, uint64_t head_bytes);

/* The tensors of one more file of the source's folder, `prefix` in front of their names.
 * Errors: those of tutti_safetensors_open(); FORMAT (a name is in another file, too). */
tutti_status_t tt_source_add_safetensors(tt_source_t *source, const char *file, const char *prefix);

/* A text of a file's metadata, owned by the caller; NULL: it has none. */
tutti_status_t tt_source_metadata(const tt_source_t *source, const char *file, const char *name,
                                  char **out);

/* Those of the files that an index names. Errors: also FORMAT (it is none, or a tensor is not where
 * it says). */
tutti_status_t tt_source_add_index(tt_source_t *source, const char *file);

/* Whether a file begins as llm.c's do, and the tensors of one. Errors: also UNSUPPORTED. */
tutti_status_t tt_source_is_llmc(const char *path, bool *is_llmc);
tutti_status_t tt_source_add_llmc(tt_source_t *source, const char *file);

#endif
