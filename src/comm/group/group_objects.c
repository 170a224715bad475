/* Calls that carry bytes of any length: the lengths first, in a call of their own, then the bytes,
 * unevenly and without padding. Every rank that hears the lengths checks them against the limit
 * before it allocates, so that all refuse together. A rank that then has no memory aborts the
 * group, for the others are in the second call already.
 *
 * Cost: two calls; a rank that receives several parts holds them twice for a moment.
 * Source: torch's object collectives, without pickling.
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/config.h"

/* An address in the code of the caller of the public function that it stands in. */
#define SITE __builtin_return_address(0)

static tutti_status_t check_bytes(tutti_group_t *group, const char *name, tutti_bytes_t bytes)
{
    TT_TRY(tt_group_check_free(group, name));
    if (bytes.data == NULL && bytes.bytes > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: NULL of %zu bytes", name, bytes.bytes);
    }
    return TUTTI_OK;
}

static tutti_status_t check_limit(const char *name, int64_t total)
{
    int64_t limit;
    TT_TRY(tt_config_int(TT_CONFIG_OBJECT_BYTES_MAX, 1, INT64_MAX / 2, &limit));
    if (total < 0 || total > limit) {
        return TT_FAIL(TUTTI_ERR_NOMEM,
                       "%s: %lld bytes are more than the %lld that TUTTI_OBJECT_BYTES_MAX allows",
                       name, (long long)total, (long long)limit);
    }
    return TUTTI_OK;
}

/* Memory for what is to be received; the others must not wait for it in vain. */
static tutti_status_t reserve(tutti_group_t *group, size_t bytes, tutti_buffer_t *out)
{
    char *data = tt_alloc_raw(bytes + 1, "received bytes");
    if (data == NULL) {
        return tt_group_give_up(
            group, TT_FAIL(TUTTI_ERR_NOMEM, "no memory for %zu received bytes", bytes));
    }
    data[bytes] = 0;
    *out = (tutti_buffer_t){data, bytes};
    return TUTTI_OK;
}

tutti_status_t tutti_broadcast_bytes(tutti_group_t *group, tutti_bytes_t bytes, int root,
                                     tutti_buffer_t *out)
{
    TT_WANT("broadcast_bytes", group);
    TT_WANT("broadcast_bytes", out);
    const char *name = "broadcast_bytes";
    TT_TRY(tt_group_check_root(group, name, root));
    const bool is_root = group->rank == root;
    TT_TRY(check_bytes(group, name, is_root ? bytes : (tutti_bytes_t){0}));
    int64_t length = (int64_t)bytes.bytes;
    const tt_call_t ahead = {
        .collective = TT_BROADCAST, .dtype = TUTTI_I64, .count = 1, .root = root, .site = SITE};
    TT_TRY(tt_group_call_plain(group, &ahead, tutti_bytes_of(&length, sizeof length),
                               (tutti_buffer_t){&length, sizeof length}));
    TT_TRY(check_limit(name, length));
    tutti_buffer_t got;
    TT_TRY(reserve(group, (size_t)length, &got));
    if (is_root && length > 0) {
        memcpy(got.data, bytes.data, (size_t)length);
    }
    const tt_call_t like = {.collective = TT_BROADCAST,
                            .dtype = TUTTI_U8,
                            .count = (size_t)length,
                            .root = root,
                            .site = SITE};
    const tutti_status_t status =
        length > 0 ? tt_group_call_plain(group, &like, tt_buffer_view(&got), got) : TUTTI_OK;
    if (status < 0) {
        tutti_buffer_release(&got);
        return status;
    }
    *out = got;
    return TUTTI_OK;
}

/* ---- parts of all ranks ---- */

_Static_assert(sizeof(size_t) == sizeof(int64_t), "lengths travel as i64");

static tutti_buffer_t view_counts(const tutti_group_t *group, size_t *counts)
{
    return (tutti_buffer_t){counts, (size_t)group->size * sizeof *counts};
}

static tutti_status_t add_up(const tutti_group_t *group, const char *name, const size_t *counts,
                             int64_t *total)
{
    *total = 0;
    for (int i = 0; i < group->size; i++) {
        const int64_t length = (int64_t)counts[i];
        const bool fits = length >= 0 && length <= INT64_MAX - *total;
        TT_TRY(check_limit(name, fits ? length : INT64_MAX));
        *total += length;
    }
    return check_limit(name, *total);
}

static tutti_status_t gather_lengths(tutti_group_t *group, size_t mine, const void *site,
                                     size_t *counts)
{
    const tt_call_t like = {
        .collective = TT_ALL_GATHER, .dtype = TUTTI_I64, .count = 1, .site = site};
    return tt_group_call_plain(group, &like, tutti_bytes_of(&mine, sizeof mine),
                               view_counts(group, counts));
}

