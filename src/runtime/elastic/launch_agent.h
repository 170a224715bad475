/* The agent: the process that starts the ranks, reads their output, and ends them. And its guard's
 * inner side.
 */
#ifndef TT_LAUNCH_AGENT_H
#define TT_LAUNCH_AGENT_H

#include <signal.h>

#include <tutti/launch.h>

typedef struct {
    const tutti_launch_options_t *options; /* complete */
    const sigset_t *signals;
    bool is_served; /* for the launcher of another host, see ssh_job.h */
} tt_agent_options_t;

/* Run the job to its end. Each byte that can be read from `control` is a signal for the ranks; its
 * end means that the guard died, and ends the job. `signals` is the mask that ranks get; here all
 * are blocked, SIGPIPE for the sake of lines that nobody reads. */
tutti_status_t tt_agent_run(const tt_agent_options_t *options, int control,
                            tutti_launch_report_t *report);

/* tutti_launch() for a process in which all signals are blocked from its first instruction on, so
 * that none is lost before the guard takes them. `signals` as above; NULL: the caller's mask. */
tutti_status_t tt_launch_ranks(const tt_agent_options_t *options, tutti_launch_report_t *report);

#endif
