/* Whether this process was forked from another: a child made by fork() finds tt_forks higher than
 * its parent left it. To compare costs a load; getpid() is a system call. Children that _Fork() or
 * clone(2) make are not counted: no library hears of those.
 *
 * Source: pthread_atfork(3).
 */
#ifndef TT_FORK_H
#define TT_FORK_H

extern unsigned tt_forks;

/* From now on they are counted; called before tt_forks is read for the first time. */
void tt_forks_count(void);

#endif
