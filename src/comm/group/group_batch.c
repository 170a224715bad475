/* Batches of messages: on the host's memory they start here, on a device's all of them are one call
 * of the family's stream. */
#include <stdio.h>

#include "comm/group/group_impl.h"

static bool is_on_device(const tutti_group_t *group, const tutti_transfer_t *transfers, int count)
{
    int i = 0;
    while (transfers != NULL && i < count &&
           !tt_request_is_on_device(group, &(tt_request_t){.transfer = &transfers[i]})) {
        i++;
    }
    return transfers != NULL && i < count;
}

static tutti_status_t check_kind(const tutti_transfer_t *transfer, int i)
{
    return transfer->kind == TUTTI_SEND || transfer->kind == TUTTI_RECV
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "batch_send_recv: transfer %d is of kind %d", i,
                         (int)transfer->kind);
}

static tutti_status_t add(tt_streamed_t *calls, const tutti_transfer_t *transfers, int count,
                          const void *site)
{
    for (int i = 0; i < count; i++) {
        char text[TT_ERROR_TEXT_BYTES];
        TT_TRY(check_kind(&transfers[i], i));
        const tt_request_t request = {.transfer = &transfers[i], .site = site};
        const tutti_status_t status = tt_group_stream_add(calls, &request);
        if (status < 0) {
            snprintf(text, sizeof text, "%s", tutti_last_error());
            return TT_FAIL(status, "batch_send_recv: transfer %d: %s", i, text);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t start_on_device(tutti_group_t *group, const tutti_transfer_t *transfers,
                                      int count, const void *site, tutti_work_t **work)
{
    tt_streamed_t *calls;
    TT_TRY(tt_group_check_forked("batch_send_recv", group));
    TT_TRY(tt_group_stream_open(group, "batch_send_recv", false, &calls));
    const tutti_status_t status = add(calls, transfers, count, site);
    if (status < 0) {
        tt_streamed_free(calls);
        return status;
    }
    return tt_group_stream_start(calls, work);
}

static tutti_status_t coalesce(tutti_group_t *group, const tutti_transfer_t *transfers, int count,
                               const void *site, tutti_work_t **work)
{
    for (int i = 0; i < count; i++) {
        TT_TRY(check_kind(&transfers[i], i));
        const tt_request_t request = {.transfer = &transfers[i], .site = site};
        TT_TRY(tt_group_stream_call(group, &request, work));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_batch_send_recv(tutti_group_t *group, const tutti_transfer_t *transfers,
                                     int count, tutti_work_t **work)
{
    TT_WANT("batch_send_recv", group);
    const void *site = __builtin_return_address(0);
    if (!is_on_device(group, transfers, count)) {
        TT_TRY(tt_group_settle(group));
        return tt_group_start_batch(group, transfers, count, site, work);
    }
    return group->is_coalescing ? coalesce(group, transfers, count, site, work)
                                : start_on_device(group, transfers, count, site, work);
}
