/* CSV: cells between separators and ends of lines (LF or CR LF). A cell that begins with a double
 * quote ends with one, and may hold anything; a quote in it is doubled.
 *
 * Source: RFC 4180.
 */
#include "compute/data/csv_reader.h"

#include <string.h>

#include "core/base/alloc.h"

void tt_csv_begin(tt_csv_t *csv, const char *name, tutti_bytes_t data, char separator)
{
    const char *text = data.data == NULL ? "" : data.data;
    const size_t mark = data.bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    *csv = (tt_csv_t){.name = name,
                      .at = text + mark,
                      .end = text + data.bytes,
                      .separator = separator,
                      .line = 1};
}

void tt_csv_end(tt_csv_t *csv)
{
    tt_free(csv->cell.bytes.data);
}

/* Bytes of the end of a line here; 0: none. */
static size_t end_of_line(const tt_csv_t *csv)
{
    if (csv->at < csv->end && csv->at[0] == '\n') {
        return 1;
    }
    return csv->end - csv->at >= 2 && csv->at[0] == '\r' && csv->at[1] == '\n' ? 2 : 0;
}

tutti_status_t tt_csv_line(tt_csv_t *csv)
{
    for (size_t bytes; (bytes = end_of_line(csv)) > 0; csv->at += bytes) {
        csv->line++;
    }
    csv->column = 0;
    return csv->at == csv->end ? TUTTI_END : TUTTI_OK;
}

/* What follows a cell: a separator, or the end of the line, which is passed. */
static tutti_status_t finish(tt_csv_t *csv, bool *is_last)
{
    const size_t bytes = end_of_line(csv);
    *is_last = csv->at == csv->end || bytes > 0;
    if (!*is_last && *csv->at != csv->separator) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: line %lld, column %d: text behind the closing quote: a quote in a "
                       "quoted text is doubled",
                       csv->name, (long long)csv->line, csv->column);
    }
    csv->at += *is_last ? bytes : 1;
    csv->line += bytes > 0;
    return tt_sink_append(&csv->cell, "", 1);
}

static tutti_status_t take_quoted(tt_csv_t *csv)
{
    for (csv->at++; csv->at < csv->end; csv->at++) {
        const bool is_quote = *csv->at == '"';
        if (is_quote && (csv->at + 1 == csv->end || csv->at[1] != '"')) {
            csv->at++;
            return TUTTI_OK;
        }
        csv->at += is_quote;
        csv->line += *csv->at == '\n';
        TT_TRY(tt_sink_append(&csv->cell, csv->at, 1));
    }
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "%s: line %lld, column %d: a quote that is opened here is not closed", csv->name,
                   (long long)csv->cell_line, csv->column);
}

tutti_status_t tt_csv_cell(tt_csv_t *csv, bool *is_last)
{
    csv->cell.bytes.bytes = 0;
    csv->cell_line = csv->line;
    csv->column++;
    if (csv->at < csv->end && *csv->at == '"') {
        TT_TRY(take_quoted(csv));
        return finish(csv, is_last);
    }
    const char *begin = csv->at;
    while (csv->at < csv->end && *csv->at != csv->separator && end_of_line(csv) == 0) {
        csv->at++;
    }
    TT_TRY(tt_sink_append(&csv->cell, begin, (size_t)(csv->at - begin)));
    return finish(csv, is_last);
}
