/* tutti checkpoint prune: the newest whole checkpoints stay, and those that are named; what is
 * older goes. First it is decided of each step what becomes of it, which reads those that are to
 * stay as the newest; then steps are removed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/checkpoint_parts.h"

typedef struct {
    int64_t keep;
    const char *steps;
    bool is_fast, is_dry, is_json;
} flags_t;

/* What becomes of a folder's steps, the newest first. */
typedef struct {
    const char *folder;
    const flags_t *flags;
    json_t *removed, *kept;
    json_t *uncounted; /* of those that are kept: each with its problem */
    tt_checkpoint_progress_t progress;
    char problem[TT_DAMAGE_TEXT]; /* of the step that is looked at; "": none */
} prune_t;

static const tutti_option_t table[] = {
    {.name = "keep",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(flags_t, keep),
     .argument = "K",
     .min = 1,
     .max = 1e9,
     .about = "so many of the newest stay, of those that are whole: they are read first"},
    {.name = "step",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(flags_t, steps),
     .argument = "N[,N…]",
     .about = "these stay, too"},
    {.name = "fast",
     .offset = offsetof(flags_t, is_fast),
     .about = "read manifests alone, and compare sizes: damage inside a file is not seen"},
    {.name = "dry-run",
     .offset = offsetof(flags_t, is_dry),
     .about = "say what would be removed, and remove nothing"},
    {.name = "json", .offset = offsetof(flags_t, is_json), .about = "print JSON"},
    {0}};

