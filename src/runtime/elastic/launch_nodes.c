/* The launchers of several hosts: joining, waiting for the end, leaving.
 *
 * The will has a connection of its own beside the one that waits for the end: when this process
 * dies the kernel closes it, when the host dies the server's keep-alive finds out (6 s), and every
 * other node is reported by the store. When node 0 is lost, all connections end.
 *
 * Cost: 3 connections and 1 thread a node; some 6 messages a node to join.
 * Source: the static rendezvous of torchrun, with an end that all nodes see.
 */
#include "runtime/elastic/launch_nodes.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "runtime/elastic/launch_host.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/reals.h"
#include "core/base/thread.h"

enum {
    STEP_MS = 500,  /* between looks at whether joining is still wanted */
    CALL_MS = 2000, /* a call that waits for no other node */
    FIRST_NOTE_MS = 3000,
    NOTE_MS = 10000,
    END_MS = 3600 * 1000, /* then it is asked for again */
    WATCH_MS = 10000,     /* a store that is silent for longer is lost */
    LEAVE_MS = 5000
};

struct tt_nodes {
    tt_nodes_options_t options;
    char host[64];                /* of this node, a name for people */
    tutti_store_t *store;         /* node 0: the server */
    tutti_store_t *watch;         /* the will, and the wait for the end */
    tt_store_endpoint_t endpoint; /* of the store; of other nodes than 0 */
    tt_deadline_t deadline, next_note;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_closing, is_store_lost;
    int attempt;           /* changed while the thread waits for that */
    int port;              /* of the attempt's store, on node 0 */
    pthread_mutex_t mutex; /* over what follows */
    pthread_cond_t again;
    bool is_again; /* another attempt is wanted */
    tt_nodes_state_t state;
    tt_nodes_layout_t layout;
    tt_job_end_t end;
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    char note[256];
};

/* ---- texts ----------------------------------------------------------------------------------- */

static tutti_bytes_t key_of(char text[48], const char *what, int node)
{
    const int bytes = snprintf(text, 48, "launch/%s/%d", what, node);
    return (tutti_bytes_t){text, (size_t)bytes};
}

/* Of the end of an attempt. */
static tutti_bytes_t end_key(char text[48], int attempt)
{
    const int bytes = attempt == 0 ? snprintf(text, 48, "launch/end")
                                   : snprintf(text, 48, "launch/end/%d", attempt);
    return (tutti_bytes_t){text, (size_t)bytes};
}

static void name_host(char host[64])
{
    host[63] = 0;
    if (gethostname(host, 63) != 0 || host[0] == 0) {
        snprintf(host, 64, "unknown");
    }
    for (char *at = host; *at != 0; at++) {
        *at = *at > ' ' && *at < 127 ? *at : '_';
    }
}

/* ---- shared state ---------------------------------------------------------------------------- */

static void set_state(tt_nodes_t *nodes, tt_nodes_state_t state)
{
    pthread_mutex_lock(&nodes->mutex);
    nodes->state = state;
    pthread_mutex_unlock(&nodes->mutex);
    nodes->options.changed(nodes->options.user);
}

static void set_failed(tt_nodes_t *nodes, tutti_status_t status)
{
    pthread_mutex_lock(&nodes->mutex);
    nodes->status = status;
    snprintf(nodes->error, sizeof nodes->error, "%s", tutti_last_error());
    pthread_mutex_unlock(&nodes->mutex);
    set_state(nodes, TT_NODES_FAILED);
}

/* Now and then while it waits, at once for the first time that is worth it. */
__attribute__((format(printf, 2, 3))) static void note(tt_nodes_t *nodes, const char *format, ...)
{
    va_list args;
    if (!tt_deadline_is_past(nodes->next_note)) {
        return;
    }
    nodes->next_note = tt_deadline_in_ms(NOTE_MS);
    va_start(args, format);
    pthread_mutex_lock(&nodes->mutex);
    tt_format_list(nodes->note, sizeof nodes->note, format, args);
    pthread_mutex_unlock(&nodes->mutex);
    va_end(args);
    nodes->options.changed(nodes->options.user);
}

static bool is_closing(const void *user)
{
    const tt_nodes_t *nodes = user;
    return nodes->is_closing;
}

static tutti_status_t check_wanted(const tt_nodes_t *nodes)
{
    return is_closing(nodes) ? TT_FAIL(TUTTI_ERR_ABORTED, "stopped while the nodes meet")
                             : TUTTI_OK;
}

