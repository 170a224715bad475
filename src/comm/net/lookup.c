/* Lookups of host names in a thread each.
 *
 *     caller                                  thread
 *     one packet: the name and the port ----> calls the resolver
 *     polls its end of a socket pair <------- one packet: the resolver's code and the addresses
 *
 * They share nothing but the socket pair; each side closes its end when it is done.
 */
#include "comm/net/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/thread.h"

typedef struct {
    char host[TT_HOST_NAME_BYTES];
    int port;
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
    const int fd = (int)(intptr_t)user;
    order_t order;
    answer_t answer = {0};
    if (recv(fd, &order, sizeof order, 0) == (ssize_t)sizeof order) {
        resolve(order.host, order.port, 0, &answer);
        (void)send(fd, &answer, sizeof answer, MSG_NOSIGNAL); /* the caller may have gone */
    }
    close(fd);
    return NULL;
}

static tutti_status_t hand_to_thread(const char *host, int port, tt_lookup_t *lookup)
{
    int ends[2];
    pthread_t thread;
    order_t order = {.port = port};
    snprintf(order.host, sizeof order.host, "%s", host);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "looking up host %s: socketpair", host);
    }
    tutti_status_t status = TUTTI_OK;
    if (send(ends[0], &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "looking up host %s", host);
    } else {
        status = tt_thread_start(look_up, (void *)(intptr_t)ends[1], "looking up a host", &thread);
    }
    if (status < 0) {
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    pthread_detach(thread);
    lookup->fd = ends[0];
    return TUTTI_OK;
}

bool tt_addresses_parse(const char *number, int port, tt_addresses_t *out)
{
    answer_t answer;
    resolve(number, port, AI_NUMERICHOST, &answer);
    *out = answer.addresses;
    return answer.code == 0;
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
    return tt_addresses_parse(numeric_if_local(host), port, &lookup->known)
               ? TUTTI_OK
               : hand_to_thread(host, port, lookup);
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
