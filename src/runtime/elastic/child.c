/* Child processes: fork, what must be said in the child, exec. libuv's uv_spawn has no place for
 * the death signal and the cores. Between fork and exec only system calls are made.
 */
#include "runtime/elastic/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"

/* Lower descriptors are moved away first, so that none is overwritten before it is used. */
static bool place_fds(const int *fds)
{
    int moved[3];
    for (int i = 0; i < 3; i++) {
        const int fd = fds[i] >= 0 ? fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        moved[i] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (moved[i] < 0) {
            return false;
        }
    }
    return dup2(moved[0], 0) == 0 && dup2(moved[1], 1) == 1 && dup2(moved[2], 2) == 2;
}

/* As exec does: until then a signal would run the parent's functions here. */
static void forget_handlers(void)
{
    struct sigaction action;
    for (int number = 1; number <= 64; number++) {
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            signal(number, SIG_DFL);
        }
    }
    signal(SIGPIPE, SIG_DFL);
}

__attribute__((noreturn)) static void become(const tt_child_options_t *options, pid_t parent)
{
    setpgid(0, 0);
    const bool is_tied = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
    if (is_tied && place_fds(options->fds)) {
        if (options->cpus != NULL) {
            sched_setaffinity(0, sizeof *options->cpus, options->cpus->words);
        }
        forget_handlers();
        sigprocmask(SIG_SETMASK, options->signals, NULL);
        const char *file = options->file != NULL ? options->file : options->argv[0];
        execvpe(file, (char *const *)(uintptr_t)options->argv, options->envp);
    }
    const tt_child_error_t error = {.pid = getpid(), .code = errno};
    const bool is_told = write(options->error_fd, &error, sizeof error) == sizeof error;
    _exit(is_told ? 127 : 126);
}

tutti_status_t tt_child_spawn(const tt_child_options_t *options, pid_t *pid)
{
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot start a process");
    }
    if (child == 0) {
        become(options, parent);
    }
    setpgid(child, child); /* parent and child do it: either may run first */
    *pid = child;
    return TUTTI_OK;
}

/* From /proc/PID/stat: "pid (name) state ppid …", where the name may hold anything. */
static pid_t parent_of(const char *pid_text)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid_text);
    (void)tt_file_text(path, text, sizeof text);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : -1;
}

static void kill_direct_children(void)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL) {
        return;
    }
    for (const struct dirent *item; (item = readdir(proc)) != NULL;) {
        const pid_t pid = (pid_t)strtol(item->d_name, NULL, 10);
        if (pid > 0 && parent_of(item->d_name) == getpid()) {
            kill(pid, SIGKILL);
        }
    }
    closedir(proc);
}

/* Killing children hands theirs to us, so it goes on until there are none. */
void tt_children_kill(void)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(2000);
    for (;;) {
        const pid_t pid = waitpid(-1, NULL, WNOHANG);
        if ((pid < 0 && errno == ECHILD) || tt_deadline_is_past(deadline)) {
            return;
        }
        if (pid == 0) {
            kill_direct_children();
            tt_clock_sleep(200000, deadline);
        }
    }
}