/* Cut what came into buffers, [size]. */
static tutti_status_t cut(const tutti_group_t *group, const size_t *counts, const char *from,
                          tutti_buffer_t *out)
{
    for (int i = 0; i < group->size; i++) {
        const tutti_status_t status = tt_buffer_copy((tutti_bytes_t){from, counts[i]}, &out[i]);
        if (status < 0) {
            while (i-- > 0) {
                tutti_buffer_release(&out[i]);
            }
            return status;
        }
        from += counts[i];
    }
    return TUTTI_OK;
}

/* Everybody's bytes on all ranks (root -1) or on one. */
static tutti_status_t collect(tutti_group_t *group, const char *name, tutti_bytes_t bytes, int root,
                              const void *site, tutti_buffer_t *out)
{
    const bool is_taker = root < 0 || root == group->rank;
    tutti_buffer_t whole = {0};
    int64_t total;
    tutti_status_t status;
    size_t *counts = tt_alloc_array((size_t)group->size, sizeof *counts, "lengths");
    TT_TRY_ALLOC(counts);
    TT_TRY_GOTO(status, gather_lengths(group, bytes.bytes, site, counts), end);
    TT_TRY_GOTO(status, add_up(group, name, counts, &total), end);
    if (is_taker) {
        TT_TRY_GOTO(status, reserve(group, (size_t)total, &whole), end);
    }
    const tt_call_t like = {.collective = root < 0 ? TT_ALL_GATHER : TT_GATHER,
                            .dtype = TUTTI_U8,
                            .counts = counts,
                            .count = (size_t)total / (size_t)group->size,
                            .root = root < 0 ? 0 : root,
                            .site = site};
    TT_TRY_GOTO(status, tt_group_call_plain(group, &like, bytes, whole), end);
    if (is_taker) {
        status = cut(group, counts, whole.data, out);
    }
end:
    tutti_buffer_release(&whole);
    tt_free(counts);
    return status;
}

tutti_status_t tutti_all_gather_bytes(tutti_group_t *group, tutti_bytes_t bytes,
                                      tutti_buffer_t *out)
{
    TT_WANT("all_gather_bytes", group);
    TT_WANT("all_gather_bytes", out);
    TT_TRY(check_bytes(group, "all_gather_bytes", bytes));
    return collect(group, "all_gather_bytes", bytes, -1, SITE, out);
}

tutti_status_t tutti_gather_bytes(tutti_group_t *group, tutti_bytes_t bytes, int root,
                                  tutti_buffer_t *out)
{
    TT_WANT("gather_bytes", group);
    const char *name = "gather_bytes";
    TT_TRY(check_bytes(group, name, bytes));
    TT_TRY(tt_group_check_root(group, name, root));
    if ((out != NULL) != (group->rank == root)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: root %d passes buffers, the others NULL", name, root);
    }
    return collect(group, name, bytes, root, SITE, out);
}

/* The root's parts, one after the other. */
static tutti_status_t join_parts(const tutti_group_t *group, const tutti_bytes_t *parts,
                                 size_t total, tutti_buffer_t *out)
{
    char *at = tt_alloc_raw(total + 1, "parts to scatter");
    TT_TRY_ALLOC(at);
    *out = (tutti_buffer_t){at, total};
    for (int i = 0; i < group->size; i++) {
        if (parts[i].bytes > 0) {
            memcpy(at, parts[i].data, parts[i].bytes);
        }
        at += parts[i].bytes;
    }
    return TUTTI_OK;
}

