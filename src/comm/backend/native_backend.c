/* The native engine: plans over this project's wires. The world's ranks meet as host-local ranks
 * through the store; every group then shows its flag block's place there. */
#include <stdio.h>
#include <string.h>

#include "comm/backend/backend.h"
#include "comm/backend/native_backend.h"
#include "comm/algorithm/tuning.h"
#include "comm/exec/coll_impl.h"
#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/fnv.h"

typedef struct {
    tt_peers_t *peers;
    tt_coll_t *coll;
    char *name;
    tutti_store_t *wait_board; /* a view of the store, for ranks that wait; NULL when alone */
    int64_t mute_until_ns;     /* the board did not answer, and is not asked before then */
    int64_t window_ns, asked_ns, spent_ns; /* of the last second: since when, when it was asked
                                            * last, and how long all that took */
} native_t;

const tt_backend_ops_t *const tt_backends[] = {
#define X(name) &tt_backend_##name,
#include "comm/backend/backends.def"
#undef X
    NULL,
};

enum { KEY_BYTES = 48, WATCH_MS = 20 };

static tutti_bytes_t make_key(char key[KEY_BYTES], const char *what, int rank)
{
    snprintf(key, KEY_BYTES, "%s/%d", what, rank);
    return tutti_text(key);
}

static tutti_status_t put_value(tutti_store_t *store, const char *what, int rank, const void *value,
                                size_t bytes)
{
    char key[KEY_BYTES];
    return tutti_store_set(store, make_key(key, what, rank), (tutti_bytes_t){value, bytes});
}

/* A value of exactly `bytes`. */
static tutti_status_t get_value(tutti_store_t *store, const char *what, int rank,
                                tt_deadline_t deadline, void *value, size_t bytes)
{
    char key[KEY_BYTES];
    tutti_buffer_t got;
    const tutti_status_t status =
        tutti_store_get(store, make_key(key, what, rank), tt_deadline_timeout_ms(deadline), &got);
    if (status == TUTTI_ERR_TIMEOUT) {
        return TT_FAIL(status, "rank %d has not come to join", rank);
    }
    TT_TRY(status);
    const bool fits = got.bytes == bytes;
    if (fits) {
        memcpy(value, got.data, bytes);
    }
    tutti_buffer_release(&got);
    return fits ? TUTTI_OK
                : TT_FAIL(TUTTI_ERR_FORMAT, "store: %s of rank %d has not %zu bytes", what, rank,
                          bytes);
}

static const char *const INFO_NAMES[] = {"peer", "listen", "node_peer", "refusal"};

static tutti_status_t put_info(void *user, tt_info_kind_t kind, int rank, const void *info)
{
    return put_value(user, INFO_NAMES[kind], rank, info, tt_info_bytes(kind));
}

static tutti_status_t get_info(void *user, tt_info_kind_t kind, int rank, tt_deadline_t deadline,
                               void *info)
{
    return get_value(user, INFO_NAMES[kind], rank, deadline, info, tt_info_bytes(kind));
}

static tutti_status_t find_peers(native_t *native, const tt_backend_options_t *options,
                                 tt_deadline_t deadline)
{
    if (options->parent != NULL) {
        const native_t *parent = options->parent;
        native->peers = tt_peers_retain(parent->peers);
        return TUTTI_OK;
    }
    if (options->peers != NULL) {
        native->peers = tt_peers_retain(options->peers);
        return TUTTI_OK;
    }
    const tt_peers_options_t peers_options = {
        .rank = options->rank,
        .size = options->size,
        .directory = {.put = put_info, .get = get_info, .user = options->store},
        .epoch = options->epoch,
        .address = options->address,
        .credentials = options->store != NULL ? tt_store_credentials(options->store) : NULL,
        .wires = tt_config_text(TT_CONFIG_WIRES),
    };
    return tt_peers_join(&peers_options, deadline, &native->peers);
}

/* ---- the board: where ranks that wait for long say so ---------------------------------------- */

enum { WAIT_BOARD_MS = 200, SPENT_MS = 300, WINDOW_MS = 1000, MUTE_MS = 30000 };

