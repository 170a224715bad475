/* What launchers say through the environment: one table of launchers (launchers.def), then one
 * decision, where the store is.
 *
 *     TUTTI_AGENT_STORE=1                       the launcher serves it at MASTER_ADDR:MASTER_PORT
 *     all ranks on this host                    rank 0 hands it over a Unix socket
 *     MASTER_ADDR (Slurm: the first host)       rank 0 listens there
 *     otherwise                                 a refusal that names what to set
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <tutti/launch.h>

#include <xxhash.h>

#include "comm/rendezvous/rendezvous.h"
#include "comm/net/address.h"
#include "core/base/config.h"

typedef struct {
    const char *name;
    tt_config_key_t rank, size, local_rank, local_size, job;
} launcher_t;

static const launcher_t launchers[] = {
#define X(name, rank, size, local_rank, local_size, job)                                           \
    {name,                                                                                         \
     TT_CONFIG_##rank,                                                                             \
     TT_CONFIG_##size,                                                                             \
     TT_CONFIG_##local_rank,                                                                       \
     TT_CONFIG_##local_size,                                                                       \
     TT_CONFIG_##job},
#include "comm/rendezvous/launchers.def"
#undef X
};

enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

/* Ports for jobs that have none: below those that systems give to clients. */
enum { DERIVED_PORT_FIRST = 20000, DERIVED_PORTS = 12000 };

static bool is_by_hand(const launcher_t *launcher)
{
    return launcher == &launchers[0];
}

static const launcher_t *find_launcher(bool is_given)
{
    const launcher_t *found = NULL;
    if (is_given) {
        return &launchers[0];
    }
    for (int i = 0; i < LAUNCHERS; i++) {
        const launcher_t *at = &launchers[i];
        const bool has_rank = tt_config_is_set(at->rank), has_size = tt_config_is_set(at->size);
        if (is_by_hand(at) ? has_rank || has_size
                           : has_rank && has_size && tt_config_is_set(at->local_size)) {
            return at;
        }
        found = found == NULL && has_rank && has_size ? at : found;
    }
    return found;
}

static tutti_status_t want(tt_config_key_t key, const launcher_t *launcher)
{
    const tt_config_key_t other = key == launcher->rank ? launcher->size : launcher->rank;
    if (!tt_config_is_set(key)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s is not set (%s is); set all of RANK, WORLD_SIZE, MASTER_ADDR, "
                       "MASTER_PORT, or use `tutti run`",
                       tt_config_table[key].variable, tt_config_table[other].variable);
    }
    return TUTTI_OK;
}

/* out->size and out->rank, unless they are given: not -1. */
static tutti_status_t read_rank(const launcher_t *launcher, int given_rank, int given_size,
                                tt_rendezvous_t *out)
{
    int64_t size = given_size, rank = given_rank;
    if (given_size < 0) {
        TT_TRY(want(launcher->size, launcher));
        TT_TRY(tt_config_int(launcher->size, 1, TT_WORLD_SIZE_MAX, &size));
    }
    if (given_rank < 0) {
        TT_TRY(want(launcher->rank, launcher));
        TT_TRY(tt_config_int(launcher->rank, 0, size - 1, &rank));
    }
    if (rank >= size || size > TT_WORLD_SIZE_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "init: rank %d of a world of %d", (int)rank, (int)size);
    }
    out->size = (int)size;
    out->rank = (int)rank;
    return TUTTI_OK;
}

static tutti_status_t read_local(const launcher_t *launcher, tt_rendezvous_t *out)
{
    int64_t local_rank = -1, node = 0;
    const int size = out->size;
    if (tt_config_is_set(launcher->local_rank)) {
        TT_TRY(tt_config_int(launcher->local_rank, 0, size - 1, &local_rank));
    }
    if (tt_config_is_set(launcher->local_size)) {
        const char *text = tt_config_text(launcher->local_size);
        TT_TRY(tt_config_int(TT_CONFIG_SLURM_NODE, 0, TT_WORLD_SIZE_MAX, &node));
        const bool is_list = launcher->local_size == TT_CONFIG_SLURM_LOCAL_SIZES;
        out->local_size = tt_slurm_count_at(text, is_list ? node : 0);
        if (out->local_size < 1 || out->local_size > size || out->local_size <= local_rank) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s=%s: rank %d of %d cannot be one of so many here",
                           tt_config_table[launcher->local_size].variable, text, out->rank, size);
        }
    }
    out->local_rank = (int)local_rank;
    return TUTTI_OK;
}

/* "True", as torchrun writes it, or 1. */
static bool has_torch_store(void)
{
    const char *text = tt_config_text(TT_CONFIG_TORCH_AGENT_STORE);
    return strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0;
}

/* Hydra gives its jobs no name: the process that started the ranks, the first ancestor that does
 * not have the variable of a rank, stands for the job. */
static void name_job(const launcher_t *launcher, tt_rendezvous_t *out)
{
    char job[TT_JOB_BYTES / 2] = "";
    if (tt_config_is_set(launcher->job)) {
        snprintf(job, sizeof job, "%s.%s", tt_config_text(launcher->job),
                 tt_config_text(TT_CONFIG_SLURM_STEP));
    } else if (out->port == 0) {
        const tt_launcher_t process = tt_launcher_find(tt_config_table[launcher->rank].variable);
        snprintf(job, sizeof job, "process %ld.%llu", process.pid, process.started);
    }
    snprintf(out->job, sizeof out->job, "%s %s port %d attempt %.20s", launcher->name, job,
             out->port, tt_config_text(TT_CONFIG_RESTART_COUNT));
}

