/* Addresses of this host, as numbers in text. */
#ifndef TT_ADDRESS_H
#define TT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/fail.h"

enum { TT_ADDRESS_TEXT_BYTES = 64 };

/* Of the text alone: "localhost", 127.…, ::1. */
bool tt_address_is_loopback(const char *host);

/* The address of this host on the way to another (or to itself): what that one sees. Sends nothing.
 * ARG when the host is not known, IO when there is no way. */
tutti_status_t tt_address_route(const char *host, int port, char out[TT_ADDRESS_TEXT_BYTES]);

/* Of this end of a connected socket; IO. */
tutti_status_t tt_address_of_socket(int fd, char out[TT_ADDRESS_TEXT_BYTES]);

/* The first of a host's addresses that is one of ours, and no loopback. ARG when there is none,
 * with a text that says so. */
tutti_status_t tt_address_own(const char *host, char out[TT_ADDRESS_TEXT_BYTES]);

#endif
