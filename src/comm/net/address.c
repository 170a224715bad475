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

static bool print(const struct sockaddr *address, socklen_t bytes, char out[TT_ADDRESS_TEXT_BYTES])
{
    return getnameinfo(address, bytes, out, TT_ADDRESS_TEXT_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
}

tutti_status_t tt_address_print(const tt_addresses_t *list, int index,
                                char out[TT_ADDRESS_TEXT_BYTES])
{
    return print((const struct sockaddr *)&list->address[index], list->bytes[index], out)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_IO, "an address of family %d cannot be printed",
                         list->address[index].ss_family);
}

/* Port 0 in place of the store's, which may be in use. */
static bool can_bind(const tt_addresses_t *list, int index)
{
    tt_addresses_t any = *list;
    tt_addresses_set_port(&any, 0);
    const struct sockaddr *address = (const struct sockaddr *)&any.address[index];
    const int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_ours = fd >= 0 && bind(fd, address, any.bytes[index]) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_ours;
}

tutti_status_t tt_address_own(const char *host, const tt_addresses_t *list,
                              char out[TT_ADDRESS_TEXT_BYTES])
{
    char text[TT_ADDRESS_TEXT_BYTES] = "";
    bool is_found = false;
    for (int i = 0; i < list->count && !is_found; i++) {
        TT_TRY(tt_address_print(list, i, text));
        is_found = !tt_address_is_loopback(text) && can_bind(list, i);
    }
    if (!is_found) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       tt_address_is_loopback(text)
                           ? "host %s is %s here, a loopback that other hosts cannot reach; give "
                             "one of this host's addresses as a number"
                           : "host %s (%s) is not this host; the store is made on the host that "
                             "is named, which has rank 0",
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
