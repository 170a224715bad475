/* Conformance of what is more than one collective: calls in flight, coalesced ones, messages with
 * tags and from any source, bytes of any length. */
#include <string.h>

#include <tutti/messages.h>
#include <tutti/objects.h>

#include "conform_impl.h"
#include "core/base/alloc.h"

enum { WORKS = 8 };

/* ---- several at once ---- */

/* A call that failed at its start has no work. */
static void wait_for(const tt_conform_at_t *at, const char *what, tutti_work_t *work)
{
    if (work != NULL) {
        tt_conform_ok(at, what, tutti_work_wait(work, 0));
        tutti_work_release(work);
    }
}

void tt_conform_check_in_flight(const tt_conform_at_t *at)
{
    tutti_tensor_t *x[WORKS];
    tutti_work_t *works[WORKS] = {NULL};
    void *want = tt_conform_reference(at, at->count, false);
    for (int i = 0; i < WORKS; i++) {
        x[i] = tt_conform_make_filled(at, at->count);
        tt_conform_ok(at, "in flight",
                      i % 2 == 0 ? tutti_all_reduce(at->group, x[i], at->op, &works[i])
                                 : tutti_broadcast(at->group, x[i], i % at->size, &works[i]));
    }
    for (int i = WORKS - 1; i >= 0; i--) {
        wait_for(at, "in flight", works[i]);
        if (i % 2 == 0) {
            tt_conform_bytes(at, "in flight", tt_conform_data(x[i]), want,
                             tt_conform_bytes_of(at, at->count));
        } else {
            tt_conform_elements(at, "in flight", tt_conform_data(x[i]), 0, at->count, i % at->size);
        }
        tutti_tensor_release(x[i]);
    }
    tt_free(want);
}

void tt_conform_check_coalesced(const tt_conform_at_t *at)
{
    tutti_tensor_t *x[WORKS];
    tutti_work_t *work = NULL;
    void *want = tt_conform_reference(at, at->count, false);
    tt_conform_ok(at, "coalesce", tutti_coalesce_begin(at->group));
    for (int i = 0; i < WORKS; i++) {
        x[i] = tt_conform_make_filled(at, at->count);
        tt_conform_ok(at, "coalesced",
                      i == 5 ? tutti_broadcast(at->group, x[i], 0, NULL)
                             : tutti_all_reduce(at->group, x[i], at->op, NULL));
    }
    tt_conform_ok(at, "coalesce", tutti_coalesce_end(at->group, &work));
    wait_for(at, "coalesced", work);
    for (int i = 0; i < WORKS; i++) {
        if (i == 5) {
            tt_conform_elements(at, "coalesced", tt_conform_data(x[i]), 0, at->count, 0);
        } else {
            tt_conform_bytes(at, "coalesced", tt_conform_data(x[i]), want,
                             tt_conform_bytes_of(at, at->count));
        }
        tutti_tensor_release(x[i]);
    }
    tt_free(want);
}

/* ---- several on the same memory ---- */

enum { LINKS = 6 };

typedef struct {
    tutti_tensor_t *x, *parts[TT_CONFORM_RANKS_MAX];
} chain_t;

static tutti_status_t coalesce(const tt_conform_at_t *at, const chain_t *on, tutti_work_t **work)
{
    TUTTI_CHECK(tutti_coalesce_begin(at->group));
    const tutti_status_t first = tutti_all_reduce(at->group, on->parts[0], at->op, NULL);
    const tutti_status_t second = tutti_all_reduce(at->group, on->x, at->op, NULL);
    const tutti_status_t end = tutti_coalesce_end(at->group, work);
    return first < 0 ? first : second < 0 ? second : end;
}

static tutti_status_t make_link(const tt_conform_at_t *at, const chain_t *on, int link,
                                tutti_work_t **work)
{
    const double factor = at->rank + 2;
    const tutti_reduce_options_t options = {.factor = &factor};
    tutti_tensor_t *const *parts = on->parts;
    switch (link) {
    case 0:
        return tutti_all_reduce(at->group, on->x, at->op, work);
    case 1:
        return tutti_all_gather_list(at->group, parts, on->x, work);
    case 2:
        return tutti_dtype_is_float(at->dtype)
                   ? tutti_all_reduce_with(at->group, on->x, TUTTI_PREMUL_SUM, &options, work)
                   : tutti_reduce(at->group, parts[0], at->op, at->root, work);
    case 3:
        return tutti_all_to_all_list(at->group, parts, parts, work);
    case 4:
        return coalesce(at, on, work);
    default:
        return tutti_broadcast(at->group, parts[0], at->root, work);
    }
}

