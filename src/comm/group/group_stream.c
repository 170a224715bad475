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
 * What fails there is told by the next wait for the device or use of the group; calls behind it are
 * skipped.
 *
 * Cost: an allocation a call, three pieces of work of a stream.
 */
#include "comm/group/family_stream.h"
#include "comm/group/group_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

/* A call: the request with all that it points to, and views instead of tensors. */
typedef struct {
    tt_streamed_t streamed;
    tutti_group_t *group;
    tt_request_t request;
    tutti_transfer_t transfer;
    tutti_contributions_t leaves;
    tutti_custom_reduction_t custom;
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

/* ---- on the stream -----------------------------------------------------------------------------
 */

static tutti_status_t call_now(tutti_group_t *group, const tt_request_t *r)
{
    return r->transfer != NULL ? tt_group_start_transfer(group, r->transfer, r->site, NULL)
           : r->is_leaves      ? tt_group_reduce_leaves(group, r, NULL)
                               : tt_group_request(group, r, NULL);
}

static tutti_status_t run_job(tt_streamed_t *call)
{
    job_t *job = (void *)call; /* begins with it */
    return call_now(job->group, &job->request);
}

/* The others are on their way into a call that this rank will not make. */
static void finish_job(tt_streamed_t *call, tutti_status_t status)
{
    job_t *job = (void *)call;
    if (status < 0) {
        char cause[TT_ERROR_TEXT_BYTES];
        snprintf(cause, sizeof cause, "%s", tutti_last_error());
        tt_group_fail(job->group, TT_FAIL(status, "%s: %s", name_of(&job->request), cause));
    }
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

/* All tensors of a call lie in one place; which one. */
static tutti_status_t find_device(job_t *job, tt_device_t **out)
{
    const tutti_tensor_t *first = NULL;
    for (int i = 0; i < 3 + job->list_count; i++) {
        const tutti_tensor_t *x = *slot(job, i);
        if (x == NULL || tt_tensor_is_absent(x)) {
            continue; /* for the check */
        }
        first = first == NULL ? x : first;
        if (x->storage->device != first->storage->device) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: tensors of %s and of %s in one call; bring them to one device "
                           "(tutti_tensor_to)",
                           name_of(&job->request), tt_device_text(first->storage->device),
                           tt_device_text(x->storage->device));
        }
    }
    *out = first->storage->device;
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
    job->group = group;
    job->streamed.run = run_job;
    job->streamed.finish = finish_job;
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

static tutti_status_t check_free(const tutti_group_t *group, const tt_request_t *request,
                                 bool has_work)
{
    const char *name = name_of(request);
    TT_TRY(tt_group_check_forked(name, group));
    if (!has_work && group->coalesce == NULL) {
        return TUTTI_OK;
    }
    return TT_FAIL(
        TUTTI_ERR_UNSUPPORTED, "%s: a call on tensors of a device returns at once; it %s", name,
        has_work ? "has no work: pass NULL, and synchronize the device" : "cannot be coalesced");
}

tutti_status_t tt_group_stream_call(tutti_group_t *group, const tt_request_t *request,
                                    tutti_work_t **work)
{
    job_t *job;
    tt_device_t *device;
    tt_group_stream_t *stream;
    TT_TRY(check_free(group, request, work != NULL));
    TT_TRY(tt_group_stream_find(&group->family->stream, &stream));
    if (request->leaves != NULL) {
        TT_TRY(tt_group_check_leaves(name_of(request), group, request->leaves));
    }
    TT_TRY(make_job(group, request, &job));
    tutti_status_t status = find_device(job, &device);
    status = status < 0 ? status : make_views(job);
    status = status < 0 ? status : check_job(job);
    status = status < 0
                 ? status
                 : tt_group_stream_push(stream, device, name_of(&job->request), &job->streamed);
    if (status >= 0) {
        touch_outputs(group, request);
    } else if (job->streamed.end.stream == NULL) {
        tt_streamed_free(&job->streamed);
    }
    return status;
}
