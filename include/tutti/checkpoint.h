/**
 * @file checkpoint.h
 * Checkpoints of a training, from which it goes on after a crash, or on other ranks: every rank
 * saves what it has, and any number of ranks, with other parts of the tensors, load it again.
 *
 * Example:
 *
 *     const tutti_checkpoint_t checkpoint = {
 *         .folder = "checkpoints", .group = world, .module = net, .optim = opt};
 *     int64_t step = 0;
 *     TUTTI_CHECK(tutti_checkpoint_load(&checkpoint, &step)); // END: there is none, step stays 0
 *     while (step < 1000) {
 *         // a training step
 *         step++;
 *         if (step % 100 == 0) {
 *             TUTTI_CHECK(tutti_checkpoint_save(&checkpoint, step));
 *         }
 *     }
 *
 * Learning rates, random numbers and the order of samples are pure functions of the step, so
 * weights, the optimizer's moments and the step are all that there is: a training that was killed
 * and goes on from a checkpoint ends with the same bits as one that was not. `tutti run
 * --max-restarts R` starts it again by itself. DDP hooks that remember what they left out, such as
 * PowerSGD, begin without a memory.
 *
 * Tensors of your own are slices:
 *
 *     // a matrix of which each rank has some rows
 *     const tutti_slice_t slices[] = {
 *         tutti_slice_box("up.weight", w, TUTTI_SHAPE(4096, 1024),
 *                         (int64_t[]){rank * 1024, 0}),
 *         tutti_slice_whole("seconds", seconds)};
 *
 * A slice that several ranks have is written by one of them, so that all write as many bytes;
 * together the slices are all of each tensor.
 *
 *     FOLDER/step-000000000300/manifest.json                what is where (docs/formats)
 *                              rank-00000-0.safetensors     a rank's slices
 *                              rank-00000-0.digests         of their blocks
 *
 * With `whole` each tensor lies in one file, so that other programs open the model where it is:
 *
 *     FOLDER/step-000000000300/manifest.json
 *                              model.safetensors.index.json      which of the module's tensors is
 *                              model-00001-of-00002.safetensors  in which file
 *                              model-00001-of-00002.digests
 *                              rank-00000-0.safetensors          all others of rank 0
 *
 * Of tensors that no rank has whole, the parts go to the rank that writes it.
 *
 * A checkpoint gets its name when it is on the disk as a whole, by a rename. All that is read is
 * compared with its digest first. Files are safetensors, with the offsets of slices as PyTorch's
 * HuggingFaceStorageReader expects them.
 *
 * Hosts without a common file system have a folder each, with .per_host: ranks write on their own
 * host's disk, whose first rank publishes there. A step counts if its files, whoever has them, are
 * all there; a rank that lacks some gets them from the others. What is on one disk alone is lost
 * with it: with .host_copies = 2 every file is on the next host, too. A step that is saved again is
 * replaced host by host: the old one stays until the new one has its name on all of them, so that a
 * crash between two leaves the one or the other.
 *
 * A folder is one job's: whoever has saved or loaded there holds it until its process ends. Another
 * job, such as the next attempt after a crash, waits until the last rank of the one before has
 * ended, 10 s at most (TUTTI_CHECKPOINT_WAIT_MS); a folder that this user may not write is read
 * without.
 */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tutti/averaged.h>
#include <tutti/dataloader.h>
#include <tutti/group.h>
#include <tutti/modes.h>
#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tutti_slice_kind {
    TUTTI_SLICE_WHOLE,    /**< all of a tensor */
    TUTTI_SLICE_BOX,      /**< the elements from an offset on, as many as the slice has */
    TUTTI_SLICE_INTERVAL, /**< elements that follow each other in row-major order */
} tutti_slice_kind_t;

/** What a rank has of a tensor. Made by the functions below. */
typedef struct {
    const char *name; /**< of the whole tensor; UTF-8 */
    tutti_tensor_t *tensor;
    tutti_slice_kind_t kind;
    tutti_shape_t whole;            /**< of a box or an interval */
    int64_t offset[TUTTI_RANK_MAX]; /**< of a box: of its first element */
    int64_t first;                  /**< of an interval: its first element, counted row-major */
} tutti_slice_t;

