/* Ranks of one host, without a launcher's store: rank 0 makes one and hands it over.
 *
 *     rank 0                                       rank r
 *     listens on an abstract Unix socket, whose    connects, checks that the listener is its own
 *     name comes from user, job and world          user (SO_PEERCRED), says hello
 *     checks the user, answers                     connects to the store
 *
 *     hello   u32 magic, i32 rank, i32 world size
 *     answer  u32 magic, i32 port, i32 world size, the job's key
 *
 * Abstract sockets belong to a network namespace and vanish with their process, so a job that died
 * leaves nothing. Rank 0 listens until all ranks are served; a rank that comes too early, or a
 * second time (for the next world), finds no listener and tries again.
 *
 * Cost: one connection for each rank, one after the other.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <xxhash.h>

#include "comm/rendezvous/rendezvous.h"
#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/config.h"

enum { MAGIC = 0x74757474, NAME_FREE_MS = 1000 };

typedef struct {
    uint32_t magic;
    int32_t rank, size;
} hello_t;

typedef struct {
    uint32_t magic;
    int32_t port, size;
    tt_job_key_t key; /* zeros where TUTTI_PROTECT is off */
} answer_t;

typedef struct {
    const tt_rendezvous_t *rendezvous;
    tt_deadline_t deadline;
    tt_unix_address_t address;
    bool *has_come; /* [size], of rank 0 */
    int missing;
} handover_t;

static void set_address(handover_t *handover, const char *name)
{
    char text[TT_JOB_BYTES + 256];
    snprintf(text, sizeof text, "%s/%s", handover->rendezvous->job, name);
    const XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    snprintf(text, sizeof text, "tutti-meet-%u-%016llx%016llx", (unsigned)geteuid(),
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    handover->address = tt_unix_address(text);
}

/* Before another try: for twice as long as before the last one, up to 20 ms. */
static void nap(int64_t *wait_ms, tt_deadline_t deadline)
{
    *wait_ms = *wait_ms < 20 ? *wait_ms * 2 : 20;
    tt_clock_sleep(*wait_ms * TT_NS_PER_MS, deadline);
}

/* By the deadline; a signal to the program's thread must not lose an answer that is on its way. */
static bool receive(int fd, void *data, size_t bytes, tt_deadline_t deadline)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&item, 1, tt_deadline_left_ms(deadline));
    } while (n < 0 && errno == EINTR);
    return n == 1 && recv(fd, data, bytes, MSG_DONTWAIT) == (ssize_t)bytes;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

/* The name is taken while the last world's listener is closing; or by another job or user. */
static tutti_status_t listen_there(const handover_t *handover, tt_unix_listener_t *out)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(NAME_FREE_MS);
    for (int64_t wait_ms = 1;; nap(&wait_ms, deadline)) {
        const tutti_status_t status = tt_unix_listen(&handover->address, out);
        if (status != TUTTI_PENDING) {
            return status;
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_IO, "rank 0 of %s: the meeting is held by another process",
                           handover->rendezvous->job);
        }
    }
}

static tutti_status_t name_missing(const handover_t *handover)
{
    char ranks[200] = "";
    size_t length = 0;
    for (int i = 1; i < handover->rendezvous->size && length + 16 < sizeof ranks; i++) {
        if (!handover->has_come[i]) {
            length += (size_t)snprintf(ranks + length, sizeof ranks - length, "%s%d",
                                       length > 0 ? ", " : "", i);
        }
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank 0 waited for rank%s %s of %d to come (%s)",
                   strchr(ranks, ',') != NULL ? "s" : "", ranks, handover->rendezvous->size,
                   handover->rendezvous->job);
}

/* A process of this user has said hello: a rank, which is answered, or another one. */
static tutti_status_t serve_one(handover_t *handover, int fd, const hello_t *hello,
                                const answer_t *answer)
{
    const tt_rendezvous_t *own = handover->rendezvous;
    const bool is_rank = hello->size == own->size && hello->rank > 0 && hello->rank < own->size;
    if (hello->magic != MAGIC || (is_rank && handover->has_come[hello->rank])) {
        return TUTTI_OK; /* for the next world, or a second of that rank: then one is missing */
    }
    const bool is_sent =
        send(fd, answer, sizeof *answer, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *answer;
    if (!is_rank) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "a process says that it is rank %d of %d; this is rank 0 of %d (%s)",
                       hello->rank, hello->size, own->size, own->job);
    }
    if (is_sent) {
        handover->has_come[hello->rank] = true;
        handover->missing--;
    }
    return TUTTI_OK;
}

/* All who have said hello. */
static tutti_status_t serve_callers(handover_t *handover, tt_unix_listener_t *listener,
                                    const answer_t *answer)
{
    hello_t hello;
    while (handover->missing > 0) {
        int fd;
        TT_TRY(tt_unix_listener_next(listener, &hello, sizeof hello, &fd));
        if (fd < 0) {
            return TUTTI_OK;
        }
        /* what is not received when a socket is closed resets it, and loses the answer */
        (void)recv(fd, &hello, sizeof hello, MSG_DONTWAIT);
        const tutti_status_t status = serve_one(handover, fd, &hello, answer);
        tt_socket_close(fd);
        TT_TRY(status);
    }
    return TUTTI_OK;
}

