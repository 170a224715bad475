/* Prepared calls: what a start needs, kept with the tensors.
 *
 *     direct      the start is as it was described; only memory is replaced (rebind)
 *     on request  lists, counts and factors: the request is kept, and checked and packed at each
 *                 start, as its tensors may have moved beside each other or apart
 *
 * A prepared call is in its group's list, from which the group's release takes it: it does not hold
 * the group, for that would keep the group open after its owner has left it. A started call is a
 * work as any other; it and the prepared call point at each other while it is under way.
 */
#include "comm/group/group_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

struct tutti_prepared {
    tt_prepared_entry_t entry;
    const char *what; /* "all_reduce", "send" */
    char *group_name;
    bool is_direct, is_chosen;
    tt_request_t request; /* its arrays are below; not of leaves and messages */
    double factor;
    tutti_custom_reduction_t custom;
    char custom_name[TT_CUSTOM_NAME_BYTES + 1];
    tt_message_t message;
    tt_start_t start;
    const void **pieces;
    tutti_tensor_t **tensors; /* [tensor_count] retained; NULL: none at that place */
    int tensor_count;
    int64_t *rows; /* [2 size] or NULL */
    int *first;    /* [size + 1] or NULL */
};

static const char *name_of(const tutti_prepared_t *prepared)
{
    return prepared->group_name;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void free_prepared(tutti_prepared_t *prepared)
{
    for (int i = 0; i < prepared->tensor_count; i++) {
        tutti_tensor_release(prepared->tensors[i]);
    }
    tt_free(prepared->tensors);
    tt_free(prepared->pieces);
    tt_free(prepared->rows);
    tt_free(prepared->first);
    tt_free(prepared->group_name);
    tt_free(prepared);
}

static tutti_status_t open_prepared(tutti_group_t *group, const char *what, int tensors, int pieces,
                                    tutti_prepared_t **out)
{
    tutti_prepared_t *prepared = tt_alloc(sizeof *prepared, "prepared call");
    TT_TRY_ALLOC(prepared);
    prepared->what = what;
    prepared->group_name = tt_strdup(group->name, "prepared call");
    prepared->tensors =
        tt_alloc_array((size_t)tensors + 1, sizeof(tutti_tensor_t *), "tensors of a prepared call");
    prepared->pieces =
        tt_alloc_array((size_t)pieces + 1, sizeof(void *), "pieces of a prepared call");
    if (prepared->group_name == NULL || prepared->tensors == NULL || prepared->pieces == NULL) {
        free_prepared(prepared);
        return TUTTI_ERR_NOMEM;
    }
    prepared->entry.group = group;
    *out = prepared;
    return TUTTI_OK;
}

static void hold(tutti_prepared_t *prepared, tutti_tensor_t *const *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        prepared->tensors[prepared->tensor_count++] =
            tensors[i] != NULL ? tutti_tensor_retain(tensors[i]) : NULL;
    }
}

static tutti_status_t own_first(tutti_prepared_t *prepared, const int *first)
{
    const size_t count = (size_t)prepared->entry.group->size + 1;
    if (first == NULL) {
        return TUTTI_OK;
    }
    prepared->first = tt_alloc_array(count, sizeof *first, "leaf map of a prepared call");
    TT_TRY_ALLOC(prepared->first);
    memcpy(prepared->first, first, count * sizeof *first);
    return TUTTI_OK;
}

/* What the backend finds out; it goes with the group. */
static tutti_status_t prepare_backend(tutti_prepared_t *prepared, const tt_call_t *call)
{
    tutti_group_t *group = prepared->entry.group;
    tt_prepared_t *found = NULL;
    if (group->backend->prepare != NULL) {
        TT_TRY(group->backend->prepare(group->state, call, &found));
    }
    prepared->start.call.prepared = found;
    prepared->request.prepared = found;
    tt_group_add_prepared(group, &prepared->entry, found);
    return TUTTI_OK;
}

/* The start's call, with arrays of its own. */
static tutti_status_t own_start(tutti_prepared_t *prepared, const tt_start_t *start)
{
    TT_TRY(own_first(prepared, start->call.first));
    hold(prepared, start->tensors, start->tensor_count);
    prepared->start = *start;
    prepared->start.tensors = prepared->tensors;
    prepared->start.call.first = prepared->first;
    for (int i = 0; i < start->call.piece_count; i++) {
        prepared->pieces[i] = start->call.pieces[i];
    }
    prepared->start.call.pieces = prepared->pieces;
    prepared->is_direct = true;
    if (start->message != NULL) {
        prepared->message = *start->message;
        prepared->start.message = &prepared->message;
        tt_group_add_prepared(prepared->entry.group, &prepared->entry, NULL);
        return TUTTI_OK;
    }
    return prepare_backend(prepared, &prepared->start.call);
}