/* ---- joining --------------------------------------------------------------------------------- */

static tutti_status_t try_to_connect(const tt_nodes_t *nodes, tutti_store_t **out)
{
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_find(nodes->options.host, 0, &credentials));
    const tutti_status_t status =
        tt_store_tcp_connect_to(&nodes->endpoint, credentials, tt_deadline_in_ms(STEP_MS), out);
    tt_credentials_release(credentials);
    return status;
}

/* One try after the other, so that a stop is seen. What is there but refuses us is final. */
static tutti_status_t connect_to(tt_nodes_t *nodes, tutti_store_t **out)
{
    const tt_nodes_options_t *options = &nodes->options;
    for (;;) {
        TT_TRY(check_wanted(nodes));
        const tutti_status_t status = try_to_connect(nodes, out);
        if (status != TUTTI_ERR_TIMEOUT && status != TUTTI_ERR_IO && status != TUTTI_ERR_PEER) {
            return status;
        }
        if (tt_deadline_is_past(nodes->deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "node %d of %d waited for node 0: %s",
                           options->node_rank, options->node_count, tutti_last_error());
        }
        note(nodes, "node %d of %d waits for node 0 at %s, port %d", options->node_rank,
             options->node_count, options->host, options->port);
    }
}

/* Whether a node will not come: it has gone since this attempt began, or in the one before. */
static tutti_status_t find_leaver(tt_nodes_t *nodes, bool *found)
{
    char key[48];
    tutti_buffer_t value;
    const tutti_bytes_t end = end_key(key, nodes->attempt);
    TT_TRY(tutti_store_check(nodes->store, &end, 1, found));
    if (*found || nodes->attempt == 0) {
        return TUTTI_OK;
    }
    tt_job_end_t before = {.rank = 0};
    TT_TRY(tutti_store_get(nodes->store, end_key(key, nodes->attempt - 1), CALL_MS, &value));
    tt_job_end_choose((const char *)value.data, &before);
    tutti_buffer_release(&value);
    *found = before.rank < 0;
    return TUTTI_OK;
}

/* As soon as the key is there; NULL when the time or the job is over. */
static tutti_status_t await_key(tt_nodes_t *nodes, tutti_bytes_t key, int node, tutti_buffer_t *out)
{
    for (;;) {
        bool has_left = false;
        TT_TRY(check_wanted(nodes));
        const tutti_status_t status = tutti_store_get(nodes->store, key, STEP_MS, out);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        TT_TRY(find_leaver(nodes, &has_left));
        if (has_left) {
            return TT_FAIL(TUTTI_ERR_ABORTED, "a node left before node %d came%s", node,
                           nodes->attempt > 0 ? " for a restart" : "");
        }
        if (tt_deadline_is_past(nodes->deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "node %d of %d waited for node %d to come",
                           nodes->options.node_rank, nodes->options.node_count, node);
        }
        note(nodes, "node %d of %d waits for node %d", nodes->options.node_rank,
             nodes->options.node_count, node);
    }
}

/* What all must have been started with. */
static tutti_status_t agree_on_job(tt_nodes_t *nodes)
{
    const tt_nodes_options_t *options = &nodes->options;
    char text[96];
    int node_count = 0, restarts = 0;
    if (options->node_rank == 0) {
        snprintf(text, sizeof text, "%d %.63s %d", options->node_count, options->run_id,
                 options->max_restarts);
        TT_TRY(tutti_store_set(nodes->store, tutti_text("launch/job"), tutti_text(text)));
    }
    tutti_buffer_t value;
    TT_TRY(await_key(nodes, tutti_text("launch/job"), 0, &value));
    const bool is_read =
        value.bytes < sizeof text && sscanf((const char *)value.data, "%9d %63s %9d", &node_count,
                                            nodes->layout.run_id, &restarts) == 3;
    tutti_buffer_release(&value);
    if (!is_read || node_count != options->node_count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "node %d was started with --nnodes %d, node 0 with %d",
                       options->node_rank, options->node_count, node_count);
    }
    if (restarts != options->max_restarts) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "node %d was started with --max-restarts %d, node 0 with %d",
                       options->node_rank, options->max_restarts, restarts);
    }
    if (options->run_id != NULL && strcmp(options->run_id, nodes->layout.run_id) != 0) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "node %d was started with --rdzv-id %s, node 0 with %s",
                       options->node_rank, options->run_id, nodes->layout.run_id);
    }
    return TUTTI_OK;
}

