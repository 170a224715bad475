/* Texts about calls: what another rank wrote is checked before it becomes a name. */
#include "comm/exec/call_text.h"

#include <stdio.h>
#include <string.h>

#include <tutti/collectives.h>
#include <tutti/dtype.h>

#include "comm/plan/plan.h"
#include "core/base/printable.h"

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

tt_call_text_t tt_record_in_group(const tt_record_t *record, const char *group, const char *site)
{
    tt_call_text_t out;
    snprintf(out.text, sizeof out.text, "%.86s of group %.60s%.99s",
             tt_record_describe(record).text, group, tt_text_in_brackets(site).text);
    return out;
}

/* Of a reduction of the program's own, as another rank wrote it. */
static tt_call_text_t custom_name(const tt_custom_key_t *custom)
{
    tt_call_text_t out = {""};
    memcpy(out.text, custom->name, TT_CUSTOM_NAME_BYTES);
    tt_make_printable(out.text);
    return out;
}

/* "f32[1024]", and the first other thing in which the two calls differ. */
static tt_call_text_t describe_call(const tt_call_descriptor_t *descriptor,
                                    const tt_call_descriptor_t *other)
{
    tt_call_text_t out;
    char extra[80] = "";
    if (descriptor->reduction != other->reduction) {
        snprintf(extra, sizeof extra, " %s",
                 descriptor->reduction < TUTTI_REDUCTION_COUNT
                     ? tutti_reduction_name((tutti_reduction_t)descriptor->reduction)
                     : "?");
    } else if (memcmp(&descriptor->custom, &other->custom, sizeof other->custom) != 0) {
        const tt_custom_key_t *custom = &descriptor->custom;
        snprintf(extra, sizeof extra, " combined by %.*s (width %d%s)", TT_CUSTOM_NAME_BYTES,
                 custom_name(custom).text, custom->width % TT_CUSTOM_COMMUTES,
                 custom->width >= TT_CUSTOM_COMMUTES ? ", commutes" : "");
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

typedef struct {
    char text[320];
} sites_text_t;

/* " (rank 1 at train.c:80, rank 0 at train.c:88)", with those that are known. */
static sites_text_t describe_sites(const tt_party_t *a, const tt_party_t *b)
{
    sites_text_t out = {""};
    const tt_party_t *parties[] = {a, b};
    int length = 0;
    for (int i = 0; i < 2; i++) {
        if (parties[i]->site != NULL && parties[i]->site[0] != 0) {
            length +=
                snprintf(out.text + length, sizeof out.text - (size_t)length, "%srank %d at %.96s",
                         length > 0 ? ", " : " (", parties[i]->rank, parties[i]->site);
        }
    }
    if (length > 0) {
        snprintf(out.text + length, sizeof out.text - (size_t)length, ")");
    }
    return out;
}

tutti_status_t tt_calls_differ(const char *group, uint64_t sequence, const tt_party_t *a,
                               const tt_party_t *b)
{
    const char *name = tt_collective_text(a->descriptor->collective);
    const sites_text_t sites = describe_sites(a, b);
    if (a->descriptor->collective != b->descriptor->collective) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "call #%llu of group %s: rank %d called %s %s, rank %d called %s %s%s",
                       (unsigned long long)sequence, group, a->rank, name,
                       describe_call(a->descriptor, a->descriptor).text, b->rank,
                       tt_collective_text(b->descriptor->collective),
                       describe_call(b->descriptor, b->descriptor).text, sites.text);
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "%s #%llu: rank %d passed %s, rank %d passed %s%s", name,
                   (unsigned long long)sequence, a->rank,
                   describe_call(a->descriptor, b->descriptor).text, b->rank,
                   describe_call(b->descriptor, a->descriptor).text, sites.text);
}

tutti_status_t tt_exchange_check(uint64_t sequence, const tt_exchange_t *exchange)
{
    if (exchange->given == exchange->wanted) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH,
                   "all_to_all #%llu: rank %d gives rank %d %llu elements, but rank %d wants %llu "
                   "of it",
                   (unsigned long long)sequence, exchange->from, exchange->to,
                   (unsigned long long)exchange->given, exchange->to,
                   (unsigned long long)exchange->wanted);
}
