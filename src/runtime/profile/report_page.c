/* The page of a report: what is in a folder, and what it tells. */
#include <tutti/diagnose.h>
#include <tutti/profile.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "runtime/profile/report_parts.h"

enum { PATH_BYTES = 4096 };

static const char what[] = "report";

/* Nothing is fetched and nothing runs, whatever texts say. */
static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" "
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
    "body{font:15px/1.5 sans-serif;max-width:1200px;margin:2em auto;padding:0 1em;color:#222;"
    "background:#fff}\n"
    "h1,h2{font-weight:600}svg{width:100%}svg text{font:12px sans-serif;fill:#555}\n"
    ".curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}\n"
    "figure{margin:0}figcaption{font-weight:600}pre{overflow-x:auto;font-size:12px;"
    "line-height:1.35}\n"
    ".key{width:.8em;height:.8em}.frame{fill:#f7f7f7;stroke:#ddd}\n"
    ".curve{fill:none;stroke:#06c;stroke-width:1.5}\n"
    ".memory{fill:none;stroke-width:1.5}.m0{stroke:#06c}.m1{stroke:#c50}.m2{stroke:#284}"
    ".m3{stroke:#828}\n"
    ".c1{fill:#4a90d9}.c2{fill:#e0913a}.c3{fill:#3a9d5d}.c4{fill:#d33}.c5{fill:#999}\n"
    "table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}\n"
    "</style>\n";

/* ---- what is in the folder ------------------------------------------------------------------- */

typedef struct {
    char **paths; /* of profiles */
    int count;
    tt_told_numbers_t numbers;
    size_t number_files, odd_lines;
} found_t;

static bool has_ending(const char *name, const char *ending)
{
    const size_t length = strlen(name), bytes = strlen(ending);
    return length >= bytes && strcmp(name + length - bytes, ending) == 0;
}

static bool is_profile(const char *path)
{
    static const char first[] = "tutti profile ";
    char text[sizeof first];
    return tt_file_text(path, text, sizeof text) >= sizeof first - 1 &&
           memcmp(text, first, sizeof first - 1) == 0;
}

static tutti_status_t add_file(found_t *found, const char *path)
{
    if (has_ending(path, ".jsonl")) {
        found->number_files++;
        return tt_numbers_read(path, &found->numbers, &found->odd_lines);
    }
    if (!is_profile(path)) {
        return TUTTI_OK;
    }
    char **paths = tt_realloc(found->paths, ((size_t)found->count + 1) * sizeof *paths, what);
    TT_TRY_ALLOC(paths);
    found->paths = paths;
    paths[found->count] = tt_strdup(path, what);
    TT_TRY_ALLOC(paths[found->count]);
    found->count++;
    return TUTTI_OK;
}

/* Files of metrics in the order of their names; of profiles each says its rank. */
typedef struct {
    char (*names)[NAME_MAX + 1];
    size_t count, capacity;
} names_t;

static tutti_status_t add_name(names_t *names, const char *name)
{
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity == 0 ? 16 : 2 * names->capacity;
        void *grown = tt_realloc(names->names, capacity * sizeof *names->names, what);
        TT_TRY_ALLOC(grown);
        names->names = grown;
        names->capacity = capacity;
    }
    snprintf(names->names[names->count++], sizeof *names->names, "%s", name);
    return TUTTI_OK;
}

/* Who opened a pipe would wait. */
static bool is_regular(int folder, const char *name)
{
    struct stat about;
    return fstatat(folder, name, &about, 0) == 0 && S_ISREG(about.st_mode);
}

