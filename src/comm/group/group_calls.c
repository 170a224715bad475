/* The public collectives and messages: each is a row of group_calls.def that says what is asked
 * for, and two calls, one that starts it and one that prepares it. group_request.c,
 * group_leaves.c and group_messages.c check what is asked for. The calls on one tensor in place,
 * which training makes most, go straight to the backend. */
#include "comm/group/group_impl.h"

#include "core/base/dtype_bytes.h"
#include "core/kernel/elementwise/combine.h"
#include "core/tensor/tensor_impl.h"

/* An address in the code of the caller of the public function that it stands in. */
#define SITE __builtin_return_address(0)

/* Most of what a request says is known when this is compiled, as long as no call stands between it
 * and where it is looked at: so it is written down behind those that there are. */
#define FOLDED __attribute__((always_inline)) static inline

/* Of the host's memory. A row of elements, as buckets are, is seen to be fine at once. */
FOLDED tutti_status_t check_tensor(const char *call, const char *name, const tutti_tensor_t *x)
{
    return x != NULL && !tt_tensor_is_absent(x) && x->shape.rank == 1 && x->strides[0] == 1
               ? TUTTI_OK
               : tt_group_check_tensor(call, name, x);
}

FOLDED tutti_status_t check_in_place(const tutti_group_t *group, const tt_request_t *request)
{
    const char *name = tt_collective_name(request->collective);
    const tutti_tensor_t *x = request->input;
    TT_WANT(name, group);
    TT_TRY(check_tensor(name, "x", x));
    if (tt_collective_has_root(request->collective)) {
        TT_TRY(tt_group_check_root(group, name, request->root));
    }
    if (!tt_collective_reduces(request->collective)) {
        return TUTTI_OK;
    }
    return tt_combine_check_part(name, x->dtype, request->op, (size_t)x->numel);
}

/* What has been checked: `count` elements of a part, in one tensor or two. */
FOLDED tutti_status_t start_plain(tutti_group_t *group, const tt_request_t *request, int64_t count,
                                  tutti_work_t **work)
{
    tutti_tensor_t *tensors[2] = {request->output};
    void *out = tt_tensor_data(request->output);
    const void *pieces[1] = {out};
    if (!request->is_in_place) {
        tensors[1] = request->input;
        pieces[0] = tt_tensor_data(request->input);
    }
    const tutti_dtype_t dtype = request->output->dtype;
    tt_start_t start = {.call = {.collective = request->collective,
                                 .reduction = request->op,
                                 .root = request->root,
                                 .site = request->site,
                                 .dtype = dtype,
                                 .out_dtype = dtype,
                                 .count = (size_t)count,
                                 .pieces = pieces,
                                 .piece_count = 1,
                                 .out = out},
                        .tensors = tensors,
                        .tensor_count = request->is_in_place ? 1 : 2,
                        .writes_first = true};
    return tt_group_start(group, &start, work);
}

/* x on every rank, read and written in place. */
FOLDED tutti_status_t call_in_place(tutti_group_t *group, const tt_request_t *request,
                                    tutti_work_t **work)
{
    TT_TRY(check_in_place(group, request));
    tutti_tensor_t *x = request->input;
    tutti_status_t status;
    if (request->collective == TT_ALL_REDUCE && group->coalesce != NULL && work == NULL &&
        tt_coalesce_take(group, x, request->op, request->site, &status)) {
        return status;
    }
    return start_plain(group, request, x->numel, work);
}

/* Equal parts, input and output apart or one this rank's part of the other. False: tt_group_request
 * knows what is wrong, if anything. */
FOLDED bool is_plain_pair(const tutti_group_t *group, const tt_request_t *request)
{
    const tutti_tensor_t *in = request->input, *out = request->output;
    const bool is_gather = request->collective == TT_ALL_GATHER;
    const bool is_exchange = request->collective == TT_ALL_TO_ALL;
    const int64_t size = group->size;
    const int64_t part = is_gather ? in->numel : is_exchange ? in->numel / size : out->numel;
    if (in->dtype != out->dtype || part == 0 || in->numel != (is_gather ? part : part * size) ||
        out->numel != (is_gather || is_exchange ? part * size : part)) {
        return false;
    }
    const size_t element = tt_dtype_bytes(in->dtype);
    const size_t own = (size_t)part * (size_t)group->rank * element;
    const char *a = tt_tensor_data(in), *b = tt_tensor_data(out);
    return a + (size_t)in->numel * element <= b || b + (size_t)out->numel * element <= a ||
           (is_gather && a == b + own) || (!is_gather && !is_exchange && b == a + own);
}

