/* Starting a process that cannot outlive us. */
#ifndef TT_CHILD_H
#define TT_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "core/base/core_set.h"
#include "core/base/fail.h"

typedef struct {
    const char *file;        /* looked up in PATH; NULL: argv[0] */
    const char *const *argv; /* ended by NULL */
    char *const *envp;
    int fds[3];                /* stdin, stdout, stderr; -1: /dev/null */
    const tt_core_set_t *cpus; /* NULL: those of the parent */
    const sigset_t *signals;   /* the child's mask */
    int error_fd;              /* close-on-exec; a failure writes tt_child_error_t to it */
} tt_child_options_t;

typedef struct {
    int pid, code; /* errno of what failed */
} tt_child_error_t;

/* In a process group of its own, and killed when the calling thread ends. */
tutti_status_t tt_child_spawn(const tt_child_options_t *options, pid_t *pid);

/* Kill whatever descends from this process (a subreaper), until nothing is left or 2 s are over. */
void tt_children_kill(void);

#endif
