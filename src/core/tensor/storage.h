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
 * must have ended before evict.
 */
#ifndef TT_STORAGE_H
#define TT_STORAGE_H

#include "core/base/fail.h"
#include "core/base/ref.h"
#include "core/device/device.h"

typedef struct tt_storage tt_storage_t;

/* Gives the memory, `data`, back to who lent it. */
typedef void (*tt_storage_release_t)(tt_storage_t *storage);

struct tt_storage {
    tt_ref_t ref;
    void *data;
    size_t bytes;
    uint32_t version;             /* counts writes outside autograd, to catch a change of what was
                                     saved */
    uint32_t changes;             /* those of them that a graph recorded: other tensors over the
                                     memory have no place in a graph since */
    const char *away;             /* why it is not present; NULL: it is */
    tt_storage_release_t release; /* NULL: nothing is to be given back */
    void *owner;                  /* of the lender */
    tt_device_t *device;          /* that `data` is memory of, retained; NULL: the host's */
};

/* Own memory of a device (NULL: plain memory), or borrowed. */
tutti_status_t tt_storage_new(tt_device_t *device, size_t bytes, bool zeroed, tt_storage_t **out);
tutti_status_t tt_storage_borrow(void *data, size_t bytes, tt_storage_release_t release,
                                 void *owner, tt_storage_t **out);
void tt_storage_retain(tt_storage_t *storage);
void tt_storage_release(tt_storage_t *storage);

/* Gives the memory back. What had begun to fill it may give up so, too.
 * reason: names the tensors, says why and what helps: "blocks.1 is sharded: call …"; borrowed until
 * the storage is published or gone. Errors: STATE (it is away). */
tutti_status_t tt_storage_evict(tt_storage_t *storage, const char *reason);

/* New memory, of undefined values. Errors: STATE (it is not away), NOMEM (it stays away). */
tutti_status_t tt_storage_refill(tt_storage_t *storage, tt_device_t *device);

/* The same with memory that the caller has; `release` as of tt_storage_borrow. Errors: STATE. */
tutti_status_t tt_storage_lend(tt_storage_t *storage, void *data, tt_storage_release_t release,
                               void *owner);

/* The values are there. Errors: STATE (it is not being filled). */
tutti_status_t tt_storage_publish(tt_storage_t *storage);

#endif
