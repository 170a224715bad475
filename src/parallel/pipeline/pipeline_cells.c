/* Cells of a schedule's CSV:
 *
 *     cell      nothing | action | "(" action ";" action … ")OVERLAP_F_B"
 *     action    stage kind micro-batch version
 *     stage, micro-batch   digits; UNSHARD and RESHARD have none, REDUCE_GRAD and STEP may
 *     version   nothing, or of F "@" digits
 *
 * Blanks around a cell and a pair of quotation marks are let go.
 */
#include "parallel/pipeline/pipeline_cells.h"

#include <string.h>

#include "core/base/buffer.h"

enum { NUMBER_MAX = 1 << 28 };

/* Part of a text. */
typedef struct {
    const char *at, *end;
} part_t;

static size_t length_of(const part_t *part)
{
    return (size_t)(part->end - part->at);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Digits at the begin of a part; false where there are none, or it is too large. */
static bool take_number(part_t *part, int *number)
{
    int64_t value = 0;
    const char *first = part->at;
    for (; part->at < part->end && is_digit(*part->at); part->at++) {
        value = 10 * value + (*part->at - '0');
        if (value > NUMBER_MAX) {
            return false;
        }
    }
    *number = (int)value;
    return part->at > first;
}

static bool take_kind(part_t *part, tutti_pipeline_kind_t *kind)
{
    const char *first = part->at;
    while (part->at < part->end && ((*part->at >= 'A' && *part->at <= 'Z') || *part->at == '_')) {
        part->at++;
    }
    const size_t length = (size_t)(part->at - first);
    for (int i = 0; i < TT_PIPELINE_KINDS; i++) {
        const char *name = tt_pipeline_kind_name((tutti_pipeline_kind_t)i);
        if (strlen(name) == length && memcmp(name, first, length) == 0) {
            *kind = (tutti_pipeline_kind_t)i;
            return true;
        }
    }
    return false;
}

/* How many micro-batches a kind may have behind it: none, one, or either. */
static bool is_batch_right(tutti_pipeline_kind_t kind, bool has_batch)
{
    switch (kind) {
    case TUTTI_PIPELINE_UNSHARD:
    case TUTTI_PIPELINE_RESHARD:
        return !has_batch;
    case TUTTI_PIPELINE_REDUCE:
    case TUTTI_PIPELINE_STEP:
        return true;
    default:
        return has_batch;
    }
}

static bool parse_action(part_t part, tutti_pipeline_action_t *action)
{
    *action = (tutti_pipeline_action_t){.micro_batch = -1, .version = TT_PIPELINE_NO_VERSION};
    if (!take_number(&part, &action->stage) || !take_kind(&part, &action->kind)) {
        return false;
    }
    const bool has_batch = part.at < part.end && is_digit(*part.at);
    if (!is_batch_right(action->kind, has_batch) ||
        (has_batch && !take_number(&part, &action->micro_batch))) {
        return false;
    }
    if (action->kind == TUTTI_PIPELINE_F && part.at < part.end && *part.at == '@') {
        part.at++;
        if (!take_number(&part, &action->version)) {
            return false;
        }
    }
    return part.at == part.end;
}

static part_t trim(part_t part)
{
    while (part.at < part.end && is_blank(*part.at)) {
        part.at++;
    }
    while (part.at < part.end && is_blank(part.end[-1])) {
        part.end--;
    }
    if (length_of(&part) >= 2 && *part.at == '"' && part.end[-1] == '"') {
        part.at++;
        part.end--;
    }
    return part;
}

/* Up to the next `separator` or the end; the rest begins behind it. */
static part_t cut(part_t *rest, char separator)
{
    const char *found = memchr(rest->at, separator, length_of(rest));
    const part_t part = {rest->at, found != NULL ? found : rest->end};
    rest->at = found != NULL ? found + 1 : rest->end;
    return part;
}

/* Whether a cell is "( … )OVERLAP_F_B"; what is between the parentheses is left then. */
static bool take_overlap(part_t *cell)
{
    static const char behind[] = ")OVERLAP_F_B";
    const size_t length = sizeof behind - 1;
    if (length_of(cell) <= length || *cell->at != '(' ||
        memcmp(cell->end - length, behind, length) != 0) {
        return false;
    }
    cell->at++;
    cell->end -= length;
    return true;
}

typedef struct {
    tt_pipeline_take_t *take;
    void *user;
    int line, cell; /* from 0 */
} reader_t;

static tutti_status_t refuse(const reader_t *reader, const part_t *cell)
{
    char shown[64];
    tt_bytes_print(tutti_bytes_of(cell->at, length_of(cell)), shown, sizeof shown);
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "pipeline: line %d, cell %d: %s is no action; want such as 0F3, 1SEND_B0, "
                   "2UNSHARD",
                   reader->line + 1, reader->cell + 1, shown);
}

static tutti_status_t read_cell(const reader_t *reader, part_t cell)
{
    const part_t whole = cell = trim(cell);
    if (length_of(&cell) == 0) {
        return TUTTI_OK;
    }
    const bool is_overlap = take_overlap(&cell);
    do {
        const part_t part = is_overlap ? cut(&cell, ';') : cell;
        cell.at = is_overlap ? cell.at : cell.end;
        tutti_pipeline_action_t action;
        if (!parse_action(part, &action)) {
            return refuse(reader, &whole);
        }
        TT_TRY(reader->take(reader->user, reader->line, &action));
    } while (cell.at < cell.end);
    return TUTTI_OK;
}

tutti_status_t tt_pipeline_read_cells(const char *text, size_t bytes, tt_pipeline_take_t *take,
                                      void *user, int *lines)
{
    reader_t reader = {.take = take, .user = user};
    part_t rest = {text, text + bytes};
    for (; rest.at < rest.end; reader.line++) {
        if (reader.line == NUMBER_MAX) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "pipeline: more than %d lines", NUMBER_MAX);
        }
        part_t line = cut(&rest, '\n');
        for (reader.cell = 0; line.at < line.end; reader.cell++) {
            TT_TRY(read_cell(&reader, cut(&line, ',')));
        }
    }
    *lines = reader.line;
    return TUTTI_OK;
}