/** All of it. @thread any @errors none */
static inline tutti_slice_t tutti_slice_whole(const char *name, tutti_tensor_t *tensor)
{
    tutti_slice_t slice;
    memset(&slice, 0, sizeof slice);
    slice.name = name;
    slice.tensor = tensor;
    slice.kind = TUTTI_SLICE_WHOLE;
    return slice;
}

/** A box of it. @param offset [whole.rank] @thread any @errors none */
static inline tutti_slice_t tutti_slice_box(const char *name, tutti_tensor_t *tensor,
                                            tutti_shape_t whole, const int64_t *offset)
{
    tutti_slice_t slice = tutti_slice_whole(name, tensor);
    slice.kind = TUTTI_SLICE_BOX;
    slice.whole = whole;
    memcpy(slice.offset, offset, (size_t)whole.rank * sizeof *offset);
    return slice;
}

/** Elements [first, first + numel) of it, whatever the slice's own shape. @thread any
 *  @errors none */
static inline tutti_slice_t tutti_slice_interval(const char *name, tutti_tensor_t *tensor,
                                                 tutti_shape_t whole, int64_t first)
{
    tutti_slice_t slice = tutti_slice_whole(name, tensor);
    slice.kind = TUTTI_SLICE_INTERVAL;
    slice.whole = whole;
    slice.first = first;
    return slice;
}

/** A text of yours, which one rank or several save, and any rank may load. */
typedef struct tutti_checkpoint_text {
    const char *name;      /**< UTF-8; those that begin with "tutti." are the library's */
    tutti_bytes_t saved;   /**< UTF-8 without 0; the same on all ranks that have one; no data: this
                                rank has none */
    tutti_buffer_t loaded; /**< out, of a load; owned by the caller; one that was there before is
                                released, so begin with zeros */
} tutti_checkpoint_text_t;

/** What is kept, and where; zero means default, and of objects: none. */
typedef struct tutti_checkpoint {
    const char *folder;         /**< one for each training; made with all above it */
    tutti_group_t *group;       /**< whose ranks save and load together; NULL: this one alone */
    tutti_module_t *module;     /**< parameters and buffers, under their names */
    tutti_optim_t *optim;       /**< its state, as "optim.<parameter>.<moment>"; of its kind only */
    tutti_scaler_t *scaler;     /**< its scale and counts */
    tutti_dataloader_t *loader; /**< where it stands */
    const tutti_slice_t *slices; /**< [slice_count] more tensors, of this rank; other ranks may have
                                      others */
    size_t slice_count;
    tutti_checkpoint_text_t *texts; /**< [text_count] */
    size_t text_count;
    int keep; /**< so many stay in the folder, the newest of those up to the step that is saved;
                   0: 3; with per_host alike on all ranks */
    tutti_device_t *device; /**< of a module's tensors on meta, a load gives them memory there, as
                                 tutti_module_load_to(); NULL: the host */
    int64_t shards; /**< of the training, on which its bits depend: a load by a training with
                         another number says so in the log; 0: not told */
    const tutti_schedule_t *schedule; /**< written down for those who read the manifest */
    bool whole;      /**< a save puts each tensor into one file, those of the module into files
                          that Hugging Face's model.safetensors.index.json names; any load reads
                          either */
    bool per_host;   /**< hosts have disks of their own, each with a folder of this name; alike on
                          all ranks */
    int host_copies; /**< with per_host: a rank's files are on so many hosts, its own and the next
                          ones; more than there are: on all; 0: 1. Alike on all ranks */
    int64_t mtbf_s;  /**< seconds between failures of the job, on average: with TUTTI_LOG=info the
                          log says how often to save; 0: as often as the launcher had to start it
                          again so far */
    const int64_t *keep_steps; /**< [keep_step_count] steps that stay, too, however old they are;
                                    alike on all ranks */
    size_t keep_step_count;
    tutti_averaged_t *averaged; /**< its averages, as "averaged.<tensor>", and their number, as
                                     "averaged.updates"; not while they are swapped in */
} tutti_checkpoint_t;

