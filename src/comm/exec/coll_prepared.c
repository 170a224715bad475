/* Prepared calls: what a call's descriptor alone decides (descriptor, fingerprint, plan, executor)
 * is found out when the first such call is made, or before, and kept.
 *
 *     descriptor ── hash ──> set of 4 entries ──> prepared call { plan, staged plan, executor }
 *
 * What may differ from call to call is outside: memory, tag, the function of a custom reduction,
 * and where the call was made. Arrays (counts, leaf map) are part of the descriptor. The entries of
 * the cache, the runs under way and those who prepared a call share it, so an entry may make room
 * at any time.
 *
 * Cost of a call whose descriptor is known: a hash and a comparison of eight numbers, and of
 * the arrays. Source: MPI 4.0, persistent collectives; UCC's ucc_collective_init and _post.
 */
#include <string.h>

#include "comm/exec/coll_exec.h"
#include "core/base/alloc.h"

static uint64_t hash_sizes(uint64_t hash, const size_t *sizes, int count)
{
    for (int i = 0; sizes != NULL && i < count; i++) {
        hash = tt_mix(hash, sizes[i]);
    }
    return hash;
}

/* What ranks compare of a reduction of the program's own. Where its function is, and what that is
 * handed, comes with each call, as memory does. */
static tt_custom_key_t key_of(const tutti_custom_reduction_t *custom)
{
    tt_custom_key_t key = {0};
    if (custom != NULL) {
        key.width =
            (uint8_t)(tt_custom_width(custom) | (custom->commutes ? TT_CUSTOM_COMMUTES : 0));
        memcpy(key.name, custom->name, strnlen(custom->name, sizeof key.name));
    }
    return key;
}

static bool is_same_key(tt_custom_key_t a, tt_custom_key_t b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static uint64_t hash_more(uint64_t hash, const tt_call_t *call, int size)
{
    for (int i = 0; call->first != NULL && i <= size; i++) {
        hash = tt_mix(hash, (uint64_t)(uint32_t)call->first[i]);
    }
    return hash_sizes(hash_sizes(hash, call->counts, size), call->recv_counts, size);
}

static bool is_same_array(const void *a, const void *b, size_t bytes)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, bytes) == 0);
}

static bool has_same_more(const tt_prepared_t *prepared, const tt_call_t *b, int ranks)
{
    const tt_call_t *a = &prepared->call;
    const size_t size = (size_t)ranks;
    return is_same_key(prepared->descriptor.custom, key_of(b->custom)) &&
           is_same_array(a->first, b->first, (size + 1) * sizeof *a->first) &&
           is_same_array(a->counts, b->counts, size * sizeof *a->counts) &&
           is_same_array(a->recv_counts, b->recv_counts, size * sizeof *a->counts);
}

tt_call_descriptor_t tt_call_descriptor(const tt_call_t *call, int size)
{
    return (tt_call_descriptor_t){.count = call->count,
                                  .layout = tt_call_layout_hash(call, size),
                                  .leaves = (uint32_t)call->leaves,
                                  .root = call->root,
                                  .collective = (uint8_t)call->collective,
                                  .dtype = (uint8_t)call->dtype,
                                  .out_dtype = (uint8_t)call->out_dtype,
                                  .reduction = (uint8_t)call->reduction,
                                  .custom = key_of(call->custom)};
}

static size_t array_bytes(const tt_call_t *call, int ranks)
{
    const size_t size = (size_t)ranks;
    return tt_call_has_more(call) ? 2 * size * sizeof(size_t) + (size + 1) * sizeof(int) : 0;
}

/* The arrays of a call are only borrowed. */
static void own_arrays(tt_prepared_t *prepared, int ranks)
{
    const size_t size = (size_t)ranks;
    size_t *counts = prepared->arrays, *recv_counts = counts + size;
    int *first = (int *)(recv_counts + size);
    tt_call_t *call = &prepared->call;
    if (call->counts != NULL) {
        call->counts = memcpy(counts, call->counts, size * sizeof *counts);
    }
    if (call->recv_counts != NULL) {
        call->recv_counts = memcpy(recv_counts, call->recv_counts, size * sizeof *counts);
    }
    if (call->first != NULL) {
        call->first = memcpy(first, call->first, (size + 1) * sizeof *first);
    }
}

