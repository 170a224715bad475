/* How often to save. A save costs the training some time, and what is done after the last one is
 * lost when the job fails; one interval loses least.
 *
 *     | interval | cost | interval | cost | interval … failure
 *     |   work   | save |   work   | save |   done again
 *
 * Failures come at random, M seconds apart on average, also while a save is written. With those a
 * segment of work t and save c takes M (e^((t + c) / M) - 1), and so t of it is kept.
 *
 * Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
 * dumps", Future Generation Computer Systems 22 (2006); its first order, sqrt(2 c M), is J. W.
 * Young's, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
 */
#ifndef TT_SAVE_ADVICE_H
#define TT_SAVE_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds of work between the end of a save and the begin of the next that lose least. `cost`: that
 * a save takes out of the training; more than 0, as `mtbf`, the mean time between failures. */
double tt_advice_interval(double cost, double mtbf);

/* The share of all time that is lost, by saves and by work that is done again: 0 to 1. */
double tt_advice_lost(double interval, double cost, double mtbf);

/* What is known of a run when it has saved. */
typedef struct {
    double cost;        /* of a save, to the training: more than 0 */
    double least;       /* a save takes so long: one under way at a time */
    double interval;    /* between saves, as it is now: more than 0 */
    double steps;       /* in an interval */
    double mtbf;        /* as the user knows it; 0: from the next two */
    int failures;       /* of the job so far … */
    double job_seconds; /* … in so long; more than 0 */
} tt_save_facts_t;

enum { TT_ADVICE_BYTES = 320 };

/* A line for the log; returns the interval that it names. */
double tt_advice_text(const tt_save_facts_t *facts, char text[TT_ADVICE_BYTES]);

/* Whether advice is another than it was: by more than half. */
bool tt_advice_has_changed(double interval, double before);

#endif
