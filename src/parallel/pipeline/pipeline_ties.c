/* Parameters that several parts have, such as the embedding and the head of a language model.
 *
 *     part         0 (embedding)   1    2    3 (head)
 *     rank              0          0    1      1
 *     gradient        use 0                  use 1         one for each, over a shard
 *     end of step   ◄────────── use 1 ──────────           to the rank of the first part, which
 *                   before + use 0 + use 1                 adds them in the order of forward
 *     optimizer     steps ───── values ─────────►          and gives the values to the others
 *
 * So the sum has one order, however the parts are spread. Within a rank the graph is cut before a
 * part that has a parameter which another part of the same graph has, too: each graph then has one
 * use of it, whose gradient stands in the parameter's place while its backward runs.
 */
#include <tutti/messages.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

enum { TAG_TIE = 0, TAG_VALUES = 1 };

static int rank_of(const tutti_pipeline_t *p, const tt_use_t *use)
{
    return tt_rank_of_stage(p, p->chain.parts[use->part].stage);
}

/* ---- finding --------------------------------------------------------------------------------- */

typedef struct {
    const tutti_tensor_t *tensor;
    bool is_found;
} search_t;

static tutti_status_t compare(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    search_t *search = user;
    search->is_found |= search->tensor == x;
    return TUTTI_OK;
}

static tutti_status_t has_tensor(const tt_part_t *part, const tutti_tensor_t *x, bool *out)
{
    search_t search = {.tensor = x};
    TT_TRY(tutti_module_each_tensor(part->module, compare, &search));
    *out = search.is_found;
    return TUTTI_OK;
}

static tutti_status_t count_uses(tutti_pipeline_t *p, const tt_pipeline_param_t *param,
                                 tt_use_t *uses, int *count)
{
    *count = 0;
    for (int i = 0; i < p->chain.count; i++) {
        bool is_there;
        TT_TRY(has_tensor(&p->chain.parts[i], param->tensor, &is_there));
        if (is_there) {
            uses[(*count)++] = (tt_use_t){.part = i};
        }
    }
    return TUTTI_OK;
}

static void close_uses(const tutti_pipeline_t *p, tt_tie_t *tie)
{
    for (int i = 0; i < tie->use_count; i++) {
        tt_tensors_release(tie->uses[i].grads, (size_t)p->shards);
        tt_free(tie->uses[i].grads);
    }
    tt_free(tie->uses);
    *tie = (tt_tie_t){0};
}

static tutti_status_t add_tie(tutti_pipeline_t *p, tt_pipeline_param_t *param, tt_use_t *uses)
{
    int count;
    TT_TRY(count_uses(p, param, uses, &count));
    if (count < 2) {
        return TUTTI_OK;
    }
    tt_tie_t *tie = &p->ties[p->tie_count];
    tie->uses = tt_alloc_array((size_t)count, sizeof *tie->uses, "tied uses");
    TT_TRY_ALLOC(tie->uses);
    for (int i = 0; i < count; i++) {
        tie->uses[i] = uses[i];
        tie->uses[i].grads =
            tt_alloc_array((size_t)p->shards, sizeof(tutti_tensor_t *), "tied uses");
        if (tie->uses[i].grads == NULL) {
            close_uses(p, tie);
            return TUTTI_ERR_NOMEM;
        }
        tie->use_count++;
    }
    tie->name = param->name;
    tie->tensor = param->tensor;
    p->tie_count++;
    return TUTTI_OK;
}

static bool uses_part(const tt_tie_t *tie, int first, int end)
{
    for (int i = 0; i < tie->use_count; i++) {
        if (tie->uses[i].part >= first && tie->uses[i].part < end) {
            return true;
        }
    }
    return false;
}

/* A graph begins with each stage, and where a tied parameter would be there twice. */
static void cut_segments(tutti_pipeline_t *p)
{
    int first = 0;
    for (int i = 0; i < p->chain.count; i++) {
        tt_part_t *part = &p->chain.parts[i];
        part->begins_segment = i == 0 || part[-1].stage != part->stage;
        for (int t = 0; t < p->tie_count && !part->begins_segment; t++) {
            part->begins_segment =
                uses_part(&p->ties[t], i, i + 1) && uses_part(&p->ties[t], first, i);
        }
        first = part->begins_segment ? i : first;
    }
}

