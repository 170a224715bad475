/* Blocking tcp with deadlines, for whoever waits anyway and needs no loop. */
#ifndef TT_SOCKET_H
#define TT_SOCKET_H

#include <stddef.h>

#include "core/base/clock.h"
#include "core/base/fail.h"

/* A connected, non-blocking socket. One try of each address of the host; IO when none of them
 * answers, TIMEOUT at the deadline. */
tutti_status_t tt_socket_connect(const char *host, int port, tt_deadline_t deadline, int *out);

/* Find out within 6 s that the other side's host is gone, though nothing is sent. */
void tt_socket_keep_alive(int fd);

/* All bytes; PEER when the other side has closed, TIMEOUT at the deadline. */
tutti_status_t tt_socket_send(int fd, const void *data, size_t bytes, tt_deadline_t deadline);
tutti_status_t tt_socket_receive(int fd, void *data, size_t bytes, tt_deadline_t deadline);

#endif
