/* Several shards in one row.
 *
 *     row        0B1 4B3 0B2 4B4 0B3 …     two stages, 4 micro-batches a shard: 4B4 is shard 1's
 *     DDP        shard 0 ──────────── 1     takes one after the other: each has its turn
 *     waiting         stage 4, shard 1 ►    gradients whose shard's turn it is not, until it is
 *
 * A turn ends when all stages of this rank have their last B or W of the shard. While a backward of
 * another shard runs, its gradients stand in the parameters' places. So sums have the order of one
 * shard after the other, whatever the row's order is, and what waits is copied once.
 *
 * Running statistics: a shard begins with those that the step found, on every stage; what the first
 * shard with data leaves is the step's. A buffer has one shard's values at a time, and those of
 * another unfinished one wait.
 */
#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_tied(const tutti_pipeline_t *p, const tutti_tensor_t *x)
{
    bool is = false;
    for (int t = 0; t < p->tie_count; t++) {
        is |= p->ties[t].tensor == x;
    }
    return is;
}

typedef struct {
    tutti_pipeline_t *p;
    tt_stage_t *stage;
} list_t;

static bool has(const int *list, int count, int index)
{
    int i = 0;
    while (i < count && list[i] != index) {
        i++;
    }
    return i < count;
}

/* Once in the list of its kind, if it may wait. */
static tutti_status_t list_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    const list_t *at = user;
    tutti_pipeline_t *p = at->p;
    int i = 0;
    while (i < p->tensor_count && p->params[i].tensor != x) {
        i++;
    }
    if (i < p->param_count) {
        if (!is_tied(p, x) && !has(at->stage->weights, at->stage->weight_count, i)) {
            at->stage->weights[at->stage->weight_count++] = i;
        }
    } else if (i < p->tensor_count && !has(at->stage->buffers, at->stage->buffer_count, i)) {
        at->stage->buffers[at->stage->buffer_count++] = i;
    }
    return TUTTI_OK;
}

static tutti_status_t list_stage(tutti_pipeline_t *p, tt_stage_t *stage)
{
    list_t at = {p, stage};
    stage->weights = tt_alloc_array((size_t)p->tensor_count, sizeof(int), "pipeline shards");
    TT_TRY_ALLOC(stage->weights);
    stage->buffers = tt_alloc_array((size_t)p->tensor_count, sizeof(int), "pipeline shards");
    TT_TRY_ALLOC(stage->buffers);
    for (int i = stage->first; i < stage->end; i++) {
        TT_TRY(tutti_module_each_tensor(p->chain.parts[i].module, list_tensor, &at));
    }
    return TUTTI_OK;
}

static tutti_status_t make_room(tutti_pipeline_t *p, const int *list, int count)
{
    for (int i = 0; i < count; i++) {
        tt_pipeline_param_t *param = &p->params[list[i]];
        if (param->waiting != NULL) {
            continue; /* a buffer of two stages */
        }
        param->waiting =
            tt_alloc_array((size_t)p->shards, sizeof *param->waiting, "pipeline shards");
        TT_TRY_ALLOC(param->waiting);
        param->left = tt_alloc_array((size_t)p->shards, sizeof *param->left, "pipeline shards");
        TT_TRY_ALLOC(param->left);
    }
    return TUTTI_OK;
}

tutti_status_t tt_shards_open(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->own_count; i++) {
        tt_stage_t *stage = &p->own[i];
        TT_TRY(list_stage(p, stage));
        TT_TRY(make_room(p, stage->weights, stage->weight_count));
        TT_TRY(make_room(p, stage->buffers, stage->buffer_count));
    }
    return TUTTI_OK;
}

void tt_shards_forget(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->tensor_count; i++) {
        if (p->params[i].waiting != NULL) {
            tt_tensors_release(p->params[i].waiting, (size_t)p->shards);
        }
    }
    p->waiting_bytes = 0;
}

void tt_shards_close(tutti_pipeline_t *p)
{
    tt_shards_forget(p);
    for (int i = 0; i < p->tensor_count; i++) {
        tt_free(p->params[i].waiting);
        tt_free(p->params[i].left);
        p->params[i].waiting = NULL;
        p->params[i].left = NULL;
    }
}

/* ---- gradients that wait --------------------------------------------------------------------- */

static void count_bytes(tutti_pipeline_t *p, const tutti_tensor_t *x, int sign)
{
    p->waiting_bytes += x == NULL ? 0 : sign * (int64_t)tutti_tensor_bytes(x);
    p->stats.waiting_bytes_max = p->waiting_bytes > p->stats.waiting_bytes_max
                                     ? p->waiting_bytes
                                     : p->stats.waiting_bytes_max;
}

static bool waits(const tutti_pipeline_t *p, int shard)
{
    return p->has_turns && shard != p->turn;
}

