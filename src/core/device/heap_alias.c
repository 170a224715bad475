/* Aliases of a heap: a short list, the newest first, behind a lock that is only taken when there
 * are any. */
#include "core/device/heap_alias.h"

#include <stdint.h>

#include "core/base/fail.h"

void tt_heap_aliases_init(tt_heap_aliases_t *aliases)
{
    pthread_mutex_init(&aliases->lock, NULL);
}

void tt_heap_aliases_fini(tt_heap_aliases_t *aliases)
{
    TT_ASSERT(atomic_load(&aliases->first) == NULL);
    pthread_mutex_destroy(&aliases->lock);
}

static bool overlaps(const tt_heap_alias_t *alias, uintptr_t begin, uintptr_t end)
{
    return begin < (uintptr_t)alias->begin + alias->bytes && (uintptr_t)alias->begin < end;
}

static bool is_inside(const tt_heap_alias_t *alias, uintptr_t begin, uintptr_t end)
{
    return begin >= (uintptr_t)alias->begin && end <= (uintptr_t)alias->begin + alias->bytes;
}

void tt_heap_aliases_add(tt_heap_aliases_t *aliases, tt_heap_alias_t *alias)
{
    const uintptr_t begin = (uintptr_t)alias->begin, end = begin + alias->bytes;
    pthread_mutex_lock(&aliases->lock);
    alias->next = atomic_load_explicit(&aliases->first, memory_order_relaxed);
    for (tt_heap_alias_t *older = alias->next; older != NULL; older = older->next) {
        older->is_replaced = older->is_replaced || overlaps(older, begin, end);
    }
    atomic_store_explicit(&aliases->first, alias, memory_order_release);
    pthread_mutex_unlock(&aliases->lock);
}

static const void *find(const tt_heap_alias_t *alias, const void *memory, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)memory, end = begin + bytes;
    while (alias != NULL && !overlaps(alias, begin, end)) {
        alias = alias->next;
    }
    if (alias == NULL) {
        return memory;
    }
    return is_inside(alias, begin, end) ? alias->block + (begin - (uintptr_t)alias->begin) : NULL;
}

const void *tt_heap_aliases_find(tt_heap_aliases_t *aliases, const void *memory, size_t bytes)
{
    if (atomic_load_explicit(&aliases->first, memory_order_acquire) == NULL) {
        return memory;
    }
    pthread_mutex_lock(&aliases->lock);
    const void *found =
        find(atomic_load_explicit(&aliases->first, memory_order_relaxed), memory, bytes);
    pthread_mutex_unlock(&aliases->lock);
    return found;
}

/* Splits a list: those that overlap go to `taken`. */
static tt_heap_alias_t *split(tt_heap_alias_t *alias, const void *memory, size_t bytes,
                              tt_heap_alias_t **taken)
{
    const uintptr_t begin = (uintptr_t)memory, end = begin + bytes;
    tt_heap_alias_t *left = NULL, **left_end = &left, **taken_end = taken;
    for (; alias != NULL; alias = alias->next) {
        tt_heap_alias_t ***list_end = overlaps(alias, begin, end) ? &taken_end : &left_end;
        **list_end = alias;
        *list_end = &alias->next;
    }
    *left_end = NULL;
    *taken_end = NULL;
    return left;
}

tt_heap_alias_t *tt_heap_aliases_take(tt_heap_aliases_t *aliases, const void *memory, size_t bytes)
{
    tt_heap_alias_t *taken = NULL;
    if (atomic_load_explicit(&aliases->first, memory_order_acquire) == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&aliases->lock);
    tt_heap_alias_t *all = atomic_load_explicit(&aliases->first, memory_order_relaxed);
    atomic_store_explicit(&aliases->first, split(all, memory, bytes, &taken), memory_order_release);
    pthread_mutex_unlock(&aliases->lock);
    return taken;
}
