/* Forwards ahead of the verdict: a step begins with those before its first backward, while ranks do
 * not know yet whether the step before stays (pipeline_validate.c).
 *
 *     rank 0   0F0 0F1 0F2 │verdict│ 0B0 …       the row goes on where the weights stay
 *     rank 1   1F0         │verdict│ 1F1 …
 *
 *     undone   0F0 0F1 0F2 │verdict│ 0F0 0F1 …   else it begins anew, on every rank: all have the
 *     rank 1   1F0         │verdict│ 1F0 …       same verdict
 *
 * What a rank sent ahead is there twice then, under the same tag, in this order. Its receiver knows
 * by the rows which those are; what it did not take it receives, and forgets. Rows of other ranks
 * say also which forwards may be ahead at all: those whose inputs are made ahead, so that nobody
 * waits for one who waits for the verdict. Buffers come back; random numbers are named.
 *
 * Cost: a copy of this rank's buffers; where it begins anew, these forwards and their messages once
 * more.
 */
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_norms.h"

/* ---- which ----------------------------------------------------------------------------------- */

typedef struct {
    tutti_pipeline_row_t *rows; /* [ranks] */
    int64_t *counts;            /* [ranks] actions at the beginning of a row */
    bool *are_ahead;            /* [stages × slots] F */
    int ranks, slots;
} search_t;

static bool is_forward(tutti_pipeline_kind_t kind)
{
    return kind == TUTTI_PIPELINE_F || kind == TUTTI_PIPELINE_SEND_F ||
           kind == TUTTI_PIPELINE_RECV_F;
}

static bool *mark_of(const search_t *search, int stage, int slot)
{
    return &search->are_ahead[stage * search->slots + slot];
}

static void count_leading(search_t *search, int rank)
{
    const tutti_pipeline_row_t *row = &search->rows[rank];
    int64_t *count = &search->counts[rank];
    for (*count = 0; *count < row->count && is_forward(row->actions[*count].kind); ++*count) {
        const tutti_pipeline_action_t *action = &row->actions[*count];
        if (action->kind == TUTTI_PIPELINE_F) {
            *mark_of(search, action->stage, action->micro_batch) = true;
        }
    }
}

/* Behind a F whose input is not ahead none is. */
static bool shorten(search_t *search, int rank)
{
    int64_t count = 0;
    const tutti_pipeline_action_t *actions = search->rows[rank].actions;
    bool fits = true;
    for (int64_t i = 0; i < search->counts[rank]; i++) {
        const tutti_pipeline_action_t *action = &actions[i];
        if (action->kind != TUTTI_PIPELINE_F) {
            continue;
        }
        fits = fits &&
               (action->stage == 0 || *mark_of(search, action->stage - 1, action->micro_batch));
        *mark_of(search, action->stage, action->micro_batch) = fits;
        count = fits ? i + 1 : count;
    }
    const bool is_shorter = count < search->counts[rank] && !fits;
    search->counts[rank] = fits ? search->counts[rank] : count;
    return is_shorter;
}

static void mark_all(search_t *search)
{
    bool is_shorter = true;
    for (int rank = 0; rank < search->ranks; rank++) {
        count_leading(search, rank);
    }
    while (is_shorter) {
        is_shorter = false;
        for (int rank = 0; rank < search->ranks; rank++) {
            is_shorter |= shorten(search, rank);
        }
    }
}

static void take_marks(tutti_pipeline_t *p, const search_t *search)
{
    p->ahead = search->counts[p->rank];
    for (int i = 0; i < p->mail.letter_count; i++) {
        tt_letter_t *letter = &p->mail.letters[i];
        letter->is_ahead =
            !letter->is_backward && *mark_of(search, letter->stage - 1, letter->micro_batch);
    }
}

static tutti_status_t plan_rows(const tutti_pipeline_t *p, search_t *search)
{
    search->rows = tt_alloc_array((size_t)p->ranks, sizeof *search->rows, "pipeline ahead");
    TT_TRY_ALLOC(search->rows);
    search->counts = tt_alloc_array((size_t)p->ranks, sizeof *search->counts, "pipeline ahead");
    TT_TRY_ALLOC(search->counts);
    search->are_ahead =
        tt_alloc_array((size_t)p->stages * (size_t)p->slots, sizeof(bool), "pipeline ahead");
    TT_TRY_ALLOC(search->are_ahead);
    for (int rank = 0; rank < p->ranks; rank++) {
        TT_TRY(tutti_pipeline_plan_row(&p->options.plan, rank, &search->rows[rank]));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ahead_open(tutti_pipeline_t *p)
{
    search_t search = {.ranks = p->ranks, .slots = p->slots};
    const tutti_status_t status = plan_rows(p, &search);
    if (status >= 0) {
        mark_all(&search);
        take_marks(p, &search);
    }
    for (int rank = 0; search.rows != NULL && rank < p->ranks; rank++) {
        tutti_pipeline_row_release(&search.rows[rank]);
    }
    tt_free(search.rows);
    tt_free(search.counts);
    tt_free(search.are_ahead);
    return status;
}

/* One rank waits for nobody. Ties are passed on, and gradients that a ddp forgets are needed, with
 * the verdict. */
bool tt_ahead_is_due(const tutti_pipeline_t *p)
{
    return p->is_undecided && p->ranks > 1 && p->ddp == NULL && p->tie_count == 0;
}

/* ---- in a step ------------------------------------------------------------------------------- */

static int64_t count_forwards(const tutti_pipeline_t *p)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->ahead; i++) {
        count += p->row.actions[i].kind == TUTTI_PIPELINE_F;
    }
    return count;
}

/* This rank's, where copies of shards wait that are under way at once, which these are not. */
static tutti_tensor_t **copy_of(tt_pipeline_param_t *buffer)
{
    return buffer->waiting == NULL ? NULL : &buffer->waiting[0];
}

tutti_status_t tt_ahead_keep(tutti_pipeline_t *p)
{
    for (int i = p->param_count; i < p->tensor_count; i++) {
        const tutti_tensor_t *x = p->params[i].tensor;
        tutti_tensor_t **copy = copy_of(&p->params[i]);
        if (copy != NULL) {
            TT_TRY(tt_tensor_new(x->storage->device, x->dtype, x->shape, false, copy));
            TT_TRY(tutti_tensor_copy(*copy, x));
        }
    }
    p->stats.forwards_ahead += count_forwards(p);
    return TUTTI_OK;
}

static tutti_status_t put_buffers_back(tutti_pipeline_t *p)
{
    for (int i = p->param_count; i < p->tensor_count; i++) {
        tutti_tensor_t **copy = copy_of(&p->params[i]);
        TT_TRY(copy != NULL ? tutti_tensor_copy(p->params[i].tensor, *copy) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t close_cells(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; b < p->slots; b++) {
            TT_TRY(tt_cell_close(p, &p->own[i], b));
            p->own[i].cells[b].loss = 0;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ahead_forget(tutti_pipeline_t *p)
{
    TT_TRY(close_cells(p));
    for (int i = 0; i < p->mail.letter_count; i++) {
        tt_letter_t *letter = &p->mail.letters[i];
        TT_TRY(letter->is_ahead && !letter->is_taken ? tt_mail_drop(p, letter) : TUTTI_OK);
    }
    tt_mail_begin_step(p);
    tt_norms_begin_step(p);
    p->stats.forwards_repeated += count_forwards(p);
    return put_buffers_back(p);
}
