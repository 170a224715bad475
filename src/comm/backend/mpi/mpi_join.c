/* Making a group's communicators: for the world copies of MPI's, for a part of a group what
 * MPI_Comm_create_group() makes. That call blocks until all members have called it, so they meet
 * before, by messages under the deadline, in two rounds:
 *
 *     1    "I have come", to every member; a member that is not heard in time is named
 *     2    "all have come to me", or "I have given up"
 *
 * A member calls it when all have said the former. One that comes after another has given up hears
 * that in the second round. (A member that is stopped between the rounds for longer than the
 * deadline can still leave the others in the call.)
 *
 * Each word names its group. A rank is in one meeting at a time, and its words keep their order: a
 * word of another group is left over from one that was given up, and is passed over.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "core/base/alloc.h"
#include "core/base/fnv.h"

typedef enum { HAS_COME, ALL_HAVE_COME, HAS_GIVEN_UP, WORDS } word_kind_t;

typedef struct {
    uint64_t group; /* a number that names it */
    uint64_t kind;
} word_t;

static tutti_status_t check(tt_mpi_group_t *group, int error)
{
    return error != 0 ? tt_mpi_error(group, "joining", error) : TUTTI_OK;
}

/* A job that is not waited for: if joining fails, it goes the way of those that are given up. */
static tutti_status_t open_job(tt_mpi_group_t *group, int requests, size_t bytes,
                               tt_mpi_job_t **out)
{
    tt_mpi_job_t *job = tt_mpi_take_job(group);
    TT_TRY_ALLOC(job);
    job->op = NULL;
    job->held = NULL;
    job->next = NULL;
    group->first = group->last = job;
    TT_TRY(tt_mpi_want_requests(group, job, requests));
    *out = job;
    return tt_mpi_want_scratch(job, bytes);
}

static void close_job(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    group->first = group->last = NULL;
    tt_mpi_give_back(group, job);
}

/* Poll requests until they are done. */
static tutti_status_t wait_for(tt_mpi_group_t *group, const tt_backend_options_t *options,
                               tt_deadline_t deadline, tt_mpi_job_t *job)
{
    for (unsigned looks = 1;; looks++) {
        bool is_done = false;
        TT_TRY(check(group, group->mpi->test(job->requests, job->request_count, &is_done)));
        if (is_done) {
            job->request_count = 0;
            return TUTTI_OK;
        }
        if (looks % TT_MPI_LOOKS != 0) {
            continue;
        }
        if (tt_deadline_is_past(deadline)) {
            char missing[256];
            tt_mpi_list_missing(group, job, missing, sizeof missing);
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "rank %d waited %lld ms for the other ranks of group %s%s", group->rank,
                           (long long)options->timeout_ms, group->name, missing);
        }
        if (options->look != NULL) {
            TT_TRY(options->look(options->look_user));
        }
        sched_yield();
    }
}

/* One of the two communicators, copied from another (NULL: the world). MPI writes the new one when
 * it is done, which may be after this has failed. */