/* What is written when this node is lost in an attempt. */
static tutti_status_t leave_will(tt_nodes_t *nodes, int attempt)
{
    char key[48], text[96];
    tt_job_end_t will = {.node = nodes->options.node_rank, .rank = -1};
    snprintf(will.host, sizeof will.host, "%s", nodes->host);
    const int bytes = tt_job_end_print(&will, text, sizeof text);
    return tt_store_will(nodes->watch, end_key(key, attempt), (tutti_bytes_t){text, (size_t)bytes});
}

/* Opens the connection that waits for the end, while a failure still counts. */
static tutti_status_t open_watch(tt_nodes_t *nodes)
{
    bool has_ended;
    const tutti_bytes_t end = tutti_text("launch/end");
    TT_TRY(connect_to(nodes, &nodes->watch));
    TT_TRY(tutti_store_set_timeout(nodes->watch, WATCH_MS));
    TT_TRY(leave_will(nodes, 0));
    return tutti_store_check(nodes->watch, &end, 1, &has_ended);
}

static tutti_status_t claim_place(tt_nodes_t *nodes)
{
    char key[48], text[96];
    const int node = nodes->options.node_rank;
    int64_t claims;
    TT_TRY(tutti_store_add(nodes->store, key_of(key, "claim", node), 1, &claims));
    if (claims > 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "another launcher is node %d already; give every host its own --node-rank",
                       node);
    }
    if (node > 0) {
        TT_TRY(open_watch(nodes));
    } else {
        nodes->watch = tutti_store_retain(nodes->store);
    }
    snprintf(text, sizeof text, "%d %s", nodes->options.local_count, nodes->host);
    return tutti_store_set(nodes->store, key_of(key, "node", node), tutti_text(text));
}

static tutti_status_t count_ranks(tt_nodes_t *nodes)
{
    for (int i = 0; i < nodes->options.node_count; i++) {
        char key[48];
        tutti_buffer_t value;
        TT_TRY(await_key(nodes, key_of(key, "node", i), i, &value));
        const long count = strtol((const char *)value.data, NULL, 10);
        tutti_buffer_release(&value);
        if (count < 1 || count > (1 << 16)) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "node %d says that it has %ld ranks", i, count);
        }
        nodes->layout.first_rank += i < nodes->options.node_rank ? (int)count : 0;
        nodes->layout.world_size += (int)count;
    }
    return TUTTI_OK;
}

static tutti_status_t join(tt_nodes_t *nodes)
{
    if (nodes->options.node_rank > 0) {
        nodes->endpoint =
            (tt_store_endpoint_t){.host = nodes->options.host, .port = nodes->options.port};
        TT_TRY(tt_launch_host_find(&nodes->endpoint, nodes->deadline, is_closing, nodes));
        TT_TRY(connect_to(nodes, &nodes->store));
    }
    TT_TRY(tutti_store_set_timeout(nodes->store, CALL_MS));
    TT_TRY(agree_on_job(nodes));
    TT_TRY(claim_place(nodes));
    nodes->layout.port =
        nodes->options.node_rank == 0 ? tutti_store_port(nodes->store) : nodes->options.port;
    return count_ranks(nodes);
}

