/* The test: rank r takes batches r, r + ranks, …; numbers of pictures told right are whole, so that
 * their sum does not depend on who counted them. */
#include "fashion.h"

#include <tutti/modes.h>

enum { BATCH = 100 };

static tutti_status_t count_right(session_t *session, tutti_dataloader_t *pictures, int64_t index,
                                  double *right)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    (void)tutti_dataloader_at(pictures, s, (tutti_batch_place_t){.step = index}, &batch);
    tutti_tensor_t *told = tutti_argmax(s, tutti_forward(s, session->net, batch.input), -1, false);
    *right += tutti_tensor_item(tutti_sum(s, tutti_eq(s, told, batch.target)));
    return tutti_scope_close(s); /* failures are the scope's */
}

static tutti_status_t count_share(session_t *session, tutti_dataset_t *pictures, double *right)
{
    const tutti_dataloader_options_t in_order = {.batch = BATCH};
    tutti_dataloader_t *loader;
    TUTTI_CHECK(tutti_dataloader_create(pictures, &in_order, &loader));
    tutti_status_t status = TUTTI_OK;
    const int64_t batches = tutti_dataloader_steps(loader);
    for (int64_t i = session->rank; i < batches && status >= 0; i += session->ranks) {
        status = count_right(session, loader, i, right);
    }
    tutti_dataloader_release(loader);
    return status;
}

/* With the running statistics, without dropout and gradients. */
static tutti_status_t count_quietly(session_t *session, tutti_dataset_t *pictures, double *right)
{
    tutti_context_set_training(session->ctx, false);
    const bool was_enabled = tutti_context_set_grad_enabled(session->ctx, false);
    const tutti_status_t status = count_share(session, pictures, right);
    (void)tutti_context_set_grad_enabled(session->ctx, was_enabled);
    tutti_context_set_training(session->ctx, true);
    return status;
}

tutti_status_t fashion_test(session_t *session, tutti_dataset_t *pictures, double *accuracy)
{
    tutti_tensor_t *right;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(1), &right));
    (void)tutti_tensor_fill(right, 0);
    tutti_status_t status = count_quietly(session, pictures, tutti_tensor_data(right));
    if (status >= 0) {
        status = tutti_all_reduce(session->world, right, TUTTI_SUM, NULL);
    }
    *accuracy = tutti_tensor_item(right) / (double)tutti_dataset_info(pictures).count;
    tutti_tensor_release(right);
    return status;
}
