/* Aliases: memory of a heap whose pages were replaced. At its addresses lie the pages of another
 * block of the heap, so its place is the place of those.
 *
 *     owner's addresses   | segment 0:  ...  [ a: begin, bytes ) ...   | segment 1: [ block ) |
 *                                                   \__________________________ |
 *     pages of the heap     ... [ old: a peer may write here )  ...              [ new )
 *
 * There are none but for a short time after a rank of the host was stopped in the middle of a call.
 */
#ifndef TT_HEAP_ALIAS_H
#define TT_HEAP_ALIAS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/device/device.h"

typedef struct tt_heap_alias {
    struct tt_heap_alias *next;
    unsigned char *begin;
    size_t bytes;
    unsigned char *block; /* of the heap, whose pages these are */
    tt_device_t *heap;
    bool is_replaced; /* the pages have been replaced in turn: a peer may write into them, too */
} tt_heap_alias_t;

typedef struct {
    pthread_mutex_t lock;
    _Atomic(tt_heap_alias_t *) first;
} tt_heap_aliases_t;

void tt_heap_aliases_init(tt_heap_aliases_t *aliases);
void tt_heap_aliases_fini(tt_heap_aliases_t *aliases);

/* Takes the alias over. */
void tt_heap_aliases_add(tt_heap_aliases_t *aliases, tt_heap_alias_t *alias);

/* Where the pages of memory[0, bytes) were handed out; NULL: in several blocks. */
const void *tt_heap_aliases_find(tt_heap_aliases_t *aliases, const void *memory, size_t bytes);

/* A block goes back: those inside it, as a list that the caller owns; NULL as a rule. */
tt_heap_alias_t *tt_heap_aliases_take(tt_heap_aliases_t *aliases, const void *memory, size_t bytes);

/* heap_device.c */
tt_heap_aliases_t *tt_heap_aliases(tt_device_t *heap);

#endif
