/* Evaluation. Rank r of those that share the data takes windows r, r + ranks, …; every rank then
 * holds every window's loss (adding zeros changes no bit) and sums them in order, so that the
 * result does not depend on the number of ranks. */
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

/* Mean loss of a window. */
static tutti_status_t evaluate_window(session_t *session, tutti_dataloader_t *windows,
                                      int64_t index, double *loss)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    (void)tutti_dataloader_at(windows, s, (tutti_batch_place_t){.step = index}, &batch);
    *loss = tutti_tensor_item(gpt_loss(s, session, batch.input, batch.target));
    return tutti_scope_close(s);
}

/* Every rank makes as many forwards, for all bring the weights of stage 3 together; what is
 * computed beyond the last window counts nowhere. */
static tutti_status_t evaluate_share(session_t *session, tutti_dataset_t *text,
                                     tutti_tensor_t *losses)
{
    double *loss = tutti_tensor_data(losses);
    const int64_t count = tutti_tensor_numel(losses);
    tutti_dataloader_t *windows;
    TUTTI_CHECK(tutti_dataloader_create(text, NULL, &windows));
    tutti_status_t status = TUTTI_OK;
    for (int64_t first = 0; first < count && status >= 0;
         first += tutti_group_size(session->data)) {
        const int64_t i = first + tutti_group_rank(session->data);
        double unused;
        if (i < count || session->settings.stage == 3) {
            status = evaluate_window(session, windows, i < count ? i : 0,
                                     i < count ? &loss[i] : &unused);
        }
    }
    tutti_dataloader_release(windows);
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

tutti_status_t gpt_evaluate(session_t *session, tutti_dataset_t *text, int64_t windows_max,
                            double *loss)
{
    int64_t windows = tutti_dataset_info(text).count;
    windows = windows_max > 0 && windows_max < windows ? windows_max : windows;
    tutti_tensor_t *losses;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(windows), &losses));
    tutti_context_set_training(session->ctx, false);
    const bool was_enabled = tutti_context_set_grad_enabled(session->ctx, false);
    const tutti_status_t status = evaluate_share(session, text, losses);
    (void)tutti_context_set_grad_enabled(session->ctx, was_enabled);
    tutti_context_set_training(session->ctx, true);
    *loss = mean_of(losses);
    tutti_tensor_release(losses);
    return status;
}
