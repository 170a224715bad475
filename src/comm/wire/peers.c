/* Peers: who is on which host, and the mates among them.
 *
 * Every rank puts a card into the directory and reads everyone's; ranks whose cards name the same
 * host join as mates. A host is told by its boot id and network namespace (network namespaces count
 * as hosts, since no abstract Unix socket leads from one to another).
 */
#include "comm/wire/peers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/ref.h"

enum { CARD_MAGIC = 0x43545454 };

typedef struct {
    uint32_t magic, reserved;
    uint64_t host; /* a hash of boot id and network namespace */
    uint8_t more[112];
} peer_card_t;

_Static_assert(sizeof(peer_card_t) == TT_PEER_CARD_BYTES, "a card is a card");

struct tt_peers {
    tt_ref_t ref;
    int rank, size;
    tt_mates_t *mates;
    peer_card_t *cards; /* [size] */
    int *hosts;         /* [size] numbered by their lowest rank */
    int *mate_of;       /* [size] -1: elsewhere */
    int *peer_of;       /* [mates] the other way round */
    tt_directory_t directory;
};

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t hash_host(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char boot[64];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        const ssize_t n = read(fd, boot, sizeof boot);
        hash = mix(hash, boot, n > 0 ? (size_t)n : 0);
        close(fd);
    }
    struct stat net;
    if (stat("/proc/self/ns/net", &net) == 0) {
        hash = mix(hash, &net.st_dev, sizeof net.st_dev);
        hash = mix(hash, &net.st_ino, sizeof net.st_ino);
    }
    return hash;
}

static tutti_status_t show_card(tt_peers_t *peers, const tt_peers_options_t *options)
{
    peer_card_t *card = &peers->cards[peers->rank];
    card->magic = CARD_MAGIC;
    card->host = hash_host();
    return options->directory.put(options->directory.user, peers->rank, card);
}

static tutti_status_t read_cards(tt_peers_t *peers, const tt_peers_options_t *options,
                                 tt_deadline_t deadline)
{
    for (int rank = 0; rank < peers->size; rank++) {
        if (rank == peers->rank) {
            continue;
        }
        TT_TRY(
            options->directory.get(options->directory.user, rank, deadline, &peers->cards[rank]));
        if (peers->cards[rank].magic != CARD_MAGIC) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d shows a card of another version", rank);
        }
    }
    return TUTTI_OK;
}

static int host_before(const tt_peers_t *peers, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (peers->cards[i].host == peers->cards[rank].host) {
            return peers->hosts[i];
        }
    }
    return -1;
}

/* Returns how many ranks are on this host. */
static int number_hosts(tt_peers_t *peers)
{
    int hosts = 0, mates = 0;
    for (int rank = 0; rank < peers->size; rank++) {
        const int host = host_before(peers, rank);
        peers->hosts[rank] = host >= 0 ? host : hosts++;
        const bool is_mate = peers->cards[rank].host == peers->cards[peers->rank].host;
        peers->mate_of[rank] = is_mate ? mates : -1;
        if (is_mate) {
            peers->peer_of[mates++] = rank;
        }
    }
    return mates;
}

/* The mates number themselves; the directory knows ranks. */
static tutti_status_t put_mate_card(void *user, int mate, const void *card)
{
    const tt_peers_t *peers = user;
    return peers->directory.put(peers->directory.user, peers->peer_of[mate], card);
}

static tutti_status_t get_mate_card(void *user, int mate, tt_deadline_t deadline, void *card)
{
    const tt_peers_t *peers = user;
    return peers->directory.get(peers->directory.user, peers->peer_of[mate], deadline, card);
}

static tutti_status_t join(tt_peers_t *peers, const tt_peers_options_t *options,
                           tt_deadline_t deadline)
{
    const size_t size = (size_t)peers->size;
    peers->cards = tt_alloc_array(size, sizeof *peers->cards, "peers");
    peers->hosts = tt_alloc_array(size, sizeof *peers->hosts, "peers");
    peers->mate_of = tt_alloc_array(size, sizeof *peers->mate_of, "peers");
    peers->peer_of = tt_alloc_array(size, sizeof *peers->peer_of, "peers");
    if (peers->cards == NULL || peers->hosts == NULL || peers->mate_of == NULL ||
        peers->peer_of == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    if (peers->size > 1) {
        TT_TRY(show_card(peers, options));
        TT_TRY(read_cards(peers, options, deadline));
    }
    const int mates = number_hosts(peers);
    const tt_directory_t directory = {put_mate_card, get_mate_card, peers};
    return tt_mates_join(peers->mate_of[peers->rank], mates, &directory, deadline, &peers->mates);
}

tutti_status_t tt_peers_join(const tt_peers_options_t *options, tt_deadline_t deadline,
                             tt_peers_t **out)
{
    tt_peers_t *peers = tt_alloc(sizeof *peers, "peers");
    TT_TRY_ALLOC(peers);
    tt_ref_init(&peers->ref);
    peers->rank = options->rank;
    peers->size = options->size;
    peers->directory = options->mates;
    const tutti_status_t status = join(peers, options, deadline);
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
    tt_mates_release(peers->mates);
    tt_free(peers->cards);
    tt_free(peers->hosts);
    tt_free(peers->mate_of);
    tt_free(peers->peer_of);
    tt_free(peers);
}

int tt_peers_rank(const tt_peers_t *peers)
{
    return peers->rank;
}

int tt_peers_size(const tt_peers_t *peers)
{
    return peers->size;
}

tt_mates_t *tt_peers_mates(const tt_peers_t *peers)
{
    return peers->mates;
}

int tt_peers_mate(const tt_peers_t *peers, int rank)
{
    return peers->mate_of[rank];
}

int tt_peers_host(const tt_peers_t *peers, int rank)
{
    return peers->hosts[rank];
}

tutti_status_t tt_peers_open_wire(tt_peers_t *peers, int rank, uint64_t channel, tt_wire_t *out)
{
    (void)channel;
    (void)out;
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "rank %d is on another host than rank %d; ranks of several hosts need the tcp "
                   "wire",
                   rank, peers->rank);
}

void tt_peers_progress(tt_peers_t *peers)
{
    (void)peers;
}

void tt_peers_idle(tt_peers_t *peers, tt_idle_t *idle, tt_deadline_t deadline)
{
    tt_mates_idle(peers->mates, idle, deadline);
}

void tt_peers_idle_end(tt_peers_t *peers, tt_idle_t *idle)
{
    tt_mates_idle_end(peers->mates, idle);
}
