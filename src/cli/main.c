/* tutti: `tutti VERB …`. The verbs are listed in verbs.def; each has a file of its own. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <tutti/diagnose.h>

#include "cli/cli.h"

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} verbs[] = {
#define X(name, about) {#name, about, tt_verb_##name},
#include "cli/verbs.def"
#undef X
};

enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static void print_usage(FILE *file)
{
    fprintf(file, "usage: tutti VERB [OPTION …] …\n\nverbs:\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        fprintf(file, "  %-10s %s\n", verbs[i].name, verbs[i].about);
    }
    fprintf(file, "\n`tutti VERB --help` tells more; `tutti --version` prints the version.\n");
}

int tt_cli_fail(const char *verb, int exit_code)
{
    const char *text = tutti_last_error();
    const size_t length = strlen(verb);
    if (strncmp(text, verb, length) == 0 && strncmp(text + length, ": ", 2) == 0) {
        text += length + 2; /* the call is called as the verb */
    }
    fprintf(stderr, "tutti %s: %s\n", verb, text);
    return exit_code;
}

int tt_cli_refuse(const char *verb, const char *flag, const char *value, const char *want)
{
    fprintf(stderr, "tutti %s: --%s %s: want %s\n", verb, flag, value, want);
    return TT_EXIT_USAGE;
}

int tt_cli_refuse_operand(const char *verb, const char *operand)
{
    fprintf(stderr, "tutti %s: unexpected argument \"%s\"; `tutti %s --help` tells more\n", verb,
            operand, verb);
    return TT_EXIT_USAGE;
}

int tt_cli_help(const char *usage, const tutti_option_t *table, const void *defaults)
{
    char text[8192];
    tutti_options_help(table, defaults, text, sizeof text);
    printf("usage: %s\n\n%s", usage, text);
    return 0;
}

static int fail_unknown(const char *name)
{
    const char *names[VERB_COUNT + 1] = {0};
    for (int i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
    }
    fprintf(stderr,
            "tutti: there is no verb \"%s\"; did you mean \"%s\"? `tutti --help` lists them\n",
            name, tutti_nearest_name(name, names));
    return TT_EXIT_USAGE;
}

/* What was printed may still lie in the buffer, and the disk be full. */
static int close_output(const char *name, int code)
{
    const bool was_bad = ferror(stdout) != 0;
    if (fclose(stdout) == 0 && !was_bad) {
        return code;
    }
    fprintf(stderr, "tutti %s: cannot write all of its output: %s\n", name, strerror(errno));
    return code != 0 ? code : 1;
}

/* `tutti info` shows the variables before it complains of them. */
static int run_verb(int verb, int argc, char **argv)
{
    const char *name = verbs[verb].name;
    if (strcmp(name, "info") != 0 && tutti_info_check_settings() < 0) {
        return tt_cli_fail(name, TT_EXIT_USAGE);
    }
    return close_output(name, verbs[verb].run(argc, argv));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (int i = 0; i < VERB_COUNT; i++) {
        if (strcmp(name, verbs[i].name) == 0) {
            return run_verb(i, argc - 1, argv + 1);
        }
    }
    if (strcmp(name, "--version") == 0) {
        printf("tutti %s\n", tutti_version());
        return close_output("--version", 0);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage(stdout);
        return close_output("--help", 0);
    }
    if (argc < 2) {
        print_usage(stderr);
        return TT_EXIT_USAGE;
    }
    return fail_unknown(name);
}
