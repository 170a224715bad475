/* Lines of text, of which equal ones are found by sorting them. */
#include "runtime/checkpoint/problems.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"

enum { LINE_BYTES_MAX = 1024, WHAT_BYTES_MAX = 300, REST_BYTES = 32, COUNT_BYTES = 64 };

void tt_problems_release(tt_problems_t *problems)
{
    tt_free(problems->text);
    *problems = (tt_problems_t){0};
}

void tt_problems_take(tt_problems_t *problems, const char *text, size_t bytes)
{
    if (bytes >= problems->room - problems->bytes) {
        const size_t room = 2 * (problems->bytes + bytes) + LINE_BYTES_MAX;
        char *grown = tt_realloc(problems->text, room, "checkpoint");
        if (grown == NULL) {
            problems->status = TUTTI_ERR_NOMEM;
            return;
        }
        problems->text = grown;
        problems->room = room;
    }
    memcpy(problems->text + problems->bytes, text, bytes);
    problems->bytes += bytes;
    problems->text[problems->bytes] = 0;
}

void tt_problems_add(tt_problems_t *problems, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    tt_format_list(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; (at = strchr(at, '\n')) != NULL;) {
        *at = ' ';
    }
    tt_problems_take(problems, line, strlen(line));
    tt_problems_take(problems, "\n", 1);
}

/* ---- one failure ----------------------------------------------------------------------------- */

typedef struct {
    const char *text;
    size_t number;
} line_t;

static int by_text(const void *a, const void *b)
{
    const line_t *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

static int by_number(const void *a, const void *b)
{
    const line_t *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Each line once, in the order in which they came first. Returns how many. */
static size_t list_lines(char *text, line_t *lines)
{
    size_t count = 0, kept = 0;
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = 0;
        lines[count] = (line_t){text, count};
        count++;
    }
    qsort(lines, count, sizeof *lines, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(lines[i].text, lines[kept - 1].text) != 0) {
            lines[kept++] = lines[i];
        }
    }
    qsort(lines, kept, sizeof *lines, by_number);
    return kept;
}

/* "3 tensors and texts do" */
static char *print_count(const line_t *lines, size_t count, char text[COUNT_BYTES])
{
    bool has_text = false, has_tensor = false;
    for (size_t i = 0; i < count; i++) {
        const bool is_text = strncmp(lines[i].text, "text ", 5) == 0;
        has_text = has_text || is_text;
        has_tensor = has_tensor || !is_text;
    }
    const char *one = has_text ? "text" : "tensor";
    const char *many = !has_text ? "tensors" : has_tensor ? "tensors and texts" : "texts";
    snprintf(text, COUNT_BYTES, "%zu %s %s", count, count == 1 ? one : many,
             count == 1 ? "does" : "do");
    return text;
}

static tutti_status_t fail_lines(const line_t *lines, size_t count, const char *what)
{
    char text[TT_ERROR_TEXT_BYTES - WHAT_BYTES_MAX - COUNT_BYTES - REST_BYTES] = "";
    char number[COUNT_BYTES];
    size_t used = 0, shown = 0;
    for (; shown < count; shown++) {
        const size_t bytes = strlen(lines[shown].text) + 2;
        if (used + bytes + REST_BYTES > sizeof text) {
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "; and %zu more", count - shown);
            break;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "; %s", lines[shown].text);
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "%.*s: %s not fit%s", WHAT_BYTES_MAX, what,
                   print_count(lines, count, number), text);
}

tutti_status_t tt_problems_fail(tt_problems_t *problems, const char *what)
{
    if (problems->status < 0 || problems->bytes == 0) {
        return problems->status;
    }
    size_t count = 0;
    for (size_t i = 0; i < problems->bytes; i++) {
        count += problems->text[i] == '\n';
    }
    line_t *lines = tt_alloc_array(count + 1, sizeof *lines, "checkpoint");
    TT_TRY_ALLOC(lines);
    const tutti_status_t status = fail_lines(lines, list_lines(problems->text, lines), what);
    tt_free(lines);
    return status;
}
