/* The URLs of init methods, as torch.distributed takes them. No part is %-decoded, as there.
 *
 *     tcp://192.0.2.7:29500?rank=1&world_size=4
 *     scheme host     port  query
 */
#include <stdio.h>
#include <string.h>

#include "comm/rendezvous/rendezvous.h"
#include "comm/net/address.h"
#include "core/base/config.h"

typedef struct {
    int64_t rank, size; /* -1: not given */
} query_t;

static tutti_status_t read_number(const char *url, const char *name, const char *from, size_t bytes,
                                  int64_t *out)
{
    char text[24];
    int64_t value;
    const int length = snprintf(text, sizeof text, "%.*s", (int)bytes, from);
    if (length >= (int)sizeof text || !tt_parse_int(text, &value) || value < 0 ||
        value > TT_WORLD_SIZE_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: %s is \"%.*s\"; want a number from 0 to %d", url,
                       name, (int)(bytes < 40 ? bytes : 40), from, TT_WORLD_SIZE_MAX);
    }
    if (*out >= 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: %s is given twice", url, name);
    }
    *out = value;
    return TUTTI_OK;
}

static tutti_status_t read_item(const char *url, const char *item, size_t bytes, query_t *query)
{
    if (strncmp(item, "rank=", 5) == 0 && bytes >= 5) {
        return read_number(url, "rank", item + 5, bytes - 5, &query->rank);
    }
    if (strncmp(item, "world_size=", 11) == 0 && bytes >= 11) {
        return read_number(url, "world_size", item + 11, bytes - 11, &query->size);
    }
    return TT_FAIL(TUTTI_ERR_ARG, "init %s: \"%.*s\" is not known; want rank=R and world_size=W",
                   url, (int)(bytes < 40 ? bytes : 40), item);
}

/* `at` is the query's first byte, behind the question mark. */
static tutti_status_t read_query(const char *url, const char *at, query_t *query)
{
    while (*at != 0) {
        const size_t bytes = strcspn(at, "&");
        TT_TRY(read_item(url, at, bytes, query));
        at += bytes + (at[bytes] != 0);
    }
    return TUTTI_OK;
}

static tutti_status_t take_query(const char *url, const query_t *query, tt_rendezvous_t *out)
{
    if (query->rank < 0 || query->size < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: %s is missing, as in ?rank=0&world_size=2", url,
                       query->rank < 0 ? "rank" : "world_size");
    }
    if (query->rank >= query->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: rank %d of a world of %d", url, (int)query->rank,
                       (int)query->size);
    }
    out->rank = (int)query->rank;
    out->size = (int)query->size;
    return TUTTI_OK;
}

/* "host:port" or "[::1]:port". */
static tutti_status_t read_authority(const char *url, const char *text, size_t bytes,
                                     tt_rendezvous_t *out)
{
    const char *colon = memrchr(text, ':', bytes);
    const char *bracket = memrchr(text, ']', bytes);
    if (colon == NULL || (bracket != NULL && colon < bracket)) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: the port is missing; want tcp://HOST:PORT", url);
    }
    char digits[8] = "";
    int64_t port;
    const size_t digit_count = (size_t)(text + bytes - colon - 1);
    snprintf(digits, sizeof digits, "%.*s", (int)digit_count, colon + 1);
    if (digit_count > 5 || !tt_parse_int(digits, &port) || port < 1 || port > 65535) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: port \"%.*s\"; want a number from 1 to 65535", url,
                       (int)digit_count, colon + 1);
    }
    const size_t cut = bracket != NULL && text[0] == '[' && colon == bracket + 1;
    const size_t host_bytes = (size_t)(colon - text);
    if (host_bytes <= 2 * cut || host_bytes >= sizeof out->host) {
        return TT_FAIL(TUTTI_ERR_ARG, "init %s: the host is missing or too long", url);
    }
    out->host_source = "the init URL";
    snprintf(out->host, sizeof out->host, "%.*s", (int)(host_bytes - 2 * cut), text + cut);
    out->port = (int)port;
    out->port_count = 1;
    return TUTTI_OK;
}

static tutti_status_t read_tcp(const char *url, const query_t *query, tt_rendezvous_t *out)
{
    const char *text = url + strlen("tcp://");
    TT_TRY(read_authority(url, text, strcspn(text, "/?"), out));
    TT_TRY(take_query(url, query, out));
    out->kind = tt_address_is_loopback(out->host) ? TT_PLACE_HOST : TT_PLACE_MASTER;
    snprintf(out->job, sizeof out->job, "tcp port %d", out->port);
    return TUTTI_OK;
}

static tutti_status_t read_file(const char *url, const query_t *query, tt_rendezvous_t *out)
{
    const char *path = url + strlen("file://");
    const size_t bytes = strcspn(path, "?");
    if (path[0] != '/' || bytes >= sizeof out->path) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "init %s: want file:// and an absolute path of at most %zu bytes", url,
                       sizeof out->path - 1);
    }
    TT_TRY(take_query(url, query, out));
    out->kind = TT_PLACE_FILE;
    snprintf(out->path, sizeof out->path, "%.*s", (int)bytes, path);
    return TUTTI_OK;
}

/* The query of env:// stands above the environment. */
static tutti_status_t read_environment(const char *url, const query_t *query, tt_rendezvous_t *out)
{
    const size_t head = strlen("env://");
    if (url[head] != 0 && url[head] != '?') {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "init %s: nothing but ?rank=R&world_size=W stands behind "
                       "env://",
                       url);
    }
    return tt_rendezvous_from_environment((int)query->rank, (int)query->size, out);
}

tutti_status_t tt_rendezvous_from_url(const char *url, int rank, int world_size,
                                      tt_rendezvous_t *out)
{
    query_t query = {-1, -1};
    tt_rendezvous_t found = {.launcher = "the init URL", .local_rank = -1};
    const char *question = strchr(url, '?');
    if (question != NULL) {
        TT_TRY(read_query(url, question + 1, &query));
    }
    if (world_size > 0) {
        if (query.rank >= 0 || query.size >= 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "init %s: rank and world_size are in the options, too; give them once",
                           url);
        }
        query = (query_t){rank, world_size};
    }
    tutti_status_t status;
    if (strncmp(url, "tcp://", 6) == 0) {
        status = read_tcp(url, &query, &found);
    } else if (strncmp(url, "file://", 7) == 0) {
        status = read_file(url, &query, &found);
    } else if (strncmp(url, "env://", 6) == 0) {
        status = read_environment(url, &query, &found);
    } else {
        status = TT_FAIL(TUTTI_ERR_ARG, "init %.200s: want env://, tcp:// or file://", url);
    }
    TT_TRY(status);
    *out = found;
    return TUTTI_OK;
}
