/* tutti checkpoint verify and diff: whether a checkpoint is as it was written, and the same as
 * another one. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/checkpoint_parts.h"

static const tutti_option_t table[] = {{.name = "json", .about = "print JSON"}, {0}};

/* ---- verify ---------------------------------------------------------------------------------- */

typedef struct {
    json_t *checkpoints, *damage; /* all of them, and of the one that is read; NULL: text */
    tt_checkpoint_progress_t progress;
    bool is_damaged; /* one of them */
} verify_t;

static void show_verify(void *user, uint64_t bytes, uint64_t all)
{
    verify_t *v = user;
    tt_checkpoint_progress_show(&v->progress, bytes, all);
}

static void tell_damage(void *user, const tutti_saved_damage_t *damage)
{
    verify_t *v = user;
    tt_checkpoint_progress_hide(&v->progress);
    if (v->damage != NULL) {
        json_array_append_new(v->damage,
                              json_pack("{s:o, s:s?, s:I, s:I, s:o}", "file",
                                        tt_checkpoint_text_json(damage->file), "tensor",
                                        damage->tensor, "offset", (json_int_t)damage->offset,
                                        "bytes", (json_int_t)damage->bytes, "problem",
                                        tt_checkpoint_text_json(damage->problem)));
        return;
    }
    char text[TT_DAMAGE_TEXT];
    tt_checkpoint_damage(damage, text);
    tt_checkpoint_put(stdout, text);
    printf("\n");
}

static void print_verdict(const tutti_saved_t *saved, size_t damage)
{
    const tutti_saved_about_t about = tutti_saved_describe(saved);
    char bytes[TT_BYTES_TEXT], part[TT_PART_TEXT];
    printf("%s: ", about.path);
    if (damage == 0 && strcmp(about.format, "checkpoint") != 0) {
        printf("readable: %zu tensor%s, %s; %s has no digests\n", about.tensors,
               tt_checkpoint_plural(about.tensors), tt_checkpoint_bytes(about.bytes, bytes),
               about.format);
    } else if (damage > 0) {
        printf("damaged in %zu place%s\n", damage, tt_checkpoint_plural(damage));
    } else if (about.elsewhere > 0) {
        printf("what is here is whole: %s\n", tt_checkpoint_part(&about, part));
    } else {
        printf("whole: %zu tensor%s, %s\n", about.tensors, tt_checkpoint_plural(about.tensors),
               tt_checkpoint_bytes(about.bytes, bytes));
    }
}

/* What has a step's name is a folder with a checkpoint in it, unless it was removed meanwhile. */
static bool is_damage(tutti_status_t status, const char *path, bool is_step)
{
    struct stat about;
    const bool is_lost = status == TUTTI_ERR_IO || status == TUTTI_ERR_NOT_FOUND;
    const bool is_there = is_step && stat(path, &about) == 0;
    return status == TUTTI_ERR_FORMAT ||
           (is_there && status < 0 && (is_lost || !S_ISDIR(about.st_mode)));
}

/* Also one whose manifest is damaged. Errors: those of what is no damage. */
static tutti_status_t verify_one(verify_t *v, const char *path, bool is_step)
{
    tutti_saved_t *saved = NULL;
    size_t damage = 1;
    v->damage = v->checkpoints == NULL ? NULL : json_array();
    tutti_status_t status = tutti_saved_open(path, &saved);
    const bool is_lost = is_damage(status, path, is_step);
    if (is_lost) {
        tell_damage(v, &(tutti_saved_damage_t){.file = path, .problem = tutti_last_error()});
    } else if (status >= 0) {
        const tutti_saved_watch_t watch = {
            .user = v, .progress = show_verify, .damage = tell_damage};
        status = tutti_saved_verify(saved, &watch, &damage);
    }
    tt_checkpoint_progress_hide(&v->progress);
    v->is_damaged = v->is_damaged || damage > 0;
    if (v->checkpoints != NULL) {
        const size_t elsewhere = saved == NULL ? 0 : tutti_saved_describe(saved).elsewhere;
        json_array_append_new(v->checkpoints,
                              json_pack("{s:o, s:b, s:o, s:I}", "path",
                                        tt_checkpoint_text_json(path), "whole", damage == 0,
                                        "damage", v->damage, "elsewhere", (json_int_t)elsewhere));
    } else if (saved != NULL && status >= 0) {
        print_verdict(saved, damage);
    }
    tutti_saved_close(saved);
    return is_lost ? TUTTI_OK : status;
}

