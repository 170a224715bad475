/* Moving the jobs of a group of the mpi engine forward, and giving the group up.
 *
 * A rank that waits looks at its requests again and again, for MPI has nothing to sleep on; now and
 * then it reads the clock, looks for news of others' failures, and offers the core to others.
 *
 * Cost: a look is an MPI_Test for the first request of each job that is not done.
 */
#include <sched.h>
#include <stdio.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "core/base/alloc.h"

enum { QUIESCE_MS = 100, EAGER_BYTES = 2048, LOOK_NS = 1000000 };

static const char *name_of(const tt_mpi_job_t *job)
{
    return job->run == NULL ? "message" : tt_collective_name(job->run->call.collective);
}

/* ---- failing ---- */

/* Nothing that comes late is to be written into memory that its owner uses again. */
static void cancel_receives(tt_mpi_group_t *group)
{
    for (tt_mpi_job_t *job = group->first; job != NULL; job = job->next) {
        for (int i = 0; i < job->request_count; i++) {
            if (job->peers[i].is_recv) {
                group->mpi->cancel(tt_mpi_request(group, job, i));
            }
        }
    }
}

static bool are_all_quiet(tt_mpi_group_t *group)
{
    bool all = true;
    for (tt_mpi_job_t *job = group->first; job != NULL; job = job->next) {
        all = tt_mpi_is_quiet(job) && all;
    }
    return all;
}

/* Jobs are given up. They keep their own memory until the group closes, and hold their caller's
 * until MPI is done with it. */
static void drop_jobs(tt_mpi_group_t *group)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(QUIESCE_MS);
    cancel_receives(group);
    while (!are_all_quiet(group) && !tt_deadline_is_past(deadline)) {
        sched_yield();
    }
    for (tt_mpi_job_t *job = group->first; job != NULL; job = job->next) {
        job->held = job->op;
        if (job->op != NULL) {
            tt_mpi_note(group, job->op, TT_RECORD_FAILED);
            job->op->status = group->status;
            job->op = NULL;
        }
    }
}

bool tt_mpi_holds(void *state, const tt_op_t *op)
{
    tt_mpi_group_t *group = state;
    tt_mpi_job_t *job = group->first;
    while (job != NULL && job->held != op) {
        job = job->next;
    }
    if (job != NULL && tt_mpi_is_quiet(job)) {
        job->held = NULL;
        job = NULL;
    }
    return job != NULL;
}

/* Tell the others, whether they wait for it or not. */
static void spread(tt_mpi_group_t *group, int tag)
{
    void *request = tt_alloc_raw(group->mpi->request_bytes, "mpi request");
    for (int rank = 0; rank < group->size && request != NULL; rank++) {
        if (rank != group->rank &&
            group->mpi->send(group->calls, NULL, 0, rank, tag, request) == 0) {
            group->mpi->forget(request);
        }
    }
    tt_free(request);
}

/* The text of the failure is the last error. */
static tutti_status_t give_up(tt_mpi_group_t *group, tutti_status_t status, int tag, bool is_heard)
{
    if (group->status < 0) {
        return tt_mpi_known_status(group);
    }
    group->status = status;
    snprintf(group->error, sizeof group->error, "%s", tutti_last_error());
    group->mpi->note_failure();
    if (tag != 0 && !is_heard && group->has_calls) {
        spread(group, tag);
    }
    if (tag == TT_MPI_TAG_FAILED) {
        tt_mpi_dump_failure(group);
    }
    drop_jobs(group);
    if (group->aborts_job) {
        group->mpi->abort_job(1);
    }
    return tt_mpi_known_status(group);
}

tutti_status_t tt_mpi_fail(tt_mpi_group_t *group, tutti_status_t status, int tag)
{
    return give_up(group, status, tag, false);
}

static tutti_status_t look_for_news(tt_mpi_group_t *group)
{
    for (int tag = TT_MPI_TAG_ABORTED; tag <= TT_MPI_TAG_FAILED; tag++) {
        bool is_there = false;
        tt_mpi_found_t found = {.source = -1};
        (void)group->mpi->probe(group->calls, TT_MPI_ANY, tag, &is_there, &found);
        if (is_there) {
            const char *what =
                tag == TT_MPI_TAG_ABORTED ? "aborted it" : "gave it up after a failure";
            return give_up(
                group,
                TT_FAIL(TUTTI_ERR_ABORTED, "group %s: rank %d %s", group->name, found.source, what),
                tag, true);
        }
    }
    return TUTTI_OK;
}

