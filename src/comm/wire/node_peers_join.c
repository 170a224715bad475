/* How the ranks of a host meet.
 *
 *     every rank   opens a heap, listens on an abstract socket with a random name, puts its peer
 *                  info (the name and a random token) into the directory
 *     rank i       connects to every lower rank and greets it, then accepts every higher rank
 *     both         check the user (SO_PEERCRED) and the token, then map each other's segments
 *
 * No rank waits for an answer before it has greeted all lower ranks, so the order cannot deadlock.
 * A stranger's connection is closed and forgotten; one who presses a rank out of the listener's
 * list of callers makes it call again.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/cores.h"
#include "comm/wire/node_peers_impl.h"
#include "core/base/alloc.h"

enum { CALLS_MAX = 100, INFO_SLICE_MS = 20, REFUSALS_MS = 500 };

static tt_unix_address_t address_of(const tt_node_peer_info_t *info)
{
    char name[8 + 2 * sizeof info->name];
    size_t length = (size_t)snprintf(name, sizeof name, "tutti-");
    for (size_t i = 0; i < sizeof info->name; i++) {
        length += (size_t)snprintf(name + length, sizeof name - length, "%02x", info->name[i]);
    }
    return tt_unix_address(name);
}

static tutti_status_t make_info(tt_node_peer_info_t *info)
{
    if (getrandom(info, sizeof *info, 0) != (ssize_t)sizeof *info) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    return TUTTI_OK;
}

tutti_status_t tt_refusal_check(const tt_refusal_t *refusal, int rank)
{
    const int length = (int)sizeof refusal->text - 1;
    return refusal->magic != TT_REFUSAL_MAGIC
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_PEER, "rank %d did not join: %.*s", rank, length, refusal->text);
}

/* Whether a rank has said that it does not join, by the deadline. A directory that does not answer
 * says nothing. */
static tutti_status_t look_for_refusal(const tt_node_peers_t *node_peers,
                                       const tt_directory_t *directory, int rank,
                                       tt_deadline_t deadline)
{
    tt_refusal_t refusal = {0};
    const int name = tt_node_peers_name(node_peers, rank);
    return directory->get(directory->user, TT_INFO_REFUSAL, name, deadline, &refusal) < 0
               ? TUTTI_OK
               : tt_refusal_check(&refusal, name);
}

/* A rank that could not join has put a peer info of zeros. */
static tutti_status_t get_info(const tt_node_peers_t *node_peers, const tt_directory_t *directory,
                               int rank, tt_deadline_t deadline)
{
    static const tt_node_peer_info_t none;
    tt_node_peer_info_t *info = &node_peers->node_peers[rank].info;
    TT_TRY(directory->get(directory->user, TT_INFO_NODE_PEER, tt_node_peers_name(node_peers, rank),
                          deadline, info));
    if (memcmp(info, &none, sizeof none) != 0) {
        return TUTTI_OK;
    }
    TT_TRY(look_for_refusal(node_peers, directory, rank, tt_clock_ns()));
    return TT_FAIL(TUTTI_ERR_PEER, "rank %d did not join", tt_node_peers_name(node_peers, rank));
}

/* A rank that was here. One that lives says why in a moment, for it leaves first. */
static tutti_status_t fail_gone(const tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                int rank)
{
    const tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    TT_TRY(look_for_refusal(node_peers, directory, rank,
                            node_peer->has_ended ? tt_clock_ns() : tt_deadline_in_ms(REFUSALS_MS)));
    return TT_FAIL(TUTTI_ERR_PEER, "while joining: rank %d %s",
                   tt_node_peers_name(node_peers, rank),
                   node_peer->has_left ? "gave up" : tt_node_peers_how(node_peers, rank));
}

/* The socket to a rank is there: from now on its death is seen. One that has hung up by now is told
 * apart by its caller. */
static tutti_status_t greet(tt_node_peers_t *node_peers, int rank, int fd)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    node_peer->fd = fd;
    if (node_peer->pidfd >= 0) { /* of the last call */
        close(node_peer->pidfd);
    }
    node_peer->pidfd = tt_unix_peer_process(fd);
    const tutti_status_t status = tt_node_peers_greet(node_peers, rank);
    if (status == TUTTI_ERR_PEER) {
        tt_node_peers_receive(node_peers, rank); /* its last words */
    }
    return node_peer->fd < 0 ? TUTTI_OK : status;
}