tutti_status_t tt_ties_open(tutti_pipeline_t *p)
{
    p->ties = tt_alloc_array((size_t)p->param_count, sizeof *p->ties, "ties");
    TT_TRY_ALLOC(p->ties);
    tt_use_t *uses = tt_alloc_array((size_t)p->chain.count, sizeof *uses, "tied uses");
    TT_TRY_ALLOC(uses);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < p->param_count && status >= 0; i++) {
        status = add_tie(p, &p->params[i], uses);
    }
    tt_free(uses);
    cut_segments(p);
    return status;
}

void tt_ties_close(tutti_pipeline_t *p)
{
    for (int t = 0; t < p->tie_count; t++) {
        tutti_tensor_release(p->ties[t].before);
        tutti_tensor_release(p->ties[t].home);
        close_uses(p, &p->ties[t]);
    }
    tt_free(p->ties);
    p->ties = NULL;
    p->tie_count = 0;
}

/* ---- in a step ------------------------------------------------------------------------------- */

static bool is_mine(const tutti_pipeline_t *p, const tt_tie_t *tie)
{
    bool is = false;
    for (int i = 0; i < tie->use_count; i++) {
        is |= rank_of(p, &tie->uses[i]) == p->rank;
    }
    return is;
}

bool tt_tie_spans_ranks(const tutti_pipeline_t *p, const tt_tie_t *tie)
{
    bool is = false;
    for (int i = 1; i < tie->use_count; i++) {
        is |= rank_of(p, &tie->uses[i]) != rank_of(p, &tie->uses[0]);
    }
    return is;
}

/* The gradient out of the parameter, owned by the caller. */
static tutti_tensor_t *take_grad(tutti_tensor_t *x)
{
    tutti_tensor_t *grad = tutti_tensor_grad(x);
    grad = grad == NULL ? NULL : tutti_tensor_retain(grad);
    (void)tutti_tensor_set_grad(x, NULL); /* which has no way to fail */
    return grad;
}

/* DDP averages what lies in its own place. */
static void keep_home(const tutti_pipeline_t *p, tt_tie_t *tie)
{
    const tt_autograd_t *autograd = tt_autograd_of(tie->tensor);
    tutti_tensor_release(tie->home);
    tie->home = p->ddp != NULL && autograd != NULL && autograd->grad_is_stale
                    ? tutti_tensor_retain(autograd->grad)
                    : NULL;
}

/* The sum begins with what was there before the step. */
static tutti_status_t begin_sum(tutti_pipeline_t *p, tt_tie_t *tie)
{
    tutti_tensor_t *place = tie->before != NULL ? tie->before : tie->home;
    TT_TRY(p->ddp != NULL ? tt_ddp_want_gathered(p->ddp, tie->tensor) : TUTTI_OK);
    TT_TRY(place != NULL ? tutti_tensor_set_grad(tie->tensor, place) : TUTTI_OK);
    if (tie->before == NULL && place != NULL) {
        tutti_tensor_zero_grad(tie->tensor);
    }
    tutti_tensor_release(tie->before);
    tutti_tensor_release(tie->home);
    tie->before = tie->home = NULL;
    return TUTTI_OK;
}

void tt_ties_begin_step(tutti_pipeline_t *p)
{
    for (int t = 0; t < p->tie_count; t++) {
        if (is_mine(p, &p->ties[t])) {
            keep_home(p, &p->ties[t]);
            tutti_tensor_release(p->ties[t].before);
            p->ties[t].before = take_grad(p->ties[t].tensor);
        }
    }
}

static tt_use_t *use_in(tt_tie_t *tie, int first, int end)
{
    for (int i = 0; i < tie->use_count; i++) {
        if (tie->uses[i].part >= first && tie->uses[i].part < end) {
            return &tie->uses[i];
        }
    }
    return NULL;
}

