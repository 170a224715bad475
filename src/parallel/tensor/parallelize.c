/* tutti_parallelize(): plan, check, make, agree, put in place.
 *
 * What may fail is done before anything changes, and the ranks agree on how it went, twice: whether
 * all could plan and make their parts, and whether all had the same values. */
#define XXH_STATIC_LINKING_ONLY /* the state as a value, so that nothing is allocated */
#include <xxhash.h>

#include "parallel/tensor/tp_item.h"

#include <tutti/autograd.h>
#include <tutti/collectives.h>
#include <tutti/objects.h>

#include <string.h>

#include "comm/group/agree.h"
#include "compute/autograd/node.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_same_cut(const tt_tp_item_t *a, const tt_tp_parameter_t *p, const tt_tp_item_t *b,
                        const tt_tp_parameter_t *q)
{
    return p->dim == q->dim && (p->dim < 0 || memcmp(&a->dim, &b->dim, sizeof a->dim) == 0);
}

/* A parameter that two modules share is cut once; they agree on how. */
static tutti_status_t check_shared(tt_tp_item_t *item, const tt_tp_item_t *before)
{
    for (int i = 0; i < item->parameter_count; i++) {
        tt_tp_parameter_t *p = &item->parameters[i];
        for (int k = 0; k < before->parameter_count; k++) {
            const tt_tp_parameter_t *q = &before->parameters[k];
            if (p->tensor != q->tensor) {
                continue;
            }
            if (!is_same_cut(item, p, before, q)) {
                return TT_FAIL(TUTTI_ERR_ARG,
                               "parallelize: %s.%s and %s.%s are one parameter, which is to be cut "
                               "in two ways",
                               before->name, q->name, item->name, p->name);
            }
            p->dim = -1; /* the other one does it */
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_whole(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    TT_TRY(tt_tensor_check_named(x, name));
    if (!tt_device_has_values(x->storage->device)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "parallelize: %s lies on meta: materialize the module, or load it, first",
                       name);
    }
    if (x->slice != NULL || x->part != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "parallelize: %s is dealt out already: parallelize the "
                       "module before DDP wraps it",
                       name);
    }
    return TUTTI_OK;
}

/* Of no tensor of a module does this fail. */
static tutti_status_t forget_grad(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name;
    (void)tutti_tensor_set_grad(x, NULL);
    return TUTTI_OK;
}

/* A dropout layer has the columns of the layer before it, which has one part. */
static void take_columns(const tt_tp_plan_t *plan, tt_tp_item_t *item)
{
    if (item->columns_of != NULL) {
        const tt_tp_dim_t *dim = &tt_tp_item_of(plan, item->columns_of, TUTTI_PARALLEL_COLUMN)->dim;
        const tt_span_t own = tt_tp_part(&item->tp, dim, 0);
        item->columns = (tt_share_t){own.begin, own.count, dim->sizes[0]};
    }
}

static tutti_status_t make_all(tutti_module_t *m, const tt_tp_t *tp,
                               const tutti_parallel_options_t *o, tt_tp_plan_t *plan)
{
    TT_TRY(tt_tp_check("parallelize", tp));
    TT_TRY(tt_tp_plan_open(m, tp, o, plan));
    TT_TRY(tutti_module_each_parameter(m, check_whole, NULL));
    for (size_t i = 0; i < plan->count; i++) {
        TT_TRY(tt_tp_style_apply(&plan->items[i]));
        for (size_t k = 0; k < i; k++) {
            TT_TRY(check_shared(&plan->items[i], &plan->items[k]));
        }
    }
    TT_TRY(tt_tp_plan_check(m, plan));
    for (size_t i = 0; i < plan->count; i++) {
        take_columns(plan, &plan->items[i]);
    }
    for (size_t i = 0; i < plan->count; i++) {
        TT_TRY(tt_tp_cut_make(&plan->items[i]));
    }
    return TUTTI_OK;
}

/* ---- what all ranks must have ---------------------------------------------------------------- */

typedef struct {
    char digest[TUTTI_DIGEST_BYTES];
    int64_t shards;
    int64_t is_sequence_cut;
    uint64_t rules;
} creed_t;

enum { PLACEMENTS = 3, ITEM_NUMBERS = 4 + TUTTI_PARALLEL_PARTS_MAX + 5 * PLACEMENTS };

static void add_numbers(XXH3_state_t *state, const tt_tp_item_t *item)
{
    const tutti_parallel_rule_t *rule = &item->rule;
    const tutti_placement_t *placements[PLACEMENTS] = {&rule->how.from, &rule->how.to,
                                                       &rule->how.grad};
    int64_t numbers[ITEM_NUMBERS] = {rule->style, rule->unit, item->dim.parts, item->drops};
    for (int i = 0; i < item->dim.parts; i++) {
        numbers[4 + i] = item->dim.sizes[i];
    }
    for (int i = 0; i < PLACEMENTS; i++) {
        int64_t *to = &numbers[4 + TUTTI_PARALLEL_PARTS_MAX + 5 * i];
        to[0] = placements[i]->kind;
        to[1] = placements[i]->dim;
        to[2] = placements[i]->size;
        to[3] = placements[i]->leaves;
        to[4] = placements[i]->op;
    }
    (void)XXH3_64bits_update(state, numbers, sizeof numbers);
}

/* What is cut, and how: the same number on ranks that have the same plan. */
static uint64_t hash_plan(const tt_tp_plan_t *plan)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    for (size_t i = 0; i < plan->count; i++) {
        const tt_tp_item_t *item = &plan->items[i];
        (void)XXH3_64bits_update(&state, item->name, strlen(item->name) + 1);
        add_numbers(&state, item);
        for (int k = 0; k < item->parameter_count; k++) {
            const int64_t dim = item->parameters[k].dim;
            (void)XXH3_64bits_update(&state, &dim, sizeof dim);
        }
    }
    return XXH3_64bits_digest(&state);
}

