/* Whether somebody has started this process as one rank of several. */
#include <tutti/elastic.h>

#include "comm/group/rendezvous.h"

bool tutti_is_launched(void)
{
    tt_rendezvous_t rendezvous;
    /* Variables that contradict each other are a launcher's too: tutti_init() tells what is wrong.
     */
    return tt_rendezvous_from_environment(-1, -1, &rendezvous) < 0 || rendezvous.size > 1;
}
