/* Letters: what a stage gives to a stage on another rank.
 *
 *     sender      head: whose it is, shapes, dtypes     tensor 0     tensor 1     …
 *     receiver    posted ahead, for the letters         posted when the head is there
 *                 that come next
 *
 * All of a letter have one tag, which names stage, micro-batch and direction, so that they arrive
 * in order and letters in any. A letter is posted ahead of the action that needs it, but no more
 * than a few are, for their tensors are memory. What was sent is given back when it is done.
 * Tensors of a device travel by way of the host. Cost: pipeline_run.h.
 */
#include <tutti/devices.h>
#include <tutti/messages.h>
#include <tutti/op_shape.h>

#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

enum { AHEAD = 2, FIRST_TAG = 16, IS_THERE = 2 };

static int tag_of(const tutti_pipeline_t *p, int stage, int micro_batch, bool is_backward)
{
    return FIRST_TAG + 2 * (micro_batch * p->stages + stage) + is_backward;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_receive(const tutti_pipeline_action_t *action)
{
    return action->kind == TUTTI_PIPELINE_RECV_F || action->kind == TUTTI_PIPELINE_RECV_B;
}

tutti_status_t tt_mail_open(tutti_pipeline_t *p)
{
    int count = 0;
    for (int64_t i = 0; i < p->row.count; i++) {
        count += is_receive(&p->row.actions[i]);
    }
    p->mail.letters = tt_alloc_array((size_t)count, sizeof *p->mail.letters, "pipeline letters");
    TT_TRY_ALLOC(p->mail.letters);
    for (int64_t i = 0; i < p->row.count; i++) {
        const tutti_pipeline_action_t *action = &p->row.actions[i];
        const bool is_backward = action->kind == TUTTI_PIPELINE_RECV_B;
        if (is_receive(action)) {
            p->mail.letters[p->mail.letter_count++] =
                (tt_letter_t){.stage = action->stage,
                              .micro_batch = action->micro_batch,
                              .is_backward = is_backward,
                              .peer = tt_rank_of_stage(p, action->stage + (is_backward ? 1 : -1))};
        }
    }
    return TUTTI_OK;
}

static void empty_letter(tt_letter_t *letter)
{
    tutti_work_release(letter->head_work);
    tutti_work_release(letter->work);
    tutti_tensor_release(letter->head);
    letter->head_work = letter->work = NULL;
    letter->head = NULL;
    letter->is_posted = false;
    tt_tensors_release(letter->tensors, TT_WIDTH);
}

static void drop_sent(tt_mail_t *mail, bool all)
{
    int kept = 0;
    for (int i = 0; i < mail->sent_count; i++) {
        if (all || tutti_work_is_done(mail->sent[i].work)) {
            tutti_work_release(mail->sent[i].work);
        } else {
            mail->sent[kept++] = mail->sent[i];
        }
    }
    mail->sent_count = kept;
}

void tt_mail_close(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->mail.letter_count; i++) {
        empty_letter(&p->mail.letters[i]);
    }
    drop_sent(&p->mail, true);
    tt_free(p->mail.letters);
    tt_free(p->mail.sent);
    p->mail = (tt_mail_t){0};
}

static void pass_taken(tutti_pipeline_t *p)
{
    tt_mail_t *mail = &p->mail;
    while (mail->next < mail->letter_count && mail->letters[mail->next].is_taken) {
        mail->next++;
    }
}

void tt_mail_begin_step(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->mail.letter_count; i++) {
        const tt_letter_t *letter = &p->mail.letters[i];
        p->mail.letters[i].is_taken =
            (letter->is_backward && !p->trains) || tt_is_left_out(p, letter->micro_batch);
    }
    p->mail.next = 0;
    pass_taken(p);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static tutti_status_t post_head(tutti_pipeline_t *p, tt_letter_t *letter)
{
    const int64_t bytes = (int64_t)sizeof(tt_mail_head_t);
    if (letter->head == NULL) {
        TT_TRY(tt_tensor_new(p->ctx->cpu, TUTTI_U8, TUTTI_SHAPE(bytes), false, &letter->head));
    }
    return letter->head_work != NULL
               ? TUTTI_OK
               : tutti_recv(p->group, letter->head, letter->peer,
                            tag_of(p, letter->stage, letter->micro_batch, letter->is_backward),
                            &letter->head_work);
}

static const tt_mail_head_t *head_of(const tt_letter_t *letter)
{
    return tutti_tensor_data(letter->head);
}

static const char *name_of(int64_t call)
{
    return call == TT_CALL_STEP       ? "trains"
           : call == TT_CALL_EVALUATE ? "evaluates"
                                      : "evaluates batches that are not cut";
}