static tutti_status_t check_scatter(tutti_group_t *group, const tutti_bytes_t *parts, int root)
{
    const char *name = "scatter_bytes";
    TT_TRY(tt_group_check_free(group, name));
    TT_TRY(tt_group_check_root(group, name, root));
    if ((parts != NULL) != (group->rank == root)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: root %d passes parts, the others NULL", name, root);
    }
    for (int i = 0; parts != NULL && i < group->size; i++) {
        TT_TRY(check_bytes(group, name, parts[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t hand_out(tutti_group_t *group, const tutti_bytes_t *parts, int root,
                               const void *site, size_t *counts, tutti_buffer_t *out)
{
    const tt_call_t lengths = {.collective = TT_BROADCAST,
                               .dtype = TUTTI_I64,
                               .count = (size_t)group->size,
                               .root = root,
                               .site = site};
    for (int i = 0; parts != NULL && i < group->size; i++) {
        counts[i] = parts[i].bytes;
    }
    const tutti_buffer_t view = view_counts(group, counts);
    int64_t total;
    TT_TRY(tt_group_call_plain(group, &lengths, tt_buffer_view(&view), view));
    TT_TRY(add_up(group, "scatter_bytes", counts, &total));
    tutti_buffer_t whole = {0}, mine;
    TT_TRY(reserve(group, counts[group->rank], &mine));
    const tt_call_t like = {.collective = TT_SCATTER,
                            .dtype = TUTTI_U8,
                            .counts = counts,
                            .count = (size_t)total / (size_t)group->size,
                            .root = root,
                            .site = site};
    tutti_status_t status =
        parts != NULL ? join_parts(group, parts, (size_t)total, &whole) : TUTTI_OK;
    if (status >= 0) {
        status = tt_group_call_plain(group, &like, tt_buffer_view(&whole), mine);
    } else {
        (void)tt_group_give_up(group, status);
    }
    tutti_buffer_release(&whole);
    if (status < 0) {
        tutti_buffer_release(&mine);
        return status;
    }
    *out = mine;
    return TUTTI_OK;
}

tutti_status_t tutti_scatter_bytes(tutti_group_t *group, const tutti_bytes_t *parts, int root,
                                   tutti_buffer_t *out)
{
    TT_WANT("scatter_bytes", group);
    TT_WANT("scatter_bytes", out);
    TT_TRY(check_scatter(group, parts, root));
    size_t *counts = tt_alloc_array((size_t)group->size, sizeof *counts, "lengths");
    TT_TRY_ALLOC(counts);
    const tutti_status_t status = hand_out(group, parts, root, SITE, counts, out);
    tt_free(counts);
    return status;
}

/* ---- from one rank to another ---- */

/* Memory as a tensor: itself, or a copy for an engine that may hold it after a failure. */
static tutti_status_t open_memory(tutti_group_t *group, tutti_dtype_t dtype, tutti_buffer_t memory,
                                  tutti_tensor_t **out)
{
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)(memory.bytes / tutti_dtype_bytes(dtype)));
    if (group->backend->holds == NULL) {
        return tutti_tensor_wrap(dtype, shape, memory.data, out);
    }
    TT_TRY(tutti_group_tensor(group, dtype, shape, out));
    memcpy(tutti_tensor_data(*out), memory.data, memory.bytes);
    return TUTTI_OK;
}

static tutti_status_t transfer(tutti_group_t *group, const tutti_transfer_t *like,
                               tutti_dtype_t dtype, tutti_buffer_t memory, const void *site,
                               int *source)
{
    tutti_transfer_t what = *like;
    TT_TRY(open_memory(group, dtype, memory, &what.x));
    tutti_work_t *work = NULL;
    tutti_status_t status = tt_group_start_transfer(group, &what, site, &work);
    if (status >= 0) {
        status = tutti_work_wait(work, 0);
        if (source != NULL) {
            *source = tutti_work_source(work);
        }
    }
    if (status >= 0 && like->kind == TUTTI_RECV && tutti_tensor_data(what.x) != memory.data) {
        memcpy(memory.data, tutti_tensor_data(what.x), memory.bytes);
    }
    tutti_work_release(work);
    tutti_tensor_release(what.x);
    return status;
}

tutti_status_t tutti_send_bytes(tutti_group_t *group, tutti_bytes_t bytes, int to, int tag)
{
    TT_WANT("send_bytes", group);
    int64_t length = (int64_t)bytes.bytes;
    TT_TRY(check_bytes(group, "send_bytes", bytes));
    TT_TRY(check_limit("send_bytes", length));
    const tutti_transfer_t send = {.kind = TUTTI_SEND, .peer = to, .tag = tag};
    const tutti_buffer_t ahead = {&length, sizeof length};
    TT_TRY(transfer(group, &send, TUTTI_I64, ahead, SITE, NULL));
    if (length == 0) {
        return TUTTI_OK;
    }
    union {
        const void *read_only;
        void *data;
    } memory = {bytes.data}; /* a send only reads */
    return transfer(group, &send, TUTTI_U8, (tutti_buffer_t){memory.data, bytes.bytes}, SITE, NULL);
}

tutti_status_t tutti_recv_bytes(tutti_group_t *group, int from, int tag, int *source,
                                tutti_buffer_t *out)
{
    TT_WANT("recv_bytes", group);
    TT_WANT("recv_bytes", out);
    int64_t length;
    int sender;
    TT_TRY(tt_group_check_free(group, "recv_bytes"));
    if (tag < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "recv_bytes: tag %d; want 0 or more", tag);
    }
    tutti_transfer_t recv = {.kind = TUTTI_RECV, .peer = from, .tag = tag};
    const tutti_buffer_t ahead = {&length, sizeof length};
    TT_TRY(transfer(group, &recv, TUTTI_I64, ahead, SITE, &sender));
    const tutti_status_t fits = check_limit("recv_bytes", length);
    if (fits < 0) {
        return tt_group_give_up(group, fits);
    }
    tutti_buffer_t got;
    TT_TRY(reserve(group, (size_t)length, &got));
    recv.peer = sender;
    const tutti_status_t status =
        length > 0 ? transfer(group, &recv, TUTTI_U8, got, SITE, NULL) : TUTTI_OK;
    if (status < 0) {
        tutti_buffer_release(&got);
        return status;
    }
    if (source != NULL) {
        *source = sender;
    }
    *out = got;
    return TUTTI_OK;
}
