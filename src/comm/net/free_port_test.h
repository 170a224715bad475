/* Ports of loopback on which nobody listens, for tests. For *_test.c only. */
#ifndef TT_FREE_PORT_TEST_H
#define TT_FREE_PORT_TEST_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/testing.h"

/* One that no other process gets until `held` is closed: the name of a meeting of this one's ranks,
 * whose store then listens elsewhere. */
static inline int tt_hold_port(int *held)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*held, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(*held, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

/* One to listen on. */
static inline int tt_free_port(void)
{
    int held;
    const int port = tt_hold_port(&held);
    close(held);
    return port;
}

#endif
