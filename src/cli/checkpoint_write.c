/* tutti checkpoint merge, split and convert: into files that others read, and back. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <tutti/checkpoint.h>

#include "cli/checkpoint_parts.h"

typedef struct {
    const char *shard_size;
    int64_t ranks, heads;
    bool is_all, is_json;
    int to, names; /* of convert */
    tt_checkpoint_choice_t choice;
} flags_t;

#define FIELD(name) .offset = offsetof(flags_t, name)

/* Rows of more than one command. */
#define SHARD_SIZE_OPTION                                                                          \
    {                                                                                              \
        .name = "shard-size", .kind = TUTTI_OPTION_TEXT, FIELD(shard_size), .argument = "SIZE",    \
        .about = "of a folder's files, at most: 500MB, 4GiB"                                       \
    }
#define RANKS_OPTION(text)                                                                         \
    {                                                                                              \
        .name = "ranks", .alias = 'n', .kind = TUTTI_OPTION_INT, FIELD(ranks), .argument = "N",    \
        .min = 1, .max = 99999, .about = text                                                      \
    }
#define CHOICE_OPTIONS                                                                             \
    {.name = "include",                                                                            \
     .kind = TUTTI_OPTION_TEXT,                                                                    \
     FIELD(choice.include),                                                                        \
     .argument = "PATTERN[,…]",                                                                    \
     .about = "tensors whose names match one, as in a shell; the optimizer's, too"},               \
        {.name = "exclude",                                                                        \
         .kind = TUTTI_OPTION_TEXT,                                                                \
         FIELD(choice.exclude),                                                                    \
         .argument = "PATTERN[,…]",                                                                \
         .about = "none whose names match one, as in 'optim.*'"},                                  \
    {                                                                                              \
        .name = "dtype", .kind = TUTTI_OPTION_CHOICE, FIELD(choice.dtype),                         \
        .choices = tt_checkpoint_dtypes, .about = "what floating tensors are converted to"         \
    }
#define JSON_OPTION                                                                                \
    {                                                                                              \
        .name = "json", FIELD(is_json), .about = "print JSON"                                      \
    }

/* What is seen between two windows: how far it is, and whether it shall end. */
typedef struct {
    tt_checkpoint_progress_t progress;
    sigset_t ends; /* signals that end programs, held back meanwhile: half of a file would stay */
    int signal;    /* that has come; 0: none */
} seen_t;

static void show_progress(void *user, uint64_t bytes, uint64_t all)
{
    seen_t *seen = user;
    tt_checkpoint_progress_show(&seen->progress, bytes, all);
}

/* But for those that whoever started us has ignored, as nohup does. */
static void hold_signals(seen_t *seen)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    sigemptyset(&seen->ends);
    for (int i = 0; i < 3; i++) {
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&seen->ends, ends[i]);
        }
    }
    (void)sigprocmask(SIG_BLOCK, &seen->ends, NULL);
}

static bool is_stopped(void *user)
{
    seen_t *seen = user;
    const struct timespec now = {0};
    const int number = sigtimedwait(&seen->ends, NULL, &now);
    seen->signal = number > 0 ? number : seen->signal;
    return seen->signal != 0;
}

/* Who sent one finds that the program has ended by it. */
static void drop_signals(const seen_t *seen)
{
    (void)sigprocmask(SIG_UNBLOCK, &seen->ends, NULL);
    if (seen->signal != 0) {
        (void)raise(seen->signal);
    }
}

/* What was read, where it went. Returns the exit code. */
static int print_written(const char *verb, const tutti_saved_t *saved, const char *path,
                         bool is_json)
{
    const tutti_saved_about_t about = tutti_saved_describe(saved);
    if (is_json) {
        return tt_checkpoint_print_json(verb,
                                        json_pack("{s:o, s:s, s:I, s:o}", "from",
                                                  tt_checkpoint_text_json(about.path), "format",
                                                  about.format, "step", (json_int_t)about.step,
                                                  "to", tt_checkpoint_text_json(path)),
                                        0);
    }
    printf("%s: written\n", path);
    return 0;
}