/* What DDP does not average is added up where it is. */
tutti_status_t tt_shards_enter(tutti_pipeline_t *p, const tt_stage_t *stage, int shard)
{
    if (!waits(p, shard)) {
        return TUTTI_OK;
    }
    tt_ddp_look_away(p->ddp, true);
    for (int i = 0; i < stage->weight_count; i++) {
        tt_pipeline_param_t *param = &p->params[stage->weights[i]];
        if (tt_ddp_has(param->tensor)) {
            const tt_autograd_t *a = tt_autograd_of(param->tensor);
            param->is_away = true;
            param->home_is_stale = a->grad_is_stale;
            param->home = a->grad == NULL ? NULL : tutti_tensor_retain(a->grad);
            TT_TRY(tutti_tensor_set_grad(param->tensor, param->waiting[shard]));
        }
    }
    return TUTTI_OK;
}

static void leave(tutti_pipeline_t *p, tt_pipeline_param_t *param, int shard)
{
    tt_autograd_t *a = tt_autograd_of(param->tensor);
    count_bytes(p, param->waiting[shard], -1);
    tutti_tensor_release(param->waiting[shard]);
    param->waiting[shard] = a->grad;
    a->grad = param->home;
    a->grad_is_stale = param->home_is_stale;
    param->home = NULL;
    param->is_away = false;
    count_bytes(p, param->waiting[shard], 1);
}

void tt_shards_leave(tutti_pipeline_t *p, const tt_stage_t *stage, int shard)
{
    if (!waits(p, shard)) {
        return;
    }
    for (int i = 0; i < stage->weight_count; i++) {
        tt_pipeline_param_t *param = &p->params[stage->weights[i]];
        if (param->is_away) {
            leave(p, param, shard);
        }
    }
    tt_ddp_look_away(p->ddp, false);
}

/* Its turn has come. */
static tutti_status_t give(tutti_pipeline_t *p, tutti_scope_t *s, const tt_pipeline_param_t *param)
{
    tutti_tensor_t **grad = &param->waiting[p->turn];
    TT_TRY(tt_ddp_want_gathered(p->ddp, param->tensor));
    count_bytes(p, *grad, -1);
    TT_TRY(tt_leaf_accumulate(s, param->tensor, grad));
    tt_tensors_release(grad, 1);
    return tt_ddp_take_gathered(p->ddp, param->tensor);
}

