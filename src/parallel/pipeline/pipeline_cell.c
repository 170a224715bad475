/* Cells: one micro-batch in one stage, from its forward to its backward.
 *
 *     inputs ──► segment 0 ──► leaves ──► segment 1 ──► outputs        forward, in the cell's scope
 *     grads  ◄── segment 0 ◄── leaves ◄── segment 1 ◄── grads          whole, or inputs alone and
 *                                                                      weights later
 *
 * Where the next stage is this rank's, too, its inputs are put into its cell at once, and gradients
 * back into this one's; else they travel (pipeline_mail.c). Most stages have one segment
 * (pipeline_ties.c).
 */
#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include <string.h>

#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_versions.h"

enum { CALL_BITS = 20, PART_BITS = 20, NEEDS_GRAD = 1, IS_THERE = 2 };

static tt_segment_t *last_segment(const tt_stage_t *stage, const tt_cell_t *cell)
{
    return &cell->segments[stage->segment_count - 1];
}

/* Random numbers of a part are named by it and by the micro-batch, whatever runs on this rank. */
static void name_randoms(tutti_pipeline_t *p, int micro_batch, int part)
{
    p->ctx->random_calls =
        (((uint64_t)(micro_batch % p->cut_into) + 1) << (PART_BITS + CALL_BITS)) |
        ((uint64_t)part << CALL_BITS);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A stage's parts between two cuts. */
static void lay_segments(const tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell)
{
    int at = -1;
    memset(cell->segments, 0, (size_t)stage->segment_count * sizeof *cell->segments);
    for (int i = stage->first; i < stage->end; i++) {
        at += p->chain.parts[i].begins_segment;
        if (p->chain.parts[i].begins_segment) {
            cell->segments[at].first = i;
        }
        cell->segments[at].end = i + 1;
    }
}

static tutti_status_t open_cell(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell)
{
    if (cell->scope != NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_scope_open(p->ctx, &cell->scope));
    lay_segments(p, stage, cell);
    p->live++;
    p->stats.live_max = p->live > p->stats.live_max ? p->live : p->stats.live_max;
    return TUTTI_OK;
}

tutti_status_t tt_cell_close(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch)
{
    tt_cell_t *cell = &stage->cells[micro_batch];
    if (cell->scope == NULL) {
        return TUTTI_OK;
    }
    for (int i = 0; i < stage->segment_count; i++) {
        tutti_backward_release(cell->segments[i].run);
        cell->segments[i].run = NULL;
    }
    tutti_scope_t *scope = cell->scope;
    cell->scope = NULL;
    p->live--;
    return tutti_scope_close(scope);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The micro-batch's rows, where this rank computes. */
static tutti_tensor_t *rows_of(tutti_pipeline_t *p, const tt_cell_t *cell, int micro_batch,
                               tutti_tensor_t *x)
{
    const int64_t few = cell->total / p->cut_into, more = cell->total % p->cut_into,
                  before = micro_batch % p->cut_into;
    const int64_t first = before * few + (before < more ? before : more);
    tutti_tensor_t *rows =
        tutti_narrow(cell->scope, tutti_detach(cell->scope, x), 0, first, cell->rows);
    return tutti_tensor_to(cell->scope, rows, tutti_context_device(p->ctx));
}

static void read_batch(tutti_pipeline_t *p, tt_cell_t *cell, int micro_batch)
{
    tt_segment_t *first = &cell->segments[0];
    const tutti_pipeline_batch_t *batch = tt_batch_of(p, micro_batch);
    cell->total = tutti_tensor_dim(batch->inputs[0], 0);
    cell->rows = tt_micro_batch_rows(p, cell->total, micro_batch);
    first->input_count = batch->input_count;
    for (int i = 0; i < first->input_count; i++) {
        first->inputs[i] = rows_of(p, cell, micro_batch, batch->inputs[i]);
    }
}

static tutti_status_t mark_leaf(const tutti_pipeline_t *p, tutti_tensor_t *x, bool needs_grad)
{
    return p->trains && needs_grad ? tutti_tensor_set_requires_grad(x, true) : TUTTI_OK;
}

static tutti_status_t read_mail(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                int micro_batch)
{
    tt_mail_head_t head;
    tt_segment_t *first = &cell->segments[0];
    TT_TRY(tt_mail_take(p, stage->index, micro_batch, false, &head, first->inputs));
    cell->rows = head.rows;
    cell->total = head.total;
    first->input_count = (int)head.count;
    for (int i = 0; i < first->input_count; i++) {
        first->inputs[i] = tt_scope_adopt(cell->scope, TUTTI_OK, first->inputs[i]);
    }
    for (int i = 0; i < first->input_count; i++) {
        first->inputs[i] =
            tutti_tensor_to(cell->scope, first->inputs[i], tutti_context_device(p->ctx));
        TT_TRY(tutti_tensor_status(first->inputs[i]));
        TT_TRY(mark_leaf(p, first->inputs[i], (head.tensors[i].flags & NEEDS_GRAD) != 0));
    }
    return TUTTI_OK;
}

/* Those of a stage of this rank came when the one before ran. */
static tutti_status_t read_inputs(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                  int micro_batch)
{
    if (stage->index == 0) {
        read_batch(p, cell, micro_batch);
        return TUTTI_OK;
    }
    return tt_rank_of_stage(p, stage->index - 1) == p->rank
               ? TUTTI_OK
               : read_mail(p, stage, cell, micro_batch);
}

/* The same values, as leaves of a graph of their own in another scope. */
static tutti_status_t hand_on(const tutti_pipeline_t *p, tutti_scope_t *s, const tt_segment_t *from,
                              tt_segment_t *to)
{
    to->input_count = from->output_count;
    for (int i = 0; i < to->input_count; i++) {
        to->inputs[i] = tutti_detach(s, from->outputs[i]);
        TT_TRY(tutti_tensor_status(to->inputs[i]));
        TT_TRY(mark_leaf(p, to->inputs[i], tutti_tensor_requires_grad(from->outputs[i])));
    }
    return TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void call_part(tutti_pipeline_t *p, tutti_scope_t *s, int index, int micro_batch,
                      tutti_tensor_t *tensors[TT_WIDTH], int *count)
{
    const tt_part_t *part = &p->chain.parts[index];
    tutti_tensor_t *outputs[TT_WIDTH];
    name_randoms(p, micro_batch, index);
    (part->is_recomputed || p->options.recompute ? tutti_recompute_many : tutti_forward_many)(
        s, part->module, tensors, *count, outputs, part->outputs);
    memcpy(tensors, outputs, (size_t)part->outputs * sizeof *outputs);
    *count = part->outputs;
}

static tutti_status_t run_segment(tutti_pipeline_t *p, tutti_scope_t *s, tt_segment_t *segment,
                                  int micro_batch)
{
    segment->output_count = segment->input_count;
    memcpy(segment->outputs, segment->inputs, sizeof segment->inputs);
    for (int i = segment->first; i < segment->end && tutti_scope_status(s) >= 0; i++) {
        call_part(p, s, i, micro_batch, segment->outputs, &segment->output_count);
    }
    return tutti_scope_status(s);
}

static double weight_of(const tutti_pipeline_t *p, const tt_cell_t *cell)
{
    return p->options.loss_is_sum ? 1 : (double)cell->rows / (double)cell->total;
}

/* Of its gradient: the micro-batches of an update are a batch. */
static double slope_of(const tutti_pipeline_t *p, const tt_cell_t *cell, int micro_batch)
{
    return p->options.loss_is_sum
               ? 1
               : (double)cell->rows / (double)tt_update_rows(p, cell->total, micro_batch);
}

static tutti_status_t check_loss(const tutti_pipeline_t *p, tutti_tensor_t *loss)
{
    char text[192];
    TT_TRY(tutti_tensor_status(loss));
    if (tutti_tensor_numel(loss) != 1 || !tutti_dtype_is_float(tutti_tensor_dtype(loss))) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "the loss is %s: it must be one floating number",
                       tutti_tensor_describe(loss, text, sizeof text));
    }
    return !p->trains || tutti_tensor_requires_grad(loss)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "the loss depends on no parameter that learns, and on no "
                                          "output of the last part that does");
}