static void fill(const tt_coll_t *coll, const tt_call_t *call, tt_prepared_t *prepared)
{
    prepared->call = *call;
    prepared->call.pieces = NULL;
    prepared->call.out = NULL;
    prepared->call.packed = NULL;
    prepared->call.tag = 0;
    prepared->call.site = NULL;
    prepared->call.prepared = NULL;
    prepared->call.custom = NULL;
    own_arrays(prepared, coll->size);
    prepared->has_more = tt_call_has_more(call);
    prepared->descriptor = tt_call_descriptor(call, coll->size);
    prepared->descriptor.group = coll->options.group;
    prepared->descriptor.epoch = coll->options.epoch;
    prepared->fingerprint = tt_call_fingerprint(&prepared->descriptor);
    prepared->record = tt_record_what(TT_RECORD_CALL, (int)call->collective, (int)call->dtype,
                                      (int)call->reduction, call->root);
    prepared->rules = coll->prepared.rules_version;
    prepared->users = 1;
}

void tt_prepared_release(tt_prepared_t *prepared)
{
    if (prepared != NULL && --prepared->users == 0) {
        tt_plan_release(prepared->plan.plan);
        tt_plan_release(prepared->staged.plan);
        tt_free(prepared);
    }
}

/* What travels in the flags: of a broadcast the root's piece alone. */
static size_t posted_bytes(const tt_coll_t *coll, const tt_prepared_t *prepared)
{
    const tt_call_t *call = &prepared->call;
    const bool is_read = call->collective != TT_BROADCAST || call->root == coll->rank;
    return is_read ? prepared->plan.piece_elements * tt_dtype_bytes(call->dtype) : 0;
}

static tutti_status_t make(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out)
{
    tt_prepared_t *prepared =
        tt_alloc(sizeof *prepared + array_bytes(call, coll->size), "prepared call");
    TT_TRY_ALLOC(prepared);
    fill(coll, call, prepared);
    const tutti_status_t status = tt_coll_pick(coll, prepared);
    if (status < 0) {
        tt_prepared_release(prepared);
        return status;
    }
    prepared->posted_bytes = posted_bytes(coll, prepared);
    tt_coll_note_small(coll, prepared);
    *out = prepared;
    return TUTTI_OK;
}

/* A free entry of the set, or one that makes room, each in its turn. */
static tt_prepared_t **find_room(tt_coll_t *coll, tt_prepared_t **set)
{
    for (int i = 0; i < TT_PREPARED_WAYS; i++) {
        if (set[i] == NULL) {
            return &set[i];
        }
    }
    return &set[coll->prepared.evicted++ % TT_PREPARED_WAYS];
}

tutti_status_t tt_coll_find_prepared(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out)
{
    const bool has_more = tt_call_has_more(call);
    uint64_t hash = tt_call_hash(call);
    if (has_more) {
        hash = hash_more(hash, call, coll->size);
    }
    tt_prepared_t **set = tt_coll_prepared_set(coll, hash);
    for (int i = 0; i < TT_PREPARED_WAYS && set[i] != NULL; i++) {
        tt_prepared_t *at = set[i];
        if (tt_call_is_alike(&at->call, call) && at->has_more == has_more &&
            (!has_more || has_same_more(at, call, coll->size))) {
            *out = at;
            return TUTTI_OK;
        }
    }
    tt_prepared_t *made;
    TT_TRY(make(coll, call, &made));
    tt_prepared_t **room = find_room(coll, set);
    tt_prepared_release(*room);
    *room = made;
    *out = made;
    return TUTTI_OK;
}

tutti_status_t tt_coll_prepare(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out)
{
    TT_TRY(tt_coll_find_prepared(coll, call, out));
    (*out)->users++;
    return TUTTI_OK;
}

void tt_coll_forget_prepared(tt_coll_t *coll)
{
    for (int i = 0; i < TT_PREPARED_SETS * TT_PREPARED_WAYS; i++) {
        tt_prepared_t **entry = &coll->prepared.entries[i / TT_PREPARED_WAYS][i % TT_PREPARED_WAYS];
        tt_prepared_release(*entry);
        *entry = NULL;
    }
    coll->prepared.rules_version++;
}
