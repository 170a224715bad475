/* For tests of parallel styles: a rank's context, small module and scope. */
#ifndef TT_PARALLEL_TRIAL_TESTING_H
#define TT_PARALLEL_TRIAL_TESTING_H

#include "comm/group/group_team.h"

#include <tutti/context.h>
#include <tutti/nn_layers.h>

enum { BATCH = 2, LENGTH = 8, WIDTH = 12, HIDDEN = 20, HEADS = 6, VOCAB = 10 };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_scope_t *s;
} tt_trial_t;

static inline tutti_status_t tt_trial_open(tt_trial_t *p, const tutti_module_ops_t *kind,
                                           const void *options)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 2};
    TUTTI_CHECK(tutti_context_create(&context, &p->ctx));
    TUTTI_CHECK(tutti_module_create(p->ctx, kind, options, &p->net));
    return tutti_scope_open(p->ctx, &p->s);
}

static inline tutti_status_t tt_trial_close(tt_trial_t *p)
{
    const tutti_status_t status = tutti_scope_close(p->s);
    tutti_module_release(p->net);
    tutti_context_release(p->ctx);
    return status;
}

static const tutti_transformer_block_options_t tt_trial_block = {
    .width = WIDTH, .heads = HEADS, .hidden = HIDDEN, .causal = true};
static const tutti_mlp_options_t tt_trial_mlp = {.width = WIDTH, .hidden = HIDDEN};

#endif
