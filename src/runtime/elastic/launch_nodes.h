/* The launchers of a job's hosts ("nodes") among each other: they meet in node 0's store, learn who
 * has which ranks, and all learn at once when a rank or a launcher anywhere fails.
 *
 *     key in the store             what
 *     launch/job                   "NODES RUN_ID MAX_RESTARTS", set by node 0
 *     launch/claim/K               how many say that they are node K
 *     launch/node/K                "RANKS HOST", set when node K is there
 *     launch/done/A                how many nodes' ranks have all ended well in attempt A
 *     launch/end, launch/end/A     lines; the first decides how the attempt ended, see
 *                                  tt_job_end_t. Every node leaves a will for it (tt_store_will)
 *     launch/ready/A/K             set when nothing of earlier attempts is left on node K; node 0's
 *                                  is the port of the store where the ranks of attempt A meet
 *     launch/left, launch/gone     how many have read the end; set by the last
 *
 * A thread of its own talks to the store and waits there for the end; the agent's loop is woken.
 */
#ifndef TT_LAUNCH_NODES_H
#define TT_LAUNCH_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef struct tt_nodes tt_nodes_t;

typedef struct {
    int node_count, node_rank, local_count; /* ranks of this node */
    const char *host;                       /* of node 0's store; borrowed, as all below */
    int port;                               /* 0: node 0 takes a free one */
    const char *run_id;                     /* NULL: node 0's */
    int64_t join_timeout_ms;
    int max_restarts;
    void (*changed)(void *user); /* look at tt_nodes_state(); called in the nodes' thread */
    void *user;
} tt_nodes_options_t;

typedef enum {
    TT_NODES_JOINING,
    TT_NODES_JOINED, /* the layout is known: start */
    TT_NODES_ENDED,  /* the end is known: stop */
    TT_NODES_FAILED  /* while joining; see tt_nodes_error() */
} tt_nodes_state_t;

typedef struct {
    int world_size, first_rank;
    int port; /* of the store where the ranks meet */
    char run_id[64];
} tt_nodes_layout_t;

/* How a job ended: "ok", or "NODE HOST RANK CODE SIGNAL STOP", as text in the store. */
typedef struct {
    bool is_ok;
    int node;
    char host[64];
    int rank;         /* -1: the launcher of the node was lost, or was stopped before the start */
    int code, signal; /* of the rank */
    int stop_signal;  /* that the node's launcher got; 0: none */
} tt_job_end_t;

/* Node 0's store is open when this returns. */
tutti_status_t tt_nodes_start(const tt_nodes_options_t *options, tt_nodes_t **out);

/* Of node 0's store, on node 0. */
int tt_nodes_port(const tt_nodes_t *nodes);

/* The state; *layout is written from JOINED on, *end when ENDED. Either may be NULL. */
tt_nodes_state_t tt_nodes_state(tt_nodes_t *nodes, tt_nodes_layout_t *layout, tt_job_end_t *end);

/* After the end: this node's ranks are gone, and it takes part in another attempt; port: of the
 * attempt's store, on node 0. JOINING until all nodes do so. */
void tt_nodes_again(tt_nodes_t *nodes, int attempt, int port);

/* Why joining failed, recorded again for this thread. */
tutti_status_t tt_nodes_error(tt_nodes_t *nodes);

/* What to tell the user, a line without its end; false: nothing new. */
bool tt_nodes_take_note(tt_nodes_t *nodes, char *text, size_t bytes);

/* A rank of this node failed; node and host are filled in. Takes at most 2 s. */
void tt_nodes_report(tt_nodes_t *nodes, const tt_job_end_t *end);

/* All ranks of this node ended well. */
void tt_nodes_done(tt_nodes_t *nodes);

/* Read the end once more: of several failures the one that explains the others. Node 0 waits a
 * while for the others to have read it, for its store ends with it. NULL is fine. */
void tt_nodes_close(tt_nodes_t *nodes, tt_job_end_t *end);

/* One line of launch/end; returns its length, as snprintf(). */
int tt_job_end_print(const tt_job_end_t *end, char *text, size_t bytes);

/* As it is reported to the user; a rank without its node where `host` is "". */
void tt_job_end_describe(const tt_job_end_t *end, char *text, size_t bytes);

/* Of all the lines the one that explains the others: a stop, a killed rank or a lost launcher
 * before exit codes, which may be those of ranks that noticed. */
void tt_job_end_choose(const char *text, tt_job_end_t *end);

/* How many launchers will never read the end. */
int tt_job_end_count_lost(const char *text);

#endif
