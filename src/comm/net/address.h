/* Addresses of this host, as numbers in text. */
#ifndef TT_ADDRESS_H
#define TT_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "comm/net/lookup.h"
#include "core/base/fail.h"

enum { TT_ADDRESS_TEXT_BYTES = 64 };

/* An address of either family. The port lies at the same place in both. */
typedef union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} tt_inet_t;

/* Of the text alone: "localhost", 127.…, ::1. */
bool tt_address_is_loopback(const char *host);

/* One of them as a number; IO. */
tutti_status_t tt_address_print(const tt_addresses_t *list, int index,
                                char out[TT_ADDRESS_TEXT_BYTES]);

/* Of this end of a connected socket; IO. */
tutti_status_t tt_address_of_socket(int fd, char out[TT_ADDRESS_TEXT_BYTES]);

/* The first of a host's addresses that is one of ours, and no loopback. ARG when there is none,
 * with a text that says so. */
tutti_status_t tt_address_own(const char *host, const tt_addresses_t *list,
                              char out[TT_ADDRESS_TEXT_BYTES]);

#endif
