/* What whole programs have in common: outputs that are tried before a training begins, what is told
 * of a run beside its numbers, and an end when a signal asks for one.
 */
#ifndef TT_COMMON_H
#define TT_COMMON_H

#include <tutti/tutti.h>

/* ---- outputs.c ----------------------------------------------------------------------------- */

typedef enum {
    OUTPUT_FILE,   /* is made, or written over; may be a pipe */
    OUTPUT_SAFE,   /* comes as a whole, in place of the one before */
    OUTPUT_FOLDER, /* is made with those above it, if it is not there */
} output_kind_t;

typedef struct {
    const char *flag, *path; /* a path of NULL is not wanted */
    output_kind_t kind;
    bool is_everybodys; /* each rank writes there, not rank 0 alone */
} output_t;

/* Whether all of this can be written, as far as is known before it is: nothing is made, and nothing
 * is changed. A collective call: what cannot be written on one rank is a failure on all, told on
 * stderr as "PROGRAM: --FLAG PATH: why". Errors: IO, with nothing left to tell; those of
 * tutti_all_reduce(). */
tutti_status_t outputs_check(tutti_group_t *world, const char *program, const output_t *outputs,
                             int count);

/* ---- stopping.c ---------------------------------------------------------------------------- */

/* From here on the first SIGINT or SIGTERM is noted, and a second one ends the program at once. */
void stopping_begin(void);

/* The signal that was noted on this rank; 0: none. */
int stopping_noted(void);

/* Signals do what they did before. */
void stopping_end(void);

/* This rank has nothing left but to end, as all others: the launcher's SIGTERM to those that end
 * after the first changes nothing any more. A collective call. */
tutti_status_t stopping_leave(tutti_group_t *world);

/* "SIGINT". */
const char *stopping_name(int number);

/* ---- telling.c ----------------------------------------------------------------------------- */

/* The command line, cut to its room. */
void command_keep(char *text, size_t bytes, int argc, char **argv);

/* Opens the metrics of a run that has made `step` steps, and writes what `tutti report` shows:
 * command, ranks, version. A folder of NULL: nothing, *out stays. Errors: those of
 * tutti_metrics_open(). */
tutti_status_t metrics_begin(const char *folder, const char *command, int ranks, bool is_resumed,
                             int64_t step, tutti_metrics_t **out);

#endif