/* All are started before any is waited for, or each is waited for at once. */
static void run_chain(const tt_conform_at_t *at, chain_t *on, bool is_at_once)
{
    tutti_work_t *works[LINKS] = {NULL};
    on->x = tt_conform_make_filled(at, at->count);
    for (int i = 0; i < at->size; i++) {
        on->parts[i] = tt_conform_make_filled(at, at->count);
    }
    for (int i = 0; i < LINKS; i++) {
        tt_conform_ok(at, "in order", make_link(at, on, i, is_at_once ? NULL : &works[i]));
    }
    for (int i = LINKS - 1; i >= 0; i--) {
        wait_for(at, "in order", works[i]);
    }
}

void tt_conform_check_in_order(const tt_conform_at_t *at)
{
    chain_t one, other;
    run_chain(at, &one, true);
    run_chain(at, &other, false);
    const size_t bytes = tt_conform_bytes_of(at, at->count);
    tt_conform_bytes(at, "in order", tt_conform_data(other.x), tt_conform_data(one.x), bytes);
    for (int i = 0; i < at->size; i++) {
        tt_conform_bytes(at, "in order", tt_conform_data(other.parts[i]),
                         tt_conform_data(one.parts[i]), bytes);
        tutti_tensor_release(other.parts[i]);
        tutti_tensor_release(one.parts[i]);
    }
    tutti_tensor_release(other.x);
    tutti_tensor_release(one.x);
}

/* ---- messages ---- */

static void check_ring(const tt_conform_at_t *at)
{
    const int next = (at->rank + 1) % at->size, last = (at->rank + at->size - 1) % at->size;
    tutti_tensor_t *mine = tt_conform_make_filled(at, at->count),
                   *theirs = tt_conform_make(at, at->count);
    tt_conform_ok(at, "batch_send_recv",
                  tutti_batch_send_recv(at->group,
                                        (const tutti_transfer_t[]){{TUTTI_SEND, mine, next, 3},
                                                                   {TUTTI_RECV, theirs, last, 3}},
                                        2, NULL));
    tt_conform_elements(at, "batch_send_recv", tt_conform_data(theirs), 0, at->count, last);
    tutti_tensor_release(mine);
    tutti_tensor_release(theirs);
}

/* Rank 0 hears from all, in any order; each has a tag of its own, and sends two. */
static void check_any_source(const tt_conform_at_t *at)
{
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    int heard[TT_CONFORM_RANKS_MAX] = {0};
    for (int i = 0; at->rank == 0 && i < 2 * (at->size - 1); i++) {
        tutti_work_t *work = NULL;
        tt_conform_ok(at, "recv", tutti_recv(at->group, x, TUTTI_ANY_RANK, TUTTI_ANY_TAG, &work));
        if (work == NULL) {
            break;
        }
        int index;
        tt_conform_ok(at, "recv",
                      tutti_work_wait_any(&work, 1, &index)); /* here, not on a device */
        const int source = tutti_work_source(work);
        at->out->checks++;
        if (source < 1 || source >= at->size || tutti_work_tag(work) != source ||
            heard[source] == 2) {
            tt_conform_note(at, "recv of any source", "source or tag");
        } else {
            const size_t begin = heard[source]++ == 0 ? 0 : 7; /* the first sent comes first */
            tt_conform_elements(at, "recv of any source", tt_conform_data(x), begin, at->count,
                                source);
        }
        tutti_work_release(work);
    }
    for (int i = 0; at->rank != 0 && i < 2; i++) {
        tt_conform_fill(tt_conform_data(x), at->dtype, i == 0 ? 0 : 7, at->count, at->rank);
        tt_conform_ok(at, "send", tutti_send(at->group, x, 0, at->rank, NULL));
    }
    tutti_tensor_release(x);
}

