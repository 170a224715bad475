/* Losses: means over all elements, rows or sequences. */
#include "op_speed/op_case.h"

/** Predictions, and numbers that they should be. */
static void make_pair(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_constant(c, op_sizes(c, 0, 2), -2, 2);
}

static tutti_tensor_t *smooth_l1(tutti_scope_t *s, op_case_t *c)
{
    return tutti_smooth_l1_loss(s, c->in[0], c->in[1], 1, TUTTI_LOSS_MEAN);
}

static tutti_tensor_t *huber(tutti_scope_t *s, op_case_t *c)
{
    return tutti_huber_loss(s, c->in[0], c->in[1], 1, TUTTI_LOSS_MEAN);
}

static void make_log_probs(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -5, 0);
    op_constant(c, op_sizes(c, 0, 2), 0.01, 1);
}

static tutti_tensor_t *kl_div(tutti_scope_t *s, op_case_t *c)
{
    return tutti_kl_div(s, c->in[0], c->in[1], &(tutti_kl_div_options_t){.batch_mean = true});
}

static void make_probabilities(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), 0.01, 0.99);
    op_constant(c, op_sizes(c, 0, 2), 0, 1);
}

static tutti_tensor_t *bce(tutti_scope_t *s, op_case_t *c)
{
    return tutti_bce_loss(s, c->in[0], c->in[1], TUTTI_LOSS_MEAN);
}

static void make_nll(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -5, 0);
    op_indices(c, op_sizes(c, 0, 1), c->n[1]);
}

static tutti_tensor_t *nll(tutti_scope_t *s, op_case_t *c)
{
    return tutti_nll_loss(s, c->in[0], c->in[1], NULL);
}

/** Class 0 is the blank. */
static void make_ctc(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 3), -6, 0);
    op_indices(c, TUTTI_SHAPE(c->n[1], c->n[3]), c->n[2] - 1);
    int64_t *targets = tutti_tensor_data(c->in[1]);
    for (int64_t i = 0; targets != NULL && i < c->n[1] * c->n[3]; i++) {
        targets[i]++;
    }
}

static tutti_tensor_t *ctc(tutti_scope_t *s, op_case_t *c)
{
    return tutti_ctc_loss(s, c->in[0], c->in[1], NULL);
}

static void make_triplet(op_case_t *c)
{
    for (int i = 0; i < 3; i++) {
        op_input(c, op_sizes(c, 0, 2), -1, 1);
    }
}

static tutti_tensor_t *triplet(tutti_scope_t *s, op_case_t *c)
{
    return tutti_triplet_margin_loss(s, c->in[0], c->in[1], c->in[2], NULL);
}

static void make_cosine(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -1, 1);
    op_input(c, op_sizes(c, 0, 2), -1, 1);
    op_signs(c, op_sizes(c, 0, 1));
}

static tutti_tensor_t *cosine(tutti_scope_t *s, op_case_t *c)
{
    return tutti_cosine_embedding_loss(s, c->in[0], c->in[1], c->in[2], NULL);
}

static void make_hinge(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_signs(c, op_sizes(c, 0, 2));
}

static tutti_tensor_t *hinge(tutti_scope_t *s, op_case_t *c)
{
    return tutti_hinge_embedding_loss(s, c->in[0], c->in[1], NULL);
}

static void make_focal(op_case_t *c)
{
    make_hinge(c);
    float *y = tutti_tensor_data(c->in[1]);
    for (int64_t i = 0; y != NULL && i < tutti_tensor_numel(c->in[1]); i++) {
        y[i] = y[i] > 0;
    }
}

static tutti_tensor_t *focal(tutti_scope_t *s, op_case_t *c)
{
    return tutti_focal_loss(s, c->in[0], c->in[1], NULL);
}

/** Up to four classes of each row are targets; -1 ends them. */
static void make_labels(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_indices(c, op_sizes(c, 0, 2), c->n[1] + 1);
    int64_t *labels = tutti_tensor_data(c->in[1]);
    for (int64_t i = 0; labels != NULL && i < tutti_tensor_numel(c->in[1]); i++) {
        labels[i] = i % c->n[1] < 4 ? labels[i] - 1 : -1;
    }
}

static tutti_tensor_t *multilabel_margin(tutti_scope_t *s, op_case_t *c)
{
    return tutti_multilabel_margin_loss(s, c->in[0], c->in[1], TUTTI_LOSS_MEAN);
}

static void make_rows(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -1, 1);
}

static tutti_tensor_t *pdist(tutti_scope_t *s, op_case_t *c)
{
    return tutti_pdist(s, c->in[0], 2);
}

static void make_distances(op_case_t *c)
{
    op_input(c, TUTTI_SHAPE(c->n[0], c->n[2]), -1, 1);
    op_input(c, op_sizes(c, 1, 2), -1, 1);
}

static tutti_tensor_t *cdist(tutti_scope_t *s, op_case_t *c)
{
    return tutti_cdist(s, c->in[0], c->in[1], 2);
}

static void make_head(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -1, 1);
    op_input(c, TUTTI_SHAPE(c->n[2], c->n[1]), -0.1, 0.1);
    op_indices(c, op_sizes(c, 0, 1), c->n[2]);
}

static tutti_tensor_t *head(tutti_scope_t *s, op_case_t *c)
{
    return tutti_linear_cross_entropy(s, c->in[0], c->in[1], c->in[2], NULL);
}

const op_t op_losses[] = {
    {"smooth_l1", make_pair, smooth_l1},
    {"huber", make_pair, huber},
    {"kl_div", make_log_probs, kl_div},
    {"bce", make_probabilities, bce},
    {"nll", make_nll, nll},
    {"ctc", make_ctc, ctc},
    {"triplet", make_triplet, triplet},
    {"cosine", make_cosine, cosine},
    {"hinge", make_hinge, hinge},
    {"focal", make_focal, focal},
    {"multilabel_margin", make_labels, multilabel_margin},
    {"pdist", make_rows, pdist},
    {"cdist", make_distances, cdist},
    {"linear_cross_entropy", make_head, head},
    {NULL, NULL, NULL},
};
