/* A world of ranks in one process, on a clock and a network that are made up.
 *
 * Each rank is a thread, but only one runs at a time: where a real rank would sleep, it passes the
 * baton to the one that wakes first, and the clock jumps there. What is drawn (delays, short reads
 * and writes, who runs when, faults) is drawn from the seed, so that a seed replays everything.
 *
 *     connections   one for each (sender, receiver, channel); bytes arrive later, in order, in odd
 *                   pieces; one connection overtakes another
 *     reset         a connection breaks: what was on its way is lost, both ends notice
 *     half-open     from now on nothing arrives, and nobody notices
 *     pause         a rank does not run for a while
 *     crash         all connections of a rank break
 *     partition     two sets of ranks hear nothing of each other any more
 *
 * The ranks may share a store: one server, reached over connections of its own (sim_store.c).
 *
 *     store reset   for some ms, calls of a rank are cut off now and then, carried out or not
 *     store pause   the server does not answer for a while
 *     store gone    the server dies
 */
#ifndef TT_SIM_H
#define TT_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/store/store_table.h"
#include "comm/wire/peers.h"
#include "core/base/rng.h"

enum { SIM_RANKS_MAX = 64, SIM_BUCKETS = 4096 };

typedef enum {
    SIM_NO_FAULT,
    SIM_SLOW,
    SIM_RESET,
    SIM_HALF_OPEN,
    SIM_PAUSE,
    SIM_CRASH,
    SIM_PARTITION,
    SIM_FAULTS_OF_WIRES,
    SIM_STORE_RESET = SIM_FAULTS_OF_WIRES,
    SIM_STORE_PAUSE,
    SIM_STORE_GONE,
    SIM_FAULTS
} sim_fault_t;

typedef struct sim sim_t;

typedef struct {
    sim_t *sim;
    int rank;
    pthread_t thread;
    _Atomic uint32_t has_turn; /* a futex */
    int64_t wake_ns;
    unsigned naps; /* since bytes last moved */
    bool is_over;
    tt_peers_simulation_t hooks;
    void (*body)(sim_t *sim, int rank, void *user);
    void *user;
} sim_rank_t;

typedef struct sim_connection sim_connection_t;

/* A world to run. */
typedef struct {
    uint64_t seed;
    int size;
    sim_fault_t fault;
    int64_t fault_within_ns; /* it strikes in the first so many; 0: 2.5 ms */
    void (*body)(sim_t *sim, int rank, void *user);
    void *user;
} sim_plan_t;

struct sim {
    uint64_t seed, draws;
    int size, running;
    int64_t now_ns;
    sim_rank_t ranks[SIM_RANKS_MAX];
    sim_connection_t *connections[SIM_BUCKETS];
    tt_table_t *table;  /* of the store's server; NULL: nobody has opened it */
    bool is_store_high; /* in a partition, it is on the side of the higher ranks */

    sim_fault_t fault;
    int64_t fault_ns, fault_end_ns;
    int victim, other; /* ranks that the fault is about */
    uint64_t trace;    /* a hash of who ran when */
};

/* A number below `limit`. */
uint64_t sim_draw(sim_t *sim, uint64_t limit);

/* Runs the plan's body on every rank. Returns the trace. */
uint64_t sim_run(sim_t *sim, const sim_plan_t *plan);

/* The calling rank sleeps; others run meanwhile. */
void sim_sleep_until(sim_rank_t *self, int64_t until_ns);

/* Whether what `from` sends cannot reach `to` now. */
bool sim_is_lost(const sim_t *sim, int from, int to);
bool sim_has_crashed(const sim_t *sim, int rank);

tutti_status_t sim_open_wire(void *rank, int peer, uint64_t channel, tt_wire_t *out);
void sim_close_connections(sim_t *sim);

/* A rank's client of the store. */
tutti_status_t sim_open_store(sim_rank_t *self, tutti_store_t **out);

#endif