/* Received in another order than sent, chosen by tag, with a collective in between. */
static void check_tags(const tt_conform_at_t *at)
{
    if (at->rank < 2) {
        tutti_tensor_t *x[3];
        tutti_work_t *works[3] = {NULL};
        for (int i = 0; i < 3; i++) {
            const int k = at->rank == 0 ? i : 2 - i;
            x[k] = tt_conform_make(at, at->count);
            tt_conform_fill(tt_conform_data(x[k]), at->dtype, (size_t)k, at->count, at->rank);
            tt_conform_ok(at, "tags",
                          at->rank == 0 ? tutti_send(at->group, x[k], 1, 10 + k, &works[k])
                                        : tutti_recv(at->group, x[k], 0, 10 + k, &works[k]));
        }
        tt_conform_ok(at, "barrier", tutti_barrier(at->group, NULL));
        for (int i = 0; i < 3; i++) {
            wait_for(at, "tags", works[i]);
            tt_conform_elements(at, "tags", tt_conform_data(x[i]), (size_t)i, at->count, 0);
            tutti_tensor_release(x[i]);
        }
    } else {
        tt_conform_ok(at, "barrier", tutti_barrier(at->group, NULL));
    }
}

/* ---- probes ---- */

static size_t probed_count(const tt_conform_at_t *at, int rank)
{
    return at->count + (size_t)rank;
}

/* The engine may know bytes alone. */
static bool is_as_sent(const tt_conform_at_t *at, const tutti_message_info_t *info)
{
    const size_t count =
        info->source > 0 && info->source < at->size ? probed_count(at, info->source) : SIZE_MAX;
    const bool is_whole = info->dtype == at->dtype && (size_t)info->count == count;
    const bool is_bytes =
        info->dtype == TUTTI_U8 && (size_t)info->count == tt_conform_bytes_of(at, count);
    return (is_whole || is_bytes) && info->tag == 20 + info->source;
}

static void expect_found(const tt_conform_at_t *at, const tutti_message_info_t *info)
{
    tutti_message_info_t again;
    at->out->checks++;
    if (!is_as_sent(at, info)) {
        tt_conform_note(at, "probe", "other than was sent");
        return;
    }
    tt_conform_ok(at, "iprobe", tutti_iprobe(at->group, info->source, info->tag, &again));
    at->out->checks++;
    if (again.source != info->source || again.tag != info->tag || again.count != info->count) {
        tt_conform_note(at, "iprobe", "other than the probe before");
    }
    const size_t count = probed_count(at, info->source);
    tutti_tensor_t *x = tt_conform_make(at, count);
    tt_conform_ok(at, "recv", tutti_recv(at->group, x, info->source, info->tag, NULL));
    tt_conform_elements(at, "recv of what was probed", tt_conform_data(x), 0, count, info->source);
    tutti_tensor_release(x);
}

/* Rank 0 learns from a probe how much each rank sends: from those of odd numbers in their order,
 * then from the rest as they come. */
static void check_probe(const tt_conform_at_t *at)
{
    tutti_message_info_t info;
    tt_conform_ok(at, "barrier", tutti_barrier(at->group, NULL));
    for (int i = 1; at->rank == 0 && i < at->size; i += 2) {
        tt_conform_ok(at, "probe", tutti_probe(at->group, i, 20 + i, &info));
        expect_found(at, &info);
    }
    for (int i = 2; at->rank == 0 && i < at->size; i += 2) {
        tt_conform_ok(at, "probe", tutti_probe(at->group, TUTTI_ANY_RANK, TUTTI_ANY_TAG, &info));
        expect_found(at, &info);
    }
    if (at->rank != 0) {
        tutti_tensor_t *x = tt_conform_make_filled(at, probed_count(at, at->rank));
        tt_conform_ok(at, "send", tutti_send(at->group, x, 0, 20 + at->rank, NULL));
        tutti_tensor_release(x);
    } else {
        at->out->checks++;
        if (tutti_iprobe(at->group, TUTTI_ANY_RANK, TUTTI_ANY_TAG, &info) != TUTTI_PENDING) {
            tt_conform_note(at, "iprobe", "a message that nobody has sent");
        }
    }
    tt_conform_ok(at, "barrier", tutti_barrier(at->group, NULL));
}

/* ---- any and all ---- */

static void take_any(const tt_conform_at_t *at, tutti_tensor_t *const *x, tutti_work_t **works)
{
    int left = at->size - 1, index;
    tutti_status_t status;
    while ((status = tutti_work_wait_any(works, at->size, &index)) == TUTTI_OK && left-- > 0) {
        tt_conform_elements(at, "wait_any", tt_conform_data(x[index]), 0, at->count, index);
        tutti_work_release(works[index]);
        works[index] = NULL;
    }
    at->out->checks++;
    if (status != TUTTI_END || left != 0 || index != -1) {
        tt_conform_note(at, "wait_any", "not as many as were under way");
    }
}

