/* Sampling: the model's distribution over the next byte, at temperature 0.8, byte by byte. */
#include "gpt.h"

#include <tutti/modes.h>
#include <tutti/op_nn.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double temperature = 0.8;

/* The smallest byte at which the distribution's running sum passes `point` in [0, 1). */
static int pick(const tutti_tensor_t *probabilities, double point)
{
    double sum = 0;
    for (int byte = 0; byte < VOCAB - 1; byte++) {
        sum += tutti_tensor_at(probabilities, byte);
        if (point < sum) {
            return byte;
        }
    }
    return VOCAB - 1;
}

static tutti_status_t next_byte(session_t *session, tutti_module_t *model, const uint8_t *window,
                                int64_t count, int *byte)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    tutti_tensor_t *tokens = tutti_from_data(s, TUTTI_U8, TUTTI_SHAPE(1, count), window);
    tutti_tensor_t *logits = tutti_forward(s, model, tokens); // [1, count, VOCAB]
    tutti_tensor_t *last = tutti_select(s, tutti_select(s, logits, 0, 0), 0, count - 1);
    tutti_tensor_t *scaled = tutti_mul_scalar(s, tutti_cast(s, last, TUTTI_F32), 1 / temperature);
    tutti_tensor_t *point = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(1), 0, 1);
    tutti_tensor_t *odds = tutti_tensor_to(s, tutti_softmax(s, scaled, 0), NULL);
    *byte = pick(odds, tutti_tensor_item(point));
    return tutti_scope_close(s);
}

static tutti_status_t generate(session_t *session, tutti_module_t *model, uint8_t *bytes,
                               int64_t given, int64_t count)
{
    for (int64_t i = given; i < given + count; i++) {
        const int64_t begin = i > session->settings.context ? i - session->settings.context : 0;
        int byte;
        tutti_context_set_step(session->ctx, i);
        TUTTI_CHECK(next_byte(session, model, bytes + begin, i - begin, &byte));
        bytes[i] = (uint8_t)byte;
        putchar(isprint(byte) || byte == '\n' ? byte : '?');
        fflush(stdout);
    }
    putchar('\n');
    return TUTTI_OK;
}

tutti_status_t gpt_sample(session_t *session, tutti_module_t *whole, int64_t count)
{
    enum { GIVEN = 1 };
    if (session->rank != 0) {
        return TUTTI_OK;
    }
    uint8_t *bytes = calloc((size_t)(GIVEN + count), 1);
    if (bytes == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    bytes[0] = '\n';
    tutti_context_set_training(session->ctx, false);
    const bool was_enabled = tutti_context_set_grad_enabled(session->ctx, false);
    const tutti_status_t status = generate(session, whole, bytes, GIVEN, count);
    (void)tutti_context_set_grad_enabled(session->ctx, was_enabled);
    tutti_context_set_training(session->ctx, true);
    free(bytes);
    return status;
}
