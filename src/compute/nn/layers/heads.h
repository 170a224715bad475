/* Heads of attention, and how many share keys and values. */
#ifndef TT_HEADS_H
#define TT_HEADS_H

#include "core/base/fail.h"

static inline int64_t tt_kv_heads_of(int64_t heads, int64_t kv_heads)
{
    return kv_heads == 0 ? heads : kv_heads;
}

/* ARG unless kv_heads, or what 0 stands for, divide the heads, which are good. */
static inline tutti_status_t tt_heads_check(const char *name, int64_t heads, int64_t kv_heads)
{
    return kv_heads == 0 || (kv_heads > 0 && heads % kv_heads == 0)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: %lld heads of keys and values do not divide %lld heads: choose a "
                         "divisor of them, 1 for all or 0 for as many",
                         name, (long long)kv_heads, (long long)heads);
}

#endif
