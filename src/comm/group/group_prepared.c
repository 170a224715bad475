/* Prepared calls: what a start needs, kept with the tensors.
 *
 *     direct      the start is as it was described; only memory is replaced (rebind)
 *     streamed    tensors of a device: the request is kept, and handed to the family's stream
 *     on request  lists, factors and counts, but for those of leaves: the request is kept, and
 *                 checked and packed at each start, as its tensors may have moved beside each other
 *                 or apart
 *
 * A prepared call is in its group's list, from which the group's release takes it: it does not hold
 * the group, for that would keep the group open after its owner has left it. A started call is a
 * work as any other; it and the prepared call point at each other while it is under way.
 */
#include "comm/group/group_impl.h"

#include <stdio.h>
#include <string.h>

#include "comm/group/transient.h"
#include "core/base/alloc.h"

enum { OWNED_MAX = 7 };

struct tutti_prepared {
    tt_prepared_entry_t entry;
    const char *what; /* "all_reduce", "send" */
    char *group_name;
    bool is_direct, is_streamed, is_chosen;
    tt_request_t request; /* what it points to is below; of leaves, it is in the start alone */
    tutti_transfer_t transfer;
    double factor;
    tutti_contributions_t leaves; /* of what is streamed */
    tutti_custom_reduction_t custom;
    char custom_name[TT_CUSTOM_NAME_BYTES + 1];
    tt_start_t start; /* of what is direct; what it points to is below, too */
    tt_message_t message;
    const void **pieces;
    const int *first;
    const size_t *counts;
    tutti_tensor_t **tensors; /* [tensor_count] retained, of the start or the request */
    const void **memory;      /* [tensor_count] where those of the start lay */
    int tensor_count;
    void *owned[OWNED_MAX]; /* arrays; not the one of tensors */
    int owned_count;
    bool lacks_memory;
};

static const char *name_of(const tt_request_t *request)
{
    return request->transfer == NULL               ? tt_collective_name(request->collective)
           : request->transfer->kind == TUTTI_SEND ? "send"
                                                   : "recv";
}

/* ---- making ---------------------------------------------------------------------------------- */

static void free_prepared(tutti_prepared_t *prepared)
{
    for (int i = 0; i < prepared->tensor_count; i++) {
        tutti_tensor_release(prepared->tensors[i]);
    }
    for (int i = 0; i < prepared->owned_count; i++) {
        tt_free(prepared->owned[i]);
    }
    tt_free(prepared->tensors);
    tt_free(prepared->memory);
    tt_free(prepared->group_name);
    tt_free(prepared);
}

/* A copy of an array, which goes with the prepared call; NULL of NULL. */
static void *own(tutti_prepared_t *prepared, const void *from, size_t count, size_t size)
{
    void *copy = from != NULL ? tt_alloc_array(count, size, "array of a prepared call") : NULL;
    if (copy != NULL) {
        TT_ASSERT(prepared->owned_count < OWNED_MAX);
        prepared->owned[prepared->owned_count++] = copy;
        memcpy(copy, from, count * size);
    }
    prepared->lacks_memory = prepared->lacks_memory || (from != NULL && copy == NULL);
    return copy;
}

static void own_values(tutti_prepared_t *prepared)
{
    tt_request_t *request = &prepared->request;
    if (request->transfer != NULL) {
        prepared->transfer = *request->transfer;
        request->transfer = &prepared->transfer;
    }
    if (request->factor != NULL) {
        prepared->factor = *request->factor;
        request->factor = &prepared->factor;
    }
    if (request->custom != NULL) { /* its name has been checked */
        prepared->custom = *request->custom;
        snprintf(prepared->custom_name, sizeof prepared->custom_name, "%s", request->custom->name);
        prepared->custom.name = prepared->custom_name;
        request->custom = &prepared->custom;
    }
}

static tutti_status_t own_request(tutti_prepared_t *prepared, const tt_request_t *from,
                                  const tt_call_t *call)
{
    tt_request_t *request = &prepared->request;
    const size_t size = (size_t)prepared->entry.group->size, list = sizeof(tutti_tensor_t *);
    *request = *from;
    request->leaves = NULL;
    own_values(prepared);
    request->input_counts = own(prepared, from->input_counts, size, sizeof *from->input_counts);
    request->output_counts = own(prepared, from->output_counts, size, sizeof *from->output_counts);
    request->inputs = own(prepared, from->inputs, size, list);
    request->outputs = own(prepared, from->outputs, size, list);
    prepared->first = own(prepared, call->first, size + 1, sizeof *call->first);
    prepared->counts = own(prepared, call->counts, size, sizeof *call->counts);
    prepared->pieces = own(prepared, call->pieces, (size_t)call->piece_count, sizeof(void *));
    prepared->group_name = tt_strdup(prepared->entry.group->name, "prepared call");
    if (prepared->is_streamed && from->leaves != NULL) {
        prepared->leaves = *from->leaves;
        prepared->leaves.first = prepared->first;
        prepared->leaves.pieces =
            own(prepared, from->leaves->pieces, (size_t)from->leaves->piece_count, sizeof(void *));
        request->leaves = &prepared->leaves;
    }
    return prepared->lacks_memory || prepared->group_name == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
}