static tutti_status_t check_call(const tutti_pipeline_t *p, int peer, const tt_mail_head_t *head)
{
    if (head->call != p->call) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d is in another call: it %s, and this rank %s",
                       peer, name_of(head->call), name_of(p->call));
    }
    return head->batches == p->call_batches
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH,
                         "rank %d has %lld batches in this call, and this rank %d: all have the "
                         "same number",
                         peer, (long long)head->batches, p->call_batches);
}

/* Only one of two ranks would send its forwards ahead again behind a step that is undone. */
static tutti_status_t check_verdict(const tutti_pipeline_t *p, const tt_letter_t *letter)
{
    return (head_of(letter)->runs_ahead != 0) == p->runs_ahead
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH,
                         "rank %d %s the last step, and this rank %s: call "
                         "tutti_pipeline_validate() on all ranks of the pipeline, or on none",
                         letter->peer, p->runs_ahead ? "has validated" : "has not validated",
                         p->runs_ahead ? "has not" : "has");
}

static tutti_status_t check_head(const tutti_pipeline_t *p, const tt_letter_t *letter)
{
    const tt_mail_head_t *head = head_of(letter);
    TT_TRY(check_call(p, letter->peer, head));
    TT_TRY(check_verdict(p, letter));
    bool fits = head->stage == letter->stage && head->micro_batch == letter->micro_batch &&
                head->is_backward == letter->is_backward && head->count >= 0 &&
                head->count <= TT_WIDTH;
    for (int64_t i = 0; fits && i < head->count; i++) {
        fits = head->tensors[i].rank >= 0 && head->tensors[i].rank <= TUTTI_RANK_MAX;
    }
    return fits ? TUTTI_OK
                : TT_FAIL(TUTTI_ERR_MISMATCH,
                          "rank %d sent something else: is its pipeline the same, and in the same "
                          "step?",
                          letter->peer);
}

static tutti_status_t make_room(const tutti_pipeline_t *p, tt_letter_t *letter, int index)
{
    const tt_mail_head_t *head = head_of(letter);
    tutti_shape_t shape = {.rank = (int)head->tensors[index].rank};
    memcpy(shape.dims, head->tensors[index].dims, sizeof shape.dims);
    return (head->tensors[index].flags & IS_THERE) == 0
               ? TUTTI_OK
               : tt_tensor_new(p->ctx->cpu, (tutti_dtype_t)head->tensors[index].dtype, shape, false,
                               &letter->tensors[index]);
}

/* The head has come. */
static tutti_status_t post_tensors(tutti_pipeline_t *p, tt_letter_t *letter)
{
    int count = 0;
    tutti_transfer_t transfers[TT_WIDTH];
    TT_TRY(check_head(p, letter));
    tt_tensors_release(letter->tensors, TT_WIDTH);
    for (int i = 0; i < head_of(letter)->count; i++) {
        TT_TRY(make_room(p, letter, i));
        if (letter->tensors[i] != NULL && tutti_tensor_numel(letter->tensors[i]) > 0) {
            transfers[count++] = (tutti_transfer_t){
                .kind = TUTTI_RECV,
                .x = letter->tensors[i],
                .peer = letter->peer,
                .tag = tag_of(p, letter->stage, letter->micro_batch, letter->is_backward)};
        }
    }
    letter->is_posted = true;
    return count == 0 ? TUTTI_OK : tutti_batch_send_recv(p->group, transfers, count, &letter->work);
}

static tutti_status_t advance_letter(tutti_pipeline_t *p, tt_letter_t *letter)
{
    const bool is_new = letter->head_work == NULL;
    TT_TRY(post_head(p, letter));
    if (is_new || letter->work != NULL || !tutti_work_is_done(letter->head_work)) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_work_wait(letter->head_work, 0));
    return letter->is_posted ? TUTTI_OK : post_tensors(p, letter);
}

tutti_status_t tt_mail_advance(tutti_pipeline_t *p)
{
    tt_mail_t *mail = &p->mail;
    tutti_group_progress(p->group);
    drop_sent(mail, false);
    for (int i = mail->next, ahead = 0; i < mail->letter_count && ahead < AHEAD; i++) {
        if (!mail->letters[i].is_taken) {
            TT_TRY(advance_letter(p, &mail->letters[i]));
            ahead++;
        }
    }
    return TUTTI_OK;
}

static tt_letter_t *find_letter(tutti_pipeline_t *p, int stage, int micro_batch, bool is_backward)
{
    for (int i = p->mail.next; i < p->mail.letter_count; i++) {
        tt_letter_t *letter = &p->mail.letters[i];
        if (!letter->is_taken && letter->stage == stage && letter->micro_batch == micro_batch &&
            letter->is_backward == is_backward) {
            return letter;
        }
    }
    return NULL;
}

