/* Choosing the algorithm, and the cache of plans.
 *
 * What fits into the flag line travels there (one hand-over instead of two); what is larger is read
 * in place; if anyone's memory is foreign, which all see in the flags, everyone goes pairwise
 * through the wires. The choice depends on nothing but what all ranks know alike.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/alloc.h"

/* Above this, two hand-overs cost less than every rank computing everything. */
enum { FLAG_BYTES_MAX = 1024 };

size_t tt_call_piece_bytes(const tt_call_t *call, int size)
{
    return tt_collective_piece_elements(call->collective, call->count, size) *
           tutti_dtype_bytes(call->dtype);
}

static bool is_same_request(const tt_plan_request_t *a, const tt_plan_request_t *b)
{
    return a->collective == b->collective && a->count == b->count && a->root == b->root &&
           a->leaves == b->leaves && a->first == b->first;
}

/* Where the search for a plan begins: a function of the request alone, so that every process finds
 * the same plans in each other's way, or none. */
static size_t cache_index(const tt_plan_request_t *request)
{
    uint64_t hash = request->count * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= (uint64_t)request->collective << 58 ^ (uint64_t)(uint32_t)request->root << 40;
    hash ^= (uint64_t)(uint32_t)request->leaves << 48;
    hash *= UINT64_C(0xc2b2ae3d27d4eb4f);
    return (size_t)(hash >> 59) % TT_PLAN_CACHE;
}

static bool is_in_use(const tt_coll_t *coll, const tt_plan_t *plan)
{
    for (const tt_run_t *run = coll->head; run != NULL; run = run->next) {
        if (run->plan == plan) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(const tt_cached_plan_t *entry, const tt_plan_request_t *request,
                      const tt_algorithm_t *algorithm)
{
    return entry->plan != NULL && entry->plan->algorithm == algorithm &&
           is_same_request(&entry->request, request);
}

/* The plan of the cache, or a new one in it. Plans whose searches begin at one entry stand side by
 * side; in a full cache the first one that no run uses makes room. */
static tutti_status_t find_plan(tt_coll_t *coll, const tt_plan_request_t *request,
                                const tt_algorithm_t *algorithm, tt_plan_t **out)
{
    const size_t start = cache_index(request);
    tt_cached_plan_t *entry = NULL;
    for (size_t i = 0; i < TT_PLAN_CACHE; i++) {
        tt_cached_plan_t *at = &coll->plans[(start + i) % TT_PLAN_CACHE];
        if (is_wanted(at, request, algorithm)) {
            *out = at->plan;
            return TUTTI_OK;
        }
        if (at->plan == NULL) {
            entry = at; /* nothing that began at `start` stands behind a free entry */
            break;
        }
        if (entry == NULL && !is_in_use(coll, at->plan)) {
            entry = at;
        }
    }
    if (entry == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "more than %d different calls are under way: wait for some of them",
                       TT_PLAN_CACHE);
    }
    tt_plan_t *plan;
    TT_TRY(tt_plan_create(request, algorithm, &plan));
    tt_plan_release(entry->plan);
    *entry = (tt_cached_plan_t){*request, plan};
    *out = plan;
    return TUTTI_OK;
}

static tt_plan_request_t request_of(const tt_coll_t *coll, const tt_call_t *call)
{
    return (tt_plan_request_t){.collective = call->collective,
                               .rank = coll->rank,
                               .size = coll->size,
                               .root = call->root,
                               .count = call->count,
                               .leaves = call->leaves,
                               .first = call->first};
}

tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_run_t *run)
{
    const tt_plan_request_t request = request_of(coll, &run->call);
    const size_t bytes = tt_call_piece_bytes(&run->call, coll->size);
    const tt_algorithm_t *algorithm = coll->forced;
    if (algorithm == NULL || (algorithm->travels_in_flags && bytes > FLAG_BYTES_MAX)) {
        algorithm = bytes <= FLAG_BYTES_MAX ? &tt_algorithm_flag : &tt_algorithm_direct;
    }
    TT_TRY(find_plan(coll, &request, algorithm, &run->plan));
    const size_t pieces = (size_t)run->plan->pieces_of_rank_max;
    if (algorithm->travels_in_flags && bytes * pieces > TT_FLAG_EXTRA_BYTES) {
        TT_TRY(find_plan(coll, &request, &tt_algorithm_direct, &run->plan));
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_pick_foreign(tt_coll_t *coll, tt_run_t *run)
{
    const tt_plan_request_t request = request_of(coll, &run->call);
    return find_plan(coll, &request, &tt_algorithm_pairwise, &run->plan);
}

static uint64_t hash_leaves(const int *first, int size)
{
    uint64_t hash = UINT64_C(0x84222325cbf29ce4);
    for (int i = 0; i <= size; i++) {
        hash = (hash ^ (uint64_t)(uint32_t)first[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Make the call's leaf map outlive the caller's array; equal maps become one. */
tutti_status_t tt_coll_intern_leaves(tt_coll_t *coll, tt_run_t *run)
{
    if (run->call.first == NULL) {
        return TUTTI_OK;
    }
    const size_t bytes = ((size_t)coll->size + 1) * sizeof(int);
    const uint64_t hash = hash_leaves(run->call.first, coll->size);
    tt_leaf_map_t *map = coll->leaf_maps;
    while (map != NULL && (map->hash != hash || memcmp(map->first, run->call.first, bytes) != 0)) {
        map = map->next;
    }
    if (map == NULL) {
        map = tt_alloc(sizeof *map + bytes, "leaf map");
        TT_TRY_ALLOC(map);
        memcpy(map->first, run->call.first, bytes);
        map->hash = hash;
        map->next = coll->leaf_maps;
        coll->leaf_maps = map;
    }
    run->call.first = map->first;
    run->sign.leaf_map = hash;
    return TUTTI_OK;
}