/* A store that fails or is slow costs time at each request, and the calls that ask have deadlines:
 * who looks for a late rank asks for a second at most. That is SPENT_MS and one more question, of
 * two requests. */
static tutti_status_t check_wait_board(native_t *native)
{
    const int64_t now = tt_clock_ns();
    if (now - native->window_ns > WINDOW_MS * TT_NS_PER_MS) {
        native->window_ns = now;
        native->spent_ns = 0;
    }
    native->asked_ns = now;
    return native->mute_until_ns > now
               ? TT_FAIL(TUTTI_ERR_IO, "store: it has failed, and is left alone for a while")
               : TUTTI_OK;
}

static tutti_status_t note_wait_board(native_t *native, tutti_status_t status)
{
    const int64_t now = tt_clock_ns();
    native->spent_ns += now - native->asked_ns;
    if (status < 0 || native->spent_ns > SPENT_MS * TT_NS_PER_MS) {
        native->mute_until_ns = now + MUTE_MS * TT_NS_PER_MS;
    }
    return status;
}

static tutti_status_t put_wait_board(void *user, const char *what, int rank, const void *value,
                                     size_t bytes)
{
    native_t *native = user;
    TT_TRY(check_wait_board(native));
    return note_wait_board(native, put_value(native->wait_board, what, rank, value, bytes));
}

static tutti_status_t find_on_wait_board(native_t *native, const char *what, int rank,
                                         tutti_buffer_t *got)
{
    char key[KEY_BYTES];
    const tutti_bytes_t name = make_key(key, what, rank);
    bool is_there = false;
    TT_TRY(tutti_store_check(native->wait_board, &name, 1, &is_there));
    return is_there ? tutti_store_get(native->wait_board, name, WAIT_BOARD_MS, got) : TUTTI_END;
}

static tutti_status_t get_wait_board(void *user, const char *what, int rank, void *value,
                                     size_t capacity, size_t *bytes)
{
    native_t *native = user;
    tutti_buffer_t got;
    TT_TRY(check_wait_board(native));
    const tutti_status_t status =
        note_wait_board(native, find_on_wait_board(native, what, rank, &got));
    if (status != TUTTI_OK) {
        return status;
    }
    const bool fits = got.bytes <= capacity;
    if (fits) {
        memcpy(value, got.data, got.bytes);
        *bytes = got.bytes;
    }
    tutti_buffer_release(&got);
    return fits ? TUTTI_OK : TUTTI_END;
}

static tutti_status_t open_wait_board(native_t *native, const tt_backend_options_t *options)
{
    if (options->store == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_store_prefix(options->store, tutti_text("wait"), &native->wait_board));
    return tutti_store_set_timeout(native->wait_board, WAIT_BOARD_MS);
}

static tutti_status_t make_coll(native_t *native, const tt_backend_options_t *options)
{
    int64_t report_ms;
    TT_TRY(tt_config_int(TT_CONFIG_REPORT_MS, 1, INT32_MAX, &report_ms));
    TT_TRY(open_wait_board(native, options));
    const tt_coll_options_t coll_options = {
        .rank = options->rank,
        .size = options->size,
        .peers = native->peers,
        .peer_ranks = options->parent != NULL ? options->parent_ranks : NULL,
        .name = native->name,
        .group = tt_fnv(TT_FNV_BEGIN, native->name, strlen(native->name)),
        .epoch = options->epoch,
        .timeout_ms = options->timeout_ms,
        .report_ms = report_ms,
        .world = options->parent != NULL ? ((const native_t *)options->parent)->coll : NULL,
        .wait_board = {.put = native->wait_board != NULL ? put_wait_board : NULL,
                       .get = native->wait_board != NULL ? get_wait_board : NULL,
                       .user = native},
        .rules = tt_config_text(TT_CONFIG_ALGO),
    };
    return tt_coll_create(&coll_options, &native->coll);
}

