/* What the parts of `tutti checkpoint` share. */
#ifndef TT_CHECKPOINT_PARTS_H
#define TT_CHECKPOINT_PARTS_H

#include <stdio.h>

#include <jansson.h>

#include <tutti/checkpoint_files.h>

#include "cli/cli.h"

/* argv[0] is the name; the result is the exit code: 0 done, 1 damaged, or not the same, 2 could not
 * be done. */
#define X(name, about) int tt_checkpoint_##name(int argc, char **argv);
#include "cli/checkpoint_verbs.def"
#undef X

enum { TT_CHECKPOINT_ARGUMENTS_MAX = 2 };

/* How one of them is called. */
typedef struct {
    const char *name, *usage;
    const tutti_option_t *table;
    int least, most; /* arguments, beside options */
} tt_checkpoint_form_t;

/* As tt_cli_parse(). Returns -1: go on; or the exit code, behind help
 * or a mistake, which has been printed. `flags` holds the defaults. */
int tt_checkpoint_parse(const tt_checkpoint_form_t *form, int argc, char **argv, void *flags,
                        const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX]);

/* What of a checkpoint is written: as the options say. */
typedef struct {
    const char *include, *exclude; /* patterns with commas between them; NULL: all, none */
    int dtype;                     /* number in tt_checkpoint_dtypes */
} tt_checkpoint_choice_t;

extern const char *const tt_checkpoint_dtypes[]; /* for options; the first keeps what there is */

/* Returns -1, or the exit code, behind a mistake that has been printed. */
int tt_checkpoint_check_choice(const char *verb, const tt_checkpoint_choice_t *choice);

/* Of one that is open. Errors: those of tutti_saved_select() and tutti_saved_cast(). */
tutti_status_t tt_checkpoint_choose(tutti_saved_t *saved, const tt_checkpoint_choice_t *choice);

/* What files say, which may be anything, without what a terminal obeys: control characters as
 * "\\u001b". Returns how many characters were put. */
int tt_checkpoint_put(FILE *to, const char *text);

/* The last failure, on stderr. Returns TT_EXIT_USAGE. */
int tt_checkpoint_fail(const char *name);

/* Prints it and a newline, and drops it; NULL: out of memory. Returns `exit_code`. */
int tt_checkpoint_print_json(const char *name, json_t *json, int exit_code);

/* Names of files need not be UTF-8, and a problem may end within a character: what is none is
 * U+FFFD. */
json_t *tt_checkpoint_text_json(const char *text);
json_t *tt_checkpoint_shape_json(tutti_shape_t shape);
json_t *tt_checkpoint_numbers_json(const int64_t *numbers, int count);

enum { TT_BYTES_TEXT = 32 };

/* "1.5 GiB"; returns text. */
const char *tt_checkpoint_bytes(uint64_t bytes, char text[TT_BYTES_TEXT]);

enum { TT_PART_TEXT = 160 };

/* Of one host's folder: "host b of 2, 3 files are on others"; "" of all files; returns text. */
const char *tt_checkpoint_part(const tutti_saved_about_t *about, char text[TT_PART_TEXT]);

enum { TT_DAMAGE_TEXT = 5120 };

/* "FILE: tensor "NAME": 16 bytes at offset 8: PROBLEM", as files have it, to be put. */
void tt_checkpoint_damage(const tutti_saved_damage_t *damage, char text[TT_DAMAGE_TEXT]);

/* The host's name, or null. */
json_t *tt_checkpoint_host_json(const tutti_saved_about_t *about);

/* What stands behind "%zu tensor". */
const char *tt_checkpoint_plural(size_t count);

/* A line on stderr that says how far it is, where stderr is a terminal. */
typedef struct {
    const char *what;
    int percent; /* that is shown; 0: none */
} tt_checkpoint_progress_t;

void tt_checkpoint_progress_show(tt_checkpoint_progress_t *progress, uint64_t bytes, uint64_t all);

/* Takes the line away; before other lines are printed, and at the end. */
void tt_checkpoint_progress_hide(tt_checkpoint_progress_t *progress);

#endif
