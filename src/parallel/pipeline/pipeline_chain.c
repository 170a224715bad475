/* A module as a chain of parts: kinds that say that they are chains are taken apart, as deep as
 * they are.
 *
 *     gpt                 (embedding, blocks, ln, head)
 *       blocks            (0, 1, 2)
 *
 *     parts               embedding  blocks.0  blocks.1  blocks.2  ln  head
 *     of the chain        gpt        blocks    blocks    blocks    gpt gpt
 *
 * One that is recomputed as a whole stays whole.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/pointer_set.h"
#include "parallel/pipeline/pipeline_impl.h"

enum { DEPTH_MAX = 32 };

static tutti_status_t grow(tt_chain_t *chain)
{
    const int capacity = chain->capacity == 0 ? 8 : 2 * chain->capacity;
    tt_part_t *parts = tt_realloc(chain->parts, (size_t)capacity * sizeof *parts, "pipeline parts");
    TT_TRY_ALLOC(parts);
    chain->parts = parts;
    chain->capacity = capacity;
    return TUTTI_OK;
}

static tutti_status_t add_part(tt_chain_t *chain, const tutti_chain_link_t *link, int parent)
{
    if (link->outputs < 0 || link->outputs > TT_WIDTH) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: a %s gives %d tensors to the next part: at most %d may",
                       tutti_module_kind(link->module)->name, link->outputs, TT_WIDTH);
    }
    TT_TRY(chain->count == chain->capacity ? grow(chain) : TUTTI_OK);
    chain->parts[chain->count++] = (tt_part_t){.module = link->module,
                                               .outputs = link->outputs == 0 ? 1 : link->outputs,
                                               .is_recomputed = link->is_recomputed,
                                               .parent = parent};
    return TUTTI_OK;
}

/* Behind its last inner part a chain gives as many tensors as its link says. */
static tutti_status_t flatten(tt_chain_t *chain, const tutti_chain_link_t *outer, int depth,
                              int parent)
{
    tutti_chain_link_t link = {0};
    const tutti_module_ops_t *ops = tutti_module_kind(outer->module);
    if (ops->chain == NULL || outer->is_recomputed || depth == DEPTH_MAX) {
        return add_part(chain, outer, parent);
    }
    const int own = chain->parents++, before = chain->count;
    for (int i = 0; ops->chain(outer->module, i, &link); i++) {
        TT_TRY(flatten(chain, &link, depth + 1, own));
        link = (tutti_chain_link_t){0};
    }
    if (chain->count == before) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: a chain of kind %s has no links", ops->name);
    }
    chain->parts[chain->count - 1].outputs = outer->outputs == 0 ? 1 : outer->outputs;
    return TUTTI_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* One that is there twice has two names, too, in the order of the chain. */
static tutti_status_t name_part(void *user, const char *name, tutti_module_t *m)
{
    tt_chain_t *chain = user;
    for (int i = 0; i < chain->count; i++) {
        tt_part_t *part = &chain->parts[i];
        if (part->module == m && part->name == NULL) {
            part->name = tt_strdup(name[0] == 0 ? tutti_module_kind(m)->name : name, "part's name");
            TT_TRY_ALLOC(part->name);
            break;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_names(const tt_chain_t *chain)
{
    for (int i = 0; i < chain->count; i++) {
        if (chain->parts[i].name == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: link %d of the chain, a %s, is no module below the one that "
                           "is cut",
                           i, tutti_module_kind(chain->parts[i].module)->name);
        }
    }
    return TUTTI_OK;
}

/* ---- every tensor is some part's ------------------------------------------------------------- */

static tutti_status_t note(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    bool is_new;
    return tt_pointer_set_add(user, x, &is_new);
}

static tutti_status_t expect_noted(void *user, const char *name, tutti_tensor_t *x)
{
    bool is_new;
    TT_TRY(tt_pointer_set_add(user, x, &is_new));
    return is_new ? TT_FAIL(TUTTI_ERR_ARG,
                            "pipeline: %s belongs to no part of the chain: its module's kind "
                            "(tutti_module_ops_t.chain) must give it to one",
                            name)
                  : TUTTI_OK;
}

static tutti_status_t check_tensors(tutti_module_t *module, const tt_chain_t *chain)
{
    tt_pointer_set_t seen = {0};
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < chain->count && status >= 0; i++) {
        status = tutti_module_each_tensor(chain->parts[i].module, note, &seen);
    }
    status = status < 0 ? status : tutti_module_each_tensor(module, expect_noted, &seen);
    tt_pointer_set_release(&seen);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

tutti_status_t tt_chain_open(tutti_module_t *module, tt_chain_t *chain)
{
    TT_TRY(flatten(chain, &(tutti_chain_link_t){.module = module}, 0, -1));
    TT_TRY(tutti_module_apply(module, name_part, chain));
    TT_TRY(check_names(chain));
    return check_tensors(module, chain);
}

void tt_chain_close(tt_chain_t *chain)
{
    for (int i = 0; i < chain->count; i++) {
        tt_free(chain->parts[i].name);
    }
    tt_free(chain->parts);
    *chain = (tt_chain_t){0};
}