/* The same from a rank that may die meanwhile. */
static tutti_status_t await_value(const native_t *native, const tt_backend_options_t *options,
                                  const char *what, int rank, tt_deadline_t deadline, void *value,
                                  size_t bytes)
{
    bool is_gone = false;
    for (;;) {
        const tt_deadline_t slice = tt_deadline_in_ms(WATCH_MS);
        const bool is_last = deadline <= slice;
        const tutti_status_t status =
            get_value(options->store, what, rank, is_last ? deadline : slice, value, bytes);
        if (status != TUTTI_ERR_TIMEOUT || is_last) {
            return status;
        }
        if (is_gone) { /* and had left nothing before it went */
            return TT_FAIL(TUTTI_ERR_PEER, "rank %d died or left before it had joined group %s",
                           rank, native->name);
        }
        TT_TRY(options->look != NULL ? options->look(options->look_user) : TUTTI_OK);
        is_gone = tt_coll_is_gone(native->coll, rank);
    }
}

static tutti_status_t exchange_flags(native_t *native, const tt_backend_options_t *options,
                                     tt_deadline_t deadline)
{
    if (!tt_coll_has_node_peers(native->coll)) {
        return TUTTI_OK;
    }
    const tt_heap_address_t mine = tt_coll_address(native->coll);
    TT_TRY(put_value(options->store, "flags", options->rank, &mine, sizeof mine));
    for (int rank = 0; rank < options->size; rank++) {
        tt_heap_address_t place;
        if (rank != options->rank && tt_coll_is_node_peer(native->coll, rank)) {
            TT_TRY(await_value(native, options, "flags", rank, deadline, &place, sizeof place));
            TT_TRY(tt_coll_connect(native->coll, rank, place));
        }
    }
    return TUTTI_OK;
}

/* Rank 0's tuning file and TUTTI_EXACT decide for all: choices must be the same on every rank. */
static tutti_status_t share_tuning(native_t *native, const tt_backend_options_t *options,
                                   tt_deadline_t deadline)
{
    struct {
        char rules[TT_TUNING_BYTES], is_free;
    } tuning = {.rules = ""};
    int64_t is_exact;
    TT_TRY(tt_config_int(TT_CONFIG_EXACT, 0, 1, &is_exact));
    if (options->size == 1 || options->store == NULL) { /* simulated ranks have none */
        return TUTTI_OK;
    }
    if (options->rank == 0) {
        TT_TRY(tt_tuning_load(options->size, tt_coll_wires(native->coll), tuning.rules));
        tuning.is_free = is_exact == 0;
        TT_TRY(put_value(options->store, "tuning", 0, &tuning, sizeof tuning));
    } else {
        TT_TRY(await_value(native, options, "tuning", 0, deadline, &tuning, sizeof tuning));
    }
    tuning.rules[sizeof tuning.rules - 1] = 0;
    tt_coll_rules_t *rules = tt_coll_change_rules(native->coll);
    rules->is_free = tuning.is_free != 0;
    return tt_coll_rules_add_tuned(rules, tuning.rules);
}

static tutti_status_t forget_native(tutti_store_t *store, int rank)
{
    char key[KEY_BYTES];
    TT_TRY(tutti_store_delete(store, make_key(key, "flags", rank), NULL));
    return rank == 0 ? tutti_store_delete(store, make_key(key, "tuning", 0), NULL) : TUTTI_OK;
}

static void close_native(void *state)
{
    native_t *native = state;
    tt_coll_release(native->coll);
    tt_peers_release(native->peers);
    tutti_store_release(native->wait_board);
    tt_free(native->name);
}

static tutti_status_t open_native(void *state, const tt_backend_options_t *options)
{
    native_t *native = state;
    const tt_deadline_t deadline = tt_deadline_in_ms(options->timeout_ms);
    tutti_status_t status = TUTTI_ERR_NOMEM;
    native->name = tt_strdup(options->name, "group name");
    if (native->name == NULL) {
        return status;
    }
    TT_TRY_GOTO(status, find_peers(native, options, deadline), fail);
    TT_TRY_GOTO(status, make_coll(native, options), fail);
    TT_TRY_GOTO(status, exchange_flags(native, options, deadline), fail);
    TT_TRY_GOTO(status, share_tuning(native, options, deadline), fail);
    return TUTTI_OK;
fail:
    close_native(native);
    return status;
}

