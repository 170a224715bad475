/* The state of a run: its visits, what of the graph it is to do, and its roots. See backward_run.h.
 */
#include "compute/autograd/backward_run.h"

#include <stdlib.h>
#include <tutti/modes.h>
#include <tutti/op_math.h>

#include "compute/autograd/cast.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"

/* Visits stay where they are, for others point to them. */
enum { CHUNK_BYTES = 12288 };

struct tt_visit_chunk {
    tt_visit_chunk_t *next;
    size_t bytes, used;
    void *room[];
};

/* ---- visits ---------------------------------------------------------------------------------- */

static tutti_status_t new_visit(tt_run_t *run, const tt_node_t *node, tt_visit_t **out)
{
    const size_t bytes = sizeof(tt_visit_t) + (size_t)node->output_count * sizeof(tutti_tensor_t *);
    tt_visit_chunk_t *chunk = run->chunks;
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        const size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = tt_alloc(sizeof *chunk + room, "backward");
        TT_TRY_ALLOC(chunk);
        chunk->bytes = room;
        chunk->next = run->chunks;
        run->chunks = chunk;
    }
    *out = (tt_visit_t *)((char *)chunk->room + chunk->used);
    chunk->used += bytes;
    return TUTTI_OK;
}

/* The run's visit of a node, made if it has not come there before. */
static tutti_status_t visit_node(tt_run_t *run, tt_node_t *node, tt_visit_t **out)
{
    *out = tt_visit_of(node, run);
    if (*out != NULL) {
        return TUTTI_OK;
    }
    tt_visit_t *visit;
    TT_TRY(new_visit(run, node, &visit));
    visit->node = tt_node_retain(node);
    visit->run = run;
    visit->other = node->visits;
    node->visits = visit;
    *run->end = visit;
    run->end = &visit->next;
    run->visit_count++;
    *out = visit;
    return TUTTI_OK;
}

static void leave_node(tt_visit_t *visit)
{
    tt_visit_t **at = &visit->node->visits;
    while (*at != visit) {
        at = &(*at)->other;
    }
    *at = visit->other;
    for (int i = 0; i < visit->node->output_count; i++) {
        tutti_tensor_release(visit->grads[i]);
    }
    tt_saved_forget(&visit->node->saved, visit->run);
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static bool is_captured(const tt_run_t *run, const tt_node_t *node)
{
    for (int i = 0; i < run->input_count; i++) {
        if (run->inputs[i].node == node) {
            return true;
        }
    }
    return false;
}

/* For each node how many gradients it will receive. Visits that are made are looked at in turn. */
static tutti_status_t discover(tt_run_t *run)
{
    for (const tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        const tt_node_t *node = visit->node;
        if (run->ends_at_inputs && is_captured(run, node)) {
            continue;
        }
        for (int k = 0; k < node->input_count; k++) {
            tt_visit_t *input;
            if (node->edges[k].node != NULL) {
                TT_TRY(visit_node(run, node->edges[k].node, &input));
                input->pending++;
            }
        }
    }
    return TUTTI_OK;
}

static int compare_sequences(const void *a, const void *b)
{
    const uint64_t x = (*(tt_visit_t *const *)a)->node->sequence;
    const uint64_t y = (*(tt_visit_t *const *)b)->node->sequence;
    return (x > y) - (x < y);
}

static void mark_all(const tt_run_t *run)
{
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        visit->is_wanted = true;
        visit->is_to_run = visit->node->leaf == NULL;
    }
}

static bool is_input_wanted(const tt_run_t *run, const tt_node_t *node)
{
    for (int k = 0; k < node->input_count; k++) {
        if (tt_edge_is_wanted(run, node->edges[k])) {
            return true;
        }
    }
    return false;
}

/* Only nodes from which an input can be reached run; that of an input itself only if it leads to
 * another one. Inputs of a node are accumulators, or were made before it, so one pass in the order
 * of creation finds them. */
static tutti_status_t mark_captured(const tt_run_t *run)
{
    tt_visit_t **sorted = tt_alloc_array(run->visit_count, sizeof *sorted, "backward");
    TT_TRY_ALLOC(sorted);
    size_t count = 0;
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        visit->is_wanted = is_captured(run, visit->node);
        sorted[count++] = visit;
    }
    qsort(sorted, count, sizeof *sorted, compare_sequences);
    for (size_t i = 0; i < count; i++) {
        const bool is_end = run->ends_at_inputs && sorted[i]->is_wanted;
        sorted[i]->is_to_run = !is_end && is_input_wanted(run, sorted[i]->node);
        sorted[i]->is_wanted = sorted[i]->is_wanted || sorted[i]->is_to_run;
    }
    tt_free(sorted);
    return TUTTI_OK;
}

