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