/* What the backend finds out; it goes with the group. */
static tutti_status_t prepare_backend(tutti_prepared_t *prepared, const tt_call_t *call)
{
    tutti_group_t *group = prepared->entry.group;
    tt_prepared_t *found = NULL;
    if (group->backend->prepare != NULL && prepared->request.transfer == NULL &&
        !prepared->is_streamed) {
        TT_TRY(group->backend->prepare(group->state, call, &found));
    }
    prepared->request.prepared = found;
    tt_group_add_prepared(group, &prepared->entry, found);
    return TUTTI_OK;
}

/* Instead of those held so far. */
static void hold(tutti_prepared_t *prepared, tutti_tensor_t *const *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        tutti_tensor_retain(tensors[i]);
    }
    for (int i = 0; i < prepared->tensor_count; i++) {
        tutti_tensor_release(prepared->tensors[i]);
    }
    prepared->tensor_count = 0;
    for (int i = 0; i < count; i++) {
        prepared->memory[i] = tutti_tensor_data(tensors[i]);
        prepared->tensors[prepared->tensor_count++] = tensors[i];
    }
}

static void hold_list(tutti_prepared_t *prepared, tutti_tensor_t *const *list, int count)
{
    for (int i = 0; list != NULL && i < count; i++) {
        prepared->tensors[prepared->tensor_count++] = tutti_tensor_retain(list[i]);
    }
}

/* The tensors, and the start of what is not on request, with arrays of its own. */
static void take(tutti_prepared_t *prepared, const tt_described_t *described)
{
    const tt_call_t *call = &described->start.call;
    hold(prepared, described->start.tensors, described->start.tensor_count);
    if (!prepared->is_direct) {
        return;
    }
    prepared->start = described->start;
    prepared->start.tensors = prepared->tensors;
    if (described->start.message != NULL) {
        prepared->message = described->message;
        prepared->start.message = &prepared->message;
        return;
    }
    for (int i = 0; i < call->piece_count; i++) {
        prepared->pieces[i] = call->pieces[i];
    }
    prepared->start.call.pieces = prepared->pieces;
    prepared->start.call.first = prepared->first;
    prepared->start.call.counts = prepared->counts;
    prepared->start.call.custom = prepared->request.custom;
    prepared->start.call.prepared = prepared->entry.found;
}