static tutti_status_t read_names(const char *folder, names_t *out)
{
    DIR *stream = opendir(folder);
    if (stream == NULL) {
        return TT_FAIL(TUTTI_ERR_IO, "report %s: %s", folder, strerror(errno));
    }
    tutti_status_t status = TUTTI_OK;
    for (const struct dirent *entry; status >= 0 && (entry = readdir(stream)) != NULL;) {
        const bool is_wanted = entry->d_name[0] != '.' && is_regular(dirfd(stream), entry->d_name);
        status = is_wanted ? add_name(out, entry->d_name) : TUTTI_OK;
    }
    closedir(stream);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static tutti_status_t look_into(const char *folder, found_t *found)
{
    names_t names = {0};
    tutti_status_t status = read_names(folder, &names);
    if (names.count > 0) {
        qsort(names.names, names.count, sizeof *names.names, compare_names);
    }
    for (size_t i = 0; i < names.count && status >= 0; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, names.names[i]);
        status = add_file(found, path);
    }
    tt_free(names.names);
    return status < 0 || found->count > 0 || found->number_files > 0
               ? status
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "report %s: neither numbers (--metrics writes metrics.jsonl) nor profiles "
                         "(tutti profile --output) are there",
                         folder);
}

static void free_found(found_t *found)
{
    for (int i = 0; i < found->count; i++) {
        tt_free(found->paths[i]);
    }
    tt_free(found->paths);
    tt_numbers_free(&found->numbers);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void print_settings(tt_byte_row_t *page, const found_t *found)
{
    tt_row_print(page, "<table>\n<tr><td>report by</td><td>tutti %s</td></tr>\n", tutti_version());
    for (size_t i = 0; i < found->numbers.note_count; i++) {
        tt_row_print(page, "<tr><td>");
        tt_row_html(page, found->numbers.notes[i].name);
        tt_row_print(page, "</td><td>");
        tt_row_html(page, found->numbers.notes[i].text);
        tt_row_print(page, "</td></tr>\n");
    }
    tt_row_print(page, "</table>\n");
    if (found->odd_lines > 0) {
        tt_row_print(page, "<p><b>%zu lines of numbers could not be read.</b></p>\n",
                     found->odd_lines);
    }
}

static void print_curves(tt_byte_row_t *page, const tt_told_numbers_t *numbers)
{
    if (numbers->curve_count == 0) {
        return;
    }
    tt_row_print(page, "<h2>Numbers over steps</h2>\n<div class=\"curves\">\n");
    for (size_t i = 0; i < numbers->curve_count; i++) {
        tt_page_curve(page, &numbers->curves[i]);
    }
    tt_row_print(page, "</div>\n");
}

static tutti_status_t print_table(tt_byte_row_t *page, const tutti_profile_t *profile)
{
    tutti_buffer_t text;
    TT_TRY(tutti_profile_table(profile, &text));
    tt_row_print(page, "<h2>Operations, modules, calls, ranks, memory</h2>\n<pre>");
    tt_row_html(page, text.data);
    tt_row_print(page, "</pre>\n");
    tutti_buffer_release(&text);
    return TUTTI_OK;
}

static tutti_status_t print_profile(tt_byte_row_t *page, const found_t *found)
{
    tutti_profile_t *profile;
    if (found->count == 0) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_profile_load((const char *const *)found->paths, found->count, &profile));
    tutti_status_t status = tt_page_timeline(page, profile);
    if (status >= 0) {
        tt_page_memory(page, profile);
        status = print_table(page, profile);
    }
    tutti_profile_release(profile);
    return status;
}

static tutti_status_t print_page(tt_byte_row_t *page, const char *folder, const found_t *found)
{
    tt_row_add(page, head, sizeof head - 1);
    tt_row_print(page, "<title>");
    tt_row_html(page, folder);
    tt_row_print(page, "</title></head><body>\n<h1>");
    tt_row_html(page, folder);
    tt_row_print(page, "</h1>\n");
    print_settings(page, found);
    print_curves(page, &found->numbers);
    TT_TRY(print_profile(page, found));
    tt_row_print(page, "</body></html>\n");
    return TUTTI_OK;
}

tutti_status_t tutti_report(const char *folder, tutti_buffer_t *page)
{
    TT_WANT("report", folder);
    TT_WANT("report", page);
    tt_byte_row_t row = {0};
    found_t found = {0};
    tutti_status_t status = look_into(folder, &found);
    if (status >= 0) {
        status = print_page(&row, folder, &found);
    }
    free_found(&found);
    return tt_row_hand_over(&row, status, page);
}