/* ---- merge ----------------------------------------------------------------------------------- */

static const tutti_option_t merge_table[] = {
    SHARD_SIZE_OPTION,
    {.name = "all",
     FIELD(is_all),
     .about = "also the optimizer's state and averages: names that begin with \"optim.\" and "
              "\"averaged.\""},
    CHOICE_OPTIONS,
    JSON_OPTION,
    {0}};

/* 0: it is none */
static uint64_t parse_size(const char *text)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30}};
    const size_t digits = strspn(text, "0123456789");
    const uint64_t number = digits > 0 && digits < 10 ? strtoull(text, NULL, 10) : 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(text + digits, units[i].name) == 0) {
            return number * units[i].bytes;
        }
    }
    return 0;
}

/* Opened, written, closed: `write` does the work. Returns the exit code. */
static int run(const char *verb, const char *const *arguments, const flags_t *flags,
               tutti_status_t (*write)(tutti_saved_t *saved, const char *out, const flags_t *flags,
                                       const tutti_saved_watch_t *watch))
{
    tutti_saved_t *saved;
    seen_t seen = {.progress = {.what = verb}};
    const tutti_saved_watch_t watch = {
        .user = &seen, .progress = show_progress, .is_stopped = is_stopped};
    if (flags->shard_size != NULL && parse_size(flags->shard_size) == 0) {
        char name[32];
        snprintf(name, sizeof name, "checkpoint %s", verb);
        return tt_cli_refuse(name, "shard-size", flags->shard_size, "a size, as in 5GB or 512MiB");
    }
    const int mistake = tt_checkpoint_check_choice(verb, &flags->choice);
    if (mistake >= 0) {
        return mistake;
    }
    if (tutti_saved_open(arguments[0], &saved) < 0) {
        return tt_checkpoint_fail(verb);
    }
    hold_signals(&seen);
    const tutti_status_t status = write(saved, arguments[1], flags, &watch);
    tt_checkpoint_progress_hide(&seen.progress);
    const int code = status < 0 ? tt_checkpoint_fail(verb)
                                : print_written(verb, saved, arguments[1], flags->is_json);
    tutti_saved_close(saved);
    drop_signals(&seen);
    return code;
}

static tutti_status_t merge(tutti_saved_t *saved, const char *out, const flags_t *flags,
                            const tutti_saved_watch_t *watch)
{
    const tutti_merge_options_t options = {.shard_bytes = parse_size(flags->shard_size),
                                           .is_all = flags->is_all || flags->choice.include != NULL,
                                           .watch = watch};
    TUTTI_CHECK(tt_checkpoint_choose(saved, &flags->choice));
    return tutti_saved_merge(saved, out, &options);
}

int tt_checkpoint_merge(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {
        "merge", "[OPTION …] CHECKPOINT OUT.safetensors|OUTDIR", merge_table, 2, 2};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    flags_t flags = {.shard_size = "5GB"};
    const int code = tt_checkpoint_parse(&form, argc, argv, &flags, arguments);
    return code >= 0 ? code : run("merge", arguments, &flags, merge);
}

/* ---- split ----------------------------------------------------------------------------------- */

static const tutti_option_t split_table[] = {
    RANKS_OPTION("each has a part of the rows of every tensor"), CHOICE_OPTIONS, JSON_OPTION, {0}};

static tutti_status_t split(tutti_saved_t *saved, const char *out, const flags_t *flags,
                            const tutti_saved_watch_t *watch)
{
    TUTTI_CHECK(tt_checkpoint_choose(saved, &flags->choice));
    return tutti_saved_split(saved, out, (int)flags->ranks, watch);
}

int tt_checkpoint_split(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"split", "[OPTION …] CHECKPOINT OUTFOLDER",
                                              split_table, 2, 2};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    flags_t flags = {.ranks = 1};
    const int code = tt_checkpoint_parse(&form, argc, argv, &flags, arguments);
    return code >= 0 ? code : run("split", arguments, &flags, split);
}

/* ---- convert --------------------------------------------------------------------------------- */