static tutti_status_t serve(handover_t *handover, tt_unix_listener_t *listener,
                            const answer_t *answer)
{
    struct pollfd polls[1 + TT_UNIX_CALLERS_MAX];
    while (handover->missing > 0) {
        const int count = tt_unix_listener_polls(listener, polls);
        (void)poll(polls, (nfds_t)count, tt_deadline_left_ms(handover->deadline));
        TT_TRY(serve_callers(handover, listener, answer));
        if (handover->missing > 0 && tt_deadline_is_past(handover->deadline)) {
            return name_missing(handover);
        }
    }
    return TUTTI_OK;
}

/* At MASTER_PORT if that is free; any other port is as good, as it is handed over. */
static tutti_status_t open_store(const tt_rendezvous_t *rendezvous, const tt_job_key_t *key,
                                 tutti_store_t **out)
{
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_choose(key, NULL, 0, &credentials));
    tutti_status_t status = tt_store_tcp_listen("127.0.0.1", rendezvous->port, credentials, out);
    if (status < 0 && rendezvous->port != 0) {
        status = tt_store_tcp_listen("127.0.0.1", 0, credentials, out);
    }
    tt_credentials_release(credentials);
    return status;
}

/* What rank 0 answers but for the port. */
static tutti_status_t prepare_answer(const tt_rendezvous_t *rendezvous, answer_t *answer)
{
    *answer = (answer_t){.magic = MAGIC, .size = rendezvous->size};
    const bool is_protected = strcmp(tt_config_text(TT_CONFIG_PROTECT), "off") != 0;
    bool found;
    TT_TRY(tt_job_key_find(&answer->key, &found));
    return found || !is_protected ? TUTTI_OK : tt_job_key_make(&answer->key);
}

static tutti_status_t host_store(handover_t *handover, tutti_store_t **out)
{
    tt_unix_listener_t listener;
    const size_t size = (size_t)handover->rendezvous->size;
    tutti_store_t *store = NULL;
    tutti_status_t status;
    answer_t answer;
    TT_TRY(prepare_answer(handover->rendezvous, &answer));
    handover->has_come = tt_alloc_array(size, sizeof *handover->has_come, "meeting");
    TT_TRY_ALLOC(handover->has_come);
    handover->missing = (int)size - 1;
    TT_TRY_GOTO(status, listen_there(handover, &listener), free_list);
    TT_TRY_GOTO(status, open_store(handover->rendezvous, &answer.key, &store), close_listener);
    answer.port = tutti_store_port(store);
    status = serve(handover, &listener, &answer);
    if (status < 0) {
        tutti_store_release(store);
    } else {
        *out = store;
    }
close_listener:
    tt_unix_listener_close(&listener);
free_list:
    tt_free(handover->has_come);
    explicit_bzero(&answer.key, sizeof answer.key);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* PENDING: it serves another world. */
static tutti_status_t ask(const handover_t *handover, int fd, answer_t *answer)
{
    const tt_rendezvous_t *own = handover->rendezvous;
    const hello_t hello = {.magic = MAGIC, .rank = own->rank, .size = own->size};
    uid_t uid = 0;
    if (!tt_unix_is_same_user(fd, &uid)) {
        return TT_FAIL(TUTTI_ERR_AUTH, "rank %d: user %u, not %u, holds the meeting of %s",
                       own->rank, (unsigned)uid, (unsigned)geteuid(), own->job);
    }
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello ||
        !receive(fd, answer, sizeof *answer, handover->deadline) || answer->magic != MAGIC) {
        return TUTTI_PENDING;
    }
    return answer->size == own->size
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d counts %d ranks, rank 0 counts %d (%s)",
                         own->rank, own->size, answer->size, own->job);
}

static tutti_status_t find_store(const handover_t *handover, answer_t *answer)
{
    for (int64_t wait_ms = 1;; nap(&wait_ms, handover->deadline)) {
        int fd;
        tutti_status_t status = tt_unix_connect(&handover->address, handover->deadline, &fd);
        if (status == TUTTI_OK) {
            status = ask(handover, fd, answer);
            tt_socket_close(fd);
        }
        if (status != TUTTI_PENDING) { /* rank 0 is there, and serves this world */
            return status;
        }
        if (tt_deadline_is_past(handover->deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "rank %d of %d waited for rank 0 to come to this host's meeting (%s)",
                           handover->rendezvous->rank, handover->rendezvous->size,
                           handover->rendezvous->job);
        }
    }
}

static tutti_status_t join_store(const handover_t *handover, const answer_t *answer,
                                 tutti_store_t **out)
{
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_choose(&answer->key, NULL, 0, &credentials));
    const tutti_status_t status = tt_store_tcp_connect(
        "127.0.0.1", answer->port, credentials, tt_deadline_timeout_ms(handover->deadline), out);
    tt_credentials_release(credentials);
    return status;
}

tutti_status_t tt_rendezvous_hand_over(const tt_rendezvous_t *rendezvous, const char *name,
                                       tt_deadline_t deadline, tutti_store_t **out)
{
    handover_t handover = {.rendezvous = rendezvous, .deadline = deadline};
    set_address(&handover, name);
    if (rendezvous->rank == 0) {
        return host_store(&handover, out);
    }
    answer_t answer;
    TT_TRY(find_store(&handover, &answer));
    const tutti_status_t status = join_store(&handover, &answer, out);
    explicit_bzero(&answer.key, sizeof answer.key);
    return status;
}
