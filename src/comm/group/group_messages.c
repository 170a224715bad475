/* The public messages: checked here, carried by the backend. */
#include "comm/group/group_impl.h"

#include <stdio.h>

_Static_assert(TUTTI_ANY_RANK == (int)TT_ANY_RANK && TUTTI_ANY_TAG == (int)TT_ANY_TAG, "one any");

static tutti_status_t check_peer(const tutti_group_t *group, const char *call, bool is_send,
                                 int peer)
{
    if (!is_send && peer == TUTTI_ANY_RANK) {
        return TUTTI_OK;
    }
    if (peer < 0 || peer >= group->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d is outside group %s of %d ranks", call, peer,
                       group->name, group->size);
    }
    if (peer == group->rank) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d is this rank itself; copy the tensor", call,
                       peer);
    }
    return TUTTI_OK;
}

static tutti_status_t check_tag(const char *call, bool is_send, int tag)
{
    return tag >= 0 || (!is_send && tag == TUTTI_ANY_TAG)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: tag %d; want 0 or more%s", call, tag,
                         is_send ? "" : ", or TUTTI_ANY_TAG");
}

static tutti_status_t check_transfer(const tutti_group_t *group, const char *call,
                                     const tutti_transfer_t *transfer)
{
    const bool is_send = transfer->kind == TUTTI_SEND;
    TT_TRY(tt_group_check_tensor(call, "x", transfer->x));
    TT_TRY(check_peer(group, call, is_send, transfer->peer));
    return check_tag(call, is_send, transfer->tag);
}

static const char *name_of(const tutti_transfer_t *transfer)
{
    return transfer->kind == TUTTI_SEND ? "send" : "recv";
}

/* Of one that has been checked. */
static void describe(const tutti_transfer_t *transfer, const void *site, tt_described_t *out)
{
    tutti_tensor_t *x = transfer->x;
    out->message =
        (tt_message_t){.kind = transfer->kind == TUTTI_SEND ? TT_MESSAGE_SEND : TT_MESSAGE_RECV,
                       .peer = transfer->peer,
                       .tag = transfer->tag,
                       .dtype = tutti_tensor_dtype(x),
                       .count = (size_t)tutti_tensor_numel(x),
                       .data = tutti_tensor_data(x),
                       .site = site};
    out->tensors[0] = x;
    out->start = (tt_start_t){.message = &out->message,
                              .tensors = out->tensors,
                              .tensor_count = 1,
                              .writes_first = transfer->kind == TUTTI_RECV};
}

tutti_status_t tt_group_describe_transfer(const tutti_group_t *group,
                                          const tutti_transfer_t *transfer, const void *site,
                                          tt_described_t *out)
{
    TT_WANT(name_of(transfer), group);
    TT_TRY(check_transfer(group, name_of(transfer), transfer));
    describe(transfer, site, out);
    return TUTTI_OK;
}

tutti_status_t tt_group_start_transfer(tutti_group_t *group, const tutti_transfer_t *transfer,
                                       const void *site, tutti_work_t **work)
{
    tt_described_t described;
    TT_TRY(tt_group_describe_transfer(group, transfer, site, &described));
    return tt_group_start(group, &described.start, work);
}

/* ---- probes ---- */

static tutti_status_t check_probe(const tutti_group_t *group, const char *call, int from, int tag,
                                  const tutti_message_info_t *info)
{
    TT_WANT(call, group);
    TT_WANT(call, info);
    TT_TRY(check_peer(group, call, false, from));
    return check_tag(call, false, tag);
}

static tt_message_t probe_of(int from, int tag, const void *site)
{
    return (tt_message_t){
        .kind = TT_MESSAGE_PROBE, .peer = from, .tag = tag, .dtype = TUTTI_U8, .site = site};
}

static tutti_message_info_t info_of(const tt_message_op_t *op)
{
    return (tutti_message_info_t){.source = op->source,
                                  .tag = op->tag,
                                  .dtype = op->message.dtype,
                                  .count = (int64_t)op->message.count};
}

tutti_status_t tutti_probe(tutti_group_t *group, int from, int tag, tutti_message_info_t *info)
{
    TT_TRY(check_probe(group, "probe", from, tag, info));
    TT_TRY(tt_group_check_free(group, "probe"));
    tt_message_op_t op;
    const tt_message_t message = probe_of(from, tag, __builtin_return_address(0));
    TT_TRY(group->backend->start_message(group->state, &message, &op));
    const tutti_status_t status = tt_group_wait(group, &op.op, TT_NEVER);
    if (group->first != NULL) {
        tt_group_reap(group);
    }
    TT_TRY(status);
    *info = info_of(&op);
    return TUTTI_OK;
}

tutti_status_t tutti_iprobe(tutti_group_t *group, int from, int tag, tutti_message_info_t *info)
{
    TT_TRY(check_probe(group, "iprobe", from, tag, info));
    TT_TRY(tt_group_check_callable(group, "iprobe"));
    if (!tt_group_has_family(group, 0)) {
        return TUTTI_PENDING; /* there is none, as far as is known */
    }
    tt_message_op_t op;
    const tt_message_t message = probe_of(from, tag, __builtin_return_address(0));
    if (tt_group_is_family_busy(group)) {
        tutti_group_progress(group);
    }
    const tutti_status_t status = group->backend->iprobe(group->state, &message, &op);
    if (status == TUTTI_OK) {
        *info = info_of(&op);
    }
    return status;
}

/* ---- batches ---- */

static tutti_status_t check_batch(const tutti_group_t *group, const tutti_transfer_t *transfers,
                                  int count)
{
    if (count < 0 || (count > 0 && transfers == NULL)) {
        return TT_FAIL(TUTTI_ERR_ARG, "batch_send_recv: %d transfers%s", count,
                       transfers == NULL ? ", and NULL" : "");
    }
    for (int i = 0; i < count; i++) {
        char call[64];
        snprintf(call, sizeof call, "batch_send_recv: transfer %d: %s", i, name_of(&transfers[i]));
        if (transfers[i].kind != TUTTI_SEND && transfers[i].kind != TUTTI_RECV) {
            return TT_FAIL(TUTTI_ERR_ARG, "batch_send_recv: transfer %d is of kind %d", i,
                           (int)transfers[i].kind);
        }
        TT_TRY(check_transfer(group, call, &transfers[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t start_checked(tutti_group_t *group, const tutti_transfer_t *transfer,
                                    const void *site, tutti_work_t **work)
{
    tt_described_t described;
    describe(transfer, site, &described);
    return tt_group_start(group, &described.start, work);
}

static tutti_status_t start_batch(tutti_group_t *group, const tutti_transfer_t *transfers,
                                  int count, const void *site, tutti_work_t **out)
{
    tutti_work_t *bundle, *work;
    TT_TRY(tt_bundle_open(group, count, &bundle));
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < count && status >= 0; i++) {
        status = start_checked(group, &transfers[i], site, &work);
        status = status < 0 ? status : tt_bundle_add(bundle, work);
    }
    if (status < 0) {
        tutti_work_release(bundle);
        return status;
    }
    return tt_bundle_hand_over(bundle, out);
}

tutti_status_t tt_group_start_batch(tutti_group_t *group, const tutti_transfer_t *transfers,
                                    int count, const void *site, tutti_work_t **work)
{
    TT_TRY(check_batch(group, transfers, count));
    if (group->coalesce != NULL) {
        for (int i = 0; i < count; i++) {
            TT_TRY(start_checked(group, &transfers[i], site, work));
        }
        return TUTTI_OK;
    }
    return start_batch(group, transfers, count, site, work);
}
