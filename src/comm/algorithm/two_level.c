/* Hosts and their ranks. */
#include "comm/algorithm/two_level.h"

#include "core/base/alloc.h"

bool tt_two_level_open(tt_two_level_t *t, tt_plan_t *plan)
{
    const tt_plan_request_t *request = &plan->request;
    const int size = request->size, hosts = tt_plan_host_count(request);
    *t = (tt_two_level_t){.plan = plan,
                          .request = request,
                          .host_count = hosts,
                          .host = tt_plan_host(request, plan->rank)};
    t->begins = tt_alloc_array((size_t)hosts + 2 + (size_t)size, sizeof(int), "hosts");
    if (t->begins == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
        return false;
    }
    t->ranks = t->begins + hosts + 2;
    int *ends =
        t->begins + 1; /* first a host's ranks, then where they begin, then where they end */
    for (int rank = 0; rank < size; rank++) {
        ends[tt_plan_host(request, rank) + 1]++;
    }
    for (int host = 0; host < hosts; host++) {
        ends[host + 1] += ends[host];
    }
    for (int rank = 0; rank < size; rank++) {
        t->ranks[ends[tt_plan_host(request, rank)]++] = rank;
    }
    return true;
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

bool tt_two_level_helps(const tt_two_level_t *t, int owner)
{
    return tt_two_level_host(t, owner) != t->host &&
           tt_two_level_helper(t, t->host, owner) == t->plan->rank;
}

void tt_two_level_loop(const tt_two_level_t *t, int last, int meet)
{
    const int chunks = t->cut.chunks;
    if (chunks > 0 && meet > 0) {
        t->plan->meets =
            (tt_plan_loop_t){.begin = meet, .chunks = chunks + last - 1 - meet, .stride = 1};
    }
    tt_plan_add_loop(t->plan, (tt_plan_loop_t){.chunks = chunks, .last = last});
}