static tutti_status_t connect_to(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                 int rank, tt_deadline_t deadline)
{
    uid_t uid;
    int fd;
    const tt_unix_address_t address = address_of(&node_peers->node_peers[rank].info);
    const tutti_status_t status = tt_unix_connect(&address, deadline, &fd);
    if (status == TUTTI_PENDING) {
        TT_TRY(look_for_refusal(node_peers, directory, rank, tt_deadline_in_ms(REFUSALS_MS)));
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "rank %d is gone, or on another host than rank %d: its Unix socket is "
                       "not here; ranks of several hosts need the tcp wire, and hosts with one "
                       "boot id (copies of a virtual machine) TUTTI_WIRES=tcp",
                       tt_node_peers_name(node_peers, rank),
                       tt_node_peers_name(node_peers, node_peers->rank));
    }
    if (status < 0) {
        return TT_FAIL(status, "rank %d to rank %d: %s",
                       tt_node_peers_name(node_peers, node_peers->rank),
                       tt_node_peers_name(node_peers, rank), tutti_last_error());
    }
    if (!tt_unix_is_same_user(fd, &uid)) {
        tt_socket_close(fd);
        return TT_FAIL(TUTTI_ERR_AUTH, "rank %d runs as another user",
                       tt_node_peers_name(node_peers, rank));
    }
    return greet(node_peers, rank, fd);
}

/* The rank that a caller says it is; -1: none that is awaited. */
static int rank_of(const tt_node_peers_t *node_peers, const tt_node_peer_message_t *hello)
{
    const bool is_awaited = hello->magic == TT_NODE_PEER_MAGIC &&
                            hello->kind == TT_NODE_PEER_HELLO && hello->rank > node_peers->rank &&
                            hello->rank < node_peers->size &&
                            node_peers->node_peers[hello->rank].fd < 0;
    return is_awaited ? hello->rank : -1;
}

/* A process has said hello, which proves nothing before the token has been compared. */
static tutti_status_t take_in(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                              int rank, int fd, tt_deadline_t deadline)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    node_peer->fd = fd;
    tt_node_peers_receive(node_peers, rank);
    if (!node_peer
             ->has_greeted) { /* the token was wrong: a stranger, the real one may still come */
        node_peer->state = TT_NODE_PEER_HERE;
        node_peer->is_refused = false;
        return TUTTI_OK;
    }
    TT_TRY(tt_node_peers_status(node_peers));
    if (node_peer->fd >= 0) {
        tt_unix_set_send_deadline(fd, deadline);
        TT_TRY(greet(node_peers, rank, fd));
    }
    return node_peer->fd >= 0 ? TUTTI_OK : fail_gone(node_peers, directory, rank);
}

static tutti_status_t take_callers(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                   tt_unix_listener_t *listener, tt_deadline_t deadline)
{
    tt_node_peer_message_t hello;
    int fd;
    for (;;) {
        TT_TRY(tt_unix_listener_next(listener, &hello, sizeof hello, &fd));
        if (fd < 0) {
            return TUTTI_OK;
        }
        const int rank = rank_of(node_peers, &hello);
        if (rank < 0) {
            tt_socket_close(fd);
        } else {
            TT_TRY(take_in(node_peers, directory, rank, fd, deadline));
        }
    }
}

static bool is_complete(const tt_node_peer_t *node_peer)
{
    return node_peer->has_greeted && node_peer->segments_seen >= node_peer->segments_due;
}

static tutti_status_t name_missing(const tt_node_peers_t *node_peers)
{
    char ranks[200] = "";
    size_t length = 0;
    for (int i = 0; i < node_peers->size && length + 16 < sizeof ranks; i++) {
        if (i != node_peers->rank && !is_complete(&node_peers->node_peers[i])) {
            length += (size_t)snprintf(ranks + length, sizeof ranks - length, "%s%d",
                                       length > 0 ? ", " : "", tt_node_peers_name(node_peers, i));
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d waited for rank%s %s to join",
                   tt_node_peers_name(node_peers, node_peers->rank),
                   strchr(ranks, ',') != NULL ? "s" : "", ranks);
}

static tutti_status_t find_block(tt_node_peers_t *node_peers, int rank)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    const tt_heap_span_t span = {node_peer->block_address, sizeof *node_peer->block,
                                 _Alignof(tt_node_peer_block_t)};
    void *block;
    const tutti_status_t status = tt_node_peers_find(node_peers, rank, span, &block);
    TT_TRY(status);
    node_peer->block = status == TUTTI_OK ? block : NULL; /* its segments are all here */
    if (node_peer->block == NULL || node_peer->block->magic != TT_NODE_PEER_MAGIC ||
        node_peer->block->version != TT_NODE_PEER_VERSION) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d speaks another version of the shared heap",
                       tt_node_peers_name(node_peers, rank));
    }
    return TUTTI_OK;
}

