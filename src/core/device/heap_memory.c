/* Available memory, from the texts in /proc and /sys. File cache can be had back, so it counts as
 * available also inside the limit of a control group, as it does in MemAvailable.
 *
 * Cost: about 20 µs; a read of a small file for each level of control groups, five where one has a
 * limit.
 *
 * Source: Linux, Documentation/filesystems/proc.rst, admin-guide/cgroup-v1/memory.rst and
 * admin-guide/cgroup-v2.rst.
 */
#include "core/device/heap_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, MARGIN_PARTS = 32, MARGIN_BYTES_MAX = 64 << 20 };

/* Limits above this are none: version 1 says "none" by a number close to the largest. */
static const uint64_t unlimited = UINT64_C(1) << 60;

typedef struct {
    const char *folder, *limit, *usage, *inactive_file, *active_file;
} hierarchy_t;

static const hierarchy_t version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "\ninactive_file ", "\nactive_file "};
static const hierarchy_t version_2_beside_1 = {
    "/sys/fs/cgroup/unified", "memory.max", "memory.current", "\ninactive_file ", "\nactive_file "};
static const hierarchy_t version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "\ntotal_inactive_file ",
                                      "\ntotal_active_file "};

/* False: too long, there is no such file. */
static bool join(char path[PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES;
}

/* The text of a small file, with a line's end before it; empty if it cannot be read. */
static void read_text(const char *folder, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_BYTES];
    text[0] = '\n';
    text[1] = 0;
    if (join(path, folder, name)) {
        (void)tt_file_text(path, text + 1, TEXT_BYTES - 1);
    }
}

/* The number behind a key; UINT64_MAX if there is none ("max"). */
static uint64_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (at == NULL) {
        return UINT64_MAX;
    }
    char *end;
    const char *number = at + strlen(key);
    const uint64_t value = strtoull(number, &end, 10);
    return end == number ? UINT64_MAX : value;
}

static uint64_t number_in(const char *folder, const char *name)
{
    char text[TEXT_BYTES];
    read_text(folder, name, text);
    return number_after(text, "\n");
}

static void lower(tt_memory_t *memory, uint64_t bytes, uint64_t total, const char *folder,
                  const char *name)
{
    if (bytes < memory->bytes) {
        memory->bytes = bytes;
        memory->total = total;
        snprintf(memory->source, sizeof memory->source, "%.200s/%.50s", folder, name);
    }
}

static void look_at_machine(const char *root, tt_memory_t *memory)
{
    char text[TEXT_BYTES];
    read_text(root, "proc/meminfo", text);
    const uint64_t kib = number_after(text, "\nMemAvailable:");
    const uint64_t total = number_after(text, "\nMemTotal:");
    if (kib != UINT64_MAX) {
        lower(memory, kib * 1024, total == UINT64_MAX ? total : total * 1024, root, "proc/meminfo");
    }
}

static uint64_t file_cache(const char *folder, const hierarchy_t *hierarchy)
{
    char text[TEXT_BYTES];
    read_text(folder, "memory.stat", text);
    const uint64_t inactive = number_after(text, hierarchy->inactive_file);
    const uint64_t active = number_after(text, hierarchy->active_file);
    return (inactive == UINT64_MAX ? 0 : inactive) + (active == UINT64_MAX ? 0 : active);
}

static void look_at_folder(const char *folder, const hierarchy_t *hierarchy, tt_memory_t *memory)
{
    const uint64_t limit = number_in(folder, hierarchy->limit);
    const uint64_t usage = limit < unlimited ? number_in(folder, hierarchy->usage) : UINT64_MAX;
    if (usage == UINT64_MAX) {
        return;
    }
    const uint64_t cache = file_cache(folder, hierarchy);
    const uint64_t held = usage > cache ? usage - cache : 0;
    lower(memory, limit > held ? limit - held : 0, limit, folder, hierarchy->limit);
}

/* A group and all above it: each limit holds. */
static void look_at_group(const char *root, const hierarchy_t *hierarchy, const char *group,
                          tt_memory_t *memory)
{
    char folder[PATH_BYTES];
    if (snprintf(folder, sizeof folder, "%s%s%s", root, hierarchy->folder, group) >= PATH_BYTES) {
        return;
    }
    const size_t top = strlen(root) + strlen(hierarchy->folder);
    while (strlen(folder) >= top) {
        look_at_folder(folder, hierarchy, memory);
        *strrchr(folder, '/') = 0;
    }
}

/* Whether a line's list of controllers ("cpu,memory") has the one for memory. */
static bool has_memory(const char *list)
{
    const char *at = strstr(list, "memory");
    return at != NULL && (at == list || at[-1] == ',') && (at[6] == 0 || at[6] == ',');
}

/* One line of /proc/self/cgroup: "<number>:<controllers>:<path>". */
static void look_at_line(const char *root, char *line, tt_memory_t *memory)
{
    char *list = strchr(line, ':');
    char *group = list != NULL ? strchr(list + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group++ = 0;
    list++;
    if (*list == 0) {
        look_at_group(root, &version_2, group, memory);
        look_at_group(root, &version_2_beside_1, group, memory);
    } else if (has_memory(list)) {
        look_at_group(root, &version_1, group, memory);
    }
}

void tt_memory_available(const char *root, tt_memory_t *out)
{
    root = root != NULL ? root : "";
    *out = (tt_memory_t){.bytes = UINT64_MAX, .total = UINT64_MAX, .source = "nothing"};
    look_at_machine(root, out);
    char text[TEXT_BYTES];
    read_text(root, "proc/self/cgroup", text);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        look_at_line(root, line, out);
    }
}

tutti_status_t tt_memory_check(const char *root, uint64_t bytes, const char *what)
{
    tt_memory_t memory;
    tt_memory_available(root, &memory);
    const uint64_t part = memory.total / MARGIN_PARTS;
    const uint64_t margin = part < MARGIN_BYTES_MAX ? part : MARGIN_BYTES_MAX;
    if (memory.bytes >= margin && bytes <= memory.bytes - margin) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_NOMEM,
                   "cannot get %llu bytes of shared memory for %s: %llu are available (%s), and "
                   "%llu of them are kept back: use more hosts, or less memory in each rank",
                   (unsigned long long)bytes, what, (unsigned long long)memory.bytes, memory.source,
                   (unsigned long long)margin);
}