/* A caller that waits for a call that has not begun waits for those before it. */
static void wait_for_those_before(tt_mpi_group_t *group, const tt_mpi_job_t *behind, int64_t since)
{
    for (tt_mpi_job_t *job = group->first; job != behind && since != 0; job = job->next) {
        if (job->run != NULL) {
            tt_op_begin_deadline(job->op, since);
        }
    }
}

static void look_at_clock(tt_mpi_group_t *group, int64_t now)
{
    for (tt_mpi_job_t *job = group->first; job != NULL; job = job->next) {
        const int64_t since = job->op != NULL ? job->op->waited_since_ns : 0;
        if (job->is_behind) {
            wait_for_those_before(group, job, since);
            continue;
        }
        if (since != 0 && now > tt_deadline_after(since, group->timeout_ms)) {
            char missing[256];
            tt_mpi_list_missing(group, job, missing, sizeof missing);
            (void)tt_mpi_fail(group,
                              TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: gave up after %lld ms%s",
                                      tt_mpi_describe_job(group, job).text,
                                      (long long)group->timeout_ms, missing),
                              TT_MPI_TAG_FAILED);
            return;
        }
        if (since != 0) {
            tt_mpi_report_wait(group, job, now);
        }
    }
}

static void look_around(tt_mpi_group_t *group)
{
    group->looked_ns = tt_clock_ns();
    tt_mpi_free_left();
    if (look_for_news(group) == TUTTI_OK) {
        look_at_clock(group, group->looked_ns);
    }
}

/* ---- moving forward ---- */

static void end_job(tt_mpi_group_t *group, tt_mpi_job_t *job, tt_mpi_job_t *before)
{
    if (before != NULL) {
        before->next = job->next;
    } else {
        group->first = job->next;
    }
    if (group->last == job) {
        group->last = before;
    }
    if (job->run != NULL) {
        tt_call_copy_out(&job->run->call);
    }
    tt_mpi_note(group, job->op, TT_RECORD_DONE);
    job->op->status = TUTTI_OK;
    job->op = NULL;
    tt_mpi_give_back(group, job);
}

bool tt_mpi_is_behind(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_mpi_job_t *at = group->first;
    while (at != NULL && at != job &&
           (at->run == NULL || (!at->is_behind && !tt_runs_conflict(at->run, job->run)))) {
        at = at->next;
    }
    return at != NULL && at != job;
}

tutti_status_t tt_mpi_begin(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    tt_call_copy_in(&job->run->call);
    return job->advance(group, job);
}

/* It begins now, and its deadline with it, unless it is still behind others. */
static tutti_status_t leave_line(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    job->is_behind = tt_mpi_is_behind(group, job);
    if (job->is_behind) {
        return TUTTI_PENDING;
    }
    if (job->op->waited_since_ns != 0) {
        job->op->waited_since_ns = tt_clock_ns();
    }
    tt_mpi_note(group, job->op, TT_RECORD_RUNNING);
    return tt_mpi_begin(group, job);
}

/* OK when the job is done. */
static tutti_status_t move_call(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    if (job->is_behind) {
        const tutti_status_t status = leave_line(group, job);
        if (status != TUTTI_PENDING || job->is_behind) {
            return status;
        }
    }
    for (;;) {
        bool is_done = true;
        const int error = group->mpi->test(job->requests, job->request_count, &is_done);
        if (error != 0) {
            return tt_mpi_error(group, name_of(job), error);
        }
        if (!is_done) {
            return TUTTI_PENDING;
        }
        job->request_count = 0;
        group->fruitless = 0;
        const tutti_status_t status = job->advance != NULL ? job->advance(group, job) : TUTTI_OK;
        if (status != TUTTI_PENDING) {
            return status;
        }
    }
}

/* MPI knows bytes, not dtypes. */
tutti_status_t tt_mpi_probe(tt_mpi_group_t *group, const tt_message_t *message, tt_message_op_t *op)
{
    bool is_there = false;
    tt_mpi_found_t found;
    const int error =
        group->mpi->probe(group->messages, message->peer, message->tag, &is_there, &found);
    if (error != 0) {
        return tt_mpi_error(group, "probe", error);
    }
    if (!is_there) {
        return TUTTI_PENDING;
    }
    op->source = found.source;
    op->tag = found.tag;
    op->message.dtype = TUTTI_U8;
    op->message.count = found.bytes;
    return TUTTI_OK;
}

