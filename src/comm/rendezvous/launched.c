/* Whether a launcher has started this process as one rank of several, and how often. */
#include <tutti/elastic.h>

#include "comm/rendezvous/rendezvous.h"
#include "core/base/config.h"

int tutti_restart_count(void)
{
    int64_t count;
    return tt_config_int(TT_CONFIG_RESTART_COUNT, 0, INT32_MAX, &count) >= 0 ? (int)count : 0;
}

bool tutti_is_launched(void)
{
    tt_rendezvous_t rendezvous;
    /* Variables that contradict each other are a launcher's too: tutti_init() tells what is wrong.
     */
    return tt_rendezvous_from_environment(-1, -1, &rendezvous) < 0 || rendezvous.size > 1;
}
