/* Peers: who is on which host, and the local ranks among them.
 *
 * Every rank puts a peer info into the directory and reads everyone's; ranks whose peer infos name
 * the same host join as local ranks. A host is known by its boot id and network namespace (network
 * namespaces count as hosts, since no abstract Unix socket leads from one to another).
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/cores.h"
#include "comm/wire/peers_impl.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/fnv.h"

typedef struct {
    bool shm, tcp;
} wires_t;

static uint64_t hash_machine(void)
{
    char boot[64];
    const size_t n = tt_file_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    return tt_fnv(TT_FNV_BEGIN, boot, n);
}

static uint64_t hash_host(uint64_t machine)
{
    struct stat net;
    if (stat("/proc/self/ns/net", &net) == 0) {
        machine = tt_fnv(machine, &net.st_dev, sizeof net.st_dev);
        machine = tt_fnv(machine, &net.st_ino, sizeof net.st_ino);
    }
    return machine;
}

static tutti_status_t make_info(const tt_peers_t *peers, const wires_t *wires, const char *host,
                                tt_peer_info_t *info)
{
    if (getrandom(&info->token, sizeof info->token, 0) != (ssize_t)sizeof info->token) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    info->magic = TT_PEER_INFO_MAGIC;
    info->machine = hash_machine();
    info->host = hash_host(info->machine);
    if (host != NULL) {
        info->host = tt_fnv(info->host, host, strlen(host));
    }
    if (!wires->shm) { /* a host of its own */
        info->host = tt_fnv(info->host, &peers->rank, sizeof peers->rank);
    }
    tt_cores_find(info->cpus, sizeof info->cpus);
    return TUTTI_OK;
}

static bool is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* "auto", or "shm", "tcp", or both. */
static tutti_status_t read_wires(const char *list, wires_t *out)
{
    const bool is_auto = list == NULL || *list == 0 || strcmp(list, "auto") == 0;
    *out = (wires_t){is_auto, is_auto};
    for (size_t at = 0, length; !is_auto && (at == 0 || list[at - 1] == ','); at += length + 1) {
        length = strcspn(list + at, ",");
        const bool is_shm = is_word(list + at, length, "shm"),
                   is_tcp = is_word(list + at, length, "tcp");
        if (!is_shm && !is_tcp) {
            return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_WIRES is \"%s\"; want auto, shm, tcp, or shm,tcp",
                           list);
        }
        out->shm |= is_shm;
        out->tcp |= is_tcp;
    }
    return TUTTI_OK;
}

static tutti_status_t show_info(tt_peers_t *peers, const tt_peers_options_t *options,
                                const wires_t *wires)
{
    tt_peer_info_t *info = &peers->infos[peers->rank];
    TT_TRY(make_info(peers, wires, options->host, info));
    return tt_directory_put(&options->directory, TT_INFO_PEER, peers->rank, info);
}

/* The other ranks learn why this one does not join: by a refusal, which also stands wherever a rank
 * may still wait for an info. */
static void show_refusal(const tt_directory_t *directory, int rank, tutti_status_t why)
{
    char reason[TT_ERROR_TEXT_BYTES]; /* showing it may fail, which is not the reason */
    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    tt_refusal_t refusal = {.magic = TT_REFUSAL_MAGIC, .status = (int32_t)why};
    snprintf(refusal.text, sizeof refusal.text, "%.*s", (int)sizeof refusal.text - 1, reason);
    const unsigned char none[TT_NODE_PEER_INFO_BYTES] = {0};
    const void *const infos[] = {&refusal, &refusal, none, &refusal};
    for (int kind = TT_INFO_KINDS - 1; kind >= 0; kind--) { /* the reason first */
        if (!directory->has_shown[kind]) {
            (void)directory->put(directory->user, (tt_info_kind_t)kind, rank, infos[kind]);
        }
    }
    (void)tt_fail_again(why, reason);
}