static tutti_status_t mark(const tt_run_t *run)
{
    if (run->captures) {
        TT_TRY(mark_captured(run));
    } else {
        mark_all(run);
    }
    for (const tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        if (visit->is_to_run || run->defers) {
            TT_TRY(tt_node_check_kept(visit->node));
        }
    }
    return TUTTI_OK;
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* The same, recorded; a sum of gradients is looked at in neither way. */
static tutti_status_t add_recorded(tutti_scope_t *s, tutti_tensor_t **slot, tutti_tensor_t *grad)
{
    const bool detects = tutti_context_set_detect_anomaly(s->ctx, false);
    tutti_tensor_t *sum = tutti_add(s, *slot, grad);
    (void)tutti_context_set_detect_anomaly(s->ctx, detects);
    TT_TRY(sum->status);
    tutti_tensor_release(*slot);
    *slot = tutti_tensor_retain(sum);
    return TUTTI_OK;
}

tutti_status_t tt_run_add_grad(const tt_run_t *run, tutti_scope_t *s, tutti_tensor_t **slot,
                               tutti_tensor_t *grad)
{
    if (*slot == NULL) {
        *slot = tutti_tensor_retain(grad);
        return TUTTI_OK;
    }
    if (run->options.create_graph) {
        return add_recorded(s, slot, grad);
    }
    tutti_tensor_t *old = *slot, *sum = old;
    const bool is_sole = tt_grad_is_sole(old);
    if (!is_sole) {
        TT_TRY(tt_tensor_new(tt_memory_of(s->ctx, old), old->dtype, old->shape, false, &sum));
    }
    const tt_strided_t out = tt_tensor_strided(sum), a = tt_tensor_strided(old),
                       b = tt_tensor_strided(grad);
    const tutti_status_t status = tt_map_binary(tt_tensor_exec(s->ctx, old), TT_BINARY_ADD,
                                                (tt_map_params_t){0}, &out, &a, &b);
    if (!is_sole) {
        tutti_tensor_release(status < 0 ? sum : old);
        *slot = status < 0 ? old : sum;
    }
    return status;
}

/* Whether a leaf accumulates into the memory of this tensor, which others have still to receive. */
static bool is_accumulated_into(const tt_run_t *run, const tutti_tensor_t *grad)
{
    for (const tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        const tutti_tensor_t *leaf = visit->node->leaf;
        const tt_autograd_t *a = leaf == NULL ? NULL : tt_autograd_of(leaf);
        if (a != NULL && a->grad != NULL && a->grad->storage == grad->storage) {
            return true;
        }
    }
    return false;
}

static tutti_tensor_t *copy_of(tutti_scope_t *s, tutti_tensor_t *grad)
{
    tutti_tensor_t *copy = tutti_tensor_retain(grad);
    const tutti_status_t status = tt_grad_own(s->ctx, &copy); /* not ours alone, so it copies */
    if (status < 0) {
        tutti_tensor_release(copy);
        copy = NULL;
    }
    return tt_scope_adopt(s, status, copy);
}

static tutti_status_t seed(tt_run_t *run, tt_run_root_t *root, tutti_tensor_t *grad)
{
    char want[160], got[192];
    const tutti_spec_t y = root->visit->node->outputs[root->output];
    if (grad != NULL && !tutti_shape_equal(grad->shape, y.shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "backward: the gradient %s does not have the shape %s",
                       tutti_tensor_describe(grad, got, sizeof got),
                       tutti_shape_format(y.shape, want, sizeof want));
    }
    if (grad == NULL && tutti_shape_numel(y.shape) != 1) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "backward wants a scalar, not the shape %s: sum it, or pass a gradient of "
                       "its shape",
                       tutti_shape_format(y.shape, want, sizeof want));
    }
    if (grad != NULL) {
        TT_TRY(tt_tensor_check(grad));
        TT_TRY(
            tt_grad_check_place("backward", grad, tt_node_place(root->visit->node, root->output)));
    }
    if (grad == NULL) {
        grad = tutti_ones(run->scope, y.dtype, y.shape);
    } else if (grad->dtype != y.dtype) {
        grad = tt_cast_grad(run->scope, grad, y.dtype);
    } else if (!run->options.create_graph && is_accumulated_into(run, grad)) {
        grad = copy_of(run->scope, grad);
    }
    TT_TRY(grad->status);
    if (root->is_awaited) {
        root->late = tutti_tensor_retain(grad);
        return TUTTI_OK;
    }
    return tt_run_add_grad(run, run->scope, &root->visit->grads[root->output], grad);
}

tutti_status_t tt_run_seed(tt_run_t *run, tt_run_root_t *root, tutti_tensor_t *grad)
{
    tutti_context_t *ctx = run->scope->ctx;
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, run->options.create_graph);
    const tt_place_t before = tt_context_enter(ctx, tt_node_place(root->visit->node, root->output));
    const tutti_status_t status = seed(run, root, grad);
    ctx->place = before;
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    return status;
}

tutti_status_t tt_run_add_late(tt_run_t *run, tt_visit_t *visit)
{
    for (int i = 0; i < run->root_count; i++) {
        tt_run_root_t *root = &run->roots[i];
        if (root->visit == visit && root->late != NULL) {
            tutti_tensor_t *late = root->late;
            root->late = NULL;
            const tutti_status_t status =
                tt_run_add_grad(run, run->scope, &visit->grads[root->output], late);
            tutti_tensor_release(late);
            TT_TRY(status);
        }
    }
    return TUTTI_OK;
}

