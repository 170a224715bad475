/* How the ranks of a host meet.
 *
 *     every rank   opens a heap, listens on an abstract socket with a random name, puts its card
 *                  (the name and a random token) into the directory
 *     rank i       connects to every lower rank and greets it, then accepts every higher rank
 *     both         check the user (SO_PEERCRED) and the token, then map each other's segments
 *
 * Nobody waits for an answer before it has greeted all lower ranks, so the order cannot deadlock.
 * A stranger's connection is closed and forgotten; one who presses a rank out of the listener's
 * list of callers makes it call again.
 */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/cores.h"
#include "comm/wire/mates_impl.h"
#include "core/base/alloc.h"

enum { CALLS_MAX = 100, CARD_SLICE_MS = 20 };

static tt_unix_address_t address_of(const tt_card_t *card)
{
    char name[8 + 2 * sizeof card->name];
    size_t length = (size_t)snprintf(name, sizeof name, "tutti-");
    for (size_t i = 0; i < sizeof card->name; i++) {
        length += (size_t)snprintf(name + length, sizeof name - length, "%02x", card->name[i]);
    }
    return tt_unix_address(name);
}

static tutti_status_t make_card(tt_card_t *card)
{
    if (getrandom(card, sizeof *card, 0) != (ssize_t)sizeof *card) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
    }
    return TUTTI_OK;
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
               : TT_FAIL(TUTTI_ERR_PEER, "rank %d did not join", tt_mates_name(mates, rank));
}

/* The socket to a rank is there: from now on its death is seen. */
static tutti_status_t greet(tt_mates_t *mates, int rank, int fd)
{
    tt_mate_t *mate = &mates->mates[rank];
    mate->fd = fd;
    mate->pidfd = tt_unix_peer_process(fd);
    return tt_mates_greet(mates, rank);
}

static tutti_status_t connect_to(tt_mates_t *mates, int rank, tt_deadline_t deadline)
{
    uid_t uid;
    int fd;
    const tt_unix_address_t address = address_of(&mates->mates[rank].card);
    const tutti_status_t status = tt_unix_connect(&address, deadline, &fd);
    if (status == TUTTI_PENDING) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "rank %d is gone, or on another host than rank %d: its Unix socket is "
                       "not here; ranks of several hosts need the tcp wire",
                       tt_mates_name(mates, rank), tt_mates_name(mates, mates->rank));
    }
    if (status < 0) {
        return TT_FAIL(status, "rank %d to rank %d: %s", tt_mates_name(mates, mates->rank),
                       tt_mates_name(mates, rank), tutti_last_error());
    }
    if (!tt_unix_is_same_user(fd, &uid)) {
        tt_socket_close(fd);
        return TT_FAIL(TUTTI_ERR_AUTH, "rank %d runs as another user", tt_mates_name(mates, rank));
    }
    return greet(mates, rank, fd);
}

/* The rank that a caller says it is; -1: none that is awaited. */
static int rank_of(const tt_mates_t *mates, const tt_mate_message_t *hello)
{
    const bool is_awaited = hello->magic == TT_MATE_MAGIC && hello->kind == TT_MATE_HELLO &&
                            hello->rank > mates->rank && hello->rank < mates->size &&
                            mates->mates[hello->rank].fd < 0;
    return is_awaited ? hello->rank : -1;
}

/* Somebody has said hello, which proves nothing before the token has been compared. */
static tutti_status_t take_in(tt_mates_t *mates, int rank, int fd, tt_deadline_t deadline)
{
    tt_mate_t *mate = &mates->mates[rank];
    mate->fd = fd;
    tt_mates_receive(mates, rank);
    if (!mate->has_greeted) { /* the token was wrong: a stranger, the real one may still come */
        mate->state = TT_MATE_HERE;
        return TUTTI_OK;
    }
    TT_TRY(tt_mates_status(mates));
    if (mate->fd < 0) { /* it came, and went */
        return TT_FAIL(TUTTI_ERR_PEER, "rank %d %s while rank %d was joining",
                       tt_mates_name(mates, rank), mate->has_left ? "gave up" : "died",
                       tt_mates_name(mates, mates->rank));
    }
    tt_unix_set_send_deadline(fd, deadline);
    return greet(mates, rank, fd);
}

static tutti_status_t take_callers(tt_mates_t *mates, tt_unix_listener_t *listener,
                                   tt_deadline_t deadline)
{
    tt_mate_message_t hello;
    int fd;
    for (;;) {
        TT_TRY(tt_unix_listener_next(listener, &hello, sizeof hello, &fd));
        if (fd < 0) {
            return TUTTI_OK;
        }
        const int rank = rank_of(mates, &hello);
        if (rank < 0) {
            tt_socket_close(fd);
        } else {
            TT_TRY(take_in(mates, rank, fd, deadline));
        }
    }
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
                                       length > 0 ? ", " : "", tt_mates_name(mates, i));
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d waited for rank%s %s to join",
                   tt_mates_name(mates, mates->rank), strchr(ranks, ',') != NULL ? "s" : "", ranks);
}

static tutti_status_t find_block(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    mate->block = tt_heap_view_at(&mate->view, mate->block_place, sizeof *mate->block);
    if (mate->block == NULL || mate->block->magic != TT_MATE_MAGIC ||
        mate->block->version != TT_MATE_VERSION) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d speaks another version of the shared heap",
                       tt_mates_name(mates, rank));
    }
    return TUTTI_OK;
}

/* A lower rank that hung up before it has greeted was pressed by strangers: it is called again, and
 * refuses if it has died. */