static int derive_port(const launcher_t *launcher)
{
    char text[TT_JOB_BYTES];
    const int bytes = snprintf(text, sizeof text, "%.100s.%.20s", tt_config_text(launcher->job),
                               tt_config_text(TT_CONFIG_SLURM_STEP));
    return DERIVED_PORT_FIRST + (int)(XXH3_64bits(text, (size_t)bytes) % DERIVED_PORTS);
}

/* MASTER_ADDR and MASTER_PORT, or "" and 0. */
static tutti_status_t read_master(tt_rendezvous_t *out)
{
    int64_t port = 0;
    const char *host = tt_config_text(TT_CONFIG_MASTER_ADDR);
    if (strlen(host) >= sizeof out->host) {
        return TT_FAIL(TUTTI_ERR_ARG, "MASTER_ADDR has %zu characters; want at most %zu",
                       strlen(host), sizeof out->host - 1);
    }
    snprintf(out->host, sizeof out->host, "%s", host);
    out->host_source = tt_config_table[TT_CONFIG_MASTER_ADDR].variable;
    if (tt_config_is_set(TT_CONFIG_MASTER_PORT)) {
        TT_TRY(tt_config_int(TT_CONFIG_MASTER_PORT, 1, 65535, &port));
    }
    out->port = (int)port;
    out->port_count = 1;
    return TUTTI_OK;
}

static tutti_status_t fail_master(const tt_rendezvous_t *out, tt_config_key_t missing)
{
    return TT_FAIL(
        TUTTI_ERR_ARG,
        "rank %d of %d, from %s: %s is not set; set all of MASTER_ADDR (an address of "
        "rank 0's host), MASTER_PORT and, if the ranks are on several hosts, "
        "TUTTI_KEY_FILE (a file that `tutti key FILE` made, on each), or use `tutti run`",
        out->rank, out->size, out->launcher, tt_config_table[missing].variable);
}

/* Several hosts, as far as we can tell. */
static tutti_status_t find_master(const launcher_t *launcher, tt_rendezvous_t *out)
{
    out->kind = TT_PLACE_MASTER;
    out->host_source =
        tt_config_table[out->host[0] == 0 ? TT_CONFIG_SLURM_NODES : TT_CONFIG_MASTER_ADDR].variable;
    if (out->host[0] == 0 && (launcher->rank != TT_CONFIG_SLURM_RANK ||
                              !tt_slurm_first_host(tt_config_text(TT_CONFIG_SLURM_NODES), out->host,
                                                   sizeof out->host))) {
        return fail_master(out, TT_CONFIG_MASTER_ADDR);
    }
    if (out->port == 0) {
        if (is_by_hand(launcher) || !tt_config_is_set(launcher->job)) {
            return fail_master(out, TT_CONFIG_MASTER_PORT);
        }
        out->port = derive_port(launcher);
        out->port_count = TT_PORTS_TRIED;
    }
    return TUTTI_OK;
}

static tutti_status_t find_place(const launcher_t *launcher, tt_rendezvous_t *out)
{
    int64_t has_agent;
    TT_TRY(tt_config_int(TT_CONFIG_AGENT_STORE, 0, 1, &has_agent));
    TT_TRY(read_master(out));
    if (out->size == 1) {
        out->kind = TT_PLACE_ALONE;
        return TUTTI_OK;
    }
    if (has_agent == 1) {
        out->kind = TT_PLACE_SERVED;
        return out->host[0] == 0 ? fail_master(out, TT_CONFIG_MASTER_ADDR)
               : out->port == 0  ? fail_master(out, TT_CONFIG_MASTER_PORT)
                                 : TUTTI_OK;
    }
    if (has_torch_store() && out->port > 0) {
        out->port_count = TT_PORTS_TRIED;
        out->port = out->port < 65535 - TT_PORTS_TRIED ? out->port + 1 : 1024;
    }
    if (out->local_size == out->size || tt_address_is_loopback(out->host)) {
        out->kind = TT_PLACE_HOST;
        name_job(launcher, out);
        return TUTTI_OK;
    }
    return find_master(launcher, out);
}

tutti_status_t tt_rendezvous_find_local(int size, int *local_rank, int *local_size)
{
    const launcher_t *launcher = find_launcher(false);
    tt_rendezvous_t found = {.size = size, .local_rank = -1};
    if (launcher != NULL) {
        TT_TRY(read_local(launcher, &found));
    }
    *local_rank = found.local_rank;
    *local_size = found.local_size;
    return TUTTI_OK;
}

tutti_status_t tt_rendezvous_from_environment(int rank, int size, tt_rendezvous_t *out)
{
    const launcher_t *launcher = find_launcher(rank >= 0 || size >= 0);
    tt_rendezvous_t found = {
        .launcher = "no launcher", .kind = TT_PLACE_ALONE, .size = 1, .local_size = 1};
    if (launcher != NULL) {
        found = (tt_rendezvous_t){.launcher = launcher->name};
        TT_TRY(read_rank(launcher, rank, size, &found));
        TT_TRY(read_local(launcher, &found));
        TT_TRY(find_place(launcher, &found));
    } else if (tt_config_is_set(TT_CONFIG_PMIX_RANK)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "PMIX_RANK=%s, but no variable tells how many ranks there are; set RANK, "
                       "WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or use `tutti run`",
                       tt_config_text(TT_CONFIG_PMIX_RANK));
    }
    *out = found;
    return TUTTI_OK;
}

int tutti_restart_count(void)
{
    int64_t count;
    return tt_config_int(TT_CONFIG_RESTART_COUNT, 0, INT32_MAX, &count) >= 0 ? (int)count : 0;
}

bool tutti_is_launched(void)
{
    tt_rendezvous_t rendezvous;
    /* Variables that contradict each other are a launcher's too: tutti_init() tells what is wrong.
     */
    return tt_rendezvous_from_environment(-1, -1, &rendezvous) < 0 || rendezvous.size > 1;
}
