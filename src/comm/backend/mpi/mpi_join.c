/* Making a group's communicators: for the world copies of MPI's, for a part of a group what
 * MPI_Comm_create_group() makes. That call blocks, so the members meet by messages first, under the
 * deadline; whoever does not come is named.
 */
#include <sched.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "core/base/alloc.h"

/* Poll requests until they are done. */
static tutti_status_t wait_for(tt_mpi_group_t *group, tt_mpi_job_t *job, tt_deadline_t deadline)
{
    bool is_done = false;
    for (unsigned looks = 1; !is_done; looks++) {
        const int error = group->mpi->test_all(job->requests, job->request_count, &is_done);
        if (error != 0) {
            return tt_mpi_error(group, "joining", error);
        }
        if (looks % TT_MPI_LOOKS == 0 && !is_done) {
            if (tt_deadline_is_past(deadline)) {
                char missing[256];
                tt_mpi_list_missing(group, job, missing, sizeof missing);
                return TT_FAIL(TUTTI_ERR_TIMEOUT,
                               "rank %d waited %lld ms for the other ranks of group %s%s",
                               group->rank, (long long)group->timeout_ms, group->name, missing);
            }
            sched_yield();
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check(tt_mpi_group_t *group, int error)
{
    return error != 0 ? tt_mpi_error(group, "joining", error) : TUTTI_OK;
}

/* One of the two communicators, copied from another (NULL: the world). */
static tutti_status_t duplicate(tt_mpi_group_t *group, const tt_mpi_comm_t *from,
                                tt_mpi_comm_t *out, tt_deadline_t deadline)
{
    tt_mpi_job_t *job = tt_mpi_take_job(group);
    TT_TRY_ALLOC(job);
    job->peers[0] = (tt_mpi_peer_t){-1, false};
    tutti_status_t status = check(group, group->mpi->duplicate(from, out, job->requests));
    if (status >= 0) {
        job->request_count = 1;
        status = wait_for(group, job, deadline);
    }
    tt_mpi_give_back(group, job);
    TT_TRY(status);
    return check(group, group->mpi->return_errors(*out));
}

static tutti_status_t check_world(const tt_mpi_group_t *group)
{
    if (group->rank != group->world.rank || group->size != group->world.size) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "TUTTI_BACKEND=mpi: this is rank %d of %d, but MPI says rank %d of %d; "
                       "start the program with that MPI's own mpirun, or choose another with "
                       "TUTTI_MPI (%s is loaded)",
                       group->rank, group->size, group->world.rank, group->world.size,
                       group->mpi->flavour);
    }
    return TUTTI_OK;
}

static int meeting_tag(const char *name)
{
    uint32_t hash = 0;
    for (; *name != 0; name++) {
        hash = hash * 31 + (unsigned char)*name;
    }
    return TT_MPI_TAG_MEET + (int)(hash % TT_MPI_MEET_TAGS);
}

/* An empty message to and from every member, by the parent: MPI_Comm_create_group() blocks, so
 * nobody calls it before all have come. */
static tutti_status_t post_meeting(tt_mpi_group_t *group, const tt_mpi_group_t *parent,
                                   const int *ranks, tt_mpi_job_t *job)
{
    const int tag = meeting_tag(group->name);
    for (int rank = 0; rank < group->size; rank++) {
        for (int way = 0; way < 2 && rank != group->rank; way++) {
            char *request =
                (char *)job->requests + (size_t)job->request_count * group->mpi->request_bytes;
            job->peers[job->request_count++] = (tt_mpi_peer_t){rank, way == 0};
            group->mpi->clear(request, 0);
            TT_TRY(check(
                group, way == 0
                           ? group->mpi->recv(parent->calls, NULL, 0, ranks[rank], tag, request)
                           : group->mpi->send(parent->calls, NULL, 0, ranks[rank], tag, request)));
        }
    }
    return TUTTI_OK;
}

static void give_up_requests(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    for (int i = 0; i < job->request_count; i++) {
        (void)group->mpi->give_up(job->requests, i, job->peers[i].is_recv);
    }
}

static tutti_status_t meet(tt_mpi_group_t *group, const tt_mpi_group_t *parent, const int *ranks,
                           tt_deadline_t deadline)
{
    tt_mpi_job_t *job = tt_mpi_take_job(group);
    TT_TRY_ALLOC(job);
    tutti_status_t status = tt_mpi_want_requests(group, job, 2 * group->size);
    if (status >= 0) {
        status = post_meeting(group, parent, ranks, job);
    }
    if (status >= 0) {
        status = wait_for(group, job, deadline);
    }
    if (status < 0) {
        give_up_requests(group, job);
    }
    tt_mpi_give_back(group, job);
    return status;
}

tutti_status_t tt_mpi_make_comms(tt_mpi_group_t *group, const tt_backend_options_t *options)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(options->timeout_ms);
    const tt_mpi_group_t *parent = options->parent;
    if (parent == NULL) {
        TT_TRY(check_world(group));
        TT_TRY(duplicate(group, NULL, &group->calls, deadline));
    } else {
        TT_TRY(meet(group, parent, options->parent_ranks, deadline));
        TT_TRY(check(group, group->mpi->subgroup(parent->calls, group->size, options->parent_ranks,
                                                 meeting_tag(group->name), &group->calls)));
        TT_TRY(check(group, group->mpi->return_errors(group->calls)));
    }
    group->has_calls = true;
    TT_TRY(duplicate(group, &group->calls, &group->messages, deadline));
    group->has_messages = true;
    return TUTTI_OK;
}