/* A lower rank that hung up before it has greeted was pressed by strangers: it is called again, and
 * refuses if it has died. */
static bool may_call_again(const tt_node_peers_t *node_peers, int rank)
{
    const tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    return rank < node_peers->rank && node_peer->state == TT_NODE_PEER_DEAD &&
           !node_peer->has_greeted && !node_peer->has_ended && node_peer->calls < CALLS_MAX;
}

static tutti_status_t call_again(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                 int rank, tt_deadline_t deadline)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    node_peer->calls++;
    node_peer->state = TT_NODE_PEER_HERE;
    node_peer->is_refused = false;
    return connect_to(node_peers, directory, rank, deadline);
}

/* How many are still to come; those who died are an error. */
static tutti_status_t count_missing(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                    tt_deadline_t deadline, int *missing)
{
    *missing = 0;
    for (int i = 0; i < node_peers->size; i++) {
        const tt_node_peer_t *node_peer = &node_peers->node_peers[i];
        if (i == node_peers->rank || is_complete(node_peer)) {
            continue;
        }
        *missing += 1;
        if (may_call_again(node_peers, i)) {
            TT_TRY(call_again(node_peers, directory, i, deadline));
        } else if (node_peer->state != TT_NODE_PEER_HERE) {
            return fail_gone(node_peers, directory, i);
        }
    }
    return TUTTI_OK;
}

/* Those that are to call have shown where they are, and may find only then that they cannot. A
 * store that answers late must not keep callers waiting: the next look goes on at *next. */
static tutti_status_t look_for_refusals(const tt_node_peers_t *node_peers,
                                        const tt_directory_t *directory, int *next)
{
    const int first = node_peers->rank + 1, count = node_peers->size - first;
    const tt_deadline_t end = tt_deadline_in_ms(REFUSALS_MS);
    for (int i = 0; i < count && !tt_deadline_is_past(end); i++) {
        const int rank = first + *next;
        *next = (*next + 1) % count;
        if (node_peers->node_peers[rank].fd < 0 && !is_complete(&node_peers->node_peers[rank])) {
            TT_TRY(look_for_refusal(node_peers, directory, rank, tt_clock_ns()));
        }
    }
    return TUTTI_OK;
}

/* Accept who is to come and read what they send, until all are complete. */
static tutti_status_t gather(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                             tt_unix_listener_t *listener, tt_deadline_t deadline)
{
    tt_deadline_t look = tt_deadline_in_ms(REFUSALS_MS);
    int next = 0; /* of those that may refuse */
    for (;;) {
        int missing;
        TT_TRY(count_missing(node_peers, directory, deadline, &missing));
        if (missing == 0) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(deadline)) {
            return name_missing(node_peers);
        }
        const int own = tt_node_peers_polls(node_peers, node_peers->polls);
        const int all = own + tt_unix_listener_polls(listener, node_peers->polls + own);
        (void)poll(node_peers->polls, (nfds_t)all,
                   tt_deadline_left_ms(look < deadline ? look : deadline));
        tt_node_peers_look_at_polls(node_peers);
        TT_TRY(tt_node_peers_status(node_peers));
        TT_TRY(take_callers(node_peers, directory, listener, deadline));
        if (tt_deadline_is_past(look)) {
            TT_TRY(look_for_refusals(node_peers, directory, &next));
            look = tt_deadline_in_ms(REFUSALS_MS);
        }
    }
}

/* More ranks than cores here; tt_node_peers_set_oversubscribed() knows of others on this machine
 * too. */
static void judge_oversubscription(tt_node_peers_t *node_peers)
{
    uint8_t cpus[sizeof node_peers->block->cpus] = {0};
    for (int i = 0; i < node_peers->size; i++) {
        const tt_node_peer_block_t *block =
            i == node_peers->rank ? node_peers->block : node_peers->node_peers[i].block;
        tt_cores_add(cpus, sizeof cpus, block->cpus, sizeof cpus);
    }
    node_peers->is_oversubscribed = node_peers->size > tt_cores_count(cpus, sizeof cpus);
}