/* The numbers are separated by commas, and there is nothing else. */
static bool is_list(const char *text)
{
    for (;;) {
        const size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 12) {
            return false;
        }
        text += digits;
        if (*text == 0) {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
}

static bool is_named(const char *list, int64_t step)
{
    for (char *end; list != NULL && *list != 0; list = *end == ',' ? end + 1 : end) {
        if (strtoll(list, &end, 10) == step) {
            return true;
        }
    }
    return false;
}

static bool is_there(const char *list, const tutti_checkpoint_step_t *steps, size_t count,
                     int64_t *missing)
{
    for (char *end; list != NULL && *list != 0; list = *end == ',' ? end + 1 : end) {
        bool is_found = false;
        *missing = strtoll(list, &end, 10);
        for (size_t i = 0; i < count; i++) {
            is_found = is_found || (steps[i].is_published && steps[i].step == *missing);
        }
        if (!is_found) {
            return false;
        }
    }
    return true;
}

/* ---- which count ----------------------------------------------------------------------------- */

static void show_reading(void *user, uint64_t bytes, uint64_t all)
{
    prune_t *p = user;
    tt_checkpoint_progress_show(&p->progress, bytes, all);
}

/* The first place says enough. */
static void keep_first(void *user, const tutti_saved_damage_t *damage)
{
    prune_t *p = user;
    if (p->problem[0] == 0) {
        tt_checkpoint_damage(damage, p->problem);
    }
}

/* Every block of it is as it was written. */
static tutti_status_t read_all(prune_t *p, const tutti_saved_t *saved)
{
    const tutti_saved_watch_t watch = {.user = p, .progress = show_reading, .damage = keep_first};
    size_t damage;
    const tutti_status_t status = tutti_saved_verify(saved, &watch, &damage);
    tt_checkpoint_progress_hide(&p->progress);
    return status;
}

/* Whether a step counts; else the problem says why. Of one host's part the newest does not: a crash
 * may have left it on this host alone. */
static bool does_count(prune_t *p, const tutti_checkpoint_step_t *step, bool is_newest)
{
    char path[4096];
    tutti_saved_t *saved = NULL;
    p->problem[0] = 0;
    snprintf(path, sizeof path, "%s/%s", p->folder, step->name);
    tutti_status_t status = tutti_saved_open(path, &saved);
    status = status < 0 ? status : tutti_saved_check(saved);
    const tutti_saved_about_t about =
        status < 0 ? (tutti_saved_about_t){0} : tutti_saved_describe(saved);
    if (is_newest && about.elsewhere > 0) {
        char part[TT_PART_TEXT];
        snprintf(p->problem, sizeof p->problem, "a part, perhaps of a save that was killed: %s",
                 tt_checkpoint_part(&about, part));
    } else if (status >= 0 && !p->flags->is_fast) {
        status = read_all(p, saved);
    }
    if (status < 0) {
        snprintf(p->problem, sizeof p->problem, "%s", tutti_last_error());
    }
    tutti_saved_close(saved);
    return p->problem[0] == 0;
}

/* Which steps stay: from the newest on until enough count. Nothing is removed here. */
static void decide(prune_t *p, const tutti_buffer_t *found)
{
    const tutti_checkpoint_step_t *steps = found->data;
    int64_t counted = 0;
    for (size_t i = found->bytes / sizeof *steps; i-- > 0;) {
        if (!steps[i].is_published) {
            continue;
        }
        const json_int_t step = (json_int_t)steps[i].step;
        const bool is_searching = counted < p->flags->keep;
        if (!is_searching && !is_named(p->flags->steps, steps[i].step)) {
            json_array_append_new(p->removed, json_integer(step));
            continue;
        }
        if (is_searching && does_count(p, &steps[i], json_array_size(p->kept) == 0)) {
            counted++;
        } else if (is_searching) {
            json_array_append_new(p->uncounted, json_pack("{s:I, s:o}", "step", step, "problem",
                                                          tt_checkpoint_text_json(p->problem)));
        }
        json_array_append_new(p->kept, json_integer(step));
    }
}

/* ---- what is done ---------------------------------------------------------------------------- */

static tutti_status_t remove_steps(const prune_t *p)
{
    size_t i;
    json_t *step;
    json_array_foreach(p->removed, i, step)
    {
        TUTTI_CHECK(tutti_checkpoint_remove(p->folder, json_integer_value(step)));
    }
    return TUTTI_OK;
}

static void print_text(const prune_t *p)
{
    size_t i;
    json_t *step;
    json_array_foreach(p->uncounted, i, step)
    {
        printf("step %" PRId64 " does not count: ",
               (int64_t)json_integer_value(json_object_get(step, "step")));
        tt_checkpoint_put(stdout, json_string_value(json_object_get(step, "problem")));
        printf("\n");
    }
    json_array_foreach(p->removed, i, step)
    {
        printf("step %" PRId64 " %s\n", (int64_t)json_integer_value(step),
               p->flags->is_dry ? "would be removed" : "removed");
    }
    printf("%zu checkpoint%s stay%s\n", json_array_size(p->kept),
           tt_checkpoint_plural(json_array_size(p->kept)),
           json_array_size(p->kept) == 1 ? "s" : "");
}

static int prune(prune_t *p, const tutti_buffer_t *found)
{
    decide(p, found);
    if (!p->flags->is_dry && remove_steps(p) < 0) {
        return tt_checkpoint_fail("prune");
    }
    if (!p->flags->is_json) {
        print_text(p);
        return 0;
    }
    return tt_checkpoint_print_json("prune",
                                    json_pack("{s:b, s:O, s:O, s:O}", "dry_run", p->flags->is_dry,
                                              "removed", p->removed, "kept", p->kept, "uncounted",
                                              p->uncounted),
                                    0);
}

static int prune_folder(const char *folder, const flags_t *flags)
{
    tutti_buffer_t found;
    int64_t missing;
    if (tutti_checkpoint_list(folder, &found) < 0) {
        return tt_checkpoint_fail("prune");
    }
    prune_t p = {.folder = folder,
                 .flags = flags,
                 .removed = json_array(),
                 .kept = json_array(),
                 .uncounted = json_array(),
                 .progress.what = "prune"};
    int code = TT_EXIT_USAGE;
    if (is_there(flags->steps, found.data, found.bytes / sizeof(tutti_checkpoint_step_t),
                 &missing)) {
        code = prune(&p, &found);
    } else {
        fprintf(stderr,
                "tutti checkpoint prune: there is no checkpoint of step %" PRId64
                " in %s: nothing was removed\n",
                missing, folder);
    }
    json_decref(p.removed);
    json_decref(p.kept);
    json_decref(p.uncounted);
    tutti_buffer_release(&found);
    return code;
}

int tt_checkpoint_prune(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"prune", "[OPTION …] FOLDER", table, 1, 1};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    flags_t flags = {.keep = 3};
    const int code = tt_checkpoint_parse(&form, argc, argv, &flags, arguments);
    if (code >= 0) {
        return code;
    }
    if (flags.steps != NULL && !is_list(flags.steps)) {
        return tt_cli_refuse("checkpoint prune", "step", flags.steps,
                             "numbers of steps, as in 1000,2000");
    }
    return prune_folder(arguments[0], &flags);
}
