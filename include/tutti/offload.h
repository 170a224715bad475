/**
 * @file offload.h
 * Optimizer state on a disk: moments and f32 masters lie in a file, come into memory a piece at a
 * time while the optimizer steps, and go back behind it. Threads read ahead in the order of the
 * step before, and write behind. Values, steps and files are the same bits as without.
 *
 * Example:
 *
 *     tutti_optim_t *opt;
 *     TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adamw, NULL, &opt));
 *     TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
 *     TUTTI_CHECK(tutti_optim_offload(opt, "/scratch"));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_optim_release(opt);
 *
 * The file has no name: it is gone with the process, however that ends, and no other rank reads it.
 * It is reserved before it is written: a full disk is an error of the step that first needs the
 * room, and of tutti_optim_offload(), and nothing is changed then. It goes past the page cache
 * (O_DIRECT) where the file system can.
 *
 * A read that fails before a step has changed anything leaves the step undone; it can be tried
 * again. What fails later, also in writing behind, breaks the optimizer: from then on it says STATE
 * with the first failure, until a state is loaded (tutti_checkpoint_load(), tutti_optim_load());
 * parameters are then in the middle of a step, too, so load both.
 *
 * Every kind of optimizer works so, by itself and under DDP at any stage; from stage 1 on each
 * rank's file holds the state of its slices. Where the slices themselves lie on a disk
 * (tutti_ddp_options_t.offload), state lies there with them, and this call changes nothing. Kinds
 * that look at whole parameters, and parameters of few elements, come whole; others in pieces of 1
 * MiB of each moment.
 */
#ifndef TUTTI_OFFLOAD_H
#define TUTTI_OFFLOAD_H

#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Keep the state in a file of this rank from now on; what there is already moves there.
 *
 * @param opt     whose parameters lie in the host's memory, or on meta
 * @param folder  on any disk, made where it is not there; ranks may share it; borrowed. NULL: the
 *                state comes back into memory
 * @thread        the context's
 * @cost          memory of four pieces (tutti_optim_offload_stats()); of a step, the state is read
 *                once and written once (LAMB: twice, of parameters above one piece)
 * @errors        IO (the folder), NOMEM (no room on the disk: names folder and bytes; memory),
 *                STATE (broken, see above; a step is under way), UNSUPPORTED (a parameter on an
 *                accelerator); nothing is changed then
 * @source        Rajbhandari et al., "ZeRO-Infinity", SC 2021; DeepSpeed's offload_optimizer
 */
TUTTI_API tutti_status_t tutti_optim_offload(tutti_optim_t *opt, const char *folder);

typedef struct tutti_offload_stats {
    uint64_t file_bytes;                /**< reserved on the disk */
    uint64_t read_bytes, written_bytes; /**< by steps, so far */
    uint64_t buffer_bytes;              /**< memory in which pieces come and go */
    int64_t waited_ns;                  /**< in which steps waited for the disk, so far */
    bool is_direct;                     /**< past the page cache */
} tutti_offload_stats_t;

/** What offloading has cost; zeros without. @param out written @thread the context's @errors none
 */
TUTTI_API void tutti_optim_offload_stats(const tutti_optim_t *opt, tutti_offload_stats_t *out);

#ifdef __cplusplus
}
#endif

#endif
