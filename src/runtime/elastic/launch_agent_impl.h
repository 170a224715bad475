/* The inside of the agent: its ranks and their output (launch_rank.c), and the job
 * (launch_agent.c).
 */
#ifndef TT_LAUNCH_AGENT_IMPL_H
#define TT_LAUNCH_AGENT_IMPL_H

#include <stdbool.h>
#include <sys/types.h>

#include <tutti/store.h>

#include "comm/net/net.h"
#include "runtime/elastic/launch_agent.h"
#include "runtime/elastic/launch_binding.h"
#include "runtime/elastic/launch_key.h"
#include "runtime/elastic/launch_nodes.h"
#include "runtime/elastic/launch_output.h"

enum { TT_READ_BYTES = 1 << 16 };

typedef struct tt_agent tt_agent_t;

typedef struct {
    tt_output_t output;
    tt_watch_t *watch; /* NULL: at its end */
    int fd;            /* -1: at its end */
} tt_pump_t;

typedef struct {
    tt_agent_t *agent;
    int rank;  /* in the job */
    int local; /* on this host */
    pid_t pid; /* 0: not started */
    int pidfd;
    tt_watch_t *exit_watch;
    bool has_ended;
    int code, signal; /* how */
    tt_pump_t pumps[TT_STREAMS];
} tt_agent_rank_t;

struct tt_agent {
    const tutti_launch_options_t *options;
    const sigset_t *signals;
    tutti_launch_report_t *report;
    void (*on_exit)(void *rank);          /* on the loop, when a rank has ended */
    void (*on_output)(tt_agent_t *agent); /* after each output */
    int rank_count, running, control;     /* ranks of this host */
    int world_size;
    tt_agent_rank_t *ranks;
    int attempt;          /* 0, and one more for each restart */
    int64_t begin_s;      /* of attempt 0, since 1970 */
    int joined_port;      /* of the attempt's store on node 0; 0: the options' */
    tutti_store_t *store; /* the attempt's, if it is here; NULL on other nodes, and on several in
                             the first attempt, in which ranks meet where the launchers do */
    int key_fd;           /* of the attempt's key, unless ranks find it themselves; -1 */
    tt_launch_key_t key;  /* of the job */
    tt_nodes_t *nodes;    /* of several hosts; else NULL */
    int start_fd;         /* where ranks say that they cannot execute the command; -1: all do */
    tt_watch_t *start_watch;
    tt_output_t notes; /* to the user, about the nodes */
    tutti_status_t status;
    tt_loop_t *loop;
    tt_timer_t *grace;
    tt_console_t console;
    bool is_served; /* for the launcher of another host */
    bool is_stopping, has_started, was_stopped, has_killed;
    bool is_flushing;  /* no rank is left, but lines still wait for their reader */
    int64_t failed_ns; /* when the first failure was seen, and the signal, if it was one */
    int failed_signal;
    int interrupts;
    int told;  /* the signal by which ranks were asked to end; 0: none was */
    int early; /* it stops the job, and has not come here: the ranks were asked already; or 0 */
    char run_id[64];
    char *buffer; /* TT_READ_BYTES */
};

/* With its output's pipes on the loop; a failure to execute is written to error_fd. */
tutti_status_t tt_rank_start(tt_agent_rank_t *rank, const tt_binding_t *binding, int error_fd);

/* Lines have left a queue that was full: read on. */
void tt_rank_resume(const tt_agent_rank_t *rank);

/* Take what is left in a stream, and close it. */
void tt_rank_drain(tt_agent_rank_t *rank, int stream);

/* To all ranks that run, with their groups. */
void tt_agent_signal(const tt_agent_t *agent, int number);

/* ---- launch_attempt.c ---------------------------------------------------------------------- */

/* The ranks' slots, empty. */
void tt_attempt_init(tt_agent_t *agent);

/* The attempt's key, and its store if that is here. */
tutti_status_t tt_attempt_open(tt_agent_t *agent);

/* The attempt's processes. A command that cannot be executed is found out on the loop. */
tutti_status_t tt_attempt_start(tt_agent_t *agent);

/* Whether a rank could not execute the command: the agent's status then says so, and the loop
 * stops. */
void tt_attempt_look(tt_agent_t *agent);

/* The attempt is over, or never began: no process of it stays. */
void tt_attempt_end(tt_agent_t *agent);

/* What is known of it goes: outputs' tails, store, key. */
void tt_attempt_fini(tt_agent_t *agent);

int tt_agent_node_count(const tt_agent_t *agent);

#endif
