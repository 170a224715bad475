/* Ranks of one host whose threads take turns, in an order that a seed draws, on a clock that is
 * made up. The code is the real one; where it calls certain functions of other files (turns.c), the
 * turn may pass. Who sleeps on a doorbell is woken by it. Only when nobody can go on, the clock
 * jumps to where the first sleep ends, which is counted.
 *
 * From a turn that is drawn, the victim of a fault does not run:
 *
 *     pause   for up to a second
 *     stop    until all others are over
 *     death   the same, and the others take it for dead
 */
#ifndef TT_TURNS_H
#define TT_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TURNS_RANKS_MAX = 8 };

typedef enum {
    TURNS_NO_FAULT,
    TURNS_ABORT, /* the test's own */
    TURNS_PAUSE,
    TURNS_STOP,
    TURNS_DEATH,
    TURNS_FAULTS
} turns_fault_t;

typedef struct {
    bool is_over;
    uint64_t taken;         /* turns */
    int64_t awake_ns;       /* does not run before */
    _Atomic uint32_t *word; /* asleep while it has this value; NULL: awake */
    uint32_t expected;
} turns_rank_t;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t passed;
    int size, here, running; /* running -1: not all are here, or all are over */
    uint64_t seed, draws;
    int64_t now_ns, tick_ns;
    int64_t timers; /* so many sleeps ended by themselves */
    turns_fault_t fault;
    int victim;
    uint64_t fault_turn;
    bool has_struck;
    turns_rank_t ranks[TURNS_RANKS_MAX];
} turns_t;

void turns_open(turns_t *turns, uint64_t seed, int size);
void turns_close(turns_t *turns);

/* A number below `limit`. */
uint64_t turns_draw(turns_t *turns, uint64_t limit);

/* The calling thread is a rank until turns_end; it goes on when all are here and it has the turn.
 */
void turns_begin(turns_t *turns, int rank);
void turns_end(void);

#endif
