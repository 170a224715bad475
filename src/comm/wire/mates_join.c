/* How the ranks of a host meet.
 *
 *     every rank   opens a heap, listens on an abstract socket with a random name, puts its card
 *                  (the name and a random token) into the directory
 *     rank i       connects to every lower rank and greets it, then accepts every higher rank
 *     both         check the user (SO_PEERCRED) and the token, then map each other's segments
 *
 * Nobody waits for an answer before it has greeted all lower ranks, so the order cannot deadlock.
 * A stranger's connection is closed and forgotten.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/wire/mates_impl.h"
#include "core/base/alloc.h"

static socklen_t make_address(const tt_card_t *card, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *text = address->sun_path + 1; /* the leading 0 makes it abstract */
    size_t length = (size_t)snprintf(text, 8, "tutti-");
    for (size_t i = 0; i < sizeof card->name; i++) {
        length += (size_t)snprintf(text + length, 3, "%02x", card->name[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static tutti_status_t make_card(tt_card_t *card)
{
    if (getrandom(card, sizeof *card, 0) != (ssize_t)sizeof *card) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    return TUTTI_OK;
}

static tutti_status_t open_listener(const tt_mates_t *mates, int *out)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot open a Unix socket");
    }
    struct sockaddr_un address;
    const socklen_t length = make_address(&mates->card, &address);
    if (bind(fd, (const struct sockaddr *)&address, length) < 0 ||
        listen(fd, mates->size + 16) < 0) {
        const tutti_status_t status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot listen for host-mates");
        close(fd);
        return status;
    }
    *out = fd;
    return TUTTI_OK;
}

static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/* A rank that could not join has put a card of zeros. */
static tutti_status_t get_card(const tt_mates_t *mates, const tt_directory_t *directory, int rank,
                               tt_deadline_t deadline)
{
    static const tt_card_t none;
    tt_card_t *card = &mates->mates[rank].card;
    TT_TRY(directory->get(directory->user, rank, deadline, card));
    return memcmp(card, &none, sizeof none) != 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_PEER, "rank %d did not join", rank);
}

static tutti_status_t connect_to(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot open a Unix socket");
    }
    struct sockaddr_un address;
    const socklen_t length = make_address(&mate->card, &address);
    if (connect(fd, (const struct sockaddr *)&address, length) < 0) {
        const tutti_status_t status =
            errno == ECONNREFUSED
                ? TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                          "rank %d is gone, or on another host than rank %d: its Unix socket is "
                          "not here; ranks of several hosts need the tcp wire",
                          rank, mates->rank)
                : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot connect to rank %d", rank);
        close(fd);
        return status;
    }
    mate->fd = fd;
    if (!is_same_user(fd)) {
        return TT_FAIL(TUTTI_ERR_AUTH, "rank %d runs as another user", rank);
    }
    return tt_mates_greet(mates, fd);
}

/* The first message of who has connected tells the rank; the message stays in the queue. */
static int rank_of(int fd, int size)
{
    tt_mate_message_t hello;
    struct pollfd poll_one = {.fd = fd, .events = POLLIN};
    if (poll(&poll_one, 1, 1000) != 1 ||
        recv(fd, &hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof hello ||
        hello.magic != TT_MATE_MAGIC || hello.kind != TT_MATE_HELLO || hello.rank < 0 ||
        hello.rank >= size) {
        return -1;
    }
    return hello.rank;
}

/* Take one connection if it is a mate's. */
static tutti_status_t accept_one(tt_mates_t *mates, int listener, const tt_directory_t *directory,
                                 tt_deadline_t deadline)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return TUTTI_OK;
    }
    const int rank = is_same_user(fd) ? rank_of(fd, mates->size) : -1;
    if (rank <= mates->rank || mates->mates[rank].fd >= 0) {
        close(fd);
        return TUTTI_OK;
    }
    tt_mate_t *mate = &mates->mates[rank];
    const tutti_status_t status = get_card(mates, directory, rank, deadline);
    if (status < 0) {
        close(fd);
        return status;
    }
    mate->fd = fd;
    tt_mates_receive(mates, rank);
    if (!mate->has_greeted) { /* the token was wrong: a stranger, the real one may still come */
        mate->state = TT_MATE_HERE;
        return TUTTI_OK;
    }
    if (mate->fd < 0) { /* it came, and went */
        return TT_FAIL(TUTTI_ERR_PEER, "rank %d %s while rank %d was joining", rank,
                       mate->has_left ? "gave up" : "died", mates->rank);
    }
    return tt_mates_greet(mates, mate->fd);
}

static bool is_complete(const tt_mate_t *mate)
{
    return mate->has_greeted && mate->segments_seen >= mate->segments_due;
}

static tutti_status_t name_missing(const tt_mates_t *mates)
{
    char ranks[200] = "";
    size_t length = 0;
    for (int i = 0; i < mates->size && length + 16 < sizeof ranks; i++) {
        if (i != mates->rank && !is_complete(&mates->mates[i])) {
            length += (size_t)snprintf(ranks + length, sizeof ranks - length, "%s%d",
                                       length > 0 ? ", " : "", i);
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d waited for rank%s %s to join", mates->rank,
                   strchr(ranks, ',') != NULL ? "s" : "", ranks);
}

static tutti_status_t find_block(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    mate->block = tt_heap_view_at(&mate->view, mate->block_place, sizeof *mate->block);
    if (mate->block == NULL || mate->block->magic != TT_MATE_MAGIC ||
        mate->block->version != TT_MATE_VERSION) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d speaks another version of the shared heap", rank);
    }
    return TUTTI_OK;
}

