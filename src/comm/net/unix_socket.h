/* Unix sockets by which the processes of a host find each other: abstract names, SOCK_SEQPACKET.
 * Anybody on the host may connect to them, so a listener keeps those apart that have said nothing
 * yet, and a connect has a deadline. One thread at a time.
 */
#ifndef TT_UNIX_SOCKET_H
#define TT_UNIX_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/clock.h"
#include "core/base/fail.h"

typedef struct {
    struct sockaddr_un where;
    socklen_t bytes;
} tt_unix_address_t;

/* The abstract socket of this name, of at most 100 bytes. */
tt_unix_address_t tt_unix_address(const char *name);

/* Connects, and waits for a place in the listener's queue if that is full; sends on *out have the
 * same time. PENDING: there is no listener. Errors: TIMEOUT, IO. */
tutti_status_t tt_unix_connect(const tt_unix_address_t *address, tt_deadline_t deadline, int *out);

/* What is sent from now on waits for at most what is left until the deadline. */
void tt_unix_set_send_deadline(int fd, tt_deadline_t deadline);

/* Who is at the other end, by SO_PEERCRED: this process's user? */
bool tt_unix_is_same_user(int fd, uid_t *uid);

/* A descriptor (pidfd) that can be read when the process at the other end has ended, even if
 * another process holds its sockets; -1: it is this process, or the system does not say (another
 * pid namespace, an old kernel, a sandbox, no descriptor left). */
int tt_unix_peer_process(int fd);

enum { TT_UNIX_CALLERS_MAX = 64 };

/* A listener, and those who have connected and said nothing: when there are too many, the oldest
 * goes. */
typedef struct {
    int fd;
    int count;
    int callers[TT_UNIX_CALLERS_MAX]; /* the oldest first */
} tt_unix_listener_t;

/* Errors: IO. PENDING: another process has the name. */
tutti_status_t tt_unix_listen(const tt_unix_address_t *address, tt_unix_listener_t *out);
void tt_unix_listener_close(tt_unix_listener_t *listener);

/* What to poll for; room for 1 + TT_UNIX_CALLERS_MAX. */
int tt_unix_listener_polls(const tt_unix_listener_t *listener, struct pollfd *polls);

/* The next connection of this user whose first message, of `bytes`, is there: it is copied to
 * `message` and can still be received. *out is owned by the caller; -1: there is none. Connections
 * of other users, and with other messages, are closed.
 * Errors: IO (no descriptor left). */
tutti_status_t tt_unix_listener_next(tt_unix_listener_t *listener, void *message, size_t bytes,
                                     int *out);

#endif
