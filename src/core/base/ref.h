/* Reference counts. An object starts at one; the holder that drops the last one frees it. */
#ifndef TT_REF_H
#define TT_REF_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    atomic_int count;
} tt_ref_t;

static inline void tt_ref_init(tt_ref_t *ref)
{
    atomic_init(&ref->count, 1);
}

static inline void tt_ref_retain(tt_ref_t *ref)
{
    atomic_fetch_add_explicit(&ref->count, 1, memory_order_relaxed);
}

/* For who found an object in a list: false, and nothing is done, where the last holder is freeing
 * it. */
static inline bool tt_ref_try_retain(tt_ref_t *ref)
{
    int count = atomic_load_explicit(&ref->count, memory_order_relaxed);
    while (count > 0 && !atomic_compare_exchange_weak(&ref->count, &count, count + 1)) {
    }
    return count > 0;
}

/* True for the caller that must free the object. */
static inline bool tt_ref_release(tt_ref_t *ref)
{
    return atomic_fetch_sub_explicit(&ref->count, 1, memory_order_acq_rel) == 1;
}

static inline bool tt_ref_is_unique(tt_ref_t *ref)
{
    return atomic_load_explicit(&ref->count, memory_order_acquire) == 1;
}

#endif
