/* Calls on tensors of a device, as NCCL's: they return at once, and are made in the order of calls
 * by the family's stream.
 *
 *     device's stream | kernels launched before |  ─┐ wait │ kernels launched after
 *                                                   │  ^
 *     family's stream                        wait ──┴call
 *
 * The call is that of host memory, on views of the tensors: the addresses where the host may use
 * the device's memory between the two waits. A family has one stream, for waiting in one group
 * moves all of them forward; on all ranks the calls of groups that share ranks come in one order.
 * What fails there gives its group up, as a call of the host does, and is a failure of the device
 * that waits for it. Calls of other groups, and on other devices, do not mind.
 *
 * Cost: an allocation a call, two pieces of work of a stream.
 */
#include "comm/group/coalesced.h"
#include "comm/group/family_stream.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

/* A call: the request with all that it points to, and views instead of tensors; or several, as
 * its parts, which are started together. */
typedef struct {
    tt_streamed_t streamed;
    tutti_group_t *group;
    uint64_t tag;   /* the group's, when it was issued */
    bool is_placed; /* its first tensor lies on `device`; NULL: the host */
    tt_device_t *device;
    bool is_several;
    bool fuses; /* its parts, as coalesced calls are */
    tt_request_t request;
    tutti_transfer_t transfer;
    tutti_contributions_t leaves;
    tutti_custom_reduction_t custom;
    char custom_name[TT_CUSTOM_NAME_BYTES + 1];
    double factor;
    size_t *room;           /* [2 size] */
    int64_t *counts;        /* [2 size] */
    int *first;             /* [size + 1] */
    tutti_tensor_t **lists; /* [list_count] of inputs and outputs, or of pieces */
    int list_count;
} job_t;

static bool is_of_device(const tutti_tensor_t *x)
{
    return x != NULL && !tt_tensor_is_absent(x) && x->storage->device != NULL;
}

static bool is_list_on_device(tutti_tensor_t *const *list, int count)
{
    for (int i = 0; list != NULL && i < count; i++) {
        if (is_of_device(list[i])) {
            return true;
        }
    }
    return false;
}

/* A rank that is not the root passes no list; what it passes else is not looked at. */
static bool has_lists(const tutti_group_t *group, const tt_request_t *request)
{
    return request->is_list &&
           (!tt_collective_has_root(request->collective) || request->root == group->rank);
}

bool tt_request_is_on_device(const tutti_group_t *group, const tt_request_t *request)
{
    if (group == NULL) {
        return false;
    }
    if (request->transfer != NULL) {
        return is_of_device(request->transfer->x);
    }
    return is_of_device(request->input) || is_of_device(request->output) ||
           (has_lists(group, request) && (is_list_on_device(request->inputs, group->size) ||
                                          is_list_on_device(request->outputs, group->size)));
}

static const char *name_of(const tt_request_t *request)
{
    return request->transfer == NULL               ? tt_collective_name(request->collective)
           : request->transfer->kind == TUTTI_SEND ? "send"
                                                   : "recv";
}

/* ---- on the stream ------------------------------------------------------------------------- */

static tutti_status_t call_now(tutti_group_t *group, const tt_request_t *r)
{
    return r->transfer != NULL ? tt_group_start_transfer(group, r->transfer, r->site, NULL)
           : r->is_leaves      ? tt_group_reduce_leaves(group, r, NULL)
                               : tt_group_request(group, r, NULL);
}

static job_t *job_of(tt_streamed_t *call)
{
    return (void *)call; /* begins with it */
}

/* Its work says whose message it was. */
static tutti_status_t receive(job_t *job)
{
    tutti_work_t *work;
    const tt_request_t *r = &job->request;
    TT_TRY(tt_group_start_transfer(job->group, r->transfer, r->site, &work));
    const tutti_status_t status = tutti_work_wait(work, 0);
    job->streamed.source = tutti_work_source(work);
    job->streamed.tag = tutti_work_tag(work);
    tutti_work_release(work);
    return status;
}

