/* Checkpoints of a model that tensor parallelism has cut: saved by some ranks, loaded by others, or
 * by a model that is whole, with the bits of a training that was not interrupted. */
#include "comm/group/group_team.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/checkpoint.h>
#include <tutti/context.h>
#include <tutti/nn_layers.h>
#include <tutti/optim.h>
#include <tutti/tensor_parallel.h>

#include "core/base/place_testing.h"

enum { BATCH = 2, LENGTH = 8, VOCAB = 11, SHARDS = 4, STEPS = 4, HALF = 2 };

typedef struct {
    char place[TT_PLACE_BYTES];
    bool is_cut, sequence, whole;
    int64_t first, last; /* steps; loads before, unless first is 0, and saves behind */
    char digest[TUTTI_DIGEST_BYTES];
} run_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
} trainee_t;

static tutti_status_t make(tt_member_t *m, const run_t *run, trainee_t *t)
{
    const tutti_context_options_t context = {.threads = 1, .seed = (uint64_t)run->first + 1};
    const tutti_gpt_options_t gpt = {
        .layers = 1, .width = 16, .heads = 4, .context = LENGTH, .vocab = VOCAB};
    const tutti_parallel_options_t cut = {.shards = SHARDS, .sequence = run->sequence};
    const tutti_adamw_options_t adamw = {.lr = 0.05};
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_gpt_layer, &gpt, &t->net));
    if (run->is_cut) {
        TUTTI_CHECK(tutti_parallelize(t->net, m->group, &cut));
    }
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, &adamw, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static tutti_status_t step(tt_member_t *m, const trainee_t *t, int64_t number)
{
    const tutti_parallel_loss_options_t loss = {
        .group = m->group, .shards = SHARDS, .classes = VOCAB};
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(BATCH, LENGTH));
    for (int64_t i = 0; i < (int64_t)BATCH * LENGTH; i++) {
        ((int64_t *)tutti_tensor_data(x))[i] = (i * i + 3 * number) % VOCAB;
    }
    (void)tutti_backward(s, tutti_parallel_cross_entropy(s, tutti_forward(s, t->net, x), x, &loss));
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(tutti_optim_step(t->opt));
    tutti_optim_zero_grad(t->opt);
    return TUTTI_OK;
}

static void train(tt_member_t *m)
{
    run_t *run = m->user;
    trainee_t t = {NULL, NULL, NULL};
    TT_EXPECT(m, make(m, run, &t) == TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {.folder = run->place,
                                           .group = m->group,
                                           .module = t.net,
                                           .optim = t.opt,
                                           .whole = run->whole};
    int64_t at = 0;
    if (run->first > 0) {
        TT_EXPECT(m, tutti_checkpoint_load(&checkpoint, &at) == TUTTI_OK && at == run->first);
    }
    for (int64_t i = run->first; i < run->last && m->failure[0] == 0; i++) {
        TT_EXPECT(m, step(m, &t, i) == TUTTI_OK);
    }
    if (m->failure[0] == 0 && run->last > run->first) {
        TT_EXPECT(m, tutti_checkpoint_save(&checkpoint, run->last) == TUTTI_OK);
    }
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, (run->is_cut ? tutti_parallel_digest : tutti_module_digest)(t.net, digest) == 0);
    if (m->rank == 0) {
        memcpy(run->digest, digest, sizeof digest);
    }
    tutti_optim_release(t.opt);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
}

static void expect_run(run_t *run, int ranks, const char *want)
{
    tt_team_expect(ranks, 30000, train, run);
    if (want != NULL) {
        assert_string_equal(run->digest, want);
    }
}

static void any_ranks_go_on_from_any(void **state)
{
    (void)state;
    run_t through = {.is_cut = true, .last = STEPS};
    tt_place_make(through.place);
    expect_run(&through, 1, NULL);
    tt_place_remove(through.place);
    static const int ranks[][2] = {{1, 2}, {2, 3}, {3, 4}, {4, 1}};
    for (int i = 0; i < 4; i++) {
        run_t run = {.is_cut = true, .last = HALF, .sequence = i % 2, .whole = i == 2};
        tt_place_make(run.place);
        expect_run(&run, ranks[i][0], NULL);
        run.first = HALF;
        run.last = STEPS;
        run.sequence = !run.sequence;
        expect_run(&run, ranks[i][1], through.digest);
        run.first = STEPS; /* and as a model that is not cut */
        run.is_cut = false;
        expect_run(&run, 2, through.digest);
        tt_place_remove(run.place);
    }
}

/* What one rank has is no model. */
static void refuse(tt_member_t *m)
{
    const run_t run = {.is_cut = true};
    trainee_t t = {NULL, NULL, NULL};
    TT_EXPECT(m, make(m, &run, &t) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_save(t.net, "/nowhere/at/all", NULL, 0) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "tutti_checkpoint_save()") != NULL);
    TT_EXPECT(m, tutti_optim_save(t.opt, "/nowhere/at/all") == TUTTI_ERR_STATE);
    tutti_optim_release(t.opt);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
}

static void parts_are_not_saved_as_a_model(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_ranks_go_on_from_any),
        cmocka_unit_test(parts_are_not_saved_as_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
