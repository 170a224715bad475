/* Hosts and their ranks. */
#include "comm/algorithm/two_level.h"

#include "core/base/alloc.h"

bool tt_two_level_open_for(tt_two_level_t *t, const tt_plan_request_t *request, size_t length,
                           size_t chunk)
{
    const int size = request->size;
    *t = (tt_two_level_t){.request = request, .length = length};
    t->host_count = tt_plan_host_count(request);
    t->chunk = tt_chunk_elements(length, chunk);
    t->chunk = length < t->chunk ? length : t->chunk;
    t->chunks = length > 0 ? tt_chunk_count(length, t->chunk) : 0;
    t->begins = tt_alloc_array((size_t)t->host_count + 2 + (size_t)size, sizeof(int), "hosts");
    if (t->begins == NULL) {
        return false;
    }
    t->ranks = t->begins + t->host_count + 2;
    int *ends =
        t->begins + 1; /* first how many ranks a host has, then where they begin, then end */
    for (int rank = 0; rank < size; rank++) {
        ends[tt_plan_host(request, rank) + 1]++;
    }
    for (int host = 0; host < t->host_count; host++) {
        ends[host + 1] += ends[host];
    }
    for (int rank = 0; rank < size; rank++) {
        t->ranks[ends[tt_plan_host(request, rank)]++] = rank;
    }
    return true;
}

bool tt_two_level_open(tt_two_level_t *t, tt_plan_t *plan, size_t length, size_t chunk)
{
    const bool is_open = tt_two_level_open_for(t, &plan->request, length, chunk);
    t->plan = plan;
    plan->status = is_open ? plan->status : TUTTI_ERR_NOMEM;
    return is_open;
}

void tt_two_level_close(tt_two_level_t *t)
{
    tt_free(t->begins);
}

int tt_two_level_local_ranks(const tt_two_level_t *t, int host)
{
    return t->begins[host + 1] - t->begins[host];
}

int tt_two_level_helper(const tt_two_level_t *t, int host, int owner)
{
    return t->ranks[t->begins[host] + owner % tt_two_level_local_ranks(t, host)];
}

void tt_two_level_barrier(const tt_two_level_t *t, int begin, int end)
{
    t->plan->meets = (tt_plan_loop_t){.begin = begin, .chunks = end - begin, .stride = 1};
}
