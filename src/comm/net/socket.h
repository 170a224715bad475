/* Sockets, and other descriptors, that end with their process.
 *
 * A connection tells its other side that this process is gone when the last descriptor of it is
 * closed; so does a pipe, and so the lock on a file is given back. A child made by fork() inherits
 * all descriptors, and may live on. So what is opened here is taken from such a child: in it their
 * numbers stand for /dev/null. Children that execute a program lose them anyway (close-on-exec). A
 * child made by clone(2) itself, or by _Fork(), keeps them: no library hears of those.
 *
 * Any thread.
 */
#ifndef TT_SOCKET_H
#define TT_SOCKET_H

#include <stdbool.h>

#include "core/base/fail.h"

/* As socket(2), close-on-exec; -1: errno says why. */
int tt_socket_open(int domain, int type);

/* The same of accept4(2), for a listener that does not block; flags: 0 or SOCK_NONBLOCK. */
int tt_socket_accept(int listener, int flags);

/* The same of open(2), for a file whose lock must end with this process. */
int tt_socket_open_file(const char *path, int flags, unsigned mode);

/* The same of pipe2(2), for a pipe whose end tells of a death; false: errno says why. */
bool tt_socket_open_pipe(int ends[2]);

/* All of them are closed by this; a file, which may be slow to close, by the other. */
void tt_socket_close(int fd);
void tt_socket_close_file(int fd);

/* The other side has hung up, and left nothing to read. */
bool tt_socket_has_ended(int fd);

/* errno, after an open or accept that failed, means that no descriptor is left. */
bool tt_is_out_of_descriptors(int code);

/* "WHAT: this process is out of file descriptors (limit 1024); raise it with ulimit -n". IO. */
tutti_status_t tt_fail_out_of_descriptors(const char *what);

#endif