/**
 * Write the checkpoint of a step. One of the same step is replaced. What a crash has left half
 * written in the folder is removed, and so are the oldest checkpoints.
 *
 * @param step  how many steps are done, at least 0
 * @thread      the context's; a collective call; the folder must be the same on every host, or
 *              per_host be set
 * @cost        each rank writes what it alone has, and its share of what several have, and waits
 *              for the disk; slices that do not lie contiguous in the host's memory are copied, one
 *              at a time. With `whole` tensors that no rank has whole are dealt out by their bytes,
 *              and are in the memory of the rank that writes them until the call returns, with
 *              8 MiB beside them (128 KiB for each rank of more than 64); so are copies for others
 * @errors      on every rank, and nothing is changed: ARG (slices that overlap, leave a gap, or are
 *              no part of their tensor: names tensor and ranks; per_host where hosts have a common
 *              folder), MISMATCH (ranks have other shapes or dtypes of it, other texts of a name,
 *              another step, `whole`, or per_host, or with it another host_copies, keep or
 *              keep_steps: names them), STATE (a slice lies on meta; the data loader is
 *              within a step; another job has the folder: says which), IO (the disk is full; a
 *              rank's folder is another one …), NOMEM; PEER, TIMEOUT
 * @source      torch.distributed.checkpoint.save
 */
TUTTI_API tutti_status_t tutti_checkpoint_save(const tutti_checkpoint_t *checkpoint, int64_t step);

/**
 * Load the newest checkpoint that every rank can read. One that is damaged is passed over, with a
 * line in the log. A snapshot that an earlier version wrote in the folder is one, too.
 *
 * @param step  out: its step
 * @return      END: there is none; nothing is changed
 * @thread      the context's; a collective call; the folder must be the same on every host, or
 *              per_host be set: also for what hosts with a common folder have saved, and on other
 *              hosts than those that saved, as long as all files are on some of them
 * @cost        each rank reads the blocks of 16 KiB in which its slices are; with per_host what its
 *              host has not comes from ranks of others, and takes 32 MiB at a time there and here
 * @errors      ARG (folder, options, slices), STATE (a slice lies on meta; another job has the
 *              folder), UNSUPPORTED (the newest is of a later version), MISMATCH (it lacks tensors
 *              or texts, has some that no rank has, or others of their names: lists those of all
 *              ranks; the state of another optimizer, or of a loader of other samples), IO or
 *              FORMAT (none can be read: names the newest, with file, offset and tensor; what is in
 *              memory may be a part of it), NOMEM; PEER, TIMEOUT
 * @source      torch.distributed.checkpoint.load
 */
TUTTI_API tutti_status_t tutti_checkpoint_load(const tutti_checkpoint_t *checkpoint, int64_t *step);

/**
 * Where a training begins. One that resumes is loaded, and begins at 0 where there is nothing to
 * load; one that does not must have a folder without checkpoints. TUTTI_LOG=info has a line of it.
 *
 *     TUTTI_CHECK(tutti_checkpoint_begin(&checkpoint, resume || tutti_restart_count() > 0, &step));
 *
 * @param step  out: its first one, counted from 0
 * @return      END: it begins at step 0
 * @thread      the context's; a collective call; the folder must be the same on every host, or
 *              per_host be set
 * @errors      as tutti_checkpoint_load(); STATE (not `resume`, and the folder, of any host with
 *              per_host, has a checkpoint: names its step)
 */
TUTTI_API tutti_status_t tutti_checkpoint_begin(const tutti_checkpoint_t *checkpoint, bool resume,
                                                int64_t *step);

/**
 * The newest step of which a folder has a checkpoint, whole by its name.
 *
 * @param step  out; unchanged where there is none
 * @return      END: there is none, or no such folder
 * @thread      any
 * @cost        reads the names in the folder
 * @errors      ARG, IO
 */
