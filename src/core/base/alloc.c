/* Counted allocation. A block carries a 64-byte header with its size and name:
 *
 *     | bytes, what, magic, … 64 | the caller's memory, 64-byte aligned … |
 *
 * Names are counted in a hash table of literals by their addresses (one text may have several: a
 * report adds them up). Its 512 places are enough for the whole library, what comes later is
 * counted under "other".
 */
#include "core/base/alloc.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory_limit.h"
#include "core/base/units.h"

enum { NAMES_MAX = 512, PROBES = 16, OTHER = NAMES_MAX, MAGIC = 0x74757474 };

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

static name_t names[NAMES_MAX + 1] = {[OTHER] = {.what = "other"}};
static atomic_size_t allocations;
static atomic_size_t fail_countdown;
static atomic_bool has_failed;
static atomic_size_t others; /* bytes that are taken and no blocks */

static int find_name(const char *what)
{
    const uint64_t hash = (uint64_t)(uintptr_t)what * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (uint64_t i = hash; i < hash + PROBES; i++) {
        const int index = (int)(i % NAMES_MAX);
        const char *known = atomic_load_explicit(&names[index].what, memory_order_relaxed);
        if (known == NULL && atomic_compare_exchange_strong(&names[index].what, &known, what)) {
            return index;
        }
        if (known == what) {
            return index;
        }
    }
    return OTHER;
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

static tt_alloc_stats_t sum_of_text(int index);

/* ---- the budget ------------------------------------------------------------------------------ */

/* The place of the text that has most bytes below `below`, or of as many behind `behind`. */
static int next_largest(size_t below, int behind)
{
    int found = -1;
    size_t most = 0;
    for (int i = 0; i <= OTHER; i++) {
        const size_t bytes = sum_of_text(i).bytes;
        if ((bytes < below || (bytes == below && i > behind)) && bytes > most) {
            most = bytes;
            found = i;
        }
    }
    return found;
}

/* "tensor data 12 MiB, the shared heap 5.1 MiB, …" */
static void list_largest(char *text, size_t text_bytes)
{
    enum { LARGEST = 3 };
    char size[TT_UNITS_TEXT_BYTES];
    int used = snprintf(text, text_bytes, "shared heaps %s",
                        tt_units_bytes(atomic_load(&others), size)),
        at = -1;
    size_t below = SIZE_MAX;
    for (int i = 0; i < LARGEST && used > 0 && (size_t)used < text_bytes; i++) {
        at = next_largest(below, at);
        if (at < 0) {
            return;
        }
        below = sum_of_text(at).bytes;
        used += snprintf(text + used, text_bytes - (size_t)used, ", %s %s",
                         atomic_load(&names[at].what), tt_units_bytes(below, size));
    }
}

static tutti_status_t fail_limit(size_t bytes, const char *what)
{
    char list[256], limit[TT_UNITS_TEXT_BYTES], taken[TT_UNITS_TEXT_BYTES];
    list_largest(list, sizeof list);
    return TT_FAIL(TUTTI_ERR_NOMEM,
                   "cannot allocate %zu bytes for %s: TUTTI_MEMORY_LIMIT is %s, and %s of it are "
                   "taken (%s)",
                   bytes, what, tt_units_bytes(tt_memory_limit(), limit),
                   tt_units_bytes(tt_memory_taken(), taken), list);
}

tutti_status_t tt_alloc_take(size_t bytes, const char *what)
{
    if (tt_memory_limit() == 0) {
        return TUTTI_OK;
    }
    if (!tt_memory_take(bytes)) {
        return fail_limit(bytes, what);
    }
    atomic_fetch_add(&others, bytes);
    return TUTTI_OK;
}

/* What was taken before there was a limit is not counted. */
void tt_alloc_give(size_t bytes)
{
    size_t before = atomic_load(&others);
    while (!atomic_compare_exchange_weak(&others, &before, before > bytes ? before - bytes : 0)) {
    }
    tt_memory_give(bytes);
}

/* ---- the peak -------------------------------------------------------------------------------- */

/* The counts are copied when the sum falls from a new height, not while it climbs: in a step of a
 * training that is a few hundred times at most. */
static struct {
    atomic_bool is_watched,
        is_new; /* is_new: the sum is at its highest, and nothing is kept of it */
    atomic_size_t live, most;
    pthread_mutex_t lock; /* of what was kept */
    struct {
        size_t blocks, bytes;
    } kept[NAMES_MAX + 1];
} peak = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_peak(void)
{
    pthread_mutex_lock(&peak.lock);
    if (atomic_exchange(&peak.is_new, false)) {
        for (int i = 0; i <= OTHER; i++) {
            peak.kept[i].blocks = atomic_load_explicit(&names[i].blocks, memory_order_relaxed);
            peak.kept[i].bytes = atomic_load_explicit(&names[i].bytes, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&peak.lock);
}

static void note_more(size_t bytes)
{
    const size_t live = atomic_fetch_add(&peak.live, bytes) + bytes;
    size_t most = atomic_load(&peak.most);
    while (live > most) {
        if (atomic_compare_exchange_weak(&peak.most, &most, live)) {
            atomic_store(&peak.is_new, true);
            return;
        }
    }
}

/* Before the counts go down. */
static void note_less(size_t bytes)
{
    if (atomic_load_explicit(&peak.is_new, memory_order_relaxed)) {
        keep_peak();
    }
    atomic_fetch_sub(&peak.live, bytes);
}

static bool is_watched(void)
{
    return __builtin_expect(atomic_load_explicit(&peak.is_watched, memory_order_relaxed), false);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void *tt_alloc_raw(size_t bytes, const char *what)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    const bool too_large = bytes > SIZE_MAX / 2;
    const size_t padded = (bytes + 2 * TT_ALIGN - 1) / TT_ALIGN * TT_ALIGN;
    if (!too_large && !tt_memory_take(bytes)) {
        (void)fail_limit(bytes, what);
        return NULL;
    }
    char *base = too_large || is_made_to_fail() ? NULL : aligned_alloc(TT_ALIGN, padded);
    if (base == NULL) {
        tt_memory_give(too_large ? 0 : bytes);
        (void)TT_FAIL(TUTTI_ERR_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    const int index = find_name(what);
    *(header_t *)(void *)base = (header_t){.bytes = bytes, .name_index = index, .magic = MAGIC};
    atomic_fetch_add_explicit(&names[index].blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&names[index].bytes, bytes, memory_order_relaxed);
    if (is_watched()) {
        note_more(bytes);
    }
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
    if (is_watched()) {
        note_less(header->bytes);
    }
    atomic_fetch_sub_explicit(&names[header->name_index].blocks, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&names[header->name_index].bytes, header->bytes,
                              memory_order_relaxed);
    tt_memory_give(header->bytes);
    header->magic = 0;
    free(header);
}

tt_alloc_stats_t tt_alloc_stats(void)
{
    tt_alloc_stats_t stats = {.allocations = atomic_load(&allocations)};
    for (int i = 0; i <= OTHER; i++) {
        stats.blocks += atomic_load(&names[i].blocks);
        stats.bytes += atomic_load(&names[i].bytes);
    }
    return stats;
}

/* Adds up what counts under the text of a place; nothing if an earlier place has the same one. */
static tt_alloc_stats_t sum_of_text(int index)
{
    tt_alloc_stats_t sum = {0};
    const char *text = atomic_load(&names[index].what);
    for (int i = 0; i <= OTHER && text != NULL; i++) {
        const char *other = atomic_load(&names[i].what);
        if (other == NULL || strcmp(other, text) != 0) {
            continue;
        }
        if (i < index) {
            return (tt_alloc_stats_t){0};
        }
        sum.blocks += atomic_load(&names[i].blocks);
        sum.bytes += atomic_load(&names[i].bytes);
    }
    return sum;
}

void tt_alloc_watch(bool watched)
{
    if (atomic_exchange(&peak.is_watched, false)) {
        keep_peak();
    }
    if (watched) {
        const size_t bytes = tt_alloc_stats().bytes;
        atomic_store(&peak.live, bytes);
        atomic_store(&peak.most, bytes);
        atomic_store(&peak.is_new, true);
        atomic_store(&peak.is_watched, true);
    }
}

void tt_alloc_unwatch(void)
{
    atomic_store(&peak.is_watched, false);
}

size_t tt_alloc_live(void)
{
    return atomic_load_explicit(&peak.live, memory_order_relaxed);
}

/* The place in `out` of a text; `count`: it has none yet. */
static size_t find_text(const tt_alloc_name_t *out, size_t count, const char *text)
{
    size_t i = 0;
    while (i < count && strcmp(out[i].what, text) != 0) {
        i++;
    }
    return i;
}

size_t tt_alloc_peak(size_t *bytes, tt_alloc_name_t *out, size_t capacity)
{
    size_t count = 0;
    keep_peak();
    pthread_mutex_lock(&peak.lock);
    *bytes = atomic_load(&peak.most);
    for (int i = 0; i <= OTHER; i++) {
        const char *text = atomic_load(&names[i].what);
        const size_t at = peak.kept[i].blocks == 0 ? capacity : find_text(out, count, text);
        if (at < capacity) {
            out[at] = at < count ? out[at] : (tt_alloc_name_t){.what = text};
            out[at].blocks += peak.kept[i].blocks;
            out[at].bytes += peak.kept[i].bytes;
            count += at == count;
        }
    }
    pthread_mutex_unlock(&peak.lock);
    return count;
}

size_t tt_alloc_report(char *text, size_t text_bytes)
{
    size_t live = 0, used = 0;
    if (text_bytes > 0) {
        text[0] = 0;
    }
    for (int i = 0; i <= OTHER; i++) {
        const tt_alloc_stats_t sum = sum_of_text(i);
        live += sum.blocks;
        if (sum.blocks > 0 && used < text_bytes) {
            const int n = snprintf(text + used, text_bytes - used, "%s: %zu blocks, %zu bytes\n",
                                   atomic_load(&names[i].what), sum.blocks, sum.bytes);
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