static tutti_status_t give_stage(tutti_pipeline_t *p, tutti_scope_t *s, const tt_stage_t *stage)
{
    tutti_ddp_no_sync(p->ddp, stage->left[p->turn] > 0); /* more comes */
    for (int i = 0; i < stage->weight_count; i++) {
        const tt_pipeline_param_t *param = &p->params[stage->weights[i]];
        TT_TRY(param->waiting[p->turn] != NULL ? give(p, s, param) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t give_waiting(tutti_pipeline_t *p)
{
    tutti_scope_t *s;
    tutti_status_t status = TUTTI_OK;
    TT_TRY(tutti_scope_open(p->ctx, &s));
    for (int i = 0; i < p->own_count && status >= 0; i++) {
        status = give_stage(p, s, &p->own[i]);
    }
    tutti_ddp_no_sync(p->ddp, p->is_held);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static int64_t weight_of(const tutti_pipeline_shard_t *shard)
{
    return shard->is_empty ? 0 : shard->weight == 0 ? 1 : shard->weight;
}

static tutti_status_t begin_turn(tutti_pipeline_t *p, int shard)
{
    TT_TRY(tt_ddp_begin_shard(p->ddp, weight_of(&p->batches[shard])));
    p->turn = shard;
    tt_ties_begin_step(p);
    return give_waiting(p);
}

static void close_turn(tutti_pipeline_t *p)
{
    p->open -= p->batches[p->turn].is_empty ? 0 : p->own_count;
}

static bool is_over(const tutti_pipeline_t *p, int shard)
{
    int left = 0;
    for (int i = 0; i < p->own_count; i++) {
        left += p->own[i].left[shard];
    }
    return left == 0;
}

/* The last turn ends behind the row; so do those of a rank that waits for others' parts of a tie,
 * who may be waiting for its next action. */
static tutti_status_t go_on(tutti_pipeline_t *p)
{
    while (p->turn + 1 < p->batch_count && is_over(p, p->turn) && !tt_ties_await_ranks(p)) {
        TT_TRY(tt_ties_end_shard(p, p->turn, false));
        close_turn(p);
        TT_TRY(begin_turn(p, p->turn + 1));
    }
    return TUTTI_OK;
}

tutti_status_t tt_shards_begin_step(tutti_pipeline_t *p)
{
    p->turn = p->open = 0;
    for (int i = 0; i < p->tensor_count; i++) {
        p->params[i].at = -1;
    }
    for (int shard = 0; shard < p->batch_count; shard++) {
        const int count = p->batches[shard].is_empty ? 0 : p->micro_batches;
        for (int i = 0; i < p->own_count; i++) {
            p->own[i].left[shard] = count;
            for (int k = 0; k < p->own[i].buffer_count; k++) {
                p->params[p->own[i].buffers[k]].left[shard] = 0;
            }
        }
        for (int i = 0; i < p->own_count; i++) {
            for (int k = 0; k < p->own[i].buffer_count; k++) {
                p->params[p->own[i].buffers[k]].left[shard] += count;
            }
        }
    }
    if (!p->has_turns) {
        tt_ties_begin_step(p);
        return TUTTI_OK;
    }
    TT_TRY(begin_turn(p, 0));
    return go_on(p);
}

tutti_status_t tt_shards_note(tutti_pipeline_t *p, tt_stage_t *stage, int shard)
{
    p->open += stage->left[shard]-- == p->micro_batches;
    p->stats.accumulators_max =
        p->open > p->stats.accumulators_max ? p->open : p->stats.accumulators_max;
    return p->has_turns ? go_on(p) : TUTTI_OK;
}

tutti_status_t tt_shards_end_step(tutti_pipeline_t *p)
{
    for (int shard = 0; shard < p->batch_count; shard++) {
        if (shard > p->turn) {
            close_turn(p);
            TT_TRY(begin_turn(p, shard));
        }
        TT_TRY(shard == p->turn ? tt_ties_end_shard(p, shard, false) : TUTTI_OK);
        TT_TRY(tt_ties_end_shard(p, shard, true));
    }
    return TUTTI_OK;
}

/* ---- running statistics ---------------------------------------------------------------------- */

bool tt_shard_is_first(const tutti_pipeline_t *p, int shard)
{
    int first = 0;
    while (first < shard && p->batches[first].is_empty) {
        first++;
    }
    return first == shard;
}

/* Values of a shard that goes on later. */
static tutti_status_t put_by(const tutti_tensor_t *x, tutti_tensor_t **out)
{
    TT_TRY(tt_tensor_new(x->storage->device, x->dtype, x->shape, false, out));
    return tutti_tensor_copy(*out, x);
}

static tutti_status_t turn_buffer(tutti_pipeline_t *p, tt_pipeline_param_t *buffer, int shard)
{
    tutti_tensor_t **wanted = &buffer->waiting[shard];
    if (buffer->at == shard) {
        return TUTTI_OK;
    }
    if (buffer->at >= 0 && buffer->left[buffer->at] > 0) {
        TT_TRY(put_by(buffer->tensor, &buffer->waiting[buffer->at]));
    }
    TT_TRY(*wanted != NULL ? tutti_tensor_copy(buffer->tensor, *wanted)
                           : tt_ddp_restart_buffer(p->ddp, buffer->tensor));
    tt_tensors_release(wanted, 1);
    buffer->at = shard;
    return TUTTI_OK;
}

tutti_status_t tt_shards_enter_forward(tutti_pipeline_t *p, const tt_stage_t *stage, int shard)
{
    for (int i = 0; p->has_turns && i < stage->buffer_count; i++) {
        TT_TRY(turn_buffer(p, &p->params[stage->buffers[i]], shard));
    }
    return TUTTI_OK;
}

tutti_status_t tt_shards_leave_forward(tutti_pipeline_t *p, const tt_stage_t *stage, int shard)
{
    for (int i = 0; p->has_turns && i < stage->buffer_count; i++) {
        tt_pipeline_param_t *buffer = &p->params[stage->buffers[i]];
        TT_TRY(--buffer->left[shard] == 0 && tt_shard_is_first(p, shard)
                   ? tt_ddp_keep_buffer(p->ddp, buffer->tensor)
                   : TUTTI_OK);
    }
    return TUTTI_OK;
}

static bool has_data(const tutti_pipeline_t *p)
{
    bool has = false;
    for (int shard = 0; shard < p->batch_count; shard++) {
        has |= !p->batches[shard].is_empty;
    }
    return has;
}

tutti_status_t tt_shards_enter_end(tutti_pipeline_t *p)
{
    for (int i = p->param_count; p->has_turns && has_data(p) && i < p->tensor_count; i++) {
        TT_TRY(tt_ddp_put_kept_buffer(p->ddp, p->params[i].tensor));
    }
    return TUTTI_OK;
}

tutti_status_t tt_shards_leave_end(tutti_pipeline_t *p)
{
    for (int i = p->param_count; p->has_turns && has_data(p) && i < p->tensor_count; i++) {
        TT_TRY(tt_ddp_keep_buffer(p->ddp, p->params[i].tensor));
    }
    return TUTTI_OK;
}
