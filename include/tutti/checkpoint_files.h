/**
 * @file checkpoint_files.h
 * Checkpoints as files: which there are, what is in them, whether they are whole, where two
 * differ, and the way into files of others and back. No group is needed.
 *
 * Example:
 *
 *     tutti_saved_t *saved;
 *     TUTTI_CHECK(tutti_saved_open("checkpoints", &saved)); // its newest step
 *     tutti_saved_tensor_t tensor;
 *     for (size_t i = 0; tutti_saved_at(saved, i, &tensor) == TUTTI_OK; i++) {
 *         printf("%s: %zu slices\n", tensor.name, tensor.slices);
 *     }
 *     const int64_t offset[] = {0, 0};
 *     tutti_status_t status = tutti_saved_read(saved, "up.weight", offset, x);
 *     tutti_saved_close(saved);
 *
 * `tutti checkpoint` is made of these calls.
 */
#ifndef TUTTI_CHECKPOINT_FILES_H
#define TUTTI_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/checkpoint.h>
#include <tutti/objects.h>
#include <tutti/safetensors.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a training's folder --------------------------------------------------------------------- */

/** A step in a training's folder. */
typedef struct tutti_checkpoint_step {
    int64_t step;
    bool is_published; /**< false: it is being written, or was when its job was killed */
    int64_t time_s;    /**< when its folder was last written, in seconds since 1970 */
    char name[32];     /**< of its folder in the training's */
} tutti_checkpoint_step_t;

/**
 * The steps in a folder, the oldest first.
 *
 * @param steps  out, owned by the caller: tutti_checkpoint_step_t, so many as there are bytes for
 * @thread       any
 * @errors       IO (the folder is not there, or cannot be read), NOMEM
 */
TUTTI_API tutti_status_t tutti_checkpoint_list(const char *folder, tutti_buffer_t *steps);

/**
 * Remove the checkpoint of a step.
 *
 * @thread  any
 * @errors  NOT_FOUND, IO, STATE (another job has the folder: names it)
 */
TUTTI_API tutti_status_t tutti_checkpoint_remove(const char *folder, int64_t step);

/* ---- what a checkpoint holds ----------------------------------------------------------------- */

/** A checkpoint that is open for reading. */
typedef struct tutti_saved tutti_saved_t;

/** All of it. Texts are valid until it is closed. */
typedef struct tutti_saved_about {
    const char *path;   /**< of the step's folder; of another format as it was given */
    const char *format; /**< "checkpoint", or that of others: "safetensors", "Hugging Face", … */
    int64_t step;       /**< 0 if it is another format's */
    int ranks;          /**< that saved it */
    size_t tensors;     /**< how many */
    uint64_t bytes;     /**< of all tensors */
    int hosts;        /**< with a disk each, of one of which this folder is; 0: it has all files */
    const char *host; /**< whose folder it seems to be, by the files in it; NULL: nobody's */
    size_t elsewhere; /**< files that are not here, but on other hosts */
} tutti_saved_about_t;

/** A tensor in it. */
typedef struct tutti_saved_tensor {
    const char *name; /**< valid until it is closed */
    tutti_dtype_t dtype;
    tutti_shape_t shape;
    size_t slices; /**< of which it is put together */
    uint64_t bytes;
} tutti_saved_tensor_t;

/** A part of a tensor, and where it is. */
typedef struct tutti_saved_part {
    int64_t offset[TUTTI_RANK_MAX]; /**< of its first element in the tensor */
    tutti_shape_t shape;
    int rank;           /**< who has written it */
    const char *file;   /**< in the checkpoint's folder; valid until it is closed */
    uint64_t at, bytes; /**< its place there */
} tutti_saved_part_t;