/* As public calls that are coalesced. */
static tutti_status_t start_part(const job_t *whole, const job_t *part)
{
    const tt_request_t *r = &part->request;
    tutti_status_t status;
    const bool is_plain = r->transfer == NULL && !r->is_leaves && !r->is_list && !r->is_uneven &&
                          r->factor == NULL && r->custom == NULL && r->is_in_place;
    whole->group->streamed_tag = part->tag;
    return whole->fuses && is_plain && r->collective == TT_ALL_REDUCE &&
                   tt_coalesce_take(whole->group, r->input, r->op, r->site, &status)
               ? status
               : call_now(whole->group, r);
}

static tutti_status_t make_parts(const job_t *whole)
{
    TT_TRY(tt_coalesce_open(whole->group));
    tutti_status_t status = TUTTI_OK;
    for (tt_streamed_t *part = whole->streamed.parts; part != NULL && status >= 0;
         part = part->next) {
        status = start_part(whole, job_of(part));
    }
    whole->group->streamed_tag = whole->tag;
    return tt_coalesce_close(whole->group, status, NULL);
}

static tutti_status_t make_call(job_t *job)
{
    const tt_request_t *r = &job->request;
    job->group->streamed_tag = job->tag;
    return job->is_several                                          ? make_parts(job)
           : r->transfer != NULL && r->transfer->kind == TUTTI_RECV ? receive(job)
                                                                    : call_now(job->group, r);
}

/* The others are on their way into a call that this rank will not make. */
static void give_up(const job_t *job, tutti_status_t status)
{
    char cause[TT_ERROR_TEXT_BYTES];
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    tt_group_fail(job->group, TT_FAIL(status, "%s: %s", job->streamed.name, cause));
    (void)tt_fail_again(status, cause);
}

static tutti_status_t run_job(tt_streamed_t *call)
{
    job_t *job = job_of(call);
    tutti_status_t status = tt_group_await_device(job->group, call->begin);
    status = status < 0 ? status : tt_event_check(call->begin); /* what it is to work with */
    status = status < 0 ? status : make_call(job);
    if (status < 0) {
        give_up(job, status);
    }
    return status;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void let_go(tt_storage_t *view)
{
    tt_storage_release(view->owner);
}

/* The same elements at the addresses of the host; keeps the storage. */
static tutti_status_t make_view(const char *call, const tutti_tensor_t *x, tutti_tensor_t **out)
{
    tt_storage_t *from = x->storage, *view;
    void *memory = tt_device_host_view(from->device, from->data);
    if (memory == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: groups cannot use memory of %s", call,
                       tt_device_text(from->device));
    }
    TT_TRY(tt_storage_borrow(memory, from->bytes, let_go, from, &view));
    tt_storage_retain(from);
    const tutti_status_t status =
        tt_tensor_over(view, x->dtype, x->shape, x->strides, x->offset, out);
    tt_storage_release(view);
    return status;
}

static tutti_tensor_t **slot(job_t *job, int i)
{
    tutti_tensor_t **fixed[] = {&job->transfer.x, &job->request.input, &job->request.output};
    return i < 3 ? fixed[i] : &job->lists[i - 3];
}

/* All tensors of a call, and of those that are started together, lie in one place. */
static tutti_status_t check_place(job_t *whole, job_t *job)
{
    for (int i = 0; i < 3 + job->list_count; i++) {
        const tutti_tensor_t *x = *slot(job, i);
        if (x == NULL || tt_tensor_is_absent(x)) {
            continue; /* for the check */
        }
        tt_device_t *device = x->storage->device;
        if (whole->is_placed && device != whole->device) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: tensors of %s and of %s in one %s; bring them to one device "
                           "(tutti_tensor_to)",
                           job->streamed.name, tt_device_text(whole->device),
                           tt_device_text(device), whole == job ? "call" : "batch");
        }
        whole->is_placed = true;
        whole->device = device;
    }
    return TUTTI_OK;
}

static tutti_status_t make_views(job_t *job)
{
    for (int i = 0; i < 3 + job->list_count; i++) {
        tutti_tensor_t **x = slot(job, i);
        if (i == 2 && job->request.is_in_place) {
            job->request.output = job->request.input;
        } else if (*x != NULL && !tt_tensor_is_absent(*x)) {
            TT_TRY(make_view(name_of(&job->request), *x,
                             &job->streamed.views[job->streamed.view_count]));
            *x = job->streamed.views[job->streamed.view_count++];
        }
    }
    return TUTTI_OK;
}

