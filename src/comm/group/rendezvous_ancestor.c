/* Who started us: hydra gives its jobs no name, so the process that started the ranks stands for
 * the job. Between it and a rank there may be wrappers (a shell, numactl, a debugger), which have
 * the rank's variables; the launcher's own process does not.
 *
 * Cost: two small files of /proc for each ancestor up to the launcher.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/group/rendezvous.h"
#include "core/base/alloc.h"

enum { ENVIRONMENT_BYTES_MAX = 1 << 20, ANCESTORS_MAX = 64 };

static size_t read_proc(long pid, const char *file, char *text, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    while (fd >= 0 && length < bytes) {
        const ssize_t n = read(fd, text + length, bytes - length);
        if (n <= 0) {
            break;
        }
        length += (size_t)n;
    }
    if (fd >= 0) {
        close(fd);
    }
    return length;
}

/* From "pid (name) state ppid …", where the name may hold anything; the start time is the 20th
 * number behind the state. */
static bool read_stat(long pid, long *parent, unsigned long long *started)
{
    char text[1024];
    text[read_proc(pid, "stat", text, sizeof text - 1)] = 0;
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
    const size_t bytes = read_proc(pid, "environ", buffer, ENVIRONMENT_BYTES_MAX - 1);
    const size_t length = strlen(variable);
    buffer[bytes] = 0;
    for (size_t at = 0; at < bytes; at += strlen(buffer + at) + 1) {
        if (strncmp(buffer + at, variable, length) == 0 && buffer[at + length] == '=') {
            return true;
        }
    }
    return false;
}

void tt_launcher_process(const char *variable, char *text, size_t text_bytes)
{
    long pid = getppid(), parent = 0;
    unsigned long long started = 0;
    char *buffer = tt_alloc_raw(ENVIRONMENT_BYTES_MAX, "environment of an ancestor");
    for (int i = 0; buffer != NULL && i < ANCESTORS_MAX && pid > 0; i++) {
        started = 0;
        if (!read_stat(pid, &parent, &started) || !has_variable(pid, variable, buffer)) {
            break;
        }
        pid = parent;
    }
    tt_free(buffer);
    snprintf(text, text_bytes, "process %ld.%llu", pid, started);
}
