/* When units come and go: a machine without memory and messages. What a program does goes in (a
 * unit's forward begins, its backward ends); what comes out is which unit starts to come, is waited
 * for, and goes. ddp_unit_order.c lets it move parameters; sharded_plan.c lets it write down a
 * plan. So a plan is what a step does, not what it should do.
 *
 *     forward begins      wanted
 *     forward ends        it goes, unless it is to stay for its backward: the root, or by option;
 *                         where a part is to stay near (options.reshard_ranks), but for that
 *     backward begins     wanted
 *     backward ends       it goes, unless it is to stay for other backwards of the step
 *     the whole backward  has ended: what waits for its own, or has not said that it ended, goes,
 *                         and so do parts that stayed near, unless a unit that has come back is
 *                         awaited once more: then there is another graph, of forwards before
 *
 * What is computed again is a forward, too. The unit that was computed again last stays, for its
 * backward comes next; where a region has several units, the others come once more.
 *
 * Who is wanted and away starts. The order of a whole step's starts is that of the next one, as a
 * rule: its next units are started before they are wanted, at most `most_ahead` of them. A start
 * out of that order ends it for the step.
 */
#ifndef TT_UNIT_TURNS_H
#define TT_UNIT_TURNS_H

#include "parallel/ddp/sharded_row.h"

/* Of a unit. */
typedef struct {
    int forwards, backwards; /* under way */
    int awaited;             /* backwards of forwards that have ended in a step */
    bool has_come_back;      /* in the whole backward that is under way */
    bool waits_for_backward; /* its forward has ended, and it stays for the backward */
    bool is_ahead;           /* started before it was wanted */
    bool is_held;            /* tutti_ddp_unshard() */
    bool is_kept;            /* away only while it is stepped */
} tt_unit_turn_t;

/* What becomes of a unit. */
typedef struct {
    bool (*is_away)(const void *user, int unit);
    /* It starts to come, which must be written down with tt_unit_turns_record() in a step. */
    tutti_status_t (*start)(void *user, int unit);
    tutti_status_t (*wait)(void *user, int unit);  /* until it is there; it may be so already */
    tutti_status_t (*leave)(void *user, int unit); /* if it is not away; nor near */
    /* If it is there: it is away, but for a part that stays near, of which the next start is. Of
     * those that keep near alone. */
    tutti_status_t (*keep)(void *user, int unit);
    void (*tell)(void *user, int unit); /* the order has changed, first here; NULL: nobody asks */
} tt_unit_actor_t;

typedef struct {
    tt_unit_turn_t *units; /* [count]; the root is the first, one that is kept the last */
    int count;
    bool keeps_after_forward, keeps_after_backward;
    bool keeps_near; /* from its forward to its backward a part of it stays */
    bool holds_all;  /* a pipeline's step: all units are there from its begin to its end */
    int most_ahead;
    const tt_unit_actor_t *actor;
    void *user;

    bool is_in_step;
    tt_sharded_list_t now, last; /* starts of this step, and of the whole one before, which may be
                                    empty */
    int cursor;                  /* starts of `last` that have been made */
    bool has_changed;            /* the order is not the last one's */
    int ahead;                   /* units that were started before they were wanted */
    int recomputed;              /* that waits for its backward; -1: none */
} tt_unit_turns_t;

/* Units without a past; the rest of *turns is the caller's, before. */
tutti_status_t tt_unit_turns_open(tt_unit_turns_t *turns, int count);
void tt_unit_turns_close(tt_unit_turns_t *turns);

/* options.prefetch: how many units may be started before they are wanted. */
int tt_unit_most_ahead(int prefetch);

/* A step begins: the order of the one before is foreseen, and what is there all the time is wanted.
 */
tutti_status_t tt_unit_turns_begin_step(tt_unit_turns_t *turns);

/* Something happens: FORWARD to END, UNSHARD and RESHARD; else nothing. Errors: the actor's; NOMEM.
 */
tutti_status_t tt_unit_turns_take(tt_unit_turns_t *turns, const tutti_sharded_action_t *call);

/* It is there when this returns; others may have been started. */
tutti_status_t tt_unit_turns_want(tt_unit_turns_t *turns, int unit);

/* Among starts: nothing is started early beyond it (ddp_unit_order.c). */
enum { TT_UNIT_ROUND_END = -1 };

/* A start has been made by others, or a round has ended: it was foreseen, or the order has changed.
 */
void tt_unit_turns_pass(tt_unit_turns_t *turns, int unit);

/* The next start of the step is this one's, of what stayed near, or of slices. */
tutti_status_t tt_unit_turns_record(tt_unit_turns_t *turns, int unit, bool is_near);

/* Nothing of a step is wanted any more; nothing is held any more; whether a unit stays between
 * steps. */
void tt_unit_turns_rest(tt_unit_turns_t *turns, bool stays_in_step);
void tt_unit_turns_let_go(tt_unit_turns_t *turns);
bool tt_unit_turns_stays(const tt_unit_turns_t *turns, int unit);

/* What was started early was wanted by nobody: nothing is started early in the next step. */
void tt_unit_turns_forget(tt_unit_turns_t *turns);

#endif