static tutti_status_t check_targets(const tutti_pipeline_batch_t *batch, const tt_cell_t *cell)
{
    for (int i = 0; i < batch->target_count; i++) {
        if (tutti_tensor_dim(batch->targets[i], 0) != cell->total) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "target %d has %lld rows, and the inputs have %lld", i,
                           (long long)tutti_tensor_dim(batch->targets[i], 0),
                           (long long)cell->total);
        }
    }
    return TUTTI_OK;
}

/* It becomes the only output, which has a gradient: its weight. */
static tutti_status_t run_loss(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                               int micro_batch)
{
    tutti_tensor_t *targets[TT_WIDTH];
    tt_segment_t *last = last_segment(stage, cell);
    const tutti_pipeline_batch_t *batch = tt_batch_of(p, micro_batch);
    TT_TRY(check_targets(batch, cell));
    for (int i = 0; i < batch->target_count; i++) {
        targets[i] = rows_of(p, cell, micro_batch, batch->targets[i]);
    }
    TT_TRY(tutti_scope_status(cell->scope));
    name_randoms(p, micro_batch, p->chain.count);
    tutti_tensor_t *loss = p->options.loss(cell->scope, last->outputs, last->output_count, targets,
                                           batch->target_count, p->options.loss_user);
    if (loss == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "the loss function gave NULL");
    }
    TT_TRY(check_loss(p, loss));
    const double weight = weight_of(p, cell);
    cell->loss = weight * tutti_tensor_item(loss);
    last->outputs[0] = loss;
    last->output_count = 1;
    last->grads[0] = !p->trains
                         ? NULL
                         : tutti_full(cell->scope, tutti_tensor_dtype(loss),
                                      tutti_tensor_shape(loss), slope_of(p, cell, micro_batch));
    return tutti_scope_status(cell->scope);
}