/* All steps of a training, or the one that the path is of. */
static tutti_status_t verify_all(verify_t *v, const char *path)
{
    tutti_buffer_t buffer;
    if (tutti_checkpoint_list(path, &buffer) < 0) {
        return verify_one(v, path, false); /* a file */
    }
    const tutti_checkpoint_step_t *steps = buffer.data;
    tutti_status_t status = TUTTI_OK;
    size_t found = 0;
    for (size_t i = 0; i < buffer.bytes / sizeof *steps && status >= 0; i++) {
        if (steps[i].is_published) {
            char step[4096];
            snprintf(step, sizeof step, "%s/%s", path, steps[i].name);
            status = verify_one(v, step, true);
            found++;
        }
    }
    tutti_buffer_release(&buffer);
    return found == 0 ? verify_one(v, path, false) : status;
}

int tt_checkpoint_verify(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"verify", "[OPTION …] CHECKPOINT", table, 1, 1};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    bool is_json = false;
    const int code = tt_checkpoint_parse(&form, argc, argv, &is_json, arguments);
    if (code >= 0) {
        return code;
    }
    verify_t v = {.checkpoints = is_json ? json_array() : NULL, .progress.what = "verify"};
    if (verify_all(&v, arguments[0]) < 0) {
        json_decref(v.checkpoints);
        return tt_checkpoint_fail("verify");
    }
    return is_json ? tt_checkpoint_print_json("verify",
                                              json_pack("{s:b, s:o}", "whole", !v.is_damaged,
                                                        "checkpoints", v.checkpoints),
                                              v.is_damaged)
                   : v.is_damaged;
}

/* ---- diff ------------------------------------------------------------------------------------ */

enum { EXCERPT_BEFORE = 30, EXCERPT_SHOWN = 60, EXCERPT_BYTES = 80 };

typedef struct {
    json_t *list, *texts; /* NULL: text */
    tt_checkpoint_progress_t progress;
    size_t tensors, text_count; /* that differ */
    uint64_t elements;
    const char *paths[2];
} diff_t;

static void show_diff(void *user, uint64_t bytes, uint64_t all)
{
    diff_t *diff = user;
    tt_checkpoint_progress_show(&diff->progress, bytes, all);
}

static json_t *type_json(const tutti_saved_tensor_t *tensor)
{
    return tensor == NULL ? json_null()
                          : json_pack("{s:s, s:o}", "dtype", tutti_dtype_name(tensor->dtype),
                                      "shape", tt_checkpoint_shape_json(tensor->shape));
}

static json_t *difference_json(const tutti_saved_difference_t *difference, const char *name)
{
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:I}", "name", name, "a", type_json(difference->a), "b",
                  type_json(difference->b), "elements", (json_int_t)difference->count);
    if (difference->count > 0) {
        json_object_set_new(
            json, "first",
            json_pack("{s:o, s:s, s:s}", "index",
                      tt_checkpoint_numbers_json(difference->first, difference->a->shape.rank), "a",
                      difference->first_a, "b", difference->first_b));
    }
    return json;
}

static void print_values(const tutti_saved_difference_t *difference)
{
    const tutti_shape_t shape = difference->a->shape;
    printf("%" PRIu64 " of %" PRId64 " elements differ, the first at [", difference->count,
           tutti_shape_numel(shape));
    for (int d = 0; d < shape.rank; d++) {
        printf("%s%" PRId64, d > 0 ? ", " : "", difference->first[d]);
    }
    printf("]: %s and %s\n", difference->first_a, difference->first_b);
}

static void tell_difference(void *user, const tutti_saved_difference_t *difference)
{
    diff_t *diff = user;
    const tutti_saved_tensor_t *a = difference->a, *b = difference->b;
    const char *name = a != NULL ? a->name : b->name;
    char shape_a[160], shape_b[160];
    tt_checkpoint_progress_hide(&diff->progress);
    diff->tensors++;
    diff->elements += difference->count;
    if (diff->list != NULL) {
        json_array_append_new(diff->list, difference_json(difference, name));
        return;
    }
    printf("\"");
    tt_checkpoint_put(stdout, name);
    printf("\": ");
    if (a == NULL || b == NULL) {
        printf("only in %s\n", diff->paths[a == NULL]);
    } else if (difference->count > 0) {
        print_values(difference);
    } else {
        printf("%s%s and %s%s\n", tutti_dtype_name(a->dtype),
               tutti_shape_format(a->shape, shape_a, sizeof shape_a), tutti_dtype_name(b->dtype),
               tutti_shape_format(b->shape, shape_b, sizeof shape_b));
    }
}