/* Accept who is to come and read what they send, until all are complete. */
static tutti_status_t gather(tt_mates_t *mates, int listener, const tt_directory_t *directory,
                             tt_deadline_t deadline)
{
    for (;;) {
        int missing = 0;
        for (int i = 0; i < mates->size; i++) {
            const tt_mate_t *mate = &mates->mates[i];
            mates->polls[i] = (struct pollfd){.fd = mate->fd, .events = POLLIN};
            missing += i != mates->rank && !is_complete(mate);
            if (mate->state != TT_MATE_HERE && !is_complete(mate)) {
                return TT_FAIL(TUTTI_ERR_PEER, "rank %d died while joining", i);
            }
        }
        if (missing == 0) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(deadline)) {
            return name_missing(mates);
        }
        mates->polls[mates->size] = (struct pollfd){.fd = listener, .events = POLLIN};
        (void)poll(mates->polls, (nfds_t)mates->size + 1, tt_deadline_left_ms(deadline));
        for (int i = 0; i < mates->size; i++) {
            if (mates->polls[i].revents != 0) {
                tt_mates_receive(mates, i);
            }
        }
        if (mates->polls[mates->size].revents != 0) {
            TT_TRY(accept_one(mates, listener, directory, deadline));
        }
    }
}

static void judge_crowd(tt_mates_t *mates)
{
    uint8_t cpus[sizeof mates->block->cpus] = {0};
    int cores = 0;
    for (size_t byte = 0; byte < sizeof cpus; byte++) {
        for (int i = 0; i < mates->size; i++) {
            cpus[byte] |=
                i == mates->rank ? mates->block->cpus[byte] : mates->mates[i].block->cpus[byte];
        }
        cores += __builtin_popcount(cpus[byte]);
    }
    mates->is_crowded = mates->size > cores;
}

static tutti_status_t open_block(tt_mates_t *mates)
{
    mates->block = tt_device_alloc(mates->heap, sizeof *mates->block, "mate block");
    TT_TRY_ALLOC(mates->block);
    memset(mates->block, 0, sizeof *mates->block);
    mates->block->magic = TT_MATE_MAGIC;
    mates->block->version = TT_MATE_VERSION;
    mates->block->rank = mates->rank;
    mates->block->pid = (int32_t)getpid();
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
        memcpy(mates->block->cpus, &cpus, sizeof mates->block->cpus);
    }
    return TUTTI_OK;
}

static tutti_status_t meet(tt_mates_t *mates, const tt_directory_t *directory,
                           tt_deadline_t deadline)
{
    TT_TRY(make_card(&mates->card));
    int listener = -1;
    TT_TRY(open_listener(mates, &listener));
    tutti_status_t status = directory->put(directory->user, mates->rank, &mates->card);
    for (int i = 0; i < mates->rank && status >= 0; i++) {
        status = get_card(mates, directory, i, deadline);
        if (status >= 0) {
            status = connect_to(mates, i);
        }
    }
    if (status >= 0) {
        status = gather(mates, listener, directory, deadline);
    }
    close(listener);
    for (int i = 0; i < mates->size && status >= 0; i++) {
        status = i == mates->rank ? TUTTI_OK : find_block(mates, i);
    }
    return status;
}

static tutti_status_t open_mates(tt_mates_t *mates, const tt_directory_t *directory,
                                 tt_deadline_t deadline)
{
    const size_t size = (size_t)mates->size;
    mates->mates = tt_alloc_array(size, sizeof *mates->mates, "mates");
    TT_TRY_ALLOC(mates->mates);
    for (int i = 0; i < mates->size; i++) {
        mates->mates[i].fd = -1;
    }
    mates->polls = tt_alloc_array(size + 1, sizeof *mates->polls, "mates");
    TT_TRY_ALLOC(mates->polls);
    TT_TRY(tt_device_open(&tt_device_heap, NULL, &mates->heap));
    TT_TRY(open_block(mates));
    if (mates->size > 1) {
        TT_TRY(meet(mates, directory, deadline));
    }
    tt_heap_set_on_segment(mates->heap, tt_mates_on_segment, mates);
    judge_crowd(mates);
    return TUTTI_OK;
}

tutti_status_t tt_mates_join(int rank, int size, const tt_directory_t *directory,
                             tt_deadline_t deadline, tt_mates_t **out)
{
    tt_mates_t *mates = tt_alloc(sizeof *mates, "mates");
    TT_TRY_ALLOC(mates);
    tt_ref_init(&mates->ref);
    mates->rank = rank;
    mates->size = size;
    const tutti_status_t status = open_mates(mates, directory, deadline);
    if (status < 0) {
        tt_mates_release(mates);
        return status;
    }
    *out = mates;
    return TUTTI_OK;
}