enum { TO_BY_NAME, TO_SAFETENSORS, TO_HUGGING_FACE, TO_CHECKPOINT, TO_LLMC };
enum { NAMES_KEPT, NAMES_OURS, NAMES_GPT2 };

static const char *const formats[] = {"auto",       "safetensors", "huggingface",
                                      "checkpoint", "llmc",        NULL};
static const char *const namings[] = {"keep", "tutti", "gpt2", NULL};

static const tutti_option_t convert_table[] = {
    {.name = "to",
     .kind = TUTTI_OPTION_CHOICE,
     FIELD(to),
     .choices = formats,
     .about = "what OUT becomes; auto: NAME.safetensors, NAME.bin (llm.c's), huggingface"},
    {.name = "names",
     .kind = TUTTI_OPTION_CHOICE,
     FIELD(names),
     .choices = namings,
     .about = "of the tensors of a GPT: tutti's, or those of Hugging Face's GPT-2, "
              "whose matrices are transposed"},
    {.name = "heads",
     .kind = TUTTI_OPTION_INT,
     FIELD(heads),
     .argument = "N",
     .min = 0,
     .max = 1e6,
     .about = "of attention, for llm.c; 0: as in the llm.c file that it is from"},
    RANKS_OPTION("of a checkpoint: each has a part of the rows of every tensor"),
    SHARD_SIZE_OPTION,
    {.name = "all",
     FIELD(is_all),
     .about = "also what belongs to the optimizer, which a checkpoint always holds"},
    CHOICE_OPTIONS,
    JSON_OPTION,
    {0}};

static bool ends_with(const char *path, const char *suffix)
{
    const size_t bytes = strlen(path), end = strlen(suffix);
    return bytes > end && strcmp(path + bytes - end, suffix) == 0;
}

/* Files are known by their names. */
static int format_of(const char *path)
{
    return ends_with(path, ".safetensors") ? TO_SAFETENSORS
           : ends_with(path, ".bin")       ? TO_LLMC
                                           : TO_HUGGING_FACE;
}

static tutti_status_t write_llmc(tutti_saved_t *saved, const char *out, const flags_t *flags,
                                 const tutti_saved_watch_t *watch)
{
    TUTTI_CHECK(tt_checkpoint_choose(saved, &flags->choice));
    return tutti_saved_write_llmc(
        saved, out, &(tutti_llmc_options_t){.heads = (int)flags->heads, .watch = watch});
}

static tutti_status_t convert(tutti_saved_t *saved, const char *out, const flags_t *flags,
                              const tutti_saved_watch_t *watch)
{
    size_t count;
    const tutti_load_rule_t *rules = tutti_gpt2_rules(&count);
    if (flags->names != NAMES_KEPT) {
        TUTTI_CHECK(tutti_saved_rename(saved, rules, count, flags->names == NAMES_GPT2));
    }
    return flags->to == TO_CHECKPOINT ? split(saved, out, flags, watch)
           : flags->to == TO_LLMC     ? write_llmc(saved, out, flags, watch)
                                      : merge(saved, out, flags, watch);
}

int tt_checkpoint_convert(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"convert", "[OPTION …] CHECKPOINT OUT", convert_table,
                                              2, 2};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    flags_t flags = {.shard_size = "5GB", .ranks = 1};
    const int code = tt_checkpoint_parse(&form, argc, argv, &flags, arguments);
    if (code >= 0) {
        return code;
    }
    const int by_name = format_of(arguments[1]);
    const int wanted = flags.to == TO_CHECKPOINT ? TO_HUGGING_FACE : flags.to;
    if (wanted != TO_BY_NAME && wanted != by_name) {
        return tt_cli_refuse("checkpoint convert", "to", formats[flags.to],
                             wanted == TO_SAFETENSORS ? "OUT to be called NAME.safetensors"
                             : wanted == TO_LLMC      ? "OUT to be called NAME.bin"
                                                      : "OUT to be a folder");
    }
    flags.to = flags.to == TO_BY_NAME ? by_name : flags.to;
    return run("convert", arguments, &flags, convert);
}