tutti_status_t tt_group_prepare_start(tutti_group_t *group, const char *what,
                                      const tt_start_t *start, tutti_prepared_t **out)
{
    TT_WANT(what, group);
    TT_WANT(what, out);
    tutti_prepared_t *prepared;
    TT_TRY(open_prepared(group, what, start->tensor_count, start->call.piece_count, &prepared));
    const tutti_status_t status = own_start(prepared, start);
    if (status < 0) {
        free_prepared(prepared);
        return status;
    }
    *out = prepared;
    return TUTTI_OK;
}

/* ---- requests ---- */

static tutti_status_t own_rows(tutti_prepared_t *prepared)
{
    tt_request_t *request = &prepared->request;
    const size_t size = (size_t)prepared->entry.group->size;
    if (!request->is_uneven) {
        return TUTTI_OK;
    }
    prepared->rows = tt_alloc_array(2 * size, sizeof *prepared->rows, "counts of a prepared call");
    TT_TRY_ALLOC(prepared->rows);
    request->input_counts =
        memcpy(prepared->rows, request->input_counts, size * sizeof *prepared->rows);
    if (request->output_counts != NULL) {
        request->output_counts =
            memcpy(prepared->rows + size, request->output_counts, size * sizeof *prepared->rows);
    }
    return TUTTI_OK;
}

/* Output and input first, then the lists. */
static void hold_request(tutti_prepared_t *prepared)
{
    tt_request_t *request = &prepared->request;
    const int size = prepared->entry.group->size;
    hold(prepared, (tutti_tensor_t *const[]){request->output, request->input}, 2);
    if (request->outputs != NULL) {
        hold(prepared, request->outputs, size);
        request->outputs = prepared->tensors + prepared->tensor_count - size;
    }
    if (request->inputs != NULL) {
        hold(prepared, request->inputs, size);
        request->inputs = prepared->tensors + prepared->tensor_count - size;
    }
}

/* Its tensors as a start holds them: each once. */
static void set_tensors(tutti_prepared_t *prepared)
{
    const bool is_pair = prepared->tensors[0] != NULL && prepared->tensors[1] != NULL &&
                         prepared->tensors[0] != prepared->tensors[1];
    const bool has_any = prepared->tensors[0] != NULL || prepared->tensors[1] != NULL;
    prepared->start.tensors = prepared->tensors + (prepared->tensors[0] == NULL);
    prepared->start.tensor_count = is_pair ? 2 : has_any;
}

static void set_memory(tutti_prepared_t *prepared, const tt_call_t *call, const void *piece)
{
    prepared->pieces[0] = piece;
    prepared->start.call.out = call->out;
    set_tensors(prepared);
}

/* Its name has been checked. */
static void own_custom(tutti_prepared_t *prepared, const tutti_custom_reduction_t *custom)
{
    if (custom != NULL) {
        prepared->custom = *custom;
        snprintf(prepared->custom_name, sizeof prepared->custom_name, "%s", custom->name);
        prepared->custom.name = prepared->custom_name;
        prepared->request.custom = &prepared->custom;
    }
}

static tutti_status_t own_request(tutti_prepared_t *prepared, const tt_request_t *request,
                                  const tt_call_t *call, const void *piece)
{
    prepared->request = *request;
    prepared->is_direct = !request->is_list && !request->is_uneven && request->factor == NULL;
    if (request->factor != NULL) {
        prepared->factor = *request->factor;
        prepared->request.factor = &prepared->factor;
    }
    own_custom(prepared, request->custom);
    TT_TRY(own_rows(prepared));
    hold_request(prepared);
    if (prepared->is_direct) {
        prepared->start.call = *call;
        prepared->start.call.custom = prepared->request.custom;
        prepared->start.call.pieces = prepared->pieces;
        set_memory(prepared, call, piece);
    }
    return prepare_backend(prepared, call);
}

tutti_status_t tt_group_prepare(tutti_group_t *group, const tt_request_t *request,
                                tutti_prepared_t **out)
{
    tt_call_t call;
    const void *piece;
    tutti_prepared_t *prepared;
    TT_WANT(tt_collective_name(request->collective), out);
    TT_TRY(tt_group_describe(group, request, &call, &piece));
    TT_TRY(open_prepared(group, tt_collective_name(request->collective), 2 + 2 * group->size, 1,
                         &prepared));
    const tutti_status_t status = own_request(prepared, request, &call, piece);
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
                         prepared->what, name_of(prepared));
}