/**
 * Open a checkpoint: read what it holds, and compare that with its digest. Files of other formats
 * are opened as if they were checkpoints of one rank, without digests.
 *
 *     FOLDER/step-000000000300                a step; or its manifest.json
 *     FOLDER                                  a training, of which the newest step is meant
 *     NAME.safetensors                        one file
 *     FOLDER with model.safetensors           with model.safetensors.index.json: in several files
 *     NAME.bin                                llm.c's GPT-2; its tensors get the names of our GPT
 *
 * @param out   owned by the caller, to be closed with tutti_saved_close()
 * @thread      any
 * @cost        reads the manifest, or headers, only
 * @errors      NOT_FOUND (a folder with nothing of the above), IO (it is not there), FORMAT
 *              (damaged), UNSUPPORTED (of a later version; a file that is not called .safetensors,
 *              and begins as nothing of the above), ARG (a path that is too long), NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_open(const char *path, tutti_saved_t **out);

/** Close it; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_saved_close(tutti_saved_t *saved);

/** What it is. @thread any @errors none */
TUTTI_API tutti_saved_about_t tutti_saved_describe(const tutti_saved_t *saved);

/** A tensor by its number, in the order in which they were saved. @return END behind the last
 *  @thread any @errors none */
TUTTI_API tutti_status_t tutti_saved_at(const tutti_saved_t *saved, size_t index,
                                        tutti_saved_tensor_t *out);

/** A tensor by its name. @thread any @errors NOT_FOUND (names the nearest) */
TUTTI_API tutti_status_t tutti_saved_find(const tutti_saved_t *saved, const char *name,
                                          tutti_saved_tensor_t *out);

/** A part of the tensor of a number. Of one that tutti_saved_rename() transposes, the box is in the
 *  tensor as it is called now, and the bytes are those of the matrix in the file; a cast changes
 *  nothing of them. @return END behind the last @thread any @errors none */
TUTTI_API tutti_status_t tutti_saved_part_at(const tutti_saved_t *saved, size_t index, size_t part,
                                             tutti_saved_part_t *out);

/** A text by its number; those that the library saves are named "tutti.…". Valid until it is
 *  closed. @return END behind the last @thread any @errors none */
TUTTI_API tutti_status_t tutti_saved_text_at(const tutti_saved_t *saved, size_t index,
                                             tutti_named_text_t *out);

/**
 * Read a box of a tensor, comparing the blocks in which it is with their digests.
 *
 * @param offset  [rank] of its first element
 * @param to      [the box's shape], any dtype, strides and device
 * @thread        one at a time per checkpoint that is open
 * @cost          reads blocks of 16 KiB
 * @errors        NOT_FOUND (names the nearest), SHAPE (no part of it), IO, FORMAT (damaged: names
 *                file, offset and tensor), NOMEM; those of the tensor's device
 */
TUTTI_API tutti_status_t tutti_saved_read(tutti_saved_t *saved, const char *name,
                                          const int64_t *offset, tutti_tensor_t *to);

/* ---- whether it is whole, and the same ------------------------------------------------------- */

/** What is not as it was written. */
typedef struct tutti_saved_damage {
    const char *file;       /**< its path */
    const char *tensor;     /**< NULL: it is the file's own */
    uint64_t offset, bytes; /**< in the file; 0 bytes: nobody knows which */
    const char *problem;
} tutti_saved_damage_t;

/** A tensor that is not the same in two checkpoints. */
typedef struct tutti_saved_difference {
    const tutti_saved_tensor_t *a, *b; /**< NULL: there is none of its name */
    uint64_t
        count; /**< of elements that differ; 0: there is one only, or dtypes or shapes differ */
    int64_t first[TUTTI_RANK_MAX]; /**< the index of the first of them */
    char first_a[40], first_b[40]; /**< its values */
} tutti_saved_difference_t;

/** A text that is not the same in two checkpoints. */
typedef struct tutti_saved_text_difference {
    const char *name;
    const char *a, *b; /**< NULL: there is none of its name */
    size_t first;      /**< of the first byte that differs; 0 where one is not there */
} tutti_saved_text_difference_t;

