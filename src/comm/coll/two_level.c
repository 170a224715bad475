/* Hosts and their ranks. */
#include "comm/coll/two_level.h"

#include "core/base/alloc.h"

bool tt_two_level_open(tt_two_level_t *t, tt_plan_t *plan, const tt_plan_request_t *request,
                       size_t length, size_t chunk)
{
    const int size = request->size;
    *t = (tt_two_level_t){.plan = plan, .request = request, .length = length};
    t->host_count = tt_plan_host_count(request);
    t->chunk = tt_chunk_elements(length, chunk);
    t->chunk = length < t->chunk ? length : t->chunk;
    t->chunks = length > 0 ? tt_chunk_count(length, t->chunk) : 0;
    t->begins = tt_alloc_array((size_t)t->host_count + 1 + (size_t)size, sizeof(int), "hosts");
    if (t->begins == NULL) {
        if (plan != NULL) {
            plan->status = TUTTI_ERR_NOMEM;
        }
        return false;
    }
    t->ranks = t->begins + t->host_count + 1;
    int count = 0;
    for (int host = 0; host < t->host_count; host++) {
        for (int rank = 0; rank < size; rank++) {
            if (tt_plan_host(request, rank) == host) {
                t->ranks[count++] = rank;
            }
        }
        t->begins[host + 1] = count;
    }
    return true;
}

void tt_two_level_close(tt_two_level_t *t)
{
    tt_free(t->begins);
}

int tt_two_level_locals(const tt_two_level_t *t, int host)
{
    return t->begins[host + 1] - t->begins[host];
}

int tt_two_level_helper(const tt_two_level_t *t, int host, int owner)
{
    return t->ranks[t->begins[host] + owner % tt_two_level_locals(t, host)];
}

void tt_two_level_meet(const tt_two_level_t *t, int begin, int end)
{
    for (int round = begin; round < end; round++) {
        tt_plan_meet(t->plan, round);
    }
}
