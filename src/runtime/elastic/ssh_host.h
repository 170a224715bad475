/* One host of a job that is started by ssh: the ssh client, what is sent to it, and what is heard.
 * The job itself is ssh_hosts.c's.
 */
#ifndef TT_SSH_HOST_H
#define TT_SSH_HOST_H

#include <stdbool.h>
#include <sys/types.h>

#include "comm/net/net.h"
#include "runtime/elastic/launch_agent.h"
#include "runtime/elastic/launch_output.h"

typedef struct {
    tt_loop_t *loop;
    tt_console_t *console;
    const tutti_launch_options_t *options;
    const sigset_t *signals; /* the mask that ssh gets */
    void (*moved)(
        void *user); /* on the loop: a host has said hello, its address or how it ended, */
    void *user;      /* or its ssh has ended */
} tt_ssh_context_t;

typedef struct {
    const tt_ssh_context_t *context;
    const tutti_launch_host_t *about;
    pid_t pid; /* 0: not started */
    int pidfd, in, out, err;
    tt_watch_t *exit_watch, *in_watch, *out_watch, *err_watch;
    char *letter; /* what ssh has not taken yet */
    size_t letter_bytes;
    char *line; /* what it says: a line under way */
    size_t line_bytes;
    tt_output_t words; /* ssh's own, and the shell's */
    bool has_greeted, is_told, has_reported, has_ended;
    int code, signal; /* how ssh ended */
    char address[64]; /* of node 0's store */
    int port;         /* 0: not known yet */
    tutti_status_t status;
    tutti_launch_report_t report;
} tt_ssh_host_t;

/* Starts ssh. */
tutti_status_t tt_ssh_host_start(tt_ssh_host_t *host, const tt_ssh_context_t *context,
                                 const tutti_launch_host_t *about);

/* Takes the letter, which is freed with tt_free() when it is sent. */
void tt_ssh_host_tell(tt_ssh_host_t *host, char *letter, size_t bytes);

/* Passes a signal on. */
void tt_ssh_host_signal(tt_ssh_host_t *host, int number);

/* Reads on, once the console has room. */
void tt_ssh_host_resume(const tt_ssh_host_t *host);

/* Why ssh ended before the launcher there had said how the job did; the status that it means. */
tutti_status_t tt_ssh_host_explain(const tt_ssh_host_t *host, char *text, size_t bytes);

/* Kills ssh if it still runs. */
void tt_ssh_host_fini(tt_ssh_host_t *host);

#endif