static tutti_status_t compare(const creed_t *mine, const creed_t *first)
{
    if (mine->shards != first->shards || mine->is_sequence_cut != first->is_sequence_cut) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "parallelize: %lld shards%s, but on rank 0 %lld%s: all ranks pass the same "
                       "options",
                       (long long)mine->shards, mine->is_sequence_cut ? " with the sequence" : "",
                       (long long)first->shards,
                       first->is_sequence_cut ? " with the sequence" : "");
    }
    if (mine->rules != first->rules) {
        return TT_FAIL(
            TUTTI_ERR_MISMATCH,
            "parallelize: the rules cut other modules than on rank 0, or otherwise (plans "
            "%016llx and %016llx): all ranks pass the same rules",
            (unsigned long long)mine->rules, (unsigned long long)first->rules);
    }
    return strcmp(mine->digest, first->digest) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH,
                         "parallelize: the module has other values than on rank 0 (digests %s and "
                         "%s): make it from the same seed, or load it, on every rank",
                         mine->digest, first->digest);
}

static tutti_status_t check_ranks(tutti_module_t *m, const tt_tp_t *tp, const tt_tp_plan_t *plan)
{
    creed_t mine, first;
    memset(&mine, 0, sizeof mine);
    tutti_status_t status = tutti_module_digest(m, mine.digest);
    mine.shards = tp->shards;
    mine.is_sequence_cut = plan->is_sequence_cut;
    mine.rules = hash_plan(plan);
    first = mine;
    TT_TRY(tt_group_agree(tp->group, status));
    if (tutti_group_size(tp->group) == 1) {
        return TUTTI_OK;
    }
    tutti_buffer_t sent = {NULL, 0};
    status = tutti_broadcast_bytes(tp->group, tutti_bytes_of(&mine, sizeof mine), 0, &sent);
    if (status >= 0 && sent.bytes == sizeof first) {
        memcpy(&first, sent.data, sizeof first);
        status = compare(&mine, &first);
    }
    tutti_buffer_release(&sent);
    return tt_group_agree(tp->group, status);
}

/* ---- failures of a forward or a backward ----------------------------------------------------- */

static void give_up(tt_module_cut_t *guard, tutti_status_t status)
{
    (void)tt_group_give_up(((const tt_tp_cut_t *)guard)->how.tp.group, status);
}

static tutti_status_t watch_end(tutti_scope_t *s, tutti_status_t status, void *user)
{
    const tt_tp_cut_t *guard = user;
    (void)s;
    return status < 0 ? tt_group_give_up(guard->how.tp.group, status) : TUTTI_OK;
}

static tutti_status_t watch_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    return tt_backward_on_turns(s, watch_end, user);
}

static tutti_status_t make_guard(tutti_module_t *m, const tt_tp_t *tp, tt_tp_cut_t **out)
{
    static const tutti_module_hooks_t hooks = {.before_backward = watch_backward};
    tt_tp_cut_t *guard;
    TT_TRY(tt_tp_cut_new(tp, &guard));
    guard->base.give_up = give_up;
    const tutti_status_t status = tutti_module_add_hooks(m, &hooks, guard);
    if (status < 0) {
        guard->base.release(&guard->base);
        return status;
    }
    *out = guard;
    return TUTTI_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tutti_status_t parallelize(tutti_module_t *m, const tt_tp_t *tp,
                                  const tutti_parallel_options_t *o, tt_tp_plan_t *plan)
{
    tt_tp_cut_t *guard = NULL;
    tutti_status_t status = make_all(m, tp, o, plan);
    if (status >= 0) {
        status = make_guard(m, tp, &guard);
    }
    status = tt_group_agree(tp->group, status);
    if (status >= 0) {
        status = check_ranks(m, tp, plan);
    }
    if (status < 0) {
        if (guard != NULL) {
            tutti_module_remove_hooks(m, guard);
            guard->base.release(&guard->base);
        }
        return status;
    }
    (void)tutti_module_each_tensor(m, forget_grad, NULL); /* a walk that needs no memory */
    for (size_t i = 0; i < plan->count; i++) {
        tt_tp_cut_commit(&plan->items[i]);
    }
    tt_tp_cut_hang(m, guard, false);
    return TUTTI_OK;
}

tutti_status_t tutti_parallelize(tutti_module_t *m, tutti_group_t *group,
                                 const tutti_parallel_options_t *options)
{
    static const tutti_parallel_options_t defaults;
    const tutti_parallel_options_t *o = options != NULL ? options : &defaults;
    TT_WANT("parallelize", m);
    TT_WANT("parallelize", group);
    const tt_tp_t tp = {group, o->shards == 0 ? tutti_group_size(group) : o->shards};
    tt_tp_plan_t plan = {0};
    const tutti_status_t status = parallelize(m, &tp, o, &plan);
    tt_tp_plan_close(&plan);
    return status;
}
