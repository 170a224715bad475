/* Who started us: hydra gives its jobs no name, so the process that started the ranks stands for
 * the job.
 */
#include <stdio.h>

#include "comm/rendezvous/rendezvous.h"
#include "core/base/core_share.h"

void tt_launcher_process(const char *variable, char *text, size_t text_bytes)
{
    const tt_launcher_t launcher = tt_launcher_find(variable);
    snprintf(text, text_bytes, "process %ld.%llu", launcher.pid, launcher.started);
}
