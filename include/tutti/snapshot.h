/**
 * @file snapshot.h
 * Snapshots of a training, from which it goes on after a crash.
 *
 * Example:
 *
 *     const tutti_snapshots_t snapshots = {
 *         .folder = "snapshots", .group = world, .module = net, .optim = opt};
 *     int64_t step = 0;
 *     TUTTI_CHECK(tutti_snapshot_load(&snapshots, &step)); // END: there is none, step stays 0
 *     while (step < 1000) {
 *         // a training step
 *         step++;
 *         if (step % 100 == 0) {
 *             TUTTI_CHECK(tutti_snapshot_save(&snapshots, step));
 *         }
 *     }
 *
 * Learning rates, random numbers and the order of samples are pure functions of the step, so
 * weights, the optimizer's moments and the step are all that there is: a training that was killed
 * and goes on from a snapshot ends with the same bits as one that was not. `tutti run
 * --max-restarts R` starts it again by itself. DDP hooks that remember what they left out, such as
 * PowerSGD, begin without a memory.
 *
 *     FOLDER/step-000000000300/model.safetensors     as tutti_module_save() writes it
 *                              optim.safetensors     as tutti_optim_save() writes it
 *                              extra.safetensors     the tensors of yours
 *
 * A snapshot gets its name when it is on the disk as a whole, by a rename; what has another name is
 * none. For weights that are the same on every rank, as under DDP.
 */
#ifndef TUTTI_SNAPSHOT_H
#define TUTTI_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/group.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tensor of the program's, for example the seconds trained so far. */
typedef struct tutti_snapshot_tensor {
    const char *name;
    tutti_tensor_t *tensor;
} tutti_snapshot_tensor_t;

/** What is kept, and where; zero means default. */
typedef struct tutti_snapshots {
    const char *folder;   /**< one for each training; made with all above it */
    tutti_group_t *group; /**< whose rank 0 writes, and which agrees on one to load; NULL: alone */
    tutti_module_t *module;
    tutti_optim_t *optim;                   /**< NULL: none */
    const tutti_snapshot_tensor_t *tensors; /**< [tensor_count] more; may be NULL */
    size_t tensor_count;
    int keep;               /**< so many of the newest stay in the folder; 0: 3 */
    tutti_device_t *device; /**< of what lies on meta, a load gives it memory there, as
                                 tutti_module_load_to(); NULL: the host */
} tutti_snapshots_t;

/**
 * Write the snapshot of a step, on rank 0. One of the same step is replaced. What a crash has left
 * half written in the folder is removed, and so are the oldest snapshots.
 *
 * @param step  how many steps are done, at least 0
 * @thread      the context's; a collective call
 * @cost        writes model and moments once, and waits for the disk
 * @errors      ARG; IO (the disk is full …), NOMEM, on every rank; PEER, TIMEOUT
 * @source      the elastic examples of torchrun
 */
TUTTI_API tutti_status_t tutti_snapshot_save(const tutti_snapshots_t *snapshots, int64_t step);

/**
 * Load the newest snapshot that every rank can read. One that is damaged is passed over, with a
 * line in the log.
 *
 * @param step  out: its step
 * @return      END: there is none; nothing is changed
 * @thread      the context's; a collective call; the folder must be the same on every host
 * @cost        reads model and moments once on each rank
 * @errors      MISMATCH (of another model or optimizer), IO or FORMAT (none can be read: names the
 *              newest; what is in memory may be a part of it), NOMEM; PEER, TIMEOUT
 */
TUTTI_API tutti_status_t tutti_snapshot_load(const tutti_snapshots_t *snapshots, int64_t *step);

#ifdef __cplusplus
}
#endif

#endif
