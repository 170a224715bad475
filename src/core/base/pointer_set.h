/* A set of addresses, for walks that visit what is shared once. Zeros are an empty set.
 *
 *     tt_pointer_set_t seen = {0};
 *     bool is_new;
 *     TT_TRY(tt_pointer_set_add(&seen, x, &is_new));
 *     …
 *     tt_pointer_set_release(&seen);
 *
 * Open addressing, at most half full, places by multiplication (Knuth, The Art of Computer
 * Programming 3, 6.4). Cost: of an addition about 1.5 looks, whatever the size.
 */
#ifndef TT_POINTER_SET_H
#define TT_POINTER_SET_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/status.h>

typedef struct {
    const void **places; /* [capacity], a power of two; NULL: free */
    size_t count, capacity;
    size_t looks; /* at places, since it was empty */
} tt_pointer_set_t;

/* pointer: not NULL. is_new: out, whether it was not there. Errors: NOMEM (nothing is added). */
tutti_status_t tt_pointer_set_add(tt_pointer_set_t *set, const void *pointer, bool *is_new);

/* Whether it is there. */
bool tt_pointer_set_has(const tt_pointer_set_t *set, const void *pointer);

void tt_pointer_set_release(tt_pointer_set_t *set);

#endif
