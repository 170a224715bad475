/* Jobs of the mpi engine: their memory, which stays with the group, and the posting of messages.
 *
 * A message of a call carries a tag made of the call's sequence number and the phase, so that a
 * rank that is one phase or one call ahead is not mistaken for one that is not.
 *
 * Cost: nothing is allocated once a group has as many jobs as it has calls under way at a time,
 * with as much scratch as the largest of them wants.
 */
#include <pthread.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

enum { FIRST_REQUESTS = 4 };

static void free_job(tt_mpi_job_t *job)
{
    tt_free(job->requests);
    tt_free(job->peers);
    tt_free(job->send);
    tt_free(job->piece_counts);
    tt_free(job->sources);
    tt_free(job->merges);
    tt_free(job->scratch);
    tt_free(job->tree_scratch);
    tt_free(job);
}

void tt_mpi_free_jobs(tt_mpi_job_t *job)
{
    while (job != NULL) {
        tt_mpi_job_t *next = job->next;
        free_job(job);
        job = next;
    }
}

/* ---- jobs that were given up ---- */

/* Whether MPI is done with the memory of a job that was given up. Requests that are done are none
 * any more; an error means that one of them is. */
bool tt_mpi_is_quiet(tt_mpi_job_t *job)
{
    bool is_done = job->request_count == 0 || job->mpi->is_over();
    if (!is_done && job->mpi->test(job->requests, job->request_count, &is_done) != 0) {
        is_done = false;
    }
    job->request_count = is_done ? 0 : job->request_count;
    return is_done;
}

/* Of groups that have closed. MPI is one per process, and so is what it is not done with. */
static struct {
    pthread_mutex_t mutex;
    tt_mpi_job_t *first;
} left = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void tt_mpi_leave_job(tt_mpi_job_t *job)
{
    pthread_mutex_lock(&left.mutex);
    job->next = left.first;
    left.first = job;
    pthread_mutex_unlock(&left.mutex);
}

void tt_mpi_free_left(void)
{
    pthread_mutex_lock(&left.mutex);
    tt_mpi_job_t *job = left.first, *next;
    left.first = NULL;
    pthread_mutex_unlock(&left.mutex);
    for (; job != NULL; job = next) {
        next = job->next;
        if (tt_mpi_is_quiet(job)) {
            free_job(job);
        } else {
            tt_mpi_leave_job(job);
        }
    }
}

/* ---- memory ---- */

static tt_mpi_job_t *make_job(tt_mpi_group_t *group)
{
    const size_t size = (size_t)group->size;
    tt_mpi_job_t *job = tt_alloc(sizeof *job, "mpi job");
    if (job == NULL) {
        return NULL;
    }
    job->mpi = group->mpi;
    job->send = tt_alloc_array(3 * size, sizeof *job->send, "mpi parts");
    job->piece_counts = tt_alloc_array(3 * size, sizeof *job->piece_counts, "mpi counts");
    if (job->send == NULL || job->piece_counts == NULL ||
        tt_mpi_want_requests(group, job, FIRST_REQUESTS) < 0) {
        free_job(job);
        return NULL;
    }
    job->recv = job->send + size;
    job->slices = job->send + 2 * size;
    job->counts = job->piece_counts + size;
    job->starts = job->piece_counts + 2 * size;
    return job;
}

tt_mpi_job_t *tt_mpi_take_job(tt_mpi_group_t *group)
{
    tt_mpi_job_t *job = group->free_jobs;
    if (job == NULL) {
        return make_job(group);
    }
    group->free_jobs = job->next;
    return job;
}

void tt_mpi_give_back(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    job->request_count = 0;
    job->next = group->free_jobs;
    group->free_jobs = job;
}

tutti_status_t tt_mpi_want_requests(tt_mpi_group_t *group, tt_mpi_job_t *job, int count)
{
    if (count <= job->request_capacity) {
        return TUTTI_OK;
    }
    TT_ASSERT(job->request_count == 0); /* MPI may look at requests where they lie */
    void *requests =
        tt_realloc(job->requests, (size_t)count * group->mpi->request_bytes, "mpi requests");
    TT_TRY_ALLOC(requests);
    job->requests = requests;
    tt_mpi_peer_t *peers = tt_realloc(job->peers, (size_t)count * sizeof *peers, "mpi peers");
    TT_TRY_ALLOC(peers);
    job->peers = peers;
    job->request_capacity = count;
    return TUTTI_OK;
}

