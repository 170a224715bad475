/* A rank that dies in the middle of an action: all others end with an error that says where they
 * were, and whose action they waited for. Each action of each rank is one case. */
#include "parallel/pipeline/pipeline_versions_testing.h"

#include <tutti/own_optimizer.h>

#include "comm/net/job_key_test.h"
#include "parallel/pipeline/pipeline_killed_testing.h"

enum { RANKS = 3 };

/* On a linear of the victim's own stage: 0, 4 and 8 of the mlp's 9 parts. */
static tutti_status_t arm(tutti_module_t *net, tt_death_t *death)
{
    char name[16];
    tutti_chain_link_t link;
    const int part = 4 * death->victim;
    const tutti_module_hooks_t hooks =
        death->action == 'F' ? (tutti_module_hooks_t){.before_forward = tt_die_in_module}
                             : (tutti_module_hooks_t){.before_backward = tt_die_in_module};
    if (death->action == 'W') {
        snprintf(name, sizeof name, "%d.weight", part);
        return tutti_tensor_on_accumulate(tutti_module_find(net, name), tt_die_at_weight, death);
    }
    return tutti_module_kind(net)->chain(net, part, &link)
               ? tutti_module_add_hooks(link.module, &hooks, death)
               : TUTTI_ERR_STATE;
}

static const tt_training_t training = {.model = "mlp", .schedule = "zb-h1", .micro_batches = 4};
static const tt_async_t async = {
    .model = "mlp", .optimizer = "sgd", .ranks = RANKS, .micro_batches = 4, .rows = 9};

/* Which is undone, and made again. The step that somebody dies in begins before the verdict on the
 * one before. */
static tutti_status_t step_optimistically(tt_trainer_t *t, int number)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_make_batch(s, &training, number, &x, &y);
    const tutti_status_t status =
        tutti_pipeline_step(t->pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, NULL);
    const tutti_status_t closed = tutti_scope_close(s);
    TT_TRY(status < 0 ? status : closed);
    return number == 0 ? tutti_pipeline_validate(t->pipeline, NULL) : TUTTI_OK;
}

static tutti_status_t train_until_failure(tt_trainer_t *t, tt_death_t *death)
{
    for (death->step = 0; death->step < TT_KILLED_STEPS; death->step++) {
        double loss;
        TT_TRY(death->validates  ? step_optimistically(t, death->step)
               : death->is_async ? tt_async_batch(t, &async, death->step, &loss)
                                 : tt_train_step(t, &training, death->step, &loss));
        if (death->action == 'V') {
            tt_die(death);
        }
    }
    return TUTTI_OK;
}

static tt_death_t *stepping; /* of this process */

static void step_or_die(const tutti_optim_piece_t *piece)
{
    if (stepping->action == 'S') {
        tt_die(stepping);
    }
    tutti_sgd.update(piece);
}

/* The optimizer is one that may die. */
static tutti_status_t replace_optimizer(tt_trainer_t *t, tt_death_t *death)
{
    static tutti_optim_ops_t kind;
    tutti_optim_release(t->opt);
    t->opt = NULL;
    stepping = death;
    kind = tutti_sgd;
    kind.update = step_or_die;
    TT_TRY(tutti_optim_create(t->ctx, &kind, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static tutti_status_t open_async(tt_trainer_t *t, tutti_group_t *world, tt_death_t *death)
{
    static tt_training_t of_async; /* the loss looks at it in each step */
    of_async = tt_training_of(&async);
    TT_TRY(tt_async_open(t, &async, &of_async, world));
    TT_TRY(tutti_pipeline_set_optimizer(t->pipeline, NULL));
    TT_TRY(replace_optimizer(t, death));
    return tutti_pipeline_set_optimizer(t->pipeline, t->opt);
}

static tutti_status_t open_sync(tt_trainer_t *t, tutti_group_t *world, tt_death_t *death)
{
    const tutti_pipeline_validation_t always = {.max_norm = 1e-3};
    TT_TRY(tt_trainer_open(t, &training, world));
    if (!death->validates) {
        return TUTTI_OK;
    }
    TT_TRY(replace_optimizer(t, death));
    return tutti_pipeline_post_validate(t->pipeline, t->opt, &always);
}

static tutti_status_t be_rank(tt_death_t *death, int rank)
{
    tt_trainer_t t;
    tutti_group_t *world;
    TT_TRY(tt_killed_join(death, rank, &world));
    TT_TRY(death->is_async ? open_async(&t, world, death) : open_sync(&t, world, death));
    if (rank != death->victim) {
        death->action = 0;
    }
    TT_TRY(strchr("FBW", death->action) != NULL && death->action != 0 ? arm(t.net, death)
                                                                      : TUTTI_OK);
    return train_until_failure(&t, death);
}

static void kill_one(int victim, char action, int micro_batch, bool is_async)
{
    tt_death_t death = {.ranks = RANKS,
                        .victim = victim,
                        .action = action,
                        .micro_batch = micro_batch,
                        .is_async = is_async,
                        .be_rank = be_rank};
    tt_kill_one(&death);
}

static void a_death_in_any_action_is_told_to_all(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBW"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < training.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch, false);
                }
            }
        }
    }
}

static void so_is_one_that_is_always_looked_at(void **state)
{
    (void)state;
    kill_one(1, 'F', 2, false);
    kill_one(2, 'B', 0, false);
}

/* Of a schedule that steps inside a batch: a step is an action, too. */
static void a_death_in_a_step_is_told_to_all(void **state)
{
    (void)state;
    uint64_t number = 1000;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBWS"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < async.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch, true);
                }
            }
        }
    }
    kill_one(1, 'S', 3, true);
}

/* Who waits for numbers of all ranks, or for the next verdict, is in no action. */
static bool is_between_actions(const tt_death_t *death, const char *said)
{
    (void)death;
    return strncmp(said, "pipeline: rank ", strlen("pipeline: rank ")) == 0;
}

/* Steps of stages that do not know all gradients: parameters 0 to 3 are stepped, and again; and
 * behind them (V). */
static void a_death_before_the_verdict_is_told_to_all(void **state)
{
    (void)state;
    uint64_t number = 2000;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBWSV"; *action != 0; action++) {
            for (int k = 0; k < (*action == 'V' ? 1 : 4); k++) {
                if (tt_test_takes(number++) || *action == 'V' ||
                    (*action == 'S' && victim == 1 && k % 3 == 0)) {
                    tt_death_t death = {.ranks = RANKS,
                                        .victim = victim,
                                        .action = *action,
                                        .micro_batch = k,
                                        .validates = true,
                                        .be_rank = be_rank,
                                        .excuses = is_between_actions};
                    tt_kill_one(&death);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_any_action_is_told_to_all),
        cmocka_unit_test(so_is_one_that_is_always_looked_at),
        cmocka_unit_test(a_death_in_a_step_is_told_to_all),
        cmocka_unit_test(a_death_before_the_verdict_is_told_to_all),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
