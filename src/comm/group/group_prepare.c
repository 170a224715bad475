/* The public calls that prepare: each says what is asked for, as the call of its name in
 * group_calls.c; group_prepared.c does the rest. Those of leaves and messages stand beside the
 * plain ones.
 */
#include "comm/group/group_impl.h"

tutti_status_t tutti_prepare_all_reduce(tutti_group_t *group, tutti_tensor_t *x,
                                        tutti_reduction_t op, tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_ALL_REDUCE, .op = op, .is_in_place = true, .input = x, .output = x};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                             tutti_reduction_t op,
                                             const tutti_reduce_options_t *options,
                                             tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_ALL_REDUCE,
                                  .op = op,
                                  .is_in_place = true,
                                  .input = x,
                                  .output = x,
                                  .factor = options != NULL ? options->factor : NULL};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                    int root, tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_REDUCE,
                                  .op = op,
                                  .root = root,
                                  .is_in_place = true,
                                  .input = x,
                                  .output = x};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                         tutti_reduction_t op,
                                         const tutti_reduce_options_t *options,
                                         tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_REDUCE,
                                  .op = op,
                                  .root = options != NULL ? options->root : 0,
                                  .is_in_place = true,
                                  .input = x,
                                  .output = x,
                                  .factor = options != NULL ? options->factor : NULL};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                            tutti_tensor_t *input, tutti_reduction_t op,
                                            tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_REDUCE_SCATTER, .op = op, .input = input, .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce_scatter_with(tutti_group_t *group, tutti_tensor_t *output,
                                                 tutti_tensor_t *input, tutti_reduction_t op,
                                                 const tutti_reduce_options_t *options,
                                                 tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .input = input,
                                  .output = output,
                                  .factor = options != NULL ? options->factor : NULL};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                   tutti_tensor_t *input, const int64_t *counts,
                                                   tutti_reduction_t op, tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_reduce_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                                 tutti_tensor_t *const *inputs,
                                                 tutti_reduction_t op, tutti_prepared_t **out)
{
    TT_TRY(tt_group_check_given("reduce_scatter", "inputs", inputs));
    const tt_request_t request = {.collective = TT_REDUCE_SCATTER,
                                  .op = op,
                                  .is_list = true,
                                  .inputs = inputs,
                                  .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_scan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                  tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_SCAN, .op = op, .is_in_place = true, .input = x, .output = x};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_exscan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                    tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_EXSCAN, .op = op, .is_in_place = true, .input = x, .output = x};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                                       tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_BROADCAST, .root = root, .is_in_place = true, .input = x, .output = x};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_gather(tutti_group_t *group, tutti_tensor_t *output,
                                        tutti_tensor_t *input, tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_ALL_GATHER, .input = input, .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                               tutti_tensor_t *input, const int64_t *counts,
                                               tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_ALL_GATHER,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                             tutti_tensor_t *input, tutti_prepared_t **out)
{
    TT_TRY(tt_group_check_given("all_gather", "outputs", outputs));
    const tt_request_t request = {
        .collective = TT_ALL_GATHER, .is_list = true, .input = input, .outputs = outputs};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_gather(tutti_group_t *group, tutti_tensor_t *output,
                                    tutti_tensor_t *input, int root, tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_GATHER, .root = root, .input = input, .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                           tutti_tensor_t *input, const int64_t *counts, int root,
                                           tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_GATHER,
                                  .root = root,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                         tutti_tensor_t *input, int root, tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_GATHER, .root = root, .is_list = true, .input = input, .outputs = outputs};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                     tutti_tensor_t *input, int root, tutti_prepared_t **out)
{
    const tt_request_t request = {
        .collective = TT_SCATTER, .root = root, .input = input, .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                            tutti_tensor_t *input, const int64_t *counts, int root,
                                            tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_SCATTER,
                                  .root = root,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = counts};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                          tutti_tensor_t *const *inputs, int root,
                                          tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_SCATTER,
                                  .root = root,
                                  .is_list = true,
                                  .inputs = inputs,
                                  .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_to_all(tutti_group_t *group, tutti_tensor_t *output,
                                        tutti_tensor_t *input, tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_ALL_TO_ALL, .input = input, .output = output};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                               const int64_t *output_counts, tutti_tensor_t *input,
                                               const int64_t *input_counts, tutti_prepared_t **out)
{
    const tt_request_t request = {.collective = TT_ALL_TO_ALL,
                                  .is_uneven = true,
                                  .input = input,
                                  .output = output,
                                  .input_counts = input_counts,
                                  .output_counts = output_counts};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_all_to_all_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                             tutti_tensor_t *const *inputs, tutti_prepared_t **out)
{
    TT_TRY(tt_group_check_given("all_to_all", "inputs", inputs));
    TT_TRY(tt_group_check_given("all_to_all", "outputs", outputs));
    const tt_request_t request = {
        .collective = TT_ALL_TO_ALL, .is_list = true, .inputs = inputs, .outputs = outputs};
    return tt_group_prepare(group, &request, out);
}

tutti_status_t tutti_prepare_barrier(tutti_group_t *group, tutti_prepared_t **out)
{
    const tt_start_t start = {.call = {.collective = TT_BARRIER}};
    return tt_group_prepare_start(group, "barrier", &start, out);
}
