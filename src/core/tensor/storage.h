/* Storages: memory that tensors share, saved ones in a graph too.
 *
 * The memory may be taken away while tensors over it live, and come back later, elsewhere: for
 * parameters that are there only while they are used. Whoever brings it back writes the values that
 * were there, so the version stays as it is, and what a graph saved is still valid.
 *
 *     present ──evict──> away ──refill or lend──> filling ──publish──> present
 *                         ^──────────evict───────────┘
 *
 *     present   data is the memory
 *     away      there is none
 *     filling   data is memory that nobody may use but who fills it. It does so by the pointer, or
 *               by tensors of its own over it (tutti_tensor_wrap), whose version is another one
 *
 * While a storage is not present, tutti_tensor_data() of all its tensors is NULL, and what would
 * read or write their values fails with STATE and the reason that evict was given
 * (tt_tensor_check): operations, backward, optimizers, collectives and prepared calls, files,
 * digests. Shapes, gradients, hooks and versions are as ever.
 *
 * Nothing knows who uses the memory just now: a call under way (a collective, a replica's thread)
 * must have ended before evict. Copies of pinned memory keep it themselves.
 */
#ifndef TT_STORAGE_H
#define TT_STORAGE_H

#include <tutti/dtype.h>

#include "core/base/fail.h"
#include "core/base/ref.h"
#include "core/base/rng.h"
#include "core/device/device.h"

typedef struct tt_storage tt_storage_t;

/* Gives the memory, `data`, back to who lent it. */
typedef void (*tt_storage_release_t)(tt_storage_t *storage);

/* How initial values are made: later, elsewhere, for those of a tensor on meta. The tensor is
 * contiguous and the whole storage. */
typedef struct tt_initializer {
    /* Into x; NULL: they are zeros. */
    tutti_status_t (*run)(tutti_context_t *ctx, tutti_tensor_t *x,
                          const struct tt_initializer *initializer);
    double numbers[4];
    tt_rng_t rng;
    tutti_dtype_t dtype; /* in which values are made; a storage of another one was cast */
    uint32_t version;    /* of the storage: who wrote it since made other values */
} tt_initializer_t;

struct tt_storage {
    tt_ref_t ref;
    void *data;
    size_t bytes;
    uint32_t version;              /* counts writes outside autograd, to catch a change of what was
                                      saved */
    uint32_t changes;              /* those of them that a graph recorded: other tensors over the
                                      memory have no place in a graph since */
    uint32_t bounded;              /* those of them by which a forward shortened rows (max_norm),
                                      in evaluation, too: no training */
    const char *away;              /* why it is not present; NULL: it is */
    tt_storage_release_t release;  /* NULL: nothing is to be given back */
    void *owner;                   /* of the lender */
    bool is_pinned;                /* memory of the host, with which copies do not wait; what owns
                                      it is lent by a storage of its own (tt_storage_memory) */
    tt_device_t *device;           /* that `data` is memory of, retained; NULL: the host's */
    tt_initializer_t *initializer; /* of memory on meta; NULL: values have none */
};

/* Own memory of a device (NULL: plain memory), or borrowed. */
tutti_status_t tt_storage_new(tt_device_t *device, size_t bytes, bool zeroed, tt_storage_t **out);
tutti_status_t tt_storage_borrow(void *data, size_t bytes, tt_storage_release_t release,
                                 void *owner, tt_storage_t **out);
void tt_storage_retain(tt_storage_t *storage);
void tt_storage_release(tt_storage_t *storage);

/* Remember what would have made the values; its version is set. */
tutti_status_t tt_storage_keep(tt_storage_t *storage, const tt_initializer_t *initializer);

/* Copies between its memory, of the host, and a device do not wait from now on. Errors: NOMEM. */
tutti_status_t tt_storage_pin(tt_storage_t *storage);

/* Of a pinned storage: what a copy under way retains, so that the memory stays where it is, also
 * where the storage is evicted or takes over another one's. Borrowed. */
tt_storage_t *tt_storage_memory(tt_storage_t *storage);

/* Two storages of one size take over each other's memory. */
void tt_storage_swap(tt_storage_t *a, tt_storage_t *b);

/* Gives the memory back. What had begun to fill it may give up so, too.
 * reason: names the tensors, says why and what helps: "blocks.1 is sharded: call …"; borrowed until
 * the storage is published or gone. Errors: STATE (it is away). */
tutti_status_t tt_storage_evict(tt_storage_t *storage, const char *reason);

/* One that is away, and has no memory, was a device's: from now on it is the host's. */
void tt_storage_leave_device(tt_storage_t *storage);

/* New memory, of undefined values. Errors: STATE (it is not away), NOMEM (it stays away). */
tutti_status_t tt_storage_refill(tt_storage_t *storage, tt_device_t *device);

/* The same with memory that the caller has; `release` as of tt_storage_borrow. Errors: STATE. */
tutti_status_t tt_storage_lend(tt_storage_t *storage, void *data, tt_storage_release_t release,
                               void *owner);

/* The values are there. Errors: STATE (it is not being filled). */
tutti_status_t tt_storage_publish(tt_storage_t *storage);

#endif
