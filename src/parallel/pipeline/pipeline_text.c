/* Actions as text: PyTorch's form, and STEP, which PyTorch leaves to the user. */
#include "parallel/pipeline/pipeline_text.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"

static const char *const kind_names[] = {
    [TUTTI_PIPELINE_F] = "F",
    [TUTTI_PIPELINE_B] = "B",
    [TUTTI_PIPELINE_I] = "I",
    [TUTTI_PIPELINE_W] = "W",
    [TUTTI_PIPELINE_SEND_F] = "SEND_F",
    [TUTTI_PIPELINE_RECV_F] = "RECV_F",
    [TUTTI_PIPELINE_SEND_B] = "SEND_B",
    [TUTTI_PIPELINE_RECV_B] = "RECV_B",
    [TUTTI_PIPELINE_UNSHARD] = "UNSHARD",
    [TUTTI_PIPELINE_RESHARD] = "RESHARD",
    [TUTTI_PIPELINE_REDUCE] = "REDUCE_GRAD",
    [TUTTI_PIPELINE_STEP] = "STEP",
};

const char *tt_pipeline_kind_name(tutti_pipeline_kind_t kind)
{
    return (unsigned)kind < TT_PIPELINE_KINDS ? kind_names[kind] : "?";
}

bool tt_pipeline_computes(tutti_pipeline_kind_t kind)
{
    return kind <= TUTTI_PIPELINE_W;
}

size_t tutti_pipeline_action_text(const tutti_pipeline_action_t *action, char *text,
                                  size_t text_bytes)
{
    const char *kind = tt_pipeline_kind_name(action->kind);
    const int length =
        action->micro_batch >= 0
            ? snprintf(text, text_bytes, "%d%s%d", action->stage, kind, action->micro_batch)
            : snprintf(text, text_bytes, "%d%s", action->stage, kind);
    return length > 0 ? (size_t)length : 0;
}

tt_pipeline_label_t tt_pipeline_label(const tutti_pipeline_action_t *action)
{
    tt_pipeline_label_t label;
    tutti_pipeline_action_text(action, label.text, sizeof label.text);
    return label;
}

/* ---- text that grows ---- */

enum { PUT_BYTES = 256 };

static char *make_room(tt_pipeline_text_t *text)
{
    if (text->status >= 0 && text->bytes + PUT_BYTES > text->room) {
        const size_t room = 2 * text->room + 4 * PUT_BYTES;
        char *data = tt_realloc(text->data, room, "pipeline text");
        text->status = data != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
        text->data = data != NULL ? data : text->data;
        text->room = data != NULL ? room : text->room;
    }
    return text->status >= 0 ? text->data + text->bytes : NULL;
}

void tt_pipeline_put_text(tt_pipeline_text_t *text, const char *format, ...)
{
    char *at = make_room(text);
    if (at != NULL) {
        va_list args;
        va_start(args, format);
        const int length = tt_format_list(at, PUT_BYTES, format, args);
        va_end(args);
        text->bytes += length < 0 ? 0 : length < PUT_BYTES ? (size_t)length : PUT_BYTES - 1;
    }
}

tutti_status_t tt_pipeline_give_text(tt_pipeline_text_t *text, tutti_buffer_t *out)
{
    tt_pipeline_put_text(text, "%s", ""); /* room for the final 0, in an empty text too */
    if (text->status < 0) {
        tt_free(text->data);
        return text->status;
    }
    *out = (tutti_buffer_t){text->data, text->bytes};
    return TUTTI_OK;
}