/* What is held of it; the family's stream finds out the rest at each start. */
static tutti_status_t describe_streamed(tutti_group_t *group, const tt_request_t *request,
                                        tt_described_t *out)
{
    TT_TRY(tt_group_check_forked(name_of(request), group));
    TT_TRY(tt_group_stream_check(group, request));
    out->start = (tt_start_t){.tensors = out->tensors};
    if (request->leaves != NULL) {
        out->start.call.first = request->leaves->first;
    }
    tutti_tensor_t *const both[] = {
        request->transfer != NULL ? request->transfer->x : request->output, request->input};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL && (i == 0 || both[1] != both[0])) {
            out->tensors[out->start.tensor_count++] = both[i];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t describe(tutti_group_t *group, const tt_request_t *request,
                               tt_described_t *out)
{
    return tt_request_is_on_device(group, request) ? describe_streamed(group, request, out)
           : request->transfer != NULL
               ? tt_group_describe_transfer(group, request->transfer, NULL, out)
           : request->is_leaves ? tt_group_describe_leaves(group, request, out)
                                : tt_group_describe(group, request, out);
}

static tutti_status_t open_prepared(tutti_prepared_t *prepared, const tt_request_t *request,
                                    const tt_described_t *described)
{
    const int lists = request->is_list ? 2 * prepared->entry.group->size : 0;
    const int pieces = request->leaves != NULL ? request->leaves->piece_count : 0;
    const size_t room = 2 + (size_t)described->start.tensor_count + (size_t)lists + (size_t)pieces;
    prepared->tensors =
        tt_alloc_array(room, sizeof *prepared->tensors, "tensors of a prepared call");
    TT_TRY_ALLOC(prepared->tensors);
    prepared->memory = tt_alloc_array(room, sizeof(void *), "tensors of a prepared call");
    TT_TRY_ALLOC(prepared->memory);
    TT_TRY(own_request(prepared, request, &described->start.call));
    TT_TRY(prepare_backend(prepared, &described->start.call));
    prepared->is_direct = !prepared->is_streamed && !request->is_list &&
                          (!request->is_uneven || request->is_leaves) && request->factor == NULL;
    take(prepared, described);
    hold_list(prepared, request->outputs, prepared->entry.group->size);
    hold_list(prepared, request->inputs, prepared->entry.group->size);
    if (prepared->is_streamed && request->leaves != NULL) {
        hold_list(prepared, request->leaves->pieces, request->leaves->piece_count);
    }
    return TUTTI_OK;
}

tutti_status_t tt_group_prepare(tutti_group_t *group, const tt_request_t *request,
                                tutti_prepared_t **out)
{
    tt_described_t described;
    const char *what = name_of(request);
    TT_WANT(what, out);
    const bool is_streamed = tt_request_is_on_device(group, request);
    TT_TRY(is_streamed || group == NULL ? TUTTI_OK : tt_group_settle(group));
    TT_TRY(describe(group, request, &described));
    tutti_prepared_t *prepared = tt_alloc(sizeof *prepared, "prepared call");
    TT_TRY_ALLOC(prepared);
    prepared->what = what;
    prepared->is_streamed = is_streamed;
    prepared->entry.group = group;
    const tutti_status_t status = open_prepared(prepared, request, &described);
    if (status < 0) {
        free_prepared(prepared);
        return status;
    }
    *out = prepared;
    return TUTTI_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

static tutti_status_t check_group(const tutti_prepared_t *prepared)
{
    return prepared->entry.group != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "prepared %s: group %s has been released, and what was prepared in it "
                         "ended with it; prepare it in another group",
                         prepared->what, prepared->group_name);
}

/* A tensor may have taken over other memory. */
static tutti_status_t check_memory(const tutti_prepared_t *prepared)
{
    char text[192];
    for (int i = 0; i < prepared->start.tensor_count; i++) {
        const tutti_tensor_t *x = prepared->tensors[i];
        if (tutti_tensor_data(x) != prepared->memory[i]) {
            TT_TRY(tt_group_check_tensor(prepared->what, "a tensor", x));
            return TT_FAIL(TUTTI_ERR_STATE,
                           "prepared %s of group %s: %s lies in other memory since then; rebind it",
                           prepared->what, prepared->group_name,
                           tutti_tensor_describe(x, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

/* Its calls come in the order of starts, so the one before may be under way. */
static tutti_status_t check_streamed(const tutti_prepared_t *prepared)
{
    const tutti_group_t *group = prepared->entry.group;
    TT_TRY(tt_group_check_callable(group, "prepared_start"));
    return tt_request_is_on_device(group, &prepared->request)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "prepared %s of group %s: its tensors lie on the host since then; prepare "
                         "it again",
                         prepared->what, prepared->group_name);
}

static tutti_status_t check_startable(tutti_prepared_t *prepared)
{
    TT_TRY(check_group(prepared));
    if (prepared->is_streamed) {
        return check_streamed(prepared);
    }
    TT_TRY(tt_group_check_free(prepared->entry.group, "prepared_start"));
    if (prepared->entry.work != NULL) {
        tt_group_reap(prepared->entry.group);
    }
    return prepared->entry.work == NULL
               ? check_memory(prepared)
               : TT_FAIL(TUTTI_ERR_STATE,
                         "prepared %s of group %s is under way; wait for the work of its last "
                         "start before it is started again",
                         prepared->what, prepared->group_name);
}

static tutti_status_t start(tutti_prepared_t *prepared, const void *site, tutti_work_t **work)
{
    if (!prepared->is_direct) {
        prepared->request.site = site;
        return prepared->is_streamed
                   ? tt_group_stream_call(prepared->entry.group, &prepared->request, work)
                   : tt_group_request(prepared->entry.group, &prepared->request, work);
    }
    prepared->start.call.site = site;
    prepared->message.site = site;
    return tt_group_start(prepared->entry.group, &prepared->start, work);
}

static tutti_status_t start_and_note(tutti_prepared_t *prepared, const void *site,
                                     tutti_work_t **work)
{
    TT_TRY(start(prepared, site, work));
    if ((*work)->streamed == NULL && (*work)->is_under_way) {
        (*work)->prepared = &prepared->entry;
        prepared->entry.work = *work;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_prepared_start(tutti_prepared_t *prepared, tutti_work_t **work)
{
    TT_WANT("prepared_start", prepared);
    const void *site = __builtin_return_address(0);
    TT_TRY(check_startable(prepared));
    return work == NULL ? start(prepared, site, NULL) : start_and_note(prepared, site, work);
}

static const char *place_of(const tutti_prepared_t *prepared)
{
    return !prepared->is_streamed || prepared->tensor_count == 0
               ? "the host"
               : tt_device_text(prepared->tensors[0]->storage->device);
}

/* Each of them can start, is of the first one's group, and is there once. */
static tutti_status_t choose(tutti_prepared_t *const *prepared, int count, int *chosen)
{
    for (*chosen = 0; *chosen < count; ++*chosen) {
        tutti_prepared_t *at = prepared[*chosen];
        if (at == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "prepared_start_all: call %d is NULL", *chosen);
        }
        TT_TRY(check_startable(at));
        if (at->entry.group != prepared[0]->entry.group) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "prepared_start_all: call %d is of group %s, the first one of group %s",
                           *chosen, at->group_name, prepared[0]->group_name);
        }
        if (at->is_streamed != prepared[0]->is_streamed) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "prepared_start_all: call %d, %s, is on %s, the first one on %s",
                           *chosen, at->what, place_of(at), place_of(prepared[0]));
        }
        if (at->is_chosen) {
            return TT_FAIL(TUTTI_ERR_ARG, "prepared_start_all: call %d, %s, is there twice",
                           *chosen, at->what);
        }
        at->is_chosen = true;
    }
    return TUTTI_OK;
}

static tutti_status_t check_all(tutti_prepared_t *const *prepared, int count)
{
    int chosen;
    if (count < 1 || prepared == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "prepared_start_all: %d calls%s", count,
                       prepared == NULL ? ", and NULL" : "");
    }
    const tutti_status_t status = choose(prepared, count, &chosen);
    for (int i = 0; i < chosen; i++) {
        prepared[i]->is_chosen = false;
    }
    return status;
}

static tutti_status_t start_streamed(tutti_prepared_t *const *prepared, int count, const void *site,
                                     tutti_work_t **out)
{
    tt_streamed_t *calls;
    TT_TRY(tt_group_stream_open(prepared[0]->entry.group, "prepared_start_all", false, &calls));
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < count && status >= 0; i++) {
        prepared[i]->request.site = site;
        status = tt_group_stream_add(calls, &prepared[i]->request);
    }
    if (status < 0) {
        tt_streamed_free(calls);
        return status;
    }
    return tt_group_stream_start(calls, out);
}

