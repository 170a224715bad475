/* Counted allocation. A block carries a 64-byte header with its size and name:
 *
 *     | bytes, what, magic, … 64 | the caller's memory, 64-byte aligned … |
 *
 * Names are counted in a small table of literals, keyed by pointer, then by text; 256 names are
 * enough for the whole library, what comes later is counted under "other".
 */
#include "core/base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 256, MAGIC = 0x74757474 };

typedef struct {
    size_t bytes;
    int name_index;
    int magic;
} header_t;

_Static_assert(sizeof(header_t) <= TT_ALIGN, "the header must fit before an aligned block");

typedef struct {
    _Atomic(const char *) what;
    atomic_size_t blocks, bytes;
} name_t;

static name_t names[NAMES_MAX] = {{.what = "other"}};
static atomic_size_t allocations;
static atomic_size_t fail_countdown;
static atomic_bool has_failed;

static int find_name(const char *what)
{
    for (int i = 1; i < NAMES_MAX; i++) {
        const char *known = atomic_load_explicit(&names[i].what, memory_order_acquire);
        if (known == NULL) {
            if (atomic_compare_exchange_strong(&names[i].what, &known, what)) {
                return i;
            }
        }
        if (known == what || strcmp(known, what) == 0) {
            return i;
        }
    }
    return 0;
}

static bool is_made_to_fail(void)
{
    size_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
            if (left == 1) {
                atomic_store(&has_failed, true);
            }
            return left == 1;
        }
    }
    return false;
}

static header_t *header_of(void *block)
{
    header_t *header = (header_t *)(void *)((char *)block - TT_ALIGN);
    TT_ASSERT(header->magic == MAGIC);
    return header;
}

void *tt_alloc_raw(size_t bytes, const char *what)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    const bool too_large = bytes > SIZE_MAX / 2;
    const size_t padded = (bytes + 2 * TT_ALIGN - 1) / TT_ALIGN * TT_ALIGN;
    char *base = too_large || is_made_to_fail() ? NULL : aligned_alloc(TT_ALIGN, padded);
    if (base == NULL) {
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    const int index = find_name(what);
    *(header_t *)(void *)base = (header_t){.bytes = bytes, .name_index = index, .magic = MAGIC};
    atomic_fetch_add_explicit(&names[index].blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&names[index].bytes, bytes, memory_order_relaxed);
    return base + TT_ALIGN;
}

void *tt_alloc(size_t bytes, const char *what)
{
    void *block = tt_alloc_raw(bytes, what);
    if (block != NULL) {
        memset(block, 0, bytes);
    }
    return block;
}

void *tt_alloc_array(size_t count, size_t size, const char *what)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    return tt_alloc(bytes, what);
}

void *tt_realloc(void *block, size_t bytes, const char *what)
{
    if (block == NULL) {
        return tt_alloc(bytes, what);
    }
    void *grown = tt_alloc(bytes, what);
    if (grown != NULL) {
        const size_t old_bytes = header_of(block)->bytes;
        memcpy(grown, block, old_bytes < bytes ? old_bytes : bytes);
        tt_free(block);
    }
    return grown;
}

char *tt_strndup(const char *text, size_t length, const char *what)
{
    char *copy = tt_alloc(length + 1, what);
    if (copy != NULL) {
        memcpy(copy, text, length);
    }
    return copy;
}

char *tt_strdup(const char *text, const char *what)
{
    return tt_strndup(text, strlen(text), what);
}

void tt_free(void *block)
{
    if (block == NULL) {
        return;
    }
    header_t *header = header_of(block);
    atomic_fetch_sub_explicit(&names[header->name_index].blocks, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&names[header->name_index].bytes, header->bytes,
                              memory_order_relaxed);
    header->magic = 0;
    free(header);
}

tt_alloc_stats_t tt_alloc_stats(void)
{
    tt_alloc_stats_t stats = {.allocations = atomic_load(&allocations)};
    for (int i = 0; i < NAMES_MAX; i++) {
        stats.blocks += atomic_load(&names[i].blocks);
        stats.bytes += atomic_load(&names[i].bytes);
    }
    return stats;
}

size_t tt_alloc_report(char *text, size_t text_bytes)
{
    size_t live = 0, used = 0;
    if (text_bytes > 0) {
        text[0] = 0;
    }
    for (int i = 0; i < NAMES_MAX; i++) {
        const size_t blocks = atomic_load(&names[i].blocks);
        live += blocks;
        if (blocks > 0 && used < text_bytes) {
            const int n =
                snprintf(text + used, text_bytes - used, "%s: %zu blocks, %zu bytes\n",
                         atomic_load(&names[i].what), blocks, atomic_load(&names[i].bytes));
            used += n > 0 ? (size_t)n : 0;
        }
    }
    return live;
}

void tt_alloc_fail_at(size_t nth)
{
    atomic_store(&has_failed, false);
    atomic_store(&fail_countdown, nth);
}

int tt_alloc_has_failed(void)
{
    return atomic_load(&has_failed);
}
