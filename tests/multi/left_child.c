/* Two ranks, for left_child_test.py: the last one makes a child that lives on, holding everything
 * that a child inherits, and is killed in mid-job. The argument says how the child is made: "fork",
 * or "clone", by the system call itself, of which no library hears. With "stop" rank 0, in which
 * the store is, is stopped instead. The others say when they hear of it, though a launcher asks
 * them to end. Times are of CLOCK_MONOTONIC.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tutti/tutti.h>

enum { CHILD_S = 30 };

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static pid_t make_child(const char *how)
{
    const pid_t child = strcmp(how, "clone") == 0
                            ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)
                            : fork();
    if (child == 0) {
        alarm(CHILD_S);
        for (;;) {
            pause();
        }
    }
    return child;
}

static void die(const char *how)
{
    printf("child %d\n", (int)make_child(how));
    printf("killed at %.6f\n", now());
    fflush(stdout);
    raise(SIGKILL);
}

static void stop(void)
{
    printf("stopped %d\n", (int)getpid());
    printf("killed at %.6f\n", now());
    fflush(stdout);
    raise(SIGSTOP);
}

static tutti_status_t run(const char *how, tutti_group_t *world)
{
    tutti_tensor_t *x;
    tutti_status_t status = tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(1024), &x);
    for (int step = 0; step < 3 && status == TUTTI_OK; step++) {
        const bool stops = strcmp(how, "stop") == 0;
        if (step == 2 && tutti_group_rank(world) == (stops ? 0 : tutti_group_size(world) - 1)) {
            stops ? stop() : die(how);
        }
        status = tutti_all_reduce(world, x, TUTTI_MAX, NULL);
    }
    printf("heard at %.6f: %s\n", now(), tutti_last_error());
    fflush(stdout);
    tutti_tensor_release(x);
    return status;
}

int main(int argc, char **argv)
{
    tutti_group_t *world;
    signal(SIGTERM, SIG_IGN);
    tutti_status_t status = tutti_init(NULL, &world);
    if (status == TUTTI_OK) {
        status = run(argc > 1 ? argv[1] : "fork", world);
        tutti_group_release(world);
    }
    return status == TUTTI_OK ? 0 : 1;
}
