/* The plan of a call: the cache of plans, and what takes the place of a choice (choice.c) when it
 * turns out that anyone's memory is foreign, which all mates see in the flags.
 */
#include <string.h>

#include "comm/coll/choice.h"
#include "comm/coll/coll_impl.h"
#include "core/base/alloc.h"

static size_t hash_bytes(size_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t tt_call_layout_hash(const tt_call_t *call, int size)
{
    uint64_t hash = 0;
    if (call->first != NULL) {
        hash = hash_bytes(UINT64_C(0x84222325cbf29ce4), call->first,
                          ((size_t)size + 1) * sizeof *call->first);
    }
    if (call->counts != NULL && call->collective != TT_ALL_TO_ALL) {
        hash ^= hash_bytes(UINT64_C(0xcbf29ce484222325), call->counts,
                           (size_t)size * sizeof *call->counts);
    }
    return hash;
}

/* ---- the cache ---- */

static bool is_same_array(const void *a, const void *b, size_t bytes)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, bytes) == 0);
}

static bool is_same_request(const tt_plan_request_t *a, const tt_plan_request_t *b)
{
    const size_t size = (size_t)a->size;
    return a->collective == b->collective && a->count == b->count && a->root == b->root &&
           a->leaves == b->leaves && a->is_staged == b->is_staged &&
           is_same_array(a->first, b->first, (size + 1) * sizeof *a->first) &&
           is_same_array(a->counts, b->counts, size * sizeof *a->counts) &&
           is_same_array(a->recv_counts, b->recv_counts, size * sizeof *a->counts);
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

static bool is_in_use(const tt_coll_t *coll, const tt_cached_plan_t *entry)
{
    for (const tt_run_t *run = coll->head; run != NULL; run = run->next) {
        if (run->plan == entry) {
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

static void clear_entry(tt_cached_plan_t *entry)
{
    tt_plan_release(entry->plan);
    tt_free(entry->counts);
    tt_free(entry->first);
    *entry = (tt_cached_plan_t){0};
}

void tt_coll_clear_plans(tt_coll_t *coll)
{
    for (int i = 0; i < TT_PLAN_CACHE; i++) {
        clear_entry(&coll->plans[i]);
    }
}

/* The arrays of a request are only borrowed; an entry has its own. */
static tutti_status_t own_arrays(tt_cached_plan_t *entry)
{
    tt_plan_request_t *request = &entry->request;
    const size_t size = (size_t)request->size;
    if (request->counts != NULL || request->recv_counts != NULL) {
        entry->counts = tt_alloc_array(2 * size, sizeof *entry->counts, "counts of a plan");
        TT_TRY_ALLOC(entry->counts);
    }
    if (request->counts != NULL) {
        memcpy(entry->counts, request->counts, size * sizeof *entry->counts);
        request->counts = entry->counts;
    }
    if (request->recv_counts != NULL) {
        memcpy(entry->counts + size, request->recv_counts, size * sizeof *entry->counts);
        request->recv_counts = entry->counts + size;
    }
    if (request->first != NULL) {
        entry->first = tt_alloc_array(size + 1, sizeof *entry->first, "leaf map of a plan");
        TT_TRY_ALLOC(entry->first);
        memcpy(entry->first, request->first, (size + 1) * sizeof *entry->first);
        request->first = entry->first;
    }
    return TUTTI_OK;
}

static tutti_status_t make_entry(const tt_plan_request_t *request, const tt_algorithm_t *algorithm,
                                 tt_cached_plan_t *entry)
{
    *entry = (tt_cached_plan_t){.request = *request};
    tutti_status_t status = own_arrays(entry);
    if (status >= 0) {
        status = tt_plan_create(&entry->request, algorithm, &entry->plan);
    }
    if (status < 0) {
        clear_entry(entry);
        return status;
    }
    tt_plan_request_t root = entry->request;
    root.rank = root.root;
    entry->piece_elements = tt_plan_piece_elements(&entry->request);
    entry->root_piece_elements = tt_plan_piece_elements(&root);
    entry->out_elements = tt_plan_out_elements(&entry->request);
    return TUTTI_OK;
}

void tt_coll_drop_own_plan(tt_run_t *run)
{
    if (run->own_plan != NULL) {
        clear_entry(run->own_plan);
        tt_free(run->own_plan);
        run->own_plan = NULL;
        run->plan = NULL;
    }
}

/* More different calls are under way than the cache has room for: this one's plan is made for it
 * alone. It is an error on no rank, as ranks are not all as far. */
static tutti_status_t make_own_plan(const tt_plan_request_t *request,
                                    const tt_algorithm_t *algorithm, tt_run_t *run)
{
    tt_cached_plan_t *own = tt_alloc(sizeof *own, "plan of a call");
    TT_TRY_ALLOC(own);
    const tutti_status_t status = make_entry(request, algorithm, own);
    if (status < 0) {
        tt_free(own);
        return status;
    }
    tt_coll_drop_own_plan(run); /* the request may have borrowed its arrays */
    run->own_plan = own;
    run->plan = own;
    return TUTTI_OK;
}

static void use_plan(tt_run_t *run, const tt_cached_plan_t *entry)
{
    tt_coll_drop_own_plan(run);
    run->plan = entry;
}

/* The plan of the cache, or a new one in it. Plans whose searches begin at one entry stand side by
 * side; in a full cache the first one that no run uses makes room. */
static tutti_status_t find_plan(tt_coll_t *coll, const tt_plan_request_t *request,
                                const tt_algorithm_t *algorithm, tt_run_t *run)
{
    const size_t start = cache_index(request);
    tt_cached_plan_t *entry = NULL;
    for (size_t i = 0; i < TT_PLAN_CACHE; i++) {
        tt_cached_plan_t *at = &coll->plans[(start + i) % TT_PLAN_CACHE];
        if (is_wanted(at, request, algorithm)) {
            use_plan(run, at);
            return TUTTI_OK;
        }
        if (at->plan == NULL) {
            entry = at; /* nothing that began at `start` stands behind a free entry */
            break;
        }
        if (entry == NULL && !is_in_use(coll, at)) {
            entry = at;
        }
    }
    if (entry == NULL) {
        return make_own_plan(request, algorithm, run);
    }
    tt_cached_plan_t made;
    TT_TRY(make_entry(request, algorithm, &made));
    if (entry->plan != NULL) {
        memset(coll->memos, 0, sizeof coll->memos); /* one of them may speak of this entry */
    }
    clear_entry(entry);
    *entry = made;
    use_plan(run, entry);
    return TUTTI_OK;
}

/* ---- the choice ---- */

static tt_plan_request_t request_of(const tt_coll_t *coll, const tt_call_t *call)
{
    return (tt_plan_request_t){.collective = call->collective,
                               .rank = coll->rank,
                               .size = coll->size,
                               .root = call->root,
                               .count = call->count,
                               .counts = call->counts,
                               .recv_counts = call->recv_counts,
                               .leaves = call->leaves,
                               .first = call->first,
                               .hosts = coll->host_count > 1 ? coll->hosts : NULL};
}

tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_run_t *run)
{
    const tt_plan_request_t request = request_of(coll, &run->call);
    const tt_choice_t choice =
        tt_coll_choose(&coll->rules, &request, tutti_dtype_bytes(run->call.dtype));
    return find_plan(coll, &request, choice.algorithm, run);
}

/* The ranks of this host decide that among themselves: over several hosts the algorithm stays, and
 * its messages between hosts do not depend on stages (tt_plan_check). */
tutti_status_t tt_coll_pick_staged(tt_coll_t *coll, tt_run_t *run)
{
    tt_plan_request_t request = run->plan->request;
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    request.is_staged = true;
    if (algorithm->needs_one_host) {
        algorithm = &tt_algorithm_staged;
    }
    if (!algorithm->fits(&request)) {
        TT_ASSERT(request.hosts == NULL);
        request.is_staged = false;
        algorithm = &tt_algorithm_pairwise;
    }
    return find_plan(coll, &request, algorithm, run);
}
