/* Plans: which modules are cut, by rules over their names, or by their kinds.
 *
 * Whoever has a layer that is cut may have to know: an attention computes some of the heads, and
 * dropout behind a row is of a part of the sequence. They get items without a style. */
#include "parallel/tensor/tp_item.h"

#include <stdio.h>
#include <string.h>

#include "compute/nn/layers/layer_gpt_embedding.h"
#include "compute/nn/layers/layer_self_attention.h"
#include "core/base/alloc.h"
#include "core/base/nearest.h"

typedef struct {
    char name[TT_MODULE_NAME_BYTES];
    tutti_module_t *m;
} place_t;

typedef struct {
    place_t *places; /* [count] all modules, parents first */
    size_t count, capacity;
    const tt_tp_t *tp;
    const tutti_parallel_options_t *options;
    tt_tp_plan_t *plan;
} walk_t;

/* ---- lists ----------------------------------------------------------------------------------- */

static tutti_status_t grow(void **list, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity) {
        return TUTTI_OK;
    }
    const size_t more = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown = tt_realloc(*list, more * bytes, "parallel plan");
    TT_TRY_ALLOC(grown);
    *list = grown;
    *capacity = more;
    return TUTTI_OK;
}

static tutti_status_t add_place(void *user, const char *name, tutti_module_t *m)
{
    walk_t *w = user;
    void *list = w->places;
    for (size_t i = 0; i < w->count; i++) {
        if (w->places[i].m == m) {
            return TUTTI_OK; /* it has two names: the first is as good */
        }
    }
    TT_TRY(grow(&list, w->count, &w->capacity, sizeof *w->places));
    w->places = list;
    place_t *place = &w->places[w->count++];
    snprintf(place->name, sizeof place->name, "%s", name);
    place->m = m;
    return TUTTI_OK;
}

static bool is_prepared(tutti_parallel_style_t style)
{
    return style == TUTTI_PARALLEL_INPUT || style == TUTTI_PARALLEL_OUTPUT;
}