/** Who is told while a call works; a function that is NULL is not called. */
typedef struct tutti_saved_watch {
    void *user;
    void (*progress)(void *user, uint64_t bytes, uint64_t all); /**< so many of all are done */
    void (*damage)(void *user, const tutti_saved_damage_t *damage);
    void (*difference)(void *user, const tutti_saved_difference_t *difference);
    void (*text)(void *user, const tutti_saved_text_difference_t *difference);
    bool (*is_stopped)(void *user); /**< asked by the calls that write files, for each window: true
                                         ends them with ABORTED, and takes away what they wrote */
} tutti_saved_watch_t;

/**
 * Whether all files of a checkpoint are there, as long as they must be, in a folder that has not
 * the name of another step; where each host has a disk, those of the folder's host, and others that
 * are there. Nothing is read, but for Hugging Face's index where tensors were saved whole.
 *
 * @thread  any
 * @errors  IO (names the file that is not there), FORMAT (names the one that is too short, an index
 *          that is not the manifest's, or the folder), NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_check(const tutti_saved_t *saved);

/**
 * Read all of a checkpoint, and compare it with its digests; go on behind damage. Of a format that
 * has none it is seen only that all of it can be read. Where each host has a disk, what is on
 * others is no damage.
 *
 * @param watch   borrowed; NULL: nobody is told
 * @param damage  out: how many times `watch` was told of damage; 0: the checkpoint is whole
 * @thread        any
 * @cost          reads every byte once; a window of 1 MiB, and the digests of a slice
 * @errors        NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_verify(const tutti_saved_t *saved,
                                            const tutti_saved_watch_t *watch, size_t *damage);

/**
 * Compare two checkpoints, element by element, by their bits: a NaN is the same as one with its
 * bits, and 0 is not -0. In whose parts they are does not matter. Then their texts, where both are
 * checkpoints: files of others have none.
 *
 * @param watch        borrowed; is told of each tensor that differs, in the order of a, then of b,
 *                     and then of each text
 * @param differences  out: how many tensors and texts
 * @thread             one at a time per checkpoint that is open
 * @cost               reads every byte of what both have; two windows of 16 MiB
 * @errors             IO, FORMAT (damaged: names file, offset and tensor), NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_diff(tutti_saved_t *a, tutti_saved_t *b,
                                          const tutti_saved_watch_t *watch, size_t *differences);

/**
 * Give its tensors other names, by which all calls but tutti_saved_verify() know them from now on:
 * with tutti_gpt2_rules(), those of our GPT to Hugging Face's GPT-2 and vice versa. Matrices are
 * transposed as the rules say. What no rule is about keeps its name, as do Adafactor's vectors of a
 * matrix that is transposed. Rules are about the names in its files, also after an earlier call.
 *
 * @param rules      [rule_count] borrowed
 * @param to_stored  from `name` to `stored`; false: from `stored` to `name`
 * @thread           one at a time per checkpoint that is open
 * @errors           ARG (a rule; two tensors would get one name; what is to be transposed is no
 *                   matrix), NOMEM; its names stay as they were
 */
TUTTI_API tutti_status_t tutti_saved_rename(tutti_saved_t *saved, const tutti_load_rule_t *rules,
                                            size_t rule_count, bool to_stored);

/**
 * Keep some of its tensors: those of a name that one of `include` matches, and none of `exclude`.
 * Names are those that they have now; a later tutti_saved_rename() is of all of them again.
 *
 * @param include  [include_count] borrowed; patterns as in a shell, `*` `?` `[…]`; none: all
 * @param exclude  [exclude_count] borrowed
 * @thread         one at a time per checkpoint that is open
 * @errors         ARG (a pattern is NULL), NOT_FOUND (none is left), NOMEM; all stay
 */
TUTTI_API tutti_status_t tutti_saved_select(tutti_saved_t *saved, const char *const *include,
                                            size_t include_count, const char *const *exclude,
                                            size_t exclude_count);