static tutti_status_t get_info(const tt_directory_t *directory, tt_info_kind_t kind, int rank,
                               tt_deadline_t deadline, tt_peer_info_t *info)
{
    tt_refusal_t refusal;
    TT_TRY(directory->get(directory->user, kind, rank, deadline, info));
    memcpy(&refusal, info, sizeof refusal);
    TT_TRY(tt_refusal_check(&refusal, rank));
    return info->magic == TT_PEER_INFO_MAGIC
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "rank %d shows a peer info of another version", rank);
}

static tutti_status_t read_infos(tt_peers_t *peers, const tt_peers_options_t *options,
                                 tt_deadline_t deadline)
{
    for (int rank = 0; rank < peers->size; rank++) {
        if (rank != peers->rank) {
            TT_TRY(
                get_info(&options->directory, TT_INFO_PEER, rank, deadline, &peers->infos[rank]));
        }
    }
    return TUTTI_OK;
}

static int host_before(const tt_peers_t *peers, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (peers->infos[i].host == peers->infos[rank].host) {
            return peers->hosts[i];
        }
    }
    return -1;
}

/* Returns how many ranks are on this host. */
static int number_hosts(tt_peers_t *peers)
{
    int hosts = 0, node_peers = 0;
    for (int rank = 0; rank < peers->size; rank++) {
        const int host = host_before(peers, rank);
        peers->hosts[rank] = host >= 0 ? host : hosts++;
        const bool is_node_peer = peers->infos[rank].host == peers->infos[peers->rank].host;
        peers->node_peer_of[rank] = is_node_peer ? node_peers : -1;
        if (is_node_peer) {
            peers->peer_of[node_peers++] = rank;
        }
    }
    return node_peers;
}

/* Some ranks are elsewhere: listen for them, show where, and see where they do. */
static tutti_status_t open_listeners(tt_peers_t *peers, const tt_peers_options_t *options,
                                     const wires_t *wires, tt_deadline_t deadline)
{
    if (!wires->tcp) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "not all ranks are on the host of rank %d, and TUTTI_WIRES is \"%s\", "
                       "without tcp",
                       peers->rank, options->wires);
    }
    const tt_directory_t *directory = &options->directory;
    TT_TRY(tt_peers_listen(peers, options, &peers->infos[peers->rank]));
    TT_TRY(tt_directory_put(directory, TT_INFO_LISTEN, peers->rank, &peers->infos[peers->rank]));
    for (int rank = 0; rank < peers->size; rank++) {
        if (peers->node_peer_of[rank] < 0) {
            TT_TRY(get_info(directory, TT_INFO_LISTEN, rank, deadline, &peers->infos[rank]));
        }
    }
    return TUTTI_OK;
}

/* More ranks than cores on this machine, whether they are local ranks or not. */
static bool is_oversubscribed(const tt_peers_t *peers)
{
    const tt_peer_info_t *own = &peers->infos[peers->rank];
    uint8_t cpus[sizeof own->cpus] = {0};
    int ranks = 0;
    for (int i = 0; i < peers->size; i++) {
        if (peers->infos[i].machine == own->machine) {
            ranks++;
            tt_cores_add(cpus, sizeof cpus, peers->infos[i].cpus, sizeof cpus);
        }
    }
    return ranks > tt_cores_count(cpus, sizeof cpus);
}

static tutti_status_t join(tt_peers_t *peers, const tt_peers_options_t *options,
                           tt_deadline_t deadline)
{
    wires_t wires;
    TT_TRY(read_wires(options->wires, &wires));
    if (peers->size > 1) {
        TT_TRY(show_info(peers, options, &wires));
        TT_TRY(read_infos(peers, options, deadline));
    }
    const int node_peers = number_hosts(peers);
    tt_directory_t directory = options->directory;
    directory.ranks = peers->peer_of;
    if (node_peers < peers->size) {
        TT_TRY(open_listeners(peers, options, &wires, deadline));
    }
    TT_TRY(tt_node_peers_join(peers->node_peer_of[peers->rank], node_peers, &directory, deadline,
                              &peers->node_peers));
    if (peers->size > 1) {
        tt_node_peers_set_oversubscribed(peers->node_peers, is_oversubscribed(peers));
    }
    return TUTTI_OK;
}