tutti_status_t tt_mpi_want_sources(tt_mpi_job_t *job, int count)
{
    if (count <= job->source_capacity) {
        return TUTTI_OK;
    }
    const void **sources = tt_realloc(job->sources, (size_t)count * sizeof *sources, "mpi sources");
    TT_TRY_ALLOC(sources);
    job->sources = sources;
    unsigned char *merges = tt_realloc(job->merges, (size_t)count, "mpi merges");
    TT_TRY_ALLOC(merges);
    job->merges = merges;
    job->source_capacity = count;
    return TUTTI_OK;
}

/* A larger block instead of a smaller one, without its content. */
static tutti_status_t renew(void **block, size_t *bytes, size_t wanted)
{
    if (wanted <= *bytes) {
        return TUTTI_OK;
    }
    tt_free(*block);
    *bytes = 0;
    *block = tt_alloc_raw(wanted, "mpi scratch");
    TT_TRY_ALLOC(*block);
    *bytes = wanted;
    return TUTTI_OK;
}

tutti_status_t tt_mpi_want_scratch(tt_mpi_job_t *job, size_t bytes)
{
    return renew(&job->scratch, &job->scratch_bytes, bytes > 0 ? bytes : 1);
}

tutti_status_t tt_mpi_want_tree(tt_mpi_job_t *job, int depth)
{
    job->depth = depth;
    return renew(&job->tree_scratch, &job->tree_scratch_bytes, tt_tree_reduce_scratch_bytes(depth));
}

tutti_status_t tt_mpi_error(tt_mpi_group_t *group, const char *call, int error)
{
    char text[TT_MPI_TEXT_BYTES];
    group->mpi->error_text(error, text, sizeof text);
    if (group->mpi->is_truncation(error)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "%s in group %s: rank %d got more than it asked for: the ranks are in "
                       "different calls, or differ in a count or dtype (%s)",
                       call, group->name, group->rank, text);
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s in group %s: rank %d, MPI says: %s", call, group->name,
                   group->rank, text);
}

static int tag_of(const tt_mpi_job_t *job)
{
    const int phase = job->step % TT_MPI_PHASES;
    return (int)(job->sequence % TT_MPI_SEQUENCES) * TT_MPI_PHASES + phase;
}

void *tt_mpi_next_request(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, bool is_recv)
{
    TT_ASSERT(job->request_count < job->request_capacity);
    const int index = job->request_count++;
    job->peers[index] = (tt_mpi_peer_t){peer, is_recv};
    void *request = tt_mpi_request(group, job, index);
    group->mpi->clear(request);
    return request;
}

static tutti_status_t check(tt_mpi_group_t *group, const tt_mpi_job_t *job, int error)
{
    return error == 0 ? TUTTI_OK
                      : tt_mpi_error(group, tt_collective_name(job->run->call.collective), error);
}

tutti_status_t tt_mpi_post_send(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer,
                                const void *data, size_t bytes)
{
    void *request = tt_mpi_next_request(group, job, peer, false);
    return check(group, job,
                 group->mpi->send(group->calls, data, bytes, peer, tag_of(job), request));
}

tutti_status_t tt_mpi_post_recv(tt_mpi_group_t *group, tt_mpi_job_t *job, int peer, void *data,
                                size_t bytes)
{
    void *request = tt_mpi_next_request(group, job, peer, true);
    job->bytes = bytes > job->bytes ? bytes : job->bytes;
    return check(group, job,
                 group->mpi->recv(group->calls, data, bytes, peer, tag_of(job), request));
}

tutti_status_t tt_mpi_post_own(tt_mpi_group_t *group, tt_mpi_job_t *job, const tt_mpi_call_t *call)
{
    void *request = tt_mpi_next_request(group, job, -1, false);
    job->bytes = SIZE_MAX; /* MPI alone knows what it sends */
    return check(group, job, group->mpi->collective(group->calls, call, request));
}