tutti_status_t tt_ties_enter(tutti_pipeline_t *p, int first, int end, int shard)
{
    for (int t = 0; t < p->tie_count; t++) {
        const tt_use_t *use = use_in(&p->ties[t], first, end);
        if (use != NULL && use->grads[shard] != NULL) {
            TT_TRY(tutti_tensor_set_grad(p->ties[t].tensor, use->grads[shard]));
        }
    }
    return TUTTI_OK;
}

void tt_ties_leave(tutti_pipeline_t *p, int first, int end, int shard)
{
    for (int t = 0; t < p->tie_count; t++) {
        tt_use_t *use = use_in(&p->ties[t], first, end);
        if (use != NULL) {
            tutti_tensor_t *grad = take_grad(p->ties[t].tensor);
            tutti_tensor_release(use->grads[shard]);
            use->grads[shard] = grad;
        }
    }
}

/* ---- the end of a step ----------------------------------------------------------------------- */

/* Whether there is a gradient, then the gradient. */
static tutti_status_t send_use(tutti_pipeline_t *p, tutti_tensor_t *grad, int owner)
{
    tutti_tensor_t *flag, *host = NULL;
    TT_TRY(tt_tensor_new(p->ctx->cpu, TUTTI_U8, TUTTI_SHAPE(1), true, &flag));
    *(uint8_t *)tutti_tensor_data(flag) = grad != NULL;
    tutti_status_t status = tutti_send(p->group, flag, owner, TAG_TIE, NULL);
    if (status >= 0 && grad != NULL) {
        status = tt_tensor_on_host(grad, &host);
        status = status < 0 ? status : tutti_send(p->group, host, owner, TAG_TIE, NULL);
        tutti_tensor_release(host);
    }
    tutti_tensor_release(flag);
    return status;
}

static tutti_status_t receive_grad(tutti_pipeline_t *p, const tt_tie_t *tie, int from,
                                   tutti_tensor_t **out)
{
    tutti_tensor_t *host;
    const tutti_tensor_t *x = tie->tensor;
    TT_TRY(tt_tensor_new(p->ctx->cpu, x->dtype, x->shape, false, &host));
    tutti_status_t status = tutti_recv(p->group, host, from, TAG_TIE, NULL);
    if (status >= 0 && x->storage->device != NULL) {
        status = tt_tensor_new(x->storage->device, x->dtype, x->shape, false, out);
        status = status < 0 ? status : tutti_tensor_copy(*out, host);
        tutti_tensor_release(host);
        return status;
    }
    *out = host;
    return status;
}

static tutti_status_t receive_use(tutti_pipeline_t *p, const tt_tie_t *tie, int from,
                                  tutti_tensor_t **grad)
{
    tutti_tensor_t *flag;
    TT_TRY(tt_tensor_new(p->ctx->cpu, TUTTI_U8, TUTTI_SHAPE(1), true, &flag));
    tutti_status_t status = tutti_recv(p->group, flag, from, TAG_TIE, NULL);
    if (status >= 0 && *(const uint8_t *)tutti_tensor_data(flag) != 0) {
        status = receive_grad(p, tie, from, grad);
    }
    tutti_tensor_release(flag);
    return status;
}

static void forget(tt_tie_t *tie, int shard)
{
    for (int i = 0; i < tie->use_count; i++) {
        tt_tensors_release(&tie->uses[i].grads[shard], 1);
    }
    tutti_tensor_release(tie->before);
    tutti_tensor_release(tie->home);
    tie->before = tie->home = NULL;
}

