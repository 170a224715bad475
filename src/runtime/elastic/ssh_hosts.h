/* A job whose hosts are started by ssh: the launcher's side. */
#ifndef TT_SSH_HOSTS_H
#define TT_SSH_HOSTS_H

#include "runtime/elastic/launch_agent.h"

/* The hosts, and what does not go with them; node_count is set. Errors: ARG. */
tutti_status_t tt_ssh_hosts_check(tutti_launch_options_t *options);

/* As tt_agent_run(), on options->hosts. */
tutti_status_t tt_ssh_hosts_run(const tt_agent_options_t *options, int control,
                                tutti_launch_report_t *report);

#endif