/**
 * Give its floating tensors another dtype: what is read and written of them is converted, as by
 * tutti_tensor_copy(); a value beyond its range is DTYPE then. A later tutti_saved_rename() gives
 * them their own again.
 *
 * @param dtype  f32, f64, f16 or bf16
 * @thread       one at a time per checkpoint that is open
 * @errors       DTYPE (not a floating one), NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_cast(tutti_saved_t *saved, tutti_dtype_t dtype);

/* ---- into other files ------------------------------------------------------------------------ */

/** Zero means default. */
typedef struct tutti_merge_options {
    uint64_t shard_bytes; /**< of a folder's files, at most, but for one with a single longer
                             tensor; 0: 5 GB */
    bool is_all; /**< also the optimizer's state and averages: names that begin with "optim."
                      and "averaged." */
    const tutti_saved_watch_t *watch; /**< borrowed; NULL: nobody is told */
} tutti_merge_options_t;

/**
 * Write whole tensors, as others read them.
 *
 * @param path     NAME.safetensors: one file, which is replaced. Anything else: a folder, as
 *                 Hugging Face's save_pretrained() lays it out: model.safetensors, or several files
 *                 and model.safetensors.index.json
 * @param options  borrowed; NULL: defaults
 * @thread         one at a time per checkpoint that is open
 * @cost           reads and writes each byte once, what is transposed more than once; a window of
 *                 16 MiB, and as much again of what is transposed
 * @errors         ARG (there is a model in the folder, or a training's steps), NOT_FOUND (all that
 *                 there is belongs to the optimizer), IO, FORMAT (damaged: names file, offset and
 *                 tensor), ABORTED (the watch has stopped it), NOMEM; of several files none stays
 */
TUTTI_API tutti_status_t tutti_saved_merge(tutti_saved_t *saved, const char *path,
                                           const tutti_merge_options_t *options);

/**
 * Write a checkpoint of as many ranks, each of which has a part of the rows of every tensor. Texts
 * go with it.
 *
 * @param folder  a training's; one of the same step in it is replaced
 * @param ranks   1 to 99999
 * @param watch   borrowed; NULL: nobody is told
 * @thread        one at a time per checkpoint that is open
 * @cost          as tutti_saved_merge()
 * @errors        ARG, IO, FORMAT (damaged: names file, offset and tensor), STATE (another job has
 *                the folder: names it), ABORTED (the watch has stopped it), NOMEM
 */
TUTTI_API tutti_status_t tutti_saved_split(tutti_saved_t *saved, const char *folder, int ranks,
                                           const tutti_saved_watch_t *watch);

/** Zero means default. */
typedef struct tutti_llmc_options {
    int heads; /**< of attention, which no tensor tells; 0: as in the llm.c file that it is from */
    const tutti_saved_watch_t *watch; /**< borrowed; NULL: nobody is told */
} tutti_llmc_options_t;

/**
 * Write a GPT-2 as llm.c's train_gpt2.py does: version 3 of f32 tensors, version 5 of bf16 ones,
 * the vocabulary padded with zeros to a multiple of 128. Its tensors have the names of
 * tutti_gpt_layer, or those of Hugging Face's GPT-2; of a checkpoint the optimizer's, and of files
 * of theirs the masks, are left out.
 *
 * @param path     NAME.bin, which is replaced
 * @param options  borrowed; NULL: defaults
 * @thread         one at a time per checkpoint that is open
 * @cost           as tutti_saved_merge()
 * @errors         MISMATCH (no GPT-2: lists what is missing, has another shape or dtype, or is no
 *                 part of one, which tutti_saved_select() leaves out; its head is not its
 *                 embedding), DTYPE (neither f32 nor bf16: tutti_saved_cast()), ARG (heads), IO,
 *                 FORMAT (damaged: names file, offset and tensor), ABORTED (the watch has stopped
 *                 it), NOMEM
 * @source         llm.c, train_gpt2.py: write_model
 */
TUTTI_API tutti_status_t tutti_saved_write_llmc(tutti_saved_t *saved, const char *path,
                                                const tutti_llmc_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
