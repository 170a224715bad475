/* Joining the world: who I am and where the others are, from options or from the environment that
 * launchers set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
 *
 * The nth tutti_init of a rank in a store meets the nth of the others: the keys of each world have
 * a prefix of their own, "<name>.<n>".
 */
#include <stdio.h>

#include "comm/group/group_impl.h"
#include "core/base/config.h"

enum { WORLD_SIZE_MAX = 1 << 16, NAME_BYTES = 128 };

typedef struct {
    int rank, size;
    int64_t timeout_ms;
    const char *name;
    tutti_store_t *store; /* owned; NULL when alone */
} meeting_t;

static tutti_status_t open_store(int rank, int64_t timeout_ms, tutti_store_t **out)
{
    if (!tt_config_is_set(TT_CONFIG_MASTER_ADDR) || !tt_config_is_set(TT_CONFIG_MASTER_PORT)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "WORLD_SIZE is %s but MASTER_ADDR or MASTER_PORT is not set; set all of "
                       "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or use `tutti run`",
                       tt_config_text(TT_CONFIG_WORLD_SIZE));
    }
    int64_t port, has_agent;
    TT_TRY(tt_config_int(TT_CONFIG_MASTER_PORT, 1, 65535, &port));
    TT_TRY(tt_config_int(TT_CONFIG_AGENT_STORE, 0, 1, &has_agent));
    const char *host = tt_config_text(TT_CONFIG_MASTER_ADDR);
    if (rank == 0 && has_agent == 0) {
        return tutti_store_tcp_listen(host, (int)port, out);
    }
    return tutti_store_tcp_connect(host, (int)port, timeout_ms, out);
}

static tutti_status_t read_environment(meeting_t *meeting)
{
    int64_t size, rank;
    TT_TRY(tt_config_int(TT_CONFIG_WORLD_SIZE, 1, WORLD_SIZE_MAX, &size));
    TT_TRY(tt_config_int(TT_CONFIG_RANK, 0, size - 1, &rank));
    meeting->size = (int)size;
    meeting->rank = (int)rank;
    if (size > 1) {
        return open_store(meeting->rank, meeting->timeout_ms, &meeting->store);
    }
    return TUTTI_OK;
}

static tutti_status_t read_options(const tutti_init_options_t *options, meeting_t *meeting)
{
    TT_TRY(tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &meeting->timeout_ms));
    meeting->name = "world";
    if (options == NULL) {
        return read_environment(meeting);
    }
    if (options->timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "init: timeout_ms is %lld; 0 means TUTTI_TIMEOUT_MS",
                       (long long)options->timeout_ms);
    }
    meeting->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : meeting->timeout_ms;
    meeting->name = options->name != NULL ? options->name : meeting->name;
    if (options->store == NULL) {
        return read_environment(meeting);
    }
    meeting->size = options->world_size > 0 ? options->world_size : 1;
    meeting->rank = options->rank;
    if (meeting->rank < 0 || meeting->rank >= meeting->size || meeting->size > WORLD_SIZE_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "init: rank %d of a world of %d", meeting->rank,
                       meeting->size);
    }
    meeting->store = tutti_store_retain(options->store);
    return TUTTI_OK;
}

/* The store with this world's prefix instead of the whole one. */
static tutti_status_t take_prefix(meeting_t *meeting)
{
    char key[NAME_BYTES + 32], prefix[NAME_BYTES + 32];
    const int n =
        snprintf(key, sizeof key, "init/%.*s/%d", NAME_BYTES, meeting->name, meeting->rank);
    int64_t turn;
    TT_TRY(tutti_store_add(meeting->store, (tutti_bytes_t){key, (size_t)n}, 1, &turn));
    const int m =
        snprintf(prefix, sizeof prefix, "%.*s.%lld", NAME_BYTES, meeting->name, (long long)turn);
    tutti_store_t *view;
    TT_TRY(tutti_store_prefix(meeting->store, (tutti_bytes_t){prefix, (size_t)m}, &view));
    tutti_store_release(meeting->store);
    meeting->store = view;
    return TUTTI_OK;
}

static tutti_status_t join(const meeting_t *meeting, tutti_group_t **out)
{
    tutti_group_t *group;
    TT_TRY(tt_group_create(&(tt_group_options_t){.name = meeting->name,
                                                 .rank = meeting->rank,
                                                 .size = meeting->size,
                                                 .store = meeting->store,
                                                 .timeout_ms = meeting->timeout_ms},
                           &group));
    /* Nobody goes on, and takes the store away, before all have found each other. */
    const tutti_status_t status = tutti_barrier(group, NULL);
    if (status < 0) {
        tutti_group_release(group);
        return status;
    }
    *out = group;
    return TUTTI_OK;
}

tutti_status_t tutti_init(const tutti_init_options_t *options, tutti_group_t **out)
{
    meeting_t meeting = {0};
    tutti_status_t status = read_options(options, &meeting);
    if (status >= 0 && meeting.store != NULL) {
        status = take_prefix(&meeting);
    }
    if (status >= 0) {
        status = join(&meeting, out);
    }
    tutti_store_release(meeting.store);
    return status;
}