/* A line of what is around the first byte that differs, from the begin of a character. */
static const char *make_excerpt(const char *text, size_t first, char excerpt[EXCERPT_BYTES])
{
    size_t begin = first < EXCERPT_BEFORE ? 0 : first - EXCERPT_BEFORE;
    while (begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80) {
        begin--;
    }
    size_t end = begin + strnlen(text + begin, EXCERPT_SHOWN);
    while (end > begin && ((unsigned char)text[end] & 0xc0) == 0x80) {
        end--;
    }
    snprintf(excerpt, EXCERPT_BYTES, "%s%.*s%s", begin > 0 ? "…" : "", (int)(end - begin),
             text + begin, text[end] != 0 ? "…" : "");
    for (char *p = excerpt; *p != 0; p++) {
        *p = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    return excerpt;
}

static void tell_text(void *user, const tutti_saved_text_difference_t *difference)
{
    diff_t *diff = user;
    const char *a = difference->a, *b = difference->b;
    char one[EXCERPT_BYTES], other[EXCERPT_BYTES];
    tt_checkpoint_progress_hide(&diff->progress);
    diff->text_count++;
    if (diff->texts != NULL) {
        json_array_append_new(diff->texts,
                              json_pack("{s:s, s:s?, s:s?, s:I}", "name", difference->name, "a", a,
                                        "b", b, "first", (json_int_t)difference->first));
        return;
    }
    printf("text \"");
    tt_checkpoint_put(stdout, difference->name);
    if (a == NULL || b == NULL) {
        printf("\": only in %s\n", diff->paths[a == NULL]);
    } else {
        printf("\": from byte %zu on: ", difference->first);
        tt_checkpoint_put(stdout, make_excerpt(a, difference->first, one));
        printf(" and ");
        tt_checkpoint_put(stdout, make_excerpt(b, difference->first, other));
        printf("\n");
    }
}

static int print_result(diff_t *diff, tutti_saved_t *const saved[2])
{
    const size_t tensors = diff->tensors;
    const bool is_same = tensors == 0 && diff->text_count == 0;
    const tutti_saved_about_t about = tutti_saved_describe(saved[0]);
    char bytes[TT_BYTES_TEXT];
    if (diff->list != NULL) {
        json_t *json = json_pack(
            "{s:o, s:o, s:b, s:I, s:I, s:o, s:o}", "a", tt_checkpoint_text_json(about.path), "b",
            tt_checkpoint_text_json(tutti_saved_describe(saved[1]).path), "same", is_same,
            "tensors", (json_int_t)tensors, "elements", (json_int_t)diff->elements, "differences",
            diff->list, "texts", diff->texts);
        return tt_checkpoint_print_json("diff", json, !is_same);
    }
    if (is_same) {
        printf("the same: %zu tensor%s, %s\n", about.tensors, tt_checkpoint_plural(about.tensors),
               tt_checkpoint_bytes(about.bytes, bytes));
    } else {
        printf("%zu tensor%s%s %" PRIu64 " element%s", tensors, tt_checkpoint_plural(tensors),
               diff->text_count > 0 ? "," : " and", diff->elements,
               tt_checkpoint_plural((size_t)diff->elements));
        if (diff->text_count > 0) {
            printf(" and %zu text%s", diff->text_count, tt_checkpoint_plural(diff->text_count));
        }
        printf(" differ\n");
    }
    return !is_same;
}

static int diff_saved(tutti_saved_t *const saved[2], bool is_json)
{
    size_t count;
    diff_t diff = {
        .list = is_json ? json_array() : NULL,
        .texts = is_json ? json_array() : NULL,
        .progress.what = "diff",
        .paths = {tutti_saved_describe(saved[0]).path, tutti_saved_describe(saved[1]).path}};
    const tutti_saved_watch_t watch = {
        .user = &diff, .progress = show_diff, .difference = tell_difference, .text = tell_text};
    const tutti_status_t status = tutti_saved_diff(saved[0], saved[1], &watch, &count);
    tt_checkpoint_progress_hide(&diff.progress);
    if (status < 0) {
        json_decref(diff.list);
        json_decref(diff.texts);
        return tt_checkpoint_fail("diff");
    }
    return print_result(&diff, saved);
}

int tt_checkpoint_diff(int argc, char **argv)
{
    static const tt_checkpoint_form_t form = {"diff", "[OPTION …] CHECKPOINT CHECKPOINT", table, 2,
                                              2};
    const char *arguments[TT_CHECKPOINT_ARGUMENTS_MAX];
    tutti_saved_t *saved[2] = {NULL, NULL};
    bool is_json = false;
    int code = tt_checkpoint_parse(&form, argc, argv, &is_json, arguments);
    if (code >= 0) {
        return code;
    }
    code = tutti_saved_open(arguments[0], &saved[0]) < 0 ||
                   tutti_saved_open(arguments[1], &saved[1]) < 0
               ? tt_checkpoint_fail("diff")
               : diff_saved(saved, is_json);
    tutti_saved_close(saved[0]);
    tutti_saved_close(saved[1]);
    return code;
}