static tutti_status_t duplicate(tt_mpi_group_t *group, const tt_backend_options_t *options,
                                const tt_mpi_comm_t *from, tt_mpi_comm_t *out)
{
    tt_mpi_job_t *job;
    TT_TRY(open_job(group, 1, sizeof *out, &job));
    tt_mpi_comm_t *copy = job->scratch;
    (void)tt_mpi_next_request(group, job, -1, false);
    TT_TRY(check(group, group->mpi->duplicate(from, copy, job->requests)));
    TT_TRY(wait_for(group, options, tt_deadline_in_ms(options->timeout_ms), job));
    *out = *copy;
    close_job(group, job);
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

/* ---- meeting ---- */

typedef struct {
    tt_mpi_group_t *group;
    const tt_backend_options_t *options;
    tt_mpi_job_t *job;
    word_t *heard; /* [size] of each member */
    word_t *words; /* [WORDS] of this one */
} meeting_t;

/* A word to every member. */
static tutti_status_t say(const meeting_t *meeting, word_kind_t kind)
{
    tt_mpi_group_t *group = meeting->group;
    const tt_mpi_group_t *parent = meeting->options->parent;
    for (int rank = 0; rank < group->size; rank++) {
        if (rank != group->rank) {
            void *request = tt_mpi_next_request(group, meeting->job, rank, false);
            TT_TRY(
                check(group, group->mpi->send(parent->calls, &meeting->words[kind], sizeof(word_t),
                                              meeting->options->parent_ranks[rank], TT_MPI_TAG_MEET,
                                              request)));
        }
    }
    return TUTTI_OK;
}

/* The next word of every member from whom none of this group has been heard. */
static tutti_status_t listen(const meeting_t *meeting)
{
    tt_mpi_group_t *group = meeting->group;
    const tt_mpi_group_t *parent = meeting->options->parent;
    for (int rank = 0; rank < group->size; rank++) {
        if (meeting->heard[rank].group != meeting->words->group) {
            void *request = tt_mpi_next_request(group, meeting->job, rank, true);
            TT_TRY(
                check(group, group->mpi->recv(parent->calls, &meeting->heard[rank], sizeof(word_t),
                                              meeting->options->parent_ranks[rank], TT_MPI_TAG_MEET,
                                              request)));
        }
    }
    return TUTTI_OK;
}

/* A word to every member, and one from each. */
static tutti_status_t talk(const meeting_t *meeting, word_kind_t kind)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(meeting->options->timeout_ms);
    memset(meeting->heard, 0, (size_t)meeting->group->size * sizeof *meeting->heard);
    meeting->heard[meeting->group->rank] = meeting->words[kind];
    TT_TRY(listen(meeting));
    TT_TRY(say(meeting, kind));
    do {
        TT_TRY(wait_for(meeting->group, meeting->options, deadline, meeting->job));
        TT_TRY(listen(meeting));
    } while (meeting->job->request_count > 0);
    return TUTTI_OK;
}

static tutti_status_t meet(tt_mpi_group_t *group, const tt_backend_options_t *options)
{
    tt_mpi_job_t *job;
    TT_TRY(open_job(group, 3 * group->size, ((size_t)group->size + WORDS) * sizeof(word_t), &job));
    word_t *heard = job->scratch;
    const meeting_t meeting = {group, options, job, heard, heard + group->size};
    const uint64_t id = tt_fnv(TT_FNV_BEGIN, group->name, strlen(group->name));
    for (int i = 0; i < WORDS; i++) {
        meeting.words[i] = (word_t){id, (uint64_t)i};
    }
    const tutti_status_t status = talk(&meeting, HAS_COME);
    if (status < 0) {
        char text[TT_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        (void)say(&meeting, HAS_GIVEN_UP);
        return tt_fail_again(status, text);
    }
    TT_TRY(talk(&meeting, ALL_HAVE_COME));
    for (int rank = 0; rank < group->size; rank++) {
        if (heard[rank].kind == HAS_GIVEN_UP) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "rank %d came too late to group %s: rank %d had given it up",
                           group->rank, group->name, rank);
        }
    }
    close_job(group, job);
    return TUTTI_OK;
}

tutti_status_t tt_mpi_make_comms(tt_mpi_group_t *group, const tt_backend_options_t *options)
{
    const tt_mpi_group_t *parent = options->parent;
    if (parent == NULL) {
        TT_TRY(check_world(group));
        TT_TRY(duplicate(group, options, NULL, &group->calls));
    } else {
        TT_TRY(meet(group, options));
        TT_TRY(check(group, group->mpi->subgroup(parent->calls, group->size, options->parent_ranks,
                                                 TT_MPI_TAG_MEET, &group->calls)));
        TT_TRY(check(group, group->mpi->return_errors(group->calls)));
    }
    group->has_calls = true;
    TT_TRY(duplicate(group, options, &group->calls, &group->messages));
    group->has_messages = true;
    return TUTTI_OK;
}
