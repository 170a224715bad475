/* tutti run --hosts and --hostfile: names of hosts, with their numbers of ranks.
 *
 *     a:4,user@b:2,[::1]:4     --hosts
 *     a slots=4                a line of --hostfile, as Open MPI has it, or a:4; # is a comment
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/run_parts.h"

/* Where a host is named, for errors. */
typedef struct {
    const char *flag, *value;
    int line; /* 0: none */
} place_t;

static int refuse(const place_t *place, const char *host, const char *want)
{
    char line[24] = "";
    if (place->line > 0) {
        snprintf(line, sizeof line, ", line %d", place->line);
    }
    fprintf(stderr, "tutti run: --%s %s%s: host \"%s\": %s\n", place->flag, place->value, line,
            host, want);
    return TT_EXIT_USAGE;
}

static bool parse_ranks(const char *text, int *out)
{
    if (text[0] == 0 || strspn(text, "0123456789") != strlen(text) || strlen(text) > 4 ||
        strtol(text, NULL, 10) < 1 || strtol(text, NULL, 10) > TUTTI_LAUNCH_RANKS_MAX) {
        return false;
    }
    *out = (int)strtol(text, NULL, 10);
    return true;
}

/* The number behind the name, if there is one: a lone IPv6 address has more than one colon. */
static char *find_number(char *host)
{
    char *colon = strrchr(host, ':');
    const char *bracket = strrchr(host, ']');
    if (colon == NULL || (bracket != NULL && colon < bracket) ||
        (bracket == NULL && strchr(host, ':') != colon)) {
        return NULL;
    }
    return colon;
}

static int check_name(const place_t *place, const char *host, const tt_run_hosts_t *hosts)
{
    if (host[0] == 0 || host[0] == '-' || strpbrk(host, " \t'\"\\$;|&<>()`") != NULL) {
        return refuse(place, host, "want the name or the address of a host");
    }
    for (int i = 0; i < hosts->count; i++) {
        if (strcmp(hosts->all[i].name, host) == 0) {
            return refuse(place, host, "it is named twice; name it once, with all of its ranks");
        }
    }
    return 0;
}

/* Takes the text of a host, which is changed; slots: its number if that stands elsewhere, or NULL.
 */
static int add(const place_t *place, char *host, const char *slots, int ranks,
               tt_run_hosts_t *hosts)
{
    char *colon = find_number(host);
    const char *number = slots;
    if (colon != NULL && slots != NULL) {
        return refuse(place, host, "it has two numbers of ranks");
    }
    if (colon != NULL) {
        *colon = 0;
        number = colon + 1;
    }
    int code = check_name(place, host, hosts);
    if (code == 0 && number != NULL && !parse_ranks(number, &ranks)) {
        char want[96];
        snprintf(want, sizeof want, "%.32s ranks; want a number from 1 to %d",
                 number[0] != 0 ? number : "no number of", TUTTI_LAUNCH_RANKS_MAX);
        code = refuse(place, host, want);
    }
    if (code != 0) {
        return code;
    }
    tutti_launch_host_t *all = realloc(hosts->all, ((size_t)hosts->count + 1) * sizeof *hosts->all);
    char *name = strdup(host);
    hosts->all = all != NULL ? all : hosts->all;
    if (all == NULL || name == NULL) {
        free(name);
        fprintf(stderr, "tutti run: out of memory\n");
        return 1;
    }
    all[hosts->count++] = (tutti_launch_host_t){.name = name, .rank_count = ranks};
    return 0;
}

static int read_list(const char *list, int ranks, tt_run_hosts_t *hosts)
{
    const place_t place = {.flag = "hosts", .value = list};
    int code = 0;
    for (const char *at = list; code == 0;) {
        const size_t bytes = strcspn(at, ",");
        char *host = strndup(at, bytes);
        code = host != NULL ? add(&place, host, NULL, ranks, hosts) : 1;
        free(host);
        if (at[bytes] == 0) {
            break;
        }
        at += bytes + 1;
    }
    return code;
}

/* "slots=4", also with blanks around the sign; what else Open MPI has there only limits it. */
static int read_line(const place_t *place, char *line, int ranks, tt_run_hosts_t *hosts)
{
    const char *const blanks = " \t\r\n=", *slots = NULL;
    char *next, *host;
    line[strcspn(line, "#\n")] = 0;
    host = strtok_r(line, " \t\r\n", &next);
    for (char *word = host != NULL ? strtok_r(NULL, blanks, &next) : NULL; word != NULL;
         word = strtok_r(NULL, blanks, &next)) {
        const char *value = strtok_r(NULL, blanks, &next);
        if (strcmp(word, "slots") == 0) {
            slots = value != NULL ? value : "";
        } else if (strcmp(word, "max_slots") != 0 && strcmp(word, "max-slots") != 0) {
            return refuse(place, host, "want slots=N behind it, or nothing");
        }
    }
    return host != NULL ? add(place, host, slots, ranks, hosts) : 0;
}

static int read_file(const char *path, int ranks, tt_run_hosts_t *hosts)
{
    place_t place = {.flag = "hostfile", .value = path};
    char *line = NULL;
    size_t room = 0;
    int code = 0;
    FILE *file = fopen(path, "r");
    errno = file != NULL ? 0 : errno;
    while (file != NULL && code == 0 && getline(&line, &room, file) >= 0) {
        place.line++;
        code = read_line(&place, line, ranks, hosts);
    }
    if (code == 0 && (file == NULL || ferror(file) != 0)) {
        fprintf(stderr, "tutti run: --hostfile %s: %s\n", path, strerror(errno));
        code = TT_EXIT_USAGE;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(line);
    return code;
}

int tt_run_hosts_read(const char *list, const char *file, int ranks, tt_run_hosts_t *out)
{
    *out = (tt_run_hosts_t){.count = 0};
    int code = list != NULL ? read_list(list, ranks, out) : read_file(file, ranks, out);
    if (code == 0 && out->count == 0) {
        fprintf(stderr, "tutti run: --hostfile %s: no host in it\n", file);
        code = TT_EXIT_USAGE;
    }
    if (code != 0) {
        tt_run_hosts_free(out);
    }
    return code;
}

void tt_run_hosts_free(tt_run_hosts_t *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        free((char *)(uintptr_t)hosts->all[i].name);
    }
    free(hosts->all);
    *hosts = (tt_run_hosts_t){.count = 0};
}