/* An input and an output on every rank. */
FOLDED tutti_status_t call_pair(tutti_group_t *group, const tt_request_t *request,
                                tutti_work_t **work)
{
    const char *name = tt_collective_name(request->collective);
    tutti_tensor_t *in = request->input, *out = request->output;
    TT_WANT(name, group);
    TT_TRY(check_tensor(name, "input", in));
    TT_TRY(check_tensor(name, "output", out));
    if (!is_plain_pair(group, request)) {
        return tt_group_request(group, request, work);
    }
    const bool reduces = tt_collective_reduces(request->collective);
    if (reduces) {
        TT_TRY(tt_combine_check_part(name, in->dtype, request->op, (size_t)out->numel));
    }
    const int64_t count = request->collective == TT_ALL_GATHER ? in->numel
                          : reduces                            ? out->numel
                                                               : in->numel / group->size;
    return start_plain(group, request, count, work);
}

FOLDED tutti_status_t call_here(tutti_group_t *group, const tt_request_t *request,
                                tutti_work_t **work)
{
    if (request->transfer != NULL) {
        return tt_group_start_transfer(group, request->transfer, request->site, work);
    }
    if (request->is_leaves) {
        return tt_group_reduce_leaves(group, request, work);
    }
    const bool is_plain = request->factor == NULL && request->custom == NULL &&
                          !request->is_uneven && !request->is_list;
    if (is_plain && request->is_in_place && request->collective != TT_REDUCE) {
        return call_in_place(group, request, work);
    }
    return is_plain && !request->is_in_place && !tt_collective_has_root(request->collective)
               ? call_pair(group, request, work)
               : tt_group_request(group, request, work);
}

FOLDED bool is_of_device(const tutti_tensor_t *x)
{
    return x != NULL && x->storage != NULL && x->storage->device != NULL;
}

FOLDED bool is_on_device(const tutti_group_t *group, const tt_request_t *request)
{
    const bool is_simple = request->transfer == NULL && !request->is_list && !request->is_leaves;
    return group != NULL &&
           (is_simple ? is_of_device(request->input) || is_of_device(request->output)
                      : tt_request_is_on_device(group, request));
}

#define PARAMETERS(...) __VA_ARGS__
#define X(name, parameters, ...)                                                                   \
    tutti_status_t tutti_##name(tutti_group_t *group, PARAMETERS parameters, tutti_work_t **work)  \
    {                                                                                              \
        if (is_on_device(group, &(const tt_request_t){__VA_ARGS__})) {                             \
            const tt_request_t request = {__VA_ARGS__, .site = SITE};                              \
            return tt_group_stream_call(group, &request, work);                                    \
        }                                                                                          \
        TT_TRY(group != NULL ? tt_group_settle(group) : TUTTI_OK);                                 \
        const tt_request_t request = {__VA_ARGS__, .site = SITE};                                  \
        return call_here(group, &request, work);                                                   \
    }                                                                                              \
    tutti_status_t tutti_prepare_##name(tutti_group_t *group, PARAMETERS parameters,               \
                                        tutti_prepared_t **out)                                    \
    {                                                                                              \
        const tt_request_t request = {__VA_ARGS__};                                                \
        return tt_group_prepare(group, &request, out);                                             \
    }
#include "comm/group/group_calls.def"
#undef X

tutti_status_t tutti_barrier(tutti_group_t *group, tutti_work_t **work)
{
    TT_WANT("barrier", group);
    tt_start_t start = {.call = {.collective = TT_BARRIER, .site = SITE}};
    return tt_group_start(group, &start, work);
}

tutti_status_t tutti_prepare_barrier(tutti_group_t *group, tutti_prepared_t **out)
{
    return tt_group_prepare(group, &(tt_request_t){.collective = TT_BARRIER}, out);
}