TUTTI_API tutti_status_t tutti_checkpoint_newest(const char *folder, int64_t *step);

/* ---- in the background ----------------------------------------------------------------------- */

/**
 * Saves that are written while steps go on.
 *
 *     tutti_saver_t *saver;
 *     TUTTI_CHECK(tutti_saver_create(&checkpoint, &saver));
 *     // in the loop, instead of tutti_checkpoint_save()
 *     TUTTI_CHECK(tutti_saver_save(saver, step));
 *     // behind it
 *     TUTTI_CHECK(tutti_saver_wait(saver));
 *     tutti_saver_release(saver);
 */
typedef struct tutti_saver tutti_saver_t;

/**
 * Make a saver.
 *
 * @param checkpoint  what is kept; copied, but all that it points to must live as long as the saver
 * @param out         owned by the caller, to be released with tutti_saver_release
 * @thread            the context's; a collective call
 * @cost              as tutti_group_new: its ranks meet in the store
 * @errors            as tutti_group_new; NOMEM
 */
TUTTI_API tutti_status_t tutti_saver_create(const tutti_checkpoint_t *checkpoint,
                                            tutti_saver_t **out);

/**
 * As tutti_checkpoint_save(), but it returns when the state is copied: a thread writes it, and
 * ranks tell each other through the group's store how that went. One save is under way at a time:
 * the next one waits for it, and returns its failure instead of beginning. Where a group has no
 * store, under MPI, the call writes.
 *
 * @thread  the context's; a collective call
 * @cost    a copy of what this rank writes, in the host's memory
 * @errors  as tutti_checkpoint_save, of this save or the one before; TIMEOUT (names the rank that
 *          has not written its files within the group's timeout; rank 0's end is waited for
 *          (ranks + 1) times as long), PEER (a rank is gone)
 * @source  torch.distributed.checkpoint.async_save
 */
TUTTI_API tutti_status_t tutti_saver_save(tutti_saver_t *saver, int64_t step);

/** Until nothing is under way. Load behind it, and save into its folder otherwise: that removes
 *  what the saver has half written, which fails. @thread the context's; a collective call
 *  @errors those of the save that was under way; PEER, TIMEOUT */
TUTTI_API tutti_status_t tutti_saver_wait(tutti_saver_t *saver);

/** How the last save goes that was begun. */
typedef enum tutti_save_state {
    TUTTI_SAVE_NONE,      /**< none was begun yet */
    TUTTI_SAVE_WRITING,   /**< it is under way */
    TUTTI_SAVE_PUBLISHED, /**< it is on the disk, under its name */
    TUTTI_SAVE_FAILED,    /**< tutti_saver_wait(), or the next save, says why */
} tutti_save_state_t;

/** What this rank does for a save. */
typedef struct tutti_save_progress {
    tutti_save_state_t state;
    int64_t step;        /**< -1: none was begun yet */
    uint64_t bytes, all; /**< so many of all that this rank writes are in its files; what comes then
                              is that all ranks' are flushed, and get their name */
    double seconds;      /**< since it began; of one that has ended: that it took */
    double
        held_seconds; /**< of these so many were the caller's: until tutti_saver_save() returned */
} tutti_save_progress_t;

/** How far it is, without waiting. @param progress out @thread the context's @errors none */
TUTTI_API void tutti_saver_progress(const tutti_saver_t *saver, tutti_save_progress_t *progress);

/** Whether nothing is under way on this rank, so that the next call does not wait for it. @thread
 *  the context's @errors none: true for NULL */
TUTTI_API bool tutti_saver_is_done(const tutti_saver_t *saver);

/** End what is under way, and release the saver; other ranks are waited for 10 s at most, and a
 *  failure goes to the log: tutti_saver_wait() comes first. NULL does nothing. @thread the
 *  context's @errors none */
TUTTI_API void tutti_saver_release(tutti_saver_t *saver);

/* ---- files of others ------------------------------------------------------------------------- */

