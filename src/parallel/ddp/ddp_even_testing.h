/* A training of a model that is cut evenly: linear layers of one size, AdamW, one process for all
 * ranks. For *_test.c only.
 *
 *     tt_even_open(m, (tt_even_t){.layers = 4}, &job);
 *     TT_EXPECT(m, tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp) == TUTTI_OK);
 *     TT_EXPECT(m, tt_even_step(&job, 0) == TUTTI_OK);
 *     tt_even_close(&job);
 */
#ifndef TT_DDP_EVEN_TESTING_H
#define TT_DDP_EVEN_TESTING_H

#include <tutti/ddp.h>
#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>

#include "comm/group/group_team.h"

enum { TT_EVEN_SIDE = 256 }; /* of a layer's weight, which is all that it has */

typedef struct {
    int layers;
    bool is_on_meta; /* made by tutti_ddp_create() */
} tt_even_t;

typedef struct {
    tutti_device_t *meta;
    tutti_context_t *ctx, *maker;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} tt_even_job_t;

static inline void tt_even_open(tt_member_t *m, tt_even_t how, tt_even_job_t *job)
{
    tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {.in = TT_EVEN_SIDE,
                                          .out = TT_EVEN_SIDE,
                                          .no_bias = true,
                                          .activation = TUTTI_ACTIVATION_TANH};
    *job = (tt_even_job_t){0};
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_device_open("meta", NULL, &job->meta) == TUTTI_OK);
    context.device = how.is_on_meta ? job->meta : NULL;
    TT_EXPECT(m, tutti_context_create(&context, &job->maker) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->maker, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < how.layers; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_optim_create(job->ctx, &tutti_adamw, NULL, &job->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(job->opt, job->net, NULL, NULL) == TUTTI_OK);
}

static inline void tt_even_close(tt_even_job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    tutti_context_release(job->maker);
    tutti_context_release(job->ctx);
    tutti_device_release(job->meta);
}

/* All of a step but the optimizer's. */
static inline tutti_status_t tt_even_compute(tt_even_job_t *job, int number)
{
    tutti_context_set_step(job->ctx, number);
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, TT_EVEN_SIDE), -1, 1);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return tutti_ddp_finish(job->ddp);
}

static inline tutti_status_t tt_even_step(tt_even_job_t *job, int number)
{
    TUTTI_CHECK(tt_even_compute(job, number));
    return tutti_optim_step(job->opt);
}

#endif