static tutti_tensor_t *const *copy_list(job_t *job, tutti_tensor_t *const *list, int count)
{
    tutti_tensor_t **copy = job->lists + job->list_count;
    if (list == NULL || count <= 0) {
        return list;
    }
    memcpy(copy, list, (size_t)count * sizeof *list);
    job->list_count += count;
    return copy;
}

static const int64_t *copy_counts(int64_t *to, const int64_t *counts, int size)
{
    return counts == NULL ? NULL : memcpy(to, counts, (size_t)size * sizeof *to);
}

static void copy_request(job_t *job, const tt_request_t *request)
{
    tt_request_t *r = &job->request;
    const int size = job->group->size;
    *r = *request;
    r->counts = job->room;
    r->input_counts = copy_counts(job->counts, r->input_counts, size);
    r->output_counts = copy_counts(job->counts + size, r->output_counts, size);
    if (r->transfer != NULL) {
        job->transfer = *r->transfer;
        r->transfer = &job->transfer;
    }
    if (r->factor != NULL) {
        job->factor = *r->factor;
        r->factor = &job->factor;
    }
    if (r->custom != NULL) {
        job->custom = *r->custom;
        if (r->custom->name != NULL && strlen(r->custom->name) <= TT_CUSTOM_NAME_BYTES) {
            snprintf(job->custom_name, sizeof job->custom_name, "%s", r->custom->name);
            job->custom.name = job->custom_name;
        } /* else it is refused */
        r->custom = &job->custom;
    }
    if (has_lists(job->group, r)) {
        r->inputs = copy_list(job, r->inputs, size);
        r->outputs = copy_list(job, r->outputs, size);
    }
    if (r->leaves != NULL) {
        job->leaves = *r->leaves;
        r->leaves = &job->leaves;
        job->leaves.pieces = copy_list(job, job->leaves.pieces, job->leaves.piece_count);
        if (job->leaves.first != NULL) {
            const size_t bytes = ((size_t)size + 1) * sizeof *job->first;
            job->leaves.first = memcpy(job->first, job->leaves.first, bytes);
        }
    }
}

/* Of a call, or of several. */
static void open_job(job_t *job, tutti_group_t *group, const char *name)
{
    job->group = group;
    job->tag = group->tag;
    job->streamed.name = name;
    job->streamed.run = run_job;
    job->streamed.source = job->streamed.tag = -1;
    tt_ref_init(&job->streamed.ref);
}

static tutti_status_t make_job(tutti_group_t *group, const tt_request_t *request, job_t **out)
{
    const size_t size = (size_t)group->size;
    const size_t pieces = request->leaves != NULL && request->leaves->piece_count > 0
                              ? (size_t)request->leaves->piece_count
                              : 0;
    const size_t lists = (request->is_list ? 2 * size : 0) + pieces;
    const size_t words = 4 * size + size + 1 + 2 * lists + 3;
    job_t *job = tt_alloc(sizeof *job + words * sizeof(int64_t), "call on a device");
    TT_TRY_ALLOC(job);
    int64_t *at = (void *)(job + 1);
    open_job(job, group, name_of(request));
    job->counts = at;
    job->room = (void *)(at + 2 * size);
    job->first = (void *)(at + 4 * size);
    job->lists = (void *)(at + 5 * size + 1);
    job->streamed.views = job->lists + lists;
    copy_request(job, request);
    *out = job;
    return TUTTI_OK;
}

