/* The inside of the conformance suite: one case, and what its checks share. */
#ifndef TT_CONFORM_IMPL_H
#define TT_CONFORM_IMPL_H

#include <stddef.h>

#include <tutti/collectives.h>
#include <tutti/devices.h>

#include "backend_conform.h"

enum { TT_CONFORM_RANKS_MAX = 64 };

/* Where the ranks have their tensors. BOTH: rank by rank in one or the other; HALVES: the first
 * half of the ranks in the heap, the others outside it, for TT_CONFORM_HOSTS alone. */
typedef enum {
    TT_IN_HEAP,
    TT_IN_FOREIGN,
    TT_IN_BOTH,
    TT_IN_HALVES,
    TT_ON_DEVICE,       /* of its own, for TT_CONFORM_DEVICE alone, as the next */
    TT_ON_SOME_DEVICES, /* odd ranks; the others on the host */
    TT_MEMORIES
} tt_conform_memory_t;

/* One case: the same on every rank. */
typedef struct {
    tutti_group_t *group;
    int rank, size;
    tutti_dtype_t dtype;
    tutti_reduction_t op;
    const tutti_custom_reduction_t *custom; /* of TUTTI_CUSTOM */
    size_t count;
    int root;
    tt_conform_memory_t memory;
    tutti_device_t *device; /* or NULL */
    uint64_t cases;         /* so far, on a device */
    tt_conform_t *out;
} tt_conform_at_t;

/* Elements [begin, begin + count) of a rank's contribution. */
void tt_conform_fill(void *data, tutti_dtype_t dtype, size_t begin, size_t count, int rank);
void *tt_conform_room(size_t bytes);
size_t tt_conform_bytes_of(const tt_conform_at_t *at, size_t count);
void *tt_conform_data(const tutti_tensor_t *x);
tutti_tensor_t *tt_conform_make(const tt_conform_at_t *at, size_t count);
tutti_tensor_t *tt_conform_make_filled(const tt_conform_at_t *at, size_t count);

/* Note what is wrong; count what is checked. */
void tt_conform_note(const tt_conform_at_t *at, const char *what, const char *how);
void tt_conform_ok(const tt_conform_at_t *at, const char *what, tutti_status_t status);
void tt_conform_bytes(const tt_conform_at_t *at, const char *what, const void *got,
                      const void *want, size_t bytes);
/* Against elements [begin, …) of a rank's contribution. */
void tt_conform_elements(const tt_conform_at_t *at, const char *what, const void *got, size_t begin,
                         size_t count, int rank);

/* The reduction of all ranks' elements [0, count), by the kernels' tree in one process; `scales`:
 * premul_sum. Owned by the caller. */
void *tt_conform_reference(const tt_conform_at_t *at, size_t count, bool scales);

/* The same over the first ranks alone; at least one. */
void *tt_conform_prefix(const tt_conform_at_t *at, size_t count, int ranks);

/* conform_calls.c */
void tt_conform_check_all_reduce(const tt_conform_at_t *at);
void tt_conform_check_scan(const tt_conform_at_t *at);
void tt_conform_check_reduce_scatter(const tt_conform_at_t *at);
void tt_conform_check_reduce_scatter_uneven(const tt_conform_at_t *at);
void tt_conform_check_premul(const tt_conform_at_t *at);
void tt_conform_check_broadcast(const tt_conform_at_t *at);
void tt_conform_check_all_gather(const tt_conform_at_t *at);
void tt_conform_check_all_gather_uneven(const tt_conform_at_t *at);
void tt_conform_check_gather(const tt_conform_at_t *at);
void tt_conform_check_scatter(const tt_conform_at_t *at);
void tt_conform_check_all_to_all(const tt_conform_at_t *at);
void tt_conform_check_all_to_all_uneven(const tt_conform_at_t *at);

/* conform_custom.c; `turn` chooses how many numbers an element has. */
void tt_conform_check_custom(const tt_conform_at_t *at, int turn);

/* conform_more.c */
void tt_conform_check_in_flight(const tt_conform_at_t *at);
void tt_conform_check_in_order(const tt_conform_at_t *at);
void tt_conform_check_coalesced(const tt_conform_at_t *at);
void tt_conform_check_messages(const tt_conform_at_t *at);
void tt_conform_check_objects(const tt_conform_at_t *at);

/* conform_prepared.c */
void tt_conform_check_prepared(const tt_conform_at_t *at);

#endif
