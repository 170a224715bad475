/* tutti profile: runs a command whose processes write profiles, and shows them together; or shows
 * what is there already. Exit code: the command's; of files 0, or 2 where they cannot be read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/diagnose.h>
#include <tutti/profile.h>

#include "cli/cli.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128, PATH_BYTES = 4096 };

static const char file_name[] = "profile";

typedef struct {
    const char *json, *trace, *output;
} flags_t;

static const tutti_option_t table[] = {
    {.name = "json",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(flags_t, json),
     .argument = "FILE",
     .about = "write all numbers of the table, as JSON"},
    {.name = "trace",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(flags_t, trace),
     .argument = "FILE",
     .about = "write a timeline of all ranks for https://ui.perfetto.dev"},
    {.name = "output",
     .alias = 'o',
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(flags_t, output),
     .argument = "DIR",
     .about = "keep the profiles of the ranks in DIR, as profile and profile.RANK"},
    {0}};

static const char usage[] = "tutti profile [OPTION …] -- COMMAND [ARGUMENT …]\n"
                            "       tutti profile [OPTION …] FILE …";

/* ---- showing --------------------------------------------------------------------------------- */

typedef tutti_status_t (*make_t)(const tutti_profile_t *profile, tutti_buffer_t *text);

static int write_text(const tutti_profile_t *profile, make_t make, FILE *file, const char *path)
{
    tutti_buffer_t text;
    if (make(profile, &text) < 0) {
        return tt_cli_fail("profile", 1);
    }
    const bool is_written = fwrite(text.data, 1, text.bytes, file) == text.bytes;
    tutti_buffer_release(&text);
    if (!is_written) {
        fprintf(stderr, "tutti profile: %s: %s\n", path, strerror(errno));
    }
    return is_written ? 0 : 1;
}

static int write_file(const tutti_profile_t *profile, make_t make, const char *path)
{
    if (path == NULL) {
        return 0;
    }
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        fprintf(stderr, "tutti profile: %s: %s\n", path, strerror(errno));
        return 1;
    }
    int code = write_text(profile, make, file, path);
    if (fclose(file) != 0 && code == 0) {
        fprintf(stderr, "tutti profile: %s: %s\n", path, strerror(errno));
        code = 1;
    }
    return code;
}

static int show(const flags_t *flags, char *const *paths, int count, FILE *file)
{
    tutti_profile_t *profile;
    if (tutti_profile_load((const char *const *)paths, count, &profile) < 0) {
        return tt_cli_fail("profile", TT_EXIT_USAGE);
    }
    int code = write_text(profile, tutti_profile_table, file, "the table");
    const int json = write_file(profile, tutti_profile_json, flags->json);
    const int trace = write_file(profile, tutti_profile_trace, flags->trace);
    tutti_profile_release(profile);
    code = code != 0 ? code : json;
    return code != 0 ? code : trace;
}

/* ---- a folder of profiles -------------------------------------------------------------------- */

/* "profile", "profile.12" */
static bool is_profile(const char *name)
{
    const size_t length = sizeof file_name - 1;
    return strncmp(name, file_name, length) == 0 &&
           (name[length] == 0 || (name[length] == '.' && name[length + 1] != 0 &&
                                  name[length + 1 + strspn(name + length + 1, "0123456789")] == 0));
}

static int choose_profiles(const struct dirent *entry)
{
    return is_profile(entry->d_name);
}