/* Each node says that none of its ranks is left; node 0 says where the new store is. */
static tutti_status_t join_again(tt_nodes_t *nodes)
{
    char name[48], key[48], port[16];
    nodes->deadline = tt_deadline_in_ms(nodes->options.join_timeout_ms);
    nodes->next_note = tt_deadline_in_ms(FIRST_NOTE_MS);
    snprintf(name, sizeof name, "ready/%d", nodes->attempt);
    snprintf(port, sizeof port, "%d", nodes->port);
    TT_TRY(tutti_store_set(nodes->store, key_of(key, name, nodes->options.node_rank),
                           tutti_text(port)));
    for (int i = 0; i < nodes->options.node_count; i++) {
        tutti_buffer_t value;
        TT_TRY(await_key(nodes, key_of(key, name, i), i, &value));
        if (i == 0) {
            nodes->layout.port = (int)strtol((const char *)value.data, NULL, 10);
        }
        tutti_buffer_release(&value);
    }
    return TUTTI_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* From now on leaving is no failure, unless there may be another attempt. */
static void renew_will(tt_nodes_t *nodes, const tt_job_end_t *end)
{
    if (end->rank >= 0 && nodes->attempt < nodes->options.max_restarts) {
        (void)leave_will(nodes, nodes->attempt + 1);
    } else {
        (void)tt_store_will(nodes->watch, tutti_text("launch/end"), tutti_text(""));
    }
}

/* A timeout that comes early is the connection's: the other host is gone. After one that comes late
 * another connection may be needed, which must not be waited for as long as the end. */
static tutti_status_t get_end(tt_nodes_t *nodes, tutti_buffer_t *out)
{
    char text[48];
    const tutti_bytes_t key = end_key(text, nodes->attempt);
    for (;;) {
        bool has_ended;
        const int64_t asked_ns = tt_clock_ns();
        const tutti_status_t status = tutti_store_get(nodes->watch, key, END_MS, out);
        if (status != TUTTI_ERR_TIMEOUT || nodes->is_closing ||
            tt_clock_ns() - asked_ns <= END_MS / 2 * TT_NS_PER_MS) {
            return status;
        }
        TT_TRY(tutti_store_check(nodes->watch, &key, 1, &has_ended));
    }
}

static void await_end(tt_nodes_t *nodes)
{
    tutti_buffer_t value;
    const tutti_status_t status = get_end(nodes, &value);
    tt_job_end_t end = {.rank = -1};
    snprintf(end.host, sizeof end.host, "%s", nodes->options.host);
    if (status >= 0) {
        tt_job_end_choose((const char *)value.data, &end);
        tutti_buffer_release(&value);
        renew_will(nodes, &end);
    }
    nodes->is_store_lost = status < 0;
    pthread_mutex_lock(&nodes->mutex);
    nodes->end = end; /* of node 0, when the store is gone */
    pthread_mutex_unlock(&nodes->mutex);
    set_state(nodes, TT_NODES_ENDED);
}

/* Until it is closed, or goes on. */
static bool await_again(tt_nodes_t *nodes)
{
    pthread_mutex_lock(&nodes->mutex);
    while (!nodes->is_again && !nodes->is_closing) {
        pthread_cond_wait(&nodes->again, &nodes->mutex);
    }
    const bool is_again = nodes->is_again && !nodes->is_closing;
    nodes->is_again = false;
    pthread_mutex_unlock(&nodes->mutex);
    return is_again;
}

static void *run(void *user)
{
    tt_nodes_t *nodes = user;
    tutti_status_t status = join(nodes);
    while (status >= 0) {
        set_state(nodes, TT_NODES_JOINED);
        await_end(nodes);
        if (!await_again(nodes)) {
            return NULL;
        }
        status = join_again(nodes);
    }
    set_failed(nodes, status);
    return NULL;
}

/* ---- for the agent --------------------------------------------------------------------------- */

static tutti_status_t start_thread(tt_nodes_t *nodes)
{
    const tutti_status_t status = tt_thread_start(run, nodes, "hosts of the job", &nodes->thread);
    nodes->has_thread = status >= 0;
    return status;
}

static void free_nodes(tt_nodes_t *nodes)
{
    tutti_store_release(nodes->watch);
    tutti_store_release(nodes->store);
    pthread_cond_destroy(&nodes->again);
    pthread_mutex_destroy(&nodes->mutex);
    tt_free(nodes);
}

tutti_status_t tt_nodes_start(const tt_nodes_options_t *options, tt_nodes_t **out)
{
    tt_nodes_t *nodes = tt_alloc(sizeof *nodes, "nodes");
    TT_TRY_ALLOC(nodes);
    nodes->options = *options;
    nodes->deadline = tt_deadline_in_ms(options->join_timeout_ms);
    nodes->next_note = tt_deadline_in_ms(FIRST_NOTE_MS);
    pthread_mutex_init(&nodes->mutex, NULL);
    pthread_cond_init(&nodes->again, NULL);
    name_host(nodes->host);
    tutti_status_t status = TUTTI_OK;
    if (options->node_rank == 0) {
        status = tt_launch_host_listen(options->host, options->port, &nodes->store);
    }
    if (status >= 0) {
        status = start_thread(nodes);
    }
    if (status < 0) {
        free_nodes(nodes);
        return status;
    }
    *out = nodes;
    return TUTTI_OK;
}

int tt_nodes_port(const tt_nodes_t *nodes)
{
    return tutti_store_port(nodes->store);
}

tt_nodes_state_t tt_nodes_state(tt_nodes_t *nodes, tt_nodes_layout_t *layout, tt_job_end_t *end)
{
    pthread_mutex_lock(&nodes->mutex);
    const tt_nodes_state_t state = nodes->state;
    if (layout != NULL && state != TT_NODES_JOINING) {
        *layout = nodes->layout;
    }
    if (end != NULL && state == TT_NODES_ENDED) {
        *end = nodes->end;
    }
    pthread_mutex_unlock(&nodes->mutex);
    return state;
}

void tt_nodes_again(tt_nodes_t *nodes, int attempt, int port)
{
    pthread_mutex_lock(&nodes->mutex);
    nodes->attempt = attempt;
    nodes->port = port;
    nodes->state = TT_NODES_JOINING;
    nodes->is_again = true;
    pthread_cond_signal(&nodes->again);
    pthread_mutex_unlock(&nodes->mutex);
}

tutti_status_t tt_nodes_error(tt_nodes_t *nodes)
{
    return tt_fail_again(nodes->status, nodes->error);
}

bool tt_nodes_take_note(tt_nodes_t *nodes, char *text, size_t bytes)
{
    pthread_mutex_lock(&nodes->mutex);
    snprintf(text, bytes, "%s", nodes->note);
    nodes->note[0] = 0;
    pthread_mutex_unlock(&nodes->mutex);
    return text[0] != 0;
}

/* If this fails the store is lost, which the node's thread finds out: it waits there. */
static void append_end(tt_nodes_t *nodes, const tt_job_end_t *end)
{
    char key[48], text[160];
    const int bytes = tt_job_end_print(end, text, sizeof text);
    (void)tutti_store_append(nodes->store, end_key(key, nodes->attempt),
                             (tutti_bytes_t){text, (size_t)bytes});
}

void tt_nodes_report(tt_nodes_t *nodes, const tt_job_end_t *end)
{
    tt_job_end_t complete = *end;
    complete.node = nodes->options.node_rank;
    snprintf(complete.host, sizeof complete.host, "%s", nodes->host);
    append_end(nodes, &complete);
}

void tt_nodes_done(tt_nodes_t *nodes)
{
    char key[48];
    int64_t done = 0;
    if (tutti_store_add(nodes->store, key_of(key, "done", nodes->attempt), 1, &done) >= 0 &&
        done == nodes->options.node_count) {
        append_end(nodes, &(tt_job_end_t){.is_ok = true});
    }
}

/* The last one that has read the end says so; node 0 waits for that. */
static void leave(tt_nodes_t *nodes, tt_job_end_t *end)
{
    char key[48];
    tutti_buffer_t value;
    int64_t left = 0;
    int lost = 0;
    if (nodes->is_store_lost) {
        return;
    }
    if (tutti_store_get(nodes->store, end_key(key, nodes->attempt), CALL_MS, &value) >= 0) {
        tt_job_end_choose((const char *)value.data, end);
        lost = tt_job_end_count_lost((const char *)value.data);
        tutti_buffer_release(&value);
    }
    if (tutti_store_add(nodes->store, tutti_text("launch/left"), 1, &left) >= 0 &&
        left == nodes->options.node_count - lost) {
        (void)tutti_store_set(nodes->store, tutti_text("launch/gone"), tutti_text("1"));
    } else if (nodes->options.node_rank == 0 &&
               tutti_store_get(nodes->store, tutti_text("launch/gone"), LEAVE_MS, &value) >= 0) {
        tutti_buffer_release(&value);
    }
}

void tt_nodes_close(tt_nodes_t *nodes, tt_job_end_t *end)
{
    if (nodes == NULL) {
        return;
    }
    pthread_mutex_lock(&nodes->mutex);
    nodes->is_closing = true;
    pthread_cond_signal(&nodes->again);
    pthread_mutex_unlock(&nodes->mutex);
    if (tt_nodes_state(nodes, NULL, NULL) == TT_NODES_ENDED) {
        leave(nodes, end);
    } else if (tt_nodes_state(nodes, NULL, NULL) == TT_NODES_JOINED) {
        tutti_store_abort(nodes->watch);
    }
    if (nodes->has_thread) {
        pthread_join(nodes->thread, NULL);
    }
    free_nodes(nodes);
}