/* The caller owns a reference to the edge's node. */
static tutti_status_t find_edge(tutti_tensor_t *y, tt_edge_t *out)
{
    TT_TRY(tt_tensor_status(y));
    TT_TRY(tt_edge_of(y, out));
    if (out->node == NULL) {
        char text[192];
        return TT_FAIL(TUTTI_ERR_STATE,
                       "backward: %s needs no gradient: no tensor that it depends on does, or "
                       "recording was off",
                       tutti_tensor_describe(y, text, sizeof text));
    }
    return TUTTI_OK;
}

static tutti_status_t add_root(tt_run_t *run, const tutti_root_t *root)
{
    tt_edge_t edge;
    tt_run_root_t *own = &run->roots[run->root_count];
    TT_TRY(find_edge(root->tensor, &edge));
    const tutti_status_t status = visit_node(run, edge.node, &own->visit);
    tt_node_release(edge.node);
    TT_TRY(status);
    own->output = edge.output;
    own->is_awaited = root->is_awaited;
    own->visit->pending += root->is_awaited;
    run->root_count++;
    return TUTTI_OK;
}

const char *tt_run_root_name(const tt_run_t *run, int root)
{
    return tt_node_name(run->roots[root].visit->node);
}

void tt_run_note_awaited(tt_run_t *run)
{
    run->awaited = 0;
    run->awaited_count = 0;
    for (int i = 0; i < run->root_count; i++) {
        const tt_node_t *node = run->roots[i].visit->node;
        run->awaited_count += run->roots[i].is_awaited;
        if (run->roots[i].is_awaited && node->leaf == NULL && node->sequence > run->awaited) {
            run->awaited = node->sequence;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tutti_status_t seed_roots(tt_run_t *run, const tutti_root_t *roots)
{
    for (int i = 0; i < run->root_count; i++) {
        if (!roots[i].is_awaited) {
            TT_TRY(tt_run_seed(run, &run->roots[i], roots[i].grad_output));
        }
    }
    return TUTTI_OK;
}

/* What has all gradients. A root is once there, however often it was named. */
static void push_complete(tt_run_t *run)
{
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        if (visit->pending == 0 && visit->is_wanted) {
            tt_ready_push(&run->ready, visit);
        }
    }
}

tutti_status_t tt_run_open(tt_run_t *run, const tutti_root_t *roots, int root_count)
{
    run->end = &run->first;
    run->roots = tt_alloc_array((size_t)root_count, sizeof *run->roots, "backward");
    TT_TRY_ALLOC(run->roots);
    for (int i = 0; i < root_count; i++) {
        TT_TRY(add_root(run, &roots[i]));
    }
    TT_TRY(discover(run));
    TT_TRY(mark(run));
    TT_TRY(seed_roots(run, roots));
    run->ready.visits = tt_alloc_array(run->visit_count, sizeof(tt_visit_t *), "backward");
    TT_TRY_ALLOC(run->ready.visits);
    tt_run_note_awaited(run);
    push_complete(run);
    return TUTTI_OK;
}

tutti_status_t tt_run_capture(tt_run_t *run, tutti_tensor_t *const *inputs, int count)
{
    run->captures = true;
    run->inputs = tt_alloc_array((size_t)count, sizeof *run->inputs, "backward");
    run->captured = tt_alloc_array((size_t)count, sizeof(tutti_tensor_t *), "backward");
    if (run->inputs == NULL || run->captured == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    for (; run->input_count < count; run->input_count++) {
        tutti_tensor_t *x = inputs[run->input_count];
        TT_TRY(tt_tensor_status(x));
        TT_TRY(tt_edge_of(x, &run->inputs[run->input_count]));
        if (run->inputs[run->input_count].node == NULL) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "grad: input %d needs no gradient: mark it with "
                           "tutti_tensor_set_requires_grad",
                           run->input_count);
        }
    }
    return TUTTI_OK;
}

void tt_run_turn(tt_run_t *run)
{
    run->captures = run->defers = false;
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        visit->is_wanted = !visit->is_wanted;
    }
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        visit->is_to_run = is_input_wanted(run, visit->node);
        if (visit->is_complete && visit->is_to_run) {
            tt_ready_push(&run->ready, visit);
        }
    }
    push_complete(run);
}

void tt_run_close(tt_run_t *run)
{
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        leave_node(visit);
    }
    for (tt_visit_t *visit = run->first; visit != NULL; visit = visit->next) {
        tt_node_release(visit->node);
    }
    while (run->chunks != NULL) {
        tt_visit_chunk_t *next = run->chunks->next;
        tt_free(run->chunks);
        run->chunks = next;
    }
    for (int i = 0; i < run->input_count; i++) {
        tt_node_release(run->inputs[i].node);
        tutti_tensor_release(run->captured[i]);
    }
    for (int i = 0; i < run->root_count; i++) {
        tutti_tensor_release(run->roots[i].late);
    }
    tt_free(run->ready.visits);
    tt_free(run->roots);
    tt_free(run->inputs);
    tt_free(run->captured);
}