/* Rank 0 takes messages as they come; the others wait for all that they have sent. */
static void check_any_and_all(const tt_conform_at_t *at)
{
    tutti_tensor_t *x[TT_CONFORM_RANKS_MAX] = {NULL};
    tutti_work_t *works[TT_CONFORM_RANKS_MAX] = {NULL};
    for (int i = 1; i < at->size; i++) {
        const bool sends = at->rank != 0;
        if (!sends || i < 3) {
            x[i] = tt_conform_make_filled(at, at->count);
            tt_conform_ok(at, "works",
                          sends ? tutti_send(at->group, x[i], 0, 30 + i, &works[i])
                                : tutti_recv(at->group, x[i], i, 31, &works[i]));
        }
    }
    if (at->rank == 0) {
        take_any(at, x, works);
        for (int i = 1; at->size > 2 && i < at->size; i++) {
            tt_conform_ok(at, "works", tutti_recv(at->group, x[i], i, 32, &works[i]));
        }
    }
    tt_conform_ok(at, "wait_all", tutti_work_wait_all(works, at->size));
    for (int i = 1; i < at->size; i++) {
        tutti_work_release(works[i]);
        tutti_tensor_release(x[i]);
    }
}

void tt_conform_check_messages(const tt_conform_at_t *at)
{
    if (at->size == 1 || at->out->no_messages) {
        return;
    }
    check_ring(at);
    const uint64_t digest = at->out->digest;
    check_any_source(at);
    check_probe(at);
    check_any_and_all(at);
    at->out->digest = digest; /* what came first is not told */
    if (at->device == NULL) { /* where messages are received in the order of calls */
        check_tags(at);
    }
}

/* ---- bytes ---- */

static size_t length_of(const tt_conform_at_t *at, int rank)
{
    return rank % 2 == 0 ? at->count : (size_t)rank * 3;
}

static void expect_buffer(const tt_conform_at_t *at, const char *what, tutti_buffer_t *got,
                          size_t begin, int rank)
{
    at->out->checks++;
    if (got->bytes != length_of(at, rank)) {
        tt_conform_note(at, what, "length");
    } else {
        tt_conform_elements(at, what, got->data, begin, got->bytes, rank);
    }
    tutti_buffer_release(got);
}

void tt_conform_check_objects(const tt_conform_at_t *at)
{
    tutti_buffer_t got = {0}, all[TT_CONFORM_RANKS_MAX] = {{0}};
    const size_t mine = length_of(at, at->rank);
    void *data = tt_conform_room(mine);
    tt_conform_fill(data, at->dtype, 0, mine, at->rank);
    const tutti_bytes_t bytes = {data, mine};
    tt_conform_ok(at, "broadcast_bytes", tutti_broadcast_bytes(at->group, bytes, at->root, &got));
    expect_buffer(at, "broadcast_bytes", &got, 0, at->root);
    tt_conform_ok(at, "all_gather_bytes", tutti_all_gather_bytes(at->group, bytes, all));
    for (int i = 0; i < at->size; i++) {
        expect_buffer(at, "all_gather_bytes", &all[i], 0, i);
    }
    const bool is_root = at->rank == at->root;
    tt_conform_ok(at, "gather_bytes",
                  tutti_gather_bytes(at->group, bytes, at->root, is_root ? all : NULL));
    for (int i = 0; is_root && i < at->size; i++) {
        expect_buffer(at, "gather_bytes", &all[i], 0, i);
    }
    tutti_bytes_t parts[TT_CONFORM_RANKS_MAX];
    for (int i = 0; i < at->size; i++) {
        const size_t length = length_of(at, i) < mine ? length_of(at, i) : mine;
        parts[i] = (tutti_bytes_t){data, length};
    }
    tt_conform_ok(at, "scatter_bytes",
                  tutti_scatter_bytes(at->group, is_root ? parts : NULL, at->root, &got));
    tt_conform_elements(at, "scatter_bytes", got.data, 0, got.bytes, at->root);
    tutti_buffer_release(&got);
    if (at->size > 1 && !at->out->no_messages && at->rank == 1) {
        tt_conform_ok(at, "send_bytes", tutti_send_bytes(at->group, bytes, 0, 4));
    } else if (at->size > 1 && !at->out->no_messages && at->rank == 0) {
        int source = -1;
        tt_conform_ok(at, "recv_bytes",
                      tutti_recv_bytes(at->group, TUTTI_ANY_RANK, 4, &source, &got));
        expect_buffer(at, "recv_bytes", &got, 0, source == 1 ? 1 : 0);
    }
    tt_free(data);
}
