/* tutti checkpoint list and show: which checkpoints there are, and what is in one. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cli/checkpoint_parts.h"

/* ---- list ------------------------------------------------------------------------------------ */

static const tutti_option_t list_table[] = {{.name = "json", .about = "print JSON"}, {0}};

/* A step, and what its files say. */
typedef struct {
    const tutti_checkpoint_step_t *step;
    tutti_saved_about_t about; /* zeros where the manifest cannot be read */
    const char *state, *problem;
    char part[TT_PART_TEXT]; /* what is elsewhere */
} line_t;

static void print_line(const line_t *line)
{
    char when[32] = "", bytes[TT_BYTES_TEXT];
    struct tm broken;
    const time_t time = (time_t)line->step->time_s;
    if (localtime_r(&time, &broken) != NULL) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &broken);
    }
    printf("%12" PRId64 "  %-19s  ", line->step->step, when);
    if (line->about.ranks > 0) {
        printf("%7zu %10s %5d  ", line->about.tensors,
               tt_checkpoint_bytes(line->about.bytes, bytes), line->about.ranks);
    } else {
        printf("%7s %10s %5s  ", "-", "-", "-");
    }
    printf("%s%s%s\n", line->state, line->problem[0] != 0 ? ": " : "", line->problem);
}

static json_t *line_json(const line_t *line)
{
    json_t *json =
        json_pack("{s:I, s:s, s:I, s:s}", "step", (json_int_t)line->step->step, "folder",
                  line->step->name, "time", (json_int_t)line->step->time_s, "state", line->state);
    if (line->about.ranks > 0) {
        json_object_set_new(json, "tensors", json_integer((json_int_t)line->about.tensors));
        json_object_set_new(json, "bytes", json_integer((json_int_t)line->about.bytes));
        json_object_set_new(json, "ranks", json_integer(line->about.ranks));
    }
    if (line->about.elsewhere > 0) {
        json_object_set_new(json, "host", tt_checkpoint_host_json(&line->about));
        json_object_set_new(json, "elsewhere", json_integer((json_int_t)line->about.elsewhere));
    }
    if (line->problem[0] != 0 && line->problem != line->part) {
        json_object_set_new(json, "problem", tt_checkpoint_text_json(line->problem));
    }
    return json;
}

/* Onto the list, or out. */
static void put_line(const char *folder, const tutti_checkpoint_step_t *step, json_t *list)
{
    char path[4096];
    tutti_saved_t *saved = NULL;
    line_t line = {.step = step, .state = "half written", .problem = ""};
    if (step->is_published) {
        snprintf(path, sizeof path, "%s/%s", folder, step->name);
        const tutti_status_t status = tutti_saved_open(path, &saved);
        if (status >= 0) {
            line.about = tutti_saved_describe(saved);
        }
        const bool is_whole = status >= 0 && tutti_saved_check(saved) >= 0;
        line.state = !is_whole ? "damaged" : line.about.elsewhere > 0 ? "part" : "complete";
        line.problem = is_whole ? tt_checkpoint_part(&line.about, line.part) : tutti_last_error();
    }
    if (list != NULL) {
        json_array_append_new(list, line_json(&line));
    } else {
        print_line(&line);
    }
    tutti_saved_close(saved);
}

int tt_checkpoint_list(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"list", "[OPTION …] FOLDER", list_table, 1, 1};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    bool is_json = false;
    tutti_buffer_t buffer;
    const int code = tt_checkpoint_parse(&form, argc, argv, &is_json, arguments);
    if (code >= 0) {
        return code;
    }
    if (tutti_checkpoint_list(arguments[0], &buffer) < 0) {
        return tt_checkpoint_fail("list");
    }
    const tutti_checkpoint_step_t *steps = buffer.data;
    const size_t count = buffer.bytes / sizeof *steps;
    json_t *list = is_json ? json_array() : NULL;
    if (!is_json && count > 0) {
        printf("%12s  %-19s  %7s %10s %5s  %s\n", "step", "when", "tensors", "size", "ranks",
               "state");
    } else if (!is_json) {
        printf("%s: no checkpoints\n", arguments[0]);
    }
    for (size_t i = 0; i < count; i++) {
        put_line(arguments[0], &steps[i], list);
    }
    tutti_buffer_release(&buffer);
    return is_json ? tt_checkpoint_print_json("list",
                                              json_pack("{s:o, s:o}", "folder",
                                                        tt_checkpoint_text_json(arguments[0]),
                                                        "steps", list),
                                              0)
                   : 0;
}