static tutti_status_t start_all(tutti_prepared_t *const *prepared, int count, const void *site,
                                tutti_work_t **out)
{
    tutti_work_t *bundle, *work;
    TT_TRY(tt_bundle_open(prepared[0]->entry.group, count, &bundle));
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < count && status >= 0; i++) {
        status = start_and_note(prepared[i], site, &work);
        status = status < 0 ? status : tt_bundle_add(bundle, work);
    }
    if (status < 0) {
        tutti_work_release(bundle);
        return status;
    }
    return tt_bundle_hand_over(bundle, out);
}

tutti_status_t tutti_prepared_start_all(tutti_prepared_t *const *prepared, int count,
                                        tutti_work_t **work)
{
    TT_WANT("prepared_start_all", prepared);
    const void *site = __builtin_return_address(0);
    TT_TRY(check_all(prepared, count));
    return prepared[0]->is_streamed ? start_streamed(prepared, count, site, work)
                                    : start_all(prepared, count, site, work);
}

/* ---- other memory ---------------------------------------------------------------------------- */

static bool is_same_shape(const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    return a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, (size_t)a->shape.rank * sizeof a->shape.dims[0]) ==
               0;
}

static tutti_status_t check_like(const tutti_prepared_t *prepared, const char *name,
                                 const tutti_tensor_t *old, const tutti_tensor_t *x)
{
    char was[128], is[128];
    if (old == NULL && x == NULL) {
        return TUTTI_OK;
    }
    if (old == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "prepared %s has no %s on this rank; pass NULL",
                       prepared->what, name);
    }
    if (!prepared->is_streamed || x == NULL || tt_tensor_is_absent(x)) {
        TT_TRY(tt_group_check_tensor(prepared->what, name, x));
    } else if (x->storage->device != old->storage->device) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "prepared %s of group %s: %s lies on %s, as it was prepared on %s",
                       prepared->what, prepared->group_name, name,
                       tt_device_text(x->storage->device), tt_device_text(old->storage->device));
    }
    if (x->dtype == old->dtype && is_same_shape(x, old)) {
        return TUTTI_OK;
    }
    return TT_FAIL(x->dtype != old->dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                   "prepared %s of group %s: %s %s is not as it was prepared, %s; prepare another "
                   "call for it",
                   prepared->what, prepared->group_name, name,
                   tutti_tensor_describe(x, is, sizeof is),
                   tutti_tensor_describe(old, was, sizeof was));
}