static tutti_status_t wait_for(tutti_pipeline_t *p, tt_letter_t *letter)
{
    p->place.peer = letter->peer;
    TT_TRY(post_head(p, letter));
    TT_TRY(tutti_work_wait(letter->head_work, 0));
    TT_TRY(letter->is_posted ? TUTTI_OK : post_tensors(p, letter));
    TT_TRY(letter->work == NULL ? TUTTI_OK : tutti_work_wait(letter->work, 0));
    p->place.peer = -1;
    return TUTTI_OK;
}

tutti_status_t tt_mail_take(tutti_pipeline_t *p, int stage, int micro_batch, bool is_backward,
                            tt_mail_head_t *head, tutti_tensor_t *tensors[TT_WIDTH])
{
    tt_letter_t *letter = find_letter(p, stage, micro_batch, is_backward);
    if (letter == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "the schedule receives nothing for it");
    }
    TT_TRY(tt_mail_advance(p));
    TT_TRY(wait_for(p, letter));
    letter->is_taken = true;
    pass_taken(p);
    TT_TRY(tt_mail_advance(p)); /* the next one is posted before this one is worked on */
    *head = *head_of(letter);
    memcpy(tensors, letter->tensors, sizeof letter->tensors);
    memset(letter->tensors, 0, sizeof letter->tensors);
    empty_letter(letter);
    return TUTTI_OK;
}

tutti_status_t tt_mail_drop(tutti_pipeline_t *p, tt_letter_t *letter)
{
    TT_TRY(wait_for(p, letter));
    empty_letter(letter);
    return TUTTI_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Contiguous, on the host. */
static tutti_tensor_t *as_sent(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_contiguous(s, tutti_tensor_to(s, tutti_detach(s, x), NULL));
}

static void describe(tt_mail_head_t *head, int index, const tutti_tensor_t *x)
{
    const tutti_shape_t shape = tutti_tensor_shape(x);
    head->tensors[index].flags |= IS_THERE;
    head->tensors[index].dtype = tutti_tensor_dtype(x);
    head->tensors[index].rank = shape.rank;
    memcpy(head->tensors[index].dims, shape.dims, sizeof shape.dims);
}

static tutti_status_t make_head(const tutti_pipeline_t *p, tutti_scope_t *s,
                                const tt_mail_head_t *head, tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(p->ctx->cpu, TUTTI_U8, TUTTI_SHAPE((int64_t)sizeof *head), false, &x));
    memcpy(tutti_tensor_data(x), head, sizeof *head);
    *out = tt_scope_adopt(s, TUTTI_OK, x);
    return tutti_tensor_status(*out);
}

static tutti_status_t keep_sent(tutti_pipeline_t *p, const tutti_transfer_t *transfers, int count)
{
    tt_mail_t *mail = &p->mail;
    if (mail->sent_count == mail->sent_capacity) {
        const int capacity = mail->sent_capacity == 0 ? 8 : 2 * mail->sent_capacity;
        tt_sent_t *sent = tt_realloc(mail->sent, (size_t)capacity * sizeof *sent, "pipeline sends");
        TT_TRY_ALLOC(sent);
        mail->sent = sent;
        mail->sent_capacity = capacity;
    }
    tt_sent_t *sent = &mail->sent[mail->sent_count];
    TT_TRY(tutti_batch_send_recv(p->group, transfers, count, &sent->work));
    mail->sent_count++;
    return TUTTI_OK;
}

tutti_status_t tt_mail_send(tutti_pipeline_t *p, tutti_scope_t *s, tt_mail_head_t *head,
                            tutti_tensor_t *const *tensors, int peer)
{
    int count = 1;
    const int tag = tag_of(p, (int)head->stage, (int)head->micro_batch, head->is_backward != 0);
    tutti_transfer_t transfers[TT_WIDTH + 1];
    for (int i = 0; i < head->count; i++) {
        if (tensors[i] == NULL) {
            continue;
        }
        tutti_tensor_t *x = as_sent(s, tensors[i]);
        TT_TRY(tutti_tensor_status(x));
        describe(head, i, x);
        if (tutti_tensor_numel(x) > 0) {
            transfers[count++] = (tutti_transfer_t){TUTTI_SEND, x, peer, tag};
            p->stats.messages++;
            p->stats.sent_bytes += (int64_t)tutti_tensor_bytes(x);
        }
    }
    head->call = p->call;
    head->batches = p->call_batches;
    head->runs_ahead = p->runs_ahead;
    transfers[0] = (tutti_transfer_t){.kind = TUTTI_SEND, .peer = peer, .tag = tag};
    TT_TRY(make_head(p, s, head, &transfers[0].x));
    p->place.peer = peer;
    TT_TRY(keep_sent(p, transfers, count));
    p->place.peer = -1;
    return tt_mail_advance(p);
}

tutti_status_t tt_mail_end_step(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->mail.sent_count; i++) {
        TT_TRY(tutti_work_wait(p->mail.sent[i].work, 0));
    }
    drop_sent(&p->mail, true);
    return TUTTI_OK;
}
