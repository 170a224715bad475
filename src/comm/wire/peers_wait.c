/* Waiting for ranks of any host: a rank that has a tcp wire sleeps in poll(), over its admission,
 * its wires, and what ranks of the same host wake it by. Without tcp wires it sleeps as local ranks
 * do.
 */
#include <poll.h>

#include "comm/wire/peers_impl.h"

/* What is waited for in this turn: nothing else, or a poll would return at once again and again. */
static int fill_polls(tt_peers_t *peers)
{
    int count = 0;
    peers->polls[count++] = (struct pollfd){.fd = peers->admission.fd, .events = POLLIN};
    count += tt_node_peers_polls(peers->node_peers, peers->polls + count);
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        count += tt_tcp_wire_polls(wire, peers->turn, peers->polls + count);
    }
    return count;
}

static void sleep_in_poll(tt_peers_t *peers, tt_idle_t *idle, tt_deadline_t deadline)
{
    enum { SLEEP_MS = 10 };
    const int left_ms = tt_deadline_left_ms(deadline);
    const int count = fill_polls(peers);
    peers->wakeups += poll(peers->polls, (nfds_t)count,
                           left_ms >= 0 && left_ms < SLEEP_MS ? left_ms : SLEEP_MS) > 0;
    tt_node_peers_idle_end(peers->node_peers, idle);
    idle->start_ns = tt_clock_ns();
    tt_node_peers_check(peers->node_peers);
    peers->calls = TT_CALLS_PER_LOOK - 1; /* look at the listener next */
}

void tt_peers_idle(tt_peers_t *peers, tt_idle_t *idle, tt_deadline_t deadline)
{
    if (peers->simulation != NULL) {
        idle->start_ns = idle->start_ns == 0 ? tt_clock_ns() : idle->start_ns;
        peers->simulation->idle(peers->simulation->user, deadline);
        return;
    }
    if (peers->wires == NULL) {
        tt_node_peers_idle(peers->node_peers, idle, deadline);
        return;
    }
    if (tt_node_peers_idle_for_poll(peers->node_peers, idle)) {
        sleep_in_poll(peers, idle, deadline);
    }
    peers->turn++;
}

void tt_peers_idle_end(tt_peers_t *peers, tt_idle_t *idle)
{
    tt_node_peers_idle_end(peers->node_peers, idle);
}
