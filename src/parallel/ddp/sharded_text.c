/* Actions of plans as text. */
#include <stdio.h>

#include <tutti/sharded_plan.h>

static const char *const words[] = {
    [TUTTI_SHARDED_FORWARD] = "forward",   [TUTTI_SHARDED_FORWARD_END] = "forward_end",
    [TUTTI_SHARDED_BACKWARD] = "backward", [TUTTI_SHARDED_BACKWARD_END] = "backward_end",
    [TUTTI_SHARDED_SCATTER] = "scatter",   [TUTTI_SHARDED_END] = "backward ends",
    [TUTTI_SHARDED_UNSHARD] = "unshard",   [TUTTI_SHARDED_RESHARD] = "reshard",
    [TUTTI_SHARDED_SHARD] = "shard",       [TUTTI_SHARDED_GATHER] = "gather",
    [TUTTI_SHARDED_RELEASE] = "release",   [TUTTI_SHARDED_KEEP] = "keep",
    [TUTTI_SHARDED_FINISH] = "finish",     [TUTTI_SHARDED_STEP] = "step",
    [TUTTI_SHARDED_PUBLISH] = "publish",
};

static bool has_unit(tutti_sharded_kind_t kind)
{
    return kind != TUTTI_SHARDED_SCATTER && kind != TUTTI_SHARDED_END &&
           kind != TUTTI_SHARDED_SHARD && kind < TUTTI_SHARDED_FINISH;
}

static const char *word_of(const tutti_sharded_plan_t *plan, tutti_sharded_kind_t kind)
{
    if ((unsigned)kind > TUTTI_SHARDED_PUBLISH) {
        return "?";
    }
    return kind == TUTTI_SHARDED_SCATTER && plan->options.stage == 0 ? "all_reduce" : words[kind];
}

size_t tutti_sharded_action_text(const tutti_sharded_plan_t *plan,
                                 const tutti_sharded_action_t *action, char *text,
                                 size_t text_bytes)
{
    const char *word = word_of(plan, action->kind);
    const bool is_unit =
        has_unit(action->kind) && action->index >= 0 && action->index < plan->options.unit_count;
    const char *name = is_unit ? plan->options.units[action->index].name : NULL;
    int length;
    if (name != NULL) {
        length = snprintf(text, text_bytes, "%s %s", word, name[0] == 0 ? "root" : name);
    } else if (has_unit(action->kind)) {
        length = snprintf(text, text_bytes, "%s unit %d", word, action->index);
    } else if (action->kind == TUTTI_SHARDED_SCATTER || action->kind == TUTTI_SHARDED_SHARD) {
        length = snprintf(text, text_bytes, "%s %d", word, action->index);
    } else {
        length = snprintf(text, text_bytes, "%s", word);
    }
    return length > 0 ? (size_t)length : 0;
}
