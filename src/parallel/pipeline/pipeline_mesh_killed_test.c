/* A rank of a mesh that dies in the middle of an action: all others end with an error that says
 * where they were, also those that share neither a stage, nor a layer, nor data with it. Each
 * action of each rank is one case. Prints how long it took until the last one was told. */
#include "parallel/pipeline/pipeline_mesh_testing.h"

#include <tutti/own_optimizer.h>

#include "comm/net/job_key_test.h"
#include "parallel/pipeline/pipeline_killed_testing.h"

enum { RANKS = 8 };

static tutti_status_t find_module(void *user, const char *name, tutti_module_t *m)
{
    const char *const *wanted = ((void **)user)[0];
    if (strcmp(name, *wanted) == 0) {
        ((void **)user)[1] = m;
    }
    return TUTTI_OK;
}

/* In the middle of a block of the victim's own stage, between collectives of its layers. */
static tutti_status_t arm(const tt_mesh_trainer_t *t, tt_death_t *death)
{
    const bool is_first = tutti_mesh_coordinate(t->mesh, "pp") == 0;
    const char *name = is_first ? "blocks.1.up" : "blocks.2.up";
    void *search[] = {(void *)(uintptr_t)&name, NULL};
    const tutti_module_hooks_t hooks =
        death->action == 'F' ? (tutti_module_hooks_t){.before_forward = tt_die_in_module}
                             : (tutti_module_hooks_t){.before_backward = tt_die_in_module};
    if (death->action == 'W') {
        return tutti_tensor_on_accumulate(
            tutti_module_find(t->net, is_first ? "blocks.1.up.weight" : "blocks.2.up.weight"),
            tt_die_at_weight, death);
    }
    TT_TRY(tutti_module_apply(t->net, find_module, search));
    return search[1] == NULL ? TUTTI_ERR_STATE : tutti_module_add_hooks(search[1], &hooks, death);
}

static tt_mesh_training_t training = {.shards = 2,
                                      .tp_shards = 2,
                                      .micro_batches = 3,
                                      .clips = true,
                                      .dp = 2,
                                      .tp = 2,
                                      .pp = 2,
                                      .stage = 1,
                                      .schedule = "zb-h1"};

/* Each action has as many in a step. */
static int actions_of_step(void)
{
    return training.micro_batches * training.shards / training.dp;
}

static tutti_status_t train_until_failure(tt_mesh_trainer_t *t, tt_death_t *death)
{
    double losses[TT_MESH_SHARDS_MAX];
    for (death->step = 0; death->step < TT_KILLED_STEPS; death->step++) {
        TT_TRY((training.validates ? tt_mesh_average : tt_mesh_step)(t, death->step, losses));
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

static tutti_status_t be_rank(tt_death_t *death, int rank)
{
    tt_mesh_trainer_t t;
    tutti_group_t *world;
    static tutti_optim_ops_t kind;
    stepping = death;
    kind = tutti_sgd;
    kind.update = step_or_die;
    training.kind = training.validates ? &kind : NULL;
    if (rank != death->victim) {
        death->action = 0;
    }
    TT_TRY(tt_killed_join(death, rank, &world));
    TT_TRY(tt_mesh_open(&t, &training, world));
    TT_TRY(rank == death->victim && strchr("FBW", death->action) != NULL ? arm(&t, death)
                                                                         : TUTTI_OK);
    return train_until_failure(&t, death);
}

/* Nobody waits for a W, and few for a rank's last action: others may have gone on to the optimizer,
 * whose calls have no action. There the rank's own row of the mesh sees it die, the others hear. */
static bool may_be_behind(const tt_death_t *death, const char *said)
{
    const bool is_late = death->action == 'W' || death->micro_batch == actions_of_step() - 1;
    return is_late && strncmp(said, "pipeline: ", 10) != 0 &&
           (strstr(said, "gave the group up") != NULL || strstr(said, ") died") != NULL);
}

static void kill_one(int victim, char action, int micro_batch)
{
    tt_death_t death = {.ranks = RANKS,
                        .victim = victim,
                        .action = action,
                        .micro_batch = micro_batch,
                        .be_rank = be_rank,
                        .excuses = may_be_behind};
    tt_kill_one(&death);
}

static void a_death_in_any_action_is_told_to_the_whole_mesh(void **state)
{
    (void)state;
    uint64_t number = 0;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBW"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < training.micro_batches; micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch);
                }
            }
        }
    }
}

static void so_is_one_that_is_always_looked_at(void **state)
{
    (void)state;
    kill_one(5, 'B', 1);
}

/* Two shards of a row in one schedule: what a rank waits for may be another shard's, or a bucket of
 * one that is done, which travels while the next one goes on. */
static void so_is_one_between_shards(void **state)
{
    (void)state;
    const tt_mesh_training_t plain = training;
    uint64_t number = 1000;
    training.at_once = true;
    training.shards = 4;
    training.stage = 2;
    training.accumulate = TUTTI_DDP_SHARDED;
    for (int victim = 0; victim < RANKS; victim++) {
        for (const char *action = "FBW"; *action != 0; action++) {
            for (int micro_batch = 0; micro_batch < actions_of_step(); micro_batch++) {
                if (tt_test_takes(number++)) {
                    kill_one(victim, *action, micro_batch);
                }
            }
        }
    }
    kill_one(2, 'W', 3);
    training = plain;
}

/* Who hears of it when the verdict is wanted, or from a replica or a part of its layers, may be in
 * no action. */
static bool is_between_actions(const tt_death_t *death, const char *said)
{
    (void)death;
    return strncmp(said, "pipeline: rank ", strlen("pipeline: rank ")) == 0 ||
           strstr(said, "gave the group up") != NULL || strstr(said, ") died") != NULL;
}

/* In the step that is made again, in the next one, and before the verdict on it (V). */
static void so_is_one_before_the_verdict(void **state)
{
    (void)state;
    const tt_mesh_training_t plain = training;
    uint64_t number = 2000;
    training.validates = true;
    training.max_norm = 1e-3;
    for (int stage = 0; stage < 3; stage++) {
        training.stage = stage;
        for (int victim = 0; victim < RANKS; victim++) {
            for (int k = 0; k < 4; k++) {
                if (tt_test_takes(number++) || (victim == 5 && k == stage)) {
                    tt_death_t death = {.ranks = RANKS,
                                        .victim = victim,
                                        .action = "SSVW"[k],
                                        .micro_batch = k == 1 ? 3 : 0,
                                        .be_rank = be_rank,
                                        .excuses = is_between_actions};
                    tt_kill_one(&death);
                }
            }
        }
    }
    training = plain;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_in_any_action_is_told_to_the_whole_mesh),
        cmocka_unit_test(so_is_one_that_is_always_looked_at),
        cmocka_unit_test(so_is_one_between_shards),
        cmocka_unit_test(so_is_one_before_the_verdict),
    };
    return cmocka_run_group_tests(tests, tt_take_key, tt_nothing_is_left);
}