static tutti_status_t rebind(tutti_prepared_t *prepared, tutti_tensor_t *output,
                             tutti_tensor_t *input)
{
    tt_described_t described;
    tt_request_t request = prepared->request;
    tutti_transfer_t transfer = prepared->transfer;
    request.output = output;
    request.input = transfer.x = input;
    request.transfer = request.transfer != NULL ? &transfer : NULL;
    TT_TRY(describe(prepared->entry.group, &request, &described));
    take(prepared, &described);
    prepared->request.output = output;
    prepared->request.input = prepared->transfer.x = input;
    return TUTTI_OK;
}

/* What a prepared call has that can be rebound. */
typedef enum { NO_TENSOR, ONE_TENSOR, A_PAIR, MANY_TENSORS } tensors_t;

static tensors_t tensors_of(const tutti_prepared_t *prepared)
{
    const tt_request_t *request = &prepared->request;
    if (request->transfer != NULL || request->is_in_place) {
        return ONE_TENSOR;
    }
    if (!request->is_list && !request->is_leaves &&
        (request->input != NULL || request->output != NULL)) {
        return A_PAIR;
    }
    return prepared->tensor_count > 0 ? MANY_TENSORS : NO_TENSOR;
}

static tutti_status_t check_rebind(const tutti_prepared_t *prepared, tensors_t want)
{
    static const char *const texts[] = {
        "has no tensor",
        "has one tensor; use tutti_prepared_rebind",
        "has an output and an input; use tutti_prepared_rebind_pair",
        "has tensors of which none can be replaced; prepare another call",
    };
    const tensors_t tensors = tensors_of(prepared);
    return tensors == want ? TUTTI_OK
                           : TT_FAIL(TUTTI_ERR_ARG, "prepared %s of group %s %s", prepared->what,
                                     prepared->group_name, texts[tensors]);
}

tutti_status_t tutti_prepared_rebind(tutti_prepared_t *prepared, tutti_tensor_t *x)
{
    TT_WANT("prepared_rebind", prepared);
    TT_TRY(check_group(prepared));
    TT_TRY(check_rebind(prepared, ONE_TENSOR));
    TT_TRY(check_like(prepared, "x", prepared->tensors[0], x));
    return rebind(prepared, x, x);
}

tutti_status_t tutti_prepared_rebind_pair(tutti_prepared_t *prepared, tutti_tensor_t *output,
                                          tutti_tensor_t *input)
{
    TT_WANT("prepared_rebind_pair", prepared);
    TT_TRY(check_group(prepared));
    TT_TRY(check_rebind(prepared, A_PAIR));
    TT_TRY(check_like(prepared, "output", prepared->request.output, output));
    TT_TRY(check_like(prepared, "input", prepared->request.input, input));
    return rebind(prepared, output, input);
}

tutti_status_t tt_prepared_rebind_leaves(tutti_prepared_t *prepared,
                                         const tutti_contributions_t *leaves,
                                         tutti_tensor_t *output)
{
    tt_described_t described;
    tt_request_t request = prepared->request;
    TT_TRY(check_group(prepared));
    TT_ASSERT(request.is_leaves && prepared->is_direct);
    TT_ASSERT(leaves->piece_count == prepared->start.call.piece_count);
    request.leaves = leaves;
    request.output = output;
    TT_TRY(describe(prepared->entry.group, &request, &described));
    take(prepared, &described);
    prepared->request.output = output;
    return TUTTI_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

void tutti_prepared_release(tutti_prepared_t *prepared)
{
    if (prepared == NULL) {
        return;
    }
    if (prepared->entry.work != NULL) {
        prepared->entry.work->prepared = NULL;
    }
    if (prepared->entry.group != NULL) {
        tt_group_remove_prepared(&prepared->entry);
    }
    free_prepared(prepared);
}