static tutti_status_t check_once(const tt_tp_plan_t *plan, const place_t *place,
                                 tutti_parallel_style_t style)
{
    for (size_t i = 0; i < plan->count; i++) {
        const tutti_parallel_style_t other = plan->items[i].rule.style;
        if (plan->items[i].m == place->m &&
            (other == style || (!is_prepared(style) && !is_prepared(other)))) {
            return TT_FAIL(TUTTI_ERR_ARG, "parallelize: two rules are for %s: %s and %s",
                           place->name, tutti_parallel_style_name(other),
                           tutti_parallel_style_name(style));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t add_item(walk_t *w, const place_t *place, const tutti_parallel_rule_t *rule)
{
    tt_tp_plan_t *plan = w->plan;
    void *list = plan->items;
    TT_TRY(check_once(plan, place, rule->style));
    TT_TRY(grow(&list, plan->count, &plan->capacity, sizeof *plan->items));
    plan->items = list;
    tt_tp_item_t *item = &plan->items[plan->count++];
    *item = (tt_tp_item_t){
        .m = place->m, .rule = *rule, .tp = *w->tp, .is_sequence_cut = w->options->sequence};
    snprintf(item->name, sizeof item->name, "%s", place->name);
    return TUTTI_OK;
}

/* ---- by kinds -------------------------------------------------------------------------------- */

typedef struct {
    const tutti_module_ops_t *kind;
    const char *child;
    tutti_parallel_style_t style;
} habit_t;

static const habit_t habits[] = {
    {&tt_gpt_embedding_layer, "tok", TUTTI_PARALLEL_VOCABULARY},
    {&tt_gpt_embedding_layer, "pos", TUTTI_PARALLEL_SEQUENCE},
    {&tutti_gpt_layer, "ln", TUTTI_PARALLEL_SEQUENCE},
    {&tutti_gpt_layer, "head", TUTTI_PARALLEL_COLUMN},
    {&tutti_transformer_block_layer, "ln1", TUTTI_PARALLEL_SEQUENCE},
    {&tutti_transformer_block_layer, "ln2", TUTTI_PARALLEL_SEQUENCE},
    {&tutti_self_attention_layer, "qkv", TUTTI_PARALLEL_COLUMN},
    {&tutti_self_attention_layer, "proj", TUTTI_PARALLEL_ROW},
    {&tutti_mlp_layer, "up", TUTTI_PARALLEL_COLUMN},
    {&tutti_mlp_layer, "down", TUTTI_PARALLEL_ROW},
};

static tutti_module_t *child_of(const tutti_module_t *m, const char *name)
{
    for (size_t i = 0; i < m->child_count; i++) {
        if (strcmp(m->children[i].name, name) == 0) {
            return m->children[i].module;
        }
    }
    return NULL;
}

static const place_t *place_of(const walk_t *w, const tutti_module_t *m)
{
    for (size_t i = 0; i < w->count; i++) {
        if (w->places[i].m == m) {
            return &w->places[i];
        }
    }
    return NULL;
}

static tutti_status_t plan_kinds(walk_t *w)
{
    for (size_t i = 0; i < w->count; i++) {
        for (size_t k = 0; k < sizeof habits / sizeof *habits; k++) {
            const place_t *child = habits[k].kind == w->places[i].m->ops
                                       ? place_of(w, child_of(w->places[i].m, habits[k].child))
                                       : NULL;
            const tutti_parallel_rule_t rule = {.style = habits[k].style};
            TT_TRY(child != NULL ? add_item(w, child, &rule) : TUTTI_OK);
        }
    }
    return w->plan->count > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "parallelize: no gpt, transformer_block, self_attention or mlp is below "
                         "this module: say by rules what is to be cut");
}

/* ---- by rules -------------------------------------------------------------------------------- */

enum { NEAR_MAX = 3, NEAR_BYTES = 3 * 80 };

/* The names that are nearest to a pattern, quoted. */
static void list_nearest(const walk_t *w, const char *pattern, char *text, size_t bytes)
{
    size_t used = 0, last = 0;
    for (int n = 0; n < NEAR_MAX; n++) {
        const place_t *best = NULL;
        size_t least = SIZE_MAX;
        for (size_t i = 0; i < w->count; i++) { /* the next one, in order of distance and place */
            const size_t key = tt_name_distance(pattern, w->places[i].name) * w->count + i + 1;
            if (key > last && key < least && w->places[i].name[0] != 0) {
                least = key;
                best = &w->places[i];
            }
        }
        if (best == NULL || used >= bytes) {
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s\"%.70s\"", n > 0 ? ", " : "",
                                 best->name);
        last = least;
    }
}

static tutti_status_t fail_rule(const walk_t *w, const tutti_parallel_rule_t *rule,
                                const place_t *other)
{
    char near[NEAR_BYTES] = "";
    if (other != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "parallelize: \"%s\" matches %s, a %s, which cannot be cut by the style %s",
                       rule->pattern, other->name, other->m->ops->name,
                       tutti_parallel_style_name(rule->style));
    }
    list_nearest(w, rule->pattern, near, sizeof near);
    return TT_FAIL(TUTTI_ERR_NOT_FOUND,
                   "parallelize: no module is called \"%s\"; the nearest names are %s",
                   rule->pattern, near[0] != 0 ? near : "none");
}

static tutti_status_t plan_rule(walk_t *w, const tutti_parallel_rule_t *rule)
{
    const place_t *other = NULL;
    bool has_one = false;
    if (rule->pattern == NULL || rule->style < 0 || rule->style >= TUTTI_PARALLEL_STYLE_COUNT) {
        return TT_FAIL(TUTTI_ERR_ARG, "parallelize: a rule without a pattern, or of style %d",
                       (int)rule->style);
    }
    for (size_t i = 0; i < w->count; i++) {
        const place_t *place = &w->places[i];
        if (!tt_name_matches(rule->pattern, place->name)) {
            continue;
        }
        if (!tt_tp_style_takes(rule->style, place->m)) {
            other = other == NULL ? place : other;
            continue;
        }
        has_one = true;
        TT_TRY(add_item(w, place, rule));
        while (is_prepared(rule->style) && i + 1 < w->count &&
               strcmp(w->places[i + 1].name, place->name) == 0) {
            i++; /* of several modules of one name the outermost */
        }
    }
    return has_one ? TUTTI_OK : fail_rule(w, rule, other);
}

static tutti_status_t plan_rules(walk_t *w)
{
    for (int i = 0; i < w->options->rule_count; i++) {
        TT_TRY(plan_rule(w, &w->options->rules[i]));
    }
    return TUTTI_OK;
}

/* ---- whoever has them ------------------------------------------------------------------------ */

/* A shard has whole groups: heads of queries, and those of the keys that they share. */
static tutti_status_t check_groups(const walk_t *w, const place_t *place,
                                   const tt_self_attention_layer_t *a)
{
    const int shards = w->tp->shards;
    return a->kv_heads == a->heads || a->kv_heads % shards == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "parallelize: %s: %lld heads of keys and values are not divisible by %d "
                         "shards: choose shards that divide them (%lld at most), or a number of "
                         "them that is a multiple of %d",
                         place->name, (long long)a->kv_heads, shards, (long long)a->kv_heads,
                         shards);
}

