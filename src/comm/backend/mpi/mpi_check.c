/* Finding ranks that are in different calls, where TUTTI_MPI_CHECK asks for it: before a call moves
 * data, every rank sends its descriptor to all others, and compares theirs with rank 0's. So all
 * say the same, and no memory is touched. What follows goes by messages in groups of any size, for
 * calls of MPI's own must be started in one order.
 *
 * Cost: n - 1 messages of 64 bytes each way, and a wait, for each call.
 * Source: TORCH_DISTRIBUTED_DEBUG=DETAIL of torch.distributed.
 */
#include <string.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "comm/exec/call_text.h"

static tutti_status_t compare(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_descriptor_t *all = job->scratch;
    for (int rank = 1; rank < group->size; rank++) {
        if (memcmp(&all[rank], &all[0], sizeof all[0]) != 0) {
            const tt_party_t parties[] = {{rank, &all[rank], NULL}, {0, &all[0], NULL}};
            return tt_calls_differ(group->name, job->sequence, &parties[0], &parties[1]);
        }
    }
    return tt_mpi_exchange(group, job);
}

tutti_status_t tt_mpi_check(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    TT_TRY(tt_mpi_want_scratch(job, (size_t)group->size * sizeof(tt_call_descriptor_t)));
    TT_TRY(tt_mpi_want_requests(group, job, 2 * (group->size - 1)));
    tt_call_descriptor_t *all = job->scratch, *mine = &all[group->rank];
    *mine = job->descriptor;
    job->step = 0;
    job->advance = compare;
    for (int rank = 0; rank < group->size; rank++) {
        if (rank != group->rank) {
            TT_TRY(tt_mpi_post_recv(group, job, rank, &all[rank], sizeof *mine));
            TT_TRY(tt_mpi_post_send(group, job, rank, mine, sizeof *mine));
        }
    }
    return TUTTI_PENDING;
}