static tutti_status_t send_outputs(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                   int micro_batch)
{
    const tt_segment_t *last = last_segment(stage, cell);
    tt_mail_head_t head = {.stage = stage->index + 1,
                           .micro_batch = micro_batch,
                           .rows = cell->rows,
                           .total = cell->total,
                           .count = last->output_count};
    for (int i = 0; i < last->output_count; i++) {
        head.tensors[i].flags = tutti_tensor_requires_grad(last->outputs[i]) ? NEEDS_GRAD : 0;
    }
    return tt_mail_send(p, cell->scope, &head, last->outputs,
                        tt_rank_of_stage(p, stage->index + 1));
}

static tutti_status_t give_outputs(tutti_pipeline_t *p, tt_stage_t *stage, tt_cell_t *cell,
                                   int micro_batch)
{
    if (stage->index + 1 == p->stages) {
        return TUTTI_OK;
    }
    tt_stage_t *next = tt_pipeline_stage(p, stage->index + 1);
    if (next == NULL) {
        return send_outputs(p, stage, cell, micro_batch);
    }
    tt_cell_t *to = &next->cells[micro_batch];
    TT_TRY(open_cell(p, next, to));
    to->rows = cell->rows;
    to->total = cell->total;
    return hand_on(p, to->scope, last_segment(stage, cell), &to->segments[0]);
}

static tutti_status_t run_stage(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                int micro_batch)
{
    TT_TRY(tutti_scope_status(cell->scope));
    for (int i = 0; i < stage->segment_count; i++) {
        if (i > 0) {
            TT_TRY(hand_on(p, cell->scope, &cell->segments[i - 1], &cell->segments[i]));
        }
        TT_TRY(run_segment(p, cell->scope, &cell->segments[i], micro_batch));
    }
    return stage->index + 1 == p->stages ? run_loss(p, stage, cell, micro_batch) : TUTTI_OK;
}