static tutti_status_t open_block(tt_node_peers_t *node_peers)
{
    node_peers->block =
        tt_device_alloc(node_peers->heap, sizeof *node_peers->block, "node peer block");
    TT_TRY_ALLOC(node_peers->block);
    memset(node_peers->block, 0, sizeof *node_peers->block);
    node_peers->block->magic = TT_NODE_PEER_MAGIC;
    node_peers->block->version = TT_NODE_PEER_VERSION;
    node_peers->block->rank = node_peers->rank;
    node_peers->block->pid = (int32_t)getpid();
    tt_cores_find(node_peers->block->cpus, sizeof node_peers->block->cpus);
    return TUTTI_OK;
}

/* The peer info of a rank that is to call. Those who are here already may die meanwhile. */
static tutti_status_t await_info(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                 int rank, tt_deadline_t deadline)
{
    for (;;) {
        int missing;
        const tt_deadline_t slice = tt_deadline_in_ms(INFO_SLICE_MS);
        const bool is_last = deadline <= slice;
        const tutti_status_t status =
            get_info(node_peers, directory, rank, is_last ? deadline : slice);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        if (is_last) {
            return name_missing(node_peers);
        }
        tt_node_peers_check(node_peers);
        TT_TRY(tt_node_peers_status(node_peers));
        TT_TRY(count_missing(node_peers, directory, deadline, &missing));
    }
}

static tutti_status_t meet_all(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                               tt_unix_listener_t *listener, tt_deadline_t deadline)
{
    TT_TRY(tt_directory_put(directory, TT_INFO_NODE_PEER,
                            tt_node_peers_name(node_peers, node_peers->rank), &node_peers->info));
    for (int i = 0; i < node_peers->rank; i++) {
        TT_TRY(get_info(node_peers, directory, i, deadline));
        TT_TRY(connect_to(node_peers, directory, i, deadline));
    }
    for (int i = node_peers->rank + 1; i < node_peers->size; i++) {
        TT_TRY(await_info(node_peers, directory, i, deadline));
    }
    TT_TRY(gather(node_peers, directory, listener, deadline));
    for (int i = 0; i < node_peers->size; i++) {
        if (i != node_peers->rank) {
            TT_TRY(find_block(node_peers, i));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t meet(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                           tt_deadline_t deadline)
{
    TT_TRY(make_info(&node_peers->info));
    tt_unix_listener_t listener;
    const tt_unix_address_t address = address_of(&node_peers->info);
    tutti_status_t status = tt_unix_listen(&address, &listener);
    if (status != TUTTI_OK) {
        return status < 0 ? status : TT_FAIL(TUTTI_ERR_IO, "the name of a random socket is taken");
    }
    status = meet_all(node_peers, directory, &listener, deadline);
    tt_unix_listener_close(&listener);
    return status;
}

static tutti_status_t open_node_peers(tt_node_peers_t *node_peers, const tt_directory_t *directory,
                                      tt_deadline_t deadline)
{
    const size_t size = (size_t)node_peers->size;
    node_peers->node_peers = tt_alloc_array(size, sizeof *node_peers->node_peers, "node peers");
    TT_TRY_ALLOC(node_peers->node_peers);
    for (int i = 0; i < node_peers->size; i++) {
        node_peers->node_peers[i].fd = node_peers->node_peers[i].pidfd = -1;
    }
    node_peers->polls =
        tt_alloc_array(2 * size + 1 + TT_UNIX_CALLERS_MAX, sizeof *node_peers->polls, "node peers");
    TT_TRY_ALLOC(node_peers->polls);
    TT_TRY(tt_device_open(&tt_device_heap, NULL, &node_peers->heap));
    TT_TRY(open_block(node_peers));
    if (node_peers->size > 1) {
        TT_TRY(meet(node_peers, directory, deadline));
    }
    tt_heap_set_on_segment(node_peers->heap, tt_node_peers_on_segment, node_peers);
    judge_oversubscription(node_peers);
    return TUTTI_OK;
}

tutti_status_t tt_node_peers_join(int rank, int size, const tt_directory_t *directory,
                                  tt_deadline_t deadline, tt_node_peers_t **out)
{
    tt_node_peers_t *node_peers = tt_alloc(sizeof *node_peers, "node peers");
    TT_TRY_ALLOC(node_peers);
    tt_ref_init(&node_peers->ref);
    node_peers->rank = rank;
    node_peers->size = size;
    node_peers->names = directory->ranks;
    node_peers->starved = -1;
    STAILQ_INIT(&node_peers->quarantines);
    pthread_mutex_init(&node_peers->telling, NULL);
    const tutti_status_t status = open_node_peers(node_peers, directory, deadline);
    if (status < 0) {
        tt_node_peers_release(node_peers);
        return status;
    }
    *out = node_peers;
    return TUTTI_OK;
}