static tutti_status_t check_startable(tutti_prepared_t *prepared)
{
    TT_TRY(check_group(prepared));
    TT_TRY(tt_group_check_free(prepared->entry.group, "prepared_start"));
    if (prepared->entry.work != NULL) {
        tt_group_reap(prepared->entry.group);
    }
    return prepared->entry.work == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "prepared %s of group %s is under way; wait for the work of its last "
                         "start before it is started again",
                         prepared->what, name_of(prepared));
}

static tutti_status_t start(tutti_prepared_t *prepared, const void *site, tutti_work_t **work)
{
    if (!prepared->is_direct) {
        prepared->request.site = site;
        return tt_group_request(prepared->entry.group, &prepared->request, work);
    }
    prepared->start.call.site = site;
    prepared->message.site = site;
    return tt_group_start(prepared->entry.group, &prepared->start, work);
}

static tutti_status_t start_and_note(tutti_prepared_t *prepared, const void *site,
                                     tutti_work_t **work)
{
    TT_TRY(start(prepared, site, work));
    if ((*work)->is_under_way) {
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
                           *chosen, name_of(at), name_of(prepared[0]));
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
    return start_all(prepared, count, site, work);
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
    TT_TRY(tt_group_check_tensor(prepared->what, name, x));
    if (x->dtype == old->dtype && is_same_shape(x, old)) {
        return TUTTI_OK;
    }
    return TT_FAIL(x->dtype != old->dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                   "prepared %s of group %s: %s %s is not as it was prepared, %s; prepare another "
                   "call for it",
                   prepared->what, name_of(prepared), name, tutti_tensor_describe(x, is, sizeof is),
                   tutti_tensor_describe(old, was, sizeof was));
}

static void replace(tutti_prepared_t *prepared, int index, tutti_tensor_t *x)
{
    tutti_tensor_t *old = prepared->tensors[index];
    prepared->tensors[index] = x != NULL ? tutti_tensor_retain(x) : NULL;
    tutti_tensor_release(old);
}

static tutti_status_t rebind_request(tutti_prepared_t *prepared, tutti_tensor_t *output,
                                     tutti_tensor_t *input)
{
    tt_request_t request = prepared->request;
    tt_call_t call;
    const void *piece;
    request.output = output;
    request.input = input;
    TT_TRY(tt_group_describe(prepared->entry.group, &request, &call, &piece));
    prepared->request = request;
    replace(prepared, 0, output);
    replace(prepared, 1, input);
    if (prepared->is_direct) {
        set_memory(prepared, &call, piece);
    }
    return TUTTI_OK;
}

static tutti_status_t rebind_message(tutti_prepared_t *prepared, tutti_tensor_t *x)
{
    TT_TRY(check_like(prepared, "x", prepared->tensors[0], x));
    replace(prepared, 0, x);
    prepared->message.data = tutti_tensor_data(x);
    return TUTTI_OK;
}

/* What a prepared call has that can be rebound. */
typedef enum { NO_TENSOR, ONE_TENSOR, A_PAIR, MANY_TENSORS } tensors_t;

static tensors_t tensors_of(const tutti_prepared_t *prepared)
{
    const tt_request_t *request = &prepared->request;
    if (prepared->start.message != NULL || request->is_in_place) {
        return ONE_TENSOR;
    }
    if (!request->is_list && (request->input != NULL || request->output != NULL)) {
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
                                     name_of(prepared), texts[tensors]);
}

tutti_status_t tutti_prepared_rebind(tutti_prepared_t *prepared, tutti_tensor_t *x)
{
    TT_WANT("prepared_rebind", prepared);
    TT_TRY(check_group(prepared));
    TT_TRY(check_rebind(prepared, ONE_TENSOR));
    if (prepared->start.message != NULL) {
        return rebind_message(prepared, x);
    }
    TT_TRY(check_like(prepared, "x", prepared->request.input, x));
    return rebind_request(prepared, x, x);
}

tutti_status_t tutti_prepared_rebind_pair(tutti_prepared_t *prepared, tutti_tensor_t *output,
                                          tutti_tensor_t *input)
{
    TT_WANT("prepared_rebind_pair", prepared);
    TT_TRY(check_group(prepared));
    TT_TRY(check_rebind(prepared, A_PAIR));
    TT_TRY(check_like(prepared, "output", prepared->request.output, output));
    TT_TRY(check_like(prepared, "input", prepared->request.input, input));
    return rebind_request(prepared, output, input);
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
