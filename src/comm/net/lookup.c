/* Lookups of host names in a thread each.
 *
 *     caller                                  thread
 *     an order on its stack  --------------> copies it, posts `taken`
 *     polls its end of a socket pair <------ one packet: the resolver's code and the addresses
 *
 * Nothing is shared after `taken`: whichever side ends first closes its end of the pair.
 */
#include "comm/net/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *host;
    int port, fd;
    sem_t taken;
} order_t;

typedef struct {
    int code, error; /* of getaddrinfo, and errno */
    tt_addresses_t addresses;
} answer_t;

static void resolve(const char *host, int port, int flags, answer_t *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    struct addrinfo *list;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    out->code = getaddrinfo(host, service, &hints, &list);
    out->error = errno;
    out->addresses.count = 0;
    if (out->code != 0) {
        return;
    }
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        tt_addresses_t *to = &out->addresses;
        if (to->count < TT_ADDRESSES_MAX && at->ai_addrlen <= sizeof to->address[0]) {
            memcpy(&to->address[to->count], at->ai_addr, at->ai_addrlen);
            to->bytes[to->count++] = at->ai_addrlen;
        }
    }
    freeaddrinfo(list);
}

static void *look_up(void *user)
{
    order_t *order = user;
    char host[TT_HOST_NAME_BYTES];
    const int port = order->port, fd = order->fd;
    snprintf(host, sizeof host, "%s", order->host);
    sem_post(&order->taken); /* from here on the order may be gone */
    answer_t answer = {0};
    resolve(host, port, 0, &answer);
    (void)send(fd, &answer, sizeof answer, MSG_NOSIGNAL); /* nobody may be waiting any more */
    close(fd);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(order_t *order)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&thread, &detached, look_up, order);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return code;
}

static tutti_status_t hand_to_thread(const char *host, int port, tt_lookup_t *lookup)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "looking up host %s: socketpair", host);
    }
    order_t order = {.host = host, .port = port, .fd = ends[1]};
    sem_init(&order.taken, 0, 0);
    const int code = start_thread(&order);
    if (code != 0) {
        close(ends[0]);
        close(ends[1]);
        sem_destroy(&order.taken);
        return TT_FAIL(TUTTI_ERR_IO, "looking up host %s: cannot start a thread: %s", host,
                       strerror(code));
    }
    while (sem_wait(&order.taken) != 0) {
    }
    sem_destroy(&order.taken);
    lookup->fd = ends[0];
    return TUTTI_OK;
}

/* "localhost" is this host by definition (RFC 6761, 6.3), also where /etc/hosts is missing. */
static const char *numeric_if_local(const char *host)
{
    return strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
}

tutti_status_t tt_lookup_start(const char *host, int port, tt_lookup_t *lookup)
{
    if (host[0] == 0 || strlen(host) >= sizeof lookup->host) {
        return TT_FAIL(TUTTI_ERR_ARG, "host \"%.40s\" has %zu characters; want 1 to %zu", host,
                       strlen(host), sizeof lookup->host - 1);
    }
    lookup->fd = -1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    answer_t answer;
    resolve(numeric_if_local(host), port, AI_NUMERICHOST, &answer);
    if (answer.code == 0) {
        lookup->known = answer.addresses;
        return TUTTI_OK;
    }
    return hand_to_thread(host, port, lookup);
}

static tutti_status_t take_answer(tt_lookup_t *lookup, tt_addresses_t *out)
{
    answer_t answer;
    if (recv(lookup->fd, &answer, sizeof answer, 0) != (ssize_t)sizeof answer) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "looking up host %s", lookup->host);
    }
    if (answer.code != 0 || answer.addresses.count == 0) {
        const char *said = answer.code == EAI_SYSTEM ? strerror(answer.error)
                           : answer.code != 0        ? gai_strerror(answer.code)
                                                     : "it has no address";
        return TT_FAIL(TUTTI_ERR_ARG, "host %s cannot be resolved: %s", lookup->host, said);
    }
    *out = answer.addresses;
    return TUTTI_OK;
}

tutti_status_t tt_lookup_wait(tt_lookup_t *lookup, tt_deadline_t deadline, tt_addresses_t *out)
{
    struct pollfd item = {.fd = lookup->fd, .events = POLLIN};
    if (lookup->fd < 0) {
        *out = lookup->known;
        return TUTTI_OK;
    }
    for (;;) {
        const int n = poll(&item, 1, tt_deadline_left_ms(deadline));
        if (n > 0) {
            return take_answer(lookup, out);
        }
        if (n < 0 && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "looking up host %s: poll", lookup->host);
        }
        if (tt_deadline_is_past(deadline)) {
            return TUTTI_PENDING;
        }
    }
}

void tt_lookup_close(tt_lookup_t *lookup)
{
    if (lookup->fd >= 0) {
        close(lookup->fd);
        lookup->fd = -1;
    }
}

tutti_status_t tt_addresses_find(const char *host, int port, tt_deadline_t deadline,
                                 tt_addresses_t *out)
{
    tt_lookup_t lookup;
    TT_TRY(tt_lookup_start(host, port, &lookup));
    const tutti_status_t status = tt_lookup_wait(&lookup, deadline, out);
    tt_lookup_close(&lookup);
    return status == TUTTI_PENDING
               ? TT_FAIL(TUTTI_ERR_TIMEOUT,
                         "host %s cannot be resolved: the resolver has not answered in time", host)
               : status;
}

void tt_addresses_set_port(tt_addresses_t *addresses, int port)
{
    for (int i = 0; i < addresses->count; i++) {
        /* The port lies at the same place in both kinds of address. */
        ((struct sockaddr_in *)&addresses->address[i])->sin_port = htons((uint16_t)port);
    }
}
