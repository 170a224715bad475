/* Launchers' variables, init URLs and Slurm's lists of arbitrary bytes: what stands between zero
 * bytes is NAME=value for a name that is known, and a URL and a list as well. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/rendezvous/rendezvous.h"
#include "core/base/alloc.h"
#include "core/base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { TEXT_BYTES_MAX = 4096 };

static void forget_all(void)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        unsetenv(tt_config_table[i].variable);
    }
}

static void set(const char *item)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        const size_t length = strlen(tt_config_table[i].variable);
        if (strncmp(item, tt_config_table[i].variable, length) == 0 && item[length] == '=') {
            setenv(tt_config_table[i].variable, item + length + 1, 1);
        }
    }
}

/* A success is a place that can be opened; a failure has a text. */
static void check(tutti_status_t status, const tt_rendezvous_t *out)
{
    if (status < 0) {
        TT_ASSERT(status == TUTTI_ERR_ARG && tutti_last_error()[0] != 0 && out->size == -7);
        return;
    }
    TT_ASSERT(out->size >= 1 && out->size <= TT_WORLD_SIZE_MAX);
    TT_ASSERT(out->rank >= 0 && out->rank < out->size);
    TT_ASSERT(out->local_size >= 0 && out->local_size <= out->size);
    TT_ASSERT(out->port >= 0 && out->port + out->port_count <= 65536 + 1);
    TT_ASSERT(memchr(out->host, 0, sizeof out->host) != NULL);
    if (out->kind == TT_PLACE_MASTER || out->kind == TT_PLACE_SERVED) {
        TT_ASSERT(out->host[0] != 0 && out->port > 0);
    } else if (out->kind == TT_PLACE_HOST) {
        TT_ASSERT(out->job[0] != 0);
    } else if (out->kind == TT_PLACE_FILE) {
        TT_ASSERT(out->path[0] == '/');
    }
}

static void read_item(const char *item)
{
    tt_rendezvous_t out = {.size = -7};
    check(tt_rendezvous_from_url(item, 0, 0, &out), &out);
    out.size = -7;
    check(tt_rendezvous_from_url(item, 1, 2, &out), &out);
    char host[32];
    if (tt_slurm_first_host(item, host, sizeof host)) {
        TT_ASSERT(host[0] != 0 && memchr(host, 0, sizeof host) != NULL);
    }
    const int count = tt_slurm_count_at(item, 3);
    TT_ASSERT(count >= 0 && count <= TT_WORLD_SIZE_MAX);
    set(item);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[TEXT_BYTES_MAX + 1] = {0};
    const size_t used = bytes < TEXT_BYTES_MAX ? bytes : TEXT_BYTES_MAX;
    memcpy(text, data, used);
    forget_all();
    for (size_t at = 0; at < used; at += strlen(text + at) + 1) {
        read_item(text + at);
    }
    tt_rendezvous_t out = {.size = -7};
    check(tt_rendezvous_from_environment(-1, -1, &out), &out);
    forget_all();
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