static tutti_status_t open_tables(tt_peers_t *peers)
{
    const size_t size = (size_t)peers->size;
    peers->infos = tt_alloc_array(size, sizeof *peers->infos, "peers");
    peers->hosts = tt_alloc_array(3 * size, sizeof *peers->hosts, "peers");
    if (peers->infos == NULL || peers->hosts == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    peers->node_peer_of = peers->hosts + size;
    peers->peer_of = peers->node_peer_of + size;
    return TUTTI_OK;
}

static tutti_status_t create(int rank, int size, tt_peers_t **out)
{
    tt_peers_t *peers = tt_alloc(sizeof *peers, "peers");
    TT_TRY_ALLOC(peers);
    tt_ref_init(&peers->ref);
    peers->rank = rank;
    peers->size = size;
    peers->door = -1;
    const tutti_status_t status = open_tables(peers);
    if (status < 0) {
        tt_peers_release(peers);
        return status;
    }
    *out = peers;
    return TUTTI_OK;
}

tutti_status_t tt_peers_join(const tt_peers_options_t *options, tt_deadline_t deadline,
                             tt_peers_t **out)
{
    tt_peers_t *peers;
    bool has_shown[TT_INFO_KINDS] = {false};
    tt_peers_options_t noting = *options;
    noting.directory.has_shown = has_shown;
    TT_TRY(create(options->rank, options->size, &peers));
    peers->epoch = options->epoch;
    const tutti_status_t status = join(peers, &noting, deadline);
    if (status < 0) {
        if (peers->size > 1) {
            show_refusal(&noting.directory, peers->rank, status);
        }
        tt_peers_release(peers);
        return status;
    }
    *out = peers;
    return TUTTI_OK;
}

/* No other rank shares memory and no peer info is needed. */
static tutti_status_t join_alone(tt_peers_t *peers)
{
    const tt_directory_t none = {0};
    for (int rank = 0; rank < peers->size; rank++) {
        peers->infos[rank].host = (uint64_t)rank + 1;
    }
    return tt_node_peers_join(0, number_hosts(peers), &none, TT_NEVER, &peers->node_peers);
}

tutti_status_t tt_peers_simulate(int rank, int size, const tt_peers_simulation_t *simulation,
                                 tt_peers_t **out)
{
    tt_peers_t *peers;
    TT_TRY(create(rank, size, &peers));
    peers->simulation = simulation;
    const tutti_status_t status = join_alone(peers);
    if (status < 0) {
        tt_peers_release(peers);
        return status;
    }
    *out = peers;
    return TUTTI_OK;
}

tt_peers_t *tt_peers_retain(tt_peers_t *peers)
{
    tt_ref_retain(&peers->ref);
    return peers;
}

void tt_peers_release(tt_peers_t *peers)
{
    if (peers == NULL || !tt_ref_release(&peers->ref)) {
        return;
    }
    tt_peers_stop_listening(peers);
    tt_node_peers_release(peers->node_peers);
    tt_free(peers->infos);
    tt_free(peers->hosts);
    tt_free(peers);
}

tt_node_peers_t *tt_peers_node_peers(const tt_peers_t *peers)
{
    return peers->node_peers;
}

int tt_peers_node_peer(const tt_peers_t *peers, int rank)
{
    return peers->node_peer_of[rank];
}

void tt_peers_locate(const tt_peers_t *peers, int *number, int *count)
{
    *number = *count = 0;
    for (int rank = 0; rank < peers->size; rank++) {
        if (peers->infos[rank].machine == peers->infos[peers->rank].machine) {
            *number += rank < peers->rank;
            *count += 1;
        }
    }
}

int tt_peers_host(const tt_peers_t *peers, int rank)
{
    return peers->hosts[rank];
}
