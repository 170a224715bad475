/* The public collectives: each says what is asked for; group_request.c checks and starts it. The
 * calls on one tensor in place, which training makes most, go straight to the backend. */
#include "comm/group/group_impl.h"

#include "core/kernel/combine.h"
#include "core/tensor/tensor_impl.h"

/* An address in the code of the caller of the public function that it stands in. */
#define SITE __builtin_return_address(0)

/* x on every rank, read and written in place. */
static inline tutti_status_t call_in_place(tutti_group_t *group, tt_collective_t collective,
                                           tutti_tensor_t *x, tutti_reduction_t op, int root,
                                           const void *site, tutti_work_t **work)
{
    void *data = tutti_tensor_data(x);
    const void *pieces[1] = {data};
    const tutti_dtype_t dtype = x->dtype;
    tt_start_t start = {.call = {.collective = collective,
                                 .reduction = op,
                                 .root = root,
                                 .site = site,
                                 .dtype = dtype,
                                 .out_dtype = dtype,
                                 .count = (size_t)x->numel,
                                 .pieces = pieces,
                                 .piece_count = 1,
                                 .out = data},
                        .tensors = &x,
                        .tensor_count = 1};
    return tt_group_start(group, &start, work);
}

tutti_status_t tutti_all_reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                tutti_work_t **work)
{
    TT_WANT("all_reduce", group);
    TT_TRY(tt_group_check_tensor("all_reduce", "x", x));
    TT_TRY(tt_combine_check("all_reduce", x->dtype, op));
    tutti_status_t status;
    if (group->coalesce != NULL && work == NULL && tt_coalesce_take(group, x, op, SITE, &status)) {
        return status;
    }
    return call_in_place(group, TT_ALL_REDUCE, x, op, 0, SITE, work);
}

tutti_status_t tutti_scan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                          tutti_work_t **work)
{
    TT_WANT("scan", group);
    TT_TRY(tt_group_check_tensor("scan", "x", x));
    TT_TRY(tt_combine_check("scan", x->dtype, op));
    return call_in_place(group, TT_SCAN, x, op, 0, SITE, work);
}

tutti_status_t tutti_exscan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                            tutti_work_t **work)
{
    TT_WANT("exscan", group);
    TT_TRY(tt_group_check_tensor("exscan", "x", x));
    TT_TRY(tt_combine_check("exscan", x->dtype, op));
    return call_in_place(group, TT_EXSCAN, x, op, 0, SITE, work);
}

tutti_status_t tutti_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                               tutti_work_t **work)
{
    TT_WANT("broadcast", group);
    TT_TRY(tt_group_check_tensor("broadcast", "x", x));
    TT_TRY(tt_group_check_root(group, "broadcast", root));
    return call_in_place(group, TT_BROADCAST, x, TUTTI_SUM, root, SITE, work);
}

tutti_status_t tutti_barrier(tutti_group_t *group, tutti_work_t **work)
{
    TT_WANT("barrier", group);
    tt_start_t start = {.call = {.collective = TT_BARRIER, .site = SITE}};
    return tt_group_start(group, &start, work);
}

tutti_status_t tutti_all_reduce_with(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                     const tutti_reduce_options_t *options, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_ALL_REDUCE,
                                  .op = op,
                                  .is_in_place = true,
                                  .input = x,
                                  .output = x,
                                  .factor = options != NULL ? options->factor : NULL,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

static tutti_status_t reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                             const tutti_reduce_options_t *options, const void *site,
                             tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_REDUCE,
                                  .op = op,
                                  .root = options->root,
                                  .is_in_place = true,
                                  .input = x,
                                  .output = x,
                                  .factor = options->factor,
                                  .site = site};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op, int root,
                            tutti_work_t **work)
{
    return reduce(group, x, op, &(tutti_reduce_options_t){.root = root}, SITE, work);
}

tutti_status_t tutti_reduce_with(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                 const tutti_reduce_options_t *options, tutti_work_t **work)
{
    return reduce(group, x, op, options != NULL ? options : &(tutti_reduce_options_t){0}, SITE,
                  work);
}

tutti_status_t tutti_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                    tutti_tensor_t *input, tutti_reduction_t op,
                                    tutti_work_t **work)
{
    const tt_request_t request = {
        .collective = TT_REDUCE_SCATTER, .op = op, .input = input, .output = output, .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_reduce_scatter_with(tutti_group_t *group, tutti_tensor_t *output,
                                         tutti_tensor_t *input, tutti_reduction_t op,
                                         const tutti_reduce_options_t *options, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .input = input,
                                  .output = output,
                                  .factor = options != NULL ? options->factor : NULL,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_reduce_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                           tutti_tensor_t *input, const int64_t *counts,
                                           tutti_reduction_t op, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_reduce_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                         tutti_tensor_t *const *inputs, tutti_reduction_t op,
                                         tutti_work_t **work)
{
    TT_TRY(tt_group_check_given("reduce_scatter", "inputs", inputs));
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .is_list = true,
                                  .inputs = inputs,
                                  .output = output,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_gather(tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input,
                                tutti_work_t **work)
{
    const tt_request_t request = {
        .collective = TT_ALL_GATHER, .input = input, .output = output, .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                       tutti_tensor_t *input, const int64_t *counts,
                                       tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_ALL_GATHER,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                     tutti_tensor_t *input, tutti_work_t **work)
{
    TT_TRY(tt_group_check_given("all_gather", "outputs", outputs));
    const tt_request_t request = {.collective = TT_ALL_GATHER,
                                  .is_list = true,
                                  .input = input,
                                  .outputs = outputs,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_gather(tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input,
                            int root, tutti_work_t **work)
{
    const tt_request_t request = {
        .collective = TT_GATHER, .root = root, .input = input, .output = output, .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                   tutti_tensor_t *input, const int64_t *counts, int root,
                                   tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_GATHER,
                                  .root = root,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                 tutti_tensor_t *input, int root, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_GATHER,
                                  .root = root,
                                  .is_list = true,
                                  .input = input,
                                  .outputs = outputs,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_scatter(tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input,
                             int root, tutti_work_t **work)
{
    const tt_request_t request = {
        .collective = TT_SCATTER, .root = root, .input = input, .output = output, .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                    tutti_tensor_t *input, const int64_t *counts, int root,
                                    tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_SCATTER,
                                  .root = root,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                  tutti_tensor_t *const *inputs, int root, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_SCATTER,
                                  .root = root,
                                  .is_list = true,
                                  .inputs = inputs,
                                  .output = output,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_to_all(tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input,
                                tutti_work_t **work)
{
    const tt_request_t request = {
        .collective = TT_ALL_TO_ALL, .input = input, .output = output, .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                       const int64_t *output_counts, tutti_tensor_t *input,
                                       const int64_t *input_counts, tutti_work_t **work)
{
    const tt_request_t request = {.collective = TT_ALL_TO_ALL,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = input_counts,
                                  .output_counts = output_counts,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}

tutti_status_t tutti_all_to_all_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                     tutti_tensor_t *const *inputs, tutti_work_t **work)
{
    TT_TRY(tt_group_check_given("all_to_all", "inputs", inputs));
    TT_TRY(tt_group_check_given("all_to_all", "outputs", outputs));
    const tt_request_t request = {.collective = TT_ALL_TO_ALL,
                                  .is_list = true,
                                  .inputs = inputs,
                                  .outputs = outputs,
                                  .site = SITE};
    return tt_group_request(group, &request, work);
}