/* Loading tensors from files of any format, as for fine-tuning.
 *
 * Example:
 *
 *     // GPT-2 as Hugging Face publishes it, in bf16, without the masks that old files hold
 *     const char *const masks[] = {"*.attn.bias", "*.attn.masked_bias"};
 *     tutti_load_options_t options = {.exclude = masks, .exclude_count = 2, .cast = true};
 *     options.rules = tutti_gpt2_rules(&options.rule_count);
 *     const tutti_checkpoint_t checkpoint = {.group = world, .module = net};
 *     TUTTI_CHECK(tutti_checkpoint_load_from(&checkpoint, "model.safetensors", &options));
 */

/** What a tensor here is called there. */
typedef struct tutti_load_rule {
    const char *name;   /**< here; one `*` in it stands for any characters */
    const char *stored; /**< there; a `*` in it is what the other one stands for */
    bool transposed;    /**< a matrix that is [out, in] here, and [in, out] there; so is an
                             optimizer's state of it, "optim.<parameter>.<moment>", which goes by
                             its parameter's rule on both sides */
} tutti_load_rule_t;

/** How to load; zero means default: all tensors of either side are on the other one, too. */
typedef struct tutti_load_options {
    const char *const *include; /**< [include_count] patterns as in a shell, `*` `?` `[…]`: what is
                                     loaded, by its name here, an optimizer's as
                                     "optim.<parameter>.<moment>"; none: all */
    size_t include_count;
    const char *const *exclude; /**< [exclude_count] patterns of what is not, on both sides */
    size_t exclude_count;
    const tutti_load_rule_t *rules; /**< [rule_count] the first that leads to a tensor there holds;
                                         none: it has its own name */
    size_t rule_count;
    bool cast;          /**< dtypes may differ: values are converted, as by tutti_tensor_copy(); one
                             that is beyond the range here, or not finite and an integer here, is
                             an error */
    bool allow_missing; /**< what is not there stays as it is; of a parameter's state in the
                             optimizer all or nothing is loaded */
    bool allow_surplus; /**< what no rank has is not read */
} tutti_load_options_t;

/**
 * Load tensors from files of any format: a safetensors file; a folder with model.safetensors, or
 * with Hugging Face's shards and their index; llm.c's GPT-2 (.bin, f32 and bf16; its tensors have
 * the names of tutti_gpt_layer); a folder of checkpoints, of which the newest is taken, or of one
 * of them; a snapshot of earlier versions (the optimizer's tensors begin with "optim.").
 *
 * @param checkpoint  what is loaded into: module, optimizer, slices; and the group. Nothing else of
 *                    it is used
 * @param path        the same on every rank, and its files on every host: one that begins otherwise
 *                    there is FORMAT
 * @param options     NULL: none
 * @thread            the context's; a collective call
 * @cost              each rank reads what it has; of what is converted, transposed or on a device
 *                    16 MiB at a time are copied
 * @errors            ARG (options), STATE (a slice lies on meta, or a tensor of the module that
 *                    nothing is loaded into), MISMATCH (tensors that are missing, too many, or of
 *                    another shape or dtype: lists those of all ranks, and nothing is changed; an
 *                    optimizer of another kind), IO, FORMAT, UNSUPPORTED (name file, offset,
 *                    tensor) and DTYPE (a value that cannot be converted: names tensor, element and
 *                    value): what is in memory may be a part of it then; NOT_FOUND (a folder
 *                    without any of the above), NOMEM; PEER, TIMEOUT
 * @source            torch.distributed.checkpoint.load, transformers' from_pretrained
 */
TUTTI_API tutti_status_t tutti_checkpoint_load_from(const tutti_checkpoint_t *checkpoint,
                                                    const char *path,
                                                    const tutti_load_options_t *options);

/**
 * What Hugging Face's GPT-2 calls the tensors of tutti_gpt_layer: with "transformer." and without,
 * the embedding for a head that is not there.
 *
 * @return  [count] static
 * @thread  any
 * @errors  none
 */
TUTTI_API const tutti_load_rule_t *tutti_gpt2_rules(size_t *count);

#ifdef __cplusplus
}
#endif

#endif
