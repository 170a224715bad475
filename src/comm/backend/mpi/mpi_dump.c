/* What the mpi engine tells of its calls: records, reports of long waits, dumps. Of others a rank
 * knows what it has not got from them; it does not see where they are.
 *
 * Cost of a call: a dozen stores (recorder.h).
 */
#include <stdio.h>

#include "comm/backend/mpi/mpi_impl.h"
#include "comm/diagnose/dump.h"
#include "core/base/log.h"

static tt_record_t record_of(const tt_mpi_job_t *job)
{
    if (job->run == NULL) {
        return tt_message_record(&tt_message_of(job->op)->message);
    }
    const tt_call_t *call = &job->run->call;
    return (tt_record_t){.kind = TT_RECORD_CALL,
                         .sequence = job->sequence,
                         .collective = (int)call->collective,
                         .dtype = (int)call->dtype,
                         .reduction = (int)call->reduction,
                         .count = call->count,
                         .root = call->root,
                         .tag = call->tag,
                         .site = (uint64_t)(uintptr_t)call->site};
}

tt_call_text_t tt_mpi_describe_job(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_record_t record = record_of(job);
    return tt_record_in_group(&record, group->name,
                              tt_site_name((const void *)(uintptr_t)record.site).text);
}

void tt_mpi_write_down(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_record_t record = record_of(job);
    job->op->record = tt_record_add(group->records, &record);
    if (!job->is_behind) {
        tt_mpi_note(group, job->op, TT_RECORD_RUNNING);
    }
}

void tt_mpi_note(const tt_mpi_group_t *group, const tt_op_t *op, tt_record_state_t state)
{
    tt_record_progress(group->records, op->record, state, -1);
}

/* ---- whom a job waits for ---- */

static bool is_awaited(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int rank)
{
    int i = 0;
    while (i < job->request_count && (!job->peers[i].is_recv || job->peers[i].peer != rank ||
                                      group->mpi->is_done(tt_mpi_request(group, job, i)))) {
        i++;
    }
    return i < job->request_count;
}

void tt_mpi_list_missing(const tt_mpi_group_t *group, const tt_mpi_job_t *job, char *text,
                         size_t text_bytes)
{
    size_t length = 0;
    text[0] = 0;
    for (int rank = 0; rank < group->size && length < text_bytes; rank++) {
        if (is_awaited(group, job, rank)) {
            const int n = snprintf(text + length, text_bytes - length, "%srank %d",
                                   length > 0 ? ", " : "; nothing came from ", rank);
            length += n > 0 ? (size_t)n : 0;
        }
    }
}

void tt_mpi_report_wait(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int64_t now)
{
    const int64_t since = job->op->waited_since_ns;
    char missing[256];
    if (job->op->is_reported || now < tt_deadline_after(since, group->report_ms)) {
        return;
    }
    job->op->is_reported = true;
    tt_mpi_list_missing(group, job, missing, sizeof missing);
    tt_log(TT_LOG_WARN, "rank %d has been waiting for %.1f s in %s%s", group->rank,
           (double)(now - since) / (double)TT_NS_PER_S, tt_mpi_describe_job(group, job).text,
           missing);
}

/* ---- dumps ---- */

static bool awaits(void *user, int rank)
{
    const tt_mpi_group_t *group = user;
    const tt_mpi_job_t *job = group->first;
    while (job != NULL && (job->op == NULL || job->run == NULL)) {
        job = job->next;
    }
    return job != NULL && is_awaited(group, job, rank);
}

static int64_t waited_since_ns(void *user, uint64_t record)
{
    const tt_mpi_job_t *job = ((const tt_mpi_group_t *)user)->first;
    while (job != NULL && (job->op == NULL || job->op->record != record)) {
        job = job->next;
    }
    return job != NULL ? job->op->waited_since_ns : 0;
}

static void add(const tt_dump_t *dump, tt_mpi_group_t *group)
{
    tt_dump_add(dump, &(tt_dump_group_t){.name = group->name,
                                         .error = group->error,
                                         .rank = group->rank,
                                         .size = group->size,
                                         .epoch = group->epoch,
                                         .ranks = group->ranks,
                                         .records = group->records,
                                         .user = group,
                                         .awaits = awaits,
                                         .waited_since_ns = waited_since_ns});
}

static tt_mpi_group_t *root_of(tt_mpi_group_t *group)
{
    return group->root != NULL ? group->root : group;
}

tutti_status_t tt_mpi_dump(void *state, const char *path)
{
    tt_mpi_group_t *root = root_of(state);
    const tt_dump_t dump = tt_dump_begin(root->rank);
    add(&dump, root);
    tt_mpi_group_t *each;
    LIST_FOREACH(each, &root->parts, of_root)
    {
        add(&dump, each);
    }
    return tt_dump_end(&dump, path);
}

void tt_mpi_dump_failure(tt_mpi_group_t *group)
{
    const tt_mpi_group_t *root = root_of(group);
    tt_dump_failure(&(tt_dump_failure_t){.world = root->name,
                                         .rank = root->rank,
                                         .status = group->status,
                                         .error = group->error,
                                         .write = tt_mpi_dump,
                                         .group = group});
}