static tutti_status_t start_native(void *state, const tt_call_t *call, tt_run_t *run)
{
    return tt_coll_start(((native_t *)state)->coll, call, run);
}

static tutti_status_t prepare_native(void *state, const tt_call_t *call, tt_prepared_t **out)
{
    return tt_coll_prepare(((native_t *)state)->coll, call, out);
}

static tutti_status_t start_message_native(void *state, const tt_message_t *message,
                                           tt_message_op_t *op)
{
    return tt_coll_start_message(((native_t *)state)->coll, message, op);
}

static tutti_status_t iprobe_native(void *state, const tt_message_t *message, tt_message_op_t *op)
{
    return tt_coll_iprobe(((native_t *)state)->coll, message, op);
}

static void progress_native(void *state)
{
    tt_coll_progress(((native_t *)state)->coll);
}

static bool is_busy_native(const void *state)
{
    return tt_coll_has_answers(tt_native_coll(state));
}

static tutti_status_t test_native(void *state, tt_op_t *op)
{
    return tt_coll_test(((native_t *)state)->coll, op);
}

static tutti_status_t wait_native(void *state, tt_op_t *op, tt_deadline_t deadline)
{
    return tt_coll_wait(((native_t *)state)->coll, op, deadline);
}

static void wait_until_native(void *state, const tt_until_t *until, tt_deadline_t deadline)
{
    tt_coll_wait_until(((native_t *)state)->coll, until, deadline);
}

static void abort_native(void *state, const char *cause)
{
    tt_coll_abort(((native_t *)state)->coll, cause);
}

static void fail_native(void *state, tutti_status_t status)
{
    tt_coll_fail_for(((native_t *)state)->coll, status);
}

static tt_device_t *memory_native(void *state)
{
    return tt_node_peers_heap(tt_peers_node_peers(((native_t *)state)->peers));
}

static bool is_gone_native(void *state, int rank)
{
    return tt_coll_is_gone(((native_t *)state)->coll, rank);
}

static void locate_native(void *state, int *local_rank, int *local_size)
{
    tt_peers_locate(((native_t *)state)->peers, local_rank, local_size);
}

static tutti_status_t status_native(void *state)
{
    return tt_coll_check(((native_t *)state)->coll);
}

static int64_t uncanonical_sums_native(const void *state)
{
    return tt_coll_uncanonical_sums(tt_native_coll(state));
}

static int64_t sent_bytes_native(const void *state, tt_collective_t collective)
{
    return tt_coll_sent_bytes(tt_native_coll(state), collective);
}

static int64_t sent_message_bytes_native(const void *state)
{
    return tt_coll_sent_message_bytes(tt_native_coll(state));
}

static tutti_status_t dump_native(void *state, const char *path)
{
    return tt_coll_dump(((native_t *)state)->coll, path);
}

tt_coll_t *tt_native_coll(const void *state)
{
    return ((const native_t *)state)->coll;
}

const tt_backend_ops_t tt_backend_native = {
    .name = "native",
    .about = "plans over shared memory and tcp",
    .state_bytes = sizeof(native_t),
    .open = open_native,
    .forget = forget_native,
    .close = close_native,
    .start = start_native,
    .prepare = prepare_native,
    .unprepare = tt_prepared_release,
    .start_message = start_message_native,
    .iprobe = iprobe_native,
    .progress = progress_native,
    .is_busy = is_busy_native,
    .test = test_native,
    .wait = wait_native,
    .wait_until = wait_until_native,
    .abort = abort_native,
    .fail = fail_native,
    .memory = memory_native,
    .is_gone = is_gone_native,
    .locate = locate_native,
    .uncanonical_sums = uncanonical_sums_native,
    .sent_bytes = sent_bytes_native,
    .sent_message_bytes = sent_message_bytes_native,
    .dump = dump_native,
    .status = status_native,
};
