/* A set of addresses: a table of a power of two, where a taken place sends on to the next one. */
#include "core/base/pointer_set.h"

#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/fail.h"

enum { CAPACITY_FIRST = 128 };

/* The upper half of the product depends on all bits below. */
static size_t first_place(const tt_pointer_set_t *set, const void *pointer)
{
    const uint64_t product = (uint64_t)(uintptr_t)pointer * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(product >> 32) & (set->capacity - 1);
}

/* Where the pointer is, or would go. */
static size_t find(tt_pointer_set_t *set, const void *pointer)
{
    size_t at = first_place(set, pointer);
    set->looks++;
    while (set->places[at] != NULL && set->places[at] != pointer) {
        at = (at + 1) & (set->capacity - 1);
        set->looks++;
    }
    return at;
}

static tutti_status_t grow(tt_pointer_set_t *set)
{
    tt_pointer_set_t larger = {.count = set->count, .looks = set->looks};
    larger.capacity = set->capacity == 0 ? CAPACITY_FIRST : 2 * set->capacity;
    larger.places = tt_alloc_array(larger.capacity, sizeof *larger.places, "pointer set");
    TT_TRY_ALLOC(larger.places);
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->places[i] != NULL) {
            larger.places[find(&larger, set->places[i])] = set->places[i];
        }
    }
    tt_free(set->places);
    *set = larger;
    return TUTTI_OK;
}

tutti_status_t tt_pointer_set_add(tt_pointer_set_t *set, const void *pointer, bool *is_new)
{
    TT_ASSERT(pointer != NULL);
    if (2 * set->count >= set->capacity) {
        TT_TRY(grow(set));
    }
    const size_t at = find(set, pointer);
    *is_new = set->places[at] == NULL;
    set->places[at] = pointer;
    set->count += *is_new;
    return TUTTI_OK;
}

bool tt_pointer_set_has(const tt_pointer_set_t *set, const void *pointer)
{
    if (set->capacity == 0) {
        return false;
    }
    size_t at = first_place(set, pointer);
    while (set->places[at] != NULL && set->places[at] != pointer) {
        at = (at + 1) & (set->capacity - 1);
    }
    return set->places[at] == pointer;
}

void tt_pointer_set_release(tt_pointer_set_t *set)
{
    tt_free(set->places);
    *set = (tt_pointer_set_t){0};
}
