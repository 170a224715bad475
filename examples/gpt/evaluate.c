/* Evaluation. Rank r of those that share the data takes windows r, r + ranks, …; every rank then
 * holds every window's loss (adding zeros changes no bit) and sums them in order, so that the
 * result does not depend on the number of ranks. Stages of a pipeline pass windows on to each
 * other, each by itself, and all of them know the losses. */
#include "gpt.h"

#include <tutti/modes.h>

tutti_tensor_t *gpt_loss_of(tutti_scope_t *s, session_t *session, tutti_tensor_t *logits,
                            tutti_tensor_t *targets)
{
    const tutti_parallel_loss_options_t cut = {
        .group = session->tensor, .shards = (int)session->settings.tp_shards, .classes = VOCAB};
    return session->is_cut ? tutti_parallel_cross_entropy(s, logits, targets, &cut)
                           : tutti_cross_entropy(s, logits, targets);
}

tutti_tensor_t *gpt_loss(tutti_scope_t *s, session_t *session, tutti_tensor_t *tokens,
                         tutti_tensor_t *targets)
{
    return gpt_loss_of(s, session, tutti_forward(s, session->model, tokens), targets);
}

enum { AT_ONCE = 32 }; /* windows that go through the stages of a pipeline behind each other */

typedef struct {
    session_t *session;
    tutti_pipeline_t *pipeline; /* NULL: the model is none */
    tutti_dataloader_t *windows;
} evaluation_t;

/* Windows `first`, first + stride, …, each by itself. */
typedef struct {
    int64_t first, stride;
    int count;
} part_t;

static void read_window(const evaluation_t *e, tutti_scope_t *s, int64_t index,
                        tutti_batch_t *window)
{
    *window = (tutti_batch_t){0}; /* a failure is the scope's, too */
    (void)tutti_dataloader_at(e->windows, s, (tutti_batch_place_t){.step = index}, window);
}

static tutti_status_t evaluate_stages(const evaluation_t *e, tutti_scope_t *s, const part_t *part,
                                      double *losses)
{
    tutti_batch_t windows[AT_ONCE];
    tutti_pipeline_batch_t batches[AT_ONCE];
    for (int i = 0; i < part->count; i++) {
        read_window(e, s, part->first + i * part->stride, &windows[i]);
        batches[i] = (tutti_pipeline_batch_t){&windows[i].input, 1, &windows[i].target, 1};
    }
    return tutti_scope_status(s) < 0
               ? TUTTI_OK /* which closing the scope tells */
               : tutti_pipeline_evaluate_batches(e->pipeline, batches, part->count, losses);
}

static tutti_status_t evaluate_window(const evaluation_t *e, tutti_scope_t *s, int64_t index,
                                      double *loss)
{
    tutti_batch_t window;
    read_window(e, s, index, &window);
    *loss = tutti_tensor_item(gpt_loss(s, e->session, window.input, window.target));
    return TUTTI_OK;
}

/* Mean losses of windows: at most AT_ONCE of a pipeline, and one without. */
static tutti_status_t evaluate_part(const evaluation_t *e, const part_t *part, double *losses)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(e->session->ctx, &s));
    const tutti_status_t status = e->pipeline != NULL ? evaluate_stages(e, s, part, losses)
                                                      : evaluate_window(e, s, part->first, losses);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* What this rank has of the windows from `begin` on, if each rank has at most `most`. */
static part_t part_of(const session_t *session, int64_t begin, int64_t end, int most)
{
    const int64_t ranks = tutti_group_size(session->data),
                  first = begin + tutti_group_rank(session->data),
                  left = first < end ? (end - first + ranks - 1) / ranks : 0;
    return (part_t){first, ranks, (int)(left < most ? left : most)};
}

/* Every rank makes as many calls, for all bring the weights of stage 3 together; what is computed
 * beyond the last window counts nowhere. */
static tutti_status_t evaluate_parts(const evaluation_t *e, double *losses, int64_t count)
{
    const int most = e->pipeline != NULL ? AT_ONCE : 1;
    for (int64_t begin = 0; begin < count;
         begin += (int64_t)most * tutti_group_size(e->session->data)) {
        double found[AT_ONCE];
        const part_t part = part_of(e->session, begin, count, most);
        if (part.count == 0 && e->session->settings.stage == 3) {
            TUTTI_CHECK(evaluate_part(e, &(part_t){.count = 1}, found));
        } else if (part.count > 0) {
            TUTTI_CHECK(evaluate_part(e, &part, found));
        }
        for (int i = 0; i < part.count; i++) {
            losses[part.first + i * part.stride] = found[i];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t evaluate_share(session_t *session, tutti_pipeline_t *pipeline,
                                     tutti_dataset_t *text, tutti_tensor_t *losses)
{
    evaluation_t e = {.session = session, .pipeline = pipeline};
    TUTTI_CHECK(tutti_dataloader_create(text, NULL, &e.windows));
    const tutti_status_t status =
        evaluate_parts(&e, tutti_tensor_data(losses), tutti_tensor_numel(losses));
    tutti_dataloader_release(e.windows);
    TUTTI_CHECK(status);
    return tutti_all_reduce(session->data, losses, TUTTI_SUM, NULL);
}

static double mean_of(const tutti_tensor_t *losses)
{
    double sum = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(losses); i++) {
        sum += tutti_tensor_at(losses, i);
    }
    return sum / (double)tutti_tensor_numel(losses);
}

tutti_status_t gpt_evaluate(session_t *session, tutti_pipeline_t *pipeline, tutti_dataset_t *text,
                            int64_t windows_max, double *loss)
{
    int64_t windows = tutti_dataset_info(text).count;
    windows = windows_max > 0 && windows_max < windows ? windows_max : windows;
    tutti_tensor_t *losses;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(windows), &losses));
    tutti_context_set_training(session->ctx, false);
    const bool was_enabled = tutti_context_set_grad_enabled(session->ctx, false);
    const tutti_status_t status = evaluate_share(session, pipeline, text, losses);
    (void)tutti_context_set_grad_enabled(session->ctx, was_enabled);
    tutti_context_set_training(session->ctx, true);
    *loss = mean_of(losses);
    tutti_tensor_release(losses);
    return status;
}
