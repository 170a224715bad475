/* allreduce: the sum over all ranks. noop: no sum at all.
 * Source: torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py and debugging_hooks.py. */
#include <tutti/ddp.h>

static tutti_status_t start_allreduce(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    (void)state;
    return tutti_all_reduce(bucket->group, bucket->grad, TUTTI_SUM, work);
}

const tutti_ddp_hook_ops_t tutti_allreduce_hook = {
    .name = "allreduce",
    .about = "each rank adds up its shards, then ranks are added up",
    .start = start_allreduce,
};

static tutti_status_t start_noop(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    (void)state, (void)work;
    bucket->divisor = bucket->local_shards > 0 ? bucket->local_shards : 1;
    return TUTTI_OK;
}

const tutti_ddp_hook_ops_t tutti_noop_hook = {
    .name = "noop",
    .about = "every rank keeps the average over its own shards",
    .start = start_noop,
};
