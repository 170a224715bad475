/* tutti checkpoint: what can be done with checkpoints as files. Its own verbs are in
 * checkpoint_verbs.def; here are their table, and what they share. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/checkpoint_parts.h"

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} verbs[] = {
#define X(name, about) {#name, about, tt_checkpoint_##name},
#include "cli/checkpoint_verbs.def"
#undef X
};

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

enum { REPLACED_BYTES = sizeof replacement - 1 };
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static void print_usage(FILE *file)
{
    fprintf(file, "usage: tutti checkpoint VERB [OPTION …] FOLDER …\n\nverbs:\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        fprintf(file, "  %-10s %s\n", verbs[i].name, verbs[i].about);
    }
    fprintf(file, "\n`tutti checkpoint VERB --help` tells more.\n");
}

static int fail_unknown(const char *name)
{
    const char *names[VERB_COUNT + 1] = {0};
    for (int i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
    }
    fprintf(stderr,
            "tutti checkpoint: there is no verb \"%s\"; did you mean \"%s\"? `tutti checkpoint "
            "--help` lists them\n",
            name, tutti_nearest_name(name, names));
    return TT_EXIT_USAGE;
}

/* 1 says that something is damaged: what could not be printed is no such thing. */
static int flush_output(int code)
{
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? code : TT_EXIT_USAGE;
}

int tt_verb_checkpoint(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (int i = 0; i < VERB_COUNT; i++) {
        if (strcmp(name, verbs[i].name) == 0) {
            return flush_output(verbs[i].run(argc - 1, argv + 1));
        }
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (argc < 2) {
        print_usage(stderr);
        return TT_EXIT_USAGE;
    }
    return fail_unknown(name);
}

/* ---- command lines --------------------------------------------------------------------------- */

/* Those of ASCII, and U+0080 to U+009f, which are two bytes. */
int tt_checkpoint_put(FILE *to, const char *text)
{
    int count = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
        const bool is_c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        c += is_c1;
        if (is_c1 || *c < ' ' || *c == 0x7f) {
            count += fprintf(to, "\\u%04x", *c);
        } else {
            fputc(*c, to);
            count += (*c & 0xc0) != 0x80;
        }
    }
    return count;
}

int tt_checkpoint_fail(const char *name)
{
    fprintf(stderr, "tutti checkpoint %s: ", name);
    tt_checkpoint_put(stderr, tutti_last_error());
    fputc('\n', stderr);
    return TT_EXIT_USAGE;
}

static int refuse_count(const tt_checkpoint_form_t *form)
{
    fprintf(stderr, "tutti checkpoint %s: want %s\n", form->name, form->usage);
    return TT_EXIT_USAGE;
}

int tt_checkpoint_parse(const tt_checkpoint_form_t *form, int argc, char **argv, void *flags,
                        const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX])
{
    tt_operands_t operands;
    const tutti_status_t status = tt_cli_parse(form->table, argc, argv, flags, &operands);
    if (status == TUTTI_END) {
        char usage[160];
        snprintf(usage, sizeof usage, "tutti checkpoint %s %s", form->name, form->usage);
        return tt_cli_help(usage, form->table, flags);
    }
    if (status < 0) {
        return tt_checkpoint_fail(form->name);
    }
    const int count = argc - operands.first;
    if (count < form->least || count > form->most) {
        return refuse_count(form);
    }
    for (int i = 0; i < count; i++) {
        arguments[i] = argv[operands.first + i];
    }
    return -1;
}

/* ---- output ---------------------------------------------------------------------------------- */

int tt_checkpoint_print_json(const char *name, json_t *json, int exit_code)
{
    char *text = json == NULL ? NULL : json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    if (text == NULL) {
        fprintf(stderr, "tutti checkpoint %s: out of memory\n", name);
        return TT_EXIT_USAGE;
    }
    printf("%s\n", text);
    free(text);
    return exit_code;
}

/* Bytes of the first character, 0: it is none. */
static size_t measure_character(const char *text)
{
    for (size_t bytes = 1; bytes <= 4 && text[bytes - 1] != 0; bytes++) {
        json_t *json = json_stringn(text, bytes);
        json_decref(json);
        if (json != NULL) {
            return bytes;
        }
    }
    return 0;
}

json_t *tt_checkpoint_text_json(const char *text)
{
    json_t *json = json_string(text);
    char shown[3 * (PATH_MAX + 1)];
    size_t used = 0;
    while (json == NULL && *text != 0 && used + sizeof replacement + 4 < sizeof shown) {
        const size_t bytes = measure_character(text), put = bytes > 0 ? bytes : REPLACED_BYTES;
        memcpy(shown + used, bytes > 0 ? text : replacement, put);
        used += put;
        text += bytes > 0 ? bytes : 1;
    }
    return json != NULL ? json : json_stringn(shown, used);
}

json_t *tt_checkpoint_numbers_json(const int64_t *numbers, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(numbers[i]));
    }
    return list;
}

json_t *tt_checkpoint_shape_json(tutti_shape_t shape)
{
    return tt_checkpoint_numbers_json(shape.dims, shape.rank);
}

const char *tt_checkpoint_bytes(uint64_t bytes, char text[TT_BYTES_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, TT_BYTES_TEXT, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]; unit++) {
        value /= 1024;
    }
    snprintf(text, TT_BYTES_TEXT, "%.1f %s", value, units[unit]);
    return text;
}

const char *tt_checkpoint_part(const tutti_saved_about_t *about, char text[TT_PART_TEXT])
{
    text[0] = 0;
    if (about->elsewhere > 0) {
        snprintf(text, TT_PART_TEXT, "host %.64s of %d, %zu file%s on others",
                 about->host == NULL ? "(unknown)" : about->host, about->hosts, about->elsewhere,
                 about->elsewhere == 1 ? " is" : "s are");
    }
    return text;
}

void tt_checkpoint_damage(const tutti_saved_damage_t *damage, char text[TT_DAMAGE_TEXT])
{
    char tensor[600] = "", place[64] = "";
    if (damage->tensor != NULL) {
        snprintf(tensor, sizeof tensor, "tensor \"%s\": ", damage->tensor);
    }
    if (damage->bytes > 0) {
        snprintf(place, sizeof place, "%" PRIu64 " bytes at offset %" PRIu64 ": ", damage->bytes,
                 damage->offset);
    }
    snprintf(text, TT_DAMAGE_TEXT, "%s: %s%s%s", damage->file, tensor, place, damage->problem);
}

json_t *tt_checkpoint_host_json(const tutti_saved_about_t *about)
{
    return about->host == NULL ? json_null() : tt_checkpoint_text_json(about->host);
}

const char *tt_checkpoint_plural(size_t count)
{
    return count == 1 ? "" : "s";
}

/* ---- progress -------------------------------------------------------------------------------- */

void tt_checkpoint_progress_show(tt_checkpoint_progress_t *progress, uint64_t bytes, uint64_t all)
{
    char done[TT_BYTES_TEXT], of[TT_BYTES_TEXT];
    const int percent = all > 0 ? (int)(100 * (double)bytes / (double)all) : 0;
    if (percent == progress->percent || !isatty(STDERR_FILENO)) {
        return;
    }
    progress->percent = percent;
    fprintf(stderr, "\r%s: %3d %%, %s of %s\033[K", progress->what, percent,
            tt_checkpoint_bytes(bytes, done), tt_checkpoint_bytes(all, of));
    fflush(stderr);
}

void tt_checkpoint_progress_hide(tt_checkpoint_progress_t *progress)
{
    if (progress->percent != 0) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        progress->percent = 0;
    }
}
