/* A counter beside a limit, which is read from the environment once. A text that is no size is no
 * limit here: tt_config_check() tells of it when a job begins. */
#include "core/base/memory_limit.h"

#include <stdatomic.h>

#include "core/base/config.h"

#define UNREAD UINT64_MAX

static _Atomic uint64_t limit = UNREAD;
static _Atomic uint64_t taken;

static uint64_t read_limit(void)
{
    uint64_t bytes = 0, unread = UNREAD;
    const char *text = tt_config_text(TT_CONFIG_MEMORY_LIMIT);
    if (!tt_parse_bytes(text, &bytes) || bytes == UNREAD) {
        bytes = 0;
    }
    return atomic_compare_exchange_strong(&limit, &unread, bytes) ? bytes : unread;
}

uint64_t tt_memory_limit(void)
{
    const uint64_t bytes = atomic_load_explicit(&limit, memory_order_relaxed);
    return bytes == UNREAD ? read_limit() : bytes;
}

uint64_t tt_memory_taken(void)
{
    return atomic_load(&taken);
}

bool tt_memory_take(uint64_t bytes)
{
    const uint64_t most = tt_memory_limit();
    if (most == 0) {
        return true;
    }
    uint64_t before = atomic_load_explicit(&taken, memory_order_relaxed);
    do {
        if (before > most || bytes > most - before) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&taken, &before, before + bytes));
    return true;
}

void tt_memory_give(uint64_t bytes)
{
    if (tt_memory_limit() != 0) {
        uint64_t before = atomic_load_explicit(&taken, memory_order_relaxed);
        while (
            !atomic_compare_exchange_weak(&taken, &before, before > bytes ? before - bytes : 0)) {
        }
    }
}

void tt_memory_set_limit(uint64_t bytes, uint64_t of_it)
{
    atomic_store(&limit, bytes);
    atomic_store(&taken, of_it);
}