/* Calls `visit` for each; returns how many, or -1. */
static int for_each(const char *folder, void (*visit)(const char *path, void *user), void *user)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, choose_profiles, alphasort);
    for (int i = 0; i < count; i++) {
        char path[2 * PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        visit(path, user);
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    return count;
}

static void remove_one(const char *path, void *user)
{
    (void)user;
    (void)unlink(path);
}

typedef struct {
    char **paths;
    int count;
} list_t;

static void add_one(const char *path, void *user)
{
    list_t *list = user;
    char **paths = realloc(list->paths, ((size_t)list->count + 1) * sizeof *paths);
    char *copy = strdup(path);
    if (paths == NULL || copy == NULL) {
        free(copy);
        list->paths = paths != NULL ? paths : list->paths;
        return; /* then it is one file fewer than there are, which show_folder() sees */
    }
    list->paths = paths;
    list->paths[list->count++] = copy;
}

static int show_folder(const flags_t *flags, const char *folder, const char *command)
{
    list_t list = {0};
    const int found = for_each(folder, add_one, &list);
    int code = 1;
    if (found > 0 && list.count == found) {
        code = show(flags, list.paths, list.count, stderr);
        if (code != 0) {
            fprintf(stderr, "tutti profile: nothing is lost: tutti profile %s/%s*\n", folder,
                    file_name);
        }
    } else if (found > 0) {
        fprintf(stderr, "tutti profile: no memory for the names of %d files\n", found);
    } else {
        fprintf(stderr,
                "tutti profile: %s wrote no profile: it computes nothing with Tutti, or was "
                "killed before its end\n",
                command);
    }
    for (int i = 0; i < list.count; i++) {
        free(list.paths[i]);
    }
    free(list.paths);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static volatile sig_atomic_t child;

static void pass_on(int signal)
{
    if (child > 0) {
        (void)kill((pid_t)child, signal);
    }
}

/* In the child; execvp keeps no handlers. */
static void execute(char **command, const char *path)
{
    if (setenv("TUTTI_PROFILE", path, 1) == 0) {
        execvp(command[0], command);
    }
    fprintf(stderr, "tutti profile: %s: %s\n", command[0], strerror(errno));
    _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static const int handled[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
enum { HANDLED = sizeof handled / sizeof handled[0] };

/* What a terminal's keys say goes to all processes of the foreground; the command decides, and we
 * wait for it. What was ignored stays so, as under nohup. */
static void set_signals(struct sigaction before[HANDLED])
{
    for (int i = 0; i < HANDLED; i++) {
        const bool is_key = handled[i] == SIGINT || handled[i] == SIGQUIT;
        struct sigaction action = {.sa_handler = is_key ? SIG_IGN : pass_on};
        sigemptyset(&action.sa_mask);
        sigaction(handled[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) {
            sigaction(handled[i], &action, NULL);
        }
    }
}

static void reset_signals(const struct sigaction before[HANDLED])
{
    for (int i = 0; i < HANDLED; i++) {
        sigaction(handled[i], &before[i], NULL);
    }
}

static int run_command(char **command, const char *path)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "tutti profile: %s: %s\n", command[0], strerror(errno));
        return 1;
    }
    if (pid == 0) {
        execute(command, path);
    }
    struct sigaction before[HANDLED];
    child = pid;
    set_signals(before);
    int state;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    child = 0;
    reset_signals(before);
    return WIFEXITED(state) ? WEXITSTATUS(state) : EXIT_SIGNAL + WTERMSIG(state);
}

/* "TMPDIR/tutti-profile-XXXXXX" */
static bool name_folder(char pattern[PATH_BYTES])
{
    tutti_setting_t setting;
    size_t index = 0;
    while (tutti_info_setting(index++, &setting) == TUTTI_OK &&
           strcmp(setting.variable, "TMPDIR") != 0) {
    }
    return snprintf(pattern, PATH_BYTES, "%s/tutti-profile-XXXXXX", setting.value) < PATH_BYTES;
}

/* Ours, and empty of profiles; absolute, for ranks may change their directory. */
static bool make_folder(const flags_t *flags, char folder[PATH_BYTES])
{
    char pattern[PATH_BYTES];
    errno = ENAMETOOLONG;
    const bool is_made = flags->output != NULL ? mkdir(flags->output, 0777) == 0 || errno == EEXIST
                                               : name_folder(pattern) && mkdtemp(pattern) != NULL;
    const char *name = flags->output != NULL ? flags->output : pattern;
    if (!is_made || realpath(name, folder) == NULL || for_each(folder, remove_one, NULL) < 0) {
        fprintf(stderr, "tutti profile: %s: %s\n", name, strerror(errno));
        return false;
    }
    return true;
}

static int profile_command(const flags_t *flags, char **command)
{
    char folder[PATH_BYTES], path[2 * PATH_BYTES];
    if (!make_folder(flags, folder)) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/%s", folder, file_name);
    const int code = run_command(command, path);
    const bool has_run = code != EXIT_NOT_FOUND && code != EXIT_NOT_EXECUTABLE;
    const int shown = has_run ? show_folder(flags, folder, command[0]) : 0;
    if (flags->output == NULL && shown == 0) {
        (void)for_each(folder, remove_one, NULL);
    }
    if (flags->output == NULL) {
        (void)rmdir(folder); /* unless it has what could not be shown */
    }
    return code != 0 ? code : shown;
}

int tt_verb_profile(int argc, char **argv)
{
    flags_t flags = {0};
    const flags_t defaults = flags;
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(table, argc, argv, &flags, &operands);
    if (status == TUTTI_END) {
        return tt_cli_help(usage, table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("profile", TT_EXIT_USAGE);
    }
    const bool has_files = operands.first < operands.behind, has_command = operands.behind < argc;
    if (has_files == has_command) {
        fprintf(stderr, "tutti profile: want -- COMMAND, or files; usage: %s\n", usage);
        return TT_EXIT_USAGE;
    }
    return has_command ? profile_command(&flags, argv + operands.behind)
                       : show(&flags, argv + operands.first, argc - operands.first, stdout);
}
