/* For tests of units: a row of linear layers under DDP and SGD. */
#ifndef TT_DDP_LAYERS_TESTING_H
#define TT_DDP_LAYERS_TESTING_H

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/optim.h>

#include "comm/group/group_team.h"

enum { LAYERS = 4, SIDE = 256 }; /* a weight has 4 sections: it is cut evenly on 1, 2 and 4 ranks */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net, *layers[LAYERS];
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} tt_layers_job_t;

/* Of `layer` all but the sizes. */
static inline void tt_layers_open(tt_member_t *m, const tutti_ddp_options_t *options,
                                  tutti_linear_options_t layer, tt_layers_job_t *job)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    layer.in = layer.out = SIDE;
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->ctx, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, &job->layers[i]) ==
                         TUTTI_OK);
    }
    TT_EXPECT(m, tutti_optim_create(job->ctx, &tutti_sgd, NULL, &job->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job->opt, job->net, NULL, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, options, &job->ddp) == TUTTI_OK);
}

static inline void tt_layers_close(tt_layers_job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    tutti_context_release(job->ctx);
}

#endif
