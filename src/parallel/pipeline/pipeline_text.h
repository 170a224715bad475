/* Actions as text, and text that grows. */
#ifndef TT_PIPELINE_TEXT_H
#define TT_PIPELINE_TEXT_H

#include <tutti/pipeline.h>

/* Keeps its first failure. */
typedef struct {
    char *data;
    size_t bytes, room;
    tutti_status_t status;
} tt_pipeline_text_t;

/* At most 255 bytes of text. */
__attribute__((format(printf, 2, 3))) void tt_pipeline_put_text(tt_pipeline_text_t *text,
                                                                const char *format, ...);

/* The text becomes the caller's; behind a failure nothing is left. */
tutti_status_t tt_pipeline_give_text(tt_pipeline_text_t *text, tutti_buffer_t *out);

/* How a kind is written: "F", "SEND_F", "REDUCE_GRAD". */
const char *tt_pipeline_kind_name(tutti_pipeline_kind_t kind);

enum { TT_PIPELINE_KINDS = TUTTI_PIPELINE_STEP + 1 };

/* F, B, I, W: what has weights of a version. */
bool tt_pipeline_computes(tutti_pipeline_kind_t kind);

/* An action's text, as a value. */
typedef struct {
    char text[TUTTI_PIPELINE_TEXT_MAX];
} tt_pipeline_label_t;

tt_pipeline_label_t tt_pipeline_label(const tutti_pipeline_action_t *action);

#endif