tutti_status_t tt_cell_forward(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch)
{
    tt_cell_t *cell = &stage->cells[micro_batch];
    TT_TRY(open_cell(p, stage, cell));
    TT_TRY(read_inputs(p, stage, cell, micro_batch));
    TT_TRY(run_stage(p, stage, cell, micro_batch));
    TT_TRY(tt_stage_check_outputs(p, stage, micro_batch));
    return give_outputs(p, stage, cell, micro_batch);
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t read_grads(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                 int micro_batch)
{
    tt_mail_head_t head;
    tt_segment_t *last = last_segment(stage, cell);
    if (stage->index + 1 == p->stages || tt_rank_of_stage(p, stage->index + 1) == p->rank) {
        return TUTTI_OK; /* they are there */
    }
    TT_TRY(tt_mail_take(p, stage->index, micro_batch, true, &head, last->grads));
    for (int i = 0; i < last->output_count; i++) {
        if (last->grads[i] != NULL) {
            last->grads[i] = tt_scope_adopt(cell->scope, TUTTI_OK, last->grads[i]);
        }
    }
    for (int i = 0; i < last->output_count; i++) {
        if (last->grads[i] != NULL) {
            last->grads[i] =
                tutti_tensor_to(cell->scope, last->grads[i], tutti_context_device(p->ctx));
            TT_TRY(tutti_tensor_status(last->grads[i]));
        }
    }
    return TUTTI_OK;
}

static int list_roots(const tt_segment_t *segment, tutti_root_t roots[TT_WIDTH])
{
    int count = 0;
    for (int i = 0; i < segment->output_count; i++) {
        if (segment->grads[i] != NULL && tutti_tensor_requires_grad(segment->outputs[i])) {
            roots[count++] =
                (tutti_root_t){.tensor = segment->outputs[i], .grad_output = segment->grads[i]};
        }
    }
    return count;
}

static tutti_status_t run_whole(tutti_scope_t *s, tt_segment_t *segment)
{
    tutti_root_t roots[TT_WIDTH];
    const int count = list_roots(segment, roots);
    if (count > 0) {
        TT_TRY(tutti_backward_many(s, roots, count, NULL));
    }
    for (int i = 0; i < segment->input_count; i++) {
        segment->input_grads[i] = tutti_tensor_grad(segment->inputs[i]);
    }
    return TUTTI_OK;
}

/* Where no input needs a gradient, all is left to the second turn. */
static tutti_status_t run_inputs(tutti_scope_t *s, tt_segment_t *segment)
{
    tutti_root_t roots[TT_WIDTH];
    tutti_tensor_t *wanted[TT_WIDTH], *grads[TT_WIDTH];
    const int count = list_roots(segment, roots);
    int wanted_count = 0;
    for (int i = 0; i < segment->input_count; i++) {
        if (tutti_tensor_requires_grad(segment->inputs[i])) {
            wanted[wanted_count++] = segment->inputs[i];
        }
    }
    if (count == 0 || wanted_count == 0) {
        return TUTTI_OK;
    }
    TT_TRY(
        tutti_backward_inputs(s, roots, count, NULL, wanted, wanted_count, grads, &segment->run));
    for (int i = 0, k = 0; i < segment->input_count; i++) {
        if (k < wanted_count && segment->inputs[i] == wanted[k]) {
            segment->input_grads[i] = grads[k++];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t run_weights(tutti_scope_t *s, tt_segment_t *segment)
{
    if (segment->run == NULL) {
        return run_whole(s, segment);
    }
    tutti_backward_run_t *run = segment->run;
    segment->run = NULL;
    return tutti_backward_weights(run);
}

static tutti_status_t run_turn(tutti_pipeline_t *p, tutti_scope_t *s, tt_segment_t *segment,
                               tt_turn_t turn, int shard)
{
    if (turn == TT_TURN_INPUTS) {
        return run_inputs(s, segment);
    }
    tutti_status_t status = tt_ties_enter(p, segment->first, segment->end, shard);
    if (status >= 0) {
        status = (turn == TT_TURN_WHOLE ? run_whole : run_weights)(s, segment);
    }
    tt_ties_leave(p, segment->first, segment->end, shard);
    return status;
}

/* From the last segment to the first. */
static tutti_status_t run_segments(tutti_pipeline_t *p, const tt_stage_t *stage, int micro_batch,
                                   tt_turn_t turn)
{
    tt_cell_t *cell = &stage->cells[micro_batch];
    for (int i = stage->segment_count - 1; i >= 0; i--) {
        tt_segment_t *segment = &cell->segments[i];
        TT_TRY(run_turn(p, cell->scope, segment, turn, tt_shard_of(p, micro_batch)));
        for (int k = 0; i > 0 && turn != TT_TURN_WEIGHTS && k < segment->input_count; k++) {
            segment[-1].grads[k] = segment->input_grads[k];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t send_grads(tutti_pipeline_t *p, const tt_stage_t *stage, tt_cell_t *cell,
                                 int micro_batch)
{
    const tt_segment_t *first = &cell->segments[0];
    tt_mail_head_t head = {.stage = stage->index - 1,
                           .micro_batch = micro_batch,
                           .is_backward = 1,
                           .rows = cell->rows,
                           .total = cell->total,
                           .count = first->input_count};
    return tt_mail_send(p, cell->scope, &head, first->input_grads,
                        tt_rank_of_stage(p, stage->index - 1));
}

/* To the stage before. */
static tutti_status_t give_grads(tutti_pipeline_t *p, tt_stage_t *stage, tt_cell_t *cell,
                                 int micro_batch)
{
    if (stage->index == 0) {
        return TUTTI_OK;
    }
    tt_stage_t *before = tt_pipeline_stage(p, stage->index - 1);
    if (before == NULL) {
        return send_grads(p, stage, cell, micro_batch);
    }
    tt_cell_t *to = &before->cells[micro_batch];
    tt_segment_t *last = last_segment(before, to);
    for (int i = 0; i < cell->segments[0].input_count; i++) {
        tutti_tensor_t *grad = cell->segments[0].input_grads[i];
        if (grad != NULL) {
            last->grads[i] = tt_scope_adopt(to->scope, TUTTI_OK, tutti_tensor_retain(grad));
            TT_TRY(tutti_tensor_status(last->grads[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t run_graph(tutti_pipeline_t *p, const tt_stage_t *stage, int micro_batch,
                                tt_turn_t turn)
{
    const int shard = tt_shard_of(p, micro_batch);
    if (turn == TT_TURN_INPUTS) {
        return run_segments(p, stage, micro_batch, turn);
    }
    const tutti_status_t status = tt_shards_enter(p, stage, shard);
    const tutti_status_t ran = status < 0 ? status : run_segments(p, stage, micro_batch, turn);
    tt_shards_leave(p, stage, shard);
    return ran;
}

tutti_status_t tt_cell_backward(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch,
                                tt_turn_t turn)
{
    tt_cell_t *cell = &stage->cells[micro_batch];
    if (turn != TT_TURN_WEIGHTS) {
        TT_TRY(read_grads(p, stage, cell, micro_batch));
    }
    TT_TRY(run_graph(p, stage, micro_batch, turn));
    TT_TRY(tutti_scope_status(cell->scope));
    if (turn != TT_TURN_WEIGHTS) {
        TT_TRY(give_grads(p, stage, cell, micro_batch));
    }
    return turn == TT_TURN_INPUTS ? TUTTI_OK : tt_cell_close(p, stage, micro_batch);
}
