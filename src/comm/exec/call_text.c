/* Texts about calls: what another rank wrote is checked before it becomes a name. */
#include "comm/exec/call_text.h"

#include <stdio.h>

#include <tutti/dtype.h>
#include <tutti/reduction.h>

#include "comm/plan/plan.h"

const char *tt_dtype_text(int dtype)
{
    return dtype >= 0 && dtype < TUTTI_DTYPE_COUNT ? tutti_dtype_name((tutti_dtype_t)dtype) : "?";
}

const char *tt_collective_text(int collective)
{
    return collective >= 0 && collective < TT_COLLECTIVE_COUNT
               ? tt_collective_name((tt_collective_t)collective)
               : "?";
}

tt_call_text_t tt_record_describe(const tt_record_t *record)
{
    tt_call_text_t out;
    char peer[24] = "any rank", tag[24] = "any tag";
    if (record->kind == TT_RECORD_CALL) {
        const int n =
            snprintf(out.text, sizeof out.text, "%s #%llu", tt_collective_text(record->collective),
                     (unsigned long long)record->sequence);
        if (record->collective != TT_BARRIER) {
            snprintf(out.text + n, sizeof out.text - (size_t)n, " %s[%llu]",
                     tt_dtype_text(record->dtype), (unsigned long long)record->count);
        }
        return out;
    }
    if (record->root >= 0) {
        snprintf(peer, sizeof peer, "rank %d", record->root);
    }
    if ((int64_t)record->tag >= 0) {
        snprintf(tag, sizeof tag, "tag %lld", (long long)record->tag);
    }
    const bool is_send = record->kind == TT_RECORD_SEND;
    if (record->kind == TT_RECORD_PROBE) {
        snprintf(out.text, sizeof out.text, "probe from %s (%s)", peer, tag);
        return out;
    }
    snprintf(out.text, sizeof out.text, "%s of %s[%llu] %s %s (%s)", is_send ? "send" : "recv",
             tt_dtype_text(record->dtype), (unsigned long long)record->count,
             is_send ? "to" : "from", peer, tag);
    return out;
}

tt_call_text_t tt_text_in_brackets(const char *text)
{
    tt_call_text_t out = {""};
    if (text[0] != 0) {
        snprintf(out.text, sizeof out.text, " (%.*s)", TT_SITE_BYTES - 1, text);
    }
    return out;
}

tt_call_text_t tt_site_in_brackets(const void *address)
{
    return tt_text_in_brackets(tt_site_name(address).text);
}

tt_call_text_t tt_call_describe(const tt_call_descriptor_t *descriptor,
                                const tt_call_descriptor_t *other)
{
    tt_call_text_t out;
    char extra[80] = "";
    if (descriptor->reduction != other->reduction) {
        snprintf(extra, sizeof extra, " %s",
                 descriptor->reduction < TUTTI_REDUCTION_COUNT
                     ? tutti_reduction_name((tutti_reduction_t)descriptor->reduction)
                     : "?");
    } else if (descriptor->root != other->root) {
        snprintf(extra, sizeof extra, " with root %d", descriptor->root);
    } else if (descriptor->tag != other->tag) {
        snprintf(extra, sizeof extra, " with tag %llu", (unsigned long long)descriptor->tag);
    } else if (descriptor->leaves != other->leaves || descriptor->layout != other->layout) {
        snprintf(extra, sizeof extra, " of %u leaves (layout %08x)", descriptor->leaves,
                 (unsigned)descriptor->layout);
    } else if (descriptor->out_dtype != other->out_dtype) {
        snprintf(extra, sizeof extra, " into %s", tt_dtype_text(descriptor->out_dtype));
    } else if (descriptor->epoch != other->epoch || descriptor->group != other->group) {
        snprintf(extra, sizeof extra, " in epoch %u of group %08x", descriptor->epoch,
                 (unsigned)descriptor->group);
    }
    snprintf(out.text, sizeof out.text, "%s[%llu]%s", tt_dtype_text(descriptor->dtype),
             (unsigned long long)descriptor->count, extra);
    return out;
}
