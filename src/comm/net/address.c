/* Which of our addresses: asked of the kernel, by connecting a datagram socket (no packet is sent)
 * or by binding one. Host names are resolved only where a user gave one.
 */
#include "comm/net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool tt_address_is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static tutti_status_t resolve(const char *host, int port, struct addrinfo **list)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code =
        getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, service, &hints, list);
    return code != 0 ? TT_FAIL(TUTTI_ERR_ARG, "host %s: %s", host, gai_strerror(code)) : TUTTI_OK;
}

static bool print(const struct sockaddr *address, socklen_t bytes, char out[TT_ADDRESS_TEXT_BYTES])
{
    return getnameinfo(address, bytes, out, TT_ADDRESS_TEXT_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
}

static bool route_to(const struct addrinfo *to, char out[TT_ADDRESS_TEXT_BYTES])
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                          getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
                          print((const struct sockaddr *)&own, bytes, out);
    if (fd >= 0) {
        close(fd);
    }
    return is_found;
}

tutti_status_t tt_address_route(const char *host, int port, char out[TT_ADDRESS_TEXT_BYTES])
{
    struct addrinfo *list;
    TT_TRY(resolve(host, port, &list));
    bool is_found = false;
    for (const struct addrinfo *at = list; at != NULL && !is_found; at = at->ai_next) {
        is_found = route_to(at, out);
    }
    freeaddrinfo(list);
    return is_found ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "no route to host %s", host);
}

static bool can_bind(const struct addrinfo *address)
{
    const int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_ours = fd >= 0 && bind(fd, address->ai_addr, address->ai_addrlen) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_ours;
}

tutti_status_t tt_address_own(const char *host, char out[TT_ADDRESS_TEXT_BYTES])
{
    struct addrinfo *list;
    TT_TRY(resolve(host, 0, &list));
    char text[TT_ADDRESS_TEXT_BYTES] = "";
    bool is_found = false;
    for (const struct addrinfo *at = list; at != NULL && !is_found; at = at->ai_next) {
        is_found = print(at->ai_addr, at->ai_addrlen, text) && !tt_address_is_loopback(text) &&
                   can_bind(at);
    }
    freeaddrinfo(list);
    if (!is_found) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       tt_address_is_loopback(text)
                           ? "host %s is %s here, a loopback that other hosts cannot reach; give "
                             "one of this host's addresses as a number"
                           : "host %s (%s) is not this host; the store is made on the host that "
                             "is named, by rank 0",
                       host, text);
    }
    memcpy(out, text, sizeof text);
    return TUTTI_OK;
}

tutti_status_t tt_address_of_socket(int fd, char out[TT_ADDRESS_TEXT_BYTES])
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0 ||
        !print((const struct sockaddr *)&own, bytes, out)) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot tell this end's address");
    }
    return TUTTI_OK;
}
