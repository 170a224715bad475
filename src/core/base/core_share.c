/* Between the launcher's process and a rank there may be wrappers (a shell, numactl, a debugger),
 * which have the rank's variables; the launcher's own process does not.
 *
 * Cost: two small files of /proc for each ancestor up to the launcher.
 */
#include "core/base/core_share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/core_set.h"
#include "core/base/file.h"

enum { ENVIRONMENT_BYTES_MAX = 1 << 20, ANCESTORS_MAX = 64 };

static size_t read_proc(long pid, const char *file, char *text, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    return tt_file_text(path, text, bytes);
}

/* From "pid (name) state ppid …", where the name may hold anything; the start time is the 20th
 * number behind the state. */
static bool read_stat(long pid, long *parent, unsigned long long *started)
{
    char text[1024];
    (void)read_proc(pid, "stat", text, sizeof text);
    const char *at = strrchr(text, ')');
    if (at == NULL || sscanf(at, ") %*c %ld", parent) != 1) {
        return false;
    }
    for (int field = 0; field < 20 && at != NULL; field++) {
        at = strchr(at + 1, ' ');
    }
    *started = at != NULL ? strtoull(at + 1, NULL, 10) : 0;
    return true;
}

/* An environment that we may not read is another user's: not a rank's. */
static bool has_variable(long pid, const char *variable, char *buffer)
{
    const size_t bytes = read_proc(pid, "environ", buffer, ENVIRONMENT_BYTES_MAX);
    const size_t length = strlen(variable);
    for (size_t at = 0; at < bytes; at += strlen(buffer + at) + 1) {
        if (strncmp(buffer + at, variable, length) == 0 && buffer[at + length] == '=') {
            return true;
        }
    }
    return false;
}

tt_launcher_t tt_launcher_find(const char *variable)
{
    tt_launcher_t found = {.pid = getppid()};
    char *buffer = tt_alloc_raw(ENVIRONMENT_BYTES_MAX, "environment of an ancestor");
    for (int i = 0; buffer != NULL && i < ANCESTORS_MAX && found.pid > 0; i++) {
        long parent = 0;
        found.started = 0;
        if (!read_stat(found.pid, &parent, &found.started) ||
            !has_variable(found.pid, variable, buffer)) {
            break;
        }
        found.pid = parent;
    }
    tt_free(buffer);
    return found;
}

/* ---- this rank's share of the cores ---------------------------------------------------------- */

static const struct {
    tt_config_key_t rank, size, local_size;
} launchers[] = {
    {TT_CONFIG_RANK, TT_CONFIG_WORLD_SIZE, TT_CONFIG_LOCAL_WORLD_SIZE},
    {TT_CONFIG_OMPI_RANK, TT_CONFIG_OMPI_SIZE, TT_CONFIG_OMPI_LOCAL_SIZE},
    {TT_CONFIG_PMI_RANK, TT_CONFIG_PMI_SIZE, TT_CONFIG_PMI_LOCAL_SIZE},
    {TT_CONFIG_SLURM_RANK, TT_CONFIG_SLURM_SIZE, TT_CONFIG_SLURM_LOCAL_SIZES},
};

/* Ranks on this host, and the variable that each of them has; 1: not known. */
static int count_local_ranks(const char **variable)
{
    int64_t node = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const tt_config_key_t key = launchers[i].local_size;
        if (!tt_config_is_set(launchers[i].rank) || !tt_config_is_set(launchers[i].size) ||
            !tt_config_is_set(key)) {
            continue;
        }
        if (key == TT_CONFIG_SLURM_LOCAL_SIZES &&
            !tt_parse_int(tt_config_text(TT_CONFIG_SLURM_NODE), &node)) {
            return 1;
        }
        const int count = tt_slurm_count_at(tt_config_text(key), node);
        *variable = tt_config_table[launchers[i].rank].variable;
        return count > 0 ? count : 1;
    }
    return 1;
}

/* A launcher that binds leaves a rank fewer cores than it has itself. */
static bool is_bound(const char *variable, const tt_core_set_t *own)
{
    tt_core_set_t its;
    const tt_launcher_t launcher = tt_launcher_find(variable);
    return launcher.pid > 0 && tt_core_set_of((pid_t)launcher.pid, &its) > 0 &&
           !CPU_EQUAL_S(sizeof its, its.words, own->words);
}

int tt_core_share(void)
{
    tt_core_set_t own;
    const char *variable = NULL;
    const int cores = tt_core_set_of(0, &own), ranks = count_local_ranks(&variable);
    const bool has_all = ranks == 1 || is_bound(variable, &own);
    return has_all && cores > 0 ? cores : cores > ranks ? cores / ranks : 1;
}