static bool may_call_again(const tt_mates_t *mates, int rank)
{
    const tt_mate_t *mate = &mates->mates[rank];
    return rank < mates->rank && mate->state == TT_MATE_DEAD && !mate->has_greeted &&
           !mate->has_ended && mate->calls < CALLS_MAX;
}

static tutti_status_t call_again(tt_mates_t *mates, int rank, tt_deadline_t deadline)
{
    tt_mate_t *mate = &mates->mates[rank];
    mate->calls++;
    mate->state = TT_MATE_HERE;
    return connect_to(mates, rank, deadline);
}

/* How many are still to come; those who died are an error. */
static tutti_status_t count_missing(tt_mates_t *mates, tt_deadline_t deadline, int *missing)
{
    *missing = 0;
    for (int i = 0; i < mates->size; i++) {
        const tt_mate_t *mate = &mates->mates[i];
        if (i == mates->rank || is_complete(mate)) {
            continue;
        }
        *missing += 1;
        if (may_call_again(mates, i)) {
            TT_TRY(call_again(mates, i, deadline));
        } else if (mate->state != TT_MATE_HERE) {
            return TT_FAIL(TUTTI_ERR_PEER, "rank %d died while joining", tt_mates_name(mates, i));
        }
    }
    return TUTTI_OK;
}

/* Accept who is to come and read what they send, until all are complete. */
static tutti_status_t gather(tt_mates_t *mates, tt_unix_listener_t *listener,
                             tt_deadline_t deadline)
{
    for (;;) {
        int missing;
        TT_TRY(count_missing(mates, deadline, &missing));
        if (missing == 0) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(deadline)) {
            return name_missing(mates);
        }
        const int own = tt_mates_fill_polls(mates);
        const int all = own + tt_unix_listener_polls(listener, mates->polls + own);
        (void)poll(mates->polls, (nfds_t)all, tt_deadline_left_ms(deadline));
        tt_mates_look_at_polls(mates);
        TT_TRY(tt_mates_status(mates));
        TT_TRY(take_callers(mates, listener, deadline));
    }
}

/* More ranks than cores here; tt_mates_set_crowded() knows of others on this machine too. */
static void judge_crowd(tt_mates_t *mates)
{
    uint8_t cpus[sizeof mates->block->cpus] = {0};
    for (int i = 0; i < mates->size; i++) {
        const tt_mate_block_t *block = i == mates->rank ? mates->block : mates->mates[i].block;
        tt_cores_add(cpus, block->cpus, sizeof cpus);
    }
    mates->is_crowded = mates->size > tt_cores_count(cpus, sizeof cpus);
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

/* The card of a rank that is to call. Those who are here already may die meanwhile. */
static tutti_status_t await_card(tt_mates_t *mates, const tt_directory_t *directory, int rank,
                                 tt_deadline_t deadline)
{
    for (;;) {
        int missing;
        const tt_deadline_t slice = tt_deadline_in_ms(CARD_SLICE_MS);
        const bool is_last = deadline <= slice;
        const tutti_status_t status = get_card(mates, directory, rank, is_last ? deadline : slice);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        if (is_last) {
            return name_missing(mates);
        }
        tt_mates_check(mates);
        TT_TRY(tt_mates_status(mates));
        TT_TRY(count_missing(mates, deadline, &missing));
    }
}

static tutti_status_t meet_all(tt_mates_t *mates, const tt_directory_t *directory,
                               tt_unix_listener_t *listener, tt_deadline_t deadline)
{
    TT_TRY(directory->put(directory->user, mates->rank, &mates->card));
    for (int i = 0; i < mates->rank; i++) {
        TT_TRY(get_card(mates, directory, i, deadline));
        TT_TRY(connect_to(mates, i, deadline));
    }
    for (int i = mates->rank + 1; i < mates->size; i++) {
        TT_TRY(await_card(mates, directory, i, deadline));
    }
    TT_TRY(gather(mates, listener, deadline));
    for (int i = 0; i < mates->size; i++) {
        if (i != mates->rank) {
            TT_TRY(find_block(mates, i));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t meet(tt_mates_t *mates, const tt_directory_t *directory,
                           tt_deadline_t deadline)
{
    TT_TRY(make_card(&mates->card));
    tt_unix_listener_t listener;
    const tt_unix_address_t address = address_of(&mates->card);
    tutti_status_t status = tt_unix_listen(&address, &listener);
    if (status != TUTTI_OK) {
        return status < 0 ? status : TT_FAIL(TUTTI_ERR_IO, "the name of a random socket is taken");
    }
    status = meet_all(mates, directory, &listener, deadline);
    tt_unix_listener_close(&listener);
    return status;
}

static tutti_status_t open_mates(tt_mates_t *mates, const tt_directory_t *directory,
                                 tt_deadline_t deadline)
{
    const size_t size = (size_t)mates->size;
    mates->mates = tt_alloc_array(size, sizeof *mates->mates, "mates");
    TT_TRY_ALLOC(mates->mates);
    for (int i = 0; i < mates->size; i++) {
        mates->mates[i].fd = mates->mates[i].pidfd = -1;
    }
    mates->polls =
        tt_alloc_array(2 * size + 1 + TT_UNIX_CALLERS_MAX, sizeof *mates->polls, "mates");
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
    mates->names = directory->ranks;
    mates->starved = -1;
    pthread_mutex_init(&mates->telling, NULL);
    const tutti_status_t status = open_mates(mates, directory, deadline);
    if (status < 0) {
        tt_mates_release(mates);
        return status;
    }
    *out = mates;
    return TUTTI_OK;
}