static tutti_status_t add_up(tutti_pipeline_t *p, tt_tie_t *tie, int shard)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(p->ctx, &s));
    tutti_status_t status = begin_sum(p, tie);
    for (int i = 0; i < tie->use_count && status >= 0; i++) {
        tutti_tensor_t **grad = &tie->uses[i].grads[shard];
        if (*grad != NULL) {
            tt_autograd_t *autograd;
            status = tt_autograd_ensure(tie->tensor, &autograd);
            status = status < 0 ? status : tt_leaf_accumulate(s, tie->tensor, grad);
        }
    }
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static tutti_status_t end_tie(tutti_pipeline_t *p, tt_tie_t *tie, int shard)
{
    const int owner = rank_of(p, &tie->uses[0]);
    for (int i = 0; i < tie->use_count; i++) {
        const int rank = rank_of(p, &tie->uses[i]);
        if (rank != owner && rank == p->rank) {
            TT_TRY(send_use(p, tie->uses[i].grads[shard], owner));
        } else if (rank != owner && owner == p->rank) {
            TT_TRY(receive_use(p, tie, rank, &tie->uses[i].grads[shard]));
        }
    }
    if (owner != p->rank) {
        return TUTTI_OK;
    }
    TT_TRY(add_up(p, tie, shard));
    return p->ddp != NULL && tutti_tensor_grad(tie->tensor) != NULL
               ? tt_ddp_take_gathered(p->ddp, tie->tensor)
               : TUTTI_OK;
}

tutti_status_t tt_ties_end_shard(tutti_pipeline_t *p, int shard, bool spans_ranks)
{
    tutti_status_t status = TUTTI_OK;
    for (int t = 0; t < p->tie_count; t++) {
        tt_tie_t *tie = &p->ties[t];
        if (is_mine(p, tie) && tt_tie_spans_ranks(p, tie) == spans_ranks) {
            status = status < 0 ? status : end_tie(p, tie, shard);
            forget(tie, shard);
        }
    }
    return status;
}

bool tt_ties_await_ranks(const tutti_pipeline_t *p)
{
    bool awaits = false;
    for (int t = 0; t < p->tie_count; t++) {
        const tt_tie_t *tie = &p->ties[t];
        awaits |= tt_tie_spans_ranks(p, tie) && rank_of(p, &tie->uses[0]) == p->rank;
    }
    return awaits;
}

/* ---- behind an optimizer's step -------------------------------------------------------------- */

static bool is_first_of_rank(const tutti_pipeline_t *p, const tt_tie_t *tie, int use)
{
    int i = 0;
    while (rank_of(p, &tie->uses[i]) != rank_of(p, &tie->uses[use])) {
        i++;
    }
    return i == use;
}

static tutti_status_t send_copy(tutti_pipeline_t *p, const tt_tie_t *tie, int to)
{
    tutti_tensor_t *host;
    TT_TRY(tt_tensor_on_host(tie->tensor, &host));
    const tutti_status_t status = tutti_send(p->group, host, to, TAG_VALUES, NULL);
    tutti_tensor_release(host);
    return status;
}

static tutti_status_t send_values(tutti_pipeline_t *p, const tt_tie_t *tie, int to)
{
    if (p->ddp == NULL) {
        return send_copy(p, tie, to);
    }
    TT_TRY(tt_ddp_bring(p->ddp, tie->tensor));
    const tutti_status_t status = send_copy(p, tie, to), gone = tt_ddp_let_go(p->ddp, tie->tensor);
    return status < 0 ? status : gone;
}

static tutti_status_t receive_values(tutti_pipeline_t *p, const tt_tie_t *tie, int from)
{
    tutti_tensor_t *host;
    tutti_tensor_t *x = tie->tensor;
    TT_TRY(tt_tensor_new(p->ctx->cpu, x->dtype, x->shape, false, &host));
    tutti_status_t status = tutti_recv(p->group, host, from, TAG_VALUES, NULL);
    status = status < 0 ? status : tutti_tensor_copy(x, host);
    tutti_tensor_release(host);
    return status;
}

tutti_status_t tt_ties_share(tutti_pipeline_t *p)
{
    for (int t = 0; t < p->tie_count; t++) {
        const tt_tie_t *tie = &p->ties[t];
        const int owner = rank_of(p, &tie->uses[0]);
        for (int i = 1; i < tie->use_count; i++) {
            const int rank = rank_of(p, &tie->uses[i]);
            if (rank == owner || !is_first_of_rank(p, tie, i)) {
                continue;
            }
            if (p->rank == owner) {
                TT_TRY(send_values(p, tie, rank));
            } else if (p->rank == rank) {
                TT_TRY(receive_values(p, tie, owner));
            }
        }
    }
    return TUTTI_OK;
}
