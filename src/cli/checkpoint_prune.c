/* tutti checkpoint prune: the newest complete checkpoints stay, and those that are named; what is
 * older goes. One of which a file is missing or cut is not counted; digests are not looked at. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/checkpoint_parts.h"

typedef struct {
    int64_t keep;
    const char *steps;
    bool is_dry, is_json;
} flags_t;

static const tutti_option_t table[] = {
    {.name = "keep",
     .kind = TUTTI_OPTION_INT,
     .offset = offsetof(flags_t, keep),
     .argument = "K",
     .min = 1,
     .max = 1e9,
     .about = "so many of the newest complete ones stay"},
    {.name = "step",
     .kind = TUTTI_OPTION_TEXT,
     .offset = offsetof(flags_t, steps),
     .argument = "N[,N…]",
     .about = "these stay, too"},
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

/* Of one host's part the newest is not: a crash may have left it on this host alone. */
static bool is_complete(const char *folder, const tutti_checkpoint_step_t *step, bool is_newest)
{
    char path[4096];
    tutti_saved_t *saved = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, step->name);
    const bool is_whole = tutti_saved_open(path, &saved) >= 0 && tutti_saved_check(saved) >= 0 &&
                          (!is_newest || tutti_saved_describe(saved).elsewhere == 0);
    tutti_saved_close(saved);
    return is_whole;
}

/* From the newest on. What was removed, or kept, is in the lists. */
static tutti_status_t prune(const char *folder, const flags_t *flags, const tutti_buffer_t *found,
                            json_t *removed, json_t *kept)
{
    const tutti_checkpoint_step_t *steps = found->data;
    int64_t complete = 0;
    for (size_t i = found->bytes / sizeof *steps; i-- > 0;) {
        if (!steps[i].is_published) {
            continue;
        }
        if (complete < flags->keep || is_named(flags->steps, steps[i].step)) {
            complete += complete < flags->keep &&
                        is_complete(folder, &steps[i], json_array_size(kept) == 0);
            json_array_append_new(kept, json_integer((json_int_t)steps[i].step));
            continue;
        }
        if (!flags->is_dry) {
            TUTTI_CHECK(tutti_checkpoint_remove(folder, steps[i].step));
        }
        json_array_append_new(removed, json_integer((json_int_t)steps[i].step));
    }
    return TUTTI_OK;
}

static int print_result(const flags_t *flags, json_t *removed, json_t *kept)
{
    size_t i;
    json_t *step;
    if (flags->is_json) {
        return tt_checkpoint_print_json("prune",
                                        json_pack("{s:b, s:O, s:O}", "dry_run", flags->is_dry,
                                                  "removed", removed, "kept", kept),
                                        0);
    }
    json_array_foreach(removed, i, step)
    {
        printf("step %" PRId64 " %s\n", (int64_t)json_integer_value(step),
               flags->is_dry ? "would be removed" : "removed");
    }
    printf("%zu checkpoint%s stay%s\n", json_array_size(kept),
           tt_checkpoint_plural(json_array_size(kept)), json_array_size(kept) == 1 ? "s" : "");
    return 0;
}

static int prune_folder(const char *folder, const flags_t *flags)
{
    tutti_buffer_t found;
    int64_t missing;
    if (tutti_checkpoint_list(folder, &found) < 0) {
        return tt_checkpoint_fail("prune");
    }
    json_t *removed = json_array(), *kept = json_array();
    int code;
    if (!is_there(flags->steps, found.data, found.bytes / sizeof(tutti_checkpoint_step_t),
                  &missing)) {
        fprintf(stderr,
                "tutti checkpoint prune: there is no checkpoint of step %" PRId64
                " in %s: nothing was removed\n",
                missing, folder);
        code = TT_EXIT_USAGE;
    } else {
        code = prune(folder, flags, &found, removed, kept) < 0 ? tt_checkpoint_fail("prune")
                                                               : print_result(flags, removed, kept);
    }
    json_decref(removed);
    json_decref(kept);
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