/* ---- show ------------------------------------------------------------------------------------ */

typedef struct {
    bool is_json, has_slices;
} show_flags_t;

static const tutti_option_t show_table[] = {
    {.name = "slices",
     .offset = offsetof(show_flags_t, has_slices),
     .about = "a line for each slice, too: its box, its file, and where it is there"},
    {.name = "json", .offset = offsetof(show_flags_t, is_json), .about = "print JSON"},
    {0}};

static json_t *slices_json(const tutti_saved_t *saved, size_t index)
{
    json_t *list = json_array();
    tutti_saved_part_t part;
    for (size_t i = 0; tutti_saved_part_at(saved, index, i, &part) == TUTTI_OK; i++) {
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:i, s:o, s:I, s:I}", "offset",
                                        tt_checkpoint_numbers_json(part.offset, part.shape.rank),
                                        "size", tt_checkpoint_shape_json(part.shape), "rank",
                                        part.rank, "file", tt_checkpoint_text_json(part.file), "at",
                                        (json_int_t)part.at, "bytes", (json_int_t)part.bytes));
    }
    return list;
}

static json_t *tensor_json(const tutti_saved_t *saved, size_t index,
                           const tutti_saved_tensor_t *tensor)
{
    return json_pack("{s:s, s:s, s:o, s:I, s:o}", "name", tensor->name, "dtype",
                     tutti_dtype_name(tensor->dtype), "shape",
                     tt_checkpoint_shape_json(tensor->shape), "bytes", (json_int_t)tensor->bytes,
                     "slices", slices_json(saved, index));
}

/* "[1:3, 2:5]" */
static void print_slices(const tutti_saved_t *saved, size_t index)
{
    tutti_saved_part_t part;
    for (size_t i = 0; tutti_saved_part_at(saved, index, i, &part) == TUTTI_OK; i++) {
        printf("    [");
        for (int d = 0; d < part.shape.rank; d++) {
            printf("%s%" PRId64 ":%" PRId64, d > 0 ? ", " : "", part.offset[d],
                   part.offset[d] + part.shape.dims[d]);
        }
        printf("]  ");
        tt_checkpoint_put(stdout, part.file);
        printf(", %" PRIu64 " bytes at offset %" PRIu64 "\n", part.bytes, part.at);
    }
}

/* In a column. */
static void print_name(const char *name)
{
    const int width = tt_checkpoint_put(stdout, name);
    printf("%*s  ", width < 40 ? 40 - width : 0, "");
}

static void print_tensor(const tutti_saved_t *saved, size_t index,
                         const tutti_saved_tensor_t *tensor, bool has_slices)
{
    char shape[160], bytes[TT_BYTES_TEXT];
    print_name(tensor->name);
    printf("%s%s  %s, %zu slice%s\n", tutti_dtype_name(tensor->dtype),
           tutti_shape_format(tensor->shape, shape, sizeof shape),
           tt_checkpoint_bytes(tensor->bytes, bytes), tensor->slices,
           tt_checkpoint_plural(tensor->slices));
    if (has_slices) {
        print_slices(saved, index);
    }
}

/* An object with a member for each. */
static json_t *texts_json(const tutti_saved_t *saved)
{
    json_t *all = json_object();
    tutti_named_text_t text;
    for (size_t i = 0; tutti_saved_text_at(saved, i, &text) == TUTTI_OK; i++) {
        json_object_set_new(all, text.name, json_string(text.text));
    }
    return all;
}

