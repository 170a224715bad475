/* --modules: the whole model on meta, whatever the mesh will make of it. */
#include "gpt.h"

#include <stdio.h>

static tutti_status_t summarize(session_t *session)
{
    const settings_t *settings = &session->settings;
    tutti_scope_t *s;
    tutti_buffer_t text;
    TUTTI_CHECK(gpt_new_model(session, session->ctx, &session->model));
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    tutti_tensor_t *tokens =
        tutti_zeros(s, TUTTI_U8, TUTTI_SHAPE(settings->batch, settings->context));
    const tutti_status_t status = tutti_module_summary(
        session->model, &(tutti_summary_options_t){.inputs = &tokens, .input_count = 1}, &text);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(status);
    fwrite(text.data, 1, text.bytes, stdout);
    tutti_buffer_release(&text);
    return TUTTI_OK;
}

tutti_status_t gpt_print_modules(session_t *session)
{
    TUTTI_CHECK(tutti_init(NULL, &session->world));
    session->rank = tutti_group_rank(session->world);
    if (session->rank != 0) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_device_open("meta", NULL, &session->device));
    const tutti_context_options_t where = {.threads = 1, .device = session->device};
    TUTTI_CHECK(tutti_context_create(&where, &session->ctx));
    (void)tutti_context_set_autocast(
        session->ctx, session->settings.dtype == DTYPE_BF16 ? TUTTI_BF16 : TUTTI_F32);
    return summarize(session);
}
