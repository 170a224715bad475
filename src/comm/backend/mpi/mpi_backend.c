/* The mpi engine: collectives and messages over any MPI 3, which a plug-in brings (mpi_load.c).
 *
 * Every call under way is a job: requests of MPI's, and a function that goes on when all are done.
 * Nothing of MPI's that blocks is called once a group is open, so that deadlines hold; jobs move
 * whenever the program tests, waits or makes progress. A call begins when no earlier one under way
 * has its memory, and those before it have begun; else calls do not wait for one another.
 *
 * A group has two communicators, for calls and for messages. Failing (a deadline, an abort), a rank
 * tells the others by an empty message with a tag of its own, for which a rank looks now and then
 * while it waits; after a failure the communicators are left as they are.
 *
 * Mismatched calls are noticed only where a message is longer than was asked for, or by
 * mpi_check.c. Source: MPI 3.1.
 */
#include "comm/backend/mpi/mpi_impl.h"
#include "comm/backend/mpi/mpi_load.h"
#include "core/base/alloc.h"
#include "core/base/config.h"

/* ---- starting ---- */

static void append(tt_mpi_group_t *group, tt_mpi_job_t *job, tt_op_t *op)
{
    job->op = op;
    job->held = NULL;
    job->next = NULL;
    if (group->last != NULL) {
        group->last->next = job;
    } else {
        group->first = job;
    }
    group->last = job;
    op->status = TUTTI_PENDING;
    tt_mpi_write_down(group, job);
}

static size_t lay_out(tt_slice_t *parts, int size, const size_t *counts, size_t count)
{
    size_t begin = 0;
    for (int rank = 0; rank < size; rank++) {
        parts[rank] = (tt_slice_t){begin, counts != NULL ? counts[rank] : count};
        begin += parts[rank].count;
    }
    return begin;
}

static tutti_status_t describe(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const bool is_swap = call->collective == TT_ALL_TO_ALL;
    (void)lay_out(job->recv, group->size, is_swap ? call->recv_counts : call->counts, call->count);
    if (is_swap) {
        (void)lay_out(job->send, group->size, call->counts, call->count);
    }
    if (!tt_collective_reduces(call->collective)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_mpi_plan_tree(group, job));
    const int want = tt_collective_is_prefix(call->collective) ? 1 : job->piece_counts[group->rank];
    return call->piece_count == want
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d passed %d pieces; its leaves have %d",
                         tt_collective_name(call->collective), group->rank, call->piece_count,
                         want);
}

static void copy_call(const tt_mpi_group_t *group, const tt_call_t *call, tt_run_t *run)
{
    const tt_plan_request_t request = {.collective = call->collective,
                                       .rank = group->rank,
                                       .size = group->size,
                                       .root = call->root,
                                       .count = call->count,
                                       .counts = call->counts,
                                       .recv_counts = call->recv_counts};
    run->call = *call;
    run->piece_bytes = tt_plan_piece_elements(&request) * tutti_dtype_bytes(call->dtype);
    run->out_bytes = tt_plan_out_elements(&request) * tutti_dtype_bytes(call->out_dtype);
    run->op.kind = TT_OP_CALL;
    run->op.waited_since_ns = 0;
    run->op.is_reported = false;
    run->pieces[0] = NULL; /* those that give nothing may pass none */
    for (int i = 0; i < call->piece_count; i++) {
        run->pieces[i] = call->pieces[i];
    }
}

static tutti_status_t start_mpi(void *state, const tt_call_t *call, tt_run_t *run)
{
    tt_mpi_group_t *group = state;
    TT_TRY(tt_mpi_known_status(group));
    tt_mpi_job_t *job = tt_mpi_take_job(group);
    TT_TRY_ALLOC(job);
    copy_call(group, call, run);
    job->run = run;
    job->bytes = 0;
    job->sequence = 0;
    tutti_status_t status = describe(group, job);
    if (group->checks) { /* the call's arrays are borrowed, and it may begin later */
        job->descriptor = tt_call_descriptor(call, group->size);
        job->descriptor.tag = call->tag;
    }
    if (status >= 0) {
        job->sequence = ++group->sequence;
        const bool is_own = !group->checks && tt_mpi_suits_own(group, job);
        group->uncanonical_sums += is_own && tt_call_depends_on_order(call);
        job->advance = group->checks ? tt_mpi_check : is_own ? tt_mpi_own : tt_mpi_exchange;
        job->is_behind = tt_mpi_is_behind(group, job);
        status = job->is_behind ? TUTTI_PENDING : tt_mpi_begin(group, job);
    }
    if (status == TUTTI_OK) { /* nothing to wait for, such as a call of no elements */
        tt_call_copy_out(&run->call);
        job->op = &run->op;
        tt_mpi_write_down(group, job);
        tt_mpi_note(group, job->op, TT_RECORD_DONE);
        run->op.status = status;
        tt_mpi_give_back(group, job);
        return status;
    }
    if (status < 0 && job->request_count == 0) { /* no rank has been sent anything */
        group->sequence -= job->sequence == group->sequence;
        tt_mpi_give_back(group, job);
        return status;
    }
    append(group, job, &run->op);
    return status < 0 ? tt_mpi_fail(group, status, TT_MPI_TAG_FAILED) : TUTTI_OK;
}