/* As much of each as fits on a line. */
static void print_texts(const tutti_saved_t *saved)
{
    tutti_named_text_t text;
    for (size_t i = 0; tutti_saved_text_at(saved, i, &text) == TUTTI_OK; i++) {
        char line[101];
        const size_t length = strcspn(text.text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, text.text);
        print_name(text.name);
        printf("text: ");
        tt_checkpoint_put(stdout, line);
        printf("%s\n", text.text[strlen(line)] != 0 ? " …" : "");
    }
}

/* A number is no step, though it may be meant as one. */
static int refuse_pattern(const tutti_saved_about_t *about, const char *pattern)
{
    const bool is_number = strspn(pattern, "0123456789") == strlen(pattern);
    fprintf(stderr, "tutti checkpoint show: ");
    tt_checkpoint_put(stderr, about->path);
    fprintf(stderr, ": no tensor's name matches \"");
    tt_checkpoint_put(stderr, pattern);
    fprintf(stderr, "\"%s\n",
            is_number ? "; a step is a path, as in FOLDER/step-000000000100" : "");
    return TT_EXIT_USAGE;
}

static bool is_shown(const char *pattern, const tutti_saved_tensor_t *tensor)
{
    return pattern == NULL || fnmatch(pattern, tensor->name, 0) == 0;
}

static bool has_any(const tutti_saved_t *saved, const char *pattern)
{
    tutti_saved_tensor_t tensor;
    for (size_t i = 0; tutti_saved_at(saved, i, &tensor) == TUTTI_OK; i++) {
        if (is_shown(pattern, &tensor)) {
            return true;
        }
    }
    return pattern == NULL;
}

static int show(const tutti_saved_t *saved, const char *pattern, const show_flags_t *flags)
{
    const tutti_saved_about_t about = tutti_saved_describe(saved);
    json_t *list = flags->is_json ? json_array() : NULL;
    tutti_saved_tensor_t tensor;
    char bytes[TT_BYTES_TEXT], part[TT_PART_TEXT];
    if (!has_any(saved, pattern)) {
        json_decref(list);
        return refuse_pattern(&about, pattern);
    }
    if (list == NULL) {
        printf("%s: %s, step %" PRId64 ", %zu tensor%s, %s, saved by %d rank%s\n", about.path,
               about.format, about.step, about.tensors, tt_checkpoint_plural(about.tensors),
               tt_checkpoint_bytes(about.bytes, bytes), about.ranks,
               tt_checkpoint_plural((size_t)about.ranks));
        if (about.elsewhere > 0) {
            printf("part: %s\n", tt_checkpoint_part(&about, part));
        }
    }
    for (size_t i = 0; tutti_saved_at(saved, i, &tensor) == TUTTI_OK; i++) {
        if (!is_shown(pattern, &tensor)) {
            continue;
        }
        if (list != NULL) {
            json_array_append_new(list, tensor_json(saved, i, &tensor));
        } else {
            print_tensor(saved, i, &tensor, flags->has_slices);
        }
    }
    if (list == NULL && pattern == NULL) {
        print_texts(saved);
    }
    return list == NULL
               ? 0
               : tt_checkpoint_print_json(
                     "show",
                     json_pack("{s:o, s:o, s:s, s:I, s:i, s:I, s:o}", "texts", texts_json(saved),
                               "path", tt_checkpoint_text_json(about.path), "format", about.format,
                               "step", (json_int_t)about.step, "ranks", about.ranks, "bytes",
                               (json_int_t)about.bytes, "tensors", list),
                     0);
}

int tt_checkpoint_show(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"show", "[OPTION …] CHECKPOINT [NAME-PATTERN]",
                                              show_table, 1, 2};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX] = {0};
    show_flags_t flags = {0};
    tutti_saved_t *saved;
    int code = tt_checkpoint_parse(&form, argc, argv, &flags, arguments);
    if (code >= 0) {
        return code;
    }
    if (tutti_saved_open(arguments[0], &saved) < 0) {
        return tt_checkpoint_fail("show");
    }
    code = show(saved, arguments[1], &flags);
    tutti_saved_close(saved);
    return code;
}