static tutti_status_t move_message(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_message_op_t *probe = tt_message_of(job->op);
    if (probe->message.kind == TT_MESSAGE_PROBE) {
        return tt_mpi_probe(group, &probe->message, tt_message_of(job->op));
    }
    bool is_done = false;
    size_t bytes = 0;
    tt_message_op_t *op = tt_message_of(job->op);
    const int error =
        group->mpi->test_message(job->requests, &is_done, &op->source, &op->tag, &bytes);
    if (error != 0) {
        return tt_mpi_error(group, "message", error);
    }
    if (!is_done) {
        return TUTTI_PENDING;
    }
    if (job->peers[0].is_recv && bytes != job->bytes) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "recv in group %s: rank %d sent %zu bytes with tag %d, rank %d asked for "
                       "%zu",
                       group->name, op->source, bytes, op->tag, group->rank, job->bytes);
    }
    return TUTTI_OK;
}

/* A rank that has given up may change what it has not sent yet. Little is sent at once (Open MPI
 * 4.1 takes less than 4090 bytes for little); of more, its word comes before the data. */
static tutti_status_t check_senders(tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    return job->bytes > EAGER_BYTES ? look_for_news(group) : TUTTI_OK;
}

static void move_all(tt_mpi_group_t *group)
{
    tt_mpi_job_t *before = NULL, *next;
    for (tt_mpi_job_t *job = group->first; job != NULL && group->status == TUTTI_OK; job = next) {
        next = job->next;
        tutti_status_t status = job->run == NULL ? move_message(group, job) : move_call(group, job);
        if (status == TUTTI_OK) {
            status = check_senders(group, job);
        }
        if (status < 0) {
            (void)tt_mpi_fail(group, status, TT_MPI_TAG_FAILED);
        } else if (status == TUTTI_OK) {
            end_job(group, job, before);
        } else {
            before = job;
        }
    }
}

void tt_mpi_progress(void *state)
{
    tt_mpi_group_t *group = state;
    if (group->first == NULL || group->status < 0) {
        return;
    }
    move_all(group);
    if (++group->fruitless % TT_MPI_LOOKS == 0 && group->status == TUTTI_OK) {
        look_around(group);
    }
}

static tutti_status_t outcome(const tt_mpi_group_t *group, const tt_op_t *op)
{
    return op->status < 0 ? tt_fail_again(op->status, group->error) : op->status;
}

/* Deadlines count from the first wait for an operation, whatever it is. */
static void note_wait(tt_op_t *op)
{
    if (op->waited_since_ns == 0) {
        op->waited_since_ns = tt_clock_ns();
    }
}

tutti_status_t tt_mpi_test(void *state, tt_op_t *op)
{
    tt_mpi_group_t *group = state;
    if (op->status == TUTTI_PENDING) {
        note_wait(op);
        tt_mpi_progress(group);
    }
    /* a caller that tests now and then would look around too seldom */
    if (op->status == TUTTI_PENDING && tt_clock_ns() - group->looked_ns > LOOK_NS) {
        look_around(group);
    }
    return outcome(group, op);
}

void tt_mpi_wait_until(void *state, const tt_until_t *until, tt_deadline_t deadline)
{
    for (unsigned looks = 1; !until->is_over(until->user); looks++) {
        tt_mpi_progress(state);
        if (looks % TT_MPI_LOOKS == 0 && !until->is_over(until->user)) {
            if (deadline != TT_NEVER && tt_deadline_is_past(deadline)) {
                break;
            }
            note_wait(until->op);
            sched_yield(); /* MPI has nothing to sleep on */
        }
    }
}

static bool is_op_done(void *user)
{
    const tt_op_t *op = user;
    return op->status != TUTTI_PENDING;
}

tutti_status_t tt_mpi_wait(void *state, tt_op_t *op, tt_deadline_t deadline)
{
    tt_mpi_wait_until(state, &(tt_until_t){op, is_op_done, op}, deadline);
    return outcome(state, op);
}

tutti_status_t tt_mpi_known_status(const tt_mpi_group_t *group)
{
    return group->status < 0 ? tt_fail_again(group->status, group->error) : TUTTI_OK;
}

tutti_status_t tt_mpi_status(void *state)
{
    tt_mpi_group_t *group = state;
    return group->status < 0 ? tt_mpi_known_status(group) : look_for_news(group);
}