static int64_t uncanonical_sums_mpi(const void *state)
{
    return ((const tt_mpi_group_t *)state)->uncanonical_sums;
}

static const char *name_of(tt_message_kind_t kind)
{
    return kind == TT_MESSAGE_SEND ? "send" : kind == TT_MESSAGE_PROBE ? "probe" : "recv";
}

static tutti_status_t check_message(const tt_mpi_group_t *group, const tt_message_t *message)
{
    const bool is_any = message->kind != TT_MESSAGE_SEND && message->peer == TT_ANY_RANK;
    if (!is_any && (message->peer < 0 || message->peer >= group->size)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d is outside group %s of %d ranks",
                       name_of(message->kind), message->peer, group->name, group->size);
    }
    if (message->tag > group->world.tag_max || (message->tag < 0 && message->tag != TT_ANY_TAG)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: tag %d; this MPI takes tags from 0 to %d",
                       name_of(message->kind), message->tag, group->world.tag_max);
    }
    return TUTTI_OK;
}

static void set_up(const tt_message_t *message, tt_message_op_t *op)
{
    op->op = (tt_op_t){.kind = TT_OP_MESSAGE, .status = TUTTI_PENDING};
    op->message = *message;
    op->source = message->peer;
    op->tag = message->tag;
}

/* A probe has no request: it is looked for again and again. */
static int post_message(tt_mpi_group_t *group, const tt_message_t *message, tt_mpi_job_t *job)
{
    const size_t bytes = tt_message_bytes(message);
    const bool is_send = message->kind == TT_MESSAGE_SEND;
    job->run = NULL;
    job->is_behind = false;
    job->bytes = bytes;
    if (message->kind == TT_MESSAGE_PROBE) {
        return 0;
    }
    void *request = tt_mpi_next_request(group, job, message->peer, !is_send);
    return is_send ? group->mpi->send(group->messages, message->data, bytes, message->peer,
                                      message->tag, request)
                   : group->mpi->recv(group->messages, message->data, bytes, message->peer,
                                      message->tag, request);
}

static tutti_status_t start_message_mpi(void *state, const tt_message_t *message,
                                        tt_message_op_t *op)
{
    tt_mpi_group_t *group = state;
    TT_TRY(tt_mpi_known_status(group));
    TT_TRY(check_message(group, message));
    tt_mpi_job_t *job = tt_mpi_take_job(group);
    TT_TRY_ALLOC(job);
    set_up(message, op);
    const int error = post_message(group, message, job);
    if (error != 0) {
        job->request_count = 0;
        tt_mpi_give_back(group, job);
        return tt_mpi_error(group, name_of(message->kind), error);
    }
    append(group, job, &op->op);
    return TUTTI_OK;
}

static tutti_status_t iprobe_mpi(void *state, const tt_message_t *message, tt_message_op_t *op)
{
    tt_mpi_group_t *group = state;
    tt_mpi_progress(group);
    TT_TRY(tt_mpi_status(group));
    TT_TRY(check_message(group, message));
    set_up(message, op);
    const tutti_status_t status = tt_mpi_probe(group, message, op);
    return status < 0 ? tt_mpi_fail(group, status, TT_MPI_TAG_FAILED) : status;
}

/* The others learn that this rank has done it: an empty message says it. */
static void abort_mpi(void *state, const char *cause)
{
    tt_mpi_group_t *group = state;
    (void)tt_mpi_fail(group,
                      TT_FAIL(TUTTI_ERR_ABORTED, "group %s was aborted%s%s", group->name,
                              cause[0] != 0 ? ": " : "", cause),
                      TT_MPI_TAG_ABORTED);
}

static tt_device_t *memory_mpi(void *state)
{
    return ((tt_mpi_group_t *)state)->memory;
}

/* ---- opening and closing ---- */

static tutti_status_t read_settings(tt_mpi_group_t *group)
{
    int64_t exchange_max, aborts, checks;
    TT_TRY(tt_config_int(TT_CONFIG_REPORT_MS, 1, INT32_MAX, &group->report_ms));
    TT_TRY(tt_config_int(TT_CONFIG_MPI_EXCHANGE, 0, INT32_MAX, &exchange_max));
    TT_TRY(tt_config_int(TT_CONFIG_MPI_ABORT, 0, 1, &aborts));
    TT_TRY(tt_config_int(TT_CONFIG_MPI_CHECK, 0, 1, &checks));
    group->checks = checks == 1;
    group->exchange_max = exchange_max > 1 ? (int)exchange_max : 1;
    group->aborts_job = aborts == 1;
    return TUTTI_OK;
}

