/* The plan of a call: what is chosen (choice.c), and what takes its place when it turns out that
 * anyone's memory is foreign, which all local ranks see in the flags.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/choice.h"
#include "comm/exec/coll_exec.h"
#include "core/base/fnv.h"

uint64_t tt_call_layout_hash(const tt_call_t *call, int size)
{
    uint64_t hash = 0;
    if (call->first != NULL) {
        hash = tt_fnv(UINT64_C(0x84222325cbf29ce4), call->first,
                      ((size_t)size + 1) * sizeof *call->first);
    }
    if (call->counts != NULL && call->collective == TT_ALL_TO_ALL) {
        hash = 1; /* uneven: each rank has counts of its own, and sends parts of nothing, too */
    } else if (call->counts != NULL) {
        hash ^= tt_fnv(TT_FNV_BEGIN, call->counts, (size_t)size * sizeof *call->counts);
    }
    return hash;
}

static tutti_status_t make_plan(tt_coll_t *coll, const tt_plan_request_t *request,
                                const tt_algorithm_t *algorithm, tt_cached_plan_t *out)
{
    tt_plan_request_t root = *request;
    tt_plan_t *plan;
    root.rank = root.root;
    TT_TRY(tt_plan_create(request, algorithm, &plan));
    const tutti_status_t status = tt_coll_make_sum_room(coll, plan);
    if (status < 0) {
        tt_plan_release(plan);
        return status;
    }
    *out = (tt_cached_plan_t){.plan = plan,
                              .execute = tt_coll_executor(plan),
                              .piece_elements = tt_plan_piece_elements(request),
                              .root_piece_elements = tt_plan_piece_elements(&root),
                              .out_elements = tt_plan_out_elements(request)};
    return TUTTI_OK;
}

static tt_plan_request_t request_of(const tt_coll_t *coll, const tt_prepared_t *prepared)
{
    const tt_call_t *call = &prepared->call;
    const uint8_t custom = prepared->descriptor.custom.width;
    return (tt_plan_request_t){.collective = call->collective,
                               .rank = coll->rank,
                               .size = coll->size,
                               .root = call->root,
                               .count = call->count,
                               .counts = call->counts,
                               .recv_counts = call->recv_counts,
                               .leaves = call->leaves,
                               .first = call->first,
                               .keeps_order = custom != 0 && (custom & TT_CUSTOM_COMMUTES) == 0,
                               .hosts = coll->host_count > 1 ? coll->hosts : NULL};
}

tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_prepared_t *prepared)
{
    const tt_plan_request_t request = request_of(coll, prepared);
    const tt_choice_t choice =
        tt_coll_choose(&coll->rules, &request, tutti_dtype_bytes(prepared->call.dtype));
    return make_plan(coll, &request, choice.algorithm, &prepared->plan);
}

/* The ranks of this host decide that among themselves: over several hosts the algorithm stays, and
 * its messages between hosts do not depend on bounce buffers (tt_plan_check_hosts). */
static tutti_status_t make_staged(tt_coll_t *coll, tt_prepared_t *prepared)
{
    tt_plan_request_t request = prepared->plan.plan->request;
    const tt_algorithm_t *algorithm = prepared->plan.plan->algorithm;
    request.is_staged = true;
    if (algorithm->needs_one_host) {
        algorithm = &tt_algorithm_staged;
    }
    if (!tt_algorithm_fits(algorithm, &request)) {
        TT_ASSERT(request.hosts == NULL);
        request.is_staged = false;
        algorithm = &tt_algorithm_pairwise;
    }
    return make_plan(coll, &request, algorithm, &prepared->staged);
}

tutti_status_t tt_coll_pick_staged(tt_coll_t *coll, tt_run_t *run)
{
    if (run->prepared->staged.plan == NULL) {
        TT_TRY(make_staged(coll, run->prepared));
    }
    run->plan = &run->prepared->staged;
    return TUTTI_OK;
}