static tutti_status_t add_attention(walk_t *w, const place_t *place)
{
    const tt_self_attention_layer_t *a = place->m->state;
    tt_tp_item_t *qkv = tt_tp_item_of(w->plan, a->qkv, TUTTI_PARALLEL_COLUMN);
    tt_tp_item_t *proj = tt_tp_item_of(w->plan, a->proj, TUTTI_PARALLEL_ROW);
    const tutti_parallel_rule_t none = {.style = TUTTI_PARALLEL_STYLE_COUNT};
    const tt_leaves_t own = tt_tp_leaves(w->tp);
    if (qkv == NULL || proj == NULL) {
        return qkv == proj ? TUTTI_OK
                           : TT_FAIL(TUTTI_ERR_ARG,
                                     "parallelize: of the self_attention %s only one of qkv and "
                                     "proj is cut: cut qkv by columns and proj by rows",
                                     place->name);
    }
    TT_TRY(check_groups(w, place, a));
    const int64_t d = a->width / a->heads;
    const int64_t sizes[] = {a->width, a->kv_heads * d, a->kv_heads * d};
    qkv->rule.parts = sizeof sizes / sizeof sizes[0];
    memcpy(qkv->rule.part_sizes, sizes, sizeof sizes);
    qkv->rule.unit = proj->rule.unit = d;
    TT_TRY(add_item(w, place, &none));
    tt_tp_item_t *item = &w->plan->items[w->plan->count - 1];
    const int64_t each = a->heads / w->tp->shards;
    item->heads =
        (tt_share_t){each * own.begin, each * (own.end - own.begin), each * w->tp->shards};
    item->drops = w->options->sequence;
    return TUTTI_OK;
}

static tutti_status_t add_dropping(walk_t *w, const place_t *place, const char *child,
                                   tutti_parallel_style_t style)
{
    const tutti_parallel_rule_t none = {.style = TUTTI_PARALLEL_STYLE_COUNT};
    if (!w->options->sequence || tt_tp_item_of(w->plan, child_of(place->m, child), style) == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(add_item(w, place, &none));
    w->plan->items[w->plan->count - 1].drops = true;
    return TUTTI_OK;
}

static tutti_status_t add_owners(walk_t *w)
{
    for (size_t i = 0; i < w->count; i++) {
        const place_t *place = &w->places[i];
        if (place->m->ops == &tutti_self_attention_layer) {
            TT_TRY(add_attention(w, place));
        } else if (place->m->ops == &tutti_mlp_layer) {
            TT_TRY(add_dropping(w, place, "down", TUTTI_PARALLEL_ROW));
        } else if (place->m->ops == &tt_gpt_embedding_layer) {
            TT_TRY(add_dropping(w, place, "tok", TUTTI_PARALLEL_VOCABULARY));
        }
    }
    return TUTTI_OK;
}

static const char *name_of(void *user, const tutti_module_t *m)
{
    return place_of(user, m)->name;
}

static tutti_status_t add_dropout(void *user, const tutti_module_t *m,
                                  const tutti_module_t *columns_of)
{
    walk_t *w = user;
    const tutti_parallel_rule_t none = {.style = TUTTI_PARALLEL_STYLE_COUNT};
    if (tt_tp_item_of(w->plan, m, none.style) != NULL) {
        return TUTTI_OK; /* it has two places: the first is as good */
    }
    TT_TRY(add_item(w, place_of(w, m), &none));
    tt_tp_item_t *item = &w->plan->items[w->plan->count - 1];
    item->columns_of = columns_of;
    item->drops = columns_of == NULL;
    return TUTTI_OK;
}

tutti_status_t tt_tp_plan_open(tutti_module_t *m, const tt_tp_t *tp,
                               const tutti_parallel_options_t *o, tt_tp_plan_t *plan)
{
    walk_t w = {.tp = tp, .options = o, .plan = plan};
    *plan = (tt_tp_plan_t){.is_sequence_cut = o->sequence};
    tutti_status_t status = tutti_module_apply(m, add_place, &w);
    if (status >= 0) {
        status = o->rules != NULL ? plan_rules(&w) : plan_kinds(&w);
    }
    if (status >= 0) {
        status = add_owners(&w);
    }
    if (status >= 0) {
        const tt_tp_flow_t flow = {plan, add_dropout, name_of, &w};
        status = tt_tp_flow(&flow, m);
    }
    tt_free(w.places);
    return status;
}

void tt_tp_plan_close(tt_tp_plan_t *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        tt_tp_item_t *item = &plan->items[i];
        for (int k = 0; k < item->parameter_count; k++) {
            tutti_tensor_release(item->parameters[k].part);
        }
        if (item->cut != NULL) { /* it did not come to the module */
            tutti_module_remove_hooks(item->m, item->cut);
            item->cut->base.release(&item->cut->base);
        }
    }
    tt_free(plan->items);
}