static tutti_status_t load(const tt_mpi_t **mpi, tt_mpi_world_t *world)
{
    char text[TT_MPI_TEXT_BYTES] = "";
    TT_TRY(tt_mpi_load(mpi));
    if (!(*mpi)->init(world, text, sizeof text)) {
        return TT_FAIL(TUTTI_ERR_STATE, "%s", text);
    }
    return TUTTI_OK;
}

/* What MPI may still touch stays until MPI is done with it. */
static void free_dropped(tt_mpi_group_t *group)
{
    tt_mpi_job_t *next;
    for (tt_mpi_job_t *job = group->first; job != NULL; job = next) {
        next = job->next;
        if (tt_mpi_is_quiet(job)) {
            tt_mpi_give_back(group, job);
        } else {
            tt_mpi_leave_job(job);
        }
    }
    group->first = group->last = NULL;
    tt_mpi_free_jobs(group->free_jobs);
    tt_mpi_free_left();
}

static void close_mpi(void *state)
{
    tt_mpi_group_t *group = state;
    if (group->first != NULL && group->status == TUTTI_OK) {
        abort_mpi(group, "");
    }
    if (group->root != NULL) {
        LIST_REMOVE(group, of_root);
    }
    free_dropped(group);
    if (group->has_messages && group->status == TUTTI_OK) {
        group->mpi->release(group->messages);
    }
    if (group->has_calls && group->status == TUTTI_OK) {
        group->mpi->release(group->calls);
    }
    tutti_device_release(group->memory);
    tt_free(group->records);
    tt_free(group->ranks);
    tt_free(group->name);
}

static tutti_status_t make_room(tt_mpi_group_t *group, const tt_backend_options_t *options)
{
    group->name = tt_strdup(options->name, "group name");
    group->ranks = tt_alloc_array((size_t)options->size, sizeof *group->ranks, "ranks");
    group->records = tt_alloc(sizeof *group->records, "records");
    if (group->name == NULL || group->ranks == NULL || group->records == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    for (int i = 0; i < options->size; i++) {
        group->ranks[i] = options->parent != NULL ? options->parent_ranks[i] : i;
    }
    return tt_device_open(&tt_device_cpu, NULL, &group->memory);
}

static tutti_status_t open_mpi(void *state, const tt_backend_options_t *options)
{
    tt_mpi_group_t *group = state;
    tutti_status_t status;
    TT_TRY(load(&group->mpi, &group->world));
    group->rank = options->rank;
    group->size = options->size;
    group->epoch = options->epoch;
    group->timeout_ms = options->timeout_ms;
    group->kernels = tt_combine_kernels();
    TT_TRY_GOTO(status, make_room(group, options), fail);
    TT_TRY_GOTO(status, read_settings(group), fail);
    TT_TRY_GOTO(status, tt_mpi_make_comms(group, options), fail);
    group->root = options->parent;
    if (group->root != NULL) {
        LIST_INSERT_HEAD(&group->root->parts, group, of_root);
    }
    return TUTTI_OK;
fail:
    (void)tt_mpi_fail(group, status, 0);
    close_mpi(group);
    return status;
}

/* A launcher that is not MPI's starts worlds of one each, which would not know of each other. */
static tutti_status_t world_mpi(int *rank, int *size)
{
    const tt_mpi_t *mpi;
    tt_mpi_world_t world;
    int64_t launched = 0;
    TT_TRY(load(&mpi, &world));
    if (tt_config_is_set(TT_CONFIG_WORLD_SIZE)) {
        TT_TRY(tt_config_int(TT_CONFIG_WORLD_SIZE, 1, INT32_MAX, &launched));
    }
    if (launched > 0 && launched != world.size) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "TUTTI_BACKEND=mpi: WORLD_SIZE is %lld, but MPI (%s) has a world of %d; "
                       "start the program with that MPI's own mpirun, or choose another MPI with "
                       "TUTTI_MPI",
                       (long long)launched, mpi->flavour, world.size);
    }
    *rank = world.rank;
    *size = world.size;
    return TUTTI_OK;
}

const tt_backend_ops_t tt_backend_mpi = {
    .name = "mpi",
    .about = "any MPI 3, by a plug-in; TUTTI_MPI_CHECK=1 finds mismatches",
    .state_bytes = sizeof(tt_mpi_group_t),
    .world = world_mpi,
    .open = open_mpi,
    .close = close_mpi,
    .start = start_mpi,
    .start_message = start_message_mpi,
    .iprobe = iprobe_mpi,
    .progress = tt_mpi_progress,
    .test = tt_mpi_test,
    .wait = tt_mpi_wait,
    .wait_until = tt_mpi_wait_until,
    .holds = tt_mpi_holds,
    .abort = abort_mpi,
    .memory = memory_mpi,
    .uncanonical_sums = uncanonical_sums_mpi,
    .dump = tt_mpi_dump,
    .status = tt_mpi_status,
};