static tutti_status_t check_job(const job_t *job)
{
    tt_described_t described;
    const tt_request_t *r = &job->request;
    return r->transfer != NULL
               ? tt_group_describe_transfer(job->group, r->transfer, r->site, &described)
           : r->is_leaves ? tt_group_describe_leaves(job->group, r, &described)
                          : tt_group_describe(job->group, r, &described);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The values of the tensors themselves are others from now on. */
static void touch_outputs(const tutti_group_t *group, const tt_request_t *request)
{
    const bool is_kept = request->collective == TT_BROADCAST && request->root == group->rank;
    if (request->transfer != NULL) {
        if (request->transfer->kind == TUTTI_RECV) {
            tt_tensor_touch(request->transfer->x);
        }
        return;
    }
    if (request->output != NULL && !is_kept) {
        tt_tensor_touch(request->output);
    }
    for (int i = 0; has_lists(group, request) && request->outputs != NULL && i < group->size; i++) {
        tt_tensor_touch(request->outputs[i]);
    }
}

/* Of a call, or a part of `whole`, with its views. */
static tutti_status_t make_checked(tutti_group_t *group, const tt_request_t *request, job_t *whole,
                                   job_t **out)
{
    job_t *job;
    if (request->leaves != NULL) {
        TT_TRY(tt_group_check_leaves(name_of(request), group, request->leaves));
    }
    TT_TRY(make_job(group, request, &job));
    tutti_status_t status = check_place(whole != NULL ? whole : job, job);
    status = status < 0 ? status : make_views(job);
    status = status < 0 ? status : check_job(job);
    if (status < 0) {
        tt_streamed_free(&job->streamed);
        return status;
    }
    *out = job;
    return TUTTI_OK;
}

/* Takes the job over. */
static tutti_status_t push(job_t *job, tutti_work_t **work)
{
    tutti_group_t *group = job->group;
    tt_group_stream_t *stream;
    tutti_status_t status = tt_group_stream_find(&group->family->stream, &stream);
    tutti_work_t *made = NULL;
    if (status >= 0 && work != NULL) {
        made = tt_work_of_streamed(group, &job->streamed);
        status = made == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    }
    job->tag = group->tag;
    status = status < 0 ? status : tt_group_stream_push(stream, job->device, &job->streamed);
    if (status < 0) {
        tt_work_drop_streamed(made);
        tt_streamed_free(&job->streamed);
        return status;
    }
    if (work != NULL) {
        *work = made;
        return TUTTI_OK;
    }
    return tt_streamed_join(&job->streamed);
}

tutti_status_t tt_group_stream_check(tutti_group_t *group, const tt_request_t *request)
{
    job_t *job;
    TT_TRY(make_checked(group, request, NULL, &job));
    tt_streamed_free(&job->streamed);
    return TUTTI_OK;
}

/* ---- several at once ------------------------------------------------------------------------- */

tutti_status_t tt_group_stream_open(tutti_group_t *group, const char *name, bool fuses,
                                    tt_streamed_t **out)
{
    job_t *whole = tt_alloc(sizeof *whole, "calls on a device");
    TT_TRY_ALLOC(whole);
    open_job(whole, group, name);
    whole->is_several = true;
    whole->fuses = fuses;
    *out = &whole->streamed;
    return TUTTI_OK;
}

tutti_status_t tt_group_stream_add(tt_streamed_t *calls, const tt_request_t *request)
{
    job_t *part, *whole = job_of(calls);
    TT_TRY(make_checked(whole->group, request, whole, &part));
    tt_streamed_t **end = &calls->parts;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = &part->streamed;
    touch_outputs(whole->group, request);
    return TUTTI_OK;
}

tutti_status_t tt_group_stream_start(tt_streamed_t *calls, tutti_work_t **work)
{
    return push(job_of(calls), work);
}

/* ---- a public call --------------------------------------------------------------------------- */

static tutti_status_t check_coalesced(const tutti_group_t *group, const tt_request_t *request,
                                      bool has_work)
{
    const tt_coalesced_t *all = group->coalesce;
    if (has_work) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "group %s: calls are coalesced: pass NULL for the work, tutti_coalesce_end "
                       "gives one for all",
                       group->name);
    }
    return all->bundle == NULL && all->fused == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: tensors of the host and of a device in one batch; bring them to one "
                         "device (tutti_tensor_to)",
                         name_of(request));
}

static tutti_status_t coalesce(tutti_group_t *group, const tt_request_t *request, bool has_work)
{
    tt_coalesced_t *all = group->coalesce;
    TT_TRY(check_coalesced(group, request, has_work));
    if (all->streamed == NULL) {
        TT_TRY(tt_group_stream_open(group, "coalesced", true, &all->streamed));
    }
    return tt_group_stream_add(all->streamed, request);
}

tutti_status_t tt_group_stream_call(tutti_group_t *group, const tt_request_t *request,
                                    tutti_work_t **work)
{
    job_t *job;
    TT_TRY(tt_group_check_forked(name_of(request), group));
    if (group->is_coalescing) {
        return coalesce(group, request, work != NULL);
    }
    TT_TRY(make_checked(group, request, NULL, &job));
    TT_TRY(push(job, work));
    touch_outputs(group, request);
    return TUTTI_OK;
}
