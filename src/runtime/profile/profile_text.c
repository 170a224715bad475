/* Texts that become the caller's. */
#include "runtime/profile/profile_text.h"

#include "core/base/buffer.h"

void tt_row_json(tt_byte_row_t *row, const char *text)
{
    tt_row_add(row, "\"", 1);
    for (const char *at = text; *at != 0; at++) {
        if (*at == '"' || *at == '\\') {
            tt_row_add(row, "\\", 1);
        }
        if ((unsigned char)*at < ' ') {
            tt_row_print(row, "\\u%04x", (unsigned)(unsigned char)*at);
        } else {
            tt_row_add(row, at, 1);
        }
    }
    tt_row_add(row, "\"", 1);
}

tutti_status_t tt_row_hand_over(tt_byte_row_t *row, tutti_status_t status, tutti_buffer_t *out)
{
    if (status >= 0 && row->is_broken) {
        status = TT_FAIL(TUTTI_ERR_NOMEM, "profile: no memory for a text of more than %zu bytes",
                         row->count);
    }
    if (status >= 0) {
        status = tt_buffer_copy((tutti_bytes_t){row->bytes, row->count}, out);
    }
    tt_row_free(row);
    return status;
}

void tt_row_html(tt_byte_row_t *page, const char *text)
{
    for (const char *at = text; *at != 0; at++) {
        switch (*at) {
        case '<':
            tt_row_print(page, "&lt;");
            break;
        case '>':
            tt_row_print(page, "&gt;");
            break;
        case '&':
            tt_row_print(page, "&amp;");
            break;
        case '"':
            tt_row_print(page, "&quot;");
            break;
        case '\'':
            tt_row_print(page, "&#39;");
            break;
        default:
            tt_row_add(page, (unsigned char)*at < ' ' && *at != '\n' ? "?" : at, 1);
        }
    }
}
