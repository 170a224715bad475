/* Ranks as processes. This program is executed again as a launcher, which is tutti_launch() in a
 * process that has one thread and no other children; the launcher executes it for each rank.
 *
 *     program --memfd: who, what; how it ended--> launcher (guard, agent) --> ranks
 *             --lifeline, a pipe----------------> (agent)
 *
 * When the program ends, however that may be, the pipe is at its end, and the agent kills the
 * ranks. posix_spawn() is safe with threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "core/base/alloc.h"
#include "runtime/elastic/launch_environment.h"
#include "runtime/elastic/spawn_impl.h"

enum { END_MS = 10000 };

/* The caller's list and ours, one behind the other, over what is inherited. */
static tutti_status_t make_environment(const char *const *environment, const char *own, char ***out)
{
    size_t count = 0;
    while (environment != NULL && environment[count] != NULL) {
        if (strchr(environment[count], '=') == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "spawn: environment \"%s\": want NAME=value",
                           environment[count]);
        }
        count++;
    }
    const char **more = tt_alloc_array(count + 2, sizeof *more, "spawn environment");
    TT_TRY_ALLOC(more);
    for (size_t i = 0; i < count; i++) {
        more[i] = environment[i];
    }
    more[count] = own;
    const tutti_status_t status = tt_environment_with(more, out);
    tt_free(more);
    return status;
}

/* A descriptor that is duplicated to its own number is inherited. Signals wait until the launcher
 * takes them: one that came before would end it, and nobody would know of which. */
static int execute(int block_fd, int lifeline, const char *label, char **environment, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int code = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    code = code != 0 ? code : posix_spawn_file_actions_adddup2(&actions, block_fd, block_fd);
    code = code != 0 ? code : posix_spawn_file_actions_adddup2(&actions, lifeline, lifeline);
    char *const argv[] = {program_invocation_name, (char *)(uintptr_t)label, NULL};
    code = code != 0 ? code
                     : posix_spawn(pid, "/proc/self/exe", &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

static tutti_status_t start_launcher(tutti_spawn_t *spawn, int block_fd, int lifeline,
                                     const char *const *environment)
{
    char own[64], label[96], **complete;
    snprintf(own, sizeof own, "TUTTI_SPAWN=launcher %d %d", block_fd, lifeline);
    snprintf(label, sizeof label, "spawn:%s", spawn->block->entry);
    TT_TRY(make_environment(environment, own, &complete));
    const int code = execute(block_fd, lifeline, label, complete, &spawn->launcher);
    tt_free(complete);
    if (code != 0) {
        errno = code;
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: cannot execute this program again");
    }
    return TUTTI_OK;
}

tutti_status_t tt_spawn_processes(tutti_spawn_t *spawn, int block_fd,
                                  const char *const *environment)
{
    int ends[2];
    if (!tt_socket_open_pipe(ends)) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: pipe");
    }
    spawn->lifeline = ends[1];
    const tutti_status_t status = start_launcher(spawn, block_fd, ends[0], environment);
    tt_socket_close(ends[0]);
    TT_TRY(status);
    spawn->pidfd = pidfd_open(spawn->launcher, 0);
    if (spawn->pidfd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: cannot watch process %d", spawn->launcher);
    }
    fcntl(spawn->pidfd, F_SETFD, FD_CLOEXEC);
    return TUTTI_OK;
}

tutti_status_t tt_spawn_processes_wait(tutti_spawn_t *spawn, tt_deadline_t deadline)
{
    for (;;) {
        struct pollfd item = {.fd = spawn->pidfd, .events = POLLIN};
        const int n = poll(&item, 1, tt_deadline_left_ms(deadline));
        if (n > 0) {
            return TUTTI_OK;
        }
        if (n < 0 && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: cannot wait for process %d",
                                 spawn->launcher);
        }
        if (tt_deadline_is_past(deadline)) {
            return TUTTI_PENDING;
        }
    }
}

tutti_status_t tt_spawn_processes_signal(tutti_spawn_t *spawn, int signal)
{
    if (spawn->pidfd >= 0 && pidfd_send_signal(spawn->pidfd, signal, NULL, 0) != 0 &&
        errno != ESRCH) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "spawn: signal %d", signal);
    }
    return TUTTI_OK;
}

/* A caller that ignores SIGCHLD, or waits for all children, has reaped the launcher already. */
void tt_spawn_processes_end(tutti_spawn_t *spawn)
{
    if (spawn->lifeline >= 0) {
        tt_socket_close(spawn->lifeline);
        spawn->lifeline = -1;
    }
    if (spawn->pidfd >= 0) {
        siginfo_t info;
        if (tt_spawn_processes_wait(spawn, tt_deadline_in_ms(END_MS)) == TUTTI_PENDING) {
            (void)pidfd_send_signal(spawn->pidfd, SIGKILL, NULL, 0);
        }
        while (waitid(P_PIDFD, (id_t)spawn->pidfd, &info, WEXITED) != 0 && errno == EINTR) {
        }
        close(spawn->pidfd);
        spawn->pidfd = -1;
    }
}
