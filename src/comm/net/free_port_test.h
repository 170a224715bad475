/* A port of loopback on which nobody listens, for tests. For *_test.c only. */
#ifndef TT_FREE_PORT_TEST_H
#define TT_FREE_PORT_TEST_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/testing.h"

static inline int tt_free_port(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

#endif
